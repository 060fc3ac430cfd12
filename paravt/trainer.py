"""PARA-GRPO: TRL's `GRPOTrainer` with an anchor in the advantage, frame budgets and parallel rollouts."""

import time
from contextlib import nullcontext

import torch
from trl import GRPOTrainer

from .anchors import is_parseable, structural_credit
from .collator import FrameBudgetCollator
from .config import ParaGRPOConfig
from .engines.features import reuse_features
from .engines.vllm import VLLMEngine, require_vllm
from .engines.weights import keep_gradients, loadable_weights, push_exact_weights
from .metrics import episode_stats, summarise
from .rollout import ParallelRollout
from .video import LazyFrame, VideoError, prefetch
from .video.timeline import MULTIPLE


class ParaGRPOTrainer(GRPOTrainer):
    """
    Trainer for PARA-GRPO, from [ParaVT](https://huggingface.co/papers/2605.20342).

    What differs from [`~trl.GRPOTrainer`]: a credit per token is added to the advantage, so that closing tags are
    kept (selective anchoring); and, unless given `rollout_func`, `tools` or `environment_factory`, rows become prompts
    with a drawn number of frames (frame-budget gating) and [`ParallelRollout`] plays them. With
    `anchor_weight=0, think_prefix=False` and one frame budget a step is that of [`~trl.GRPOTrainer`].

    Arguments are those of [`~trl.GRPOTrainer`], with a [`ParaGRPOConfig`] as `args`.

    Of its private methods, which may change with each version of TRL, it overrides `_generate`, `_calculate_rewards`
    and `_generate_and_score_completions`, and it uses `_metrics` and `_tokenizer`.
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
            kwargs["rollout_func"] = ParallelRollout.from_config(args)
        colocate = args.use_vllm and args.vllm_mode == "colocate"
        with loadable_weights() if colocate else nullcontext():
            super().__init__(model, reward_funcs, args=args, **kwargs)
        keep_gradients(self.model)
        if own:
            self.data_collator = FrameBudgetCollator(
                self.processing_class,
                args.frame_budgets,
                args.seed,
                args.max_pixels,
                tools=args.dispatch != "none",
                backend=args.video_backend,
                snap=args.snap_overview,
            )
            self.add_callback(self.data_collator)
        if args.use_vllm:
            push_exact_weights(self.vllm_generation)
            if own and colocate:
                images = max(*args.frame_budgets, args.crop_frames)
                tokens = max(1, args.max_pixels // MULTIPLE**2)
                VLLMEngine.from_trainer(self).check(images, tokens, args.max_completion_length)
        self._videos_seen = self._videos_failed = 0
        self._rewards = None

    def _generate_and_score_completions(self, inputs):
        mode = "train" if self.model.training else "eval"
        clips = self._decode(inputs, mode)
        with reuse_features(self.processing_class):
            output = super()._generate_and_score_completions(inputs)
        for clip in clips:
            clip.release()
        failed = torch.tensor([bool(row.get("video_error")) for row in inputs], device=output["advantages"].device)
        output["advantages"] = output["advantages"].masked_fill(failed, 0.0)

        ids, mask = output["completion_ids"], output["completion_mask"]
        sampled = mask * output["tool_mask"] if "tool_mask" in output else mask
        lengths = mask.sum(1).tolist()
        rows = [(i[:n], m[:n]) for i, m, n in zip(ids.tolist(), sampled.tolist(), lengths, strict=True)]
        if self.args.anchor_weight:
            credit = torch.zeros(ids.shape, device=ids.device)  # (B, T)
            for b, values in enumerate(self._credit(rows)):
                credit[b, : len(values)] = torch.tensor(values, device=ids.device)
            credit = credit * sampled * ~failed[:, None]
            output["advantages"] = output["advantages"][:, None] + self.args.anchor_weight * credit
            output["advantages"] = output["advantages"] * sampled
        if "importance_sampling_ratio" in output and "truncate" in self.args.vllm_importance_sampling_mode:
            self._log_truncated(mode, output["importance_sampling_ratio"], sampled)
        self._log_rollouts(mode, inputs, [is_parseable(*row, self._tokenizer) for row in rows])
        return output

    def _credit(self, rows: list[tuple[list[int], list[int]]]) -> list[list[float]]:
        """Credit per token of each rollout, from its token ids and mask."""
        tags, penalty = self.args.anchor_tags, self.args.anchor_penalty
        return [structural_credit(*row, self._tokenizer, tags=tags, penalty=penalty) for row in rows]

    def _log_truncated(self, mode, ratio: torch.Tensor, sampled: torch.Tensor) -> None:
        """Share of sampled tokens, or of rollouts, whose importance ratio was cut."""
        low, high = self.vllm_importance_sampling_clip_min, self.vllm_importance_sampling_clip_max
        cut = torch.zeros_like(ratio, dtype=torch.bool)
        cut |= ratio >= high if high is not None else cut
        cut |= ratio <= low if low is not None else cut
        counted = cut[sampled.bool()] if cut.shape == sampled.shape else cut.flatten()
        counts = torch.tensor([counted.sum(), counted.numel()], device=ratio.device)
        total = self.accelerator.gather(counts[None]).sum(0)
        self._metrics[mode]["sampling/truncated_share"].append((total[0] / total[1].clamp(min=1)).item())

    def _decode(self, inputs, mode) -> list:
        """Decodes the distinct clips of the generation batch, all at once; a clip that fails spoils its rows only."""
        start = time.perf_counter()
        frames = [frame for row in inputs for frame in row.get("images") or [] if isinstance(frame, LazyFrame)]
        clips = {id(frame.clip): frame.clip for frame in frames}
        errors = {}
        prefetch(clips.values())
        for key, clip in clips.items():
            try:
                clip.load()
            except VideoError as error:
                clip.fill()
                errors[key] = str(error)
        for row in inputs if errors else []:
            owners = [id(f.clip) for f in row.get("images") or [] if isinstance(f, LazyFrame)]
            row["video_error"] = next((errors[i] for i in owners if i in errors), row.get("video_error"))
        if clips or any(row.get("video_error") for row in inputs):
            self._videos_seen += len(inputs)
            self._videos_failed += sum(bool(row.get("video_error")) for row in inputs)
            share = self._videos_failed / self._videos_seen
            if self._videos_failed and share > self.args.max_bad_rows and self._videos_seen >= 20:
                last = next((row["video_error"] for row in inputs if row.get("video_error")), "")
                raise RuntimeError(
                    f"{share:.0%} of the rows so far had a video that cannot be decoded, more than `max_bad_rows` "
                    f"{self.args.max_bad_rows:.0%}; the last: {last}"
                )
            self._metrics[mode]["video/failed"].append(float(self._videos_failed))
            self._metrics[mode]["video/decode_seconds"].append(time.perf_counter() - start)
        return list(clips.values())

    def _generate(self, prompts):
        *head, completions, logprobs, extra, images, tool_images = super()._generate(prompts)
        if "turns" in extra:  # what reward functions and logs see: messages, not one text with the template in it
            completions = extra["turns"]
        return *head, completions, logprobs, extra, images, tool_images

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._rewards = rewards
        return rewards

    def _log_rollouts(self, mode, inputs, parseable):
        """The metrics of the method, over all ranks, whole and by frame budget."""
        count, rank = len(inputs), self.accelerator.process_index
        rewards = self._rewards[rank * count : (rank + 1) * count]
        total = (rewards * self.reward_weights.to(rewards.device)).nansum(1).tolist()
        accuracy = [None] * count
        if "accuracy_reward" in self.reward_func_names:
            column = rewards[:, self.reward_func_names.index("accuracy_reward")].tolist()
            accuracy = [None if value != value else value for value in column]
        rows = []
        for i, row in enumerate(inputs):
            stats = episode_stats(row.get("tool_calls") or [], parseable[i], accuracy[i])
            rows.append([float(row.get("frame_budget") or 0), total[i], *stats.values()])
        names = list(stats)
        device = self.accelerator.device
        gathered = self.accelerator.gather(torch.tensor(rows, device=device)).tolist()  # (ranks * B, 2 + stats)
        known = any("tool_calls" in row for row in inputs)
        logged = summarise(dict(zip(names, row[2:], strict=True)) for row in gathered)
        metrics = {"format/compliance": logged["compliance"]}
        if known:
            named = ("calls_per_rollout", "calls_per_turn", "call_rate", "failure_rate", "over_budget_rate")
            metrics |= {f"tools/{name}": logged[name] for name in named if name in logged}
            if "answered_without_tool_accuracy" in logged:
                metrics["answered_without_tool_accuracy"] = logged["answered_without_tool_accuracy"]
            for budget in sorted({row[0] for row in gathered if row[0]}):
                metrics |= self._by_budget(budget, [r for r in gathered if r[0] == budget], names.index("callers") + 2)
        for name, value in metrics.items():
            self._metrics[mode][name].append(value)

    @staticmethod
    def _by_budget(budget: float, rows: list[list[float]], callers: int) -> dict[str, float]:
        called = [row[1] for row in rows if row[callers]]
        skipped = [row[1] for row in rows if not row[callers]]
        prefix = f"budget_{budget:g}"
        found = {
            f"{prefix}/reward": sum(row[1] for row in rows) / len(rows),
            f"{prefix}/call_rate": len(called) / len(rows),
        }
        if called and skipped:
            found[f"{prefix}/call_minus_skip"] = sum(called) / len(called) - sum(skipped) / len(skipped)
        return found
