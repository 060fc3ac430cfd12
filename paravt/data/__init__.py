"""Rows of other people's files: read, checked, counted by what is wrong with them, and given one shape."""

import ast
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from datasets import Dataset

from ..answers import QUESTION_TYPES
from ..answers.choices import ALPHABET, extract_choice, option_texts
from ..answers.intervals import read_windows, write_windows
from ..video import VideoError, probe_many
from .files import SourceRow, read_rows


OPTION = re.compile(r"^\s*\(?([A-Z])[).:]\s*(\S.*?)\s*$", re.MULTILINE)
ROLES = ("system", "user", "assistant", "tool")
MAX_CAUSES = 12  # that a summary lists


class RowError(ValueError):
    """What is wrong with a row."""


@dataclass
class BadRows:
    """What is wrong with rows, counted by cause, with the place of the first of each."""

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, cause: str, place: str) -> None:
        self.counts[cause] = self.counts.get(cause, 0) + 1
        self.first.setdefault(cause, place)

    def __len__(self) -> int:
        return sum(self.counts.values())

    def __str__(self) -> str:
        causes = sorted(self.counts, key=self.counts.get, reverse=True)
        said = [f"{self.counts[cause]} x {cause} (first: {self.first[cause]})" for cause in causes[:MAX_CAUSES]]
        return "; ".join([*said, *([f"{len(causes) - MAX_CAUSES} more causes"] if len(causes) > MAX_CAUSES else [])])


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
        split (`str`): Split of a hub data set, or of a folder whose files name splits.
        video_root (`str`, *optional*): Folder that relative paths of videos start from.
        max_bad (`float`): Share of bad rows up to which the good ones are used.
        supervised (`bool`): Whether rows are conversations to imitate rather than questions.
        report: Receives the summary of what was left out.

    Raises:
        `ValueError`: if more rows are bad, or none is good; it says how many by cause, and where the first of each is.
            Also for a file or folder that cannot be read at all.
    """
    bad, good, total = BadRows(), [], 0
    for number, source in enumerate(read_rows(name, split)):
        total += 1
        try:
            good.append((source.place, _read(source, f"{name}/{number}", video_root, supervised)))
        except RowError as error:
            bad.add(str(error), source.place)
    found = probe_many([path for _, row in good for path in row["videos"]], progress=True)
    kept = []
    for place, row in good:
        fault = _video_fault(row, found)
        if fault:
            bad.add(fault, place)
        else:
            kept.append(row)
    if not total:
        raise ValueError(f"{name} has no rows")
    if bad:
        report(f"{name}: {len(bad)} of {total} rows left out: {bad}")
    if not kept or len(bad) > max_bad * total:
        raise ValueError(f"{name}: {len(bad)} of {total} rows are bad, more than the {max_bad:.0%} allowed: {bad}")
    return Dataset.from_list(kept)


def _read(source: SourceRow, key: str, video_root: str | None, supervised: bool) -> dict:
    if source.fault:
        raise RowError(source.fault)
    try:
        return normalise(source.value, key, video_root, supervised)
    except RecursionError:
        raise RowError("nested too deeply") from None


def _video_fault(row: dict, found: dict) -> str | None:
    """What is wrong with a row's videos, or with its windows in them."""
    errors = [found[path] for path in row["videos"] if isinstance(found[path], VideoError)]
    if errors:
        return f"video {errors[0].reason.split(' (')[0].split(' as ')[0]}"
    if row.get("question_type") == "tvg":
        duration = found[row["videos"][0]].duration
        if any(start >= duration for start, _ in read_windows(row["answer"])):
            return "the interval starts after the end of the video"
    return None


# ---------------------------------------------------------------------------------------------------------------- rows


def normalise(row: object, key: str, video_root: str | None = None, supervised: bool = False) -> dict:
    """
    One row in the common shape: `key`, `prompt` and `videos`; with `supervised` also `completion`, and otherwise
    `answer`, `question_type` and `options`. An answer is a letter, `2.0 - 5.0`, or text; several that all are right,
    of which the best one counts, are a JSON list. Raises [`RowError`].
    """
    if not isinstance(row, Mapping):
        raise RowError(f"the row is {_kind(row)}, not an object")
    column = "messages" if supervised else "prompt"
    messages, inline = _read_messages(row.get(column), column)
    videos = _read_videos(row.get("videos")) or _read_videos(row.get("video")) or inline
    if not videos:
        raise RowError("no videos")
    common = {"key": str(row.get("id") or key), "videos": [_locate(video, video_root) for video in videos]}
    if not any(message["role"] == "user" for message in messages):
        raise RowError("no user message")
    read = {**common, **(_conversation(messages) if supervised else _question(row, messages))}
    try:
        json.dumps(read, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise RowError("half a character (a lone surrogate)") from None
    return read


def _conversation(messages: list[dict]) -> dict:
    """A prompt, up to the first assistant message, and the completion to imitate."""
    first = next((i for i, message in enumerate(messages) if message["role"] == "assistant"), len(messages))
    if first == len(messages) or messages[-1]["role"] != "assistant":
        raise RowError("no assistant message at the end")
    if not any(message["role"] == "user" for message in messages[:first]):
        raise RowError("no user message before the first assistant message")
    return {"prompt": messages[:first], "completion": messages[first:]}


def _question(row: Mapping, messages: list[dict]) -> dict:
    """A prompt that ends in the question, earlier turns before it, and its truth."""
    while messages[-1]["role"] == "assistant":  # what somebody answered
        messages = messages[:-1]
    if messages[-1]["role"] != "user":
        raise RowError("the prompt does not end with a user message")
    info = _structured(row.get("extra_info"), "extra_info")
    given = {name: value for name, value in info.items() if value is not None} if isinstance(info, Mapping) else {}
    info = {**row, **given}  # parquet pads objects with None
    kind = info.get("question_type")
    kind = kind.strip().lower() if isinstance(kind, str) else kind
    if not isinstance(kind, str) or kind not in QUESTION_TYPES:
        raise RowError(f"question_type {str(kind)[:40]!r} is none of {', '.join(QUESTION_TYPES)}")
    truths = _read_truths(info.get("answer"), kind)
    options = None
    if kind == "mcq":
        options = read_options(info.get("options")) or _listed_options(messages)
        answer = _read_letter(truths, options)
    elif kind == "tvg":
        answer = _read_windows(truths)
    else:
        answer = truths[0] if len(truths) == 1 else json.dumps(truths, ensure_ascii=False)
    return {"prompt": messages, "answer": answer, "question_type": kind, "options": options}


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__


def _written(value: object) -> str:
    """A value as a question or an answer has it: 2.0, which a table may have made of 2, is 2."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _structured(value: object, name: str) -> object:
    """JSON text, or Python's way of writing it, as what it says; arrays as lists; anything else as it is."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    for read in (json.loads, ast.literal_eval):
        try:
            return read(value)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
    raise RowError(f"{name}: not valid JSON")


# ------------------------------------------------------------------------------------------------------------ messages


def _read_messages(value: object, column: str) -> tuple[list[dict], list[str]]:
    """Messages with text content, and the videos that stand in them."""
    value = _structured(value, column)
    if isinstance(value, Mapping):
        value = [value]
    if isinstance(value, str) and value.strip() and column == "prompt":
        value = [{"role": "user", "content": value}]
    if not isinstance(value, (list, tuple)) or not value:
        raise RowError(f"no {column}")
    inline: list[str] = []
    return [_read_message(message, inline) for message in value], inline


def _read_message(message: object, videos: list[str]) -> dict:
    """A message with text content, videos in it turned into `<video>` and collected; tool calls into their text."""
    if not isinstance(message, Mapping) or message.get("role") not in ROLES:
        raise RowError("a message without a known role")
    text = "".join(_read_part(part, videos) for part in _parts(message.get("content")))
    calls = _structured(message.get("tool_calls"), "tool_calls")
    if calls is not None and not isinstance(calls, (list, tuple, Mapping)):
        raise RowError(f"tool_calls is {_kind(calls)}, not a list")
    for call in [calls] if isinstance(calls, Mapping) else calls or []:
        text += ("\n" if text else "") + _read_call(call)
    return {"role": message["role"], "content": text}


def _parts(content: object) -> Sequence:
    """The parts of a message's content, which may be a text, one part, or a list of both."""
    if isinstance(content, np.ndarray):
        content = content.tolist()
    if content is None:
        return []
    if isinstance(content, (str, Mapping)):
        return [content]
    if isinstance(content, (list, tuple)):
        return [part for part in content if part is not None]
    raise RowError(f"a message's content is {_kind(content)}")


def _read_part(part: object, videos: list[str]) -> str:
    """The text of a part of a message; `<video>` for a video, which is collected if its file is named here."""
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise RowError(f"a part of a message is {_kind(part)}")
    kind = part.get("type")
    if kind in ("video", "video_url") or (kind is None and part.get("video") is not None):
        videos += _read_videos(part.get("video_url") or part.get("video"))
        return "<video>"
    if kind in ("image", "image_url"):
        raise RowError("image parts are not supported")
    text = part.get("text")
    if isinstance(text, (str, int, float)):
        return str(text)
    if kind in ("text", None) and text is None:
        return ""
    raise RowError(f"a part of a message of type {str(kind)[:40]!r} without text")


def _read_call(call: object) -> str:
    """A tool call as the text that the model writes."""
    function = call.get("function") or call if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise RowError("a tool call is no object")
    arguments = _structured(function.get("arguments"), "arguments of a tool call")
    if arguments is not None and not isinstance(arguments, Mapping):
        raise RowError(f"the arguments of a tool call are {_kind(arguments)}")
    arguments = {name: value for name, value in (arguments or {}).items() if value is not None}  # parquet pads
    try:
        body = json.dumps({"name": function.get("name"), "arguments": arguments}, ensure_ascii=False)
    except (TypeError, ValueError):
        raise RowError("a tool call holds what JSON does not") from None
    return f"<tool_call>\n{body}\n</tool_call>"


# -------------------------------------------------------------------------------------------------------------- videos

_PATHS = ("video", "path", "video_path", "url", "video_url")


def _read_videos(value: object) -> list[str]:
    """The paths of videos: one path, an object that has one, or a list of these, perhaps as JSON text."""
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        try:
            value = _structured(value, "videos")
        except RowError:
            pass  # a name may begin with a bracket
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if value is None:
        return []
    if isinstance(value, str):
        return [value] if value.strip() else []
    if isinstance(value, (list, tuple)):
        return [path for video in value for path in _read_videos(video)]
    if isinstance(value, Mapping):
        return next((paths for name in _PATHS if (paths := _read_videos(value.get(name)))), [])
    raise RowError(f"videos: {_kind(value)} is no path")


def _locate(video: str, root: str | None) -> str:
    absolute = video.startswith("file://") or os.path.isabs(video)
    return video if absolute else os.path.join(root or "", video)


# -------------------------------------------------------------------------------------------------------------- truths

_LABELS, _TEXTS = ("label", "key", "letter", "id"), ("text", "value", "content", "option")


def read_options(value: object) -> list[str] | None:
    """
    The texts of options A, B, C and so on; `None` where there are none. They may come as a list of texts or numbers,
    with or without their letters, of pairs or of objects, as an object by letter or number, as two lists, as JSON
    text, or as lines. Raises [`RowError`].
    """
    value = _structured(value, "options")
    if isinstance(value, str):
        value = [line for line in value.splitlines() if line.strip()]
        if len(value) == 1:
            raise RowError("the options are one text")
    if isinstance(value, Mapping):
        value = _options_by_letter(value)
    if value is not None and not isinstance(value, (list, tuple)):
        raise RowError(f"the options are {_kind(value)}")
    options = [_read_option(option) for option in value or []]
    while options and options[-1] is None:  # parquet pads
        options.pop()
    if any(option is None or not option.strip() for option in options):
        raise RowError("an option is empty")
    if len(options) > len(ALPHABET):
        raise RowError(f"more than {len(ALPHABET)} options")
    texts = option_texts(options)
    if sorted(texts) != list(ALPHABET[: len(options)]):
        raise RowError("the options are not lettered A, B, C and so on")
    return [texts[letter].strip() for letter in sorted(texts)] or None


def _options_by_letter(options: Mapping) -> list:
    """An object of options as a list of texts with their letters: by letter, by number, or in two lists."""
    columns = [next((options[name] for name in names if name in options), None) for names in (_LABELS, _TEXTS)]
    columns = [_structured(column, "options") for column in columns]
    if all(isinstance(column, (list, tuple)) for column in columns):
        if len(columns[0]) != len(columns[1]):
            raise RowError("the options have as many letters as texts")
        return [{"label": label, "text": text} for label, text in zip(*columns, strict=True)]
    given = {str(name).strip(): text for name, text in options.items() if text is not None}
    if given and all(name.isdecimal() for name in given):
        return [given[name] for name in sorted(given, key=int)]
    return [{"label": name, "text": text} for name, text in given.items()]


def _read_option(option: object) -> str | None:
    if option is None or isinstance(option, str):
        return option
    if isinstance(option, (bool, int, float)):
        return _written(option)
    if isinstance(option, (list, tuple)) and len(option) == 2:
        option = {"label": option[0], "text": option[1]}
    if not isinstance(option, Mapping):
        raise RowError(f"an option is {_kind(option)}")
    given = {name: value for name, value in option.items() if value is not None}
    text = next((given[name] for name in _TEXTS if name in given), None)
    label = next((given[name] for name in _LABELS if name in given), None)
    if text is None and len(given) == 1:  # {"A": "a dog"}
        ((label, text),) = given.items()
    if not isinstance(text, (str, bool, int, float)):
        raise RowError("an option without text")
    letter = str(label).strip(" ().:").upper()
    return f"{letter}. {_written(text)}" if len(letter) == 1 and letter in ALPHABET else _written(text)


def _listed_options(messages: list[dict]) -> list[str] | None:
    """The options that the question lists line by line, from A on; the last such list."""
    for message in reversed(messages):
        texts: list[str] = []
        for letter, text in OPTION.findall(message["content"]) if message["role"] == "user" else []:
            if letter == ALPHABET[len(texts) : len(texts) + 1]:
                texts.append(text)
        if texts:
            return texts
    return None


def _read_truths(value: object, kind: str) -> list[str] | object:
    """The answers of a row: texts, or for `tvg` whatever gives windows."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if kind == "tvg":
        if value is None or (isinstance(value, str) and not value.strip()):
            raise RowError("no answer")
        return value
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    for truth in values:
        if not isinstance(truth, (str, bool, int, float, type(None))):
            raise RowError(f"the answer is {_kind(truth)}")
    truths = [_written(truth) for truth in values if truth is not None and truth == truth]  # NaN is no answer either
    truths = [truth for truth in truths if truth.strip()]
    if not truths:
        raise RowError("no answer")
    return list(dict.fromkeys(truths))


def _read_letter(truths: list[str], options: list[str] | None) -> str:
    """The letter of the right option, which the truth may give by its text."""
    labels = ALPHABET[: len(options)] if options else ALPHABET
    letters = {_letter_of(truth, labels, options) for truth in truths}
    if None in letters:
        raise RowError("the answer is none of the choices")
    if len(letters) > 1:
        raise RowError("the answer is several of the choices")
    return letters.pop()


def _letter_of(truth: str, labels: str, options: list[str] | None) -> str | None:
    """The letter that a truth is, writes out (`(B) dog`), or gives the text of."""
    truth = truth.strip()
    by_letter = truth.upper() in labels
    if options and options.count(truth) == 1 and not by_letter:
        return labels[options.index(truth)]
    return extract_choice(truth, labels, options)


def _read_windows(truth: object) -> str:
    try:
        return write_windows(read_windows(truth))
    except ValueError:
        raise RowError("the answer is no interval") from None
