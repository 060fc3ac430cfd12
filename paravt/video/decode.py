"""
Frames out of a file, inside a decode worker. Imports only NumPy and PyAV.

What a plain decode from the start shows is the truth. A [`Plan`] with segments takes a short cut: it seeks to key
frames from which decoding comes out the same. Each seek must lead forward, to the very packet that was planned; a
packet is decoded at most once, and the first doubt ends the short cut. What it did not deliver is left to a plan
without segments, which is the plain decode.
"""

import os
from dataclasses import dataclass, field, replace
from itertools import islice

import av
import numpy as np

from .files import open_stream
from .index import NEVER, REORDER, Index, checksum, decoded
from .workers import progress


EXACT = 3  # grey values by which one picture may differ between two scalers


@dataclass(frozen=True)
class Segment:
    """
    Wanted frames that decode from one key frame: its time stamp, and theirs in order. A seek may land behind the key
    frame (MPEG-TS is searched by decoding times): `seeks` are the times to seek to, one after the other, where `None`
    is no seek, from the start of the file.
    """

    start: int
    seeks: tuple[int | None, ...]
    wanted: list[int]


@dataclass(frozen=True)
class Plan:
    """
    How to get at frames.

    Attributes:
        stream: number of the stream in the file.
        rows: what tells each wanted frame, and its row in the output: a time stamp, or its number where `in_order`.
        segments: the short cut, in the order of the file; without one, the file is decoded from its start.
        checks: the checksum that a picture must have, for frames whose checksum is known.
        budget: packets of the stream: no more are decoded, nor passed over on the way to key frames.
        rotation, mirrored: how pictures are turned upright, as in [`VideoInfo`].
        times, num_frames, fps: seconds of the frames, and what the whole file shows, which decord must see, too.
    """

    stream: int
    rows: dict[int, int]
    in_order: bool
    segments: list[Segment]
    checks: dict[int, int]
    budget: int
    rotation: int
    mirrored: bool
    times: list[float]
    num_frames: int
    fps: float


@dataclass
class Decoded:
    """
    What became of a plan.

    Attributes:
        pixels: (frames, height, width, 3), uint8 RGB; void for `missing` frames.
        missing: numbers of frames that did not come out.
        instead: number of a frame that is not shown, though nothing is damaged -> time stamp of the frame that is on
            screen at its time, and stands in its row.
        backend: who decoded.
        plain: whether it was a plain decode: what is missing now is not shown.
        seeks: whether seeks led where they should.
        frames: how many the decoder brought out.
    """

    pixels: np.ndarray
    missing: list[int] = field(default_factory=list)
    backend: str = "pyav"
    plain: bool = False
    seeks: bool = True
    frames: int = 0
    instead: dict[int, int] = field(default_factory=dict)


def make_plan(index: Index, numbers: list[int], seek: bool = True) -> Plan:
    """The plan for the frames `numbers` (distinct, sorted) of a file; with `seek` a short cut where there is one."""
    pts = index.pts[numbers].tolist()
    keys = numbers if index.in_order else pts
    segments: dict[int, Segment] = {}
    if seek and len(numbers) and (index.entry[numbers] >= 0).all():
        starts = index.starts.tolist()
        for entry, stamp in zip(index.entry[numbers].tolist(), pts, strict=True):
            if entry not in segments:
                seeks = (starts[entry], starts[entry - 1]) if entry else (None,)
                segments[entry] = Segment(starts[entry], seeks, [])
            segments[entry].wanted.append(stamp)
    return Plan(
        index.stream,
        {key: row for row, key in enumerate(keys)},
        index.in_order,
        [segments[entry] for entry in sorted(segments)],
        {} if index.checks is None else dict(zip(keys, index.checks[numbers].tolist(), strict=True)),
        index.packets,
        index.info.rotation,
        index.info.mirrored,
        index.times[numbers].tolist(),
        index.info.num_frames,
        index.info.fps,
    )


def decode(
    path: str,
    plan: Plan,
    numbers: list[int],
    size: tuple[int, int],
    backend: str = "pyav",
    compare: tuple[int, ...] = (),
) -> Decoded:
    """
    The frames `numbers` of a plan as RGB of `size` (width, height).

    decord may silently return a neighbour: its frames in the rows `compare` are compared with PyAV's.
    """
    if backend == "decord":
        pixels = _decode_decord(path, plan, numbers, size)
        if pixels is not None and _agrees(path, plan, pixels, compare, size):
            return Decoded(pixels, backend=backend)
    delivery = Delivery(plan, size)
    container, stream = open_stream(path, plan.stream)
    with container:
        if plan.segments:
            # What the decoder conceals is shown in a plain decode; on the short cut it is a doubt, and ends it.
            stream.codec_context.options = {"err_detect": "explode"}
            seeks, frames = take_short_cut(container, stream, plan, delivery)
        else:
            seeks, frames = True, decode_plainly(container, stream, plan, delivery)
    missing = [numbers[row] for row in sorted(delivery.missing.values())]
    instead = {numbers[plan.rows[key]]: stamp for key, stamp in delivery.instead.items()}
    return Decoded(delivery.pixels, missing, "pyav", not plan.segments, seeks, frames, instead)


class Delivery:
    """The frames of a plan on their way into one array."""

    def __init__(self, plan: Plan, size: tuple[int, int]):
        self.plan, self.size = plan, size
        self.missing = dict(plan.rows)
        self.pixels = np.zeros((len(plan.rows), size[1], size[0], 3), np.uint8)
        self.instead: dict[int, int] = {}  # what is missing -> time stamp of the frame in its row

    def take(self, key: int, frame) -> None:
        self.pixels[self.missing.pop(key)] = self._picture(frame)
        self.instead.pop(key, None)

    def stand_in(self, frame, until: int) -> None:
        """Puts a frame in the rows of all that is missing after it and before the time stamp `until`."""
        for key, row in self.missing.items():
            if frame.pts < key < until and key not in self.instead:
                self.pixels[row], self.instead[key] = self._picture(frame), frame.pts

    def settle(self, damaged: bool) -> None:
        """At the end: in a damaged file nothing stands in for what is missing."""
        if damaged:
            self.instead.clear()
        for key in self.instead:
            self.missing.pop(key)

    def _picture(self, frame) -> np.ndarray:
        """Resized by the decoder's own scaler, once, and turned upright."""
        width, height = self.size if self.plan.rotation not in (90, 270) else self.size[::-1]
        picture = frame.to_ndarray(format="rgb24", width=width, height=height, interpolation="BICUBIC")
        picture = np.rot90(picture, self.plan.rotation // 90)
        return picture[:, ::-1] if self.plan.mirrored else picture


def decode_plainly(container, stream, plan: Plan, delivery: Delivery) -> int:
    """
    Decodes a file from its start until all is delivered or passed. Where nothing is damaged and a frame is not shown
    all the same, its row gets the frame before it, which is on screen at its time.

    Returns:
        How many frames came out.
    """
    count, damaged, before = 0, False, None
    last = max(delivery.missing, default=-1)
    passed, patience = 0, 0 if plan.in_order else 2 * REORDER  # after damage, frames come out late
    for _, frames in islice(decoded(container, stream), plan.budget + REORDER):
        damaged = damaged or frames is None
        for frame in frames or ():
            key = count if plan.in_order else frame.pts
            count += 1
            damaged = damaged or frame.is_corrupt
            if key is None:
                continue
            if before is not None and not plan.in_order:
                delivery.stand_in(before, until=key)
            if key in delivery.missing:
                delivery.take(key, frame)
            before = frame
            passed += key > last
        if not delivery.missing or passed > patience:
            break
    if before is not None and not plan.in_order:
        delivery.stand_in(before, until=last + 1)
    delivery.settle(damaged)
    return count


def take_short_cut(container, stream, plan: Plan, delivery: Delivery) -> tuple[bool, int]:
    """
    Delivers what decodes without a doubt from key frames that seeks lead to.

    Every packet that is passed over or decoded counts against the budget, which the packets of the file are: it ends.

    Returns:
        Whether all seeks led where they should and all pictures were those of the index; how many frames came out.
    """
    way = Way(container, stream, plan)
    for segment in plan.segments:
        if segment.start not in way.unbroken:
            if segment.start in way.decoded:
                continue  # passed after an error: decoding it again is left to the plain decode
            if not way.seek(segment):
                return False, way.frames
        shown = NEVER
        while shown < segment.wanted[-1]:
            frames = way.decode()
            if frames is None:
                break
            for frame in frames:
                if frame.pts is None:
                    continue
                shown = max(shown, frame.pts)
                # Frames of later segments may come while the last of this one are waited for; of earlier ones, broken.
                if frame.pts in delivery.missing and frame.pts >= segment.start:
                    if frame.pts in plan.checks and plan.checks[frame.pts] != checksum(frame):
                        return False, way.frames
                    delivery.take(frame.pts, frame)
    return True, way.frames


class Way:
    """One way forward through a file: seeks, and what is decoded in between."""

    def __init__(self, container, stream, plan: Plan):
        self.container, self.stream, self.plan = container, stream, plan
        self.packets = container.demux(stream)
        self.starts = {segment.start for segment in plan.segments}
        self.decoded: set[int] = set()  # starts that the decoder was given
        self.unbroken: set[int] = set()  # those of them since the last seek, if nothing went wrong since
        self.passed = self.spent = self.frames = 0  # packets passed over, packets decoded, frames that came out
        self.begin, self.next = NEVER, None  # the packet at which a seek ended, and its time stamp
        self.skip = "NONREF" if stream.codec_context.name == "h264" else "DEFAULT"

    def seek(self, segment: Segment) -> bool:
        """Goes to the key frame of a segment; `False` if seeks do not lead to it."""
        self.unbroken, self.begin = set(), segment.start
        for target in segment.seeks:
            if target is not None:
                try:
                    self.container.seek(target, stream=self.stream)
                except av.error.FFmpegError:
                    continue
                self.packets = self.container.demux(self.stream)
            while (packet := self._read()) is not None and self.passed <= self.plan.budget:
                if packet.pts == segment.start and packet.is_keyframe:
                    self.next = packet
                    return True
                self.passed += 1
                if packet.pts is not None and packet.pts > segment.start:
                    break  # it landed behind
        return False

    def decode(self) -> list | None:
        """The frames that come out with the next packet; `None` at the end, or if there is a doubt about them."""
        packet, self.next = self.next or self._read(), None
        if packet is None or self.spent > self.plan.budget:
            self.unbroken = set()
            return None
        self.spent += bool(packet.size)
        if packet.pts in self.starts:
            self.decoded.add(packet.pts)
            self.unbroken.add(packet.pts)
        # Frames that no other needs are skipped on the way.
        wanted = packet.pts is None or packet.pts in self.plan.rows
        self.stream.codec_context.skip_frame = "DEFAULT" if wanted else self.skip
        try:
            frames = packet.decode()
        except av.error.FFmpegError:
            if self._early(packet):
                return []
            self.unbroken = set()
            return None
        self.frames += len(frames)
        if any(frame.is_corrupt and not self._early(frame) for frame in frames):
            self.unbroken = set()
            return None
        return frames

    def _early(self, shown) -> bool:
        """Whether a packet or frame refers to frames before the key frame: none that is wanted refers to it."""
        return shown.pts is not None and shown.pts < self.begin

    def _read(self):
        progress()
        try:
            return next(self.packets, None)
        except av.error.FFmpegError:
            return None


def _agrees(path: str, plan: Plan, pixels: np.ndarray, compare: tuple[int, ...], size: tuple[int, int]) -> bool:
    """Whether decord's frames in some rows are those of PyAV."""
    if not compare:
        return True
    keys = list(plan.rows)
    part = replace(
        plan,
        rows={keys[row]: i for i, row in enumerate(compare)},
        segments=[
            replace(segment, wanted=kept)
            for segment in plan.segments
            if (kept := [stamp for stamp in segment.wanted if plan.rows[stamp] in compare])
        ],
    )
    exact = decode(path, part, list(compare), size)
    distance = np.abs(pixels[list(compare)].astype(np.int16) - exact.pixels).mean(axis=(1, 2, 3))
    return not exact.missing and bool(distance.max() <= EXACT)


def _decode_decord(path: str, plan: Plan, numbers: list[int], size: tuple[int, int]) -> np.ndarray | None:
    """decord's frames, or `None` where it is missing or does not see the frames that the container shows."""
    try:
        import decord
    except ImportError:
        return None
    try:
        reader = decord.VideoReader(os.path.abspath(path), width=size[0], height=size[1], num_threads=1)
        if len(reader) != plan.num_frames:
            return None
        stamps = np.asarray(reader.get_frame_timestamp([0, *numbers]))[:, 0]
        if np.abs(stamps[1:] - stamps[0] - plan.times).max() > 0.5 / plan.fps:
            return None
        return reader.get_batch(numbers).asnumpy()
    except (decord.DECORDError, RuntimeError, IndexError):
        return None
