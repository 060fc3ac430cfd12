import copy
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel
from transformers import AutoProcessor, Qwen3VLForConditionalGeneration
from trl import GRPOConfig, GRPOTrainer

from paravt import CropVideo, FrameBudgetCollator, ParaGRPOConfig, ParaGRPOTrainer, ParallelRollout
from paravt.anchors import structural_credit
from paravt.engines import load_engine
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
        off = {"anchor_weight": 0.0, "frame_budgets": [4], "think_prefix": False, "packing": False}
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
            peft_config=LoraConfig(r=4, target_modules="all-linear"),
        )
        before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
        trainer.train()
        moved = {name for name, p in trainer.model.named_parameters() if not torch.equal(p, before[name])}
        # The vision tower's attention may see one picture of one token; every language adapter must move.
        language = {n for n in before if "lora_B" in n and "language_model" in n}
        assert language <= moved and all("lora_" in name for name in moved)
        trainer.save_model(str(tmp_path / "adapter"))
        assert not (tmp_path / "adapter" / "model.safetensors").exists()
        base = Qwen3VLForConditionalGeneration.from_pretrained(toy_checkpoint)
        loaded = PeftModel.from_pretrained(base, str(tmp_path / "adapter"))
        saved = {k.replace(".default", ""): v for k, v in trainer.model.named_parameters() if "lora_" in k}
        assert all(
            torch.equal(v, saved[k.replace(".default", "")]) for k, v in loaded.named_parameters() if "lora_" in k
        )

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
        (file,) = (tmp_path / "completions").iterdir()
        table = pd.read_parquet(file)
        first = table["completion"][0][0]
        assert first["role"] == "assistant" and first["content"].startswith("<think>\n") and "<|im_" not in str(first)

    def test_frames_decode_once_per_video_and_budget_whatever_the_micro_steps(
        self, tmp_path, toy_checkpoint, processor, toy_rows, monkeypatch
    ):
        from paravt.video import decode, passes, timeline

        decoded = []
        schedule = timeline.schedule

        def counted(function, *args):
            if function is decode.decode:
                decoded.append((args[0], tuple(args[2])))
            return schedule(function, *args)

        monkeypatch.setattr(timeline, "schedule", counted)
        passes._recent.clear()
        args = config(tmp_path, gradient_accumulation_steps=4, frame_budgets=[4, 8], max_steps=1)
        rows = Dataset.from_list(toy_rows[:4])
        trainer = ParaGRPOTrainer(toy_checkpoint, spread, args, train_dataset=rows, processing_class=processor)
        trainer.train()  # 16 rollouts of 4 rows, in 4 micro-steps
        overviews = {d for d in decoded if len(d[1]) in (4, 8)}
        assert len(decoded) == len(set(decoded)) and len(overviews) == 4

    def test_a_video_gone_bad_spoils_its_own_group_only(self, tmp_path, toy_checkpoint, processor, toy_rows, clips):
        bad = {**toy_rows[0], "videos": [str(clips / "damaged.mp4")], "key": "bad"}
        args = config(tmp_path, per_device_train_batch_size=8, frame_budgets=[8], max_bad_rows=0.6)
        trainer = ParaGRPOTrainer(
            toy_checkpoint, spread, args, train_dataset=Dataset.from_list(toy_rows), processing_class=processor
        )
        inputs = trainer.data_collator([bad] * 4 + [toy_rows[1]] * 4)
        batch = trainer._generate_and_score_completions(inputs)
        assert (batch["advantages"][:4] == 0).all() and (batch["advantages"][4:] != 0).any()
        trainer.args.max_bad_rows = 0.05
        with pytest.raises(RuntimeError, match="more than `max_bad_rows` 5%"):
            for _ in range(3):
                trainer._generate_and_score_completions(trainer.data_collator([bad] * 4 + [toy_rows[1]] * 4))


class TestConfig:
    @pytest.mark.parametrize(
        "knobs, message",
        [
            ({"anchor_tags": {"</thinking>": 1.0}}, "</thinking>"),
            ({"frame_budgets": []}, "frame_budgets"),
            ({"frame_budgets": [0]}, "positive"),
            ({"dispatch": "serial"}, "'parallel', 'sequential' or 'none'"),
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


SCRIPT = """
import sys, torch
torch.set_num_threads(1)
from datasets import Dataset
from transformers import AutoProcessor
from paravt import ParaGRPOConfig, ParaGRPOTrainer, toy
from paravt.chat import prepare_processor
from paravt.rewards import accuracy_reward, format_reward, tool_reward

if __name__ == "__main__":
    checkpoint, videos, out, steps, resume = sys.argv[1:]
    processor = prepare_processor(AutoProcessor.from_pretrained(checkpoint), 1024)
    args = ParaGRPOConfig(
        out, per_device_train_batch_size=4, num_generations=4, max_completion_length=64, max_steps=int(steps),
        save_steps=1, report_to="none", use_cpu=True, bf16=False, gradient_checkpointing=False, logging_steps=1,
        max_turns=1, max_turn_length=24, max_report_length=8, max_pixels=1024, frame_budgets=[4, 8, 16, 32],
    )
    trainer = ParaGRPOTrainer(
        checkpoint, [accuracy_reward, format_reward, tool_reward], args,
        train_dataset=Dataset.from_list(toy.make_rows(videos, 12)), processing_class=processor,
    )
    prepare = trainer.data_collator.prepare

    def told(row):
        row = prepare(row)
        print("drawn", trainer.data_collator.epoch, row["key"], row["frame_budget"], flush=True)
        return row

    trainer.data_collator.prepare = told
    trainer.train(resume_from_checkpoint=resume == "yes")
    print("finished", trainer.state.global_step, flush=True)
"""


def drawn(text):
    return {tuple(line.split()[1:3]): line.split()[3] for line in text.splitlines() if line.startswith("drawn")}


@pytest.mark.slow
class TestProcesses:
    def run(self, tmp_path, checkpoint, steps, resume="no", launcher=(), wait=True):
        (tmp_path / "train.py").write_text(SCRIPT)
        command = [
            sys.executable,
            *launcher,
            str(tmp_path / "train.py"),
            checkpoint,
            str(tmp_path / "v"),
            str(tmp_path / "out"),
            str(steps),
            resume,
        ]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "ACCELERATE_USE_CPU": "true"},
        )
        return process.communicate(timeout=280)[0] if wait else process

    def test_resume_after_a_kill_draws_the_same_budgets(self, tmp_path, toy_checkpoint):
        whole = drawn(self.run(tmp_path, toy_checkpoint, 8))
        for checkpoint in (tmp_path / "out").glob("checkpoint-*"):
            checkpoint.rename(tmp_path / f"old-{checkpoint.name}")
        process = self.run(tmp_path, toy_checkpoint, 8, wait=False)
        start = time.time()
        while not (tmp_path / "out" / "checkpoint-3" / "trainer_state.json").exists() and time.time() - start < 200:
            time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        text = self.run(tmp_path, toy_checkpoint, 8, resume="yes")
        resumed = drawn(text)
        assert "finished 8" in text and len(resumed) >= 4, text[-2000:]
        assert (
            all(whole[key] == budget for key, budget in resumed.items() if key in whole)
            and resumed.keys() & whole.keys()
        )

    def test_two_ranks(self, tmp_path, toy_checkpoint):
        text = self.run(
            tmp_path,
            toy_checkpoint,
            3,
            launcher=("-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "29611"),
        )
        assert text.count("finished 3") == 2, text[-3000:]
