"""Checkpoints and the adapters on them: which is which, merged, quantised."""

import json
import os

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
    """Writes the model with its adapter merged, for engines that take whole checkpoints; returns the folder."""
    from peft import PeftModel
    from transformers import AutoModelForImageTextToText, AutoProcessor

    folder = folder or os.path.join(adapter, "merged")
    if not os.path.exists(os.path.join(folder, "processor_config.json")):
        policy = AutoModelForImageTextToText.from_pretrained(base, dtype="auto")
        PeftModel.from_pretrained(policy, adapter).merge_and_unload().save_pretrained(folder)
        AutoProcessor.from_pretrained(base).save_pretrained(folder)  # last: its file says that all is written
    return folder
