"""
What rollouts cost, on the toy model of `recipes/ask.py`: 32 rollouts that send four calls in a turn.

The calls of every rollout are the same: the engine generates as many tokens as the script has, and the script's are
taken. Nothing ends before its limit, so reports are 64 tokens.
"""

import os
import statistics
import time

import ask
from datasets import Dataset
from transformers import GenerationConfig
from trl import GRPOTrainer
from trl.data_utils import prepare_multimodal_messages

from paravt import CropVideo, FrameBudgetCollator, ParaGRPOConfig, ParaGRPOTrainer, ParallelRollout, toy
from paravt.calls import ToolCall, render_tool_call
from paravt.chat import Chat
from paravt.engine import Sample
from paravt.load import load_engine
from paravt.metrics import table
from paravt.prompts import subagent_messages
from paravt.rewards import accuracy_reward, format_reward, tool_reward
from paravt.tools import ToolError


ROLLOUTS, REPORT, RUNS = 32, 64, 3
CALLS = [
    render_tool_call(
        ToolCall("crop_video", {"video_path": "clip.mp4", "start_time": float(s), "end_time": float(s + 16)})
    )
    for s in range(0, 64, 16)
]
ANSWER = "It is red from 4 to 8\n</think>\n<answer>red</answer>"


class Scripted:
    """An engine that works as hard as another and says what the script says."""

    def __init__(self, engine, turns: list[str]):
        self.engine, self.processor, self.tokenizer = engine, engine.processor, engine.tokenizer
        self.turns = [[*self.tokenizer(t)["input_ids"], self.tokenizer.eos_token_id] for t in turns]
        self.max_length, self.session = engine.max_length, engine.session

    def generate(self, prompts, images, limits, done=None):
        said = []
        for ids in prompts:
            main = self.tokenizer.decode(ids).count("<|im_start|>assistant") if self._main(ids) else 0
            said.append(self.turns[main - 1] if main else None)
        lengths = [len(s) if s else min(REPORT, limit) for s, limit in zip(said, limits, strict=True)]
        samples = self.engine.generate(prompts, images, lengths)
        samples = [Sample(s, [-1.0] * len(s), True) if s else sample for s, sample in zip(said, samples, strict=True)]
        for i, sample in enumerate(samples):
            if done is not None:
                done(i, sample)
        return samples

    def _main(self, ids: list[int]) -> bool:
        return "crop_video" in self.tokenizer.decode(ids[:200])


def prompts_of(processor, count: int = ROLLOUTS, folder: str = "toy") -> list[list[dict]]:
    rows = toy.make_rows(folder, count // 8, seed=4)
    made = FrameBudgetCollator(processor, [4], max_pixels=1024)([row for row in rows for _ in range(8)])
    return [prepare_multimodal_messages(row["prompt"], images=row["images"]) for row in made]


def timed(function) -> float:
    """Median seconds; the first run warms up and does not count."""
    seconds = []
    for _ in range(RUNS + 1):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


class OneByOne(CropVideo):
    """The crop as a tool of TRL's own loop: a sub-agent watches it, as ours do, one call after another."""

    engine = None

    def crop_video(self, video_path: str, start_time: float, end_time: float) -> str:
        """
        Look closely at a part of a video.

        Args:
            video_path: Name of the video.
            start_time: Start of the part, in seconds.
            end_time: End of the part, in seconds.

        Returns:
            What a helper says of it.
        """
        parts = super().crop_video(video_path, start_time, end_time)
        frames = [part["image"] for part in parts if part["type"] == "image"]
        for frame, part in zip(frames, parts[1::2], strict=True):
            frame.time = float(part["text"].split()[0][1:])
        chat = Chat(self.engine.processor)
        prompt = chat.prompt(subagent_messages("Which colour is the flash?", start_time, end_time, frames))
        (report,) = self.engine.generate([prompt[0]], [prompt[1]], [REPORT])
        if not report.ids:
            raise ToolError("no report")
        return chat.plain(chat.tokenizer.decode(report.ids, skip_special_tokens=True))


def rollout(folder: str = "paravt-bench") -> str:
    """(1) dispatch, (2) against TRL's own tool loop, (3) engines, (4) a step of the trainer."""
    model = ask.toy_model(os.path.join(folder, "toy-model"))
    engine = load_engine(model, max_pixels=1024, batch_size=ROLLOUTS * 4)
    engine.config = GenerationConfig(do_sample=False, suppress_tokens=[engine.tokenizer.eos_token_id])
    prompts = prompts_of(engine.processor, folder=os.path.join(folder, "toy"))
    parallel = ["no flash\n</think>\n" + "\n".join(CALLS), ANSWER]
    sequential = [*("no flash\n</think>\n" + call for call in CALLS), ANSWER]
    limits = {"max_report_length": REPORT, "max_pixels": 1024}

    def play(turns, engine=engine, **kwargs):
        return timed(lambda: ParallelRollout(**limits, **kwargs).run(prompts, Scripted(engine, turns), 4000))

    rows, first = [], play(parallel, max_turns=1)

    def add(name: str, seconds: float, base: float) -> None:
        rows.append((name, {"seconds": seconds, "ratio": seconds / base}))

    add("parallel dispatch", first, first)
    add("sequential dispatch", play(sequential, dispatch="sequential", max_turns=4), first)
    add("TRL's tool loop, sub-agents as tool", stock(model, engine, prompts, parallel, folder), first)
    try:
        other = load_engine(model, engine="vllm", max_pixels=1024, max_length=4096)
        other.sampling["ignore_eos"] = True
        add("parallel dispatch, vLLM", play(parallel, other, max_turns=1), first)
    except ImportError:
        print("vLLM is not installed: its row is left out")
    ours, theirs = steps(model, engine, prompts, parallel, folder)
    add("GRPOTrainer, a step", theirs, theirs)
    add("ParaGRPOTrainer, the same step", ours, theirs)
    return table(f"{ROLLOUTS} rollouts, four calls each", rows, ["seconds", "ratio"])


def arguments(folder: str, kind=ParaGRPOConfig, **kwargs):
    return kind(
        os.path.join(folder, "trainer"), per_device_train_batch_size=ROLLOUTS, num_generations=8, report_to="none",
        max_completion_length=1000, bf16=False, use_cpu=True, gradient_checkpointing=False, save_strategy="no",
        **kwargs,
    )  # fmt: skip


def stock(model: str, engine, prompts, turns: list[str], folder: str) -> float:
    """Generation of the same rollouts by the stock trainer: its loop, the crop as a tool with a sub-agent in it."""
    from trl import GRPOConfig

    OneByOne.engine = engine
    rows = [{"prompt": [{"role": "user", "content": "Which colour is the flash?"}], "videos": p[-1]["videos"]}
            for p in prompts]  # fmt: skip
    trainer = GRPOTrainer(
        model, accuracy_reward, arguments(folder, GRPOConfig, max_tool_calling_iterations=2),
        train_dataset=Dataset.from_list(rows), processing_class=engine.processor, environment_factory=OneByOne,
    )  # fmt: skip
    scripted = Scripted(engine, ["<think>\n" + turn for turn in turns])

    def turn(self, prompt_ids, images, fields, num_generations, has_tool_images=False):
        samples = scripted.generate(prompt_ids, [[] for _ in prompt_ids], [1000] * len(prompt_ids))
        return [sample.ids for sample in samples], None

    trainer._generate_single_turn = turn.__get__(trainer)
    trainer.model.train()
    return timed(lambda: trainer._generate_and_score_completions([dict(row) for row in rows]))


def steps(model: str, engine, prompts, turns: list[str], folder: str) -> tuple[float, float]:
    """Seconds of a whole step of our trainer and of the stock one, on the same finished rollouts."""
    from trl import GRPOConfig

    played = ParallelRollout(max_report_length=REPORT, max_pixels=1024, max_turns=1).run(
        prompts, Scripted(engine, turns), 1000
    )
    output = {
        "prompt_ids": [e.prompt_ids for e in played], "completion_ids": [e.ids for e in played],
        "logprobs": [e.logprobs for e in played], "env_mask": [e.mask for e in played],
        "turns": [e.messages for e in played], "tool_calls": [[s.record() for s in e.slots] for e in played],
    }  # fmt: skip
    rows = []
    for i, prompt in enumerate(prompts):
        blank = [{"type": "image"} if part["type"] == "image" else part for part in prompt[-1]["content"]]
        messages = [*prompt[:-1], {**prompt[-1], "content": blank}]
        rows.append({"answer": "red" if i % 2 else "blue", "question_type": "oe", "prompt": messages})
    for row, episode in zip(rows, played, strict=True):
        row["images"] = episode.images
    found = []
    for kind, config in ((ParaGRPOTrainer, ParaGRPOConfig), (GRPOTrainer, GRPOConfig)):
        trainer = kind(
            model, [accuracy_reward, format_reward, tool_reward], arguments(folder, config),
            train_dataset=Dataset.from_list([{"prompt": "x"}] * ROLLOUTS), processing_class=engine.processor,
            rollout_func=lambda prompts, trainer: output,
        )  # fmt: skip
        trainer.model.train()

        trainer.current_gradient_accumulation_steps = 1

        def step(trainer=trainer):
            batch = trainer._generate_and_score_completions([dict(row) for row in rows])
            trainer.compute_loss(trainer.model, batch).backward()
            trainer.model.zero_grad()

        found.append(step)
    # One after the other in turn, so that both see the same machine.
    seconds = [[], []]
    for _ in range(RUNS + 1):
        for which, step in enumerate(found):
            start = time.perf_counter()
            step()
            seconds[which].append(time.perf_counter() - start)
    return tuple(statistics.median(times[1:]) for times in seconds)
