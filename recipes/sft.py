"""
Cold start: supervised fine-tuning on tool conversations, with the token segments of a rollout.

On the toy world, without arguments:

    accelerate launch recipes/sft.py

On ParaVT-shaped rows, with LoRA:

    accelerate launch recipes/sft.py \
        --model_name_or_path Qwen/Qwen3-VL-8B-Instruct \
        --dataset_name path/to/sft.parquet --video_root path/to/videos \
        --use_peft --lora_dropout 0 --bf16 --output_dir cold-start
"""

import os
import sys
from dataclasses import dataclass, field

import torch
from accelerate import PartialState
from transformers import AutoProcessor
from trl import (
    ModelConfig,
    SFTConfig,
    SFTTrainer,
    TrlParser,
    get_peft_config,
)

from paravt import FrameBudgetCollator, SupervisedCollator, data, toy
from paravt.chat import prepare_processor
from paravt.engines.checkpoints import find_checkpoint, quantization_config, trainable
from paravt.settings import RolloutSettings, prompt_of
from paravt.trainable import freeze_vision, with_targets


@dataclass
class Arguments:
    dataset_name: str | None = field(default=None, metadata={"help": "File, folder or hub id; the toy world if none."})
    dataset_split: str = field(default="train", metadata={"help": "Split of a hub data set."})
    video_root: str | None = field(default=None, metadata={"help": "Folder of relative video paths."})
    frame_budgets: list[int] = field(
        default_factory=lambda: [64], metadata={"help": "Overview frames, one drawn a row."}
    )
    max_pixels: int = field(default=50176, metadata={"help": "Largest area of a frame, in pixels."})
    train_vision: bool = field(default=False, metadata={"help": "Whether the vision tower is trained too."})
    max_bad_rows: float = field(default=0.05, metadata={"help": "Share of rows that may be bad, or go bad."})
    toy_folder: str = field(default="toy", metadata={"help": "Where the toy videos are written."})
    toy_videos: int = field(default=240, metadata={"help": "Number of toy videos."})
    toy_faults: float = field(default=0.15, metadata={"help": "Share of closing tags missing in toy conversations."})
    toy_copies: int = field(default=24, metadata={"help": "Conversations of each toy video, each with its own draws."})
    toy_skips: float = field(
        default=0.5, metadata={"help": "Share of toy conversations that guess where they should call."}
    )
    toy_checks: float = field(
        default=0.0, metadata={"help": "Share of toy conversations that call where the overview suffices."}
    )


# What TRL does to a text data set, or in a collator of its own: nothing of it happens to rows that become the token
# segments of rollouts.
REFUSED = {
    "assistant_only_loss": "the loss is on what the assistant wrote, always",
    "completion_only_loss": "the loss is on what the assistant wrote, always",
    "packing": "rows have pictures and are not packed",
    "packing_strategy": "rows have pictures and are not packed",
    "eval_packing": "rows have pictures and are not packed",
    "padding_free": "rows have pictures and are padded",
    "pad_to_multiple_of": "a batch is as long as its longest row",
    "truncation_mode": "a row longer than `max_length` is an error: a cut one would have lost its answer",
    "shuffle_dataset": "`train_sampling_strategy` says in which order rows come",
    "chat_template_path": "the chat template is the checkpoint's",
    "eos_token": "the tokens are the checkpoint's",
    "pad_token": "the tokens are the checkpoint's",
    "dataset_text_field": "rows are conversations",
    "dataset_kwargs": "rows are read by `paravt.data`",
    "dataset_num_proc": "rows are read by `paravt.data`",
}


@dataclass
class Training(SFTConfig):
    """TRL's [`~trl.SFTConfig`], without what would be ignored here, and with no limit of length unless given."""

    max_length: int | None = field(default=None, metadata={"help": "Longest row in tokens; a longer one is an error."})

    def __post_init__(self):
        for option, reason in REFUSED.items():
            value = getattr(self, option)
            if value != self.__dataclass_fields__[option].default:
                raise ValueError(f"`{option}` {value!r} has no effect here: {reason}")
        super().__post_init__()


def toy_world(arguments: Arguments, seed: int, batch_size: int):
    """The toy rows, a processor trained on their text, and a model of random weights."""
    from datasets import Dataset

    questions = toy.make_rows(arguments.toy_folder, arguments.toy_videos, seed=0)
    rows = []
    for copy in range(arguments.toy_copies):
        rows += toy.supervised_rows(
            questions,
            arguments.frame_budgets,
            faults=arguments.toy_faults,
            skips=arguments.toy_skips,
            checks=arguments.toy_checks,
            seed=copy,
        )
    processor = toy.make_processor(toy.corpus(rows))
    return Dataset.from_list(toy.curriculum(rows, batch_size)), processor, toy.make_model(processor, seed)


def main(arguments: Arguments, training: Training, model_config: ModelConfig) -> str:
    """Trains and returns the folder of the result."""
    quantization = None
    if arguments.dataset_name is None:
        with training.main_process_first(desc="toy world"):
            rows, processor, model = toy_world(arguments, training.seed, training.train_batch_size)
    else:
        rows = data.load_rows(
            arguments.dataset_name,
            arguments.dataset_split,
            video_root=arguments.video_root,
            max_bad=arguments.max_bad_rows,
            supervised=True,
        )
        name = trainable(model_config.model_name_or_path)
        processor = AutoProcessor.from_pretrained(name, trust_remote_code=training.trust_remote_code)
        processor = prepare_processor(processor, arguments.max_pixels)
        quantization = quantization_config(model_config)
        named = {"dtype": model_config.dtype, "attn_implementation": model_config.attn_implementation}
        training.model_init_kwargs = named | (training.model_init_kwargs or {})
        model = name
    collator = FrameBudgetCollator(processor, arguments.frame_budgets, training.seed, arguments.max_pixels)
    training.dataset_kwargs = {"skip_prepare_dataset": True}
    training.remove_unused_columns = False
    batches = SupervisedCollator(collator, max_length=training.max_length, max_bad_rows=arguments.max_bad_rows)
    trainer = SFTTrainer(
        model,
        training,
        batches,
        rows,
        processing_class=processor,
        peft_config=with_targets(get_peft_config(model_config), model, arguments.train_vision),
        quantization_config=quantization,
        callbacks=[collator],
    )
    if not arguments.train_vision:
        freeze_vision(trainer.model)
    checkpoint = find_checkpoint(training.resume_from_checkpoint, training.output_dir, PartialState().print)
    trainer.train(resume_from_checkpoint=checkpoint)
    if batches.bad_rows:
        print(f"{batches.bad_rows} times a row had no loss, for its video had gone bad")
    trainer.save_model(training.output_dir)
    if trainer.is_world_process_zero():
        processor.save_pretrained(training.output_dir)
        asked = {"frames": max(arguments.frame_budgets), "max_pixels": arguments.max_pixels}
        RolloutSettings(prompt=prompt_of(rows[0]), **asked).save(training.output_dir)
    return training.output_dir


def use_all_cores() -> None:
    """`accelerate launch` gives a process one thread, which halves the speed of a run on CPU."""
    if not torch.cuda.is_available():
        torch.set_num_threads(max(1, os.cpu_count() // PartialState().num_processes))


if __name__ == "__main__":
    use_all_cores()
    parser = TrlParser((Arguments, Training, ModelConfig))
    flags = sys.argv[1:]
    if not any(flag.startswith(("--dataset_name", "--config")) for flag in flags):
        flags += ["--config", os.path.join(os.path.dirname(__file__), "configs", "toy_sft.yaml")]
    main(*parser.parse_args_and_config(flags))
