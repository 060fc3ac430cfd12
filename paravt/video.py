"""Frames of videos by time stamp: exact, lazy, decoded once, and never in a process that matters.

`python -m paravt.video FILE_OR_FOLDER...` checks files: a line per bad one with its cause, and a summary.
"""

import math
import numbers
import os
import sys
import threading
import urllib.parse
import weakref
from collections import Counter, OrderedDict
from collections.abc import Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass

import numpy as np
from pebble import ProcessExpired
from PIL import Image

from . import decode, workers
from .decode import Index, VideoError, VideoInfo


__all__ = ["Clip", "Frames", "LazyFrame", "VideoError", "VideoInfo", "probe", "read_frames", "sample_times"]

TIMEOUT = 60.0  # seconds of wall clock for one file's frames
MULTIPLE = 32  # patch size times merge size of Qwen3-VL: sides of a resized frame
BACKENDS = ("pyav", "decord")
failures: Counter = Counter()  # what went wrong, by kind, in this process


@dataclass(frozen=True)
class Frames:
    """RGB images of one size and the times of these very frames, in seconds of the source video."""

    images: list[Image.Image]
    times: list[float]


def _schedule(function, *args):
    return workers.submit(function, *args, timeout=TIMEOUT)


def _result(future, path: str):
    try:
        return future.result()
    except VideoError as error:
        failures[error.reason.split(" (")[0].split(":")[0]] += 1
        raise VideoError(path, error.reason) from None
    except FutureTimeout:
        failures["timeout"] += 1
        raise VideoError(path, f"decoding took longer than {TIMEOUT:g} s") from None
    except ProcessExpired as error:
        failures["crash"] += 1
        raise VideoError(path, f"the decoder crashed (exit code {error.exitcode})") from None
    except (MemoryError, OSError, ValueError, RuntimeError, ArithmeticError) as error:
        failures["error"] += 1
        raise VideoError(path, f"{type(error).__name__}: {error}") from None


# ------------------------------------------------------------------------------------------------ paths, index, times


def local_path(path: str) -> str:
    """The absolute path of a local file: the literal path, or else the path of a `file://` URI, unquoted once."""
    path = os.fspath(path)
    if os.path.exists(path):
        return os.path.abspath(path)
    plain = path[len("file://") :] if path.startswith("file://") else path
    for candidate in (plain, urllib.parse.unquote(plain)):
        if os.path.exists(candidate):
            return os.path.abspath(candidate)
    tried = " nor as ".join(dict.fromkeys(repr(p) for p in (path, urllib.parse.unquote(plain))))
    raise VideoError(path, f"not found as {tried}")


_indices: OrderedDict[tuple, Index] = OrderedDict()


def _index(path: str) -> tuple[str, Index]:
    path = local_path(path)
    key = (path, *decode.check_file(path))
    if key not in _indices:
        _indices[key] = _result(_schedule(decode.scan, path), path)
        if len(_indices) > 512:
            _indices.popitem(last=False)
    return path, _indices[key]


def probe(path: str) -> VideoInfo:
    """What is shown of a video. Raises [`VideoError`]."""
    return _index(path)[1].info


def probe_many(paths: Sequence[str], progress: bool = False) -> dict[str, VideoInfo | VideoError]:
    """Probes distinct files in parallel; a file that cannot be shown maps to its error."""
    from tqdm import tqdm

    known, futures = {}, {}
    for path in dict.fromkeys(paths):
        try:
            resolved = local_path(path)
            futures[path] = (resolved, (resolved, *decode.check_file(resolved)), _schedule(decode.scan, resolved))
        except VideoError as error:
            known[path] = error
    for path, (resolved, key, future) in tqdm(futures.items(), "Videos", disable=not progress, leave=False):
        try:
            _indices[key] = _result(future, resolved)
            known[path] = _indices[key].info
        except VideoError as error:
            known[path] = error
    while len(_indices) > 512:
        _indices.popitem(last=False)
    return known


def sample_times(duration: float, k: int, start: float = 0.0, end: float | None = None) -> list[float]:
    """`k` times spread over a window of a video, each in the middle of its share; all in seconds."""
    end = duration if end is None else end
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"k must be a positive integer, got {k!r}")
    if not (math.isfinite(duration) and 0 <= start < end <= duration):
        raise ValueError(f"the window {start} to {end} is not within 0 to {duration} seconds")
    return [start + (i + 0.5) * (end - start) / k for i in range(k)]


def choose_times(path: str, k: int, start: float = 0.0, end: float | None = None) -> list[float]:
    """Times of `min(k, frames)` distinct frames spread over a window: the frames' own, known before decoding."""
    path, index = _index(path)
    times = sample_times(index.info.duration, k, start, end)
    return [float(index.times[i]) for i in sorted(set(_frames_at(path, index, times)))]


def _frames_at(path: str, index: Index, times: Sequence[float]) -> list[int]:
    """The frame on screen at each time."""
    info, stamps, frames = index.info, index.times, []
    for time in times:
        if not (isinstance(time, numbers.Real) and 0 <= time < info.duration + 1 / info.fps):
            raise VideoError(path, f"no frame at {time} s: the video lasts {info.duration:.2f} s")
        frames.append(int(np.searchsorted(stamps, time + 1e-6, "right")) - 1)
    return frames


def fit_size(width: int, height: int, max_pixels: int | None, multiple: int = MULTIPLE) -> tuple[int, int]:
    """Width and height of a frame within `max_pixels`, sides rounded to `multiple` so that no model resizes again."""
    if max_pixels is None:
        return width, height
    if max(width, height) > 200 * min(width, height):
        raise ValueError(f"a frame of {width} x {height} pixels is too long and thin (more than 200 to 1)")
    scale = min(1.0, math.sqrt(max_pixels / (width * height)))
    sides = [max(multiple, round(side * scale / multiple) * multiple) for side in (width, height)]
    while sides[0] * sides[1] > max(max_pixels, multiple * multiple) and max(sides) > multiple:
        sides[sides.index(max(sides))] -= multiple
    return sides[0], sides[1]


# ------------------------------------------------------------------------------------------------------------ frames

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
        self.path, index = _index(path)
        numbers = _frames_at(self.path, index, times)
        try:
            self.size = fit_size(index.info.width, index.info.height, max_pixels)
        except ValueError as error:
            raise VideoError(self.path, str(error)) from None
        self.times = [float(index.times[i]) for i in numbers]
        self._wanted = sorted(set(numbers))
        self._rows = [self._wanted.index(i) for i in numbers]
        self._request = (path, times, max_pixels, backend)
        self._lock, self._future, self._pixels = threading.Lock(), None, None
        self.frames = [LazyFrame(self, i) for i in range(len(numbers))]

    def __reduce__(self):  # a clip travels as its request: no pixels between processes
        return clip, self._request

    def prefetch(self) -> "Clip":
        """Starts decoding in a worker and returns at once."""
        with self._lock:
            if self._pixels is None and self._future is None:
                index = _index(self.path)[1]
                self._future = _schedule(decode.decode, self.path, index, self._wanted, self.size, self._request[3])
        return self

    def load(self) -> np.ndarray:
        """Pixels of the distinct frames, (n, height, width, 3) uint8. Raises [`VideoError`]."""
        self.prefetch()
        with self._lock:
            if self._pixels is None:
                try:
                    self._pixels, served = _result(self._future, self.path)
                finally:
                    self._future = None
                if served != self._request[3]:
                    _say_once(f"{self._request[3]} cannot be trusted with {self.path}: {served} serves it")
            _keep(self, self._pixels.nbytes)
            return self._pixels

    def fill(self) -> None:
        """Grey frames in place of a file that cannot be decoded, for a row whose rollouts will not count."""
        self._pixels = np.full((len(self._wanted), self.size[1], self.size[0], 3), 127, np.uint8)

    def release(self) -> None:
        """Frees what a model was fed; the pixels stay as long as the cache has room."""
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
