"""Rows played with the loop that trains the policy, as records: plain dicts, one per question."""

import time
from collections.abc import Callable, Sequence

from trl import prepare_multimodal_messages

from ..anchors import first_fault
from ..answers import assistant_turns, final_answer
from ..collator import FrameBudgetCollator, decode, question_of
from ..engines import Engine
from ..messages import RowError
from ..rewards import accuracy_reward
from ..rollout import ParallelRollout


def play(
    rollout: ParallelRollout,
    engine: Engine,
    collator: FrameBudgetCollator,
    rows: Sequence[dict],
    max_completion_length: int,
    watch: Callable[[int, dict], None] | None = None,
    seeds: Sequence[int] | None = None,
) -> list[dict]:
    """
    One episode per row, all in one batch, as records; an engine that samples needs `seeds`, one per row:

    `id`, `question`, `prediction` (what the last answer says, `None` without one), `truth`, `score` (`None` without a
    truth; no answer is wrong), `error` (`None` unless the row failed; then there is no score), `turns`, `calls` (each
    with its effective window and response), `frames` and `pixels` that were looked at, `parseable`, `fault` (`None`,
    or one of `anchors.REASONS` with the turn and the character in it) and `seconds` (of the batch, by row).
    """
    start = time.perf_counter()
    prepared = collator(list(rows))
    clips = decode(prepared)
    places = [i for i, row in enumerate(prepared) if not row["video_error"]]
    live = [prepared[i] for i in places]
    prompts = [prepare_multimodal_messages(row["prompt"], images=row["images"]) for row in live]
    told = None if watch is None else lambda i, message: watch(places[i], message)
    live_seeds = None if seeds is None else [seeds[i] for i in places]
    # Also without a row: ranks may share the engine.
    episodes = rollout.run(prompts, engine, max_completion_length, told, live_seeds)
    turns = [episode.messages for episode in episodes]
    columns = {name: [row.get(name) for row in live] for name in ("answer", "question_type", "options")}
    scores = accuracy_reward(turns, fallback=False, turns=turns, **columns)
    seconds = (time.perf_counter() - start) / max(1, len(rows))
    found = {}
    for row, episode, score in zip(live, episodes, scores, strict=True):
        fault = first_fault(episode.ids, episode.mask, collator.chat.tokenizer)
        looked_at = [*row["images"], *(f for s in episode.slots if s.status == "ok" for f in s.clip.frames)]
        found[id(row)] = {
            "prediction": final_answer(assistant_turns(episode.messages)[-1], fallback=False),
            "score": score,
            "turns": [message["content"] for message in episode.messages],
            "calls": [slot.record() for slot in episode.slots],
            "frames": len(looked_at),
            "pixels": sum(frame.size[0] * frame.size[1] for frame in looked_at),
            "parseable": fault is None,
            "fault": None if fault is None else {name: getattr(fault, name) for name in ("reason", "turn", "place")},
        }
    for clip in clips:
        clip.release()
    return [
        failed(row, row["question"], row["video_error"]) | found.get(id(row), {}) | {"seconds": seconds}
        for row in prepared
    ]


def failed(row: dict, question: str, error: str | None) -> dict:
    """The record of a row that was not played."""
    return {
        "id": row.get("key"),
        "question": question,
        "truth": row.get("answer"),
        "error": error,
        "prediction": None,
        "score": None,
        "turns": [],
        "calls": [],
        "frames": 0,
        "pixels": 0,
        "parseable": False,
        "fault": None,
        "seconds": 0.0,
    }


FIELDS = tuple(failed({}, "", None))  # of every record


def play_safely(rollout, engine, collator, rows: Sequence[dict], max_completion_length: int) -> list[dict]:
    """[`play`], and if it fails, once more row by row: what one row breaks costs that row only."""
    try:
        return play(rollout, engine, collator, rows, max_completion_length)
    except Exception as error:  # whatever it is, a run of thousands of questions goes on, and says which failed
        if len(rows) > 1:
            return [r for row in rows for r in play_safely(rollout, engine, collator, [row], max_completion_length)]
        return [failed(rows[0], _asked(rows[0]), f"{type(error).__name__}: {error}")]


def _asked(row: dict) -> str:
    """The question of a row, or what stands in its place."""
    try:
        return question_of(row)
    except RowError:
        return str(row.get("prompt"))
