"""A policy measured: the rates of its rollouts, by number of overview frames."""

from collections.abc import Iterable, Sequence

from transformers import set_seed

from ..collator import FrameBudgetCollator
from ..engines import Engine, engine_of
from ..metrics import episode_stats, summarise
from ..rollout import ParallelRollout
from .playing import play


def stats_of(record: dict) -> dict[str, float]:
    """The sums of [`metrics.episode_stats`] for a record."""
    return episode_stats(record["calls"], record["parseable"], record["score"])


def measure(
    rollout: ParallelRollout,
    engine: Engine,
    processor,
    rows: Sequence[dict],
    budgets: Iterable[int],
    max_completion_length: int,
    max_pixels: int,
    batch_size: int = 32,
    progress: bool = True,
    snap: bool = False,
) -> dict[int, dict[str, float]]:
    """Rates of [`metrics.summarise`] for each frame budget, over the same rows; rows that failed are left out."""
    from tqdm import tqdm

    work = [(budget, start) for budget in budgets for start in range(0, len(rows), batch_size)]
    stats: dict[int, list[dict]] = {}
    for budget, start in tqdm(work, "Evaluation", disable=not progress, leave=False):
        collator = FrameBudgetCollator(
            processor, [budget], max_pixels=max_pixels, tools=rollout.dispatch != "none",
            backend=rollout.video_backend, snap=snap,
        )  # fmt: skip
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
        snap=args.snap_overview,
    )
