"""
Generation behind one protocol: token ids and images in, sampled ids and their log-probabilities out.

- `transformers`: by the model itself
- `vllm`: by vLLM, in this process, in the training process, or on a server
- `weights`: weights on their way to vLLM, without drift
- `trl`: what they need of TRL beyond its public API
- `features`: pictures as what the model takes
- `prefixes`: what `transformers` has read of conversations that go on
- `checkpoints`: checkpoints and the adapters on them
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from ..chat import prepare_processor


# No policy may sample a picture, a tool response or the start of a turn: the first breaks the forward pass, the others
# are forgeries.
FORBIDDEN = (
    "<|image_pad|>",
    "<|video_pad|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<tool_response>",
    "</tool_response>",
    "<|im_start|>",
)


@dataclass(frozen=True)
class Sample:
    """One generated sequence. `finished` tells whether it ended by itself rather than at its limit."""

    ids: list[int]
    logprobs: list[float]
    finished: bool


class Engine(Protocol):
    """
    What generates for a rollout. The smallest one, which says the same whatever it is asked:

    ```python
    class Parrot:
        max_length = None  # tokens of a conversation for which there is room; `None` if for any number

        def __init__(self, processor):
            self.processor = processor

        def session(self):
            return contextlib.nullcontext()

        def generate(self, prompts, images, max_new_tokens, done=None, seeds=None):  # it draws nothing
            ids = [*self.processor.tokenizer("hello")["input_ids"], self.processor.tokenizer.eos_token_id]
            samples = [Sample(ids[:n], [0.0] * len(ids[:n]), n >= len(ids)) for n in max_new_tokens]
            for i, sample in enumerate(samples):
                if done is not None:
                    done(i, sample)
            return samples
    ```
    """

    processor: object
    max_length: int | None

    def session(self) -> AbstractContextManager[None]:
        """A context in which the engine is ready and its weights stay: what a rollout needs once is done once."""

    def generate(
        self,
        prompts: list[list[int]],
        images: list[list],
        max_new_tokens: Sequence[int],
        done: Callable[[int, Sample], bool | None] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> list[Sample]:
        """
        One sequence per prompt.

        Args:
            prompts (`list[list[int]]`): Token ids, with one placeholder per visual token.
            images (`list[list]`): The images of each prompt, in order; an empty list for none.
            max_new_tokens (`Sequence[int]`): Limit of each sequence.
            done (`Callable`, *optional*):
                Called with the number and the sample of a prompt as soon as it has ended. It returns whether a later
                call within the session goes on with the conversation, for an engine that has a use for that.
            seeds (`Sequence[int]`, *optional*):
                A seed of 63 bits per prompt, from which alone its tokens are drawn, whatever else is in the batch. An
                engine that draws nothing needs none; one that does raises a [`ValueError`] without them.
        """


def seed_each(prompts: Sequence, seeds: Sequence[int] | None, sampled: bool) -> list[int | None]:
    """The seed of each prompt, `None` if nothing is drawn. Raises a [`ValueError`] if one is missing."""
    if not sampled:
        return [None] * len(prompts)
    if len(seeds or ()) != len(prompts):
        raise ValueError(f"{len(prompts)} prompts are sampled and need a seed each, got {seeds!r}; pass `seeds`")
    return list(seeds)


def forbidden_ids(tokenizer) -> list[int]:
    """Ids of the tokens that are never sampled."""
    ids = tokenizer.convert_tokens_to_ids(list(FORBIDDEN))
    return [i for i in ids if i not in (None, tokenizer.unk_token_id)]


def engine_of(trainer):
    """The engine that generates for a TRL trainer, with the trainer's sampling settings."""
    if not trainer.args.use_vllm:
        from .transformers import TransformersEngine

        return TransformersEngine.from_trainer(trainer)
    from .vllm import VLLMEngine, VLLMServerEngine

    return (VLLMEngine if trainer.args.vllm_mode == "colocate" else VLLMServerEngine).from_trainer(trainer)


ENGINES = ("transformers", "vllm")


def load_engine(
    model: str,
    adapter: str | None = None,
    engine: str = "transformers",
    max_pixels: int = 50176,
    dtype: str = "auto",
    device: str | None = None,
    max_length: int | None = None,
    batch_size: int = 16,
    engine_args: dict | None = None,
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
        engine_args (`dict`, *optional*): More arguments of `vllm.LLM`, such as `gpu_memory_utilization`.
    """
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    from .checkpoints import merge, resolve_model
    from .transformers import TransformersEngine

    if engine not in ENGINES:
        raise ValueError(f"`engine` must be one of {ENGINES}, got {engine!r}")
    if engine_args and engine != "vllm":
        raise ValueError(f"`engine_args` are those of vLLM, got {engine_args} for {engine!r}")
    base, adapter = resolve_model(model, adapter)
    processor = prepare_processor(AutoProcessor.from_pretrained(base), max_pixels)
    if engine == "vllm":
        from .vllm import VLLMEngine, require_vllm, start_llm

        require_vllm()
        arguments = {"dtype": dtype, "max_model_len": max_length, **(engine_args or {})}
        return VLLMEngine(start_llm(merge(base, adapter) if adapter else base, **arguments), processor)
    policy = AutoModelForImageTextToText.from_pretrained(base, dtype=dtype)
    if adapter:
        from peft import PeftModel

        policy = PeftModel.from_pretrained(policy, adapter).merge_and_unload()
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return TransformersEngine(policy.to(device).eval(), processor, max_batch=batch_size)
