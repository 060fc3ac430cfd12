"""Generation by `transformers`, in this process: for training, evaluation and questions alike."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import transformers
from packaging.version import Version
from PIL import Image
from torch.distributed.fsdp import register_fsdp_forward_method
from transformers import (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    MinPLogitsWarper,
    StoppingCriteria,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
    TopHLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from . import Sample, forbidden_ids, seed_each
from .features import image_features
from .prefixes import Prefix, PrefixCache, Segment, can_be_cut, fill, growing_cache
from .trl import open_policy, ranks_that_share_the_policy


# What `generate` calls the keys and values of tokens that were read before.
_CACHE = "cache" if Version(transformers.__version__) >= Version("5.24") else "past_key_values"


class _LogProbs(LogitsProcessor, StoppingCriteria):
    """Log-probabilities of the sampled tokens, one step at a time: (B, V) scores are never kept for all steps."""

    def __init__(self, temperature: float):
        self.temperature, self.steps = temperature, []

    def __call__(self, input_ids, scores):
        if isinstance(scores, torch.Tensor):  # before the token is drawn
            self.pending = torch.log_softmax(scores.float() / self.temperature, dim=-1)
            return scores
        self.steps.append(self.pending.gather(1, input_ids[:, -1:]).squeeze(1))  # after it
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


# The settings of sampling, in the order of `transformers`: what each does, and its value that does nothing.
_WARPERS = {
    "temperature": (TemperatureLogitsWarper, 1.0),
    "top_h": (TopHLogitsWarper, None),
    "top_k": (TopKLogitsWarper, 0),
    "top_p": (TopPLogitsWarper, 1.0),
    "min_p": (MinPLogitsWarper, 0.0),
    "typical_p": (TypicalLogitsWarper, 1.0),
    "epsilon_cutoff": (EpsilonLogitsWarper, 0.0),
    "eta_cutoff": (EtaLogitsWarper, 0.0),
}


def _warpers(config: GenerationConfig, device: torch.device) -> list[LogitsProcessor]:
    """What the settings make of a distribution before a token is drawn from it."""
    given = {name: getattr(config, name) for name in _WARPERS}
    found = []
    for name, (warper, neutral) in _WARPERS.items():
        if given[name] not in (None, neutral):
            found.append(warper(given[name], **({"device": device} if warper is EtaLogitsWarper else {})))
    return found


class _Noise(LogitsProcessor):
    """
    Gumbel noise from a generator of each row: the token with the highest score is then a draw from the distribution.

    Unlike a uniform number looked up in the cumulated distribution, it keeps the draw where rounding, which depends on
    who shares the batch, moves the scores: a token changes only if it was within rounding of the first.
    """

    def __init__(self, seeds: Sequence[int], device: torch.device):
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids, scores):
        # In float32 an exponential is 0 once in 2 ** 24, which would make its token the first whatever its score.
        noise = torch.empty(scores.shape, dtype=torch.float64, device=scores.device)  # (B, V)
        for row, generator in zip(noise, self.generators, strict=True):
            row.exponential_(generator=generator)
        return scores - noise.log_()


@contextmanager
def _own_settings(model: torch.nn.Module) -> Iterator[set[int]]:
    """
    Within it nothing of a checkpoint's generation settings (a repetition penalty, forbidden n-grams) is added to what
    `generate` is told, except for what it yields: the ids of the tokens that end a turn.
    """
    holders = [module for module in model.modules() if "generation_config" in vars(module)]
    kept = [module.generation_config for module in holders]
    for module in holders:
        module.generation_config = GenerationConfig()
    try:
        yield set().union(*(_ids(config.eos_token_id) for config in kept if config is not None))
    finally:
        for module, config in zip(holders, kept, strict=True):
            module.generation_config = config


def _ids(ids: int | list[int] | None) -> set[int]:
    return set() if ids is None else {ids} if isinstance(ids, int) else set(ids)


CACHE_LIMIT = 4 * 2**30  # bytes; of a model like Qwen3-VL-8B about 29,000 tokens


@dataclass(frozen=True)
class _Row:
    """One sequence of a batch. Equal prompts bear one `number`."""

    number: int
    prompt: list[int]
    images: list
    limit: int  # of new tokens
    seed: int | None


class TransformersEngine:
    """
    Generation by `transformers`, for training, evaluation and questions alike.

    Args:
        model ([`~transformers.PreTrainedModel`] or `Callable`):
            The model, or a function that returns a context in which it may generate.
        processor ([`~transformers.ProcessorMixin`]):
            Its processor.
        generation_config ([`~transformers.GenerationConfig`], *optional*):
            How tokens are drawn; greedy decoding if not given. What it leaves open is off: nothing comes from the
            checkpoint's own settings but the tokens that end a turn.
        max_batch (`int`, *optional*, defaults to `64`):
            Most sequences generated at a time.
        cache_limit (`int`, *optional*, defaults to 4 GiB):
            Most bytes of keys and values of conversations that are kept from one turn to the next, within a session.
            What is above it is read again.
        shared_by ([`~accelerate.Accelerator`], *optional*):
            The ranks that share one sharded model: every forward pass is theirs together, so each takes part in the
            batches of all, with a blank picture of its own where it has none.
    """

    max_length = None

    def __init__(
        self,
        model: torch.nn.Module | Callable[[], AbstractContextManager],
        processor,
        generation_config: GenerationConfig | None = None,
        max_batch: int = 64,
        cache_limit: int = CACHE_LIMIT,
        shared_by=None,
    ):
        self._open = (lambda: nullcontext(model)) if isinstance(model, torch.nn.Module) else model
        self.processor, self.tokenizer, self.max_batch = processor, processor.tokenizer, max_batch
        self.config = generation_config or GenerationConfig(do_sample=False)
        self.cache_limit, self.shared_by = cache_limit, shared_by
        self._model, self._ends, self._shares, self._kept = None, set(), False, None

    @classmethod
    def from_trainer(cls, trainer) -> "TransformersEngine":
        """The policy of a TRL trainer, with the trainer's sampling settings."""
        return cls(
            partial(open_policy, trainer),
            trainer.processing_class,
            trainer.generation_config,
            max_batch=trainer.args.per_device_train_batch_size * trainer.args.steps_per_generation,
            shared_by=ranks_that_share_the_policy(trainer),
        )

    def check(self) -> None:
        """Raises a `ValueError` for settings of sampling that cannot be."""
        _warpers(self.config, torch.device("cpu"))

    def greedy(self) -> "TransformersEngine":
        """From now on the likeliest token is taken."""
        self.config = GenerationConfig(do_sample=False)
        return self

    @contextmanager
    def session(self) -> Iterator[None]:
        """Within it the model is ready to generate: sharded weights are gathered once, not once per round."""
        with self._open() as model, _own_settings(model) as ends, torch.no_grad():
            self._model = model
            self._ends = ends | _ids(self.config.eos_token_id) | {self.tokenizer.eos_token_id}
            self._shares = self.config.cache_implementation is None and can_be_cut(model)
            self._kept = PrefixCache(self.cache_limit)
            # From transformers 5.18 on `generate` runs the vision tower before the forward pass, in which FSDP2 would
            # gather the weights; with others this does nothing.
            register_fsdp_forward_method(model, "generate")
            try:
                yield
            finally:
                self._model = self._kept = None
                vars(model).pop("generate", None)

    def generate(
        self,
        prompts: list[list[int]],
        images: list[list],
        max_new_tokens: Sequence[int],
        done: Callable[[int, Sample], bool | None] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> list[Sample]:
        """One sequence per prompt; see [`~engines.Engine.generate`]."""
        if self._model is None:
            with self.session():
                return self.generate(prompts, images, max_new_tokens, done, seeds)
        seeds = seed_each(prompts, seeds, self.config.do_sample)
        numbers = _numbers(prompts, images)
        rows = list(map(_Row, numbers, prompts, images, max_new_tokens, seeds))
        keeps = done is not None and self._shares and self.cache_limit > 0
        found = self._kept.take(prompts, images, self.processor.image_token_id) if keeps else []
        prefixes = {number: prefix for number, prefix in zip(numbers, found, strict=False) if prefix is not None}
        samples: list[Sample | None] = [None] * len(rows)
        # Similar lengths together: less padding. Equal prompts together: they are read once.
        order = sorted(range(len(rows)), key=lambda i: (len(prompts[i]), numbers[i]))
        for batch in range(self._most(-(-len(rows) // self.max_batch))):
            start, stop = batch * self.max_batch, (batch + 1) * self.max_batch
            here, later = order[start:stop], {numbers[i] for i in order[stop:]}
            made, prefix_of = self._generate(self._model, [rows[i] for i in here], prefixes, later, keeps)
            for place, (i, sample) in enumerate(zip(here, made, strict=False)):
                samples[i] = sample
                if done is not None and done(i, sample) and keeps:
                    self._kept.keep(prefix_of(place), prefixes.values())
            del prefix_of  # and with it the cache of the whole batch
            prefixes = {number: prefix for number, prefix in prefixes.items() if number in later}
        return samples

    def _blank(self) -> _Row:
        """A sequence that is generated for company's sake."""
        picture = Image.new("RGB", (32, 32))
        inputs = self.processor(text=[f"{self.processor.image_token}."], images=[picture])
        return _Row(-1, inputs["input_ids"][0], [picture], 1, 0)

    def _most(self, count: int) -> int:
        """The largest `count` of the ranks that share the model."""
        if self.shared_by is None:
            return count
        return int(self.shared_by.gather(torch.tensor([count], device=self.shared_by.device)).max())

    def _padded(self, rows: Sequence[_Row], width: int) -> list[list[int]]:
        return [[self.tokenizer.pad_token_id] * (width - len(row.prompt)) + row.prompt for row in rows]

    def _inputs(self, model, rows: Sequence[_Row]) -> dict[str, torch.Tensor]:
        """What the model takes: left-padded ids (B, P), their mask, and pixels."""
        width = max(len(row.prompt) for row in rows)
        ids = torch.tensor(self._padded(rows, width), device=model.device)
        mask = [[0] * (width - len(row.prompt)) + [1] * len(row.prompt) for row in rows]
        inputs = {"input_ids": ids, "attention_mask": torch.tensor(mask, device=model.device)}
        flat = [image for row in rows for image in row.images]
        if flat:
            inputs |= {k: v.to(model.device) for k, v in image_features(self.processor.image_processor, flat).items()}
            inputs["mm_token_type_ids"] = (ids == self.processor.image_token_id).long()
        return inputs

    def _inputs_behind(self, model, rows: Sequence[_Row], prefixes: Sequence[Prefix]) -> dict:
        """The same where of each row a prefix has been read: in the mask there is padding before each of its parts."""
        cache = growing_cache(model)
        fill(cache, prefixes)
        read = [len(prefix) for prefix in prefixes]
        rest = [len(row.prompt) - length for row, length in zip(rows, read, strict=True)]
        mask = [
            [0] * (max(read) - old) + [1] * old + [0] * (max(rest) - new) + [1] * new
            for old, new in zip(read, rest, strict=True)
        ]
        for module in _with_offsets(model):
            module.rope_deltas = torch.tensor([[prefix.offset] for prefix in prefixes], device=model.device)
        return {
            # Only the columns behind the cache are read, and there each row ends as it does without one.
            "input_ids": torch.tensor(self._padded(rows, max(read) + max(rest)), device=model.device),
            "attention_mask": torch.tensor(mask, device=model.device),
            _CACHE: cache,
        }

    def _read(self, model, rows: Sequence[_Row]) -> dict[int, Prefix]:
        """Prefixes of the prompts, which lack their last tokens: what follows those is wanted."""
        config = GenerationConfig(
            max_new_tokens=1, do_sample=False, return_dict_in_generate=True, pad_token_id=self.tokenizer.pad_token_id
        )
        inputs = self._inputs(model, rows)
        out = model.generate(**inputs, generation_config=config, synced_gpus=self.shared_by is not None)
        width, offsets = inputs["input_ids"].shape[1], _offsets(model, len(rows))
        return {
            row.number: Prefix(np.array([], int), row.images, offset).then(
                row.prompt[:-1], Segment.of_row(out[_CACHE], place).part(width - len(row.prompt), width - 1)
            )
            for place, (row, offset) in enumerate(zip(rows, offsets, strict=True))
        }

    def _begin(self, model, rows: list[_Row], prefixes: dict[int, Prefix], later: set[int], keeps: bool) -> dict:
        """
        Inputs of rows that begin with the `prefixes` of their numbers. Each other prompt is read once for all rows
        that bear its number, and its prefix joins those if it is wanted again: by `later` rows, or as it is kept.
        """
        unread = {row.number: row for row in rows if row.number not in prefixes}
        alone = len(unread) == len(rows) and not later & unread.keys()
        if not self._shares:
            return self._inputs(model, rows)
        if alone and self.shared_by is None:  # ranks that share a model make the same passes
            return self._inputs(model, rows) | {_CACHE: growing_cache(model)}
        read = self._read(model, list(unread.values())) if unread else {}
        prefixes |= {number: prefix.copied() for number, prefix in read.items() if keeps or number in later}
        read |= prefixes
        return self._inputs_behind(model, rows, [read[row.number] for row in rows])

    def _generate(
        self, model, rows: list[_Row], prefixes: dict[int, Prefix], later: set[int], keeps: bool
    ) -> tuple[list[Sample], Callable[[int], Prefix]]:
        """A sample of each row, and what has been read of the conversation of a row."""
        if self.shared_by is not None and not any(row.images for row in rows if row.number not in prefixes):
            rows = [*rows, self._blank()]  # the vision tower is sharded too: each rank must run it when one does
        config = GenerationConfig(**self.config.to_diff_dict())
        config.update(
            max_new_tokens=max(row.limit for row in rows),
            pad_token_id=self.tokenizer.pad_token_id,
            eos_token_id=sorted(self._ends),
            suppress_tokens=sorted({*(self.config.suppress_tokens or []), *forbidden_ids(self.tokenizer)}),
            return_dict_in_generate=True,
            do_sample=False,  # of scores with noise the highest is a draw
            **dict.fromkeys(_WARPERS),
        )
        recorder, draw = _LogProbs(1.0), []
        if self.config.do_sample:
            recorder = _LogProbs(self.config.temperature or 1.0)
            draw = [*_warpers(self.config, model.device), _Noise([row.seed for row in rows], model.device)]
        inputs = self._begin(model, rows, prefixes, later, keeps)
        width = inputs["input_ids"].shape[1]
        out = model.generate(
            **inputs,
            generation_config=config,
            logits_processor=LogitsProcessorList([recorder, *draw]),
            stopping_criteria=StoppingCriteriaList([recorder]),
            # With ZeRO-3 it would be the default, also where weights are gathered and ranks generate on their own.
            synced_gpus=self.shared_by is not None,
        )
        logprobs = torch.stack(recorder.steps, dim=1).tolist()  # (B, T)
        samples = []
        for ids, values, row in zip(out.sequences[:, width:].tolist(), logprobs, rows, strict=True):
            ids = ids[: row.limit]
            length = next((i + 1 for i, token in enumerate(ids) if token in self._ends), len(ids))
            samples.append(Sample(ids[:length], values[:length], ids[length - 1] in self._ends))
        offsets, steps = _offsets(model, len(rows)), len(recorder.steps)

        def prefix_of(place: int) -> Prefix:
            row = rows[place]
            before = prefixes.get(row.number, Prefix(np.array([], int), row.images, offsets[place]))
            said = samples[place].ids[: steps - 1]  # what is sampled last is not read
            start = width - len(row.prompt) + len(before)
            segment = Segment.of_row(out[_CACHE], place).part(start, width + len(said)).copied()
            return before.then([*row.prompt[len(before) :], *said], segment)

        return samples, prefix_of


def _numbers(prompts: Sequence[list[int]], images: Sequence[list]) -> list[int]:
    """A number for each prompt, the same for those with equal ids and the same images."""
    found: dict[tuple, int] = {}
    return [
        found.setdefault((tuple(ids), *map(id, row)), len(found)) for ids, row in zip(prompts, images, strict=True)
    ]


def _with_offsets(model) -> list[torch.nn.Module]:
    """The modules that keep Qwen's offset from a token's place in the sequence to its position, by row."""
    return [module for module in model.modules() if "rope_deltas" in vars(module)]


def _offsets(model, count: int) -> list[int]:
    """The offset of each row of the batch that was read last."""
    return next((module.rope_deltas.flatten().tolist() for module in _with_offsets(model)), [0] * count)
