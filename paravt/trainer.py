"""PARA-GRPO: TRL's `GRPOTrainer` with an anchor in the advantage, frame budgets and parallel rollouts."""

import hashlib
import inspect
import math
import os
import time
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import astuple
from functools import partial
from unittest.mock import patch

import torch
from accelerate.logging import get_logger
from accelerate.utils import gather_object, is_peft_model, send_to_device
from PIL.Image import Image
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOTrainer, is_conversational, prepare_multimodal_messages

from .anchors import REASONS, Fault, first_fault, structural_credit
from .bad_rows import BadRows, keep_of_last, length_metrics, scales_of_means
from .chat import Chat, prepare_processor
from .collator import FrameBudgetCollator, decode
from .config import ParaGRPOConfig, check_generation
from .engines.features import FAMILIES, Picture, Tower, reuse_features
from .engines.transformers import TransformersEngine
from .engines.trl import keep_together, profiling_decorator, ranks_that_share_the_policy
from .engines.vllm import VLLMEngine, require_vllm
from .engines.weights import (
    forget_old_features,
    keep_gradients,
    loadable_weights,
    push_exact_weights,
    same_weights,
)
from .forest import (
    count_tokens,
    first_pictures,
    group_rows,
    obstacle,
    pack,
    read_rows,
    split_groups,
    teach_forests,
)
from .judge import JudgeReward
from .metrics import episode_stats, summarise
from .rewards import accuracy_reward, format_reward, tool_reward
from .rollout import ParallelRollout
from .seeds import kept_generators
from .settings import RolloutSettings
from .trainable import check_vision, freeze_vision, warn_of_dropout, with_targets
from .video import LazyFrame
from .video.timeline import MULTIPLE


logger = get_logger(__name__)

PROGRESS = "progress-{}.pt"  # in a checkpoint, by rank


class ParaGRPOTrainer(GRPOTrainer):
    """
    Trainer for PARA-GRPO, from [ParaVT](https://huggingface.co/papers/2605.20342).

    What differs from [`~trl.GRPOTrainer`]: a credit per token is added to the advantage, so that closing tags are
    kept (selective anchoring); and, unless given `rollout_func`, `tools` or `environment_factory`, rows become prompts
    with a drawn number of frames (frame-budget gating) and [`ParallelRollout`] plays them. Only the language model is
    trained. Rows that share a prompt are computed as one ([`forest`]). With `anchor_weight=0, think_prefix=False,
    train_vision=True, packing=False` and one frame budget a step is that of [`~trl.GRPOTrainer`].

    Arguments are those of [`~trl.GRPOTrainer`], with a [`ParaGRPOConfig`] as `args`.

    Of its private methods, which may change with each version of TRL, it overrides `_generate`, `_prepare_inputs`,
    `_calculate_rewards`, `_generate_and_score_completions`, `_get_per_token_logps_and_entropies`, `_compute_loss`,
    `_save_checkpoint` and `_load_optimizer_and_scheduler`, and it uses `_buffered_inputs`, `_dist`,
    `_entropy_bonus_enabled`, `_get_output_dir`, `_is_vlm`, `_last_loaded_step`, `_logs`, `_metrics`, `_step` and
    `_tokenizer`.
    """

    _tag_names = ["trl", "para-grpo"]
    _name = "PARA-GRPO"
    _paper = {"title": "ParaVT", "id": "2605.20342"}

    def __init__(self, model, reward_funcs=None, args: ParaGRPOConfig | None = None, **kwargs):
        if not isinstance(args, ParaGRPOConfig):
            raise TypeError(f"`args` must be a `ParaGRPOConfig`, got `{type(args).__name__}`")
        if args.use_vllm:
            require_vllm()
        if not any(kwargs.get(name) for name in ("rollout_func", "tools", "environment_factory")):
            kwargs["rollout_func"] = ParallelRollout.from_config(args)
        own = isinstance(kwargs.get("rollout_func"), ParallelRollout)
        if own:
            check_generation(args)
            kwargs["rollout_func"].check(args)
        kwargs["peft_config"] = with_targets(
            kwargs.get("peft_config"), model, args.train_vision, trust_remote_code=args.trust_remote_code
        )
        colocate = args.use_vllm and args.vllm_mode == "colocate"
        with loadable_weights() if colocate else nullcontext():
            super().__init__(model, reward_funcs, args=args, **kwargs)
        keep_gradients(self.model)
        if args.train_vision:
            check_vision(self.model)
        else:
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
        self._own = own  # whether the rollouts are ours: of others nothing is known but tokens
        # Whether a call of a tool of this name may be one: other people's rollouts have other tools than ours.
        self._is_tool = None
        if self.tools:
            self._is_tool = {tool.__name__ for tool in self.tools}.__contains__
        elif not own:
            self._is_tool = lambda name: True
        self._weigh_rewards()
        self._bad_rows = BadRows(self.accelerator)
        self._counts = None  # of the rows whose loss is computed, if some do not count
        # Of the current generation batch: rows that do not count (ranks * B,), and rollouts of this rank.
        self._left_out = torch.zeros(0, dtype=torch.bool)
        self._rollouts: list[tuple[list[int], list[int]]] = []
        self._start_forest()
        # TRL logs a picture once for each rollout that has it, or never sees it: then we do it.
        ours = self.rollout_func is not None or self._tower is not None
        self._logs_pictures = ours and self.log_multimodal and self.log_completions
        self.log_multimodal = self.log_multimodal and not ours

    def evaluation_loop(self, *args, **kwargs):
        with kept_generators():  # training goes on as if it had not been evaluated
            return super().evaluation_loop(*args, **kwargs)

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
            TransformersEngine.from_trainer(self).check()
        collator = FrameBudgetCollator(
            self.processing_class,
            args.frame_budgets,
            args.seed,
            args.max_pixels,
            tools=args.dispatch != "none",
            backend=args.video_backend,
            snap=args.snap_overview,
        )
        collator.check(self.train_dataset)
        collator.attach(self)
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
        if self._is_tool is not None:
            self.reward_funcs = [
                partial(f, **{"is_tool": self._is_tool, **_keywords_of(f)}) if kind is format_reward else f
                for f, kind in zip(self.reward_funcs, functions, strict=True)
            ]
        accuracy = [f for f, kind in zip(self.reward_funcs, functions, strict=True) if kind is accuracy_reward]
        self._accuracy = accuracy[0] if accuracy else partial(accuracy_reward, fallback=False)
        self._judges = [i for i, function in enumerate(self.reward_funcs) if isinstance(function, JudgeReward)]

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False):
        """Saves the model, and the settings of its rollouts beside it."""
        if self.settings is not None and self.args.should_save:  # first, for what is pushed to the hub is the folder
            self.settings.save(output_dir or self.args.output_dir)
        super().save_model(output_dir, _internal_call)

    # ---------------------------------------------------------------------------------------------------- progress

    def train(self, *args, **kwargs):
        """Trains, from the beginning or from a checkpoint: nothing is left of a run before."""
        self._step, self._buffered_inputs = 0, None
        self._bad_rows = BadRows(self.accelerator)
        if self.use_vllm:
            self._last_loaded_step = -1
        self._forget("train")
        return super().train(*args, **kwargs)

    def _save_checkpoint(self, model, trial):
        if not self.args.save_only_model:
            name = f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            self._save_progress(os.path.join(self._get_output_dir(trial=trial), name))
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint):
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self._load_progress(checkpoint)

    @property
    def _batching(self) -> dict[str, int]:
        """What decides which rollouts a micro-batch has."""
        names = (
            "steps_per_generation",
            "num_iterations",
            "gradient_accumulation_steps",
            "per_device_train_batch_size",
        )
        return {name: getattr(self.args, name) for name in names} | {"processes": self.accelerator.num_processes}

    def _save_progress(self, folder: str) -> None:
        """Saves what TRL does not: rollouts that are still to be trained on, and how many videos were bad."""
        progress = {
            "step": self._step,
            "batching": self._batching,
            "rows": {"seen": self._bad_rows.seen, "failed": self._bad_rows.failed},
        }
        if self._step % (self.args.steps_per_generation * self.num_iterations):
            pictures = [[astuple(picture) for picture in row] for row in self._pictures["train"]]
            progress["rollouts"] = self._buffered_inputs, pictures, [tower.state_dict() for tower in self._towers]
        os.makedirs(folder, exist_ok=True)
        torch.save(progress, os.path.join(folder, PROGRESS.format(self.accelerator.process_index)))

    def _load_progress(self, checkpoint: str) -> None:
        paths = [os.path.join(checkpoint, PROGRESS.format(rank)) for rank in (self.accelerator.process_index, 0)]
        path = next((path for path in paths if os.path.exists(path)), None)
        if path is None:  # a checkpoint of another trainer
            return
        progress = torch.load(path, map_location="cpu", weights_only=True)
        self._bad_rows.seen, self._bad_rows.failed = progress["rows"]["seen"], progress["rows"]["failed"]
        if progress["batching"] == self._batching:
            self._step = progress["step"]
        elif "rollouts" in progress:
            raise ValueError(
                f"{checkpoint} was saved between two steps on the same rollouts: go on with {progress['batching']}, "
                f"got {self._batching}; or from a checkpoint at which the rollouts were done with"
            )
        if "rollouts" in progress:
            batches, pictures, towers = progress["rollouts"]
            self._buffered_inputs = send_to_device(batches, self.accelerator.device)
            self._pictures["train"] = [[Picture(*picture) for picture in row] for row in pictures]
            for tower, state in zip(self._towers, towers, strict=True):
                tower.load_state_dict(state)

    def _generate_and_score_completions(self, inputs):
        mode = "train" if self.model.training else "eval"
        start = time.perf_counter()
        clips = decode(inputs)
        for row in inputs if self._own else ():
            if not row.get("videos"):
                row["video_error"] = "the row names no video"
        self._leave_out_bad_rows(mode, inputs)
        if clips:
            self._metrics[mode]["video/decode_seconds"].append(time.perf_counter() - start)
        reuse = reuse_features(self.processing_class) if self._own or self._tower else nullcontext()
        with reuse, self._images_aside(inputs):
            output = super()._generate_and_score_completions(inputs)
            self._number_rows(output)
        self._log_pictures(inputs)
        for clip in clips:
            clip.release()
        if self._left_out.any():
            self._leave_out_of_logs(mode)
        if self._left_out.any():
            output["counts"] = ~self._of_this_rank(self._left_out)  # (B,) whether a row has a part in the loss

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
        with self._tower.remembering(ranks_that_share_the_policy(self)) if self._tower else nullcontext():
            prompt_ids, ids, mask, completions, *rest = super()._generate(prompts)
        logprobs, extra, images, tool_images = rest
        if self._aside:
            images, tool_images = self._keep_pictures(prompts, prompt_ids, ids, extra, images, tool_images)
        if self._own:  # what reward functions and logs see: messages, not one text with the template in it
            completions = extra["turns"]
        masks = mask or [[1] * len(row) for row in ids]
        self._rollouts = list(zip(ids, masks, strict=True))
        if self._left_out.any():
            self._log_lengths("train" if self.model.training else "eval")
            out = self._of_this_rank(self._left_out).tolist()
            mask = [[0] * len(row) if left_out else row for row, left_out in zip(masks, out, strict=True)]
        return prompt_ids, ids, mask, completions, logprobs, extra, images, tool_images

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        self._bring_back(inputs)
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        rewards[self._left_out] = math.nan  # TRL's statistics are of the others
        self._rewards = rewards  # (ranks * B, reward functions)
        self._accuracies = self._accuracies_of(inputs, completions)
        return rewards

    def _compute_loss(self, model, inputs):
        self._rows = inputs["rows"].tolist() if "rows" in inputs else None
        self._counts = inputs.get("counts")
        try:
            if self._counts is None:
                return super()._compute_loss(model, inputs)
            return self._loss_without_bad_rows(model, inputs)
        finally:
            self._rows = self._counts = None

    def _loss_without_bad_rows(self, model, inputs):
        """
        TRL's loss, but each mean of an optimizer step, over its rows or its micro-batches, is one over those that
        count. Which mean the policy's term is depends on `loss_type`; the entropy bonus and the loss of a router are
        means over micro-batches.
        """
        metrics = self._metrics["train" if self.model.training else "eval"]
        before = {name: len(values) for name, values in metrics.items()}
        counts = [batch["counts"] for batch in self._micro_batches_of_step(inputs)]
        rows, batches = scales_of_means(counts, self.accelerator)
        # Loss types that divide by the number of tokens need nothing: TRL has counted none of the rows left out.
        by_tokens = self.loss_type in ("cispo", "dapo", "vespo")
        policy = 1.0 if by_tokens else batches if self.loss_type == "bnpo" else rows
        whole = batches if self._entropy_bonus_enabled or self.aux_loss_enabled else policy
        # The policy's term is linear in these two.
        inputs = {**inputs, "advantages": inputs["advantages"] * (policy / whole)}
        with patch.object(self, "beta", self.beta * policy / whole):
            loss = super()._compute_loss(model, inputs) * whole
        if by_tokens and self._entropy_bonus_enabled:
            metrics["policy_loss"][-1] *= whole
        if not self.accelerator.gather(inputs["counts"]).any():  # a mean of nothing is no part of a mean
            for name, values in metrics.items():
                del values[before.get(name, 0) :]
        return loss

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
                    self._whole(self.ref_model),
                    self.processing_class.image_processor,
                    **setting,
                    twin=self._tower,
                    same_weights=same,
                )

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
            last = rows - math.gcd(rows, group)  # the last place in a micro-batch at which a group begins
            times = math.ceil((last + group) / rows)
            logger.warning(
                f"`per_device_train_batch_size` {rows} splits the groups of {group} rollouts over micro-batches: a "
                f"prompt is computed up to {times} times in a pass instead of once. A multiple of {group} "
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
        told = extra.pop("pictures") if _are_pictures(extra.get("pictures")) else None
        shown = told or images or [_images_in(prompt) for prompt in prompts]
        shown = [row or [] for row in shown]
        pictures, token = self._tower.look(shown), self._tower.image_token
        counts = [[*a, *b].count(token) for a, b in zip(prompt_ids, completion_ids, strict=True)]
        if counts != [sum(picture.tokens for picture in row) for row in pictures]:
            return shown, tool_images
        self._shown = shown
        self._pictures[mode] = pictures
        self._rows = list(range(len(pictures)))
        return None, []

    def _number_rows(self, output: dict) -> None:
        """Numbers the rows, so that they find their pictures wherever they are shuffled to."""
        if self._rows is not None:
            output["rows"] = torch.tensor(self._rows, device=output["advantages"].device)
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
        self,
        model,
        input_ids,
        attention_mask,
        logits_to_keep,
        batch_size=None,
        compute_entropy=False,
        compute_aux_loss=False,
        **given,
    ):
        if not self._packs:
            logps, entropies, router_loss = super()._get_per_token_logps_and_entropies(
                model,
                input_ids,
                attention_mask,
                logits_to_keep,
                batch_size,
                compute_entropy,
                compute_aux_loss,
                **given,
            )
            if router_loss is not None and self._counts is not None and not self._counts.all():
                router_loss = router_loss * 0.0  # it is one of all the rows together, bad ones too
            return logps, entropies, router_loss
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

    @property
    def _towers(self) -> list[Tower]:
        return [tower for tower in (self._tower, self._ref_tower) if tower is not None]

    def _forget(self, mode: str) -> None:
        """Frees the pictures of rows that are done with."""
        self._pictures[mode] = []
        for tower in self._towers:
            tower.forget(but=(picture for rows in self._pictures.values() for row in rows for picture in row))

    # ------------------------------------------------------------------------------------------------------ bad rows

    def _leave_out_bad_rows(self, mode: str, inputs: list[dict]) -> None:
        """Decides which rows of the generation batch do not count."""
        size = self.num_generations if mode == "train" else self.num_generations_eval
        errors = [row.get("video_error") for row in inputs]
        self._left_out = self._bad_rows.left_out(errors, size, self.args.max_bad_rows)
        if any("video_error" in row for row in inputs):
            self._metrics[mode]["video/failed"].append(float(self._bad_rows.failed))
            self._metrics[mode]["video/left_out"].append(float(self._left_out.sum()))

    def _of_this_rank(self, everyones: torch.Tensor) -> torch.Tensor:
        """This rank's part of a tensor that has the rows of all ranks."""
        return everyones.chunk(self.accelerator.num_processes)[self.accelerator.process_index]

    def _micro_batches_of_step(self, inputs: dict) -> list[dict]:
        """The micro-batches of the optimizer step that this one is of."""
        if not self.model.training or self._buffered_inputs is None:
            return [inputs]
        start = self._step % self.args.steps_per_generation
        start -= start % self.args.gradient_accumulation_steps
        return self._buffered_inputs[start : start + self.args.gradient_accumulation_steps]

    def _log_lengths(self, mode: str) -> None:
        """TRL's metrics of lengths, over the rollouts that count."""
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        table = torch.tensor([[sum(mask), ids[-1] in ends] for ids, mask in self._rollouts])
        table = self.accelerator.gather(table.to(self.accelerator.device))[~self._left_out]
        for name, value in length_metrics(table[:, 0].float(), table[:, 1].bool()).items():
            self._metrics[mode][name][-1] = value

    def _leave_out_of_logs(self, mode: str) -> None:
        """Takes the rows that do not count out of TRL's table of completions, and out of what it counts as rows."""
        kept = (~self._left_out).tolist()
        logs = [self._logs[name] for name in ("prompt", "completion", "advantages")]
        for log in (*logs, *self._logs["rewards"].values(), *self._logs["extra"].values()):
            keep_of_last(log, kept)
        by_group = self.multi_objective_aggregation == "sum_then_normalize" and self.scale_rewards != "batch"
        if by_group:
            share = sum(kept) / len(kept)
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
        rows, self._shown = self._shown, None
        if not self._logs_pictures or not {"wandb", "trackio"} & set(self.args.report_to):
            return
        if rows is None:
            rows = [
                row.get("images") or [image for image in [row.get("image")] if image is not None] for row in inputs
            ]
        named = [[(_picture_name(image), image.copy()) for image in row] for row in _first_ones(rows, _picture_name)]
        named = _first_ones(gather_object(named), lambda pair: pair[0])
        kept = [row for row, out in zip(named, self._left_out.tolist(), strict=True) if not out]
        self._logs["images"].extend([image for _, image in row] for row in kept)

    def _log_rollouts(self, mode: str, inputs: list[dict], faults: list[Fault | None]) -> None:
        """The metrics of the method, over the rollouts that count of all ranks, whole and by frame budget."""
        rollouts = self._gather_rollouts(self._numbers_of_rollouts(inputs, faults))
        if not rollouts:
            return
        rates = summarise(rollouts)
        metrics = {"format/compliance": rates["compliance"]}
        for reason in REASONS:
            metrics[f"format/fault/{reason}"] = sum(rollout[reason] for rollout in rollouts) / len(rollouts)
        if self._own:
            metrics |= _call_metrics(rates)
            for budget in sorted({rollout["budget"] for rollout in rollouts} - {0.0}):
                metrics |= _by_budget(budget, [rollout for rollout in rollouts if rollout["budget"] == budget])
        for name, value in metrics.items():
            self._metrics[mode][name].append(value)

    def _numbers_of_rollouts(self, inputs: list[dict], faults: list[Fault | None]) -> list[dict[str, float]]:
        """What the metrics are made of, for each rollout of this rank."""
        rewards = self._of_this_rank(self._rewards)
        rewards = (rewards * self.reward_weights.to(rewards.device)).nansum(1).tolist()
        return [
            {
                "budget": float(row.get("frame_budget") or 0) if self._own else 0.0,
                "reward": reward,
                **{reason: float(fault is not None and fault.reason == reason) for reason in REASONS},
                **episode_stats(row["tool_calls"] if self._own else [], fault is None, accuracy),
            }
            for row, reward, accuracy, fault in zip(inputs, rewards, self._accuracies, faults, strict=True)
        ]

    def _gather_rollouts(self, rollouts: list[dict[str, float]]) -> list[dict[str, float]]:
        """The rollouts that count of all ranks."""
        names = list(rollouts[0])
        table = torch.tensor([list(rollout.values()) for rollout in rollouts], device=self.accelerator.device)
        gathered = self.accelerator.gather(table)[~self._left_out].tolist()  # (ranks * B, names)
        return [dict(zip(names, values, strict=True)) for values in gathered]

    def _accuracies_of(self, inputs: list[dict], completions: list) -> list[float | None]:
        """
        Accuracy of each rollout of this rank, as the reward functions measure it: a judge's where there is one. `None`
        for a row without a truth. What the functions are called, or whether there are any, does not matter.
        """
        names = ("answer", "question_type", "options", *(["turns"] if self._own else []))
        scores = self._accuracy(completions, **{name: [row.get(name) for row in inputs] for name in names})
        for place in self._judges:
            judged = self._of_this_rank(self._rewards)[:, place].tolist()
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


def _keywords_of(function: Callable) -> dict:
    """The arguments that a partial has already."""
    return function.keywords if isinstance(function, partial) else {}


def _first_ones(rows: list[list], name_of: Callable) -> list[list]:
    """The rows without what an earlier one has, or the row itself earlier on."""
    seen = set()
    return [[item for item in row if not (name_of(item) in seen or seen.add(name_of(item)))] for row in rows]


def _picture_name(image) -> str:
    """What tells a picture from all others, on any rank."""
    if isinstance(image, LazyFrame) and image.key is not None:
        return image.key
    return f"{image.size} {hashlib.sha1(image.convert('RGB').tobytes()).hexdigest()}"


def _are_pictures(column: list | None) -> bool:
    """Whether a column has the pictures of rows, rather than something else of that name."""
    return column is not None and all(
        row is None or isinstance(row, list) and all(isinstance(one, Image) for one in row) for row in column
    )


def _images_in(prompt: list[dict]) -> list:
    """The images in the messages of a prompt, in order."""
    return [part["image"] for message in prompt for part in message["content"] if "image" in part]


def _call_metrics(rates: dict[str, float]) -> dict[str, float]:
    """Rates of calls, and what is gained without them."""
    names = ("calls_per_rollout", "calls_per_turn", "call_rate", "failure_rate", "no_room_rate")
    metrics = {f"tools/{name}": rates[name] for name in names if name in rates}
    alone = "answered_without_tool_accuracy"
    return metrics | ({alone: rates[alone]} if alone in rates else {})


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
