"""Weights on their way to vLLM."""

import torch


def keep_weights_loadable() -> None:
    """
    Lets vLLM's CPU build take new weights: it packs linear layers for its kernels as it loads them and drops the rest.
    To be called before the engine starts; elsewhere it does nothing.
    """
    from vllm.model_executor.layers import utils
    from vllm.platforms import current_platform

    def plain(layer, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    if current_platform.is_cpu():
        utils.dispatch_cpu_unquantized_gemm = plain


def push_exact_weights(generation) -> None:
    """
    Makes TRL's `VLLMGeneration` push merged LoRA weights without touching the model's: it merges and unmerges in
    place, and `(w + d) - d` is not `w`. Here each layer is merged on a copy, one at a time.
    """
    from accelerate.utils import is_peft_model
    from peft.tuners.tuners_utils import BaseTunerLayer

    model = generation.model
    if not is_peft_model(model) or generation._dist.is_fsdp:  # sharded layers are merged the way of TRL
        return

    def named_params():
        layers = {name: module for name, module in model.named_modules() if isinstance(module, BaseTunerLayer)}
        with generation._dist.gather_params(list(model.parameters())):
            for name, param in model.named_parameters():
                if model.prefix in name or "original_module" in name:
                    continue
                owner, _, leaf = name.rpartition(".base_layer.")
                plain = name.removeprefix("base_model.model.").replace(".base_layer", "")
                plain = generation._fix_param_name_to_vllm(plain, extra_prefixes=["modules_to_save.default."])
                layer = layers.get(owner)
                if layer is None or leaf != "weight":
                    yield plain, param.data
                    continue
                saved, merged = param.data, list(layer.merged_adapters)
                param.data = saved.clone()
                try:
                    layer.merge()
                    yield plain, layer.get_base_layer().weight.data
                finally:
                    layer.get_base_layer().weight.data = saved
                    layer.merged_adapters[:] = merged

    generation._iter_named_params = named_params
