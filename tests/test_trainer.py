import copy
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import others
import pytest
import torch
from conftest import two_ranks
from datasets import Dataset
from peft import LoraConfig, PeftModel
from transformers import AutoProcessor, Qwen3ForCausalLM, Qwen3VLForConditionalGeneration
from trl import GRPOConfig, GRPOTrainer

from paravt import CropVideo, FrameBudgetCollator, ParaGRPOConfig, ParaGRPOTrainer, ParallelRollout
from paravt.anchors import REASONS, structural_credit
from paravt.engines import load_engine
from paravt.evaluation import measure_trainer
from paravt.parser import ToolCall, render_tool_call
from paravt.rewards import accuracy_reward, format_reward, tool_reward


LOOP = {"max_turns": 1, "max_turn_length": 24, "max_report_length": 8, "max_pixels": 1024}


def config(folder, kind=ParaGRPOConfig, **kwargs):
    defaults = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 4,
        "num_generations": 4,
        "max_completion_length": 64,
        "max_steps": 1,
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "logging_steps": 1,
        "learning_rate": 1e-2,
        "optim": "sgd",
        "max_grad_norm": 0.0,
        "beta": 0.0,
        "disable_tqdm": True,
        "save_strategy": "no",
    }
    if kind is ParaGRPOConfig:
        defaults |= LOOP
    return kind(**{**defaults, **kwargs})


def spread(completions, completion_ids, **columns):
    """A reward that differs within a group, so that gradients are not zero."""
    return [float(sum(ids) % 7) for ids in completion_ids]


@pytest.fixture
def processor(toy_checkpoint):
    from paravt.chat import prepare_processor

    return prepare_processor(AutoProcessor.from_pretrained(toy_checkpoint), 1024)


class Replay:
    """Rollouts of the library, recorded once and handed out again."""

    def __init__(self, **kwargs):
        self.rollout, self.output = ParallelRollout(**LOOP, **kwargs), None

    def __call__(self, prompts, trainer):
        self.output = self.output or self.rollout(prompts, trainer)
        return copy.deepcopy(self.output)


def stepped(kind, args, checkpoint, processor, rows, rollout):
    trainer = kind(
        checkpoint,
        spread,
        args,
        train_dataset=Dataset.from_list(rows),
        processing_class=processor,
        rollout_func=rollout,
    )
    trainer.data_collator = FrameBudgetCollator(processor, [4], max_pixels=1024)
    trainer.train()
    losses = [(entry["loss"], entry["grad_norm"]) for entry in trainer.state.log_history if "loss" in entry]
    return losses, {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


class TestStep:
    def test_with_the_knobs_off_a_step_is_that_of_the_stock_trainer(
        self, tmp_path, toy_checkpoint, processor, toy_rows
    ):
        replay = Replay(think_prefix=False)
        stepped(GRPOTrainer, config(tmp_path, GRPOConfig), toy_checkpoint, processor, toy_rows, replay)  # records
        stock = stepped(GRPOTrainer, config(tmp_path, GRPOConfig), toy_checkpoint, processor, toy_rows, replay)
        off = {
            "anchor_weight": 0.0,
            "frame_budgets": [4],
            "think_prefix": False,
            "train_vision": True,
            "packing": False,
        }
        ours = stepped(ParaGRPOTrainer, config(tmp_path, **off), toy_checkpoint, processor, toy_rows, replay)
        assert stock[0] == ours[0] and stock[0][0][1] > 0
        before = dict(Qwen3VLForConditionalGeneration.from_pretrained(toy_checkpoint).named_parameters())
        assert all(torch.equal(stock[1][name], ours[1][name]) for name in stock[1])
        assert any(not torch.equal(stock[1][name], before[name]) for name in stock[1])

    @pytest.mark.parametrize("loss_type", ["dapo", "grpo", "dr_grpo"])
    def test_gradient_is_the_closed_form(self, tmp_path, toy_checkpoint, processor, toy_rows, monkeypatch, loss_type):
        """-(A + weight * credit) / normaliser at sampled tokens, 0 elsewhere; credit at tags and breaks only."""
        tokenizer = processor.tokenizer

        def rollout(prompts, trainer):
            texts = [
                "a</think><answer>b</answer><|im_end|>",
                "a <answer>b</answer><|im_end|>",
                "a b c<|im_end|>",
                "</think>a<|im_end|>",
            ]
            prefix = tokenizer("<think>\n")["input_ids"]
            ids = [prefix + tokenizer(t)["input_ids"] for t in texts]
            masks = [[0] * len(prefix) + [1] * (len(i) - len(prefix)) for i in ids]
            prompt_ids = [tokenizer("question")["input_ids"]] * 4
            return {"prompt_ids": prompt_ids, "completion_ids": ids, "logprobs": None, "env_mask": masks}

        stock = config(tmp_path, anchor_weight=0.0, loss_type=loss_type)
        args = config(tmp_path, anchor_weight=0.5, anchor_penalty=0.3, loss_type=loss_type)
        rows = [{"prompt": [{"role": "user", "content": "question"}]}] * 4
        trainer = ParaGRPOTrainer(
            toy_checkpoint,
            spread,
            args,
            train_dataset=Dataset.from_list(rows),
            processing_class=processor,
            rollout_func=rollout,
        )
        trainer.current_gradient_accumulation_steps = 1
        trainer.args, kept = stock, trainer.args
        plain = trainer._generate_and_score_completions([dict(r) for r in rows])["advantages"]
        trainer.args = kept
        batch = trainer._generate_and_score_completions([dict(r) for r in rows])
        leaf = torch.zeros(batch["completion_ids"].shape, requires_grad=True)
        monkeypatch.setattr(
            trainer, "_get_per_token_logps_and_entropies", lambda *a, **k: (leaf, torch.zeros_like(leaf), None)
        )
        trainer._compute_loss(trainer.model, batch).backward()

        mask = batch["completion_mask"] * batch["tool_mask"]
        expected = torch.zeros_like(leaf)
        kinds = set()
        for b, ids in enumerate(batch["completion_ids"].tolist()):
            n = int(batch["completion_mask"][b].sum())
            credit = structural_credit(ids[:n], mask[b, :n].tolist(), tokenizer, tags=args.anchor_tags, penalty=0.3)
            kinds |= {round(c, 2) for c in credit}
            normaliser = {"dapo": mask.sum(), "grpo": 4 * mask[b].sum(), "dr_grpo": 4 * 64}[loss_type]
            for t in range(n):
                expected[b, t] = -mask[b, t] * (plain[b] + 0.5 * credit[t]) / normaliser
        assert {0.4, 0.3, -0.3, 0.0} <= kinds and plain.abs().sum() > 0
        torch.testing.assert_close(leaf.grad, expected)
        assert (leaf.grad[mask == 0] == 0).all()

    def test_anchors_on_rollouts_of_the_stock_tool_loop(
        self, tmp_path, toy_checkpoint, processor, toy_rows, monkeypatch
    ):
        """TRL's own environment loop with `CropVideo` as the environment: images come back in tool responses."""
        tokenizer = processor.tokenizer
        call = render_tool_call(ToolCall("crop_video", {"video_path": "clip.mp4", "start_time": 0.0, "end_time": 3.0}))
        said = [f"<think>a</think>\n{call}<|im_end|>", "<think>b</think>\n<answer>red</answer><|im_end|>"]
        turns = iter(said)

        def scripted(self, prompt_ids, images, fields, num_generations, has_tool_images=False):
            return [tokenizer(text)["input_ids"] for text in [next(turns)] * len(prompt_ids)], None

        monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", scripted)
        rows = [{"prompt": [{"role": "user", "content": "Which colour?"}], "videos": r["videos"]} for r in toy_rows]
        args = config(tmp_path, max_completion_length=512, loss_type="grpo")
        trainer = ParaGRPOTrainer(
            toy_checkpoint,
            spread,
            args,
            train_dataset=Dataset.from_list(rows),
            processing_class=processor,
            environment_factory=CropVideo,
        )
        batch = trainer._generate_and_score_completions([dict(rows[0]) for _ in range(4)])
        assert batch["advantages"].shape == batch["completion_ids"].shape and batch["num_images"] == [3] * 4
        credit = batch["advantages"][0] / 0.5  # equal rewards: the advantage is the anchor alone
        pieces = {}
        for token, value in zip(batch["completion_ids"][0].tolist(), credit.tolist(), strict=True):
            pieces[round(value, 3)] = pieces.get(round(value, 3), "") + tokenizer.decode([token])
        assert pieces[0.4] == "</think>" * 2 and pieces[0.3] == "</tool_call></answer>"
        assert trainer._metrics["eval"]["format/compliance"] == [1.0]

    def test_only_the_adapter_changes_and_loads_in_peft(self, tmp_path, toy_checkpoint, processor, toy_rows):
        args = config(tmp_path, max_steps=2, optim="adamw_torch")
        trainer = ParaGRPOTrainer(
            toy_checkpoint,
            [accuracy_reward, format_reward, tool_reward, spread],
            args,
            train_dataset=Dataset.from_list(toy_rows),
            processing_class=processor,
            peft_config=LoraConfig(r=4),
        )
        before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
        trainer.train()
        moved = {name for name, p in trainer.model.named_parameters() if not torch.equal(p, before[name])}
        adapters = {n for n in before if "lora_" in n}
        assert adapters == moved and all(".language_model." in name for name in adapters) and len(adapters) == 28
        trainer.save_model(str(tmp_path / "adapter"))
        assert not (tmp_path / "adapter" / "model.safetensors").exists()
        base = Qwen3VLForConditionalGeneration.from_pretrained(toy_checkpoint)
        loaded = PeftModel.from_pretrained(base, str(tmp_path / "adapter"))
        saved = {k.replace(".default", ""): v for k, v in trainer.model.named_parameters() if "lora_" in k}
        assert all(
            torch.equal(v, saved[k.replace(".default", "")]) for k, v in loaded.named_parameters() if "lora_" in k
        )

    def test_full_fine_tuning_leaves_the_vision_tower_out_unless_asked(
        self, tmp_path, toy_checkpoint, processor, toy_rows
    ):
        before = dict(Qwen3VLForConditionalGeneration.from_pretrained(toy_checkpoint).named_parameters())
        for train_vision in (False, True):
            replay = Replay()
            args = config(tmp_path, train_vision=train_vision, frame_budgets=[4])
            _, after = stepped(ParaGRPOTrainer, args, toy_checkpoint, processor, toy_rows, replay)
            moved = {name for name in before if not torch.equal(before[name], after[name])}
            assert any("language_model" in name for name in moved)
            assert any("visual" in name for name in moved) == train_vision

    def test_metrics_and_logged_completions(self, tmp_path, toy_checkpoint, processor, toy_rows):
        import pandas as pd

        args = config(tmp_path, log_completions=True, frame_budgets=[4, 8], num_completions_to_print=1)
        trainer = ParaGRPOTrainer(
            toy_checkpoint,
            [accuracy_reward, format_reward, tool_reward],
            args,
            train_dataset=Dataset.from_list(toy_rows),
            processing_class=processor,
        )
        trainer.train()
        logs = trainer.state.log_history[0]
        assert {
            "format/compliance",
            "tools/calls_per_rollout",
            "tools/call_rate",
            "rewards/format_reward/mean",
        } <= set(logs)
        assert any(f"budget_{k}/reward" in logs for k in (4, 8))
        faults = [logs[f"format/fault/{reason}"] for reason in REASONS]
        assert sum(faults) == pytest.approx(1 - logs["format/compliance"]) and sum(faults) > 0
        (file,) = (tmp_path / "completions").iterdir()
        table = pd.read_parquet(file)
        first = table["completion"][0][0]
        assert first["role"] == "assistant" and first["content"].startswith("<think>\n") and "<|im_" not in str(first)

    def test_each_picture_is_logged_once(self, tmp_path, toy_checkpoint, processor, toy_rows, monkeypatch):
        """For W&B: 4 frames of each of 2 prompts, not of each of 8 rollouts; with the first rollout of a group."""
        made, tables = [], []
        fake = SimpleNamespace(
            run=object(), Image=lambda picture: made.append(picture) or picture.size,
            Table=lambda dataframe: tables.append((dataframe, list(made))), log=lambda values: None,
        )  # fmt: skip
        monkeypatch.setattr("trl.trainer.grpo_trainer.wandb", fake, raising=False)
        args = config(
            tmp_path, log_completions=True, frame_budgets=[4], num_completions_to_print=1,
            per_device_train_batch_size=8,
        )  # fmt: skip
        trainer = ParaGRPOTrainer(
            toy_checkpoint, spread, args, train_dataset=Dataset.from_list(toy_rows), processing_class=processor
        )
        trainer.args.report_to = ["wandb"]
        trainer.train()
        table, made = tables[0]  # TRL logs once more at the end
        assert len(made) == 8 and [len(pictures) for pictures in table["image"]] == [4, 0, 0, 0, 4, 0, 0, 0]
        assert len({picture.tobytes() for picture in made}) == 8 and len(table["prompt"]) == 8

    def test_frames_decode_once_per_video_and_budget_whatever_the_micro_steps(
        self, tmp_path, toy_checkpoint, processor, toy_rows, monkeypatch
    ):
        from paravt.video import decode, jobs, timeline

        decoded = []
        schedule = timeline.schedule

        def counted(function, *args):
            if function is decode.decode:
                decoded.append((args[0], tuple(args[2])))
            return schedule(function, *args)

        monkeypatch.setattr(timeline, "schedule", counted)
        jobs._recent.clear()
        args = config(tmp_path, gradient_accumulation_steps=4, frame_budgets=[4, 8], max_steps=1)
        rows = Dataset.from_list(toy_rows[:4])
        trainer = ParaGRPOTrainer(toy_checkpoint, spread, args, train_dataset=rows, processing_class=processor)
        trainer.train()  # 16 rollouts of 4 rows, in 4 micro-steps
        overviews = {d for d in decoded if len(d[1]) in (4, 8)}
        assert len(decoded) == len(set(decoded)) and len(overviews) == 4

    def test_a_video_gone_bad_spoils_its_own_group_only(self, tmp_path, toy_checkpoint, processor, toy_rows, clips):
        damaged = {**toy_rows[0], "videos": [str(clips / "damaged.mp4")], "key": "damaged"}
        missing = {**toy_rows[0], "videos": ["/nowhere.mp4"], "key": "missing"}  # a row without any picture
        args = config(tmp_path, per_device_train_batch_size=12, frame_budgets=[8], max_bad_rows=1.0, beta=0.1)
        trainer = ParaGRPOTrainer(
            toy_checkpoint, spread, args, train_dataset=Dataset.from_list(toy_rows), processing_class=processor
        )
        trainer.model.train()
        rows = [damaged] * 4 + [toy_rows[1]] * 4 + [missing] * 4
        batch = trainer._generate_and_score_completions(trainer.data_collator(rows))
        bad, good = [0, 1, 2, 3, 8, 9, 10, 11], slice(4, 8)
        assert (batch["advantages"][bad] == 0).all() and (batch["advantages"][good] != 0).any()
        assert (batch["tool_mask"][bad] * batch["completion_mask"][bad]).sum() == 0
        assert batch["num_items_in_batch"] == (batch["tool_mask"] * batch["completion_mask"])[good].sum() > 0
        assert trainer._metrics["train"]["video/left_out"] == [8.0] and len(trainer._logs["prompt"]) == 4
        # A micro-batch of nothing but rows without pictures.
        trainer._step, trainer.current_gradient_accumulation_steps = 0, 1
        inputs = trainer._prepare_inputs(trainer.data_collator([missing] * 12))
        assert trainer._compute_loss(trainer.model, inputs) == 0
        trainer.args.max_bad_rows = 0.05
        with pytest.raises(RuntimeError, match="more than `max_bad_rows` 5%; the last: .*nowhere"):
            trainer._generate_and_score_completions(trainer.data_collator(rows))


def fixed_rollouts(prompts, trainer):
    """Rollouts of a text model that depend on the prompt and the place in its group alone."""
    tokenizer = trainer.processing_class
    said = ["a</think><answer>b</answer>", "so it is</think>", "b <answer>c</answer>", "</think><answer>"]
    first = trainer.accelerator.process_index * len(prompts)
    places = [(first + i) % trainer.num_generations for i in range(len(prompts))]
    completions = [
        said[place] + prompt[-1]["content"] * (1 + place % 3) + "<|im_end|>"
        for place, prompt in zip(places, prompts, strict=True)
    ]
    return {
        "prompt_ids": [tokenizer(prompt[-1]["content"])["input_ids"] for prompt in prompts],
        "completion_ids": [tokenizer(text)["input_ids"] for text in completions],
        "logprobs": None,
    }


def rows_with_errors(good, bad=(), text="is it red?"):
    """Rows of a text model, some of which say that their video is bad."""
    rows = [{"prompt": [{"role": "user", "content": f"{text} {i}"}], "video_error": None} for i in good]
    return rows + [{"prompt": [{"role": "user", "content": f"{text} {i}"}], "video_error": "gone"} for i in bad]


def telling(completions, completion_ids, video_error, **columns):
    """A reward that would show wherever a bad row had a part in it."""
    return [1000.0 * (e is not None) + sum(ids) % 7 for ids, e in zip(completion_ids, video_error, strict=True)]


class TestBadRows:
    def train(self, folder, checkpoint, rows, eval_dataset=None, **kwargs):
        args = config(folder, max_bad_rows=1.0, shuffle_dataset=False, learning_rate=0.1, **kwargs)
        trainer = ParaGRPOTrainer(
            checkpoint,
            telling,
            args,
            train_dataset=Dataset.from_list(rows),
            eval_dataset=eval_dataset,
            rollout_func=fixed_rollouts,
        )
        trainer.train()
        logs = {}
        for entry in trainer.state.log_history:
            logs |= entry
        return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}, logs

    @pytest.mark.parametrize(
        "knobs",
        [
            *({"loss_type": kind, "beta": 0.1} for kind in ("dapo", "grpo", "bnpo", "dr_grpo", "cispo", "sapo")),
            *({"loss_type": kind} for kind in ("luspo", "vespo")),
            {"loss_type": "grpo", "beta": 0.1, "scale_rewards": "batch"},
            {"loss_type": "grpo", "multi_objective_aggregation": "normalize_then_sum"},
        ],
    )
    def test_a_step_is_that_of_the_other_rows(self, tmp_path, text_checkpoint, knobs, monkeypatch):
        """Weights and logs; a micro-batch of bad rows alone and one of good rows, against the good rows alone."""
        monkeypatch.setattr("trl.trainer.grpo_trainer.shuffle_sequence_dict", lambda batch: batch)
        mixed, logs = self.train(
            tmp_path, text_checkpoint, rows_with_errors([0], [1]), gradient_accumulation_steps=2, **knobs
        )
        alone, expected = self.train(tmp_path, text_checkpoint, rows_with_errors([0]), **knobs)
        start = dict(Qwen3ForCausalLM.from_pretrained(text_checkpoint).named_parameters())
        assert any(not torch.equal(start[name], alone[name]) for name in start)
        for name, weight in alone.items():
            torch.testing.assert_close(mixed[name], weight, atol=1e-6, rtol=1e-5)
        own = {"num_tokens", "step_time", "train_runtime", "epoch", "total_flos", "train_steps_per_second"}
        own |= {"video/failed", "video/left_out", "train_samples_per_second"}
        for name in set(expected) - own:
            assert logs[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-6), name
        assert logs["video/left_out"] == 4.0 and expected["video/left_out"] == 0.0

    def test_a_resume_remembers_how_many_there_were(self, tmp_path, text_checkpoint):
        knobs = {"save_strategy": "steps", "save_steps": 1, "per_device_train_batch_size": 8}
        rows = rows_with_errors([0], [1])
        self.train(tmp_path, text_checkpoint, rows, **knobs)
        args = config(tmp_path, max_bad_rows=0.4, max_steps=4, **knobs)
        trainer = ParaGRPOTrainer(
            text_checkpoint, telling, args, train_dataset=Dataset.from_list(rows), rollout_func=fixed_rollouts
        )
        with pytest.raises(RuntimeError, match="50% of the rows so far"):
            trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
        assert trainer._bad_rows.seen == 24 and trainer.state.global_step == 2

    @pytest.mark.parametrize("loss_type", ["dapo", "grpo", "bnpo"])
    def test_a_step_of_bad_rows_alone_changes_nothing(self, tmp_path, text_checkpoint, loss_type):
        after, logs = self.train(tmp_path, text_checkpoint, rows_with_errors([], [0]), loss_type=loss_type, beta=0.1)
        start = dict(Qwen3ForCausalLM.from_pretrained(text_checkpoint).named_parameters())
        assert logs["loss"] == 0.0 and logs["grad_norm"] == 0.0 and logs["reward"] is None
        assert all(torch.equal(start[name], after[name]) for name in start)

    @pytest.mark.parametrize("loss_type", ["dapo", "grpo", "bnpo"])
    def test_the_entropy_bonus_is_that_of_the_other_rows(self, tmp_path, text_checkpoint, loss_type, monkeypatch):
        """In a micro-batch of bad rows and good ones, and in one of bad rows alone beside one of good ones."""
        monkeypatch.setattr("trl.trainer.grpo_trainer.shuffle_sequence_dict", lambda batch: batch)
        knobs = {"loss_type": loss_type, "beta": 0.1, "entropy_coef": 0.5}
        alone, expected = self.train(tmp_path, text_checkpoint, rows_with_errors([0]), **knobs)
        plain, _ = self.train(tmp_path, text_checkpoint, rows_with_errors([0]), **{**knobs, "entropy_coef": 0.0})
        assert any(not torch.allclose(plain[name], alone[name], atol=1e-4) for name in alone)
        for size in ({"per_device_train_batch_size": 8}, {"gradient_accumulation_steps": 2}):
            mixed, logs = self.train(tmp_path, text_checkpoint, rows_with_errors([0], [1]), **size, **knobs)
            for name, weight in alone.items():
                torch.testing.assert_close(mixed[name], weight, atol=1e-6, rtol=1e-5)
            for name in ("loss", "policy_loss", "entropy", "kl"):
                assert logs[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-6), name

    @pytest.mark.parametrize("loss_type", ["dapo", "grpo"])
    def test_the_loss_of_a_router_has_nothing_of_them(self, tmp_path, toy_processor, loss_type, monkeypatch):
        monkeypatch.setattr("trl.trainer.grpo_trainer.shuffle_sequence_dict", lambda batch: batch)
        model, tokenizer = others.mixture_of_experts(toy_processor.tokenizer)
        model.save_pretrained(tmp_path / "experts")
        tokenizer.save_pretrained(tmp_path / "experts")
        checkpoint = str(tmp_path / "experts")
        knobs = {"loss_type": loss_type, "router_aux_loss_coef": 5.0}
        alone, _ = self.train(tmp_path, checkpoint, rows_with_errors([0]), **knobs)
        plain, _ = self.train(tmp_path, checkpoint, rows_with_errors([0]), **{**knobs, "router_aux_loss_coef": 0.0})
        assert any(not torch.allclose(plain[name], alone[name], atol=1e-4) for name in alone)
        rows = rows_with_errors([0], [1])
        mixed, _ = self.train(tmp_path, checkpoint, rows, gradient_accumulation_steps=2, **knobs)
        for name, weight in alone.items():
            torch.testing.assert_close(mixed[name], weight, atol=1e-6, rtol=1e-5)
        after, _ = self.train(tmp_path, checkpoint, rows_with_errors([], [0]), **knobs)
        assert all(torch.equal(weight, after[name]) for name, weight in model.named_parameters())

    def test_an_evaluation_between_two_steps_on_the_same_rollouts(self, tmp_path, text_checkpoint):
        """Its rows are good: those of training that are bad are so still."""
        knobs = {"num_iterations": 2, "max_steps": 2, "per_device_train_batch_size": 8}
        expected, _ = self.train(tmp_path, text_checkpoint, rows_with_errors([0], [1]), **knobs)
        found, _ = self.train(
            tmp_path, text_checkpoint, rows_with_errors([0], [1]), **knobs,
            eval_dataset=Dataset.from_list(rows_with_errors([2, 3])), eval_strategy="steps", eval_steps=1,
            per_device_eval_batch_size=8,
        )  # fmt: skip
        for name, weight in expected.items():
            assert torch.equal(found[name], weight), name


class TestConfig:
    @pytest.mark.parametrize(
        "knobs, message",
        [
            ({"anchor_tags": {"</thinking>": 1.0}}, "</thinking>"),
            ({"frame_budgets": []}, "frame_budgets"),
            ({"frame_budgets": [0]}, "positive"),
            ({"dispatch": "serial"}, "`dispatch` must be one of .*'none'.*, got 'serial'"),
            ({"max_pixels": 0}, "max_pixels"),
            ({"max_turns": -1}, "max_turns"),
            ({"max_bad_rows": 2.0}, "between 0 and 1"),
        ],
    )
    def test_bad_values_are_named(self, tmp_path, knobs, message):
        with pytest.raises(ValueError, match=message):
            config(tmp_path, **knobs)

    def test_stock_config_is_refused(self, tmp_path, toy_checkpoint):
        with pytest.raises(TypeError, match="ParaGRPOConfig"):
            ParaGRPOTrainer(toy_checkpoint, spread, config(tmp_path, GRPOConfig))

    def test_vllm_that_is_missing_is_named(self, tmp_path, toy_checkpoint, monkeypatch):
        monkeypatch.setattr("paravt.engines.vllm.is_vllm_available", lambda: False)
        for mode in ("colocate", "server"):
            with pytest.raises(ImportError, match=r"pip install -e '\.\[vllm\]'"):
                ParaGRPOTrainer(toy_checkpoint, spread, config(tmp_path, use_vllm=True, vllm_mode=mode))
        with pytest.raises(ImportError, match="vllm"):
            load_engine(toy_checkpoint, engine="vllm")


class TestSampling:
    def rollouts(self, tmp_path, checkpoint, processor, rows, **settings):
        """Ids of the rollouts of each generation batch."""
        args = config(tmp_path, beta=0.0, learning_rate=1e-9, **settings)
        trainer = ParaGRPOTrainer(
            checkpoint, spread, args, train_dataset=Dataset.from_list(rows), processing_class=processor
        )
        played, run = [], trainer.rollout_func.run

        def told(*args, **kwargs):
            episodes = run(*args, **kwargs)
            played.append([tuple(e.ids) for e in episodes])
            return episodes

        trainer.rollout_func.run = told
        trainer.train()
        return played

    def test_two_seeds_differ_and_one_is_repeated_to_the_bit(self, tmp_path, toy_checkpoint, processor, toy_rows):
        found = {}
        for name, seed in (("first", 1), ("again", 1), ("other", 2)):
            # One row and one budget: the prompts are the same whatever the seed.
            settings = {"seed": seed, "frame_budgets": [4], "temperature": 2.0}
            found[name] = self.rollouts(tmp_path, toy_checkpoint, processor, toy_rows[:1], **settings)
        assert found["first"] == found["again"]
        prefix = len(processor.tokenizer("<think>\n")["input_ids"])
        starts = {name: {ids[prefix] for ids in batches[0]} for name, batches in found.items()}
        assert not starts["first"] & starts["other"]
        assert len(set(found["first"][0])) == 4

    def test_generation_batches_of_one_step_are_told_apart(self, tmp_path, toy_checkpoint, processor, toy_rows):
        settings = {"gradient_accumulation_steps": 2, "steps_per_generation": 1, "max_steps": 2}
        played = self.rollouts(tmp_path, toy_checkpoint, processor, [toy_rows[0]] * 2, frame_budgets=[4], **settings)
        assert len(played) == 4 and len({ids for batch in played for ids in batch}) == 16

    def test_a_row_that_is_there_twice_is_played_twice(self, tmp_path, toy_checkpoint, processor, toy_rows):
        (played,) = self.rollouts(
            tmp_path, toy_checkpoint, processor, [toy_rows[0]] * 2, per_device_train_batch_size=8, frame_budgets=[4]
        )
        assert len(set(played)) == 8

    def test_evaluation_rows_have_their_budget_and_draws_at_every_step(
        self, tmp_path, toy_checkpoint, processor, toy_rows
    ):
        """TRL's own evaluation loop, before training and twice during it; the learning rate is next to nothing."""
        args = config(
            tmp_path, frame_budgets=[4, 8, 16], learning_rate=1e-12, max_steps=4, eval_strategy="steps", eval_steps=2,
            eval_on_start=True, per_device_eval_batch_size=4, num_train_epochs=4,
        )  # fmt: skip
        trainer = ParaGRPOTrainer(
            toy_checkpoint, spread, args, train_dataset=Dataset.from_list(toy_rows[:1]), processing_class=processor,
            eval_dataset=Dataset.from_list(toy_rows[1:4]),
        )  # fmt: skip
        played, run = {True: [], False: []}, trainer.rollout_func.run

        def told(prompts, *args, **kwargs):
            episodes = run(prompts, *args, **kwargs)
            played[trainer.model.training].append([(len(e.images), tuple(e.ids)) for e in episodes])
            return episodes

        trainer.rollout_func.run = told
        trainer.train()
        evaluations = [played[False][start : start + 3] for start in (0, 3, 6)]
        assert len(played[False]) == 9 and evaluations[0] == evaluations[1] == evaluations[2]
        assert len({budget for batch in played[True] for budget, _ in batch}) > 1  # an epoch a step, a budget each

    def test_evaluation_rows_keep_their_budget_with_the_stock_trainer_too(
        self, tmp_path, toy_checkpoint, processor, toy_rows
    ):
        args = config(
            tmp_path, GRPOConfig, learning_rate=1e-12, max_steps=4, num_train_epochs=4, eval_strategy="steps",
            eval_steps=1, per_device_eval_batch_size=4,
        )  # fmt: skip
        trainer = GRPOTrainer(
            toy_checkpoint, spread, args, train_dataset=Dataset.from_list(toy_rows[:1]), processing_class=processor,
            eval_dataset=Dataset.from_list(toy_rows[1:4]), rollout_func=ParallelRollout(**LOOP),
        )  # fmt: skip
        by_hand = FrameBudgetCollator(processor, [4, 8, 16], max_pixels=1024)
        trainer.data_collator = by_hand
        trainer.add_callback(by_hand)
        with pytest.raises(ValueError, match="rows to evaluate on would draw.*use `FrameBudgetCollator.attach`"):
            trainer.train()
        trainer.remove_callback(by_hand)
        FrameBudgetCollator(processor, [4, 8, 16], max_pixels=1024).attach(trainer)
        played, run = {True: [], False: []}, trainer.rollout_func.run

        def told(prompts, *args, **kwargs):
            episodes = run(prompts, *args, **kwargs)
            played[trainer.model.training].append(len(episodes[0].images))
            return episodes

        trainer.rollout_func.run = told
        trainer.train()
        assert len(played[False]) == 12 and played[False] == played[False][:3] * 4
        assert len(set(played[True])) > 1

    def test_a_row_without_a_video_is_a_bad_row(self, tmp_path, toy_checkpoint, processor, toy_rows):
        rows = Dataset.from_list([{**toy_rows[0], "videos": []}])
        trainer = ParaGRPOTrainer(
            toy_checkpoint, spread, config(tmp_path, max_bad_rows=1.0), train_dataset=rows, processing_class=processor
        )
        trainer.train()
        assert trainer.state.log_history[0]["video/left_out"] == 4

    def test_iterable_rows_are_refused_with_more_than_one_budget(self, tmp_path, toy_checkpoint, processor, toy_rows):
        rows = Dataset.from_list(toy_rows).to_iterable_dataset()
        with pytest.raises(ValueError, match=r"`train_dataset` is iterable.*`frame_budgets` \[4, 8\]"):
            ParaGRPOTrainer(
                toy_checkpoint, spread, config(tmp_path, frame_budgets=[4, 8]), train_dataset=rows,
                processing_class=processor,
            )  # fmt: skip

    def test_an_evaluation_leaves_the_generators_as_they_were(self, tmp_path, toy_checkpoint, processor, toy_rows):
        trainer = ParaGRPOTrainer(
            toy_checkpoint, spread, config(tmp_path), train_dataset=Dataset.from_list(toy_rows[:4]),
            eval_dataset=Dataset.from_list(toy_rows[4:6]), processing_class=processor,
        )  # fmt: skip
        before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
        assert trainer.evaluate()["eval_reward"] >= 0
        assert before == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())

    def test_a_second_run_is_the_first_again(self, tmp_path, toy_checkpoint, processor, toy_rows):
        """Also where the first ended between two steps on the same rollouts."""
        args = config(tmp_path, num_iterations=2, max_steps=1, frame_budgets=[4], learning_rate=0.0)
        rows = Dataset.from_list([toy_rows[0]])
        trainer = ParaGRPOTrainer(toy_checkpoint, spread, args, train_dataset=rows, processing_class=processor)
        played, run = [], trainer.rollout_func.run

        def told(*args, **kwargs):
            episodes = run(*args, **kwargs)
            played.append([e.ids for e in episodes])
            return episodes

        trainer.rollout_func.run = told
        trainer.train()
        trainer._bad_rows.failed = trainer._bad_rows.seen = 9
        trainer.train()
        assert len(played) == 2 and played[0] == played[1]
        assert (trainer._bad_rows.seen, trainer._bad_rows.failed) == (4, 0)

    def test_training_goes_on_as_if_it_had_not_been_measured(self, tmp_path, toy_checkpoint, processor, toy_rows):
        args = config(tmp_path)
        trainer = ParaGRPOTrainer(
            toy_checkpoint, [accuracy_reward], args, train_dataset=Dataset.from_list(toy_rows),
            processing_class=processor,
        )  # fmt: skip
        trainer.model.train()
        before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
        rates = measure_trainer(trainer, [*toy_rows[:3], toy_rows[0]], [4, 8])
        after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
        assert before == after and trainer.model.training
        assert measure_trainer(trainer, [*toy_rows[:3], toy_rows[0]], [4, 8]) == rates and set(rates) == {4, 8}
        with pytest.raises(ValueError, match="no prompt"):
            measure_trainer(trainer, [{"videos": []}], [4])
        assert trainer.model.training


SCRIPT = """
import json, os, signal, sys, torch
torch.set_num_threads(1)
from datasets import Dataset
from transformers import AutoProcessor, TrainerCallback
from paravt import ParaGRPOConfig, ParaGRPOTrainer, toy
from paravt.chat import prepare_processor
from paravt.evaluation import measure_trainer
from paravt.rewards import accuracy_reward, format_reward, tool_reward


class Told(TrainerCallback):
    killed = 0  # in the middle of the step after this one

    def on_step_end(self, args, state, control, **kwargs):
        if self.killed and state.global_step == self.killed + 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero and "reward" in logs:
            found = {k: v for k, v in logs.items() if k not in ("step_time", "video/decode_seconds")}
            print("log", json.dumps([state.global_step, found]), flush=True)


def spread(completions, completion_ids, **columns):
    return [float(sum(ids) % 7) for ids in completion_ids]


if __name__ == "__main__":
    checkpoint, videos, out, settings = sys.argv[1:]
    settings = json.loads(settings)
    resume, measured = settings.pop("resume", False), settings.pop("measured", 0)
    Told.killed = settings.pop("killed", 0)
    processor = prepare_processor(AutoProcessor.from_pretrained(checkpoint), 1024)
    args = ParaGRPOConfig(out, **{
        "per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 64, "save_steps": 1,
        "report_to": "none", "use_cpu": True, "bf16": False, "gradient_checkpointing": False, "logging_steps": 1,
        "max_turns": 1, "max_turn_length": 24, "max_report_length": 8, "max_pixels": 1024, "learning_rate": 1e-3,
        "frame_budgets": [4, 8, 16, 32], "disable_tqdm": True, **settings,
    })
    rows = toy.make_rows(videos, 12)
    trainer = ParaGRPOTrainer(
        checkpoint, [accuracy_reward, format_reward, tool_reward, spread], args,
        train_dataset=Dataset.from_list(rows), processing_class=processor, callbacks=[Told()],
    )
    prepare, run = trainer.data_collator.prepare, trainer.rollout_func.run

    def drawn(row):
        row = prepare(row)
        print("drawn", trainer.data_collator.epoch, row["key"], row["frame_budget"], flush=True)
        return row

    def played(*args, **kwargs):
        episodes = run(*args, **kwargs)
        if trainer.model.training:
            print("played", json.dumps([e.ids for e in episodes]), flush=True)
        return episodes

    if measured:
        print("rates", json.dumps(measure_trainer(trainer, rows[:measured], [4, 8])), flush=True)
    trainer.data_collator.prepare, trainer.rollout_func.run = drawn, played
    trainer.train(resume_from_checkpoint=resume)
    print("finished", trainer.state.global_step, flush=True)
"""


def drawn(text):
    return {tuple(line.split()[1:3]): line.split()[3] for line in text.splitlines() if line.startswith("drawn")}


def told(text, name):
    return [json.loads(line.partition(" ")[2]) for line in text.splitlines() if line.startswith(f"{name} ")]


def steps_of(checkpoint):
    """Loss and gradient norm of each step up to a checkpoint."""
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    return [(entry["loss"], entry["grad_norm"]) for entry in state["log_history"] if "loss" in entry]


@pytest.mark.slow
class TestProcesses:
    def run(self, tmp_path, checkpoint, **settings):
        """What one process printed, and how it ended."""
        (tmp_path / "train.py").write_text(SCRIPT)
        arguments = [tmp_path / "train.py", checkpoint, tmp_path / "videos", tmp_path / "out", json.dumps(settings)]
        environment = os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
        return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, env=environment)

    @pytest.mark.timeout(1800)
    def test_a_resume_after_a_kill_is_equal_to_the_last_digit(self, tmp_path, toy_checkpoint):
        """Budgets, rollouts, and all that is logged of them: rewards, losses, gradient norms, entropies."""
        done = self.run(tmp_path, toy_checkpoint, max_steps=8)
        whole, budgets = dict(told(done.stdout, "log")), drawn(done.stdout)
        assert len(whole) == 8 and all(entry["grad_norm"] > 0 for entry in whole.values()), done.stderr[-3000:]
        (tmp_path / "out").rename(tmp_path / "uninterrupted")
        killed = self.run(tmp_path, toy_checkpoint, max_steps=8, killed=3)
        assert killed.returncode == -signal.SIGKILL, killed.stderr[-3000:]
        saved = {path.name for path in (tmp_path / "out").glob("checkpoint-*")}
        assert saved == {"checkpoint-1", "checkpoint-2", "checkpoint-3"}
        done = self.run(tmp_path, toy_checkpoint, max_steps=8, resume=True)
        resumed = dict(told(done.stdout, "log"))
        assert "finished 8" in done.stdout and len(resumed) == 5, done.stderr[-2000:]
        assert resumed == {step: whole[step] for step in resumed}
        found = drawn(done.stdout)
        assert found and found.items() <= budgets.items()

    @pytest.mark.timeout(1800)
    @pytest.mark.parametrize(
        "knobs",
        [
            {"num_iterations": 2},
            {"num_iterations": 2, "packing": False},
            {"num_iterations": 2, "beta": 0.1, "train_vision": True},
            {"steps_per_generation": 2},
        ],
        ids=str,
    )
    def test_a_resume_between_two_steps_on_the_same_rollouts(self, tmp_path, toy_checkpoint, knobs):
        """The step that remains of them, and the next rollouts."""
        knobs = {**knobs, "learning_rate": 1e-5}  # little: the second step on the same rollouts is not clipped
        done = self.run(tmp_path, toy_checkpoint, max_steps=4, **knobs)
        assert "finished 4" in done.stdout, done.stderr[-3000:]
        whole = steps_of(tmp_path / "out" / "checkpoint-4")
        assert len(whole) == 4 and all(norm > 0 for _, norm in whole)
        for step in (4, 3, 2):
            shutil.rmtree(tmp_path / "out" / f"checkpoint-{step}")
        done = self.run(tmp_path, toy_checkpoint, max_steps=4, resume=True, **knobs)
        assert "finished 4" in done.stdout and len(told(done.stdout, "played")) == 1, done.stderr[-3000:]
        assert steps_of(tmp_path / "out" / "checkpoint-4") == whole
        shutil.rmtree(tmp_path / "out" / "checkpoint-4")
        other = {"gradient_accumulation_steps": 2, "steps_per_generation": 4}
        done = self.run(tmp_path, toy_checkpoint, max_steps=4, resume=True, **{**knobs, **other})
        assert "was saved between two steps on the same rollouts: go on with" in done.stderr

    @pytest.mark.timeout(1800)
    def test_two_ranks_draw_what_one_does(self, tmp_path, toy_checkpoint):
        """A group over both ranks, after an evaluation that they share: eight rollouts, as one process plays them."""
        settings = {"num_generations": 8, "max_steps": 1, "frame_budgets": [4, 8], "measured": 3}
        one = self.run(tmp_path, toy_checkpoint, per_device_train_batch_size=8, **settings).stdout
        settings = json.dumps({**settings, "per_device_train_batch_size": 4})
        arguments = [toy_checkpoint, tmp_path / "videos", tmp_path / "two", settings]
        ranks = two_ranks(tmp_path / "logs", tmp_path / "train.py", *arguments)
        assert ranks.code == 0 and all("finished 1" in text for text in ranks.stdout), str(ranks)
        (alone,) = told(one, "played")
        first, second = (told(text, "played")[0] for text in ranks.stdout)
        assert len({tuple(ids) for ids in alone}) == 8 and sorted(alone) == sorted(first + second)
        rates = [told(text, "rates")[0] for text in (one, *ranks.stdout)]
        assert rates[0] == rates[1] == rates[2] and set(rates[0]) == {"4", "8"}

    def test_bad_rows_on_one_of_two_ranks(self, tmp_path, text_checkpoint, toy_checkpoint):
        script = os.path.join(os.path.dirname(__file__), "bad_ranks.py")
        arguments = [text_checkpoint, toy_checkpoint, tmp_path / "videos", tmp_path]
        done = two_ranks(tmp_path / "logs", script, *arguments)
        assert done.code == 0, str(done)
        ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
        for loss_type in ("dapo", "grpo"):
            args = {"loss_type": loss_type, "beta": 0.1, "per_device_train_batch_size": 8}
            rows = rows_with_errors([0, 2])
            alone, expected = TestBadRows().train(tmp_path, text_checkpoint, rows, **args)
            for rank in (0, 1):
                found = torch.load(tmp_path / f"{loss_type}-{rank}.pt")
                for name, weight in alone.items():
                    torch.testing.assert_close(found[name], weight, atol=1e-6, rtol=1e-5)
                for name in ("reward", "reward_std", "completions/mean_length", "format/compliance"):
                    assert ranks[rank][loss_type][name] == pytest.approx(expected[name]), name
                assert ranks[rank][loss_type]["video/left_out"] == 4.0
        # The rank without a picture of its own takes the other's way, and both stop together.
        assert ranks[0]["steps"] == ranks[1]["steps"] and ranks[0]["left_out"] == ranks[1]["left_out"]
        assert {0.0, 4.0, 8.0} == set(ranks[0]["left_out"]) and "more than `max_bad_rows` 50%" in ranks[0]["error"]
        assert ranks[0]["error"] == ranks[1]["error"]
