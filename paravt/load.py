"""A checkpoint, and an adapter if there is one, as an engine that answers questions."""

import json
import os

from transformers import BitsAndBytesConfig
from trl import ModelConfig, get_quantization_config

from .chat import prepare_processor
from .engine import TransformersEngine


ENGINES = ("transformers", "vllm")


def resolve_model(model: str, adapter: str | None = None) -> tuple[str, str | None]:
    """The folder or hub id of the base model, and that of the adapter, where `model` may be an adapter itself."""
    config = os.path.join(model, "adapter_config.json")
    if adapter is None and os.path.exists(config):
        with open(config) as file:
            return json.load(file)["base_model_name_or_path"], model
    return model, adapter


def load_engine(
    model: str,
    adapter: str | None = None,
    engine: str = "transformers",
    max_pixels: int = 50176,
    dtype: str = "auto",
    device: str | None = None,
    max_length: int | None = None,
    batch_size: int = 16,
):
    """
    An engine that decodes greedily.

    Args:
        model (`str`): Checkpoint, or an adapter that names its base model.
        adapter (`str`, *optional*): LoRA adapter.
        engine (`str`): `"transformers"` or `"vllm"`.
        max_pixels (`int`): Largest area of a frame, in pixels.
        dtype (`str`): Data type of the weights.
        device (`str`, *optional*): Where `transformers` computes; the GPU if there is one.
        max_length (`int`, *optional*): Longest conversation that vLLM makes room for, in tokens.
        batch_size (`int`): Sequences that `transformers` generates at a time.
    """
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    if engine not in ENGINES:
        raise ValueError(f"`engine` must be one of {ENGINES}, got {engine!r}")
    base, adapter = resolve_model(model, adapter)
    processor = prepare_processor(AutoProcessor.from_pretrained(base), max_pixels)
    if engine == "vllm":
        from .vllm_engine import VLLMEngine, require_vllm

        require_vllm()
        from vllm import LLM

        llm = LLM(merge(base, adapter) if adapter else base, dtype=dtype, max_model_len=max_length)
        return VLLMEngine(llm, processor)
    policy = AutoModelForImageTextToText.from_pretrained(base, dtype=dtype)
    if adapter:
        from peft import PeftModel

        policy = PeftModel.from_pretrained(policy, adapter).merge_and_unload()
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return TransformersEngine(policy.to(device).eval(), processor, max_batch=batch_size)


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
