"""Seeds: what is drawn depends on what it is drawn for, never on who draws it, when, or beside whom."""

import hashlib
import json
import random
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch


def seed_of(*names: str | int) -> int:
    """
    A seed of 63 bits from what names a draw, in order; the same in every process.

    ```python
    >>> seed_of(0, "train", 12, "row-7", 3) == seed_of(0, "train", 12, "row-7", 3)
    True
    >>> seed_of("a", "b") == seed_of("ab")
    False
    ```
    """
    digest = hashlib.blake2b(json.dumps(names).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def copy_numbers(keys: Sequence[Hashable]) -> list[int]:
    """How many equal keys come before each.

    ```python
    >>> copy_numbers(["a", "a", "b", "a"])
    [0, 1, 0, 2]
    ```
    """
    seen, numbers = Counter(), []
    for key in keys:
        numbers.append(seen[key])
        seen[key] += 1
    return numbers


@contextmanager
def kept_generators() -> Iterator[None]:
    """After it the process's generators (Python's, NumPy's, torch's on CPU and accelerator) are as before it."""
    python, numpy = random.getstate(), np.random.get_state()
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    devices = [] if accelerator is None else [torch.accelerator.current_device_index()]
    with torch.random.fork_rng(devices, device_type="cuda" if accelerator is None else accelerator.type):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
