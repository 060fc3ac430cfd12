"""
What rollouts cost, on the toy model of `recipes/ask.py`: dispatch, loops, engines, steps.

    python recipes/bench/rollout.py
    python recipes/bench/rollout.py --engine_args '{"gpu_memory_utilization": 0.4}'     # where others use the GPU too
"""

import argparse
import json
import os
from collections.abc import Iterator

import numpy as np
from PIL import Image
from script import ANSWER, CALLS, LONG, REPORT, ROLLOUTS, Rows, Scripted, prompts_of, timed, toy_model
from stock import steps, stock
from transformers import GenerationConfig

from paravt import ParallelRollout
from paravt.chat import Chat
from paravt.engines import load_engine


def group(model: str, size: int = 8, frames: int = 64) -> Iterator[float]:
    """A turn of rollouts that begin alike, and of ones whose last token differs, so that nothing is shared."""
    engine = load_engine(model, batch_size=size)
    engine.config = GenerationConfig(do_sample=False, suppress_tokens=[engine.tokenizer.eos_token_id])
    noise = np.random.default_rng(0).integers(0, 255, (frames, 224, 224, 3), dtype=np.uint8)
    images = [Image.fromarray(frame) for frame in noise]  # 49 tokens each
    message = {"role": "user", "content": [{"type": "image", "image": image} for image in images]}
    ids, images = Chat(engine.processor).prompt([message])
    tails = engine.tokenizer("0 1 2 3 4 5 6 7 8 9")["input_ids"]
    for ends in (tails[:1] * size, sorted(set(tails))[:size]):
        yield timed(lambda ends=ends: engine.generate([ids + [e] for e in ends], [images] * size, [REPORT] * size))


def rollout(folder: str = "paravt-bench", engine_args: dict | None = None) -> None:
    """(1) dispatch, (2) against TRL's own tool loop, (3) engines, (4) a step of the trainer."""
    model = toy_model(os.path.join(folder, "toy-model"))
    engine = load_engine(model, max_pixels=1024, batch_size=ROLLOUTS * 4)
    engine.config = GenerationConfig(do_sample=False, suppress_tokens=[engine.tokenizer.eos_token_id])
    prompts = prompts_of(engine.processor, folder=os.path.join(folder, "toy"))
    parallel = ["no flash\n</think>\n" + "\n".join(CALLS), ANSWER]
    sequential = [*("no flash\n</think>\n" + call for call in CALLS), ANSWER]

    def play(turns, engine=engine, count=ROLLOUTS, report=REPORT, **kwargs) -> list[float]:
        player = ParallelRollout(max_report_length=report, max_pixels=1024, **kwargs)
        return [timed(lambda: player.run(prompts[:count], Scripted(engine, turns), 4000))]

    def start_vllm():
        vllm = load_engine(model, engine="vllm", max_pixels=1024, max_length=4096, engine_args=engine_args)
        vllm.sampling["ignore_eos"] = True
        return vllm

    rows, first = Rows(f"{ROLLOUTS} rollouts, four calls each"), "parallel dispatch"
    at_once, one_by_one = {"max_turns": 1}, {"dispatch": "sequential", "max_turns": 4}
    rows.measure([first], lambda: play(parallel, **at_once))
    rows.measure(["sequential dispatch"], lambda: play(sequential, **one_by_one), first)
    loop = ["TRL's tool loop, sub-agents as tool"]
    rows.measure(loop, lambda: [stock(model, engine, prompts, parallel, folder)], first)
    vllm = rows.attempt("vLLM", start_vllm)
    if vllm is not None:
        rows.measure(["parallel dispatch, vLLM"], lambda: play(parallel, vllm, **at_once), first)
    for name, count, which in (("", ROLLOUTS, engine), ("one rollout, ", 1, engine), ("one rollout, vLLM, ", 1, vllm)):
        if which is None:
            continue
        setting = {"engine": which, "count": count, "report": LONG}
        base = f"{name}reports of {LONG}: parallel"
        rows.measure([base], lambda setting=setting: play(parallel, **setting, **at_once))
        other = [f"{name}reports of {LONG}: sequential"]
        rows.measure(other, lambda setting=setting: play(sequential, **setting, **one_by_one), base)
    turn = "a group's turn, 64 frames: read"
    rows.measure([f"{turn} once", f"{turn} by each"], lambda: group(model))
    both = ["GRPOTrainer, a step", "ParaGRPOTrainer, the same step"]
    rows.measure(both, lambda: steps(model, engine, prompts, parallel, folder))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine_args", type=json.loads, help="more arguments of vLLM, as JSON")
    rollout(**vars(parser.parse_args()))
