"""Frames of videos by time stamp: exact, lazy, decoded once, and never in a process that matters.

`python -m paravt.video FILE_OR_FOLDER...` checks files: a line per bad one with its cause, and a summary.
"""

import os
import sys
import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from . import decode, timeline
from .decode import VideoError, VideoInfo
from .timeline import choose_times, fit_size, local_path, probe, probe_many, sample_times


__all__ = [
    "Clip",
    "Frames",
    "LazyFrame",
    "VideoError",
    "VideoInfo",
    "choose_times",
    "clip",
    "fit_size",
    "local_path",
    "probe",
    "probe_many",
    "read_frames",
    "sample_times",
]

BACKENDS = ("pyav", "decord")


@dataclass(frozen=True)
class Frames:
    """RGB images of one size and the times of these very frames, in seconds of the source video."""

    images: list[Image.Image]
    times: list[float]


CACHE_BYTES = 128 * 2**20  # of pixels of decoded clips that nothing else keeps alive
_clips: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
_recent: OrderedDict = OrderedDict()  # clip -> bytes, the least recently used first


def _forget_futures():
    """After a fork: what the parent's workers were decoding will not come."""
    for found in _clips.values():
        found._future, found._lock = None, threading.Lock()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_futures)


def _keep(clip: "Clip", size: int) -> None:
    _recent[clip] = size
    _recent.move_to_end(clip)
    while sum(_recent.values()) > CACHE_BYTES and len(_recent) > 1:
        _recent.popitem(last=False)


class Clip:
    """
    Frames of one file that decode together, at the latest when the first of them is looked at.

    Use [`clip`] to make one: equal requests share it, so that nothing decodes twice while a batch lives.
    """

    def __init__(self, path: str, times: tuple[float, ...], max_pixels: int | None, backend: str = "pyav"):
        self.path, index = timeline.find_index(path)
        numbers = timeline.frames_at(self.path, index, times)
        try:
            self.size = fit_size(index.info.width, index.info.height, max_pixels)
        except ValueError as error:
            raise VideoError(self.path, str(error)) from None
        self.times = [float(index.times[i]) for i in numbers]
        self._wanted = sorted(set(numbers))
        self._rows = [self._wanted.index(i) for i in numbers]
        self._request = (path, times, max_pixels, backend)
        self.key = f"{self.path} {decode.check_file(self.path)} {self.size} {backend}"
        self._lock, self._future, self._pixels, self._filled = threading.Lock(), None, None, False
        self.frames = [LazyFrame(self, i) for i in range(len(numbers))]

    def __reduce__(self):  # a clip travels as its request: no pixels between processes
        return clip, self._request

    def prefetch(self) -> "Clip":
        """Starts decoding in a worker and returns at once."""
        with self._lock:
            if self._pixels is None and self._future is None:
                index = timeline.find_index(self.path)[1]
                self._future = timeline.schedule(
                    decode.decode, self.path, index, self._wanted, self.size, self._request[3]
                )
        return self

    def load(self) -> np.ndarray:
        """Pixels of the distinct frames, (n, height, width, 3) uint8. Raises [`VideoError`]."""
        self.prefetch()
        with self._lock:
            if self._pixels is None:
                try:
                    self._pixels, served = timeline.result(self._future, self.path)
                finally:
                    self._future = None
                if served != self._request[3]:
                    _say_once(f"{self._request[3]} cannot be trusted with {self.path}: {served} serves it")
            _keep(self, self._pixels.nbytes)
            return self._pixels

    def fill(self) -> None:
        """Grey frames in place of a file that cannot be decoded, for a row whose rollouts will not count."""
        self._pixels, self._filled = np.full((len(self._wanted), *self.size[::-1], 3), 127, np.uint8), True

    def release(self) -> None:
        """Frees what a model was fed; the pixels stay as long as the cache has room."""
        if self._filled:  # the next to ask is told again
            self._pixels, self._filled = None, False
        for frame in self.frames:
            frame._im = frame.features = None

    def image(self, i: int) -> Image.Image:
        return Image.fromarray(self.load()[self._rows[i]])


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
        return None if self.clip._filled else f"{self.clip.key} {self.time!r}"

    def load(self):
        if self._im is None:
            self.im = self.clip.image(self.number).im
        return super().load()

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return _frame_of, (self.clip, self.number)


def _frame_of(owner: Clip, number: int) -> LazyFrame:
    return owner.frames[number]


def clip(path: str, times: Sequence[float], max_pixels: int | None = None, backend: str = "pyav") -> Clip:
    """The clip of these times of a file; an equal one that is alive is shared. Raises [`VideoError`]."""
    path = local_path(path)
    key = (path, *decode.check_file(path), tuple(times), max_pixels, backend)
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
    return Frames([asked.image(i) for i in range(len(asked.times))], list(asked.times))


_said: set[str] = set()


def _say_once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        print(message, file=sys.stderr)


def main(arguments: list[str]) -> int:
    """Checks files and folders; returns the number of bad files, at most 1."""
    paths = []
    for argument in arguments:
        if os.path.isdir(argument):
            paths += sorted(os.path.join(folder, name) for folder, _, names in os.walk(argument) for name in names)
        else:
            paths.append(argument)
    found = probe_many(paths, progress=True)
    bad = [error for error in found.values() if isinstance(error, VideoError)]
    for error in bad:
        print(error)
    causes = Counter(error.reason.split(" (")[0] for error in bad)
    print(f"{len(found) - len(bad)} of {len(found)} files are good")
    for cause, count in causes.most_common():
        print(f"{count:6d}  {cause}")
    return int(bool(bad))


if __name__ == "__main__":
    from paravt import video  # workers find their classes under this name

    sys.exit(video.main(sys.argv[1:]))
