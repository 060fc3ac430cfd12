"""Inside a decode worker: the index of a file, and its frames by time stamp. Imports only NumPy and PyAV."""

import os
import stat
from dataclasses import dataclass
from fractions import Fraction

import av
import numpy as np


@dataclass(frozen=True)
class VideoInfo:
    """What is shown of a video: seconds from the first shown frame to the end of the last, upright size in pixels."""

    duration: float
    fps: float
    num_frames: int
    width: int
    height: int
    rotation: int
    codec: str


class VideoError(Exception):
    """A file, or a part of one, that cannot be shown; `reason` says why."""

    def __init__(self, path: str, reason: str):
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True)
class Index:
    """Time stamps of the shown frames in display order, `pts` in units of `time_base`, and of the key frames."""

    info: VideoInfo
    pts: np.ndarray  # (num_frames,) int64, sorted
    keys: np.ndarray  # int64, sorted
    time_base: Fraction
    format: str

    @property
    def times(self) -> np.ndarray:
        """Seconds after the first shown frame, (num_frames,) float64."""
        return (self.pts - self.pts[0]) * float(self.time_base)


def check_file(path: str) -> tuple[int, int]:
    """Modification time and size of a regular, readable, non-empty file."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise VideoError(path, f"not found ({error.strerror})") from None
    if not stat.S_ISREG(status.st_mode):
        raise VideoError(path, "not a regular file")
    if not status.st_size:
        raise VideoError(path, "the file is empty (0 bytes)")
    return status.st_mtime_ns, status.st_size


def _open(path: str):
    """The container and its video stream: the first that is not a picture such as cover art."""
    size = check_file(path)[1]
    try:
        # An absolute path is never read as a protocol, whatever characters it holds.
        container = av.open(os.path.abspath(path), metadata_errors="ignore")
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise VideoError(path, f"cannot be opened ({size} bytes, {_sniff(path)}: {error.strerror})") from None
    streams = [s for s in container.streams.video if not s.disposition & av.stream.Disposition.attached_pic]
    if not streams:
        container.close()
        kinds = ", ".join(sorted({s.type for s in container.streams})) or "none"
        raise VideoError(path, f"no video stream ({size} bytes, streams: {kinds})")
    stream = streams[0]
    if stream.codec_context is None:
        container.close()
        raise VideoError(path, f"no decoder for its video stream ({size} bytes)")
    stream.codec_context.thread_count = 1  # as many workers as cores already
    stream.codec_context.options = {"err_detect": "explode"}
    return container, stream


def _sniff(path: str) -> str:
    with open(path, "rb") as file:
        head = file.read(64).lstrip()
    if head[:1] == b"<":
        return "a web page, not a video"
    return "an incomplete or damaged MP4" if head[4:8] == b"ftyp" else "not a video, or damaged"


@dataclass(frozen=True)
class Stamps:
    """What one part of a file's packets says; only the first part looks at a picture."""

    pts: list[int]
    keys: list[int]
    length: int  # of the packet with the largest time stamp
    complete: bool  # whether the part was read to its end
    first: tuple[int, int, int] | None  # width, height and rotation of the first picture
    rate: float
    codec: str
    time_base: Fraction
    format: str


def scan(path: str) -> Index:
    """The index of a file, from its packets' time stamps: headers are not believed."""
    return join(path, [stamps(path)])


def stamps(path: str, part: int = 0, parts: int = 1) -> Stamps:
    """
    Time stamps of the packets of a part of a file. Parts are cut at key frames of the container's own index; where it
    has none, the first part is the whole and the others are empty.
    """
    container, stream = _open(path)
    with container:
        cuts = _cuts(container, stream, parts)
        begin = cuts[part - 1] if 0 < part <= len(cuts) else None
        stop = cuts[part] if part < len(cuts) else None
        pts, keys, last, length, complete = [], [], -(2**62), 0, True
        try:
            if begin:
                container.seek(begin[2], stream=stream)
            for packet in container.demux(stream) if begin or not part else ():
                if begin and (packet.pos, packet.dts) != begin[:2]:
                    raise CutError
                begin = None
                if packet.size and packet.pts is None:
                    raise VideoError(path, "its frames have no time stamps")
                if packet.pts is None:
                    continue
                if stop and (packet.pos, packet.dts) == stop[:2]:
                    break
                if packet.is_keyframe:
                    keys.append(packet.pts)
                if packet.is_discard:  # an edit list hides it
                    continue
                pts.append(packet.pts)
                if packet.pts > last:
                    last, length = packet.pts, packet.duration or 0
            else:
                complete = stop is None
        except av.error.FFmpegError:
            complete = False  # a truncated file: what came before can be shown
        if begin:
            raise CutError
        first = None if part else _first_frame(container, stream)
        first = first and (first.width, first.height, first.rotation % 360)
        rate, codec = float(stream.average_rate or 25), stream.codec_context.codec.name
        return Stamps(pts, keys, length, complete, first, rate, codec, stream.time_base, container.format.name)


class CutError(Exception):
    """A seek did not lie where the container's index said: the file cannot be read in parts."""


def _cuts(container, stream, parts: int) -> list[tuple[int, int, int]]:
    """Position and decoding time of the key frames that cut a file into `parts`, and a time to seek to for each."""
    entries = getattr(stream, "index_entries", []) if parts > 1 and "mov" in container.format.name else []  # PyAV 16
    cuts = []
    for share in range(1, parts):
        keys = (i for i in range(share * len(entries) // parts, len(entries)) if entries[i].is_keyframe)
        key, following = next(keys, 0), next(keys, len(entries))
        # By the decoding time of the last frame before the next key frame this one has been shown.
        cuts.append((entries[key].pos, entries[key].timestamp, entries[following - 1].timestamp) if key else None)
    return cuts if None not in cuts and len({*cuts}) == len(cuts) else []


def join(path: str, found: list[Stamps]) -> Index:
    """The index of a file from the stamps of its parts in order; nothing counts that follows a broken part."""
    broken = next((i for i, part in enumerate(found) if not part.complete), len(found))
    found, head = found[: broken + 1], found[0]
    if head.first is None or not any(part.pts for part in found):
        raise VideoError(path, f"no frame can be decoded ({os.path.getsize(path)} bytes, {head.codec})")
    pts = np.unique(np.concatenate([np.array(part.pts, np.int64) for part in found]))
    keys = np.array(sorted(key for part in found for key in part.keys), np.int64)
    length = max((max(part.pts), part.length) for part in found if part.pts)[1]
    length = length or (int(np.median(np.diff(pts))) if len(pts) > 1 else 0)
    duration = float((pts[-1] - pts[0] + length) * head.time_base) or 1.0 / head.rate
    *size, rotation = head.first
    width, height = size[::-1] if rotation in (90, 270) else size
    info = VideoInfo(duration, len(pts) / duration, len(pts), width, height, rotation, head.codec)
    return Index(info, pts, keys if len(keys) else pts[:1], head.time_base, head.format)


def _first_frame(container, stream):
    try:
        container.seek(0)
    except av.error.FFmpegError:
        pass
    for packet in container.demux(stream):
        try:
            for frame in packet.decode():
                return frame
        except av.error.FFmpegError:
            continue
    return None


def decode(
    path: str, index: Index, wanted: list[int], size: tuple[int, int], backend: str, check: bool = True
) -> tuple[np.ndarray, str, list[int]]:
    """
    Frames number `wanted` (distinct, sorted) as RGB of `size` (width, height), shape (len(wanted), height, width, 3),
    the backend that served them, and which of `wanted` cannot be decoded.

    With `check` some of decord's frames are compared with PyAV's: it may silently return a neighbour.
    """
    if backend == "decord":
        frames = _decode_decord(path, index, wanted, size)
        rows = sorted({0, len(wanted) // 2, len(wanted) - 1}) if check else []
        if frames is not None and rows:
            exact, lost = _decode_pyav(path, index, [wanted[row] for row in rows], size)
            # One picture through two scalers differs by a grey value or two.
            distance = np.abs(frames[rows].astype(np.int16) - exact).mean(axis=(1, 2, 3))
            frames = None if lost or distance.max() > 3 else frames
        if frames is not None:
            return frames, backend, []
    frames, lost = _decode_pyav(path, index, wanted, size)
    return frames, "pyav", lost


def _decode_pyav(path, index, wanted, size) -> tuple[np.ndarray, list[int]]:
    targets = [int(index.pts[i]) for i in wanted]
    missing = {pts: row for row, pts in enumerate(targets)}
    out = np.zeros((len(wanted), size[1], size[0], 3), np.uint8)
    # Frames that no other needs are skipped on the way. Some files mark frames so that it costs wanted ones too.
    # A seek may land behind its key frame (MPEG-TS): the second pass starts two key frames earlier.
    for skip, back in (("NONREF", 0), ("DEFAULT", 2)):
        if missing:
            _pass(path, index, missing, out, size, skip, back)
    return out, [wanted[row] for row in sorted(missing.values())]


def _pass(path, index, missing, out, size, skip, back):
    """Fills `out[missing[pts]]` on one way through the file, with a seek wherever that saves decoding."""
    container, stream = _open(path)
    queue, position = sorted(missing), None
    with container:
        context = stream.codec_context
        while queue:
            key = _key_before(index, queue[0], back)
            if key > (index.keys[0] if position is None else position):  # a file just opened stands at its start
                container.seek(key, stream=stream)
            position, shown, broken = -(2**62), -(2**62), False
            for packet in container.demux(stream):
                if packet.pts is not None:
                    position = max(position, packet.pts)
                    broken = broken and not packet.is_keyframe
                context.skip_frame = skip if packet.pts is not None and packet.pts not in missing else "DEFAULT"
                try:
                    frames = packet.decode()
                except av.error.FFmpegError:
                    frames, broken = [], True  # what follows refers to it, up to the next key frame
                for frame in frames:
                    shown = max(shown, frame.pts if frame.pts is not None else shown)
                    if frame.pts in missing and not broken and not frame.is_corrupt:
                        out[missing.pop(frame.pts)] = _rgb(frame, size, index.info.rotation)
                while queue and (queue[0] not in missing or shown > queue[0]):  # found, or passed over: lost
                    queue.pop(0)
                if not queue or _key_before(index, queue[0], back) > position:
                    break  # done, or a seek is shorter
            else:
                break


def _key_before(index: Index, pts: int, back: int) -> int:
    return int(index.keys[max(0, np.searchsorted(index.keys, pts, "right") - 1 - back)])


def _rgb(frame, size, rotation: int) -> np.ndarray:
    """Resized by the decoder's own scaler, once, and turned upright."""
    width, height = size if rotation not in (90, 270) else size[::-1]
    picture = frame.to_ndarray(format="rgb24", width=width, height=height, interpolation="BICUBIC")
    return np.rot90(picture, rotation // 90) if rotation else picture


def _decode_decord(path, index, wanted, size):
    """decord's frames, or `None` where it is missing or does not see the frames that the container shows."""
    try:
        import decord
    except ImportError:
        return None
    if index.info.rotation or "mpegts" in index.format:
        return None
    try:
        reader = decord.VideoReader(os.path.abspath(path), width=size[0], height=size[1], num_threads=1)
        if len(reader) != index.info.num_frames:
            return None
        stamps = np.asarray(reader.get_frame_timestamp(range(len(reader))))[:, 0]
        if np.abs(stamps - stamps[0] - index.times).max() > 0.5 / index.info.fps:
            return None
        return reader.get_batch(wanted).asnumpy()
    except (decord.DECORDError, RuntimeError, IndexError):
        return None
