"""Passes over files: what several clips want of a file is decoded together, once, and kept while there is room."""

import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from . import decode, timeline, workers
from .decode import Index


CACHE_BYTES = 128 * 2**20  # of pixels that no clip keeps alive any more
LEAST = 8  # frames of a pass that is worth a worker of its own
_frames: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # (file, size, backend, number) -> its pass
_recent: OrderedDict = OrderedDict()  # pass -> bytes, the least recently used first
_trusted: dict[tuple, bool] = {}  # (path, modification time, bytes) -> whether decord may serve the file
_said: set[str] = set()


class Pass:
    """Frames of one file that one worker decodes on its way through a part of it."""

    def __init__(self, path: str, index: Index, numbers: list[int], size: tuple[int, int], backend: str):
        self.path, self.index, self.numbers, self.size, self.backend = path, index, numbers, size, backend
        self.rows = {number: row for row, number in enumerate(numbers)}
        self.lost: set[int] = set()
        self._lock, self._future, self._pixels = threading.Lock(), None, None
        self.start()

    def start(self) -> None:
        file = (self.path, *decode.check_file(self.path))
        backend = self.backend if _trusted.get(file, True) else "pyav"
        self._future = timeline.schedule(
            decode.decode, self.path, self.index, self.numbers, self.size, backend, file not in _trusted
        )

    def load(self) -> np.ndarray:
        """Pixels of the frames, (n, height, width, 3) uint8; those in `lost` are void. Raises [`VideoError`]."""
        with self._lock:
            if self._pixels is None:
                if self._future is None:
                    self.start()
                try:
                    self._pixels, served, lost = timeline.result(self._future, self.path)
                finally:
                    self._future = None
                self.lost = set(lost)
                if self.backend != "pyav":
                    _trusted[(self.path, *decode.check_file(self.path))] = served == self.backend
                    if served != self.backend:
                        _say_once(f"{self.backend} cannot be trusted with {self.path}: {served} serves it")
            _keep(self, self._pixels.nbytes)
            return self._pixels


def _keep(one: Pass, size: int) -> None:
    _recent[one] = size
    _recent.move_to_end(one)
    while sum(_recent.values()) > CACHE_BYTES and len(_recent) > 1:
        _recent.popitem(last=False)


def passes(path: str, index: Index, numbers: Sequence[int], size: tuple[int, int], backend: str) -> dict[int, Pass]:
    """
    A pass for each frame. Frames that a living pass has or will have are its own; the others are shared out among the
    workers, key frame by key frame, and their decoding starts.
    """
    file = (path, *decode.check_file(path), size, backend)
    found = {number: _frames.get((*file, number)) for number in numbers}
    missing = sorted(number for number, one in found.items() if one is None)
    for part in _shares(index, missing, workers.count()):
        one = Pass(path, index, part, size, backend)
        for number in part:
            found[number] = _frames[(*file, number)] = one
    return found


def _shares(index: Index, numbers: list[int], count: int) -> list[list[int]]:
    """Sorted frames as at most `count` lists; frames that decode from one key frame stay together."""
    if not numbers:
        return []
    keys = np.searchsorted(index.keys, index.pts[numbers], "right")
    groups = np.split(np.array(numbers), np.flatnonzero(np.diff(keys)) + 1)
    most = max(LEAST, -(-len(numbers) // count))
    shares: list[list[int]] = [[]]
    for group in groups:
        if shares[-1] and len(shares[-1]) + len(group) / 2 > most:
            shares.append([])
        shares[-1] += group.tolist()
    return shares


def _say_once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        print(message, file=sys.stderr)


def _forget_futures():
    """After a fork: what the parent's workers were decoding will not come."""
    for one in set(_frames.values()):
        one._future, one._lock = None, threading.Lock()


workers.after_fork(_forget_futures)
