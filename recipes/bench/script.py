"""
The rollouts that `recipes/bench/rollout.py` measures: they send the same four calls, whatever the policy.

The engine generates as many tokens as the script has, and the script's are taken. Reports end at their limit.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence

from trl import prepare_multimodal_messages

from paravt import FrameBudgetCollator, toy
from paravt.engines import Sample
from paravt.parser import ToolCall, render_tool_call


# In front of the installed packages: one of them is called `evaluate` as well.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from ask import toy_model  # noqa: E402, F401 - for the other benchmarks


ROLLOUTS, RUNS = 32, 3
REPORT, LONG = 64, 512  # tokens of a report; the second is the default limit
CALLS = [
    render_tool_call(
        ToolCall("crop_video", {"video_path": "clip.mp4", "start_time": float(s), "end_time": float(s + 16)})
    )
    for s in range(0, 64, 16)
]
ANSWER = "It is red from 4 to 8\n</think>\n<answer>red</answer>"


class Rows:
    """A table whose rows are printed as they are measured; a part that cannot run says why, and the rest goes on."""

    def __init__(self, title: str):
        self.seconds: dict[str, float] = {}
        header = f"{title:46}  seconds  ratio"
        print(f"{header}\n{'-' * len(header)}", flush=True)

    def attempt(self, name: str, function: Callable):
        """What the function returns, or `None` if it fails."""
        try:
            return function()
        except Exception as error:  # whatever it is, what was measured is printed and the other parts are measured too
            print(f"{name}: left out, {type(error).__name__}: {error}", flush=True)

    def measure(self, names: Sequence[str], function: Callable[[], Iterable[float]], base: str | None = None) -> None:
        """A row for each of the seconds that the function gives, with the ratio to `base`, or to the first of them."""
        self.attempt(" and ".join(names), lambda: self._print(names, function(), base or names[0]))

    def _print(self, names: Sequence[str], seconds: Iterable[float], base: str) -> None:
        for name, value in zip(names, seconds, strict=True):
            self.seconds[name] = value
            ratio = f"{value / self.seconds[base]:.2f}" if base in self.seconds else "-"
            print(f"{name:46}  {value:7.2f}  {ratio:>5}", flush=True)


class Scripted:
    """An engine that works as hard as another and says what the script says."""

    def __init__(self, engine, turns: list[str]):
        self.engine, self.processor, self.tokenizer = engine, engine.processor, engine.tokenizer
        self.turns = [[*self.tokenizer(t)["input_ids"], self.tokenizer.eos_token_id] for t in turns]
        self.max_length, self.session = engine.max_length, engine.session

    def generate(self, prompts, images, limits, done=None, seeds=None):
        said = []
        for ids in prompts:
            main = self.tokenizer.decode(ids).count("<|im_start|>assistant") if self._main(ids) else 0
            said.append(self.turns[main - 1] if main else None)
        lengths = [len(s) if s else limit for s, limit in zip(said, limits, strict=True)]
        samples = self.engine.generate(prompts, images, lengths, seeds=seeds)
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
