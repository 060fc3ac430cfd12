"""
Jobs for the decode workers: what several clips want of a file is decoded together, once, and kept while there is room.
"""

import sys
import threading
import weakref
from collections.abc import Sequence

import numpy as np

from . import decode, timeline, workers
from .decode import Decoded
from .files import VideoError, check_file
from .index import Index
from .recent import Recent


CACHE_BYTES = 128 * 2**20  # of pixels that no clip keeps alive any more
LEAST = 8  # frames of a job that is worth a worker of its own
COMPARED = 3  # frames of a job that decord must get right, until it is trusted with the file
_frames: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # (file, size, backend, index, number) -> its job
_recent = Recent(lambda: CACHE_BYTES)  # jobs, each its own key
_trusted: dict[tuple, bool] = {}  # (path, modification time, bytes) -> whether decord may serve the file
_unseekable: set[tuple] = set()  # files whose seeks do not lead where they should
_said: set[str] = set()


class Order:
    """Jobs that go out together: what their short cuts cannot deliver comes from one plain decode for all of them."""

    def __init__(self, path: str, index: Index, size: tuple[int, int], backend: str):
        self.path, self.index, self.size, self.backend = path, index, size, backend
        self.file = (path, *check_file(path))
        self.jobs: weakref.WeakSet[Job] = weakref.WeakSet()
        self.lock = threading.RLock()  # one for all jobs, since each may have to wait for the others

    def complete(self) -> None:
        """Fills in what the jobs miss. Raises [`VideoError`]."""
        jobs = [job for job in list(self.jobs) if _received(job) and job.missing]
        numbers = sorted({number for job in jobs for number in job.missing})
        plan = decode.make_plan(self.index, numbers, seek=False)
        found: Decoded = timeline.result(
            timeline.schedule(decode.decode, self.path, plan, numbers, self.size), self.path
        )
        frames = dict(zip(numbers, found.pixels, strict=True))
        for job in jobs:
            job.fill(frames, found)
        self.mend(found)

    def mend(self, found: Decoded) -> None:
        """Replaces the index of a file whose packets promise what no decoder shows, for those who ask from now on."""
        if found.instead:
            timeline.index_by_decoding(self.path)


class Job:
    """Frames of one file that one worker decodes on its way through a part of it."""

    def __init__(self, order: Order, numbers: list[int]):
        self.order, self.numbers = order, numbers
        self.rows = {number: row for row, number in enumerate(numbers)}
        self.missing: set[int] = set()  # what the short cut did not deliver
        self.lost: set[int] = set()  # what a plain decode does not show either
        self.instead: dict[int, int] = {}  # what is not shown -> time stamp of what is on screen then
        self._future, self._pixels = None, None
        order.jobs.add(self)
        self.start()

    def start(self) -> None:
        order = self.order
        backend = order.backend if _trusted.get(order.file, _decord_may(order.index)) else "pyav"
        compare = () if order.file in _trusted or backend == "pyav" else farthest_rows(order.index, self.numbers)
        plan = decode.make_plan(order.index, self.numbers, order.file not in _unseekable)
        self._future = timeline.schedule(decode.decode, order.path, plan, self.numbers, order.size, backend, compare)

    @property
    def nbytes(self) -> int:
        return self._pixels.nbytes

    def load(self) -> np.ndarray:
        """Pixels of the frames, (n, height, width, 3) uint8; those in `lost` are void. Raises [`VideoError`]."""
        with self.order.lock:
            self.receive()
            if self.missing:
                self.order.complete()
            _recent.put(self, self)
            return self._pixels

    def receive(self) -> None:
        """Waits for the worker. Raises [`VideoError`]."""
        if self._pixels is not None:
            return
        if self._future is None:
            self.start()
        try:
            found: Decoded = timeline.result(self._future, self.order.path)
        finally:
            self._future = None
        self._pixels = found.pixels
        self.missing = set(found.missing)
        if found.plain:
            self.missing, self.lost, self.instead = set(), self.missing, found.instead
            self.order.mend(found)
        if not found.seeks:
            _unseekable.add(self.order.file)
        if self.order.backend != "pyav":
            self._judge(found)

    def _judge(self, found: Decoded) -> None:
        """Whether decord may serve the file from now on."""
        order = self.order
        if found.backend != order.backend:
            _trusted[order.file] = False
            _say_once(f"{order.backend} cannot be trusted with {order.path}: {found.backend} serves it")
        elif order.file not in _trusted and _tells(order.index, self.numbers):
            _trusted[order.file] = True

    def fill(self, frames: dict[int, np.ndarray], found: Decoded) -> None:
        """Takes what it misses from the frames of a plain decode."""
        for number in self.missing:
            self._pixels[self.rows[number]] = frames[number]
        self.lost = self.missing & set(found.missing)
        self.instead = {number: stamp for number, stamp in found.instead.items() if number in self.missing}
        self.missing = set()


def _received(job: Job) -> bool:
    try:
        job.receive()
    except VideoError:  # whoever loads that job is told
        return False
    return True


def _decord_may(index: Index) -> bool:
    """
    decord shows other frames than it should after seeks to key frames that are none, and knows nothing of time stamps
    that are not the container's own, nor of turned pictures.
    """
    return index.clean and index.checks is None and not (index.info.rotation or index.info.mirrored)


def _distances(index: Index, numbers: Sequence[int]) -> np.ndarray:
    """How many frames after the key frame that they decode from frames are shown."""
    return np.asarray(numbers) - np.searchsorted(index.pts, index.starts[index.entry[numbers]])


def farthest_rows(index: Index, numbers: list[int]) -> tuple[int, ...]:
    """The frames farthest from their key frames tell most: pictures go wrong on the way, not at its beginning."""
    return tuple(sorted(np.argsort(-_distances(index, numbers), kind="stable")[:COMPARED].tolist()))


def _tells(index: Index, numbers: list[int]) -> bool:
    """Whether frames that come out right say that the whole file does: one is far from its key frame."""
    longest = _distances(index, np.arange(len(index.pts))).max()
    return bool(_distances(index, numbers).max() >= longest / 2)


def jobs_for(path: str, index: Index, numbers: Sequence[int], size: tuple[int, int], backend: str) -> dict[int, Job]:
    """
    A job for each frame. Frames that a living job has or will have are its own; the others are shared out among the
    workers, key frame by key frame, and their decoding starts.
    """
    file = (path, *check_file(path))
    keys = {number: (*file, size, backend, id(index), number) for number in numbers}
    found = {number: _frames.get(key) for number, key in keys.items()}
    missing = sorted(number for number, job in found.items() if job is None)
    order = Order(path, index, size, backend)
    for part in _shares(index, missing, 1 if file in _unseekable else workers.count()):
        job = Job(order, part)
        for number in part:
            found[number] = _frames[keys[number]] = job
    return found


def _shares(index: Index, numbers: list[int], count: int) -> list[list[int]]:
    """Sorted frames as at most `count` lists; frames that decode from one key frame stay together."""
    if not numbers:
        return []
    entries = index.entry[numbers]
    if count == 1 or (entries < 0).any():
        return [numbers]  # all on one way through the file
    groups = np.split(np.array(numbers), np.flatnonzero(np.diff(entries)) + 1)
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
    """After a fork: what the parent's workers were decoding will not come, and its threads hold no lock."""
    for job in set(_frames.values()):
        job._future, job.order.lock = None, threading.RLock()


workers.after_fork(_forget_futures)
