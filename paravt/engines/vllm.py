"""Generation by vLLM: in this process, in the training process, or on a server."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext

import psutil
import torch

from ..seeds import kept_generators
from . import Sample, forbidden_ids, seed_each
from .trl import awake, client_of, is_vllm_available, longest_conversation, place_features, sampling_of


# A sampled token with this bias has no probability left; its share goes to the legal ones.
_NEVER = -100.0
_LONGEST = {"longest_edge": 4096 * 4096}  # frames are sized already: only the lower bound would change them


def require_vllm() -> None:
    """Raises an `ImportError` that says how to install vLLM, before a model is loaded."""
    if not is_vllm_available():
        raise ImportError("generation by vLLM was asked for, and it is not installed: pip install -e '.[vllm]'")


def start_llm(model: str, **arguments):
    """A `vllm.LLM`. If there is too little memory for it, the [`RuntimeError`] says which setting to lower."""
    from vllm import LLM

    try:
        return LLM(model, **arguments)
    except Exception as error:
        # An engine in a process of its own says why it died in its log only.
        signs = ("memory", "KV cache", "Engine core initialization failed")
        if not any(sign in str(error) for sign in signs):
            raise
        raise RuntimeError(_memory_advice(error, arguments)) from error


def _memory_advice(error: Exception, arguments: dict) -> str:
    from vllm import EngineArgs

    share = arguments.get("gpu_memory_utilization", EngineArgs.gpu_memory_utilization)
    if torch.cuda.is_available():
        devices = range(min(arguments.get("tensor_parallel_size", 1), torch.cuda.device_count()))
        free, total = min(torch.cuda.mem_get_info(device) for device in devices)
    else:
        memory = psutil.virtual_memory()
        free, total = memory.available, memory.total
    flag = json.dumps({"gpu_memory_utilization": math.floor(90 * free / total) / 100})
    return (
        f"vLLM did not start: {error}\n"
        f"It takes `gpu_memory_utilization` {share} of {total / 2**30:.1f} GiB, of which {free / 2**30:.1f} are free. "
        f"If these are too few, lower it: `--engine_args '{flag}'`. "
        "If a conversation needs more than is left for it, lower `max_model_len` (`--max_length`). If memory runs out "
        "while it starts, lower `max_num_batched_tokens` or `max_num_seqs`."
    )


def _one_placeholder(ids: list[int], image_token: int) -> list[int]:
    """Ids with one placeholder per image: vLLM expands them itself."""
    return [token for i, token in enumerate(ids) if token != image_token or not i or ids[i - 1] != image_token]


class VLLMEngine:
    """
    Generation by a `vllm.LLM`: one of its own for evaluation, or the one that TRL keeps in the training process.

    Args:
        llm (`vllm.LLM`):
            The engine. For log-probabilities that a loss can use, make it with `logprobs_mode="processed_logprobs"`.
        processor ([`~transformers.ProcessorMixin`]):
            The model's processor.
        sampling (`dict`, *optional*):
            Arguments of `vllm.SamplingParams`; greedy decoding if not given.
        generation (`trl.generation.vllm_generation.VLLMGeneration`, *optional*):
            What manages `llm` in a training process.
    """

    def __init__(self, llm, processor, sampling: dict | None = None, generation=None):
        self.llm, self.processor, self.tokenizer, self.generation = llm, processor, processor.tokenizer, generation
        self._configure(sampling or {})
        self.max_length = llm.llm_engine.model_config.max_model_len

    def _configure(self, sampling: dict) -> None:
        self.sampling = {"temperature": 0.0, **sampling}
        never = dict.fromkeys(forbidden_ids(self.tokenizer), _NEVER)
        self.sampling["logit_bias"] = {**(sampling.get("logit_bias") or {}), **never}

    @classmethod
    def from_trainer(cls, trainer) -> "VLLMEngine":
        """The engine of a TRL trainer in `colocate` mode, with the trainer's sampling settings."""
        generation = trainer.vllm_generation
        return cls(generation.llm, trainer.processing_class, sampling_of(generation), generation)

    def greedy(self) -> "VLLMEngine":
        """From now on the likeliest token is taken."""
        self._configure({})
        return self

    def check(self, images: int, image_tokens: int, completion_tokens: int) -> None:
        """Raises [`ValueError`] if prompts of so many images cannot be served, naming the setting to change."""
        limit = self.llm.llm_engine.model_config.get_multimodal_config().get_limit_per_prompt("image")
        if images > limit:
            raise ValueError(
                f"a prompt may have {images} images, but the engine takes {limit}: lower `frame_budgets` and "
                "`crop_frames`, or raise the engine's `limit_mm_per_prompt`"
            )
        needed = images * image_tokens + completion_tokens
        if needed > self.max_length:
            raise ValueError(
                f"{images} frames of {image_tokens} tokens and a completion of {completion_tokens} need {needed} "
                f"tokens, but the engine takes {self.max_length}: raise `vllm_max_model_length`, or lower "
                "`frame_budgets`, `max_pixels` or `max_completion_length`"
            )

    @contextmanager
    def session(self) -> Iterator[None]:
        """Within it the engine is awake, with the weights of this step: they are pushed once, not once per round."""
        with nullcontext() if self.generation is None else awake(self.generation):
            yield

    def generate(
        self,
        prompts: list[list[int]],
        images: list[list],
        max_new_tokens: Sequence[int],
        done: Callable[[int, Sample], bool | None] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> list[Sample]:
        """One sequence per prompt; see [`~engines.Engine.generate`]."""
        seeds = seed_each(prompts, seeds, self.sampling["temperature"] > 0)
        tensor_parallel = self.generation is not None and self.generation.tensor_parallel_size > 1
        if not tensor_parallel:
            return self._generate(prompts, images, max_new_tokens, seeds, done or (lambda i, sample: None))
        # These ranks run one engine together: all of them need all prompts, and must draw the same tokens.
        mine = (prompts, [[image.copy() for image in row] for row in images], list(max_new_tokens), seeds)
        parts = [None] * self.generation.tensor_parallel_size
        torch.distributed.all_gather_object(parts, mine, group=self.generation.tp_group)
        start = sum(len(part[0]) for part in parts[: torch.distributed.get_rank(self.generation.tp_group)])

        def tell(i: int, sample: Sample) -> None:
            if done is not None and start <= i < start + len(prompts):
                done(i - start, sample)

        merged = [[item for part in parts for item in part[column]] for column in range(4)]
        return self._generate(*merged, tell)[start : start + len(prompts)]

    def _generate(self, prompts, images, limits, seeds, done) -> list[Sample]:
        if not prompts:
            return []
        from vllm import SamplingParams

        image_token, size = self.processor.image_token_id, dict(self.processor.image_processor.size)
        requests, params = [], []
        for ids, row, limit, seed in zip(prompts, images, limits, seeds, strict=True):
            request = {"prompt_token_ids": _one_placeholder(ids, image_token)}
            if row:
                request["multi_modal_data"] = {"image": row}
                # A lazy frame names itself, so that the engine need not hash its pixels.
                request["multi_modal_uuids"] = {"image": [getattr(i, "key", None) for i in row]}
                # The engine has its own processor, which knows nothing of `prepare_processor`.
                request["mm_processor_kwargs"] = {"size": {k: v for k, v in size.items() if v is not None}}
            requests.append(request)
            params.append(SamplingParams(**self.sampling, seed=seed, max_tokens=limit, logprobs=0))
        names = self.llm.enqueue(requests, params, use_tqdm=False)
        numbers = {name.partition("-")[0]: i for i, name in enumerate(names)}  # outputs bear the number alone
        samples: list[Sample | None] = [None] * len(requests)
        try:
            with kept_generators():  # vLLM draws noise for all rows, and then again for those that have a seed
                self._run(prompts, numbers, samples, done)
        except BaseException:
            self.llm.llm_engine.abort_request(names, internal=True)
            raise
        return samples

    def _run(self, prompts, numbers, samples, done) -> None:
        while self.llm.llm_engine.has_unfinished_requests():
            for output in self.llm.llm_engine.step():
                if not output.finished:
                    continue
                i, completion = numbers[output.request_id], output.outputs[0]
                if list(output.prompt_token_ids) != prompts[i]:
                    tail = self.tokenizer.decode(prompts[i][-40:])
                    raise RuntimeError(
                        f"prompt {i} has {len(output.prompt_token_ids)} tokens in the engine and {len(prompts[i])} in "
                        f"training, or other ones; it ends in {tail!r}"
                    )
                ids = list(completion.token_ids)
                values = [step[token].logprob for token, step in zip(ids, completion.logprobs, strict=True)]
                samples[i] = Sample(ids, values, completion.finish_reason == "stop")
                done(i, samples[i])


class VLLMServerEngine:
    """
    Generation by a vLLM server, with a client for each rank: ranks ask for what they need, when they need it, and no
    rank waits for another between rounds.

    Args:
        client (`trl.generation.vllm_client.VLLMClient`):
            A client of this process.
        processor ([`~transformers.ProcessorMixin`]):
            The model's processor.
        sampling (`dict`, *optional*):
            Sampling parameters of the server's API; greedy decoding if not given.
        ready (`Callable`, *optional*):
            Called before a rollout, for instance to wait until the weights have arrived.
        concurrency (`int`, *optional*, defaults to `64`):
            Most requests in flight from this process.
    """

    def __init__(self, client, processor, sampling: dict | None = None, ready: Callable | None = None, concurrency=64):
        self.client, self.processor, self.tokenizer = client, processor, processor.tokenizer
        self.ready, self.concurrency = ready, concurrency
        self._configure(sampling or {})
        self.max_length = longest_conversation(client)

    def _configure(self, sampling: dict) -> None:
        sampling = {"temperature": 0.0, **sampling}
        bias = {str(i): _NEVER for i in forbidden_ids(self.tokenizer)}
        named = ("repetition_penalty", "temperature", "top_p", "top_k", "min_p")
        self.sampling = {name: sampling.pop(name) for name in named if name in sampling}
        bias = {**(sampling.pop("logit_bias", None) or {}), **bias}
        self.sampling["generation_kwargs"] = {**sampling, "logit_bias": bias}

    @classmethod
    def from_trainer(cls, trainer) -> "VLLMServerEngine":
        """The server of a TRL trainer, with the trainer's sampling settings."""
        sampling = sampling_of(trainer.vllm_generation)
        return cls(client_of(trainer), trainer.processing_class, sampling, trainer.accelerator.wait_for_everyone)

    def greedy(self) -> "VLLMServerEngine":
        """From now on the likeliest token is taken."""
        self._configure({})
        return self

    @contextmanager
    def session(self) -> Iterator[None]:
        """Begins when the server has the weights of this step."""
        if self.ready is not None:
            self.ready()
        yield

    def generate(
        self,
        prompts: list[list[int]],
        images: list[list],
        max_new_tokens: Sequence[int],
        done: Callable[[int, Sample], bool | None] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> list[Sample]:
        """One sequence per prompt; see [`~engines.Engine.generate`]."""
        if not prompts:
            return []
        seeds = seed_each(prompts, seeds, self.sampling["temperature"] > 0)
        distinct = {tuple(map(id, row)): row for row in images if row}
        found = self.client.image_features([[i.copy() for i in row] for row in distinct.values()]) if distinct else []
        features = dict(zip(distinct, found, strict=True))
        eos = self.tokenizer.eos_token_id

        def ask(i: int) -> Sample:
            theirs = features.get(tuple(map(id, images[i])))
            placed = place_features(theirs, prompts[i], self.processor.image_token_id)
            if placed is not None:
                tokens = [sum(p["length"] for p in made["mm_placeholders"]["image"]) for made in (placed, theirs)]
                if tokens[0] != tokens[1]:
                    size = {"shortest_edge": self.processor.image_processor.size["shortest_edge"]}
                    raise RuntimeError(
                        f"the images of prompt {i} take {tokens[0]} tokens in training and {tokens[1]} on the server: "
                        f"start it with --mm-processor-kwargs '{json.dumps({'size': size | _LONGEST})}'"
                    )
            settings = self.sampling | {"max_tokens": max_new_tokens[i], "logprobs": 0}
            settings["generation_kwargs"] = settings["generation_kwargs"] | {"seed": seeds[i]}
            out = self.client.generate([prompts[i]], None if placed is None else [placed], **settings)
            ids = out["completion_ids"][0]
            finished = len(ids) < max_new_tokens[i] or ids[-1] == eos
            return Sample(ids, [step[0] for step in out["logprobs"][0]], finished)

        with ThreadPoolExecutor(min(self.concurrency, len(prompts))) as pool:
            futures = [pool.submit(ask, i) for i in range(len(prompts))]
            samples = []
            for i, future in enumerate(futures):
                samples.append(future.result())
                if done is not None:
                    done(i, samples[i])
        return samples
