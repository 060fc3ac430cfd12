"""
What rollouts cost, on the toy model of `recipes/ask.py`: dispatch, loops, engines, steps.

    python recipes/bench/rollout.py
"""

import os

import numpy as np
from PIL import Image
from script import ANSWER, CALLS, LONG, REPORT, ROLLOUTS, Scripted, prompts_of, timed, toy_model
from stock import steps, stock
from transformers import GenerationConfig

from paravt import ParallelRollout
from paravt.chat import Chat
from paravt.engines import load_engine
from paravt.metrics import table


def group(model: str, size: int = 8, frames: int = 64) -> list[float]:
    """A turn of rollouts that begin alike, and of ones whose last token differs, so that nothing is shared."""
    engine = load_engine(model, batch_size=size)
    engine.config = GenerationConfig(do_sample=False, suppress_tokens=[engine.tokenizer.eos_token_id])
    noise = np.random.default_rng(0).integers(0, 255, (frames, 224, 224, 3), dtype=np.uint8)
    images = [Image.fromarray(frame) for frame in noise]  # 49 tokens each
    message = {"role": "user", "content": [{"type": "image", "image": image} for image in images]}
    ids, images = Chat(engine.processor).prompt([message])
    tails = engine.tokenizer("0 1 2 3 4 5 6 7 8 9")["input_ids"]
    return [
        timed(lambda ends=ends: engine.generate([ids + [e] for e in ends], [images] * size, [REPORT] * size))
        for ends in (tails[:1] * size, sorted(set(tails))[:size])
    ]


def rollout(folder: str = "paravt-bench") -> str:
    """(1) dispatch, (2) against TRL's own tool loop, (3) engines, (4) a step of the trainer."""
    model = toy_model(os.path.join(folder, "toy-model"))
    engine = load_engine(model, max_pixels=1024, batch_size=ROLLOUTS * 4)
    engine.config = GenerationConfig(do_sample=False, suppress_tokens=[engine.tokenizer.eos_token_id])
    prompts = prompts_of(engine.processor, folder=os.path.join(folder, "toy"))
    parallel = ["no flash\n</think>\n" + "\n".join(CALLS), ANSWER]
    sequential = [*("no flash\n</think>\n" + call for call in CALLS), ANSWER]

    def play(turns, engine=engine, count=ROLLOUTS, report=REPORT, **kwargs):
        player = ParallelRollout(max_report_length=report, max_pixels=1024, **kwargs)
        return timed(lambda: player.run(prompts[:count], Scripted(engine, turns), 4000))

    one_by_one, other = {"dispatch": "sequential", "max_turns": 4}, None
    rows, first = [], play(parallel, max_turns=1)

    def add(name: str, seconds: float, base: float) -> None:
        rows.append((name, {"seconds": seconds, "ratio": seconds / base}))

    add("parallel dispatch", first, first)
    add("sequential dispatch", play(sequential, **one_by_one), first)
    add("TRL's tool loop, sub-agents as tool", stock(model, engine, prompts, parallel, folder), first)
    try:
        other = load_engine(model, engine="vllm", max_pixels=1024, max_length=4096)
        other.sampling["ignore_eos"] = True
        add("parallel dispatch, vLLM", play(parallel, other, max_turns=1), first)
    except ImportError:
        print("vLLM is not installed: its row is left out")
    long = (("", ROLLOUTS, engine), ("one rollout, ", 1, engine), ("one rollout, vLLM, ", 1, other))
    for name, count, which in long:
        if which is not None:
            setting = {"engine": which, "count": count, "report": LONG}
            base = play(parallel, **setting, max_turns=1)
            add(f"{name}reports of {LONG}: parallel", base, base)
            add(f"{name}reports of {LONG}: sequential", play(sequential, **setting, **one_by_one), base)
    once, each = group(model)
    add("a group's turn, 64 frames: read once", once, once)
    add("a group's turn, 64 frames: read by each", each, once)
    ours, theirs = steps(model, engine, prompts, parallel, folder)
    add("GRPOTrainer, a step", theirs, theirs)
    add("ParaGRPOTrainer, the same step", ours, theirs)
    return table(f"{ROLLOUTS} rollouts, four calls each", rows, ["seconds", "ratio"])


if __name__ == "__main__":
    print(rollout())
