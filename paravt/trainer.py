"""PARA-GRPO: TRL's `GRPOTrainer` with an anchor in the advantage, frame budgets and parallel rollouts."""

import hashlib
import inspect
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import torch
from accelerate.utils import gather_object
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer
from trl import GRPOTrainer

from .anchors import REASONS, Fault, first_fault, structural_credit
from .chat import Chat, prepare_processor
from .collator import FrameBudgetCollator
from .config import ParaGRPOConfig
from .engines.features import reuse_features
from .engines.vllm import VLLMEngine, require_vllm
from .engines.weights import forget_old_features, keep_gradients, loadable_weights, push_exact_weights
from .judge import JudgeReward
from .metrics import episode_stats, summarise
from .rewards import accuracy_reward, format_reward, tool_reward
from .rollout import ParallelRollout
from .settings import RolloutSettings
from .trainable import freeze_vision, warn_of_dropout, with_targets
from .video import Clip, LazyFrame, VideoError, prefetch
from .video.timeline import MULTIPLE


class ParaGRPOTrainer(GRPOTrainer):
    """
    Trainer for PARA-GRPO, from [ParaVT](https://huggingface.co/papers/2605.20342).

    What differs from [`~trl.GRPOTrainer`]: a credit per token is added to the advantage, so that closing tags are
    kept (selective anchoring); and, unless given `rollout_func`, `tools` or `environment_factory`, rows become prompts
    with a drawn number of frames (frame-budget gating) and [`ParallelRollout`] plays them. Only the language model is
    trained. With `anchor_weight=0, think_prefix=False, train_vision=True` and one frame budget a step is that of
    [`~trl.GRPOTrainer`].

    Arguments are those of [`~trl.GRPOTrainer`], with a [`ParaGRPOConfig`] as `args`.

    Of its private methods, which may change with each version of TRL, it overrides `_generate`, `_calculate_rewards`,
    `_generate_and_score_completions` and `_compute_loss`, and it uses `_buffered_inputs`, `_is_vlm`, `_logs`,
    `_metrics`, `_step` and `_tokenizer`.
    """

    _tag_names = ["trl", "para-grpo"]
    _name = "PARA-GRPO"
    _paper = {"title": "ParaVT", "id": "2605.20342"}

    def __init__(self, model, reward_funcs=None, args: ParaGRPOConfig | None = None, **kwargs):
        if not isinstance(args, ParaGRPOConfig):
            raise TypeError(f"`args` must be a `ParaGRPOConfig`, got `{type(args).__name__}`")
        if args.use_vllm:
            require_vllm()
        own = not any(kwargs.get(name) for name in ("rollout_func", "tools", "environment_factory"))
        if own:
            args.check_rollouts()
            kwargs["rollout_func"] = ParallelRollout.from_config(args)
        kwargs["peft_config"] = with_targets(
            kwargs.get("peft_config"), model, args.train_vision, trust_remote_code=args.trust_remote_code
        )
        colocate = args.use_vllm and args.vllm_mode == "colocate"
        with loadable_weights() if colocate else nullcontext():
            super().__init__(model, reward_funcs, args=args, **kwargs)
        keep_gradients(self.model)
        if not args.train_vision:
            freeze_vision(self.model)
        warn_of_dropout(self.model)
        self.settings = None
        if own:
            self._prepare_rollouts()
        if args.use_vllm:
            push_exact_weights(self.vllm_generation)
            forget_old_features(self.vllm_generation)
            if own and colocate:
                images = max(*args.frame_budgets, args.crop_frames)
                tokens = max(1, args.max_pixels // MULTIPLE**2)
                VLLMEngine.from_trainer(self).check(images, tokens, args.max_completion_length)
        # Whether a call of a tool of this name may be one: other people's rollouts have other tools than ours.
        self._is_tool = None
        if self.tools:
            self._is_tool = {tool.__name__ for tool in self.tools}.__contains__
        elif not isinstance(self.rollout_func, ParallelRollout):
            self._is_tool = lambda name: True
        self._weigh_rewards()
        self._videos_seen = self._videos_failed = 0
        # Of the current generation batch: rows that do not count (ranks * B,), and rollouts of this rank.
        self._left_out = torch.zeros(0, dtype=torch.bool)
        self._rollouts: list[tuple[list[int], list[int]]] = []
        # TRL logs a picture once for each rollout that has it: for rollouts that get theirs from rows we do it.
        self._logs_pictures = self.rollout_func is not None and self.log_multimodal and self.log_completions
        if self.rollout_func is not None:
            self.log_multimodal = False

    def get_eval_dataloader(self, eval_dataset=None):
        kept = self.data_collator
        if isinstance(kept, FrameBudgetCollator):
            self.data_collator = kept.for_evaluation()
        loader = super().get_eval_dataloader(eval_dataset)
        self.data_collator = kept
        return loader

    def _prepare_rollouts(self) -> None:
        """What rollouts of our own need: a processor and a model that can serve them, and rows with frames."""
        args = self.args
        if not self._is_vlm:
            raise ValueError(
                f"videos need a processor with pictures, got {type(self.processing_class).__name__}; for rollouts of "
                "another kind pass `rollout_func`, `tools` or `environment_factory`"
            )
        prepare_processor(self.processing_class, args.max_pixels)
        Chat(self.processing_class, args.think_prefix, args.chat_template_kwargs).check()
        if not args.use_vllm:
            _require_whole_cache(self.model.config)
        self.data_collator = FrameBudgetCollator(
            self.processing_class,
            args.frame_budgets,
            args.seed,
            args.max_pixels,
            tools=args.dispatch != "none",
            backend=args.video_backend,
            snap=args.snap_overview,
        )
        self.data_collator.check(self.train_dataset)
        self.add_callback(self.data_collator)
        self.settings = RolloutSettings.from_config(args, next(iter(self.train_dataset)))

    def _weigh_rewards(self) -> None:
        """Finds the rewards of the method among the reward functions, by what they are: `format_weight` weighs one."""
        functions = [_unwrapped(function) for function in self.reward_funcs]
        weighed = (
            ("format_weight", self.args.format_weight, (format_reward,)),
            ("tool_weight", self.args.tool_weight, (tool_reward, JudgeReward.tool_reward)),
        )
        for name, weight, kinds in weighed:
            places = [i for i, function in enumerate(functions) if function in kinds]
            if weight != 1.0 and not places:
                raise ValueError(f"`{name}` {weight} weighs {kinds[0].__name__!r}, which is no reward function here")
            if self.args.reward_weights is None:
                self.reward_weights[places] = weight
        accuracy = [f for f, kind in zip(self.reward_funcs, functions, strict=True) if kind is accuracy_reward]
        self._accuracy = accuracy[0] if accuracy else partial(accuracy_reward, fallback=False)
        self._judges = [i for i, function in enumerate(self.reward_funcs) if isinstance(function, JudgeReward)]

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False):
        if self.settings is not None and self.args.should_save:  # first, for what is pushed to the hub is the folder
            self.settings.save(output_dir or self.args.output_dir)
        super().save_model(output_dir, _internal_call)

    def _generate_and_score_completions(self, inputs):
        mode = "train" if self.model.training else "eval"
        start = time.perf_counter()
        clips = self._decode(inputs)
        self._leave_out_bad_rows(mode, inputs)
        if clips:
            self._metrics[mode]["video/decode_seconds"].append(time.perf_counter() - start)
        with reuse_features(self.processing_class) if clips else nullcontext():
            output = super()._generate_and_score_completions(inputs)
        self._log_pictures(inputs)
        for clip in clips:
            clip.release()
        if self._left_out.any():
            self._leave_out_of_logs(mode)
        output["counts"] = ~self._mine(self._left_out)  # (B,) whether a row has a part in the loss

        mask = output["completion_mask"]  # (B, T)
        sampled = mask * output["tool_mask"] if "tool_mask" in output else mask
        if self.args.anchor_weight:
            credit = torch.zeros(mask.shape, device=mask.device)  # (B, T)
            for b, values in enumerate(self._credit(self._rollouts)):
                credit[b, : len(values)] = torch.tensor(values, device=mask.device)
            # The anchor: a credit per token on top of the advantage of the rollout.
            output["advantages"] = output["advantages"][:, None] + self.args.anchor_weight * credit
            output["advantages"] = output["advantages"] * sampled
        if "importance_sampling_ratio" in output and "truncate" in self.args.vllm_importance_sampling_mode:
            self._log_truncated(mode, output["importance_sampling_ratio"], sampled)
        self._log_rollouts(mode, inputs, self._faults())
        return output

    def _credit(self, rollouts: list[tuple[list[int], list[int]]]) -> list[list[float]]:
        """Credit per token of each rollout, from its token ids and mask."""
        tags, penalty = self.args.anchor_tags, self.args.anchor_penalty
        return [
            structural_credit(*rollout, self._tokenizer, tags=tags, penalty=penalty, is_tool=self._is_tool)
            for rollout in rollouts
        ]

    def _faults(self) -> list[Fault | None]:
        """Why each rollout is not parseable."""
        return [first_fault(*rollout, self._tokenizer, self._is_tool) for rollout in self._rollouts]

    def _generate(self, prompts):
        prompt_ids, ids, mask, completions, *rest = super()._generate(prompts)
        logprobs, extra, images, tool_images = rest
        if "turns" in extra:  # what reward functions and logs see: messages, not one text with the template in it
            completions = extra["turns"]
        masks = mask or [[1] * len(row) for row in ids]
        self._rollouts = list(zip(ids, masks, strict=True))
        if self._left_out.any():
            self._log_lengths("train" if self.model.training else "eval")
            out = self._mine(self._left_out).tolist()
            mask = [[0] * len(row) if left_out else row for row, left_out in zip(masks, out, strict=True)]
        return prompt_ids, ids, mask, completions, logprobs, extra, images, tool_images

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        rewards[self._left_out] = math.nan  # TRL's statistics are of the others
        self._rewards = rewards  # (ranks * B, reward functions)
        self._accuracies = self._accuracies_of(inputs, completions)
        return rewards

    def _compute_loss(self, model, inputs):
        if not self._left_out.any():
            return super()._compute_loss(model, inputs)
        metrics = self._metrics["train" if self.model.training else "eval"]
        before = {name: len(values) for name, values in metrics.items()}
        loss = super()._compute_loss(model, inputs)
        if not self.accelerator.gather(inputs["counts"]).any():  # a mean of nothing is no part of a mean
            for name, values in metrics.items():
                del values[before.get(name, 0) :]
        return loss * self._share_of_others(inputs)

    # -------------------------------------------------------------------------------------------------------- videos

    def _decode(self, inputs: list[dict]) -> list[Clip]:
        """
        Decodes the distinct clips of the generation batch, all at once, and returns them. A clip that fails spoils its
        rows only: they say so in `video_error`, and have grey frames.
        """
        clips_of = [
            {id(frame.clip): frame.clip for frame in row.get("images") or [] if isinstance(frame, LazyFrame)}
            for row in inputs
        ]
        clips = {key: clip for row_clips in clips_of for key, clip in row_clips.items()}
        prefetch(clips.values())
        errors = {}
        for key, clip in clips.items():
            try:
                clip.load()
            except VideoError as error:
                clip.fill()
                errors[key] = str(error)
        for row, row_clips in zip(inputs, clips_of, strict=True):
            broken = [errors[key] for key in row_clips if key in errors]
            if broken:
                row["video_error"] = broken[0]
        return list(clips.values())

    # ------------------------------------------------------------------------------------------------------ bad rows

    def _leave_out_bad_rows(self, mode: str, inputs: list[dict]) -> None:
        """
        Decides, on all ranks together, which rows of the generation batch do not count: whole groups with a bad video.
        They keep their places, so that batches have equal shapes. Raises once bad rows are more than `max_bad_rows`.
        """
        failed = torch.tensor([bool(row.get("video_error")) for row in inputs], device=self.accelerator.device)
        failed = self.accelerator.gather(failed)  # (ranks * B,)
        size = self.num_generations if mode == "train" else self.num_generations_eval
        self._left_out = failed.view(-1, size).any(1).repeat_interleave(size)
        self._videos_seen += len(failed)
        self._videos_failed += int(failed.sum())
        share = self._videos_failed / self._videos_seen
        if failed.any() and share > self.args.max_bad_rows and self._videos_seen >= 20:
            errors = gather_object([row["video_error"] for row in inputs if row.get("video_error")])
            raise RuntimeError(
                f"{share:.0%} of the rows so far had a video that cannot be decoded, more than `max_bad_rows` "
                f"{self.args.max_bad_rows:.0%}; the last: {errors[-1]}"
            )
        if any("video_error" in row for row in inputs):
            self._metrics[mode]["video/failed"].append(float(self._videos_failed))
            self._metrics[mode]["video/left_out"].append(float(self._left_out.sum()))

    def _mine(self, everyones: torch.Tensor) -> torch.Tensor:
        """This rank's part of a tensor that has the rows of all ranks."""
        return everyones.chunk(self.accelerator.num_processes)[self.accelerator.process_index]

    def _share_of_others(self, inputs: dict) -> float:
        """
        What makes a mean over all rows, or over all micro-batches, of an optimizer step one over those that count.
        Loss types that divide by the number of tokens need nothing: TRL has counted none of the rows left out.
        """
        if self.loss_type in ("cispo", "dapo", "vespo"):
            return 1.0
        window = [inputs]
        if self.model.training and self._buffered_inputs is not None:
            start = self._step % self.args.steps_per_generation
            start -= start % self.args.gradient_accumulation_steps
            window = self._buffered_inputs[start : start + self.args.gradient_accumulation_steps]
        counts = [batch["counts"] for batch in window]
        if self.loss_type == "bnpo":  # a mean over tokens, then over micro-batches
            counts = [count.any()[None] for count in counts]
        counted = self.accelerator.gather(torch.cat(counts)).float()
        return 1.0 / counted.mean().item() if counted.any() else 1.0

    def _log_lengths(self, mode: str) -> None:
        """TRL's metrics of lengths, over the rollouts that count."""
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        mine = [[sum(mask), ids[-1] in ends] for ids, mask in self._rollouts]
        table = self.accelerator.gather(torch.tensor(mine, device=self.accelerator.device))[~self._left_out].float()
        lengths, ended = table[:, 0], table[:, 1].bool()
        for name, values in (("", lengths), ("terminated_", lengths[ended])):
            if not len(values):
                values = torch.full((1,), math.nan if not len(lengths) else 0.0)
            for kind in ("mean", "min", "max"):
                self._metrics[mode][f"completions/{kind}_{name}length"][-1] = getattr(values, kind)().item()
        self._metrics[mode]["completions/clipped_ratio"][-1] = (~ended).float().mean().item()

    def _leave_out_of_logs(self, mode: str) -> None:
        """Takes the rows that do not count out of TRL's table of completions, and out of what it counts as rows."""
        count, kept = len(self._left_out), (~self._left_out).tolist()
        logs = [self._logs[name] for name in ("prompt", "completion", "advantages")]
        for log in (*logs, *self._logs["rewards"].values(), *self._logs["extra"].values()):
            entries = list(log)
            log.clear()
            log.extend(entries[:-count] + [entry for entry, keep in zip(entries[-count:], kept, strict=True) if keep])
        by_group = self.multi_objective_aggregation == "sum_then_normalize" and self.scale_rewards != "batch"
        if by_group:
            share = sum(kept) / count
            values = self._metrics[mode]["frac_reward_zero_std"]
            values[-1] = values[-1] / share if share else math.nan

    # ------------------------------------------------------------------------------------------------------- metrics

    def _log_truncated(self, mode: str, ratio: torch.Tensor, sampled: torch.Tensor) -> None:
        """Share of sampled tokens, or of rollouts, whose importance ratio was cut."""
        low, high = self.vllm_importance_sampling_clip_min, self.vllm_importance_sampling_clip_max
        cut = torch.zeros_like(ratio, dtype=torch.bool)
        cut |= ratio >= high if high is not None else cut
        cut |= ratio <= low if low is not None else cut
        counted = cut[sampled.bool()] if cut.shape == sampled.shape else cut.flatten()
        counts = torch.tensor([counted.sum(), counted.numel()], device=ratio.device)
        total = self.accelerator.gather(counts[None]).sum(0)
        self._metrics[mode]["sampling/truncated_share"].append((total[0] / total[1].clamp(min=1)).item())

    def _log_pictures(self, inputs: list[dict]) -> None:
        """Pictures for the table of completions, each with the first rollout that has it."""
        if not self._logs_pictures or not {"wandb", "trackio"} & set(self.args.report_to):
            return
        rows = [row.get("images") or [image for image in [row.get("image")] if image is not None] for row in inputs]
        named = [[(_picture_name(image), image.copy()) for image in row] for row in _first_ones(rows, _picture_name)]
        named = _first_ones(gather_object(named), lambda pair: pair[0])
        kept = [row for row, out in zip(named, self._left_out.tolist(), strict=True) if not out]
        self._logs["images"].extend([image for _, image in row] for row in kept)

    def _log_rollouts(self, mode: str, inputs: list[dict], faults: list[Fault | None]) -> None:
        """The metrics of the method, over the rollouts that count of all ranks, whole and by frame budget."""
        mine = self._mine(self._rewards)
        rewards = (mine * self.reward_weights.to(mine.device)).nansum(1).tolist()
        mine = [
            {
                "budget": float(row.get("frame_budget") or 0),
                "reward": reward,
                **{reason: float(fault is not None and fault.reason == reason) for reason in REASONS},
                **episode_stats(row.get("tool_calls") or [], fault is None, accuracy),
            }
            for row, reward, accuracy, fault in zip(inputs, rewards, self._accuracies, faults, strict=True)
        ]
        names = list(mine[0])
        table = torch.tensor([list(rollout.values()) for rollout in mine], device=self.accelerator.device)
        gathered = self.accelerator.gather(table)[~self._left_out].tolist()  # (ranks * B, names)
        rollouts = [dict(zip(names, values, strict=True)) for values in gathered]
        if not rollouts:
            return

        rates = summarise(rollouts)
        metrics = {"format/compliance": rates["compliance"]}
        for reason in REASONS:
            metrics[f"format/fault/{reason}"] = sum(rollout[reason] for rollout in rollouts) / len(rollouts)
        if any("tool_calls" in row for row in inputs):  # rollouts of our own, whose calls are known
            for name in ("calls_per_rollout", "calls_per_turn", "call_rate", "failure_rate", "no_room_rate"):
                if name in rates:
                    metrics[f"tools/{name}"] = rates[name]
            if "answered_without_tool_accuracy" in rates:
                metrics["answered_without_tool_accuracy"] = rates["answered_without_tool_accuracy"]
            for budget in sorted({rollout["budget"] for rollout in rollouts if rollout["budget"]}):
                metrics |= _by_budget(budget, [rollout for rollout in rollouts if rollout["budget"] == budget])
        for name, value in metrics.items():
            self._metrics[mode][name].append(value)

    def _accuracies_of(self, inputs: list[dict], completions: list) -> list[float | None]:
        """
        Accuracy of each rollout of this rank, as the reward functions measure it: a judge's where there is one. `None`
        for a row without a truth. What the functions are called, or whether there are any, does not matter.
        """
        names = ("turns", "answer", "question_type", "options")
        scores = self._accuracy(completions, **{name: [row.get(name) for row in inputs] for name in names})
        for place in self._judges:
            judged = self._mine(self._rewards)[:, place].tolist()
            told = [None if math.isnan(value) else value for value in judged]
            scores = [value if score is None else score for score, value in zip(scores, told, strict=True)]
        return scores


def _require_whole_cache(config) -> None:
    """Raises a `ValueError` for a model whose cache forgets: the rollouts of a group share that of their prompt."""
    layers = {type(layer) for layer in DynamicCache(config=config).layers} - {DynamicLayer}
    if layers:
        raise ValueError(
            f"{config.model_type} has layers with a cache that cannot be cropped "
            f"({', '.join(sorted(layer.__name__ for layer in layers))}): set `use_vllm` to true"
        )


def _unwrapped(function: Callable) -> Callable:
    """The function under a partial or a bound method."""
    while isinstance(function, partial):
        function = function.func
    return function.__func__ if inspect.ismethod(function) else function


def _first_ones(rows: list[list], name_of: Callable) -> list[list]:
    """The rows without what an earlier one has, or the row itself earlier on."""
    seen = set()
    return [[item for item in row if not (name_of(item) in seen or seen.add(name_of(item)))] for row in rows]


def _picture_name(image) -> str:
    """What tells a picture from all others, on any rank."""
    if isinstance(image, LazyFrame) and image.key is not None:
        return image.key
    return f"{image.size} {hashlib.sha1(image.convert('RGB').tobytes()).hexdigest()}"


def _by_budget(budget: float, rollouts: list[dict[str, float]]) -> dict[str, float]:
    """Reward and call rate at one number of overview frames, and what calling gains there."""
    callers = [rollout["reward"] for rollout in rollouts if rollout["callers"]]
    skippers = [rollout["reward"] for rollout in rollouts if not rollout["callers"]]
    prefix = f"budget_{budget:g}"
    metrics = {
        f"{prefix}/reward": sum(callers + skippers) / len(rollouts),
        f"{prefix}/call_rate": len(callers) / len(rollouts),
    }
    if callers and skippers:
        metrics[f"{prefix}/call_minus_skip"] = sum(callers) / len(callers) - sum(skippers) / len(skippers)
    return metrics
