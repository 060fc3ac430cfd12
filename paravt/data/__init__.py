"""Rows of other people's files: read, checked, counted by what is wrong with them, and given one shape."""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from datasets import Dataset

from ..answers import QUESTION_TYPES, references
from ..answers.choices import ALPHABET, carried_letter, extract_choice, in_turn, option_texts, unnested
from ..answers.intervals import read_windows, write_windows
from ..messages import RowError, is_blank, kind_of, read_prompt, structured
from ..video import VideoError, probe_many
from .files import SourceRow, read_rows


MAX_CAUSES = 12  # that a summary lists


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
        raise RowError(f"the row is {kind_of(row)}, not an object")
    messages, videos = read_prompt(row, "messages" if supervised else "prompt")
    if not videos:
        raise RowError("no videos")
    if not is_blank(structured(row.get("images"), "images")):
        raise RowError("images are not supported")
    common = {"key": str(row.get("id") or key), "videos": [_locate(video, video_root) for video in videos]}
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
    info = structured(row.get("extra_info"), "extra_info")
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


def _written(value: object) -> str:
    """A value as a question or an answer has it: 2.0, which a table may have made of 2, is 2."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _locate(video: str, root: str | None) -> str:
    absolute = video.startswith("file://") or os.path.isabs(video)
    return video if absolute else os.path.join(root or "", video)


# -------------------------------------------------------------------------------------------------------------- truths

_LABELS, _TEXTS = ("label", "key", "letter", "id"), ("text", "value", "content", "option")


def read_options(value: object) -> list[str] | None:
    """
    The texts of options A, B, C and so on; `None` where there are none. They may come as a list of texts or numbers,
    with or without their letters, of pairs or of objects, alone in another list, as an object by letter or number, as
    two lists, as JSON text, or as lines. Raises [`RowError`].
    """
    value = structured(value, "options")
    if isinstance(value, str):
        value = [line for line in value.splitlines() if line.strip()]
        if len(value) == 1:
            raise RowError("the options are one text")
    if isinstance(value, Mapping):
        value = _options_by_letter(value)
    if value is not None and not isinstance(value, (list, tuple)):
        raise RowError(f"the options are {kind_of(value)}")
    options = [_read_option(option) for option in unnested(value or [])]
    while options and options[-1] is None:  # parquet pads
        options.pop()
    if any(option is None or not option[1].strip() for option in options):
        raise RowError("an option is empty")
    if len(options) > len(ALPHABET):
        raise RowError(f"more than {len(ALPHABET)} options")
    letters, texts = [letter for letter, _ in options], [text for _, text in options]
    given = any(letters)
    carried = [carried_letter(text)[0] for text in texts]
    # Initials are text, "J. Smith" and "M. Jones", but a list that begins as "A. " was meant to be lettered.
    lettered = None not in carried and bool(texts) and texts[0].lstrip().startswith("A. ")
    if (given and not in_turn(letters)) or (not given and lettered and not in_turn(carried)):
        raise RowError("the options are not lettered A, B, C and so on")
    read = dict(options) if given else option_texts(texts)
    return [read[letter].strip() for letter in sorted(read)] or None


def _options_by_letter(options: Mapping) -> list:
    """An object of options as a list of texts with their letters: by letter, by number, or in two lists."""
    columns = [next((options[name] for name in names if name in options), None) for names in (_LABELS, _TEXTS)]
    columns = [structured(column, "options") for column in columns]
    if all(isinstance(column, (list, tuple)) for column in columns):
        if len(columns[0]) != len(columns[1]):
            raise RowError("the options have as many letters as texts")
        return [{"label": label, "text": text} for label, text in zip(*columns, strict=True)]
    given = {str(name).strip(): text for name, text in options.items() if text is not None}
    if given and all(name.isdecimal() for name in given):
        return [given[name] for name in sorted(given, key=int)]
    return [{"label": name, "text": text} for name, text in given.items()]


def _read_option(option: object) -> tuple[str | None, str] | None:
    """The letter that is given beside the text of an option, `None` if there is none, and the text."""
    if option is None:
        return None
    if isinstance(option, (str, bool, int, float)):
        return None, _written(option)
    if isinstance(option, (list, tuple)) and len(option) == 2:
        option = {"label": option[0], "text": option[1]}
    if not isinstance(option, Mapping):
        raise RowError(f"an option is {kind_of(option)}")
    given = {name: value for name, value in option.items() if value is not None}
    text = next((given[name] for name in _TEXTS if name in given), None)
    label = next((given[name] for name in _LABELS if name in given), None)
    if text is None and len(given) == 1:  # {"A": "a dog"}
        ((label, text),) = given.items()
    if not isinstance(text, (str, bool, int, float)):
        raise RowError("an option without text")
    letter = str(label).strip(" ().:").upper()
    return letter if len(letter) == 1 and letter in ALPHABET else None, _written(text)


def _listed_options(messages: list[dict]) -> list[str] | None:
    """The options that the question lists line by line, from A on; the last such list."""
    for message in reversed(messages):
        texts: list[str] = []
        for line in message["content"].splitlines() if message["role"] == "user" else []:
            letter, text = carried_letter(line)
            if letter == ALPHABET[len(texts) : len(texts) + 1] and not re.match(r"\W*[a-z]\W", line):
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
    if isinstance(value, str):
        value = references(value)
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    for truth in values:
        if not isinstance(truth, (str, bool, int, float, type(None))):
            raise RowError(f"the answer is {kind_of(truth)}")
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
        windows = read_windows(truth)
    except ValueError:
        raise RowError("the answer is no interval") from None
    # What is smaller is written with an exponent, which no interval has.
    windows = [(round(start, 4), round(end, 4)) for start, end in windows]
    if any(start < 0 for start, _ in windows):
        raise RowError("the interval starts before the video")
    if any(start == end for start, end in windows):
        raise RowError("the interval is empty")
    return write_windows([(start + 0.0, end) for start, end in windows])  # -0.0 is 0.0
