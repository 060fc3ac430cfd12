"""A policy measured on rows, with the loop that trains it."""

from collections.abc import Iterable, Sequence

from trl.data_utils import prepare_multimodal_messages

from .anchors import is_parseable
from .collator import FrameBudgetCollator
from .metrics import episode_stats, summarise
from .rewards import accuracy_reward
from .rollout import ParallelRollout


def play(
    rollout: ParallelRollout, engine, collator: FrameBudgetCollator, rows: Sequence[dict], max_completion_length: int
) -> list[dict]:
    """One episode per row; returns the rows with `turns`, `tool_calls`, `parseable` and their statistics."""
    prepared = [row for row in collator(list(rows)) if not row["video_error"]]
    prompts = [prepare_multimodal_messages(row["prompt"], images=row["images"]) for row in prepared]
    episodes = rollout.run(prompts, engine, max_completion_length)
    turns = [episode.messages for episode in episodes]
    columns = {name: [row.get(name) for row in prepared] for name in ("answer", "question_type", "options")}
    accuracy = accuracy_reward(turns, fallback=False, turns=turns, **columns)
    played = []
    for row, episode, score in zip(prepared, episodes, accuracy, strict=True):
        calls = [slot.record() for slot in episode.slots]
        parseable = is_parseable(episode.ids, episode.mask, collator.chat.tokenizer)
        stats = episode_stats(calls, parseable, score)
        row = {name: value for name, value in row.items() if name not in ("images", "prompt")}
        played.append({**row, "turns": episode.messages, "tool_calls": calls, "parseable": parseable, "stats": stats})
    for row in prepared:
        for frame in row["images"]:
            frame.clip.release()
    return played


def measure(
    rollout: ParallelRollout,
    engine,
    processor,
    rows: Sequence[dict],
    budgets: Iterable[int],
    max_completion_length: int,
    max_pixels: int,
    batch_size: int = 32,
    progress: bool = True,
) -> dict[int, dict[str, float]]:
    """Rates of [`metrics.summarise`] for each frame budget, over the same rows."""
    from tqdm import tqdm

    work = [(budget, start) for budget in budgets for start in range(0, len(rows), batch_size)]
    stats: dict[int, list[dict]] = {}
    for budget, start in tqdm(work, "Evaluation", disable=not progress, leave=False):
        collator = FrameBudgetCollator(processor, [budget], max_pixels=max_pixels)
        played = play(rollout, engine, collator, rows[start : start + batch_size], max_completion_length)
        stats.setdefault(budget, []).extend(row["stats"] for row in played)
    return {budget: summarise(values) for budget, values in stats.items()}
