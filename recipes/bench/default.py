"""
How long the commands that need no data take: those of this checkout and those of another one, in turn.

    python recipes/bench/default.py --against CHECKOUT [--rounds 1] [--seed 42] [--only para_grpo.py]

`para_grpo.py` is the whole default run: videos, cold start, measurement, training, measurement. `ask.py` is its first
run, in which the toy model is trained. Each runs in an empty folder, by `accelerate launch` where a user would.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

from paravt.metrics import table


HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMANDS = {
    "para_grpo.py": ["-m", "accelerate.commands.launch", "{recipes}/para_grpo.py"],
    "ask.py": ["{recipes}/ask.py"],
}


def seconds(checkout: str, name: str, flags: list[str]) -> tuple[float, str]:
    """Seconds of a command of a checkout, and what it printed."""
    recipes = os.path.join(os.path.abspath(checkout), "recipes")
    command = [sys.executable, *(part.format(recipes=recipes) for part in COMMANDS[name]), *flags]
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.path.abspath(checkout)},
        )
        taken = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return taken, done.stdout


def main(against: str, rounds: int, seed: int | None, names: list[str]) -> None:
    rows = []
    for name in names:
        flags = ["--seed", str(seed)] if name == "para_grpo.py" and seed is not None else []
        taken: dict[str, list[float]] = {against: [], HERE: []}
        for _ in range(rounds):
            for checkout in taken:
                value, said = seconds(checkout, name, flags)
                taken[checkout].append(value)
                print(f"{name} of {checkout}: {value:.0f} s\n{said[-1500:]}", flush=True)
        theirs, ours = (statistics.median(taken[checkout]) for checkout in (against, HERE))
        ratio = statistics.median(b / a for a, b in zip(taken[against], taken[HERE], strict=True))
        rows.append((name, {"theirs, s": theirs, "ours, s": ours, "ours / theirs": ratio}))
    print(table("command", rows, list(rows[0][1])))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", required=True, metavar="CHECKOUT", help="another checkout of the library")
    parser.add_argument("--rounds", type=int, default=1, help="of which the median counts")
    parser.add_argument("--seed", type=int, help="of the training run; its own default if none")
    parser.add_argument("--only", choices=COMMANDS, help="one of the commands")
    options = parser.parse_args()
    main(options.against, options.rounds, options.seed, [options.only] if options.only else list(COMMANDS))
