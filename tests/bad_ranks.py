"""
Run by two ranks, each of which writes what it found to OUT: bad rows on one rank only.

    torchrun --nproc_per_node 2 tests/bad_ranks.py TEXT_CHECKPOINT TOY_CHECKPOINT VIDEOS OUT

A text model takes one step on three groups of four rollouts, the second of which lies across the ranks and is bad on
one of them; the weights must be those of one process with the other two groups. A toy model takes steps in which one
rank has no good row, and then meets more bad rows than `max_bad_rows`.
"""

import json
import sys

import torch
from datasets import Dataset
from test_trainer import config, fixed_rollouts, rows_with_errors, spread, telling
from transformers import AutoProcessor

from paravt import ParaGRPOTrainer, toy


torch.set_num_threads(1)
text_checkpoint, toy_checkpoint, videos, out = sys.argv[1:]
found = {}


def text_step(loss_type):
    args = config(
        out,
        max_bad_rows=1.0,
        shuffle_dataset=False,
        learning_rate=0.1,
        per_device_train_batch_size=3,
        gradient_accumulation_steps=2,
        loss_type=loss_type,
        beta=0.1,
    )
    rank = args.process_index
    rows = rows_with_errors([0]) + rows_with_errors([], [1]) + rows_with_errors([2])
    if rank == 1:  # it reads the file that the other cannot read
        rows[1]["video_error"] = None
    trainer = ParaGRPOTrainer(
        text_checkpoint, telling, args, train_dataset=Dataset.from_list(rows), rollout_func=fixed_rollouts
    )
    trainer.train()
    torch.save(trainer.model.state_dict(), f"{out}/{loss_type}-{rank}.pt")
    found[loss_type] = next(entry for entry in trainer.state.log_history if "reward" in entry)
    return rank


for loss_type in ("dapo", "grpo"):
    rank = text_step(loss_type)

args = config(
    out,
    max_bad_rows=0.5,
    shuffle_dataset=False,
    max_steps=8,
    frame_budgets=[4],
    log_completions=True,
    num_completions_to_print=1,
)
trainer = ParaGRPOTrainer(
    toy_checkpoint,
    spread,
    args,
    train_dataset=Dataset.from_list(toy.make_rows(videos, 16)),
    processing_class=AutoProcessor.from_pretrained(toy_checkpoint),
)
prepare, steps = trainer.data_collator.prepare, []


def missing(row):
    """From the second batch on the rank's own rows are gone: first those of rank 0, then those of both."""
    gone = trainer.state.global_step >= (1 if rank == 0 else 3)
    return prepare({**row, "videos": ["/nowhere.mp4"]} if gone else row)


trainer.data_collator.prepare = missing
try:
    trainer.train()
except RuntimeError as error:
    found["error"] = str(error)
found["steps"] = trainer.state.global_step
found["left_out"] = [entry["video/left_out"] for entry in trainer.state.log_history if "video/left_out" in entry]
with open(f"{out}/rank-{rank}.json", "w") as file:
    json.dump(found, file)
