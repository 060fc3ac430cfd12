"""A policy measured: the rates of its rollouts, by number of overview frames."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from accelerate import Accelerator
from accelerate.utils import gather_object

from ..collator import FrameBudgetCollator, row_key
from ..engines import Engine, engine_of
from ..metrics import episode_stats, summarise
from ..rollout import ParallelRollout
from ..seeds import copy_numbers, kept_generators, seed_of
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
    ranks: Accelerator | None = None,
    snap: bool = False,
) -> dict[int, dict[str, float]]:
    """
    Rates of [`metrics.summarise`] for each frame budget, over the same rows; rows that failed are left out.

    What is sampled depends on row and budget alone: a policy is measured with the same draws before and after its
    training. With `ranks` the rows are shared out, and every rank has the rates over all of them.
    """
    from tqdm import tqdm

    budgets = list(budgets)
    size, rank = (1, 0) if ranks is None else (ranks.num_processes, ranks.process_index)
    keys = [row_key(row) for row in rows]
    numbered = list(zip(keys, copy_numbers(keys), strict=True))
    # Ranks may share an engine: all of them play as many batches, also where one has no rows left.
    starts = range(0, len(rows), size * batch_size)
    found = []
    for budget, start in tqdm([(b, s) for b in budgets for s in starts], "Evaluation", disable=not progress):
        mine = range(start, min(start + size * batch_size, len(rows)))[rank::size]
        collator = FrameBudgetCollator(
            processor,
            [budget],
            max_pixels=max_pixels,
            tools=rollout.dispatch != "none",
            backend=rollout.video_backend,
            snap=snap,
        )
        seeds = [seed_of("measure", budget, *numbered[i]) for i in mine]
        played = play(rollout, engine, collator, [rows[i] for i in mine], max_completion_length, seeds=seeds)
        found += [(budget, i, stats_of(record)) for i, record in zip(mine, played, strict=True) if not record["error"]]
    if ranks is not None:
        found = gather_object(found)
    stats: dict[int, list[dict]] = {}
    for budget, _, sums in sorted(found, key=lambda entry: entry[:2]):  # added in one order, whoever played them
        stats.setdefault(budget, []).append(sums)
    return {budget: summarise(stats[budget]) for budget in budgets if budget in stats}


def measure_trainer(
    trainer, rows: Sequence[dict], budgets: Iterable[int], rollout=None, sampled: bool = True
) -> dict[int, dict[str, float]]:
    """
    [`measure`] for a trainer's policy, on all its ranks: with its rollout unless given another, sampled as in training
    or not. Training goes on as if it had not been measured.
    """
    args = trainer.args
    with kept_generators(), _eval_mode(trainer.model):
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
            progress=trainer.is_world_process_zero(),
            ranks=trainer.accelerator,
            snap=args.snap_overview,
        )


@contextmanager
def _eval_mode(model) -> Iterator[None]:
    """Within it the model is in evaluation mode."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
