"""
The ablation of the method on the toy world: what the cold start gives, what vanilla GRPO does to format and to the
call rate, what each half of PARA-GRPO repairs, and what both do together.

    python recipes/ablation/run.py --quick        # one seed of four rows
    python recipes/ablation/run.py                # the rows of the paper's table, three seeds
    python recipes/ablation/run.py --rows "anchors on all tags" "penalty on the whole turn"     # design choices

Every row starts from the same cold start of its seed, trains until the same number of generated tokens and is measured
on held-out videos at each number of overview frames: at the training temperature, greedily, and with one call a turn.
A cell is one row and one seed; it ends in `OUTPUT_DIR/cells/*.json`, and a killed run goes on with the missing ones.
"""

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from cell import HERE, cell_path
from plots import report
from rows import ROWS, VARIANTS
from tqdm import tqdm


QUICK = ["cold start", "GRPO", "gating only", "PARA-GRPO"]


def start(row: str, seed: int, options: argparse.Namespace, extra: list[str]) -> None:
    """Runs a cell in a process of its own, with its share of the cores."""
    path = cell_path(options.output_dir, row, seed)
    if os.path.exists(path):
        return
    command = [sys.executable, os.path.join(HERE, "cell.py"), row, str(seed)]
    command += ["--output_dir", options.output_dir, "--tokens", str(options.tokens), *extra]
    threads = str(max(1, os.cpu_count() // options.jobs))
    with open(path.removesuffix("json") + "log", "w") as log:
        done = subprocess.run(command, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": threads})
    if done.returncode:
        raise SystemExit(f"the cell {row!r} of seed {seed} failed; see {log.name}")


def main(options: argparse.Namespace, extra: list[str]) -> None:
    rows = options.rows or (QUICK if options.quick else list(ROWS))
    unknown = [row for row in rows if row not in ROWS | VARIANTS]
    if unknown:
        raise SystemExit(f"unknown rows {unknown}; legal rows are {list(ROWS | VARIANTS)}")
    seeds = options.seeds[:1] if options.quick else options.seeds
    os.makedirs(os.path.join(options.output_dir, "cells"), exist_ok=True)
    first = [("cold start", seed) for seed in seeds]  # the others start from what these leave behind
    rest = [(row, seed) for seed in seeds for row in rows if row != "cold start"]
    with tqdm(total=len(first + rest), desc="Cells") as progress:
        for batch in (first, rest):
            with ThreadPoolExecutor(options.jobs) as pool:
                for _ in pool.map(lambda cell: start(*cell, options, extra), batch):
                    progress.update()
    report(options.output_dir)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", default="paravt-ablation")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--rows", nargs="+", help="names of rows; those of the paper if not given")
    parser.add_argument("--tokens", type=int, default=80_000, help="generated tokens of a training run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="cells at a time")
    parser.add_argument("--quick", action="store_true", help="one seed of four rows")
    main(*parser.parse_known_args())
