"""
Checkpoints and the adapters on them: which is which, merged, quantised.

    python -m paravt.engines.checkpoints ADAPTER [FOLDER]

writes the model that an adapter names as its base, with the adapter merged, to `ADAPTER/merged` or to `FOLDER`.
"""

import json
import os
import subprocess
import sys

from accelerate import PartialState
from transformers import BitsAndBytesConfig
from trl import ModelConfig, get_quantization_config


def resolve_model(model: str, adapter: str | None = None) -> tuple[str, str | None]:
    """The folder or hub id of the base model, and that of the adapter, where `model` may be an adapter itself."""
    config = os.path.join(model, "adapter_config.json")
    if adapter is None and os.path.exists(config):
        with open(config) as file:
            return json.load(file)["base_model_name_or_path"], model
    return model, adapter


def quantization_config(model_config: ModelConfig) -> BitsAndBytesConfig | None:
    """
    TRL's [`~trl.get_quantization_config`], but the vision tower keeps its precision: it is small, and all later layers
    work with its errors.
    """
    config = get_quantization_config(model_config)
    if config is not None:
        config.llm_int8_skip_modules = ["model.visual", "lm_head"]
    return config


def merge(base: str, adapter: str, folder: str | None = None) -> str:
    """
    Writes the model with its adapter merged, for what takes whole checkpoints, and returns the folder: `merged` in the
    adapter's if not given. What was merged after the adapter was written is not merged again.
    """
    from peft import PeftModel
    from transformers import AutoModelForImageTextToText, AutoProcessor

    folder = folder or os.path.join(adapter, "merged")
    if not _is_merged(adapter, folder):
        policy = AutoModelForImageTextToText.from_pretrained(base, dtype="auto")
        PeftModel.from_pretrained(policy, adapter).merge_and_unload().save_pretrained(folder)
        AutoProcessor.from_pretrained(base).save_pretrained(folder)  # last: its file says that all is written
    return folder


def _is_merged(adapter: str, folder: str) -> bool:
    """Whether the folder has a whole model, written after the adapter."""
    done, weights = os.path.join(folder, "processor_config.json"), os.path.join(adapter, "adapter_model.safetensors")
    if not os.path.exists(done):
        return False
    return not os.path.exists(weights) or os.path.getmtime(weights) <= os.path.getmtime(done)


def trainable(model: str) -> str:
    """
    The checkpoint to train from: `model`, or, where that is an adapter, its base model with the adapter merged. A new
    adapter can then be trained on it, and the reference model is what training began with.

    Raises:
        `RuntimeError`: If the adapter cannot be merged.
    """
    base, adapter = resolve_model(model)
    if adapter is None:
        return model
    folder = os.path.join(adapter, "merged")
    with PartialState().main_process_first():
        if not _is_merged(adapter, folder):
            # In a process of its own: in one that trains with ZeRO-3 all that is loaded is sharded over the ranks.
            done = subprocess.run([sys.executable, "-m", "paravt.engines.checkpoints", adapter])
            if done.returncode:
                raise RuntimeError(
                    f"the adapter {adapter!r} could not be merged with {base!r}, the base model that its "
                    "adapter_config.json names; the cause is above"
                )
    return folder


def main(arguments: list[str]) -> None:
    adapter = arguments[0] if len(arguments) in (1, 2) else ""
    base, found = resolve_model(adapter)
    if found is None:
        raise SystemExit(f"{adapter!r} is no folder of an adapter\n{__doc__}")
    print(merge(base, adapter, *arguments[1:]))


if __name__ == "__main__":
    main(sys.argv[1:])
