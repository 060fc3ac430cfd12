"""
What engines need of TRL beyond its public API, in one place: what a new TRL breaks is mended here. The other place is
[`~trainer.ParaGRPOTrainer`], whose docstring names what it overrides and uses.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import patch

import torch
from trl.distributed import DistributedBackend
from trl.extras.profiling import profiling_decorator as profiling_decorator
from trl.import_utils import is_vllm_available as is_vllm_available
from trl.models import unwrap_model_for_generation
from trl.trainer.utils import split_pixel_values_by_grid, split_tensor_dict, unsplit_pixel_values_by_grid


def _gathers(trainer) -> bool:
    """Whether whole weights are gathered for a rollout where ZeRO-3 shards them."""
    # Before training nothing would gather the weights of a layer on its way.
    return trainer.args.ds3_gather_for_generation or trainer.model_wrapped is trainer.model


@contextmanager
def open_policy(trainer) -> Iterator[torch.nn.Module]:
    """The policy of a trainer, within a context in which it may generate."""
    with (
        unwrap_model_for_generation(
            trainer.model_wrapped,
            trainer.accelerator,
            gather_deepspeed3_params=_gathers(trainer),
            generation_kwargs=trainer.generation_kwargs,
            gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs,
        ) as model,
        DistributedBackend(trainer.accelerator).summon_full_params(trainer.model_wrapped, recurse=False),
    ):
        yield model


def ranks_that_share_the_policy(trainer):
    """The accelerator of a trainer whose ranks must generate together, since each has a shard only; `None` if not."""
    distributed = DistributedBackend(trainer.accelerator)
    sharded = distributed.is_fsdp or (distributed.is_zero3 and not _gathers(trainer))
    return trainer.accelerator if sharded and trainer.accelerator.num_processes > 1 else None


def keep_together(batches: Sequence[dict], names: Sequence[Hashable]) -> list[dict]:
    """
    Shuffled micro-batches with rows of one name side by side, in the order in which the names appear; `names` has one
    for each row of all micro-batches.
    """
    order = [number for name in dict.fromkeys(names) for number, other in enumerate(names) if other == name]
    parts = [split_pixel_values_by_grid(batch) for batch in batches]
    whole = {}
    for key, first in parts[0].items():
        if isinstance(first, list):
            values = [value for part in parts for value in part[key]]
            whole[key] = [values[number] for number in order]
        elif first is None or first.dim() == 0:
            whole[key] = first
        else:
            whole[key] = torch.cat([part[key] for part in parts])[order]
    return [unsplit_pixel_values_by_grid(batch) for batch in split_tensor_dict(whole, len(batches))]


# What follows is of TRL's `VLLMGeneration`, which manages vLLM for a trainer: `trainer.vllm_generation`.


def sampling_of(generation) -> dict:
    """Sampling parameters of a trainer, as arguments of `vllm.SamplingParams`."""
    if "seed" in generation.generation_kwargs:
        raise ValueError("`generation_kwargs` has a `seed`, but each request has its own: set the trainer's `seed`")
    names = ("repetition_penalty", "temperature", "top_p", "top_k")
    found = {name: getattr(generation, name) for name in names}
    return {**found, "min_p": generation.min_p or 0.0, **generation.generation_kwargs}


@contextmanager
def awake(generation) -> Iterator[None]:
    """Within it vLLM is awake, with the weights of this step; afterwards it sleeps, where sleep mode is on."""
    if not generation.enable_sleep_mode:
        yield
        return
    if generation._llm_weights_sleeping:
        generation.sync_weights()
    generation.llm.wake_up(tags=["kv_cache"])
    try:
        yield
    finally:
        generation.llm.sleep(level=2)
        generation._llm_weights_sleeping = True


@contextmanager
def plain_start() -> Iterator[None]:
    """Within it vLLM starts with plain weights. TRL would ask it to quantise what the policy has quantised."""
    with patch("trl.generation.vllm_generation.is_bitsandbytes_available", lambda: False):
        yield


def distributed_of(generation) -> DistributedBackend:
    """How the policy is sharded, and the means to gather it."""
    return generation._dist


def name_in_vllm(generation, name: str) -> str:
    """What vLLM calls a parameter of the policy."""
    return generation._fix_param_name_to_vllm(name, extra_prefixes=["modules_to_save.default."])


def push_instead(generation, parameters: Callable[[], Iterable[tuple[str, torch.Tensor]]]) -> None:
    """From now on the pairs of name and weight that `parameters` returns are pushed to vLLM at each step."""
    generation._iter_named_params = parameters


# And of its client for a vLLM server.


def connect(url: str, timeout: float = 0.0):
    """A client of the server at `url`, which may take `timeout` seconds to come up."""
    from trl.generation.vllm_client import VLLMClient

    return VLLMClient(base_url=url, connection_timeout=timeout)


def client_of(trainer):
    """A client of this process for the server of a trainer, whose own is on the main process only."""
    generation = trainer.vllm_generation
    url = generation.server_base_url or f"http://{generation.server_host}:{generation.server_port}"
    return connect(url, generation.server_timeout)


def longest_conversation(client) -> int:
    """Tokens of a conversation for which the server has room."""
    return client._get(f"{client.base_url}/v1/models")["data"][0]["max_model_len"]


def place_features(features: dict | None, prompt_ids: list[int], image_token: int) -> dict | None:
    """Features of images, as the server made them, at the places of the images in a prompt."""
    from trl.generation.vllm_generation import VLLMGeneration

    owner = SimpleNamespace(processing_class=SimpleNamespace(image_token_id=image_token))
    return VLLMGeneration._place_features(owner, features, prompt_ids)
