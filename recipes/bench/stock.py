"""Ours against the stock trainer: its own tool loop with the same crops, and a step on the same finished rollouts."""

import os
import statistics
import time

from datasets import Dataset
from script import REPORT, ROLLOUTS, RUNS, Scripted, timed
from trl import GRPOConfig, GRPOTrainer

from paravt import CropVideo, ParaGRPOConfig, ParaGRPOTrainer, ParallelRollout
from paravt.chat import Chat
from paravt.prompts import subagent_messages
from paravt.rewards import accuracy_reward, format_reward, tool_reward
from paravt.tools import ToolError


class OneByOne(CropVideo):
    """The crop as a tool of TRL's own loop: a sub-agent watches it, as ours do, one call after another."""

    engine = None

    def crop_video(self, video_path: str, start_time: float, end_time: float) -> str:
        parts = super().crop_video(video_path, start_time, end_time)
        frames = [part["image"] for part in parts if part["type"] == "image"]
        for frame, part in zip(frames, parts[1::2], strict=True):
            frame.time = float(part["text"].split()[0][1:])
        chat = Chat(self.engine.processor)
        prompt = chat.prompt(subagent_messages("Which colour is the flash?", start_time, end_time, frames))
        (report,) = self.engine.generate([prompt[0]], [prompt[1]], [REPORT])
        if not report.ids:
            raise ToolError("no report")
        return chat.strip_added_tokens(chat.tokenizer.decode(report.ids, skip_special_tokens=True))


OneByOne.crop_video.__doc__ = CropVideo.crop_video.__doc__  # TRL reads the tool's schema from it


def arguments(folder: str, kind=ParaGRPOConfig, **kwargs):
    return kind(
        os.path.join(folder, "trainer"),
        per_device_train_batch_size=ROLLOUTS,
        num_generations=8,
        report_to="none",
        max_completion_length=1000,
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        save_strategy="no",
        **kwargs,
    )


def stock(model: str, engine, prompts, turns: list[str], folder: str) -> float:
    """Generation of the same rollouts by the stock trainer: its loop, the crop as a tool with a sub-agent in it."""
    OneByOne.engine = engine
    rows = [
        {"prompt": [{"role": "user", "content": "Which colour is the flash?"}], "videos": p[-1]["videos"]}
        for p in prompts
    ]
    trainer = GRPOTrainer(
        model,
        accuracy_reward,
        arguments(folder, GRPOConfig, max_tool_calling_iterations=2),
        train_dataset=Dataset.from_list(rows),
        processing_class=engine.processor,
        environment_factory=OneByOne,
    )
    scripted = Scripted(engine, ["<think>\n" + turn for turn in turns])

    def turn(self, prompt_ids, images, fields, num_generations, has_tool_images=False):
        samples = scripted.generate(prompt_ids, [[] for _ in prompt_ids], [1000] * len(prompt_ids))
        return [sample.ids for sample in samples], None

    trainer._generate_single_turn = turn.__get__(trainer)
    trainer.model.train()
    return timed(lambda: trainer._generate_and_score_completions([dict(row) for row in rows]))


def steps(model: str, engine, prompts, turns: list[str], folder: str) -> tuple[float, float]:
    """Seconds of a whole step of the stock trainer and of ours, on the same finished rollouts."""
    played = ParallelRollout(max_report_length=REPORT, max_pixels=1024, max_turns=1).run(
        prompts, Scripted(engine, turns), 1000
    )
    output = {
        "prompt_ids": [e.prompt_ids for e in played],
        "completion_ids": [e.ids for e in played],
        "logprobs": [e.logprobs for e in played],
        "env_mask": [e.mask for e in played],
        "turns": [e.messages for e in played],
        "tool_calls": [[s.record() for s in e.slots] for e in played],
    }
    rows = []
    for i, prompt in enumerate(prompts):
        blank = [{"type": "image"} if part["type"] == "image" else part for part in prompt[-1]["content"]]
        messages = [*prompt[:-1], {**prompt[-1], "content": blank}]
        rows.append({"answer": "red" if i % 2 else "blue", "question_type": "oe", "prompt": messages})
    for row, episode in zip(rows, played, strict=True):
        row["images"] = episode.images
    found = []
    for kind, config in ((GRPOTrainer, GRPOConfig), (ParaGRPOTrainer, ParaGRPOConfig)):
        trainer = kind(
            model,
            [accuracy_reward, format_reward, tool_reward],
            arguments(folder, config),
            train_dataset=Dataset.from_list([{"prompt": "x"}] * ROLLOUTS),
            processing_class=engine.processor,
            rollout_func=lambda prompts, trainer: output,
        )
        trainer.model.train()

        trainer.current_gradient_accumulation_steps = 1

        def step(trainer=trainer):
            batch = trainer._generate_and_score_completions([dict(row) for row in rows])
            trainer.compute_loss(trainer.model, batch).backward()
            trainer.model.zero_grad()

        found.append(step)
    # One after the other in turn, so that both see the same machine.
    seconds = [[], []]
    for _ in range(10 * RUNS + 1):
        for which, step in enumerate(found):
            start = time.perf_counter()
            step()
            seconds[which].append(time.perf_counter() - start)
    return tuple(statistics.median(times[1:]) for times in seconds)
