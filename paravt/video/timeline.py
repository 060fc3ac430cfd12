"""When frames are shown: the indices of files, found in workers and kept here, and the times to ask frames for."""

import math
import numbers
import os
import signal
import urllib.parse
from collections import Counter
from collections.abc import Sequence

import numpy as np
from pebble import ProcessExpired

from . import index as indexing
from . import workers
from .files import VideoError, check_file
from .index import Index, VideoInfo
from .recent import Recent


TIMEOUT = 60.0  # seconds of wall clock without a new frame
MULTIPLE = 32  # patch size times merge size of Qwen3-VL: sides of a resized frame
LARGE = 64 * 2**20  # bytes of a file whose packets are worth the start of several workers
INDEX_BYTES = 64 * 2**20  # of indices that are kept; an hour of video has one of about a MiB
failures: Counter = Counter()  # what went wrong, by kind, in this process


def schedule(function, *args):
    return workers.submit(function, *args, timeout=TIMEOUT)


def result(future, path: str):
    """What a worker returns. Whatever happened to it is a [`VideoError`]."""
    try:
        return future.result()
    except VideoError as error:
        failures[error.cause] += 1
        raise VideoError(path, error.reason) from None
    except ProcessExpired as error:
        if error.exitcode == -signal.SIGALRM:
            failures["timeout"] += 1
            raise VideoError(path, f"decoding took longer than {TIMEOUT:g} s without a new frame") from None
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


_indices = Recent(lambda: INDEX_BYTES)  # by (path, modification time, bytes)


def find_index(path: str) -> tuple[str, Index]:
    """The resolved path of a file and its index. Raises [`VideoError`]."""
    path = local_path(path)
    key = (path, *check_file(path))
    return path, _indices.get(key) or _indices.put(key, _scan(path, key[-1]))


def index_by_decoding(path: str) -> None:
    """Puts the index that a plain decode of a file gives in place of the one from its packets."""
    key = (path, *check_file(path))
    _indices.put(key, result(schedule(indexing.index_by_decoding, path), path))


def _scan(path: str, size: int) -> Index:
    """The index of a file; the workers share out a large one, which takes as long as reading it does."""
    parts = workers.count() if size >= LARGE else 1
    if parts == 1:
        return result(schedule(indexing.scan, path), path)
    futures = [schedule(indexing.read_packets, path, part, parts) for part in range(parts)]
    try:
        index = indexing.join([result(future, path) for future in futures])
    except indexing.CutError:
        return result(schedule(indexing.scan, path), path)
    return index or result(schedule(indexing.index_by_decoding, path), path)


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
            key = (resolved, *check_file(resolved))
            if (index := _indices.get(key)) is not None:
                known[path] = index.info
            else:
                futures[path] = (resolved, key, schedule(indexing.scan, resolved))
        except VideoError as error:
            known[path] = error
    for path, (resolved, key, future) in tqdm(futures.items(), "Videos", disable=not progress, leave=False):
        try:
            known[path] = _indices.put(key, result(future, resolved)).info
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
    times = sample_times(index.info.duration, k, start, end)
    chosen = frames_at(path, index, times)
    if snap:
        spacing = times[1] - times[0] if k > 1 else math.inf
        chosen = _snapped(index, np.array(chosen), np.array(times), (start, math.inf if end is None else end), spacing)
    return [float(index.times[i]) for i in sorted(set(chosen))]


def _snapped(index: Index, chosen: np.ndarray, times: np.ndarray, window: tuple, spacing: float) -> list[int]:
    """For each of `times` the nearest key frame within the window, or what was chosen if that is too far away."""
    keys = np.flatnonzero(index.is_start)
    seconds = index.times[keys]
    inside = (seconds >= window[0]) & (seconds < window[1])
    keys, seconds = keys[inside], seconds[inside]
    if not len(keys):
        return chosen.tolist()
    after = np.searchsorted(seconds, times)
    neighbours = np.stack([np.maximum(after - 1, 0), np.minimum(after, len(keys) - 1)])  # (2, k)
    distances = np.abs(seconds[neighbours] - times)
    nearest = np.where(distances[0] <= distances[1], *neighbours)
    return np.where(distances.min(axis=0) <= spacing / 2, keys[nearest], chosen).tolist()


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
