"""PARA-GRPO: TRL's `GRPOTrainer` with an anchor in the advantage, frame budgets and parallel rollouts."""

import math
import time
from contextlib import contextmanager, nullcontext

import torch
from accelerate.logging import get_logger
from accelerate.utils import gather_object, is_peft_model
from trl import GRPOTrainer
from trl.data_utils import is_conversational, prepare_multimodal_messages
from trl.extras.profiling import profiling_decorator

from .anchors import is_parseable, structural_credit
from .collator import FrameBudgetCollator
from .config import ParaGRPOConfig
from .engines.features import FAMILIES, Picture, Tower, reuse_features
from .engines.vllm import VLLMEngine, require_vllm
from .engines.weights import keep_gradients, loadable_weights, push_exact_weights, same_weights
from .forest import (
    count_tokens,
    first_pictures,
    group_rows,
    keep_together,
    obstacle,
    pack,
    read_rows,
    split_groups,
    teach_forests,
)
from .metrics import episode_stats, summarise
from .rollout import ParallelRollout
from .video import Clip, LazyFrame, VideoError, prefetch
from .video.timeline import MULTIPLE


logger = get_logger(__name__)


class ParaGRPOTrainer(GRPOTrainer):
    """
    Trainer for PARA-GRPO, from [ParaVT](https://huggingface.co/papers/2605.20342).

    What differs from [`~trl.GRPOTrainer`]: a credit per token is added to the advantage, so that closing tags are
    kept (selective anchoring); and, unless given `rollout_func`, `tools` or `environment_factory`, rows become prompts
    with a drawn number of frames (frame-budget gating) and [`ParallelRollout`] plays them. With
    `anchor_weight=0, think_prefix=False` and one frame budget a step is that of [`~trl.GRPOTrainer`].

    Arguments are those of [`~trl.GRPOTrainer`], with a [`ParaGRPOConfig`] as `args`.
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
        self._start_forest()

    def _generate_and_score_completions(self, inputs):
        mode = "train" if self.model.training else "eval"
        start = time.perf_counter()
        clips = self._decode(inputs)
        if clips or any(row.get("video_error") for row in inputs):
            self._check_bad_rows(mode, inputs)
            self._metrics[mode]["video/decode_seconds"].append(time.perf_counter() - start)
        reuse = reuse_features(self.processing_class) if self._is_vlm else nullcontext()
        with reuse, self._images_aside(inputs):
            output = super()._generate_and_score_completions(inputs)
            self._log_images(len(inputs))
            self._number_rows(output)
        for clip in clips:
            clip.release()
        failed = torch.tensor([bool(row.get("video_error")) for row in inputs], device=output["advantages"].device)
        output["advantages"] = output["advantages"].masked_fill(failed, 0.0)  # (B,)

        ids, mask = output["completion_ids"], output["completion_mask"]  # (B, T)
        sampled = mask * output["tool_mask"] if "tool_mask" in output else mask
        lengths = mask.sum(1).tolist()
        rollouts = [(i[:n], m[:n]) for i, m, n in zip(ids.tolist(), sampled.tolist(), lengths, strict=True)]
        if self.args.anchor_weight:
            credit = torch.zeros(ids.shape, device=ids.device)  # (B, T)
            for b, values in enumerate(self._credit(rollouts)):
                credit[b, : len(values)] = torch.tensor(values, device=ids.device)
            credit = credit * sampled * ~failed[:, None]
            # The anchor: a credit per token on top of the advantage of the rollout.
            output["advantages"] = output["advantages"][:, None] + self.args.anchor_weight * credit
            output["advantages"] = output["advantages"] * sampled
        if "importance_sampling_ratio" in output and "truncate" in self.args.vllm_importance_sampling_mode:
            self._log_truncated(mode, output["importance_sampling_ratio"], sampled)
        self._log_rollouts(mode, inputs, [is_parseable(*rollout, self._tokenizer) for rollout in rollouts])
        return output

    def _credit(self, rollouts: list[tuple[list[int], list[int]]]) -> list[list[float]]:
        """Credit per token of each rollout, from its token ids and mask."""
        tags, penalty = self.args.anchor_tags, self.args.anchor_penalty
        return [structural_credit(*rollout, self._tokenizer, tags=tags, penalty=penalty) for rollout in rollouts]

    def _generate(self, prompts):
        with self._tower.remembering() if self._tower else nullcontext():
            *head, completions, logprobs, extra, images, tool_images = super()._generate(prompts)
        if self._aside:
            images, tool_images = self._keep_pictures(prompts, *head[:2], extra, images, tool_images)
        if "turns" in extra:  # what reward functions and logs see: messages, not one text with the template in it
            completions = extra["turns"]
        return *head, completions, logprobs, extra, images, tool_images

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        self._bring_back(inputs)
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._rewards = rewards  # (ranks * B, reward functions)
        return rewards

    # ---------------------------------------------------------------------------------------------------- the forest

    def _start_forest(self) -> None:
        """Finds out whether rows can be packed, says so if not, and makes the model ready for it."""
        self._tower = self._ref_tower = self._rows = self._shown = None
        self._aside: list[tuple] = []
        self._pictures: dict[str, list[list[Picture]]] = {"train": [], "eval": []}
        policy = self._whole(self.model)
        reason = "`packing` is off" if not self.args.packing else self._obstacle(policy)
        self._packs = reason is None
        if not self._packs:
            if self.args.packing:
                logger.warning(f"{type(policy).__name__} is trained without packing: {reason}.")
            return
        self._say_what_splits_cost()
        teach_forests(policy)
        if self.ref_model is not None:
            teach_forests(self._whole(self.ref_model))
        if self._is_vlm:
            group = self.accelerator if self._dist.is_fsdp or self._dist.is_zero3 else None
            setting = {"group": group, "autocast": self.accelerator.autocast}
            self._tower = Tower(policy, self.processing_class.image_processor, **setting)
            if self.ref_model is not None:
                same = same_weights(policy.base_model.visual, self._whole(self.ref_model).base_model.visual)
                self._ref_tower = Tower(
                    self._whole(self.ref_model), self.processing_class.image_processor, **setting, twin=self._tower,
                    same_weights=same,
                )  # fmt: skip

    def _whole(self, model):
        """A model without wrappers and adapters."""
        model = self.accelerator.unwrap_model(model)
        return model.get_base_model() if is_peft_model(model) else model

    def _obstacle(self, policy) -> str | None:
        if self._is_vlm and policy.config.model_type not in FAMILIES:
            return f"pictures are followed in {', '.join(FAMILIES)} only, not in {policy.config.model_type}"
        if self.aux_loss_enabled:
            return "it has an auxiliary loss for its experts, which counts padded rows"
        if is_peft_model(self.model) and self.model.active_peft_config.is_prompt_learning:
            return "its adapter puts tokens before the prompt"
        return obstacle(policy)

    def _say_what_splits_cost(self) -> None:
        rows, group = self.args.per_device_train_batch_size, self.num_generations
        if rows % group:
            times = group / math.gcd(rows, group)
            logger.warning(
                f"`per_device_train_batch_size` {rows} splits the groups of {group} rollouts over micro-batches: a "
                f"prompt is computed up to {math.ceil(times)} times in a pass instead of once. A multiple of {group} "
                "shares it."
            )

    @contextmanager
    def _images_aside(self, inputs: list[dict]):
        """
        Within it TRL sees no images, of which it would keep the pixels once for each rollout: they stand in the
        prompts, where rollouts find them.
        """
        column = next((name for name in ("images", "image") if name in inputs[0]), None)
        shown = column and any(row.get(column) for row in inputs) and is_conversational(inputs[0])
        if self._tower and shown and self.environment_factories is None:
            for row in inputs:
                self._aside.append((row["prompt"], column, row.pop(column)))
                images = self._aside[-1][2]
                images = images if column == "images" else [images] if images is not None else []
                row["prompt"] = prepare_multimodal_messages(row["prompt"], images=images)
        try:
            yield
        finally:
            self._bring_back(inputs)

    def _bring_back(self, inputs: list[dict]) -> None:
        """Gives the rows back what they had: reward functions take their columns."""
        for row, (prompt, column, images) in zip(inputs, self._aside, strict=False):
            row.update({"prompt": prompt, column: images})
        self._aside = []

    def _keep_pictures(self, prompts, prompt_ids, completion_ids, extra, images, tool_images):
        """
        Keeps the pictures of each row, in the order of their tokens, for the passes to come. A rollout function tells
        of pictures in completions by the column `pictures`: those of the whole row. Where tokens and pictures do not
        match, TRL gets the images after all.
        """
        mode = "train" if self.model.training else "eval"
        shown = extra.pop("pictures", None) or images or [_images_in(prompt) for prompt in prompts]
        shown = [row or [] for row in shown]
        pictures, token = self._tower.look(shown), self._tower.image_token
        counts = [[*a, *b].count(token) for a, b in zip(prompt_ids, completion_ids, strict=True)]
        if counts != [sum(picture.tokens for picture in row) for row in pictures]:
            return shown, tool_images
        self._shown = shown
        self._pictures[mode] = pictures
        self._rows = list(range(len(pictures)))
        return None, []

    def _log_images(self, count: int) -> None:
        """As TRL would, but on every rank, whether it has images or not: it is a collective."""
        if self._tower and self.log_multimodal:
            shown = gather_object(self._shown or [[]] * count)
            self._logs["images"].extend(shown if any(shown) else [])
        self._shown = None

    def _number_rows(self, output: dict) -> None:
        """Numbers the rows, so that they find their pictures wherever they are shuffled to."""
        if self._rows is not None:
            output["rows"] = torch.tensor(self._rows, device=output["advantages"].device)
        self._rows = None

    def _compute_loss(self, model, inputs):
        self._rows = inputs["rows"].tolist() if "rows" in inputs else None
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self._rows = None

    def _prepare_inputs(self, generation_batch):
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        if not self._packs or self._buffered_inputs is before:
            return inputs
        # TRL shuffles rows; here it is groups that are shuffled, so that a group comes into one micro-batch.
        names = [name for batch in self._buffered_inputs for name in self._prompt_names(batch)]
        self._buffered_inputs = keep_together(self._buffered_inputs, names)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _prompt_names(self, batch: dict) -> list[tuple]:
        """What is equal for rows that share a prompt."""
        ids = [tuple(row) for row in batch["prompt_ids"].tolist()]
        if "rows" not in batch:
            return ids
        pictures = [self._pictures["train"][row] for row in batch["rows"].tolist()]
        token = self._tower.image_token
        return [
            (row, *(p.key for p in first_pictures(seen, row.count(token))))
            for row, seen in zip(ids, pictures, strict=True)
        ]

    def _pictures_of(self, count: int, given: dict) -> list[list[Picture]]:
        """The pictures of the rows of a pass: kept ones, or those of which TRL has the pixels."""
        if self._rows is not None:
            mode = "train" if self.model.training else "eval"
            return [self._pictures[mode][row] for row in self._rows]
        if given.get("pixel_values") is None:
            return [[]] * count
        pictures = iter(self._tower.look_at(given["pixel_values"], given["image_grid_thw"]))
        return [[next(pictures) for _ in range(number)] for number in given["num_images"]]

    @profiling_decorator
    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, compute_entropy=False,
        compute_aux_loss=False, **given,
    ):  # fmt: skip
        if not self._packs:
            return super()._get_per_token_logps_and_entropies(
                model,
                input_ids,
                attention_mask,
                logits_to_keep,
                batch_size,
                compute_entropy,
                compute_aux_loss,
                **given,
            )
        tower = self._ref_tower if model is self.ref_model else self._tower
        pictures = self._pictures_of(len(input_ids), given)
        image_token = tower.image_token if tower else None
        rows = read_rows(input_ids, attention_mask, logits_to_keep, pictures, image_token)
        groups = group_rows(rows, image_token)
        logps = torch.zeros(len(rows), logits_to_keep, device=input_ids.device)  # (B, C)
        entropies = torch.zeros_like(logps) if compute_entropy else None
        rope = tower.rope if any(pictures) else None
        with tower.one_pass() if tower else nullcontext():
            for chunk in self._chunks(rows, groups, batch_size and batch_size * input_ids.shape[1]):
                forest = pack(rows, chunk, rope).to(input_ids.device)
                showing = tower.showing(forest.pictures) if tower else nullcontext({})
                with showing as asked, self.accelerator.autocast():
                    outputs = model(**forest.inputs(), **asked, fused_lm_head=True)
                logps = forest.lay_back(outputs.log_probs, logps)
                if compute_entropy:
                    entropies = forest.lay_back(outputs.entropy, entropies)
        return logps, entropies, None

    def _chunks(self, rows, groups: list[list[int]], limit: int | None) -> list[list[list[int]]]:
        """
        Groups in chunks of as many tokens as TRL would pass at a time, and as many chunks on every rank: a pass
        through a sharded model is one of all ranks.
        """
        if not limit:
            return [groups]
        sizes = [count_tokens(rows, group) for group in groups]
        chunks = [[groups[number] for number in chunk] for chunk in split_groups(sizes, limit)]
        counts = self.accelerator.gather(torch.tensor([len(chunks)], device=self.accelerator.device))
        return chunks + [chunks[-1][:1]] * (int(counts.max()) - len(chunks))

    def training_step(self, model, inputs, num_items_in_batch):
        loss = super().training_step(model, inputs, num_items_in_batch)
        if self._step % (self.args.steps_per_generation * self.num_iterations) == 0:
            self._forget("train")
        return loss

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        output = super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        self._forget("eval")
        return output

    def _forget(self, mode: str) -> None:
        """Frees the pictures of rows that are done with."""
        self._pictures[mode] = []
        for tower in (self._tower, self._ref_tower):
            if tower is not None:
                tower.forget(but=(picture for rows in self._pictures.values() for row in rows for picture in row))

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

    def _check_bad_rows(self, mode: str, inputs: list[dict]) -> None:
        """Counts rows with a bad video, and raises once they are more than `max_bad_rows`."""
        errors = [row["video_error"] for row in inputs if row.get("video_error")]
        self._videos_seen += len(inputs)
        self._videos_failed += len(errors)
        share = self._videos_failed / self._videos_seen
        if self._videos_failed and share > self.args.max_bad_rows and self._videos_seen >= 20:
            raise RuntimeError(
                f"{share:.0%} of the rows so far had a video that cannot be decoded, more than `max_bad_rows` "
                f"{self.args.max_bad_rows:.0%}; the last: {errors[0] if errors else ''}"
            )
        self._metrics[mode]["video/failed"].append(float(self._videos_failed))

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

    def _log_rollouts(self, mode: str, inputs: list[dict], parseable: list[bool]) -> None:
        """The metrics of the method, over all ranks, whole and by frame budget."""
        rewards, accuracies = self._scores(len(inputs))
        mine = [
            {
                "budget": float(row.get("frame_budget") or 0),
                "reward": reward,
                **episode_stats(row.get("tool_calls") or [], keeps_format, accuracy),
            }
            for row, reward, accuracy, keeps_format in zip(inputs, rewards, accuracies, parseable, strict=True)
        ]
        names = list(mine[0])
        table = torch.tensor([list(rollout.values()) for rollout in mine], device=self.accelerator.device)
        gathered = self.accelerator.gather(table).tolist()  # (ranks * B, names)
        rollouts = [dict(zip(names, values, strict=True)) for values in gathered]

        rates = summarise(rollouts)
        metrics = {"format/compliance": rates["compliance"]}
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

    def _scores(self, count: int) -> tuple[list[float], list[float | None]]:
        """Weighted reward and accuracy of each rollout of this rank; an accuracy is `None` where there is none."""
        rank = self.accelerator.process_index
        mine = self._rewards[rank * count : (rank + 1) * count]
        total = (mine * self.reward_weights.to(mine.device)).nansum(1).tolist()
        if "accuracy_reward" not in self.reward_func_names:
            return total, [None] * count
        column = mine[:, self.reward_func_names.index("accuracy_reward")].tolist()
        return total, [None if math.isnan(value) else value for value in column]


def _images_in(prompt: list[dict]) -> list:
    return [part["image"] for message in prompt for part in message["content"] if "image" in part]


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
