"""
What a file shows and when: the index of its frames, made inside a decode worker. Imports only NumPy and PyAV.

There are two ways to it. In the usual containers with the usual codecs a packet is a frame, and its time stamp is the
time at which the frame is shown: reading the packets is enough, and cheap. Wherever something speaks against that (a
container without presentation times, a start in mid-GOP, a packet without a time stamp, a file cut short) the file is
decoded once from its start, and what comes out is the index, with a checksum of each picture.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, pairwise

import av
import numpy as np

from .bitstream import begins_cleanly, is_hidden
from .files import VideoError, may_be_picture, open_stream, refusal
from .workers import progress


CONTAINERS = ("mov,mp4", "matroska")  # presentation times for every packet, and seeks by an index
CODECS = {"h264", "hevc", "vp8", "vp9", "libdav1d", "libaom-av1", "av1", "mjpeg", "prores"}  # a packet is a frame
REORDER = 32  # more frames than any decoder holds back
LATE = 0.05  # share of frames that come out after a later one: fewer are accidents, more are a rule
NEVER = -(2**62)  # before any time stamp


@dataclass(frozen=True)
class VideoInfo:
    """
    What is shown of a video: seconds from the first shown frame to the end of the last, upright size in pixels.

    Pictures stand upright once they are turned counterclockwise by `rotation` degrees and, if `mirrored`, then
    mirrored left to right.
    """

    duration: float
    fps: float
    num_frames: int
    width: int
    height: int
    rotation: int
    codec: str
    mirrored: bool = False


@dataclass(frozen=True)
class Index:
    """
    The shown frames in the order of their times, and where decoding can begin.

    Attributes:
        pts: (num_frames,) int64, when frames are shown, in units of `time_base`, strictly increasing.
        starts: (s,) int64, time stamps of the key frames from which decoding can begin, in decoding order.
        entry: (num_frames,) int32, the start that a frame decodes from; -1 where only the whole file leads to it.
        in_order: frames are known by their number in a plain decode: their time stamps are not their own.
        checks: (num_frames,) uint32, checksums of the pictures if the file was decoded for its index.
        clean: every key frame is a start.
        packets: how many packets the stream has.
    """

    info: VideoInfo
    pts: np.ndarray
    starts: np.ndarray
    entry: np.ndarray
    time_base: Fraction
    format: str
    stream: int
    packets: int
    clean: bool = True
    in_order: bool = False
    checks: np.ndarray | None = None

    @property
    def times(self) -> np.ndarray:
        """Seconds after the first shown frame, (num_frames,) float64."""
        return (self.pts - self.pts[0]) * float(self.time_base)

    @property
    def is_start(self) -> np.ndarray:
        """Whether a frame is itself one that decoding can begin at, (num_frames,) bool."""
        return np.isin(self.pts, self.starts)

    @property
    def nbytes(self) -> int:
        arrays = (self.pts, self.starts, self.entry, self.checks)
        return 1024 + sum(array.nbytes for array in arrays if array is not None)


@dataclass(frozen=True)
class Picture:
    """Size of a decoded frame, and how it is turned upright."""

    width: int
    height: int
    rotation: int
    mirrored: bool

    @property
    def upright(self) -> tuple[int, int]:
        return (self.height, self.width) if self.rotation in (90, 270) else (self.width, self.height)


@dataclass(frozen=True)
class Packets:
    """What one part of a file's packets says, in decoding order; only the first part looks at a picture."""

    pts: np.ndarray  # (n,) int64
    shown: np.ndarray  # (n,) bool: not hidden by an edit list
    keys: np.ndarray  # (n,) bool: marked by the container
    starts: np.ndarray  # (n,) bool: decoding can begin here
    length: int  # of the shown packet with the largest time stamp
    fault: str  # why these packets are no index; empty if they are
    picture: Picture | None
    rate: float
    codec: str
    time_base: Fraction
    format: str
    stream: int


def scan(path: str) -> Index:
    """The index of a file, from its packets where they can be trusted, or else from decoding it."""
    return join([read_packets(path)]) or index_by_decoding(path)


def read_packets(path: str, part: int = 0, parts: int = 1) -> Packets:
    """
    The packets of a part of a file. Parts are cut at key frames of the container's own index; where it has none, the
    first part is the whole and the others are empty.
    """
    container, stream = open_stream(path)
    with container:
        notes = Notes(stream.codec_context)
        fault = _unusual(container, stream)
        try:
            for packet in _part(container, stream, part, parts) if not fault else ():
                fault = notes.add(packet) or ("" if part else notes.look(packet))
                if fault:
                    break
                if len(notes.pts) % 256 == 0:
                    progress()
        except av.error.FFmpegError:
            fault = "cut short or damaged"
        pts, shown = np.array(notes.pts, np.int64), np.array(notes.shown, bool)
        starts = np.array(notes.starts, bool)
        if not part:
            fault = fault or _false_start(pts, shown, starts, notes.first) or _false_order(path, stream, pts)
        return Packets(
            pts,
            shown,
            np.array(notes.keys, bool),
            starts,
            notes.length,
            fault,
            notes.picture,
            float(stream.average_rate or 25),
            notes.codec,
            stream.time_base,
            container.format.name,
            stream.index,
        )


class Notes:
    """What is noted of packets while they are read, and what speaks against them."""

    def __init__(self, context):
        self.context, self.codec, self.extradata = context, context.codec.name, context.extradata
        self.pts, self.shown, self.keys, self.starts = [], [], [], []
        self.last, self.length = NEVER, 0  # time stamp and duration of the shown packet with the largest time stamp
        self.last_dts = NEVER
        self.picture = self.first = None  # the first picture and its time stamp

    def add(self, packet) -> str:
        """Notes a packet; returns its fault, or nothing."""
        if packet.pts is None:
            return "a packet without a time stamp" if packet.size else ""  # the end has neither
        key, hidden = packet.is_keyframe, packet.is_discard  # an edit list hides it
        self.pts.append(packet.pts)
        self.keys.append(key)
        self.shown.append(not hidden)
        self.starts.append(key and begins_cleanly(self.codec, memoryview(packet), self.extradata))
        if packet.pts > self.last and not hidden:
            self.last, self.length = packet.pts, packet.duration or 0
        if packet.is_corrupt or not packet.size:
            return "an incomplete packet"
        if packet.dts is not None:
            if packet.dts <= self.last_dts:
                return "decoding times that go back"
            self.last_dts = packet.dts
        if self.codec in ("vp8", "vp9") and is_hidden(self.codec, memoryview(packet)):
            return "a packet that is not shown"
        return ""

    def look(self, packet) -> str:
        """Decodes a packet if there was no picture yet; returns its fault, or nothing."""
        if self.picture is None:
            try:
                for frame in packet.decode()[:1]:
                    self.picture, self.first = picture_of(frame), frame.pts
            except av.error.FFmpegError:
                return "damaged at its start"
        return ""


class CutError(Exception):
    """A part does not begin or end where the container's index said: the file cannot be read in parts."""


def _part(container, stream, part: int, parts: int) -> Iterator:
    """The packets of one of `parts` parts of a file. Raises [`CutError`]."""
    cuts = _cuts(container, stream, parts)
    begin = cuts[part - 1] if 0 < part <= len(cuts) else None
    stop = cuts[part] if part < len(cuts) else None
    if part and not begin:
        return
    if begin:
        container.seek(begin[2], stream=stream)
    for packet in container.demux(stream):
        if begin and (packet.pos, packet.dts) != begin[:2]:
            raise CutError
        begin = None
        if stop and (packet.pos, packet.dts) == stop[:2]:
            return
        yield packet
    if begin or stop:
        raise CutError


def _cuts(container, stream, parts: int) -> list[tuple[int, int, int]]:
    """Position and decoding time of the key frames that cut a file into `parts`, and a time to seek to for each."""
    indexed = parts > 1 and "mov" in container.format.name and int(av.__version__.split(".")[0]) >= 16
    entries, cuts = stream.index_entries if indexed else [], []
    for share in range(1, parts):
        keys = (i for i in range(share * len(entries) // parts, len(entries)) if entries[i].is_keyframe)
        key, following = next(keys, 0), next(keys, len(entries))
        # By the decoding time of the last frame before the next key frame this one has been shown.
        cuts.append((entries[key].pos, entries[key].timestamp, entries[following - 1].timestamp) if key else None)
    return cuts if None not in cuts and len({*cuts}) == len(cuts) else []


def _unusual(container, stream) -> str:
    if may_be_picture(container):
        return "a picture is no video"
    if not container.format.name.startswith(CONTAINERS):
        return f"the container {container.format.name} may lack presentation times"
    if stream.codec_context.codec.name not in CODECS:
        return f"a packet of {stream.codec_context.codec.name} need not be a frame"
    return ""


def _false_start(pts: np.ndarray, shown: np.ndarray, starts: np.ndarray, first: int | None) -> str:
    """Why the frames before the second start may not be those that a decoder shows."""
    if not len(starts) or not starts[0]:
        return "a start in mid-GOP"
    following = np.flatnonzero(starts[1:])
    group = slice(0, following[0] + 1 if len(following) else None)
    early = pts[group][shown[group]]
    if len(early) and early.min() < pts[0]:
        return "frames that refer to what was cut off"
    if first is None or (shown.any() and first != pts[shown].min()):
        return "another first frame than promised"
    return ""


def _false_order(path: str, stream, pts: np.ndarray) -> str:
    """Why time stamps may be times of decoding: the decoder reorders frames, hardly a time stamp does."""
    if stream.codec_context.has_b_frames and (np.diff(pts) < 0).sum() < LATE * len(pts):
        container, stream = open_stream(path, stream.index)
        with container:
            packets = islice(decoded(container, stream), 3 * REORDER)
            stamps = [frame.pts for _, frames in packets for frame in frames or ()]
        if not _increasing(stamps):
            return "frames change places, their time stamps do not"
    return ""


def picture_of(frame) -> Picture:
    try:
        matrix = frame.side_data.get("DISPLAYMATRIX")
    except ValueError:  # PyAV knows only some kinds of side data, and not, for instance, EXIF
        return Picture(frame.width, frame.height, frame.rotation % 360, False)
    a, b, _, c, d = struct.unpack_from("<5i", bytes(matrix)) if matrix else (1, 0, 0, 0, 1)
    if abs(b) + abs(c) > abs(a) + abs(d):
        rotation = 90 if b < 0 else 270
    else:
        rotation = 180 if d < 0 else 0
    return Picture(frame.width, frame.height, rotation, a * d - b * c < 0)


def join(parts: list[Packets]) -> Index | None:
    """The index of a file from its packets, or `None` if they are none."""
    head = parts[0]
    if any(part.fault for part in parts):
        return None
    pts, shown, keys, starts = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("pts", "shown", "keys", "starts")
    )
    numbers = np.flatnonzero(shown)
    numbers = numbers[np.argsort(pts[numbers], kind="stable")]
    if (np.diff(pts[numbers]) == 0).any():
        return None  # two frames at one time
    length = max((part.pts[part.shown].max(initial=NEVER), part.length) for part in parts)[1]
    numbers_of_starts = _unambiguous(pts, np.flatnonzero(starts))
    return Index(
        _info(pts[numbers], length, head.time_base, head.rate, head.picture, head.codec),
        pts[numbers],
        pts[numbers_of_starts],
        _entries(numbers, pts[numbers], numbers_of_starts, pts[numbers_of_starts]),
        head.time_base,
        head.format,
        head.stream,
        len(pts),
        bool((starts == keys).all()),
    )


def _unambiguous(pts: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Those of the packets `numbers` that no other packet shares its time stamp with: a seek must know its goal."""
    values, counts = np.unique(pts, return_counts=True)
    return numbers[counts[np.searchsorted(values, pts[numbers])] == 1]


def _entries(numbers: np.ndarray, pts: np.ndarray, starts: np.ndarray, starts_pts: np.ndarray) -> np.ndarray:
    """
    The start that each frame decodes from, -1 for none: the last that is not after it, neither in the file nor in
    time. (Frames stored after a key frame and shown before it refer to what came earlier.)
    """
    entry = np.searchsorted(starts, numbers, "right") - 1
    while True:
        late = (entry >= 0) & (starts_pts[entry] > pts) if len(starts) else np.zeros(0, bool)
        if not late.any():
            return entry.astype(np.int32)
        entry[late] -= 1


def _info(pts: np.ndarray, length: int, time_base: Fraction, rate: float, picture: Picture, codec: str) -> VideoInfo:
    length = int(length) or (int(np.median(np.diff(pts))) if len(pts) > 1 else 0)
    duration = float((int(pts[-1]) - int(pts[0]) + length) * time_base) or 1.0 / rate
    return VideoInfo(
        duration, len(pts) / duration, len(pts), *picture.upright, picture.rotation, codec, picture.mirrored
    )


def decoded(container, stream) -> Iterator[tuple]:
    """
    Each packet of a plain decode, from where the container stands, with the frames that come out, or `None` where it
    cannot be decoded: that costs what the decoder does not show for it, and no more.
    """
    try:
        for packet in container.demux(stream):
            try:
                frames = packet.decode()
            except av.error.FFmpegError:
                frames = None
            if frames:
                progress()
            yield packet, frames
    except av.error.FFmpegError:
        pass  # a file cut short: what came before is shown


def checksum(frame) -> int:
    """A checksum of a picture: of all its planes, of which a palette is one."""
    check = 0
    for number, plane in enumerate(frame.planes):
        lines = np.frombuffer(plane, np.uint8).reshape(plane.height, -1)
        check = zlib.crc32(np.ascontiguousarray(lines[:, : _line_bytes(frame, number)]), check)
    return check


def _line_bytes(frame, number: int) -> int | None:
    """Bytes of a line of a plane that are the picture's; what follows them is not. `None`: all, of a palette."""
    bits = [8 * -(-part.bits // 8) for part in frame.format.components if part.plane == number]
    if not bits:
        return None
    packed = all(part.plane == 0 for part in frame.format.components)
    return -(-frame.planes[number].width * (frame.format.padded_bits_per_pixel if packed else sum(bits)) // 8)


def index_by_decoding(path: str) -> Index:
    """The index of a file from one plain decode of it."""
    container, stream = open_stream(path)
    with container:
        codec, extradata = stream.codec_context.codec.name, stream.codec_context.extradata
        stamps, lengths, starts = [], [], []  # of packets: pts or None, duration; numbers of those that are starts
        frames, checks, picture = [], [], None  # (pts, dts) or None each
        for packet, found in decoded(container, stream):
            if packet.size:
                if packet.is_keyframe and packet.pts is not None:
                    starts += [len(stamps)] if begins_cleanly(codec, memoryview(packet), extradata) else []
                stamps.append(packet.pts)
                lengths.append(packet.duration or 0)
            for frame in found or ():
                frames.append((frame.pts, frame.dts))
                checks.append(checksum(frame))
                picture = picture or picture_of(frame)
        # A stream says nothing once its container is closed.
        rate, time_base = float(stream.average_rate or 25), stream.time_base
        name, number, still = container.format.name, stream.index, may_be_picture(container)
    if not frames:
        raise refusal(path, "no frame can be decoded", codec)
    if still and len(frames) == 1:
        raise refusal(path, "a picture, not a video")
    checks = np.array(checks, np.uint32)
    if name == "mpeg" and all(stamp == (None, None) for stamp in frames):
        frames[0] = (0, 0)  # a cut may leave none; the rate is constant, and stands in the pictures' headers
    if (own := _own_times(frames, stamps)) is None:
        pts = _times_in_order(path, frames, max(1, round(1 / (rate * time_base))))
        info, none = _info(pts, 0, time_base, rate, picture, codec), np.zeros(0, np.int64)
        entry = np.full(len(pts), -1, np.int32)
        return Index(info, pts, none, entry, time_base, name, number, len(stamps), False, True, checks)
    pts, order = np.unique(own, return_index=True)
    packets = np.array([NEVER if stamp is None else stamp for stamp in stamps], np.int64)
    starts = _unambiguous(packets, np.array(starts, np.int64))
    sorter = np.argsort(packets, kind="stable")
    place = np.minimum(np.searchsorted(packets, pts, sorter=sorter), len(packets) - 1)
    numbers = np.where(packets[sorter[place]] == pts, sorter[place], -1)  # -1: a time stamp of no packet
    info = _info(pts, lengths[numbers[-1]] if numbers[-1] >= 0 else 0, time_base, rate, picture, codec)
    entry = _entries(numbers, pts, starts, packets[starts])
    return Index(info, pts, packets[starts], entry, time_base, name, number, len(stamps), False, False, checks[order])


def _own_times(frames: list[tuple], stamps: list) -> np.ndarray | None:
    """Time stamps of frames in the order of a plain decode; `None` where they are not the times of these frames."""
    if any(pts is None for pts, _ in frames):
        return None
    times = np.array([pts for pts, _ in frames], np.int64)
    late = (times < np.maximum.accumulate(times)).mean()
    if late > (0 if _increasing(stamps) else LATE):
        return None  # times of decoding: frames change places, their time stamps do not (AVI)
    if len(np.unique(times)) < (1 - LATE) * len(times) or _astray(times).any():
        return None
    return times


def _increasing(stamps: list) -> bool:
    return all(earlier < later for earlier, later in pairwise(stamp for stamp in stamps if stamp is not None))


def _astray(times: np.ndarray) -> np.ndarray:
    """Which frames have a time far from their place: time stamps gone wrong, or time that begins anew in the file."""
    ranks = np.argsort(np.argsort(times, kind="stable"))
    return np.abs(ranks - np.arange(len(times))) > REORDER


def _times_in_order(path: str, frames: list[tuple], step: int) -> np.ndarray:
    """Strictly increasing times for the frames of a plain decode in their order, out of what time stamps there are."""
    times = [dts if pts is None else pts for pts, dts in frames]
    places = np.array([i for i, time in enumerate(times) if time is not None], np.int64)
    if not len(places):
        raise VideoError(path, "its frames have no time stamps")
    known = np.array([times[i] for i in places], np.int64)
    astray = _astray(known)
    if astray.sum() <= REORDER:
        places, known = places[~astray], np.sort(known[~astray])
        first = np.append(True, np.diff(known) > 0)  # of several at one time
        places, known = places[first], known[first]
    last, shift, steady = None, 0, []
    for time in _spread(places, known, len(times), step):
        if last is not None and time + shift <= last:
            shift = last + step - time  # time begins anew
        last = time + shift
        steady.append(last)
    return np.array(steady, np.int64)


def _spread(places: np.ndarray, known: np.ndarray, count: int, step: int) -> list[int]:
    """`count` times, `known` in some places: spread evenly between these, and `step` apart at both ends."""
    times = np.interp(np.arange(count), places, known).round().astype(np.int64)
    times[places] = known  # exactly: large ones are no floats
    first, last = int(places[0]), int(places[-1])
    times[:first] = known[0] - step * np.arange(first, 0, -1)
    times[last + 1 :] = known[-1] + step * np.arange(1, count - last)
    return times.tolist()
