"""Numbers about rollouts, and the table that compares them."""

from collections.abc import Iterable, Sequence


def episode_stats(calls: Sequence[dict], parseable: bool, accuracy: float | None) -> dict[str, float]:
    """Sums of one rollout; `None` accuracies count as missing."""
    return {
        "rollouts": 1.0,
        "compliance": float(parseable),
        "calls": float(len(calls)),
        "failed": float(sum(call["status"] != "ok" for call in calls)),
        "no_room": float(sum(call["status"] == "no_room" for call in calls)),
        "calling_turns": float(len({call["turn"] for call in calls})),
        "callers": float(bool(calls)),
        "scored": float(accuracy is not None),
        "accuracy": accuracy or 0.0,
        "callers_scored": float(accuracy is not None and bool(calls)),
        "callers_accuracy": (accuracy or 0.0) * bool(calls),
        "skippers_scored": float(accuracy is not None and not calls),
        "skippers_accuracy": (accuracy or 0.0) * (not calls),
    }


def summarise(stats: Iterable[dict[str, float]]) -> dict[str, float]:
    """Rates from the sums of rollouts; a rate without anything under it is left out."""
    total: dict[str, float] = {}
    for row in stats:
        for name, value in row.items():
            total[name] = total.get(name, 0.0) + value
    rates = {
        "compliance": ("compliance", "rollouts"),
        "calls_per_rollout": ("calls", "rollouts"),
        "calls_per_turn": ("calls", "calling_turns"),
        "call_rate": ("callers", "rollouts"),
        "failure_rate": ("failed", "calls"),
        "no_room_rate": ("no_room", "calls"),
        "accuracy": ("accuracy", "scored"),
        "answered_with_tool_accuracy": ("callers_accuracy", "callers_scored"),
        "answered_without_tool_accuracy": ("skippers_accuracy", "skippers_scored"),
    }
    return {name: total[a] / total[b] for name, (a, b) in rates.items() if total.get(b)}


def window_readings(
    calls: Sequence[dict], truth: tuple[float, float], duration: float, frames: int
) -> dict[str, float]:
    """
    Share of served windows that overlap the true interval, read as seconds and read as numbers of overview frames: a
    policy that asks for frame numbers scores on the second only.
    """
    served = [(call["start"], call["end"]) for call in calls if call["status"] == "ok"]
    scale = {"seconds": 1.0, "frame_numbers": duration / max(1, frames)}
    return {
        name: sum(start * unit < truth[1] and end * unit > truth[0] for start, end in served) / len(served)
        for name, unit in scale.items()
        if served
    }


def table(title: str, rows: Sequence[tuple[str, dict[str, float]]], columns: Sequence[str]) -> str:
    """A plain text table, a line per row; a missing value is a dash."""
    cells = [[title, *columns]]
    for name, values in rows:
        cells.append([name, *(f"{values[c]:.2f}" if c in values else "-" for c in columns)])
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = [
        "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True)))
        for r in cells
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
