"""A policy measured on rows, and asked questions, with the loop that trains it: a record per question, with resume."""

import glob
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence

from transformers import set_seed
from trl.data_utils import prepare_multimodal_messages

from . import video
from .anchors import is_parseable
from .collator import FrameBudgetCollator
from .metrics import episode_stats, summarise
from .rewards import accuracy_reward, assistant_turns, final_answer
from .rollout import ParallelRollout, engine_of
from .video import VideoError


def play(
    rollout: ParallelRollout,
    engine,
    collator: FrameBudgetCollator,
    rows: Sequence[dict],
    max_completion_length: int,
    watch: Callable[[int, dict], None] | None = None,
) -> list[dict]:
    """
    One episode per row, all in one batch, as records:

    `id`, `question`, `prediction` (what the last answer says, `None` without one), `truth`, `score` (`None` without a
    truth; no answer is wrong), `error` (`None` unless the row failed; then there is no score), `turns`, `calls` (each
    with its effective window and response), `frames` and `pixels` that were looked at, `parseable` and `seconds` (of
    the batch, by row).
    """
    start = time.perf_counter()
    prepared = collator(list(rows))
    clips = {id(frame.clip): frame.clip for row in prepared for frame in row["images"]}
    video.prefetch(clips.values())
    places = [i for i, row in enumerate(prepared) if not row["video_error"] and _readable(row)]
    live = [prepared[i] for i in places]
    prompts = [prepare_multimodal_messages(row["prompt"], images=row["images"]) for row in live]
    told = None if watch is None else lambda i, message: watch(places[i], message)
    episodes = rollout.run(prompts, engine, max_completion_length, told) if live else []
    turns = [episode.messages for episode in episodes]
    columns = {name: [row.get(name) for row in live] for name in ("answer", "question_type", "options")}
    scores = accuracy_reward(turns, fallback=False, turns=turns, **columns)
    seconds = (time.perf_counter() - start) / max(1, len(rows))
    found = {}
    for row, episode, score in zip(live, episodes, scores, strict=True):
        looked_at = [*row["images"], *(f for s in episode.slots if s.status == "ok" for f in s.clip.frames)]
        found[id(row)] = {
            "prediction": final_answer(assistant_turns(episode.messages)[-1], fallback=False),
            "score": score,
            "turns": [message["content"] for message in episode.messages],
            "calls": [slot.record() for slot in episode.slots],
            "frames": len(looked_at),
            "pixels": sum(frame.size[0] * frame.size[1] for frame in looked_at),
            "parseable": is_parseable(episode.ids, episode.mask, collator.chat.tokenizer),
        }
    for clip in clips.values():
        clip.release()
    return [
        failed(row, row["question"], row["video_error"]) | found.get(id(row), {}) | {"seconds": seconds}
        for row in prepared
    ]


def failed(row: dict, question: str, error: str | None) -> dict:
    """The record of a row that was not played."""
    return {
        "id": row.get("key"), "question": question, "truth": row.get("answer"), "error": error, "prediction": None,
        "score": None, "turns": [], "calls": [], "frames": 0, "pixels": 0, "parseable": False, "seconds": 0.0,
    }  # fmt: skip


def _readable(row: dict) -> bool:
    """Whether the row's frames decode; if not, the row says why."""
    try:
        for frame in row["images"]:
            frame.clip.load()
    except VideoError as error:
        row["video_error"] = str(error)
    return not row["video_error"]


def play_safely(rollout, engine, collator, rows: Sequence[dict], max_completion_length: int) -> list[dict]:
    """[`play`], and if it fails, once more row by row: what one row breaks costs that row only."""
    try:
        return play(rollout, engine, collator, rows, max_completion_length)
    except Exception as error:  # whatever it is, a run of thousands of questions goes on, and says which failed
        if len(rows) > 1:
            return [r for row in rows for r in play_safely(rollout, engine, collator, [row], max_completion_length)]
        return [failed(rows[0], rows[0]["prompt"][-1]["content"], f"{type(error).__name__}: {error}")]


def stats_of(record: dict) -> dict[str, float]:
    """The sums of [`metrics.episode_stats`] for a record."""
    return episode_stats(record["calls"], record["parseable"], record["score"])


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
    """Rates of [`metrics.summarise`] for each frame budget, over the same rows; rows that failed are left out."""
    from tqdm import tqdm

    work = [(budget, start) for budget in budgets for start in range(0, len(rows), batch_size)]
    stats: dict[int, list[dict]] = {}
    for budget, start in tqdm(work, "Evaluation", disable=not progress, leave=False):
        collator = FrameBudgetCollator(processor, [budget], max_pixels=max_pixels)
        played = play(rollout, engine, collator, rows[start : start + batch_size], max_completion_length)
        stats.setdefault(budget, []).extend(stats_of(record) for record in played if not record["error"])
    return {budget: summarise(values) for budget, values in stats.items()}


def measure_trainer(
    trainer, rows: Sequence[dict], budgets: Iterable[int], rollout=None, sampled: bool = True
) -> dict[int, dict[str, float]]:
    """[`measure`] for a trainer's policy: with its rollout unless given another, sampled as in training or not."""
    args = trainer.args
    set_seed(0)
    trainer.model.eval()
    if args.use_vllm:
        trainer.vllm_generation.sync_weights()
    engine = engine_of(trainer) if sampled else engine_of(trainer).greedy()
    return measure(
        rollout or trainer.rollout_func,
        engine,
        trainer.processing_class,
        rows,
        budgets,
        args.max_completion_length,
        args.max_pixels,
    )


class Records:
    """
    Records on disk, a JSON line each, written as soon as there is one: a killed run goes on where it was. A line that
    was cut by a crash is dropped; a record that failed is tried again, and its next line counts.

    Args:
        path (`str`): The file. With several ranks each writes its own, with its rank in the name.
        settings (`dict`): What made the records; kept in every line. Lines made with other settings are refused.
        rank (`int`): The rank of this process.
    """

    def __init__(self, path: str, settings: dict, rank: int = 0):
        stem, end = os.path.splitext(path)
        self.path = path if rank == 0 else f"{stem}.{rank}{end}"
        self.settings = json.loads(json.dumps(settings))
        self.done: dict[str, dict] = {}
        self.pattern = (path, glob.escape(stem) + ".*" + end)
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        self.everything()
        self.file = open(self.path, "a", encoding="utf-8")

    def everything(self) -> dict[str, dict]:
        """The records of all ranks by id, read again."""
        path, pattern = self.pattern
        for found in sorted({path, *glob.glob(pattern)}):
            if os.path.exists(found):
                self._read(found)
        return self.done

    def _read(self, path: str) -> None:
        with open(path, "rb") as file:
            data = file.read()
        whole = data.rfind(b"\n") + 1
        if whole < len(data) and path == self.path:
            os.truncate(path, whole)
        for number, line in enumerate(data[:whole].split(b"\n")[:-1]):
            record = json.loads(line)
            theirs = record["settings"]
            differ = [k for k in sorted({*theirs, *self.settings}) if theirs.get(k) != self.settings.get(k)]
            if differ:
                says = ", ".join(f"{k} {theirs.get(k)!r} there and {self.settings.get(k)!r} now" for k in differ)
                raise ValueError(f"line {number + 1} of {path} was made with other settings: {says}; use another file")
            if not record["error"] or self.done.get(record["id"], record)["error"]:
                self.done[record["id"]] = record

    def add(self, record: dict) -> None:
        self.done[record["id"]] = record | {"settings": self.settings}
        self.file.write(json.dumps(self.done[record["id"]], ensure_ascii=False) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())
