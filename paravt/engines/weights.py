"""Weights on their way to vLLM."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch

from .trl import distributed_of, name_in_vllm, plain_start, push_instead


@contextmanager
def loadable_weights() -> Iterator[None]:
    """
    Within it vLLM starts with weights that can be replaced. Its CPU build would pack linear layers for its kernels and
    drop the rest; and TRL would ask it to quantise what the policy has quantised, where merged weights have no place.
    """
    from vllm.model_executor.layers import utils
    from vllm.platforms import current_platform

    def plain(layer, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    with ExitStack() as stack:
        stack.enter_context(plain_start())
        if current_platform.is_cpu():
            stack.enter_context(patch.object(utils, "dispatch_cpu_unquantized_gemm", plain))
        yield


def forget_old_features(generation) -> None:
    """
    Makes TRL's `VLLMGeneration` drop what vLLM keeps of pictures with every push of weights: it keeps the vision
    tower's output by the name of a picture, and TRL drops the keys and values of prompts alone.
    """
    push = generation.sync_weights

    def sync_weights() -> None:
        push()
        if generation.mode == "colocate":
            generation.llm.llm_engine.reset_encoder_cache()
        elif generation.accelerator.is_main_process:
            client = generation.vllm_client
            response = client.session.post(f"{client.base_url}/reset_encoder_cache")
            if response.status_code != 200:
                raise RuntimeError(
                    f"the vLLM server at {client.base_url} keeps features that old weights made of pictures: "
                    f"/reset_encoder_cache says {response.status_code} {response.text}; start it with "
                    "`VLLM_SERVER_DEV_MODE=1` in its environment"
                )

    generation.sync_weights = sync_weights


def push_exact_weights(generation) -> None:
    """
    Makes TRL's `VLLMGeneration` push merged adapters without touching the model's weights: it merges and unmerges in
    place, and `(w + d) - d` is not `w`; and of quantised layers it pushes the packed bytes. Here each layer is merged
    on a copy, one at a time, and quantised ones are dequantised, so that the engine computes what the policy does.

    Raises:
        `ValueError`: If the engine cannot take such weights.
    """
    from accelerate.utils import is_peft_model

    model, distributed = generation.model, distributed_of(generation)
    if not is_peft_model(model):
        return
    quantised = any(_is_quantised(param) for param in model.parameters())
    if quantised and (distributed.is_fsdp or distributed.is_zero3):
        raise ValueError("`use_vllm` with quantised weights needs a whole model on every rank, without FSDP or ZeRO-3")
    kind = generation.llm.llm_engine.model_config.quantization if generation.mode == "colocate" else None
    if kind is not None:
        raise ValueError(
            f"{model.name_or_path!r} is a checkpoint of {kind} weights, with which no adapter can be merged: "
            "name the plain checkpoint, with `load_in_4bit` if the policy is to have quantised weights"
        )
    if distributed.fsdp_version != 1:  # whose flat parameters are merged the way of TRL
        push_instead(generation, lambda: _merged_params(generation))


def _merged_params(generation) -> Iterator[tuple[str, torch.Tensor]]:
    """Names in vLLM and whole weights, one at a time."""
    from peft.tuners.tuners_utils import BaseTunerLayer
    from torch.distributed.tensor import DTensor

    model = generation.model
    layers = {name: module for name, module in model.named_modules() if isinstance(module, BaseTunerLayer)}
    with distributed_of(generation).gather_params(list(model.parameters())):
        for name, param in model.named_parameters():
            if model.prefix in name or "original_module" in name:
                continue
            owner, _, leaf = name.rpartition(".base_layer.")
            plain = name.removeprefix("base_model.model.").replace(".base_layer", "")
            if _is_quantised(param):
                weight = _dequantised(model.get_submodule(name.rpartition(".")[0]), layers.get(owner))
            else:
                weight = _merged(layers[owner], leaf) if owner in layers else param.data
            if isinstance(weight, DTensor):  # sharded by FSDP2
                weight = weight.to(generation.accelerator.device).full_tensor()
            yield name_in_vllm(generation, plain), weight


def _merged(layer, leaf: str) -> torch.Tensor:
    """A parameter of an adapter's base layer as merging would leave it."""
    places = [
        (module._parameters, name, param)
        for module in layer.get_base_layer().modules()
        for name, param in module._parameters.items()
        if param is not None
    ]
    adapters = list(layer.merged_adapters)
    for parameters, name, param in places:
        parameters[name] = torch.nn.Parameter(param.detach().clone(), requires_grad=False)
    try:
        layer.merge()
        return layer.get_base_layer().get_parameter(leaf).data
    finally:
        for parameters, name, param in places:
            parameters[name] = param
        layer.merged_adapters[:] = adapters


def _is_quantised(param: torch.nn.Parameter) -> bool:
    return type(param).__name__ in ("Params4bit", "Int8Params")  # of bitsandbytes


@torch.no_grad()
def _dequantised(module: torch.nn.Module, layer) -> torch.Tensor:
    """The weight of a quantised linear layer, with its adapter if `layer` is one."""
    from peft.utils.integrations import dequantize_bnb_weight

    weight = dequantize_bnb_weight(module.weight, state=getattr(module, "state", None))
    for name in layer.active_adapters if layer is not None else ():
        if name in layer.lora_variant:
            weight = layer.lora_variant[name].merge_safe(layer, name, weight)
        elif name in layer.lora_A:
            weight = weight + layer.get_delta_weight(name).to(weight.dtype)
    return weight


def keep_gradients(model: torch.nn.Module) -> None:
    """
    On CPUs bitsandbytes repacks 4-bit weights at the first evaluation, for a kernel that has no gradient, whereafter
    nothing can be trained. Here it keeps them as they are.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):  # only bitsandbytes' layers, of versions that repack
            module.support_avx512bf16_for_cpu = False


def same_weights(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    """Whether two modules have equal weights, as far as they can be seen: sharded ones cannot."""
    pairs = list(zip(one.parameters(), other.parameters(), strict=True))
    whole = all(type(param) is torch.nn.Parameter and param.numel() for pair in pairs for param in pair)
    return whole and all(a.shape == b.shape and torch.equal(a, b.to(a.device)) for a, b in pairs)
