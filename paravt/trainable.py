"""What is trained: the language model, and the vision tower with its projector only if asked for."""

import copy
import re
import warnings

import torch
import transformers
from peft import LoraConfig, PeftConfig, PeftModel
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.pytorch_utils import Conv1D


def language_layers(model: PreTrainedModel) -> str:
    """
    A pattern for PEFT's `target_modules` that is matched by the linear layers of the language model, quantised ones
    included, and by no other layer: neither by those of the vision tower and its projector nor by the LM head.
    """
    decoder = model.get_decoder()
    where = next(name for name, module in model.named_modules() if module is decoder)
    layers = {name.rpartition(".")[2] for name, module in decoder.named_modules() if _is_linear(module)}
    prefix = re.escape(where) + r"\." if where else ""
    return rf"{prefix}(?:.+\.)?(?:{'|'.join(sorted(map(re.escape, layers)))})"


def _is_linear(module: torch.nn.Module) -> bool:
    # The linear layers of quantisation libraries have no class in common, but a common name.
    return isinstance(module, (torch.nn.Linear, Conv1D)) or "Linear" in type(module).__name__


def with_targets(
    peft_config: PeftConfig | None, model: str | PreTrainedModel, train_vision: bool = False, **kwargs
) -> PeftConfig | None:
    """
    The LoRA configuration with the layers that it adapts, where it names none: those of the language model, or with
    `train_vision` all linear layers but the LM head.

    Args:
        peft_config ([`~peft.PeftConfig`], *optional*): Returned as it is if it names layers, or is not of LoRA.
        model (`str` or [`~transformers.PreTrainedModel`]): The model, or its name, whose weights are not loaded.
        train_vision (`bool`): Whether the vision tower is adapted too.
        kwargs: Arguments of [`~transformers.AutoConfig.from_pretrained`] where the model is a name.
    """
    names_layers = (
        not isinstance(peft_config, LoraConfig) or peft_config.target_modules or peft_config.target_parameters
    )
    if names_layers:
        return peft_config
    peft_config = copy.copy(peft_config)
    if train_vision:
        peft_config.target_modules = "all-linear"
    else:
        peft_config.target_modules = language_layers(_outline(model, **kwargs) if isinstance(model, str) else model)
    return peft_config


def _outline(name: str, **kwargs) -> PreTrainedModel:
    """The modules of a checkpoint, without weights."""
    config = AutoConfig.from_pretrained(name, **kwargs)
    architecture = getattr(transformers, config.architectures[0], None)
    with torch.device("meta"):
        if architecture is None:  # code from the hub
            return AutoModelForCausalLM.from_config(config, trust_remote_code=kwargs.get("trust_remote_code", False))
        return architecture._from_config(config)


def freeze_vision(model: torch.nn.Module) -> None:
    """Leaves only the language model and its LM head to be trained. Adapters know on their own what they train."""
    if isinstance(model, PeftModel):
        return
    kept = {id(param) for param in model.get_decoder().parameters()}
    head = model.get_output_embeddings()
    kept |= {id(param) for param in head.parameters()} if head is not None else set()
    for param in model.parameters():
        if id(param) not in kept:
            param.requires_grad_(False)


def warn_of_dropout(model: torch.nn.Module) -> None:
    """
    Warns of dropout that stays active: rollouts, old-policy and loss passes then each see another policy, and their
    ratios are noise.
    """
    active = sorted({module.p for module in model.modules() if isinstance(module, torch.nn.Dropout) and module.p > 0})
    if active:
        warnings.warn(
            f"dropout of {', '.join(f'{p:g}' for p in active)} is active in training, so that log-probabilities "
            "differ from pass to pass: set `lora_dropout` to 0, or `disable_dropout` to true",
            stacklevel=3,
        )
