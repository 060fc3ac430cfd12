"""
What the turns of a group cost where transformers generates: what was read in one turn is kept for the next, or not.

    python recipes/bench/turns.py [--folder paravt-bench]

The model is that of `recipes/bench/step.py`, of 8 M parameters. A group's prompt has 32 frames of 224 x 224 pixels;
its turns have the length of two short calls, and responses of about four times that follow. As in training, the frozen
tower sees each frame once: it is the language model that reads again. Seconds are those of one processor core.
"""

import argparse
import os
import random
import statistics
import time

import torch
from step import PIXELS, make_model, make_rows
from transformers import AutoModelForImageTextToText, AutoProcessor, GenerationConfig
from trl import prepare_multimodal_messages

from paravt.chat import Chat, prepare_processor
from paravt.engines.features import Tower
from paravt.engines.transformers import CACHE_LIMIT, TransformersEngine
from paravt.metrics import table


FRAMES, GROUP, TURN, RESPONSES, ROUNDS = 32, 8, 64, 256, 5


def play(engine: TransformersEngine, tower: Tower, ids: list[int], images: list, words: list[int]) -> list[float]:
    """Processor seconds of each of three turns of a group, the first of which reads the prompt."""
    draw, seconds = random.Random(0), []
    prompts = [ids] * GROUP
    with tower.remembering(), engine.session():
        for turn in range(3):
            seeds = [turn * GROUP + row for row in range(GROUP)]
            start = time.process_time()
            samples = engine.generate(prompts, [images] * GROUP, [TURN] * GROUP, lambda i, sample: True, seeds)
            seconds.append(time.process_time() - start)
            lengths = [round(RESPONSES * draw.uniform(0.75, 1.25)) for _ in samples]
            responses = [draw.choices(words, k=length) for length in lengths]
            prompts = [p + s.ids + r for p, s, r in zip(prompts, samples, responses, strict=True)]
    tower.forget()
    return seconds


def turns(folder: str) -> None:
    torch.set_num_threads(1)
    path = make_model(os.path.join(folder, "step-model"))
    processor = prepare_processor(AutoProcessor.from_pretrained(path), PIXELS)
    model = AutoModelForImageTextToText.from_pretrained(path).requires_grad_(False).eval()
    row = make_rows(FRAMES, GROUP)[0]
    ids, images = Chat(processor).prompt(prepare_multimodal_messages(row["prompt"], images=row["images"]))
    words = processor.tokenizer("What does the speaker do after the second interview?")["input_ids"]
    config = GenerationConfig(do_sample=True, suppress_tokens=[processor.tokenizer.eos_token_id])
    tower = Tower(model, processor.image_processor)
    kinds = {"kept": CACHE_LIMIT, "read again": 0}
    engines = {name: TransformersEngine(model, processor, config, cache_limit=limit) for name, limit in kinds.items()}
    measured = {name: [] for name in kinds}
    for _ in range(ROUNDS + 1):
        for name, engine in engines.items():
            measured[name].append(play(engine, tower, ids, images, words))
    columns = ("first turn", "second", "third")
    medians = [
        (name, dict(zip(columns, map(statistics.median, zip(*rounds[1:], strict=True)), strict=True)))
        for name, rounds in measured.items()
    ]
    print(table(f"prompt of {len(ids)} tokens, seconds", medians, columns))
    kept, again = (row["second"] + row["third"] for _, row in medians)
    print(f"second and third turn: {again / kept:.1f}x faster")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default="paravt-bench")
    turns(**vars(parser.parse_args()))
