"""Generation by `transformers`, in this process: for training, evaluation and questions alike."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

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
        shared_by=None,
    ):
        self._open = (lambda: nullcontext(model)) if isinstance(model, torch.nn.Module) else model
        self.processor, self.tokenizer, self.max_batch = processor, processor.tokenizer, max_batch
        self.config = generation_config or GenerationConfig(do_sample=False)
        self.shared_by, self._model, self._ends = shared_by, None, set()

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
            # From transformers 5.18 on `generate` runs the vision tower before the forward pass, in which FSDP2 would
            # gather the weights; with others this does nothing.
            register_fsdp_forward_method(model, "generate")
            try:
                yield
            finally:
                self._model = None
                vars(model).pop("generate", None)

    def generate(
        self,
        prompts: list[list[int]],
        images: list[list],
        max_new_tokens: Sequence[int],
        done: Callable[[int, Sample], None] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> list[Sample]:
        """One sequence per prompt; see [`~engines.Engine.generate`]."""
        if self._model is None:
            with self.session():
                return self.generate(prompts, images, max_new_tokens, done, seeds)
        seeds = seed_each(prompts, seeds, self.config.do_sample)
        samples: list[Sample | None] = [None] * len(prompts)
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))  # similar lengths together: less padding
        batches = [order[start : start + self.max_batch] for start in range(0, len(order), self.max_batch)]
        for rows in batches + [[]] * (self._most(len(batches)) - len(batches)):
            batch = [[column[i] for i in rows] for column in (prompts, images, max_new_tokens, seeds)]
            if self.shared_by is not None and not any(batch[1]):
                # The vision tower is sharded too: each rank must run it when one does.
                batch = [column + [item] for column, item in zip(batch, self._blank(), strict=True)]
            for i, sample in zip(rows, self._generate(self._model, *batch), strict=False):
                samples[i] = sample
                if done is not None:
                    done(i, sample)
        return samples

    def _blank(self) -> tuple[list[int], list, int, int]:
        """Prompt, images, limit and seed of a sequence that is generated for company's sake."""
        picture = Image.new("RGB", (32, 32))
        inputs = self.processor(text=[f"{self.processor.image_token}."], images=[picture])
        return inputs["input_ids"][0], [picture], 1, 0

    def _most(self, count: int) -> int:
        """The largest `count` of the ranks that share the model."""
        if self.shared_by is None:
            return count
        return int(self.shared_by.gather(torch.tensor([count], device=self.shared_by.device)).max())

    def _inputs(self, model, prompts: list[list[int]], images: list[list]) -> dict[str, torch.Tensor]:
        """What the model takes: left-padded ids (B, P), their mask, and pixels."""
        width = max(len(ids) for ids in prompts)
        pad = self.tokenizer.pad_token_id
        ids = torch.tensor([[pad] * (width - len(p)) + p for p in prompts], device=model.device)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=model.device)
        inputs = {"input_ids": ids, "attention_mask": mask}
        flat = [image for row in images for image in row]
        if flat:
            inputs |= {k: v.to(model.device) for k, v in image_features(self.processor.image_processor, flat).items()}
            inputs["mm_token_type_ids"] = (ids == self.processor.image_token_id).long()
        return inputs

    def _prefilled(self, model, prompts: list[list[int]], images: list[list], rows: list[int]) -> dict:
        """
        Inputs that go on behind the prompts. Each prompt is read once, but for its last token, and stands for all
        `rows` that bear its number: the rollouts of a group begin with the same frames.
        """
        distinct = [rows.index(number) for number in range(max(rows) + 1)]
        inputs = self._inputs(model, [prompts[i] for i in distinct], [images[i] for i in distinct])
        config = GenerationConfig(
            max_new_tokens=1, do_sample=False, return_dict_in_generate=True, pad_token_id=self.tokenizer.pad_token_id
        )
        out = model.generate(**inputs, generation_config=config, synced_gpus=self.shared_by is not None)
        cache, index = out[_CACHE], torch.tensor(rows, device=model.device)
        cache.crop(-1)  # the last token is read again: what follows it is wanted
        cache.batch_select_indices(index)
        for module in model.modules():  # Qwen's offset from place in the sequence to position, by row
            if isinstance(module.__dict__.get("rope_deltas"), torch.Tensor):
                module.rope_deltas = module.rope_deltas[index]
        return {name: inputs[name][index] for name in ("input_ids", "attention_mask")} | {_CACHE: cache}

    def _generate(self, model, prompts, images, limits, seeds) -> list[Sample]:
        config = GenerationConfig(**self.config.to_diff_dict())
        config.update(
            max_new_tokens=max(limits),
            pad_token_id=self.tokenizer.pad_token_id,
            eos_token_id=sorted(self._ends),
            suppress_tokens=sorted({*(self.config.suppress_tokens or []), *forbidden_ids(self.tokenizer)}),
            do_sample=False,  # of scores with noise the highest is a draw
            **dict.fromkeys(_WARPERS),
        )
        recorder, draw = _LogProbs(1.0), []
        if self.config.do_sample:
            recorder = _LogProbs(self.config.temperature or 1.0)
            draw = [*_warpers(self.config, model.device), _Noise(seeds, model.device)]
        keys = [(tuple(ids), *map(id, row)) for ids, row in zip(prompts, images, strict=True)]
        numbers: dict[tuple, int] = {}
        rows = [numbers.setdefault(key, len(numbers)) for key in keys]
        if self.shared_by is not None or len(numbers) < len(rows):  # ranks of a group make the same passes
            inputs = self._prefilled(model, prompts, images, rows)
        else:
            inputs = self._inputs(model, prompts, images)
        width = inputs["input_ids"].shape[1]
        out = model.generate(
            **inputs,
            generation_config=config,
            logits_processor=LogitsProcessorList([recorder, *draw]),
            stopping_criteria=StoppingCriteriaList([recorder]),
            # With ZeRO-3 it would be the default, also where weights are gathered and ranks generate on their own.
            synced_gpus=self.shared_by is not None,
        )[:, width:]
        logprobs = torch.stack(recorder.steps, dim=1).tolist()  # (B, T)
        samples = []
        for row, values, limit in zip(out.tolist(), logprobs, limits, strict=True):
            row = row[:limit]
            length = next((i + 1 for i, token in enumerate(row) if token in self._ends), len(row))
            samples.append(Sample(row[:length], values[:length], row[length - 1] in self._ends))
        return samples
