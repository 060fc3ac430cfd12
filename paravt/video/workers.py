"""A pool of processes that can be killed: work in them may hang, crash or eat memory, and costs only itself."""

import importlib
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.util
import os
import signal
import sys
import threading
import types
from collections.abc import Callable
from multiprocessing.context import ForkServerContext, ForkServerProcess

from pebble import ProcessFuture, ProcessPool


MAX_WORKERS = 8
_lock = threading.Lock()
_pool: ProcessPool | None = None


class Worker(ForkServerProcess):
    """A process that does not import the main script, which would load torch into every worker."""

    def start(self):
        with _start_lock:
            main, config = sys.modules["__main__"], multiprocessing.current_process()._config
            daemon = config.pop("daemon", None)  # data-loader workers are daemons, which may have no children
            sys.modules["__main__"] = types.ModuleType("__main__")
            try:
                super().start()
            finally:
                sys.modules["__main__"] = main
                if daemon is not None:
                    config["daemon"] = daemon


class Context(ForkServerContext):
    Process = Worker


_start_lock = threading.Lock()


def count() -> int:
    """Workers of the pool: one thread each, no more than there are cores."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()
    return max(1, min(MAX_WORKERS, cores))


def after_fork(function: Callable) -> None:
    """Has `function` called in a forked child, which must not wait for what its parent began."""
    if sys.platform != "win32":
        os.register_at_fork(after_in_child=function)


def submit(function: Callable, *args, timeout: float) -> ProcessFuture:
    """Runs `function(*args)` in a worker, which dies of `SIGALRM` after `timeout` seconds without [`progress`]."""
    global _pool
    with _lock:
        if _pool is None or not _pool.active:
            # What the workers run is imported when they start, not on the clock of their first task.
            load = {"initializer": importlib.import_module, "initargs": ["paravt.video.decode"]}
            _pool = ProcessPool(max_workers=count(), max_tasks=1000, context=Context(), **load)
            # Not `atexit`, which a data-loader worker does not get to: it would wait for our workers forever.
            multiprocessing.util.Finalize(None, _stop, args=[_pool], exitpriority=0)
        return _pool.schedule(_work, args=(function, args, timeout))


_patience = 0.0  # seconds, in a worker that is at work


def _work(function: Callable, args: tuple, timeout: float):
    global _patience
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    _patience = timeout
    progress()
    try:
        return function(*args)
    finally:
        _patience = 0.0
        signal.setitimer(signal.ITIMER_REAL, 0)


def progress() -> None:
    """
    In a worker: the time limit begins anew. It is the kernel's timer, so that it ends a decoder that hangs in C and
    holds the interpreter lock; a long decode that goes on never meets it.
    """
    if _patience:
        signal.setitimer(signal.ITIMER_REAL, _patience)


def _forget():
    """After a fork: the parent's pool, locks and fork server are not ours."""
    global _pool, _lock, _start_lock
    _pool, _lock, _start_lock = None, threading.Lock(), threading.Lock()
    multiprocessing.forkserver._forkserver.__init__()


def _stop(pool: ProcessPool):
    pool.stop()
    pool.join(timeout=5)


after_fork(_forget)
