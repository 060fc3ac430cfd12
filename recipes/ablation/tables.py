"""Tables of an ablation, from its cells: means over seeds with their standard deviation."""

import glob
import json
import os
import statistics
from collections import defaultdict

from rows import BUDGETS, ROWS, VARIANTS


EARLY = 15  # steps of a run of which the table tells the compliance


def load(folder: str) -> dict[str, list[dict]]:
    """Finished cells by row, in the order of the table."""
    cells = defaultdict(list)
    for path in sorted(glob.glob(os.path.join(folder, "cells", "*.json"))):
        with open(path) as file:
            cell = json.load(file)
        cells[cell["row"]].append(cell)
    return {row: cells[row] for row in [*ROWS, *VARIANTS] if row in cells}


def spread(values: list[float]) -> str:
    """Mean and standard deviation over seeds."""
    if not values:
        return "-"
    return f"{statistics.mean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")


def over_budgets(rates: dict[str, dict], name: str, budgets=BUDGETS) -> float | None:
    found = [rates[str(k)][name] for k in budgets if name in rates[str(k)]]
    return statistics.mean(found) if found else None


def caller_gap(rates: dict) -> float | None:
    """Accuracy of the rollouts that called minus that of the others."""
    names = ("answered_with_tool_accuracy", "answered_without_tool_accuracy")
    return rates[names[0]] - rates[names[1]] if all(name in rates for name in names) else None


def markdown(title: str, header: list[str], rows: list[list[str]]) -> str:
    lines = [[title, *header], ["---"] * (len(header) + 1), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def tables(cells: dict[str, list[dict]]) -> str:
    def mean(row, mode, name, budgets=BUDGETS):
        found = [over_budgets(cell["rates"][mode], name, budgets) for cell in cells[row]]
        return spread([value for value in found if value is not None])

    def gap(row, budget):
        found = [caller_gap(cell["rates"]["sampled"][str(budget)]) for cell in cells[row]]
        return spread([value for value in found if value is not None])

    def early(row):
        logs = [[entry["format/compliance"] for entry in cell["log"][:EARLY]] for cell in cells[row]]
        return spread([statistics.mean(log) for log in logs if log])

    rates = {"f": "compliance", "kappa": "calls_per_rollout", "calls a turn": "calls_per_turn", "accuracy": "accuracy"}
    parts = []
    for mode in ("sampled", "greedy"):
        lines = [[row, *(mean(row, mode, name) for name in rates.values())] for row in cells]
        parts.append(markdown(f"{mode}, mean over K", list(rates), lines))
    trained = [row for row in cells if any(cell["log"] for cell in cells[row])]
    parts.append(markdown("training", [f"f, steps 1 to {EARLY}"], [[row, early(row)] for row in trained]))
    for name in ("compliance", "calls_per_rollout", "accuracy"):
        lines = [[row, *(mean(row, "sampled", name, [k]) for k in BUDGETS)] for row in cells]
        parts.append(markdown(f"{name.replace('_', ' ')}, sampled", [f"K = {k}" for k in BUDGETS], lines))
    lines = [[row, *(gap(row, k) for k in BUDGETS)] for row in cells]
    parts.append(markdown("accuracy of callers minus skippers", [f"K = {k}" for k in BUDGETS], lines))
    columns = [(m, name) for m in ("sampled", "sequential") for name in ("calls_per_rollout", "accuracy")]
    lines = [[row, *(mean(row, *column) for column in columns)] for row in cells]
    parts.append(markdown("dispatch", ["parallel: kappa", "accuracy", "sequential: kappa", "accuracy"], lines))
    return "\n\n".join(parts)
