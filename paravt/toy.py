"""A world small enough for a laptop: grey videos with a coloured flash, questions about it, and a tiny Qwen3-VL.

A video lasts 64 s; for 4 s one of six colours covers the picture. 32 or 64 overview frames show the flash, 4 mostly do
not; four crops of 16 s find it. Videos are H.264 files and the model has the architecture of the real one: inputs, not
mocks.
"""

import os
import random
import re
import zlib
from collections.abc import Sequence
from fractions import Fraction
from importlib.resources import files

import av
import numpy as np

from . import prompts, video
from .chat import prepare_processor
from .parser import ToolCall, render_tool_call
from .tools import resolve


COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 200, 60),
    "blue": (50, 70, 230),
    "yellow": (230, 220, 50),
    "purple": (170, 50, 190),
    "white": (250, 250, 250),
}
DURATION, FPS, SIZE, FLASH, WINDOW = 64, 4, 32, 4, 16  # seconds, frames per second, pixels, seconds, seconds
FRAME_PIXELS = SIZE * SIZE


def write_video(path: str, colour: str, start: float) -> None:
    """Writes a grey H.264 video with a flash of `colour` from `start`, in seconds."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    noise = np.random.default_rng(zlib.crc32(f"{colour} {start}".encode()))
    part = f"{path}.{os.getpid()}"  # ranks may write the same video at once, and a killed run leaves no half one
    with av.open(part, "w", format="mp4") as container:
        # Without the last option x264's fast paths differ from processor to processor, and even from run to run.
        options = {"preset": "veryfast", "crf": "18", "x264-params": "cpu-independent=1"}
        stream = container.add_stream("libx264", rate=FPS, options=options)
        stream.width = stream.height = SIZE
        stream.pix_fmt, stream.codec_context.thread_count = "yuv420p", 1
        stream.codec_context.time_base = Fraction(1, FPS)
        for i in range(DURATION * FPS):
            shown = COLOURS[colour] if start <= i / FPS < start + FLASH else (128, 128, 128)
            picture = np.clip(np.array(shown) + noise.integers(-6, 7, (SIZE, SIZE, 1)), 0, 255).astype(np.uint8)
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format="yuv420p")
            frame.pts = i
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    os.replace(part, path)


def make_rows(folder: str, count: int, seed: int = 0, kinds: Sequence[str] = ("oe", "mcq", "tvg")) -> list[dict]:
    """Videos with one question each, in the shape that `data.load_rows` gives, with the truth beside it."""
    from tqdm import tqdm

    draw, rows = random.Random(seed), []
    for i in tqdm(range(count), "Toy videos", leave=False):
        colour, start = draw.choice(sorted(COLOURS)), draw.randrange(0, DURATION, FLASH)
        kind, options = kinds[i % len(kinds)], None
        path = os.path.join(folder, f"{seed}-{i:04d}", "clip.mp4")
        if not os.path.exists(path):
            write_video(path, colour, start)
        if kind == "tvg":
            question, answer = (
                "When is the flash? Answer with its start and end in seconds.",
                f"from {start} to {start + FLASH}",
            )
        else:
            question, answer = "Which colour is the flash?", colour
        if kind == "mcq":
            options = draw.sample([c for c in sorted(COLOURS) if c != colour], 3) + [colour]
            draw.shuffle(options)
            question += "".join(f"\n{label}. {option}" for label, option in zip("ABCD", options, strict=True))
            answer = "ABCD"[options.index(colour)]
        rows.append(
            {
                "prompt": [{"role": "user", "content": "<video>" + question}],
                "videos": [path],
                "answer": answer,
                "question_type": kind,
                "options": options,
                "key": f"{seed}-{i}",
                "truth": {"colour": colour, "start": start},
                "said": answer if kind == "tvg" else colour,  # an option's text is as good as its letter
            }
        )
    return rows


# ------------------------------------------------------------------------------------------------- oracle trajectories


def report(truth: dict, start: float, end: float) -> str:
    """What a good sub-agent says of a window."""
    seen = start <= truth["start"] < end
    return f"It is {truth['colour']} from {truth['start']} to {truth['start'] + FLASH}" if seen else "no flash"


def shows(row: dict, budget: int) -> bool:
    """Whether an overview of so many frames shows the flash."""
    start, times = row["truth"]["start"], video.choose_times(row["videos"][0], budget)
    return any(start <= time < start + FLASH for time in times)


def supervised_rows(
    rows: list[dict],
    budgets: Sequence[int] = (4, 8, 16, 32, 64),
    *,
    faults: float = 0.0,
    skips: float = 0.0,
    checks: float = 0.0,
    seed: int = 0,
) -> list[dict]:
    """
    Oracle trajectories for the rows, and sub-agent reports for their windows, for `SupervisedCollator`.

    Args:
        rows (`list[dict]`): Rows of [`make_rows`].
        budgets (`Sequence[int]`): Overview sizes, drawn uniformly.
        faults (`float`): Share of closing tags that are missing.
        skips (`float`): Share of trajectories that guess where calls are needed.
        checks (`float`): Share of trajectories that call although the overview suffices.
        seed (`int`): Seed of the draws.
    """
    draw, out = random.Random(seed), []
    for row in rows:
        truth, budget = row["truth"], draw.choice(list(budgets))
        seen = shows(row, budget)
        shown = f"It is {truth['colour']} from {truth['start']} to {truth['start'] + FLASH}"
        final = f"<think>\n{shown}\n</think>\n<answer>{row['said']}</answer>"
        if seen and draw.random() >= checks:
            turns = [("assistant", final)]
        elif not seen and draw.random() < skips:
            guess = draw.choice([r["said"] for r in rows if r["question_type"] == row["question_type"]])
            turns = [("assistant", f"<think>\nno flash\n</think>\n<answer>{guess}</answer>")]
        else:
            windows = [(s, s + WINDOW) for s in range(0, DURATION, WINDOW)]
            calls = "\n".join(
                render_tool_call(
                    ToolCall("crop_video", {"video_path": "clip.mp4", "start_time": float(s), "end_time": float(e)})
                )
                for s, e in windows
            )
            turns = [("assistant", f"<think>\n{shown if seen else 'no flash'}\n</think>\n{calls}")]
            turns += [("tool", f"Seconds {s:.1f} to {e:.1f}: {report(truth, s, e)}") for s, e in windows]
            turns.append(("assistant", final))
        turns = _drop_tags(turns, faults, draw)
        messages = [{"role": role, "content": text} for role, text in turns]
        messages = _with_last_turn_notice(messages)
        out.append({**row, "window": None, "window_times": None, "frame_budget": budget, "completion": messages})
        start = draw.randrange(0, DURATION, WINDOW) if draw.random() < 0.5 else truth["start"] // WINDOW * WINDOW
        out.append(subagent_row(row, float(start), float(start + WINDOW)))
    return out


def _drop_tags(turns: list[tuple[str, str]], share: float, draw: random.Random) -> list[tuple[str, str]]:
    """Turns with a share of their closing tags gone, up to the first turn that could not go on."""
    kept = []
    for role, text in turns:
        pieces = re.split(r"(</think>\n|</tool_call>|</answer>)", text)
        gone = [piece for piece in pieces[1::2] if role == "assistant" and draw.random() < share]
        for piece in gone:
            head, _, tail = text.rpartition(piece)
            text = head + tail
        kept.append((role, text))
        if any(piece != "</tool_call>" for piece in gone):
            break
    return kept


def curriculum(rows: list[dict], batch_size: int) -> list[dict]:
    """Rows in an order that a tiny model learns fast: reports alone, then two batches of turns to one of reports."""
    rows = random.Random(0).sample(rows, len(rows))
    turns, reports = ([r for r in rows if (r["window"] is not None) == is_report] for is_report in (False, True))
    turns, reports = (
        [kind[i : i + batch_size] for i in range(0, len(kind) - batch_size + 1, batch_size)]
        for kind in (turns, reports)
    )
    ordered, reports = reports[:60], reports[60:]
    for number, batch in enumerate(turns):
        ordered += [batch] + ([reports.pop()] if number % 2 and reports else [])
    return [row for batch in ordered for row in batch]


def subagent_row(row: dict, start: float, end: float) -> dict:
    """A sub-agent's conversation over one window of a row's video."""
    call = ToolCall("crop_video", {"start_time": start, "end_time": end})
    crop = resolve(call, row["videos"])
    completion = [{"role": "assistant", "content": report(row["truth"], start, end)}]
    # Every row has every column: a `Dataset` takes its columns from the first row, and drops the others'.
    window = {"window": [crop.start, crop.end], "window_times": list(crop.times), "frame_budget": None}
    return {**row, **window, "completion": completion}


def _with_last_turn_notice(messages: list[dict]) -> list[dict]:
    """The toy agent may call in one turn only, so its last tool response says that no calls are left."""
    for message, following in zip(messages, messages[1:], strict=False):
        if message["role"] == "tool" and following["role"] == "assistant":
            message["content"] += prompts.LAST_TURN
    return messages


# -------------------------------------------------------------------------------------------------------- tiny model


def make_processor(texts: Sequence[str]):
    """A Qwen3-VL processor whose byte-level BPE is trained on `texts`."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    tokenizer = Tokenizer(models.BPE())
    # Words may hold punctuation, so that a tool call is 15 tokens and not 45. Angle brackets stand alone: as for the
    # real model, `<answer>` is several tokens.
    words = pre_tokenizers.Split(Regex(r"\s?[^\s<>]+|\s?<|>|\s"), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        "<|vision_start|>",
        "<|vision_end|>",
        "<|image_pad|>",
        "<|video_pad|>",
    ]
    plain = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1500, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in plain])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
        additional_special_tokens=special,
    )
    template = files("trl").joinpath("chat_templates/qwen3_vl.jinja").read_text()
    sizes = {"patch_size": 16, "merge_size": 2, "temporal_patch_size": 2}
    processor = Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(**sizes),
        tokenizer=fast,
        video_processor=Qwen3VLVideoProcessor(**sizes),
        chat_template=template,
    )
    return prepare_processor(processor, FRAME_PIXELS)


def make_model(processor, seed: int = 0):
    """A Qwen3-VL of about 0.6 M random parameters."""
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration, set_seed

    set_seed(seed)
    token = processor.tokenizer.convert_tokens_to_ids
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": len(processor.tokenizer), "hidden_size": 128, "intermediate_size": 384,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
            "max_position_embeddings": 8192, "initializer_range": 0.07,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 10000.0, "mrope_section": [8, 4, 4], "mrope_interleaved": True,
            },
            "tie_word_embeddings": True,
        },
        vision_config={
            "depth": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 128,
            "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2, "deepstack_visual_indexes": [0],
            "num_position_embeddings": 16, "initializer_range": 0.07,
        },
        image_token_id=token("<|image_pad|>"), video_token_id=token("<|video_pad|>"),
        vision_start_token_id=token("<|vision_start|>"), vision_end_token_id=token("<|vision_end|>"),
        tie_word_embeddings=True,
    )  # fmt: skip
    model = Qwen3VLForConditionalGeneration(config)
    model.generation_config.eos_token_id = processor.tokenizer.eos_token_id
    model.generation_config.pad_token_id = processor.tokenizer.pad_token_id
    return model


def corpus(rows: list[dict]) -> list[str]:
    """The texts that the toy tokenizer is trained on."""
    texts = [prompts.system_prompt(), prompts.SUBAGENT_INSTRUCTIONS] * 20
    for row in rows:
        texts += [m["content"] for m in [*row["prompt"], *row.get("completion", [])]]
        texts += [f"<{t / 2:.1f} seconds>" for t in range(0, 2 * DURATION, 3)]
        texts += [f"Video clip.mp4, {DURATION:.1f} seconds.\n", "Seconds 0.0 to 16.0 of the video.\n", "\nQuestion: "]
    return texts
