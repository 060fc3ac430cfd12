"""The ablation in two minutes: what anchoring does to compliance and gating to the call rate, each alone."""

import random
import statistics

import pytest
from datasets import Dataset
from transformers import AutoProcessor
from trl import SFTConfig, SFTTrainer

from paravt import FrameBudgetCollator, ParaGRPOConfig, ParaGRPOTrainer, SupervisedCollator, toy
from paravt.parser import ToolCall, render_tool_call


pytestmark = pytest.mark.slow
LEAN = {"bf16": False, "use_cpu": True, "report_to": "none", "save_strategy": "no", "gradient_checkpointing": False}


@pytest.fixture(scope="module")
def cold_start(toy_rows, tmp_path_factory):
    """A policy that calls or answers as a coin falls, and loses a closing tag as often."""
    draw, rows = random.Random(0), []
    call = render_tool_call(ToolCall("crop_video", {"video_path": "clip.mp4", "start_time": 0.0, "end_time": 16.0}))
    for i in range(1600):
        closer = "</think>\n" if draw.random() < 0.6 else ""
        text = f"<think>\nlook\n{closer}" + draw.choice([call, "<answer>red</answer>"])
        rows.append(
            toy_rows[i % 8]
            | {"completion": [{"role": "assistant", "content": text}], "window": None, "window_times": None}
            | {"frame_budget": draw.choice([4, 16])}
        )
    processor = toy.make_processor(toy.corpus(rows[:24]))
    folder = str(tmp_path_factory.mktemp("cold"))
    args = SFTConfig(
        folder,
        per_device_train_batch_size=16,
        num_train_epochs=1,
        learning_rate=3e-3,
        lr_scheduler_type="cosine",
        warmup_steps=10,
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=False,
        **LEAN,
    )
    collator = SupervisedCollator(FrameBudgetCollator(processor, [4], max_pixels=1024))
    trainer = SFTTrainer(
        toy.make_model(processor), args, collator, Dataset.from_list(rows), processing_class=processor
    )
    trainer.train()
    trainer.save_model(folder)
    processor.save_pretrained(folder)
    return folder


def train(cold_start, rows, folder, reward, steps, **kwargs):
    """Metrics of each step."""
    args = ParaGRPOConfig(
        str(folder),
        max_steps=steps,
        per_device_train_batch_size=32,
        num_generations=8,
        max_completion_length=300,
        max_turns=1,
        max_turn_length=64,
        max_report_length=4,
        max_pixels=1024,
        learning_rate=5e-4,
        temperature=1.0,
        lr_scheduler_type="constant",
        logging_steps=1,
        model_init_kwargs={"dtype": "float32"},
        seed=1,
        **LEAN,
        **kwargs,
    )
    trainer = ParaGRPOTrainer(
        cold_start,
        reward,
        args,
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoProcessor.from_pretrained(cold_start),
    )
    trainer.train()
    return [entry for entry in trainer.state.log_history if "reward" in entry]


def mean(log, name):
    return statistics.mean(entry[name] for entry in log if name in entry)


def accuracy_of_the_toy_world(completions, tool_calls, frame_budget, **columns):
    """What accuracy comes to there: a large overview suffices, with or without calls; a small one does not."""
    return [float(bool(calls) or budget > 4) for calls, budget in zip(tool_calls, frame_budget, strict=True)]


def test_anchoring_raises_compliance(cold_start, toy_rows, tmp_path):
    """With no reward at all there is the anchor alone: without it nothing moves."""

    def closed(anchor_weight: float) -> list[float]:
        shares = []

        def nothing(completions, turns, **columns):
            shares.append(statistics.mean("</think>" in turn[0]["content"] for turn in turns))
            return [0.0] * len(completions)

        train(cold_start, toy_rows[:8], tmp_path, nothing, 16, anchor_weight=anchor_weight, frame_budgets=[4])
        return shares

    anchored, vanilla = closed(0.5), closed(0.0)
    start, end = statistics.mean(vanilla), statistics.mean(anchored[-4:])
    assert 0.3 < start < 0.8 and end > start + 0.15, (start, anchored)


def test_gating_raises_the_call_rate(cold_start, toy_rows, tmp_path):
    """With large overviews alone calling gains nothing over skipping; where small ones are drawn it does."""
    arguments = (cold_start, toy_rows[:8], tmp_path, accuracy_of_the_toy_world, 20)
    gated = train(*arguments, frame_budgets=[4, 16])
    vanilla = train(*arguments, frame_budgets=[16], anchor_weight=0.0)
    start = mean(vanilla[:5], "tools/call_rate")
    rates = [mean(log[-5:], "tools/call_rate") for log in (gated, vanilla)]
    assert 0.2 < start < 0.7 and abs(rates[1] - start) < 0.15 and rates[0] > start + 0.2, (start, rates)
