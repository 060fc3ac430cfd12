"""Clips: frames of one file that decode together, once, when the first of them is looked at."""

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from PIL import Image

from . import jobs, timeline
from .files import VideoError, check_file
from .jobs import Job
from .timeline import fit_size, local_path


BACKENDS = ("pyav", "decord")


@dataclass(frozen=True)
class Frames:
    """RGB images of one size and the times of these very frames, in seconds of the source video."""

    images: list[Image.Image]
    times: list[float]


_clips: weakref.WeakValueDictionary = weakref.WeakValueDictionary()


class Clip:
    """
    Frames of one file that decode together, at the latest when the first of them is looked at.

    Use [`clip`] to make one: equal requests share it, so that nothing decodes twice while a batch lives.
    """

    def __init__(self, path: str, times: tuple[float, ...], max_pixels: int | None, backend: str = "pyav"):
        self.path, self.index = timeline.find_index(path)
        info = self.index.info
        self._numbers = timeline.frames_at(self.path, self.index, times)
        try:
            self.size = fit_size(info.width, info.height, max_pixels)
        except ValueError as error:
            raise VideoError(self.path, str(error)) from None
        self.times = [float(self.index.times[i]) for i in self._numbers]
        self.backend, self._request = backend, (path, times, max_pixels, backend)
        self.key = f"{self.path} {check_file(self.path)} {self.size} {backend}"
        self._jobs: dict[int, Job] = {}  # of each frame number, once decoding has begun
        self.stand_in = False
        self._made: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # frames keep their clip, not it them

    @property
    def frames(self) -> list["LazyFrame"]:
        """Its frames in the order asked for; the same ones as long as somebody has them."""
        return [self.frame(i) for i in range(len(self.times))]

    def frame(self, i: int) -> "LazyFrame":
        found = self._made.get(i)
        if found is None:
            found = self._made[i] = LazyFrame(self, i)
        return found

    def __reduce__(self):  # a clip travels as its request: no pixels between processes
        return clip, self._request

    def prefetch(self) -> "Clip":
        """Starts decoding in workers and returns at once."""
        prefetch([self])
        return self

    def load(self) -> None:
        """Waits for the frames. Raises [`VideoError`]."""
        self.prefetch()
        for job in dict.fromkeys(self._jobs.values()):
            job.load()
        lost = [i for i, number in enumerate(self._numbers) if number in self._jobs[number].lost]
        if lost:
            seconds = ", ".join(f"{self.times[i]:.2f}" for i in lost[:5])
            timeline.failures["damaged"] += 1
            raise VideoError(
                self.path, f"damaged: {len(lost)} of {len(self.times)} frames cannot be decoded (at {seconds} s)"
            )

    def fill(self) -> None:
        """Grey frames in place of a file that cannot be decoded, for a row whose rollouts will not count."""
        self.stand_in = True

    def release(self) -> None:
        """Frees what a model was fed; the pixels stay as long as the cache has room."""
        self.stand_in, self._jobs = False, {}  # who asks for a broken file again is told again
        for frame in list(self._made.values()):
            frame._im = frame.features = None

    def shown_times(self) -> list[float]:
        """
        Times of the frames in the rows: its own, except where no decoder shows what the file promises for a time. The
        frame that is on screen then was first shown a little earlier.
        """
        pts, step = self.index.pts, float(self.index.time_base)
        instead = [self._jobs[number].instead.get(number) for number in self._numbers]
        return [
            time if stamp is None else (stamp - int(pts[0])) * step
            for time, stamp in zip(self.times, instead, strict=True)
        ]

    def image(self, i: int) -> Image.Image:
        """The picture of its `i`-th frame, grey if the clip is a stand-in. Raises [`VideoError`]."""
        if self.stand_in:
            return Image.new("RGB", self.size, (127, 127, 127))
        self.load()
        number = self._numbers[i]
        job = self._jobs[number]
        return Image.fromarray(job.load()[job.rows[number]])


class GreyClip(Clip):
    """One small grey frame that needs no file: the picture of a row that has none."""

    def __init__(self):
        self.path, self.key, self.size, self.times = "", "", (timeline.MULTIPLE, timeline.MULTIPLE), [0.0]
        self._jobs, self.stand_in, self._made = {}, True, weakref.WeakValueDictionary()

    def load(self) -> None:
        pass  # nothing is decoded

    def release(self) -> None:
        super().release()
        self.stand_in = True

    def __reduce__(self):
        return GreyClip, ()


def prefetch(clips: Iterable[Clip]) -> None:
    """Starts the decoding of clips: frames of one file are decoded together, whichever clips they belong to."""
    groups: dict[tuple, list[Clip]] = {}
    for one in clips:
        if not one._jobs and not one.stand_in:
            groups.setdefault((one.path, one.size, one.backend, id(one.index)), []).append(one)
    for (path, size, backend, _), group in groups.items():
        numbers = sorted({number for one in group for number in one._numbers})
        found = jobs.jobs_for(path, group[0].index, numbers, size, backend)
        for one in group:
            one._jobs = {number: found[number] for number in one._numbers}


class LazyFrame(Image.Image):
    """A PIL image with a `time` in seconds that decodes when it is first looked at. Copies share it."""

    def __init__(self, owner: Clip, number: int):
        super().__init__()
        self._mode, self._size = "RGB", owner.size
        self.clip, self.number, self.time = owner, number, owner.times[number]
        self.features = None  # what the image processor made of it, kept by `engine`

    @property
    def key(self) -> str | None:
        """What tells the frame from all others; `None` for a stand-in."""
        return None if self.clip.stand_in else f"{self.clip.key} {self.time!r}"

    def load(self):
        if self._im is None:
            self.im = self.clip.image(self.number).im
        return super().load()

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return _frame_of, (self.clip, self.number)


def _frame_of(owner: Clip, number: int) -> LazyFrame:
    return owner.frame(number)


def clip(path: str, times: Sequence[float], max_pixels: int | None = None, backend: str = "pyav") -> Clip:
    """The clip of these times of a file; an equal one that is alive is shared. Raises [`VideoError`]."""
    path = local_path(path)
    key = (path, *check_file(path), tuple(times), max_pixels, backend)
    found = _clips.get(key)
    if found is None:
        found = _clips[key] = Clip(path, tuple(times), max_pixels, backend)
    return found


def read_frames(path: str, times: Sequence[float], *, max_pixels: int | None = None, backend: str = "pyav") -> Frames:
    """
    The frames on screen at `times`, seconds after the first shown frame, upright, in the order asked for.

    Args:
        path (`str`): A local file, or a `file://` URI.
        times (`Sequence[float]`): Seconds.
        max_pixels (`int`, *optional*): Largest area of a frame; with it, sides are multiples of 32.
        backend (`str`, *optional*, defaults to `"pyav"`): `"pyav"`, or `"decord"` where it can be trusted.

    Raises:
        [`VideoError`]: naming the file and the cause.
    """
    if backend not in BACKENDS:
        raise VideoError(path, f"backend must be one of {BACKENDS}, got {backend!r}")
    if not len(times):
        return Frames([], [])
    asked = clip(path, times, max_pixels, backend)
    asked.load()
    return Frames([asked.image(i) for i in range(len(asked.times))], asked.shown_times())
