"""What a text answers: a letter, an interval, or words; and how right it is."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence

from .choices import ALPHABET as _ALPHABET
from .choices import SPECIAL_TOKEN as _SPECIAL
from .choices import extract_choice
from .parser import parse_seconds
from .words import token_f1
from .words import words_of as _tokens


QUESTION_TYPES = ("mcq", "tvg", "oe")


def assistant_turns(completion: str | list[dict], turns: list[dict] | None = None) -> list[str]:
    """The texts that the model wrote, turn by turn, special tokens taken out."""
    messages = turns or completion
    if isinstance(messages, str):
        texts = [messages]
    else:
        texts = [m.get("content") or "" for m in messages if m["role"] == "assistant"]
    texts = [t if isinstance(t, str) else "".join(p.get("text") or "" for p in t) for t in texts]
    return [_SPECIAL.sub("", t) for t in texts] or [""]


def extract_answer(text: str) -> str | None:
    """What stands in the one `<answer>` block after the last `</think>`; `None` if there is none, or two."""
    final = text.rpartition("</think>")[2]
    found = re.findall(r"<answer>((?:(?!</?answer>).)*)</answer>", final, re.DOTALL)
    if len(found) != 1 or final.count("<answer>") != 1 or final.count("</answer>") != 1:
        return None
    return found[0].strip() or None


# --------------------------------------------------------------------------------------------------------- intervals

_TIME = (
    r"(?:\d{1,4}:)?\d{1,6}:\d{1,2}(?:\.\d+)?|"
    r"\d+(?:\.\d+)?\s?h(?:ours?|rs?)?(?:\s?\d+(?:\.\d+)?\s?m(?:in(?:ute)?s?)?)?(?:\s?\d+(?:\.\d+)?\s?s(?:ec(?:ond)?s?)?)?\b|"
    r"\d+(?:\.\d+)?\s?m(?:in(?:ute)?s?)?(?:\s?\d+(?:\.\d+)?\s?s(?:ec(?:ond)?s?)?)?\b|"
    r"\d+(?:\.\d+)?(?:\s?s(?:ec(?:ond)?s?)?\b)?"
)
_TIMES = re.compile(_TIME, re.IGNORECASE)
_RANGE = re.compile(
    rf"(?<![\w.:])(?P<a>{_TIME})\s*[>\"'\]]?\s*(?:-|–|—|~|→|,|\bto\b|\buntil\b|\btill\b|\band\b|\bthrough\b)\s*[<\"'\[]?\s*"
    rf"(?P<b>{_TIME})(?![\w:])",
    re.IGNORECASE,
)


def parse_interval(text: str) -> tuple[float, float] | None:
    """Start and end in seconds of the one interval that a text names, in any common form; `None` otherwise."""
    text = text.strip()[:2000]
    if re.match(r"[\[(<]?\s*-\s*\d", text):  # before the start of the video
        return None
    ranges = {(m["a"], m["b"]) for m in _RANGE.finditer(text)}
    pair = list(ranges.pop()) if len(ranges) == 1 else _TIMES.findall(text) if not ranges else []
    if len(pair) != 2:
        return None
    try:
        start, end = (parse_seconds(re.sub(r"\s+", " ", value)) for value in pair)
    except ValueError:
        return None
    return (start, end) if start <= end else None


def temporal_iou(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Intersection over union of two intervals, in [0, 1]; 0 if either is empty, reversed or not finite."""
    if not all(math.isfinite(x) for x in (*a, *b)) or a[0] >= a[1] or b[0] >= b[1]:
        return 0.0
    shared = min(a[1], b[1]) - max(a[0], b[0])
    return min(1.0, shared / (max(a[1], b[1]) - min(a[0], b[0]))) if shared > 0 else 0.0


# ------------------------------------------------------------------------------------------------------------- score


def score_answer(
    answer: str | None, truth, question_type: str, options: Sequence[str] | None = None, mode: str = "f1"
) -> float | None:
    """Score in [0, 1] of an answer; 0 for none, `None` where a judge must say."""
    if question_type not in QUESTION_TYPES:
        raise ValueError(f"question_type must be one of {QUESTION_TYPES}, got {question_type!r}")
    if mode not in ("f1", "exact", "judge"):
        raise ValueError(f"mode must be 'f1', 'exact' or 'judge', got {mode!r}")
    if answer is None:
        return 0.0
    if question_type == "mcq":
        gold = str(truth).strip()
        labels = list(options) if isinstance(options, Mapping) else _ALPHABET[: len(options) if options else 4]
        if not options and len(gold) == 1 and gold.upper() in _ALPHABET[4:]:  # as many letters as the truth tells of
            labels = _ALPHABET[: _ALPHABET.index(gold.upper()) + 1]
        gold = gold.upper() if len(gold) == 1 else extract_choice(gold, labels, options)
        return float(gold is not None and extract_choice(answer, labels, options) == gold)
    if question_type == "tvg":
        gold = parse_interval(truth) if isinstance(truth, str) else tuple(truth)
        said = parse_interval(answer)
        return temporal_iou(said, gold) if said and gold else 0.0
    if mode == "judge":
        return None
    return token_f1(answer, str(truth)) if mode == "f1" else float(_tokens(answer) == _tokens(str(truth)))


def final_answer(text: str, fallback: bool) -> str | None:
    text = text.rpartition("</tool_response>")[2]  # one text of several turns, as other loops give it
    answer = extract_answer(text)
    if answer is None and fallback and "answer>" not in text and ("<think>" not in text or "</think>" in text):
        answer = text.rpartition("</think>")[2].strip() or None
    return answer
