"""Rows of other people's files: read, checked, counted by what is wrong with them, and given one shape."""

import glob
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence

from datasets import Dataset, load_dataset

from .answers import QUESTION_TYPES, extract_choice, parse_interval
from .video import VideoError, probe_many


OPTION = re.compile(r"^\s*\(?([A-Z])[).:]\s*(\S.*?)\s*$", re.MULTILINE)


class RowError(ValueError):
    """What is wrong with a row."""


def read_rows(name: str, split: str = "train") -> list[dict]:
    """Rows of a parquet, jsonl or json file, of all such files in a folder, or of a data set on the hub."""
    if os.path.isdir(name):
        paths = sorted(
            p
            for end in ("parquet", "jsonl", "json")
            for p in glob.glob(os.path.join(name, f"**/*.{end}"), recursive=True)
        )
        if not paths:
            raise ValueError(f"the folder {name!r} has no .parquet, .jsonl or .json file")
        return [row for path in paths for row in read_rows(path)]
    if name.endswith(".parquet") and os.path.exists(name):
        import pyarrow.parquet

        return pyarrow.parquet.read_table(name).to_pylist()
    if name.endswith((".jsonl", ".json")) and os.path.exists(name):
        with open(name, encoding="utf-8") as file:
            text = file.read()
        return (
            json.loads(text)
            if text.lstrip().startswith("[")
            else [json.loads(line) for line in text.splitlines() if line.strip()]
        )
    if name.endswith((".parquet", ".jsonl", ".json")):
        raise ValueError(f"no file {name!r}")
    return load_dataset(name, split=split).to_list()


def load_rows(
    name: str,
    split: str = "train",
    *,
    video_root: str | None = None,
    max_bad: float = 0.05,
    supervised: bool = False,
    report: Callable[[str], None] = print,
) -> Dataset:
    """
    A data set of [`FrameBudgetCollator`] rows, from ParaVT-shaped rows.

    Args:
        name (`str`): File, folder or hub id.
        split (`str`): Split of a hub data set.
        video_root (`str`, *optional*): Folder that relative paths of videos start from.
        max_bad (`float`): Share of bad rows up to which the good ones are used.
        supervised (`bool`): Whether rows are conversations to imitate rather than questions.
        report: Receives the summary of what was left out.

    Raises:
        `ValueError`: if more rows are bad, or none is good; it says how many by cause.
    """
    raw, good, causes = read_rows(name, split), [], Counter()
    for number, row in enumerate(raw):
        try:
            good.append(normalise(row, f"{name}/{number}", video_root, supervised))
        except RowError as error:
            causes[str(error)] += 1
    found = probe_many([path for row in good for path in row["videos"]], progress=True)
    kept = []
    for row in good:
        errors = [found[path] for path in row["videos"] if isinstance(found[path], VideoError)]
        late = row.get("question_type") == "tvg" and not errors and _start(row) >= found[row["videos"][0]].duration
        if errors:
            causes[f"video {errors[0].reason.split(' (')[0].split(' as ')[0]}"] += 1
        elif late:
            causes["the interval starts after the end of the video"] += 1
        else:
            kept.append(row)
    bad = len(raw) - len(kept)
    summary = "; ".join(f"{count} x {cause}" for cause, count in causes.most_common())
    if bad:
        report(f"{name}: {bad} of {len(raw)} rows left out: {summary}")
    if not kept or bad > max_bad * len(raw):
        raise ValueError(f"{name}: {bad} of {len(raw)} rows are bad, more than the {max_bad:.0%} allowed: {summary}")
    return Dataset.from_list(kept)


def normalise(row: dict, key: str, video_root: str | None = None, supervised: bool = False) -> dict:
    """One row in the common shape. Raises [`RowError`]."""
    messages = _json(row.get("messages" if supervised else "prompt"))
    if not isinstance(messages, (list, tuple)) or not len(messages):
        raise RowError("no " + ("messages" if supervised else "prompt"))
    inline: list[str] = []
    messages = [_message(m, inline) for m in messages]
    listed = row.get("videos") if row.get("videos") is not None else []
    videos = [v.get("video") if isinstance(v, dict) else v for v in listed] or inline
    if not len(videos) or not all(isinstance(v, str) and v for v in videos):
        raise RowError("no videos")
    videos = [v if v.startswith("file://") or os.path.isabs(v) else os.path.join(video_root or "", v) for v in videos]
    first = next((i for i, m in enumerate(messages) if m["role"] == "assistant"), len(messages))
    common = {"key": str(row.get("id") or key), "prompt": messages[:first], "videos": videos}
    if not any(m["role"] == "user" for m in common["prompt"]):
        raise RowError("no user message")
    if supervised:
        if first == len(messages) or messages[-1]["role"] != "assistant":
            raise RowError("no assistant message at the end")
        return {**common, "completion": messages[first:]}
    info = _json(row.get("extra_info"))
    info = {**row, **info} if isinstance(info, dict) else row
    kind, truth, options = info.get("question_type"), info.get("answer"), info.get("options")
    if kind not in QUESTION_TYPES:
        raise RowError(f"question_type {kind!r} is none of {', '.join(QUESTION_TYPES)}")
    if truth is None or not str(truth).strip():
        raise RowError("no answer")
    if kind == "mcq":
        question = "\n".join(m["content"] for m in common["prompt"] if m["role"] == "user")
        options = list(options) if options is not None else [text for _, text in OPTION.findall(question)] or None
        labels = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: len(options) if options else 26]
        if extract_choice(str(truth), labels, options) is None:
            raise RowError("the answer is none of the choices")
    if kind == "tvg":
        interval = parse_interval(truth) if isinstance(truth, str) else tuple(map(float, truth))
        if not interval or len(interval) != 2 or interval[0] >= interval[1]:
            raise RowError("the answer is no interval")
        truth = f"{interval[0]} - {interval[1]}"
    return {**common, "answer": str(truth), "question_type": kind, "options": options if kind == "mcq" else None}


def _json(value):
    """JSON text as what it says; anything else as it is."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            raise RowError("not valid JSON") from None
    return value


def _message(message: dict, videos: list[str]) -> dict:
    """A message with text content, videos in it turned into `<video>` and collected; tool calls into their text."""
    if not isinstance(message, dict) or message.get("role") not in ("system", "user", "assistant", "tool"):
        raise RowError("a message without a known role")
    content = message.get("content")
    parts = [{"type": "text", "text": content or ""}] if content is None or isinstance(content, str) else content
    text = ""
    for part in parts:
        if part.get("type") in ("video", "video_url"):
            source = part.get("video_url") or part.get("video")
            videos.append(source["url"] if isinstance(source, dict) else source)
            text += "<video>"
        elif part.get("type") in ("image", "image_url"):
            raise RowError("image parts are not supported")
        else:
            text += part.get("text") or ""
    calls: Sequence[dict] = message.get("tool_calls") or []
    for call in calls:
        function = {k: v for k, v in (call.get("function") or call).items() if k in ("name", "arguments")}
        arguments = _json(function.get("arguments"))
        function["arguments"] = {k: v for k, v in (arguments or {}).items() if v is not None}  # parquet fills in None
        text += f"{chr(10) if text else ''}<tool_call>\n{json.dumps(function, ensure_ascii=False)}\n</tool_call>"
    return {"role": message["role"], "content": text}


def _start(row: dict) -> float:
    return parse_interval(row["answer"])[0]
