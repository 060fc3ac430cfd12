"""
What a training step costs, ours against TRL's, on the same finished rollouts in turn: time, memory, tower, tokens.

    python recipes/bench/step.py [--quick] [--folder paravt-bench]

The model is a Qwen3-VL with random weights and the proportions of Qwen3-VL-2B: its tower costs a picture's token about
what its language model does. The tower is frozen. Frames have 224 x 224 pixels; noise costs what videos do.

Seconds are those of one processor core, which other work on the machine stretches least, and ratios are taken within
rounds. A loss pass is forward and backward on one micro-batch, a group; ours includes the tower. A step is the
reference pass, the loss pass and the optimiser; in it our tower runs in the first pass only. Memory is what the
process takes over what it had before. FLOPs are those of the tokens that a pass is about, with causal attention.
"""

import argparse
import ctypes
import gc
import os
import random
import statistics
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from datasets import Dataset
from PIL import Image
from transformers import AutoProcessor, Qwen3VLConfig, Qwen3VLForConditionalGeneration, set_seed
from trl import GRPOConfig, GRPOTrainer

from paravt import ParaGRPOConfig, ParaGRPOTrainer, prompts, toy
from paravt.chat import Chat, prepare_processor
from paravt.metrics import table


SIDE, PIXELS = 224, 224 * 224
REFERENCE = (32, 8, 300)  # frames, rollouts of a group, tokens of a completion
CASES = [
    *((frames, 8, 300) for frames in (4, 8, 16, 64)),
    *((32, size, 300) for size in (4, 16)),
    *((32, 8, length) for length in (64, 1024)),
    (4, 4, 1024), (4, 16, 1024), (4, 4, 64), (64, 4, 64),
]  # fmt: skip
QUICK = [(4, 4, 64)]


@dataclass
class Measured:
    """Seconds and bytes of one trainer in one case, a value a round, and what it computes in a loss pass."""

    loss: list[float] = field(default_factory=list)
    step: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    tokens: int = 0
    pictures: int = 0


# --------------------------------------------------------------------------------------------------------------- model


def make_model(folder: str) -> str:
    """A Qwen3-VL of 8 M random parameters and its processor on disk."""
    if os.path.exists(os.path.join(folder, "processor_config.json")):
        return folder
    processor = toy.make_processor([prompts.system_prompt(), *(f"<{t / 2:.1f} seconds>" for t in range(7200))])
    token = processor.tokenizer.convert_tokens_to_ids
    rope = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [12, 10, 10], "mrope_interleaved": True}
    set_seed(0)
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": len(processor.tokenizer), "hidden_size": 384, "intermediate_size": 1152,
            "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 64,
            "max_position_embeddings": 32768, "rope_parameters": rope, "tie_word_embeddings": True,
        },
        vision_config={
            "depth": 2, "hidden_size": 192, "intermediate_size": 768, "num_heads": 3, "out_hidden_size": 384,
            "deepstack_visual_indexes": [0],
        },
        image_token_id=token("<|image_pad|>"), video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"), vision_end_token_id=token("<|vision_end|>"),
        tie_word_embeddings=True,
    )  # fmt: skip
    Qwen3VLForConditionalGeneration(config).save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def flops(model, tokens: int, pairs: int, frames: int, backward: bool = True) -> float:
    """FLOPs of a pass: of its tokens, of the pairs that see each other, and of the frozen tower."""
    text, vision = model.config.text_config, model.config.vision_config
    layers = sum(p.numel() for p in model.base_model.language_model.layers.parameters())
    head = text.vocab_size * text.hidden_size
    width = text.num_attention_heads * text.head_dim * text.num_hidden_layers
    language = 2 * (layers + head) * tokens + 4 * width * pairs
    patches = (SIDE // vision.patch_size) ** 2
    visual = model.base_model.visual
    blocks = sum(p.numel() for part in (visual.patch_embed, visual.blocks) for p in part.parameters())
    mergers = sum(p.numel() for part in (visual.merger, visual.deepstack_merger_list) for p in part.parameters())
    tower = 2 * (blocks * patches + mergers * patches // 4) + 4 * vision.hidden_size * vision.depth * patches**2
    return language * (3 if backward else 1) + tower * frames


# ------------------------------------------------------------------------------------------------------------ rollouts


def make_rows(frames: int, size: int) -> list[dict]:
    """A group: a prompt of timed frames of noise, as the collator would make it, `size` times."""
    noise = np.random.default_rng(0).integers(0, 255, (frames, SIDE, SIDE, 3), dtype=np.uint8)
    images = [Image.fromarray(frame) for frame in noise]
    for number, image in enumerate(images):
        image.time = number * 600 / frames
    parts = [prompts.video_header("clip.mp4", 600.0), *prompts.frame_parts(images)]
    content = [{"type": "image"} if part["type"] == "image" else part for part in parts]
    content.append({"type": "text", "text": "\nWhat does the speaker do after the second interview?"})
    messages = [{"role": "system", "content": prompts.system_prompt()}, {"role": "user", "content": content}]
    return [{"prompt": messages, "images": images} for _ in range(size)]


def finished(length: int):
    """A rollout function whose rollouts are finished: they have about `length` tokens."""

    def rollout(messages, trainer):
        draw, chat = random.Random(0), Chat(trainer.processing_class)
        prompt = chat.prompt(messages[0])[0]
        lengths = [round(length * draw.uniform(0.75, 1.25)) for _ in messages]
        said = [[draw.randrange(20, len(chat.tokenizer)) for _ in range(count)] for count in lengths]
        forbidden = set(chat.tokenizer.all_special_ids)
        said = [[20 if token in forbidden else token for token in ids] for ids in said]
        return {"prompt_ids": [prompt] * len(messages), "completion_ids": said, "logprobs": None}

    return rollout


# ------------------------------------------------------------------------------------------------------------ trainers


class Side:
    """One of the two trainers in one case."""

    def __init__(self, kind, model: str, rows: list[dict], length: int, folder: str):
        config = GRPOConfig if kind is GRPOTrainer else ParaGRPOConfig
        own = {} if kind is GRPOTrainer else {"anchor_weight": 0.0}
        arguments = config(
            folder,
            per_device_train_batch_size=len(rows),
            num_generations=len(rows),
            report_to="none",
            beta=0.01,
            max_completion_length=2 * length,
            bf16=False,
            use_cpu=True,
            gradient_checkpointing=False,
            save_strategy="no",
            **own,
        )
        self.trainer = trainer = kind(
            model,
            lambda completion_ids, **columns: [float(ids[-1]) for ids in completion_ids],
            arguments,
            train_dataset=Dataset.from_list([{"prompt": "x"}] * len(rows)),
            rollout_func=finished(length),
            processing_class=prepare_processor(AutoProcessor.from_pretrained(model), PIXELS),
        )
        trainer.model.base_model.visual.requires_grad_(False)
        trainer.model.train()
        trainer.current_gradient_accumulation_steps = 1
        self.packs = kind is ParaGRPOTrainer
        self.optimizer = torch.optim.AdamW([p for p in trainer.model.parameters() if p.requires_grad], lr=1e-6)
        self.measured = Measured()
        for part in (trainer.model, trainer.ref_model):
            part.base_model.visual.register_forward_pre_hook(self._count_pictures, with_kwargs=True)
        trainer.model.base_model.language_model.register_forward_pre_hook(self._count_tokens, with_kwargs=True)
        self.batch = trainer._generate_and_score_completions([dict(row) for row in rows])

    def _count_pictures(self, module, args, kwargs):
        self.measured.pictures += len(kwargs["grid_thw"])

    def _count_tokens(self, module, args, kwargs):
        self.measured.tokens = kwargs["inputs_embeds"].shape[:2].numel()

    def forget(self) -> None:
        """As at the start of a step: pictures are there, but nothing of them is seen."""
        if self.packs:
            self.trainer._tower._seen.clear()
            self.trainer._tower.look([self.images])

    def reference(self) -> None:
        batch, keys = self.batch, ("pixel_values", "image_grid_thw", "num_images", "mm_token_type_ids")
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        if self.packs:
            self.trainer._rows = batch["rows"].tolist()
        with torch.no_grad():
            self.trainer._get_per_token_logps_and_entropies(
                self.trainer.ref_model,
                ids,
                mask,
                batch["completion_ids"].shape[1],
                batch_size=len(ids),
                **{key: batch[key] for key in keys if key in batch},
            )

    def loss(self) -> None:
        self.trainer.compute_loss(self.trainer.model, self.batch).backward()

    def optimise(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def round(self) -> None:
        """Measures a loss pass, and a step."""
        self.forget()
        self.measured.pictures = 0
        seconds, memory = peak(self.loss)
        self.measured.loss.append(seconds)
        self.measured.memory.append(memory)
        self.optimise()
        pictures = self.measured.pictures
        self.forget()
        start = time.process_time()
        for part in (self.reference, self.loss, self.optimise):
            part()
        self.measured.step.append(time.process_time() - start)
        self.measured.pictures = pictures


def peak(function) -> tuple[float, float]:
    """Seconds of a call, and bytes that the process had at most over what it had before."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak begins anew
    before, start = _status("VmRSS"), time.process_time()
    function()
    return time.process_time() - start, _status("VmHWM") - before


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name + ":"))


# ----------------------------------------------------------------------------------------------------------- the bench


def measure(case: tuple[int, int, int], model: str, folder: str, rounds: int) -> dict[str, float]:
    """Costs of both trainers in one case, and their ratios."""
    frames, size, length = case
    rows = make_rows(frames, size)
    stock, ours = (Side(kind, model, rows, length, folder) for kind in (GRPOTrainer, ParaGRPOTrainer))
    ours.images = rows[0]["images"]
    for _ in range(rounds):
        for side in (stock, ours):
            side.round()
    prompt, lengths = ours.batch["prompt_mask"][0].sum().item(), ours.batch["completion_mask"].sum(1).tolist()
    whole = ours.trainer.model
    padded = sum(flops(whole, prompt + n, (prompt + n) ** 2 // 2, frames) for n in lengths)
    pairs = prompt**2 // 2 + sum(prompt * n + n * n // 2 for n in lengths)
    packed = flops(whole, prompt + sum(lengths), pairs, frames)
    a, b = stock.measured, ours.measured
    ratio = {name: _ratio(getattr(a, name), getattr(b, name)) for name in ("loss", "step", "memory")}
    return {
        "frames": frames, "rollouts": size, "length": length,
        "tokens": a.tokens, "tokens, ours": b.tokens, "pictures": a.pictures, "pictures, ours": b.pictures,
        "loss pass, s": statistics.median(a.loss), "ours": statistics.median(b.loss), "faster": ratio["loss"],
        "FLOPs": padded / packed, "of FLOPs": ratio["loss"] / (padded / packed),
        "memory, MiB": statistics.median(a.memory) / 2**20, "MiB, ours": statistics.median(b.memory) / 2**20,
        "less memory": ratio["memory"],
        "step, s": statistics.median(a.step), "step, ours": statistics.median(b.step), "step faster": ratio["step"],
    }  # fmt: skip


def _ratio(stock: list[float], ours: list[float]) -> float:
    """Median of the ratios within rounds: a round's two sides see the same machine."""
    return statistics.median(a / b for a, b in zip(stock, ours, strict=True))


def draw(results: list[dict[str, float]], path: str) -> None:
    """Time and memory of a loss pass against the size of groups and the length of completions."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    frames, size, length = REFERENCE
    groups = sorted(
        (r for r in results if (r["frames"], r["length"]) == (frames, length)), key=lambda r: r["rollouts"]
    )
    lengths = sorted((r for r in results if (r["frames"], r["rollouts"]) == (frames, size)), key=lambda r: r["length"])
    figure, axes = pyplot.subplots(2, 2, figsize=(8, 6))
    shown = (("seconds of a loss pass", "loss pass, s", "ours"), ("MiB", "memory, MiB", "MiB, ours"))
    for row, (label, theirs, ours) in zip(axes, shown, strict=True):
        for axis, points, name in zip(row, (groups, lengths), ("rollouts", "length"), strict=True):
            x = [point[name] for point in points]
            axis.plot(x, [point[theirs] for point in points], "s--", color="#D55E00", label="TRL")
            axis.plot(x, [point[ours] for point in points], "o-", color="#0072B2", label="packed")
            axis.set_xlabel({"rollouts": "rollouts of a group", "length": "tokens of a completion"}[name])
            axis.set_ylabel(label)
            axis.set_xlim(0)
            axis.set_ylim(0)
    axes[0][0].legend(frameon=False)
    figure.suptitle(f"{frames} frames of 224 x 224, {size} rollouts and {length} tokens where not varied")
    figure.tight_layout()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    figure.savefig(path, dpi=120)


def main(quick: bool, folder: str) -> None:
    torch.set_num_threads(1)
    model = make_model(os.path.join(folder, "step-model"))
    results = []
    for case in [*(QUICK if quick else CASES), REFERENCE]:
        results.append(measure(case, model, os.path.join(folder, "step"), rounds=2))
        print("  ".join(f"{name} {value:.4g}" for name, value in results[-1].items()), flush=True)
    columns = list(results[0])
    print(table("case", [(str(i + 1), result) for i, result in enumerate(results)], columns))
    if not quick:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "figures", "step.png")
        draw(results, path)
        print(f"figure: {path}")
    last = results[-1]
    print(f"step: {last['step faster']:.1f}x faster; reference, loss, backward and optimiser")
    print(f"loss pass: {last['faster']:.1f}x faster, {last['less memory']:.1f}x less memory")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two cases, no figure")
    parser.add_argument("--folder", default="paravt-bench", help="where the model is kept")
    arguments = parser.parse_args()
    main(arguments.quick, arguments.folder)
