"""
PARA-GRPO from video files to a trained adapter.

On the toy world: it makes videos, cold-starts a tiny Qwen3-VL, trains it and prints what changed:

    accelerate launch recipes/para_grpo.py

A real checkpoint on ParaVT-shaped rows, on one GPU of 24 GB or on one node:

    accelerate launch recipes/para_grpo.py --config recipes/configs/qwen3_vl_8b_lora.yaml \
        --dataset_name path/to/rl.parquet --video_root path/to/videos
    accelerate launch --num_processes 8 recipes/para_grpo.py --config recipes/configs/qwen3_vl_8b_8gpu.yaml \
        --dataset_name path/to/rl.parquet --video_root path/to/videos

Vanilla GRPO is the same script with `--anchor_weight 0 --frame_budgets 64 --think_prefix false`.
"""

import os
import sys
from dataclasses import dataclass, field
from functools import partial

import sft
from accelerate import PartialState
from datasets import Dataset
from trl import ModelConfig, TrlParser, get_peft_config

from paravt import ParaGRPOConfig, ParaGRPOTrainer, data, toy
from paravt.engines.checkpoints import find_checkpoint, quantization_config, trainable
from paravt.evaluation import measure_trainer
from paravt.judge import JudgeReward
from paravt.metrics import table
from paravt.rewards import accuracy_reward, format_reward, tool_reward


@dataclass
class Arguments:
    dataset_name: str | None = field(default=None, metadata={"help": "File, folder or hub id; the toy world if none."})
    dataset_split: str = field(default="train", metadata={"help": "Split of a hub data set."})
    video_root: str | None = field(default=None, metadata={"help": "Folder of relative video paths."})
    eval_rows: int = field(default=48, metadata={"help": "Rows held out and played before and after; 0 is none."})
    eval_budgets: list[int] | None = field(default=None, metadata={"help": "Frame budgets of the evaluation."})
    judge_model: str | None = field(default=None, metadata={"help": "Model that judges open-ended answers."})
    judge_url: str | None = field(default=None, metadata={"help": "Its OpenAI-compatible endpoint."})
    toy_videos: int = field(default=240, metadata={"help": "Number of toy videos."})
    toy_folder: str | None = field(default=None, metadata={"help": "Where they are; in `output_dir` if none."})
    toy_checks: float = field(default=0.0, metadata={"help": "Share of the cold start that calls without need."})
    cold_start: str | None = field(default=None, metadata={"help": "The toy's cold start; in `output_dir` if none."})


def toy_world(arguments: Arguments, training: ParaGRPOConfig) -> tuple[str, list[dict], list[dict]]:
    """A cold-started tiny model, training rows and held-out rows."""
    folder = arguments.toy_folder or os.path.join(training.output_dir, "toy")
    cold_start = arguments.cold_start or os.path.join(training.output_dir, "cold-start")
    if not os.path.exists(os.path.join(cold_start, "processor_config.json")):
        config = os.path.join(os.path.dirname(__file__), "configs", "toy_sft.yaml")
        parser = TrlParser((sft.Arguments, sft.Training, ModelConfig))
        flags = ["--config", config, "--output_dir", cold_start, "--toy_folder", folder, "--seed", str(training.seed)]
        flags += ["--toy_videos", str(arguments.toy_videos), "--toy_checks", str(arguments.toy_checks)]
        print("Cold start: supervised fine-tuning", flush=True)
        sft.main(*parser.parse_args_and_config(flags))
    with PartialState().main_process_first():
        rows, held_out = toy.make_rows(folder, arguments.toy_videos, 0), toy.make_rows(folder, arguments.eval_rows, 1)
    return cold_start, rows, held_out


def check(arguments: Arguments, model_config: ModelConfig) -> None:
    """Raises a `ValueError` for what was asked for and would be ignored."""
    sft.check_data(arguments, model_config)
    if arguments.judge_model is None:
        sft.refuse(arguments, ["judge_url"], "without `judge_model`")
    if not arguments.eval_rows:
        sft.refuse(arguments, ["eval_budgets"], "with `eval_rows` 0")


def build(
    arguments: Arguments, training: ParaGRPOConfig, model_config: ModelConfig, trainer_class=ParaGRPOTrainer
) -> tuple[ParaGRPOTrainer, list[dict]]:
    """The trainer, and the held-out rows."""
    check(arguments, model_config)
    if arguments.dataset_name is None:
        name, rows, held_out = toy_world(arguments, training)
    else:
        name = trainable(model_config.model_name_or_path, model_config.model_revision)
        rows = data.load_rows(
            arguments.dataset_name,
            arguments.dataset_split,
            video_root=arguments.video_root,
            max_bad=training.max_bad_rows,
        ).to_list()
        count = min(arguments.eval_rows, len(rows) // 10)
        rows, held_out = rows[: len(rows) - count], rows[len(rows) - count :]
    training.model_init_kwargs = sft.init_kwargs(training, model_config)

    # Only what stands inside <answer> counts; without a judge, open-ended answers are scored by token F1.
    accuracy = partial(accuracy_reward, fallback=False, mode="judge" if arguments.judge_model else "f1")
    judges = [JudgeReward(arguments.judge_model, arguments.judge_url)] if arguments.judge_model else []
    tools = judges[0].tool_reward if judges else tool_reward
    trainer = trainer_class(
        name,
        [accuracy, format_reward, tools, *judges],
        training,
        train_dataset=Dataset.from_list(rows),
        peft_config=get_peft_config(model_config),
        quantization_config=quantization_config(model_config),
    )
    return trainer, held_out


def main(arguments: Arguments, training: ParaGRPOConfig, model_config: ModelConfig) -> None:
    trainer, held_out = build(arguments, training, model_config)
    budgets = arguments.eval_budgets or training.frame_budgets
    before = measure_trainer(trainer, held_out, budgets) if held_out else {}
    checkpoint = find_checkpoint(training.resume_from_checkpoint, training.output_dir, PartialState().print)
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model(training.output_dir)
    if held_out:
        after = measure_trainer(trainer, held_out, budgets)
        rows = [(f"{title} K={k}", r[k]) for k in before for title, r in (("before", before), ("after ", after))]
        columns = ("compliance", "calls_per_rollout", "calls_per_turn", "failure_rate", "accuracy")
        if trainer.is_world_process_zero():
            print(table("held-out rows", rows, columns))


if __name__ == "__main__":
    sft.use_all_cores()
    parser = TrlParser((Arguments, ParaGRPOConfig, ModelConfig))
    flags = sys.argv[1:]
    if not any(flag.startswith(("--dataset_name", "--config")) for flag in flags):
        flags += ["--config", os.path.join(os.path.dirname(__file__), "configs", "toy.yaml")]
    main(*parser.parse_args_and_config(flags))
