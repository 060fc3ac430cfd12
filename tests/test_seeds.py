import random
import subprocess
import sys

import numpy as np
import torch

from paravt.seeds import copy_numbers, kept_generators, seed_of


class TestSeedOf:
    def test_names_are_told_apart(self):
        named = [
            (0, "row", 1),
            (0, "row", 11),
            (0, "row1", 1),
            ("0", "row", 1),
            (0, "row/1"),
            (0, "row", 1, 0),
            (1, 0),
        ]
        seeds = [seed_of(*names) for names in named] + [seed_of(0, "row", copy) for copy in range(12, 1000)]
        assert len(set(seeds)) == len(seeds)

    def test_every_generator_takes_it(self):
        seeds = [seed_of(i) for i in range(1000)]
        assert 0 <= min(seeds) and 2**62 < max(seeds) < 2**63
        torch.Generator().manual_seed(max(seeds))

    def test_the_same_in_every_process(self):
        code = "from paravt.seeds import seed_of; print(seed_of(3, 'train', 7, 'row', 2))"
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert int(run.stdout) == seed_of(3, "train", 7, "row", 2)


def test_copies_are_numbered_wherever_they_stand():
    assert copy_numbers(["a", "a", "b", "a", "b"]) == [0, 1, 0, 2, 1] and copy_numbers([]) == []


def test_generators_are_kept():
    def draw():
        return random.random(), np.random.rand(), torch.rand(()).item()

    for source in (random.seed, np.random.seed, torch.manual_seed):
        source(0)
    expected = draw()
    for source in (random.seed, np.random.seed, torch.manual_seed):
        source(0)
    with kept_generators():
        assert draw() == expected
        torch.manual_seed(5)
        draw()
    assert draw() == expected
