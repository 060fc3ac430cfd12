"""What was used last, up to so many bytes."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

from . import workers


class Recent:
    """
    The values used last, each with its `nbytes`: as many as `most()` bytes hold, or one. Threads may share it, and a
    forked child goes on with what its parent kept.
    """

    def __init__(self, most: Callable[[], int]):
        self._most = most
        self._kept: OrderedDict[Hashable, tuple] = OrderedDict()  # key -> value, bytes; the one used last is the last
        self._bytes = 0
        self._lock = threading.Lock()
        workers.after_fork(self._forked)

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable):
        """The value of a key, or `None`."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: Hashable, value):
        """Keeps a value, and returns it."""
        with self._lock:
            self._drop(key)
            self._kept[key] = value, value.nbytes
            self._bytes += value.nbytes
            while self._bytes > self._most() and len(self._kept) > 1:
                self._drop(next(iter(self._kept)))
        return value

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self._bytes = 0

    def _drop(self, key: Hashable) -> None:
        self._bytes -= self._kept.pop(key, (None, 0))[1]

    def _forked(self) -> None:
        """A thread of the parent may have held the lock, in the middle of a change."""
        self._lock = threading.Lock()
        self._bytes = sum(size for _, size in self._kept.values())
