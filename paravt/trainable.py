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
    The LoRA configuration with the layers that it adapts: where it names none, those of the language model, or with
    `train_vision` all linear layers but the LM head; where it names some, those of them that are trained at all.

    Args:
        peft_config ([`~peft.PeftConfig`], *optional*): Returned as it is if it is not of LoRA.
        model (`str` or [`~transformers.PreTrainedModel`]): The model, or its name, whose weights are not loaded.
        train_vision (`bool`): Whether the vision tower is adapted too.
        kwargs: Arguments of [`~transformers.AutoConfig.from_pretrained`] where the model is a name.
    """
    if not isinstance(peft_config, LoraConfig):
        return peft_config
    peft_config = copy.copy(peft_config)
    names_layers = peft_config.target_modules or peft_config.target_parameters
    if train_vision:
        peft_config.target_modules = peft_config.target_modules if names_layers else "all-linear"
        return peft_config
    model = _outline(model, **kwargs) if isinstance(model, str) else model
    if names_layers:
        theirs = peft_config.exclude_modules or []
        theirs = theirs if isinstance(theirs, str) else "|".join(rf"(?:.+\.)?{re.escape(name)}" for name in theirs)
        peft_config.exclude_modules = "|".join(filter(None, [_outside_the_language_model(model), theirs]))
    else:
        peft_config.target_modules = language_layers(model)
    return peft_config


def _outside_the_language_model(model: PreTrainedModel) -> str:
    """A pattern for the modules that are neither in the language model nor its LM head."""
    trained = [model.get_decoder(), model.get_output_embeddings()]
    names = [re.escape(name) for name, module in model.named_modules() if any(module is one for one in trained)]
    return rf"(?!(?:{'|'.join(names)})(?:\.|$)).*"


def _outline(name: str, **kwargs) -> PreTrainedModel:
    """The modules of a checkpoint, without weights."""
    config = AutoConfig.from_pretrained(name, **kwargs)
    architecture = getattr(transformers, config.architectures[0], None)
    with torch.device("meta"):
        if architecture is None:  # code from the hub
            return AutoModelForCausalLM.from_config(config, trust_remote_code=kwargs.get("trust_remote_code", False))
        return architecture._from_config(config)


def freeze_vision(model: torch.nn.Module) -> None:
    """Leaves only the language model, its LM head and adapters in them to be trained."""
    for param in _vision_parameters(model):
        param.requires_grad_(False)


def check_vision(model: torch.nn.Module) -> None:
    """Raises a `ValueError` if a model has a vision tower and nothing of it, nor of its projector, is trained."""
    vision = _vision_parameters(model)
    if vision and not any(param.requires_grad for param in vision):
        raise ValueError(
            "`train_vision` is true, but no layer of the vision tower is trained: name some in the adapter's "
            "`target_modules` (`--lora_target_modules`), or none at all, which is all linear layers"
        )


def _vision_parameters(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Those outside the language model and its LM head."""
    whole = model.get_base_model() if isinstance(model, PeftModel) else model
    kept = {id(param) for param in whole.get_decoder().parameters()}
    head = whole.get_output_embeddings()
    kept |= {id(param) for param in head.parameters()} if head is not None else set()
    return [param for param in whole.parameters() if id(param) not in kept]


def warn_of_dropout(model: torch.nn.Module) -> None:
    """
    Warns of dropout that stays active: rollouts, old-policy and loss passes then each see another policy, and their
    ratios are noise.
    """
    layers, settings = set(), set()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            layers |= {module.p} - {0.0}
        # Dropout of attention weights and the like is a number that a module has from its config.
        named = {name: value for name, value in vars(module).items() if "drop" in name and isinstance(value, float)}
        settings |= {(name, value) for name, value in named.items() if value > 0}
    found = [f"dropout of {p:g}" for p in sorted(layers)] + [f"`{name}` of {p:g}" for name, p in sorted(settings)]
    if found:
        warnings.warn(
            f"{', '.join(found)} is active in training, so that log-probabilities differ from pass to pass: set "
            "`lora_dropout` to 0, `disable_dropout` to true, and what has a name to 0 in the model's config",
            stacklevel=3,
        )
