"""Reward functions with TRL's signature, `(completions, **columns) -> list[float | None]`, and the metrics under them.

`None` means unscored: TRL leaves the sample out. They read the columns `answer`, `question_type` (`mcq`, `tvg`, `oe`)
and `options` of the rows, and `turns` and `tool_calls` of [`ParallelRollout`] where it made the rollouts.
"""

from collections.abc import Callable

from .anchors import parse_turn
from .answers import (
    QUESTION_TYPES,
    assistant_turns,
    extract_answer,
    extract_choice,
    final_answer,
    parse_interval,
    score_answer,
    temporal_iou,
    token_f1,
)
from .parser import NAME, ToolCall, parse_tool_calls


__all__ = [
    "accuracy_reward",
    "extract_answer",
    "extract_choice",
    "format_reward",
    "parse_interval",
    "temporal_iou",
    "token_f1",
    "tool_reward",
]


def _column(columns: dict, name: str, count: int) -> list:
    values = columns.get(name)
    return [None] * count if values is None else values


def accuracy_reward(completions, *, mode: str = "f1", fallback: bool = True, **columns) -> list[float | None]:
    """
    Score of the final answer by the row's `question_type`: right letter, temporal IoU, or token F1.

    Args:
        completions (`list`): Completions, as TRL gives them.
        mode (`str`): For open-ended rows: `"f1"`, `"exact"`, or `"judge"`, which leaves them to a judge.
        fallback (`bool`): Whether a turn without any `<answer>` tag is read as a whole.
    """
    count = len(completions)
    rows = zip(
        completions,
        *(_column(columns, name, count) for name in ("turns", "answer", "question_type", "options")),
        strict=True,
    )
    scores: list[float | None] = []
    for completion, turns, truth, kind, options in rows:
        if truth is None or kind not in QUESTION_TYPES:
            scores.append(None)
            continue
        answer = final_answer(assistant_turns(completion, turns)[-1], fallback)
        scores.append(score_answer(answer, truth, kind, options, mode))
    return scores


def format_reward(completions, *, is_tool: Callable[[str], bool] | None = None, **columns) -> list[float]:
    """
    A third each for turns with a well-formed think block, for turns that keep the grammar, and for the answer.

    Args:
        completions (`list`): Completions, as TRL gives them.
        is_tool (`Callable`, *optional*):
            Whether there is a tool of a name beside `crop_video`. [`ParaGRPOTrainer`] knows those of its own.
    """
    scores = []
    for completion, turns in zip(completions, _column(columns, "turns", len(completions)), strict=True):
        texts = assistant_turns(completion, turns)
        parsed = [parse_turn(text, last=i == len(texts) - 1, is_tool=is_tool) for i, text in enumerate(texts)]
        thought = sum(any(tag == "</think>" for *_, tag in turn.tags) for turn in parsed) / len(parsed)
        kept = sum(not turn.broken for turn in parsed) / len(parsed)
        scores.append((thought + kept + parsed[-1].answered) / 3)
    return scores


def _called(completion: str | list[dict]) -> bool:
    """Whether TRL's own loop has parsed a call of the tool out of the text."""
    calls = [c for m in completion if not isinstance(m, str) for c in m.get("tool_calls") or []]
    return any((call.get("function") or {}).get("name") == NAME for call in calls)


def _are_slots(calls: object) -> bool:
    """Whether they are the calls of a [`ParallelRollout`], not a column of that name in other people's data."""
    return isinstance(calls, list) and all(isinstance(call, dict) and "status" in call for call in calls)


def tool_reward(completions, *, right: float = 0.5, judged: list | None = None, **columns) -> list[float]:
    """
    0 without a call, 0.1 for one that parses, 0.3 for one that executed, and 0.5 more if then the answer scores at
    least `right`. Executed is what `tool_calls` of the rollout says, never what a text says. Open-ended answers score
    what `judged` says, where it is given; see [`~judge.JudgeReward.tool_reward`].
    """
    accuracy = accuracy_reward(completions, mode="f1" if judged is None else "judge", fallback=False, **columns)
    if judged is not None:
        accuracy = [told if score is None else score for score, told in zip(accuracy, judged, strict=True)]
    count, scores = len(completions), []
    rows = zip(
        completions, _column(columns, "turns", count), _column(columns, "tool_calls", count), accuracy, strict=True
    )
    for completion, turns, calls, score in rows:
        if not _are_slots(calls):  # rollouts of another loop: only the text is known
            texts = assistant_turns(completion, turns)
            parsed = any(isinstance(c, ToolCall) for text in texts for c in parse_tool_calls(text)) or _called(
                completion
            )
            executed = False
        else:
            parsed = any(call["status"] != "malformed" for call in calls)
            executed = any(call["status"] == "ok" for call in calls)
        scores.append(0.3 + 0.5 * (score is not None and score >= right) if executed else 0.1 * parsed)
    return scores
