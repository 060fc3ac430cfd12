"""What a file shows and when: paths, indices of time stamps, times of frames, sizes; found in workers, kept here."""

import math
import numbers
import os
import urllib.parse
from collections import Counter, OrderedDict
from collections.abc import Sequence
from concurrent.futures import TimeoutError as FutureTimeout

import numpy as np
from pebble import ProcessExpired

from . import decode, workers
from .decode import Index, VideoError, VideoInfo


TIMEOUT = 60.0  # seconds of wall clock for one file's frames
MULTIPLE = 32  # patch size times merge size of Qwen3-VL: sides of a resized frame
LARGE = 64 * 2**20  # bytes of a file whose packets are worth the start of several workers
failures: Counter = Counter()  # what went wrong, by kind, in this process


def schedule(function, *args):
    return workers.submit(function, *args, timeout=TIMEOUT)


def result(future, path: str):
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


def find_index(path: str) -> tuple[str, Index]:
    path = local_path(path)
    key = (path, *decode.check_file(path))
    if key not in _indices:
        _remember(key, _scan(path, key[-1]))
    return path, _indices[key]


def _scan(path: str, size: int) -> Index:
    """The index of a file; the workers share out a large one, which takes as long as reading it does."""
    parts = workers.count() if size >= LARGE else 1
    if parts > 1:
        futures = [schedule(decode.stamps, path, part, parts) for part in range(parts)]
        try:
            return decode.join(path, [result(future, path) for future in futures])
        except decode.CutError:
            pass
    return result(schedule(decode.scan, path), path)


def _remember(key: tuple, index: Index) -> None:
    _indices[key] = index
    if len(_indices) > 512:
        _indices.popitem(last=False)


def probe(path: str) -> VideoInfo:
    """What is shown of a video. Raises [`VideoError`]."""
    return find_index(path)[1].info


def probe_many(paths: Sequence[str], progress: bool = False) -> dict[str, VideoInfo | VideoError]:
    """Probes distinct files in parallel; a file that cannot be shown maps to its error."""
    from tqdm import tqdm

    known, futures = {}, {}
    for path in dict.fromkeys(paths):
        try:
            resolved = local_path(path)
            key = (resolved, *decode.check_file(resolved))
            if key in _indices:
                known[path] = _indices[key].info
            else:
                futures[path] = (resolved, key, schedule(decode.scan, resolved))
        except VideoError as error:
            known[path] = error
    for path, (resolved, key, future) in tqdm(futures.items(), "Videos", disable=not progress, leave=False):
        try:
            _remember(key, result(future, resolved))
            known[path] = _indices[key].info
        except VideoError as error:
            known[path] = error
    return known


def sample_times(duration: float, k: int, start: float = 0.0, end: float | None = None) -> list[float]:
    """`k` times spread over a window of a video, each in the middle of its share; all in seconds."""
    end = duration if end is None else end
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"k must be a positive integer, got {k!r}")
    if not (math.isfinite(duration) and 0 <= start < end <= duration):
        raise ValueError(f"the window {start} to {end} is not within 0 to {duration} seconds")
    return [start + (i + 0.5) * (end - start) / k for i in range(k)]


def choose_times(
    path: str, k: int, start: float = 0.0, end: float | None = None, *, snap: bool = False
) -> list[float]:
    """
    Times of `min(k, frames)` distinct frames spread over a window: the frames' own, known before decoding.

    With `snap` a key frame takes the place of a frame within half the spacing of it: much cheaper to decode.
    """
    path, index = find_index(path)
    times = np.array(sample_times(index.info.duration, k, start, end))
    chosen = np.array(frames_at(path, index, times.tolist()))
    if snap:
        shown = np.flatnonzero(np.isin(index.pts, index.keys))
        shown = shown[(index.times[shown] >= start) & (index.times[shown] < (end or np.inf))]
        if len(shown):
            after = np.clip(np.searchsorted(index.times[shown], times), 1, max(1, len(shown) - 1))
            pair = np.stack([shown[after - 1], shown[np.minimum(after, len(shown) - 1)]])
            distance = np.abs(index.times[pair] - times)
            nearest = pair[distance.argmin(0), np.arange(len(times))]
            half = (times[1] - times[0]) / 2 if len(times) > 1 else np.inf
            chosen = np.where(distance.min(0) <= half, nearest, chosen)
    return [float(index.times[i]) for i in sorted(set(chosen.tolist()))]


def frames_at(path: str, index: Index, times: Sequence[float]) -> list[int]:
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
