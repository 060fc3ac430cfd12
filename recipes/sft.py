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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields

import torch
from accelerate import PartialState
from accelerate.logging import get_logger
from accelerate.utils import is_peft_model
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
from paravt.engines.features import FAMILIES, Tower
from paravt.forest import obstacle, teach_forests
from paravt.settings import RolloutSettings, prompt_of
from paravt.trainable import check_vision, freeze_vision, with_targets


logger = get_logger(__name__)


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
    "packing_strategy": "rows of a batch are packed, not those of a data set",
    "eval_packing": "`packing` is for evaluation too",
    "padding_free": "`packing` leaves out the padding",
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


HARMLESS = {"eval_packing": False}  # what would be refused, and says what is so anyway


# Options that only one of the two kinds of data has, of this recipe and of `para_grpo.py`.
OF_A_DATA_SET = ("dataset_split", "video_root")
OF_A_MODEL = ("model_name_or_path", "model_revision")
OF_A_LOADED_MODEL = ("dtype", "attn_implementation", "load_in_8bit", "load_in_4bit")
OF_THE_TOY = ("toy_folder", "toy_videos", "toy_faults", "toy_copies", "toy_skips", "toy_checks", "cold_start")


def refuse(options, names: Iterable[str], reason: str) -> None:
    """Raises a `ValueError` for the first of the options that was given and would be ignored."""
    for one in fields(options):
        value = getattr(options, one.name)
        if one.name in names and value != one.default:
            raise ValueError(f"`{one.name}` {value!r} has no effect {reason}")


def check_data(arguments, model_config: ModelConfig) -> None:
    """Raises a `ValueError` for options of the toy world beside a data set, or of a data set without one."""
    if arguments.dataset_name is None:
        refuse(arguments, OF_A_DATA_SET, "without `dataset_name`")
        refuse(model_config, OF_A_MODEL, "without `dataset_name`: the toy world has a model of its own")
        return
    refuse(arguments, OF_THE_TOY, f"with `dataset_name` {arguments.dataset_name!r}: it is of the toy world")
    if model_config.model_name_or_path is None:
        raise ValueError("`dataset_name` needs `model_name_or_path`: the model that is trained")


@dataclass
class Training(SFTConfig):
    """TRL's [`~trl.SFTConfig`], without what would be ignored here, and with no limit of length unless given."""

    max_length: int | None = field(default=None, metadata={"help": "Longest row in tokens; a longer one is an error."})
    packing: bool = field(
        default=True,
        metadata={"help": "Whether a batch is one sequence without padding, where the model allows it."},
    )

    def __post_init__(self):
        for option, reason in REFUSED.items():
            value = getattr(self, option)
            default = self.__dataclass_fields__[option].default
            if value not in (default, HARMLESS.get(option, default)):
                raise ValueError(f"`{option}` {value!r} has no effect here: {reason}")
        super().__post_init__()


class Trainer(SFTTrainer):
    """TRL's [`~trl.SFTTrainer`], which counts the tokens of packed batches too."""

    def compute_loss(self, model, inputs, *args, **kwargs):
        if "trees" in inputs and self.model.training:
            count = torch.tensor(inputs["input_ids"].numel(), device=self.accelerator.device)
            self._total_train_tokens += self.accelerator.gather(count).sum().item()
        return super().compute_loss(model, inputs, *args, **kwargs)


def learn_packing(model, processor) -> Callable | None:
    """Makes a model ready for packed batches, and returns what gives their positions; `None` if it cannot be."""
    model = model.get_base_model() if is_peft_model(model) else model
    reason = obstacle(model)
    if model.config.model_type not in FAMILIES:
        reason = f"it is none of {', '.join(FAMILIES)}"
    if reason:
        logger.warning(f"{type(model).__name__} is trained without packing: {reason}.")
        return None
    teach_forests(model)
    return Tower(model, processor.image_processor).rope


def init_kwargs(training, model_config: ModelConfig) -> dict:
    """How the model is loaded: `model_init_kwargs` before the options that have a name."""
    named = {"dtype": model_config.dtype, "attn_implementation": model_config.attn_implementation}
    return named | (training.model_init_kwargs or {})


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
    check_data(arguments, model_config)
    quantization = None
    if arguments.dataset_name is None:
        refuse(model_config, OF_A_LOADED_MODEL, "without `dataset_name`: the toy world makes its model")
        refuse(arguments, ["max_bad_rows"], "without `dataset_name`")
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
        name = trainable(model_config.model_name_or_path, model_config.model_revision)
        processor = AutoProcessor.from_pretrained(name, trust_remote_code=training.trust_remote_code)
        processor = prepare_processor(processor, arguments.max_pixels)
        quantization = quantization_config(model_config)
        training.model_init_kwargs = init_kwargs(training, model_config)
        model = name
    collator = FrameBudgetCollator(processor, arguments.frame_budgets, training.seed, arguments.max_pixels)
    training.dataset_kwargs = {"skip_prepare_dataset": True}
    training.remove_unused_columns = False
    batches = SupervisedCollator(collator, max_length=training.max_length, max_bad_rows=arguments.max_bad_rows)
    packs, training.packing = training.packing, False  # TRL's own packing is for text
    trainer = Trainer(
        model,
        training,
        batches,
        rows,
        processing_class=processor,
        peft_config=with_targets(get_peft_config(model_config), model, arguments.train_vision),
        quantization_config=quantization,
        callbacks=[collator],
    )
    if arguments.train_vision:
        check_vision(trainer.model)
    else:
        freeze_vision(trainer.model)
    if packs:
        batches.rope = learn_packing(trainer.model, processor)
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
