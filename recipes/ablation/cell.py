"""
One cell of the ablation: one row and one seed, trained until a number of generated tokens and measured.

    python recipes/ablation/cell.py "PARA-GRPO" 1 --output_dir paravt-ablation --tokens 80000

`recipes/ablation/run.py` runs these. Flags of `recipes/para_grpo.py` may follow.
"""

import argparse
import copy
import importlib.metadata
import json
import os
import subprocess
import sys
import time

from rows import BUDGETS, ROWS, TRAINERS, VARIANTS
from transformers import TrainerCallback
from trl import ModelConfig, TrlParser

from paravt import ParaGRPOConfig, ParaGRPOTrainer, ParallelRollout
from paravt.evaluation import measure_trainer


HERE = os.path.dirname(os.path.abspath(__file__))
RECIPES = os.path.dirname(HERE)
sys.path.append(RECIPES)
from para_grpo import Arguments, build  # noqa: E402


class UntilTokens(TrainerCallback):
    def __init__(self, rollout: ParallelRollout, tokens: int):
        self.rollout, self.tokens = rollout, tokens

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop |= self.rollout.generated >= self.tokens


def cell_path(folder: str, row: str, seed: int) -> str:
    return os.path.join(folder, "cells", f"{row.replace(' ', '-')}-{seed}.json")


def run(row: str, seed: int, folder: str, tokens: int, extra: list[str]) -> None:
    """Trains, measures, and writes the cell at once at the end."""
    flags = ["--config", os.path.join(RECIPES, "configs", "toy.yaml"), "--toy_folder", os.path.join(folder, "toy")]
    flags += ["--cold_start", os.path.join(folder, f"cold-start-{seed}"), "--seed", str(seed), "--toy_checks", "0.5"]
    flags += ["--output_dir", os.path.join(folder, "runs", f"{row}-{seed}".replace(" ", "-")), "--save_strategy", "no"]
    flags += ["--max_steps", "1000", "--logging_steps", "1", "--disable_tqdm", "true", *extra, *(ROWS | VARIANTS)[row]]
    arguments, training, model = TrlParser((Arguments, ParaGRPOConfig, ModelConfig)).parse_args_and_config(flags)
    trainer, held_out = build(arguments, training, model, TRAINERS.get(row, ParaGRPOTrainer))
    trainer.add_callback(UntilTokens(trainer.rollout_func, tokens))
    start = time.time()
    if row != "cold start":
        trainer.train()
        trainer.save_model()
    seconds, generated = time.time() - start, trainer.rollout_func.generated
    one_a_turn = copy.copy(training)  # as many calls, one in a turn
    one_a_turn.dispatch, one_a_turn.max_turns = "sequential", training.max_turns * training.max_calls_per_turn
    rates = {
        "sampled": measure_trainer(trainer, held_out, BUDGETS),
        "greedy": measure_trainer(trainer, held_out, BUDGETS, sampled=False),
        "sequential": measure_trainer(trainer, held_out, BUDGETS, ParallelRollout.from_config(one_a_turn)),
    }
    versions = {name: importlib.metadata.version(name) for name in ("paravt", "trl", "transformers", "torch")}
    commit = subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout
    found = {
        "row": row,
        "seed": seed,
        "flags": flags,
        "versions": versions | {"commit": commit.strip()},
        "training_seconds": seconds,
        "tokens": generated,
        "steps": trainer.state.global_step,
        "rates": rates,
        "log": [entry for entry in trainer.state.log_history if "reward" in entry],
    }
    path = cell_path(folder, row, seed)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".part", "w") as file:
        json.dump(found, file)
    os.replace(path + ".part", path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row", choices=ROWS | VARIANTS)
    parser.add_argument("seed", type=int)
    parser.add_argument("--output_dir", default="paravt-ablation")
    parser.add_argument("--tokens", type=int, default=80_000)
    options, extra = parser.parse_known_args()
    run(options.row, options.seed, options.output_dir, options.tokens, extra)
