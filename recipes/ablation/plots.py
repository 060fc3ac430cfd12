"""
Tables and figures of an ablation, from its cells.

    python recipes/ablation/plots.py paravt-ablation
"""

import os
import statistics
import sys
from collections import defaultdict

from rows import BUDGETS
from tables import load, tables


# Okabe and Ito's colours, told apart by the colour-blind; line styles and markers tell them apart in grey print.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
STYLES = ["-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1))]
MARKERS = "osD^vPX"
SHOWN = 40  # steps of a run that the figures show


def curve(cells: list[dict], name: str) -> tuple[list[int], list[float]]:
    """Mean over seeds of a logged value, smoothed over five steps; as long as the shortest run."""
    runs = [[(entry["step"], entry[name]) for entry in cell["log"] if name in entry] for cell in cells]
    merged: dict[int, list[float]] = defaultdict(list)
    last = min(SHOWN, *(max((step for step, _ in run), default=0) for run in runs))
    for run in runs:
        for step, value in run:
            if step <= last:
                merged[step].append(value)
    steps = sorted(merged)
    values = [statistics.mean(merged[step]) for step in steps]
    return steps, [statistics.mean(values[max(0, i - 4) : i + 1]) for i in range(len(values))]


def figures(cells: dict[str, list[dict]], folder: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    trained = [row for row in ("GRPO", "anchoring only", "gating only", "PARA-GRPO") if row in cells]
    look = {row: {"color": COLOURS[i], "linestyle": STYLES[i]} for i, row in enumerate(trained)}

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for row in trained:
        for axis, name in zip(axes, ("format/compliance", "tools/calls_per_rollout"), strict=True):
            axis.plot(*curve(cells[row], name), label=row, **look[row])
    axes[0].set(xlabel="step", ylabel="compliance f (share of rollouts)", ylim=(0, 1.03))
    axes[1].set(xlabel="step", ylabel="calls per rollout, kappa")
    axes[1].legend()
    figure.savefig(os.path.join(folder, "dynamics.png"), dpi=110)

    figure, axis = pyplot.subplots(figsize=(5, 3.2), layout="constrained")
    for i, row in enumerate(row for row in ("cold start", *trained) if row in cells):
        values = [statistics.mean(c["rates"]["sampled"][str(k)]["accuracy"] for c in cells[row]) for k in BUDGETS]
        axis.plot(BUDGETS, values, label=row, color=COLOURS[i], linestyle=STYLES[i], marker=MARKERS[i])
    axis.set_xscale("log", base=2)
    axis.set(xlabel="overview frames K", ylabel="accuracy (share right, sampled)", ylim=(0, 1.03))
    axis.set_xticks(BUDGETS, [str(k) for k in BUDGETS])
    axis.legend()
    figure.savefig(os.path.join(folder, "accuracy.png"), dpi=110)

    figure, axis = pyplot.subplots(figsize=(5, 3.2), layout="constrained")
    source = next((row for row in ("without tool reward", "gating only", "PARA-GRPO") if row in cells), None)
    for i, k in enumerate(BUDGETS if source else []):
        axis.plot(
            *curve(cells[source], f"budget_{k}/call_minus_skip"),
            label=f"K = {k}",
            color=COLOURS[i],
            linestyle=STYLES[i],
        )
    axis.axhline(0, color="grey", linewidth=0.8)
    axis.set(xlabel="step", ylabel="reward of callers minus skippers", title=source)
    axis.legend()
    figure.savefig(os.path.join(folder, "call_minus_skip.png"), dpi=110)
    pyplot.close("all")


def report(folder: str) -> None:
    """Prints the tables, writes them to `table.md`, and draws the figures beside it."""
    cells = load(folder)
    text = tables(cells)
    with open(os.path.join(folder, "table.md"), "w") as file:
        file.write(text + "\n")
    print(text)
    figures(cells, folder)


if __name__ == "__main__":
    report(sys.argv[1] if len(sys.argv) > 1 else "paravt-ablation")
