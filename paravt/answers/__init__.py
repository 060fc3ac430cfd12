"""
What a completion answers, and how right that is.

- `choices`: text -> the letter it chooses, by a table of forms
- `languages`: the words in which people and models choose
- `intervals`: text -> start and end in seconds
- `words`: text -> words, and how far two texts have the same
"""

import ast
import json
import re
from collections.abc import Mapping, Sequence

from .choices import ALPHABET, SPECIAL_TOKEN, extract_choice, option_texts
from .intervals import parse_interval, read_windows, temporal_iou
from .words import token_f1, words_of


__all__ = [
    "QUESTION_TYPES",
    "assistant_turns",
    "extract_answer",
    "extract_choice",
    "final_answer",
    "parse_interval",
    "score_answer",
    "temporal_iou",
    "token_f1",
]

QUESTION_TYPES = ("mcq", "tvg", "oe")


def assistant_turns(completion: str | list[dict], turns: list[dict] | None = None) -> list[str]:
    """
    The texts that the model wrote, turn by turn, special tokens taken out. `turns` are the messages of a rollout; a
    column of that name may have something else in other people's data.
    """
    told = isinstance(turns, list) and all(isinstance(turn, dict) and "role" in turn for turn in turns)
    messages = turns if turns and told else completion
    if isinstance(messages, str):
        texts = [messages]
    else:
        texts = [_text_of(message) for message in messages if message["role"] == "assistant"]
    return [SPECIAL_TOKEN.sub("", t) for t in texts] or [""]


def _text_of(message: dict) -> str:
    """A message as it was written: TRL takes thoughts and calls out of the text where it knows the template."""
    content = message.get("content") or ""
    text = content if isinstance(content, str) else "".join(part.get("text") or "" for part in content)
    if message.get("reasoning_content"):
        text = f"<think>\n{message['reasoning_content']}\n</think>\n{text}"
    calls = [call.get("function") or {} for call in message.get("tool_calls") or []]
    return text + "".join(f"\n<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls)


def extract_answer(text: str) -> str | None:
    """What stands in the one `<answer>` block after the last `</think>`; `None` if there is none, or two."""
    final = text.rpartition("</think>")[2]
    found = re.findall(r"<answer>((?:(?!</?answer>).)*)</answer>", final, re.DOTALL)
    if len(found) != 1 or final.count("<answer>") != 1 or final.count("</answer>") != 1:
        return None
    return found[0].strip() or None


def final_answer(text: str, fallback: bool) -> str | None:
    """
    The answer of the last turn: that of [`extract_answer`], or with `fallback` all that follows the thinking, where no
    answer tag stands.
    """
    text = text.rpartition("</tool_response>")[2]  # one text of several turns, as other loops give it
    answer = extract_answer(text)
    if answer is None and fallback and "answer>" not in text and ("<think>" not in text or "</think>" in text):
        answer = text.rpartition("</think>")[2].strip() or None
    return answer


# --------------------------------------------------------------------------------------------------------------- score


def score_answer(
    answer: str | None, truth, question_type: str, options: Sequence | Mapping | None = None, mode: str = "f1"
) -> float | None:
    """
    Score in [0, 1] of an answer; 0 for none, `None` where a judge must say.

    Args:
        answer (`str`, *optional*): What the model answers.
        truth: For `mcq` a letter, or the text of an option; for `tvg` an interval in any form of [`read_windows`]; for
            `oe` a text. Several intervals, or texts as a list or JSON list, all are right: the best one counts.
        question_type (`str`): `"mcq"`, `"tvg"` or `"oe"`.
        options (`Sequence` or `Mapping`, *optional*): The texts of the options, with or without their letters.
        mode (`str`): For `oe`: `"f1"`, `"exact"` or `"judge"`.
    """
    if question_type not in QUESTION_TYPES:
        raise ValueError(f"question_type must be one of {QUESTION_TYPES}, got {question_type!r}")
    if mode not in ("f1", "exact", "judge"):
        raise ValueError(f"mode must be 'f1', 'exact' or 'judge', got {mode!r}")
    if answer is None:
        return 0.0
    if question_type == "mcq":
        return _score_choice(answer, truth, options)
    if question_type == "tvg":
        return _score_interval(answer, truth)
    if mode == "judge":
        return None
    scores = [
        token_f1(answer, reference) if mode == "f1" else float(words_of(answer) == words_of(reference))
        for reference in references(truth)
    ]
    return max(scores, default=0.0)


def _score_choice(answer: str, truth: object, options: Sequence | Mapping | None) -> float:
    golds = references(truth)
    gold = golds[0].strip() if len(golds) == 1 else ""
    labels = list(option_texts(options)) or list(ALPHABET[:4])
    if not options and len(gold) == 1 and gold.upper() in ALPHABET[4:]:  # as many letters as the truth tells of
        labels = list(ALPHABET[: ALPHABET.index(gold.upper()) + 1])
    by_letter = gold.upper() in labels
    gold = gold.upper() if by_letter else extract_choice(gold, labels, options)
    return float(gold is not None and extract_choice(answer, labels, options) == gold)


def _score_interval(answer: str, truth: object) -> float:
    said = parse_interval(answer)
    try:
        windows = read_windows(truth)
    except ValueError:
        return 0.0
    return max(temporal_iou(said, window) for window in windows) if said else 0.0


def references(truth: object) -> list[str]:
    """The texts of a truth that may be one, a list of them, or a list of strings as JSON or Python writes it."""
    if isinstance(truth, str) and truth.lstrip().startswith("["):
        for read in (json.loads, ast.literal_eval):
            try:
                values = read(truth.strip())
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                continue
            if isinstance(values, list) and values and all(isinstance(value, str) for value in values):
                return values
    if isinstance(truth, (list, tuple)):
        return [str(value) for value in truth if value is not None]
    return [str(truth)]
