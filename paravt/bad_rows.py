"""
Rows with a bad video. They keep their places, so that batches have equal shapes on all ranks, and have no part in what
comes of them: gradients, statistics of rewards, logs.
"""

import math
from collections import deque
from collections.abc import Sequence

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object


FEW = 20  # rows, of which a share says nothing yet


class BadRows:
    """The rows of a run with a bad video, counted over all ranks."""

    def __init__(self, accelerator: Accelerator):
        self.accelerator = accelerator
        self.seen = self.failed = 0

    def left_out(self, errors: Sequence[str | None], group: int, max_share: float) -> torch.Tensor:
        """
        Which rows of a batch do not count, (ranks * B,): the whole groups of those with an error. All ranks decide it
        together.

        Args:
            errors (`Sequence[str | None]`): What is wrong with each row of this rank.
            group (`int`): Rows of a group.
            max_share (`float`): Share of bad rows up to which the run goes on.

        Raises:
            `RuntimeError`: on all ranks, if bad rows are more than that.
        """
        failed = torch.tensor([bool(error) for error in errors], device=self.accelerator.device)
        failed = self.accelerator.gather(failed)
        self.seen += len(failed)
        self.failed += int(failed.sum())
        share = self.failed / self.seen
        if failed.any() and share > max_share and self.seen >= FEW:
            last = gather_object([error for error in errors if error])[-1]
            raise RuntimeError(
                f"{share:.0%} of the rows so far had a video that cannot be decoded, more than `max_bad_rows` "
                f"{max_share:.0%}; the last: {last}"
            )
        return failed.view(-1, group).any(1).repeat_interleave(group)


def scales_of_means(counts: Sequence[torch.Tensor], accelerator: Accelerator) -> tuple[float, float]:
    """
    What makes means over all rows, and over all micro-batches, means over those that count; `counts` says of each
    micro-batch of this rank which rows do, (B,).
    """
    batches = torch.stack([rows.any() for rows in counts])
    shares = [accelerator.gather(found).float().mean().item() for found in (torch.cat(list(counts)), batches)]
    return tuple(1.0 / share if share else 1.0 for share in shares)


def length_metrics(lengths: torch.Tensor, ended: torch.Tensor) -> dict[str, float]:
    """TRL's metrics of the lengths of completions, (N,), of which some `ended` by themselves."""
    metrics = {"completions/clipped_ratio": (~ended).float().mean().item()}
    for name, values in (("", lengths), ("terminated_", lengths[ended])):
        if not len(values):
            values = torch.full((1,), math.nan if not len(lengths) else 0.0)
        for kind in ("mean", "min", "max"):
            metrics[f"completions/{kind}_{name}length"] = getattr(values, kind)().item()
    return metrics


def keep_of_last(log: deque, kept: Sequence[bool]) -> None:
    """Of the last entries of a log, one for each of `kept`, keeps those that are to be kept."""
    entries = list(log)
    log.clear()
    log.extend(entries[: -len(kept)])
    log.extend(entry for entry, keep in zip(entries[-len(kept) :], kept, strict=True) if keep)
