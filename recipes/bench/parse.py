"""
What reading tool calls costs: calls per second, and how the cost grows with the length of the text.

    python recipes/bench/parse.py
"""

import math
import statistics
import time

from paravt.metrics import table
from paravt.tools import ToolCall, parse_tool_calls, render_tool_call


CHARACTERS = 8192  # about 2,048 tokens


def median_seconds(function, *args, runs: int = 7) -> float:
    """Median wall time of a call."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        function(*args)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def parse() -> str:
    """Cost of reading the calls of one completion: usual, almost JSON, Python form, and texts made to be slow."""
    call = render_tool_call(ToolCall("crop_video", {"video_path": "v.mp4", "start_time": 10.0, "end_time": 20.0}))
    thought = "<think>\n" + "The frames do not show it. " * 40 + "\n</think>\n"
    units = {
        "usual turns: thought, five calls": thought + "\n".join([call] * 5),
        "calls only": call,
        "almost JSON": call.replace('"', "'"),
        "Python form": '<tool_code>crop_video("v.mp4", 10, 20)</tool_code>',
        "<tool_call> without end": "<tool_call>",
        "<tool_call>{'": "<tool_call>{'",
        '{"a": nested': '<tool_call>{"a":',
        "[[[[": "[",
        "<think>": "<think>",
        "```tool_code f('": "```tool_code f('",
        "<tool_code>f((": "<tool_code>f((",
    }
    rows = []
    for name, unit in units.items():
        texts = {size: (unit * math.ceil(size / len(unit)))[:size] for size in (CHARACTERS, 8 * CHARACTERS)}
        if name.startswith("usual"):  # whole turns: thinking is skipped once per turn
            texts = {size: unit * max(1, size // len(unit)) for size in texts}
        seconds = {size: median_seconds(parse_tool_calls, text) for size, text in texts.items()}
        found = sum(isinstance(entry, ToolCall) for entry in parse_tool_calls(texts[CHARACTERS]))
        columns = {
            "ms": 1000 * seconds[CHARACTERS],
            "x at 8 times the length": seconds[8 * CHARACTERS] / seconds[CHARACTERS],
        }
        if found:
            columns |= {"calls": found, "calls/s": found / seconds[CHARACTERS]}
        rows.append((name, columns))
    return table("8,192 characters of", rows, ["calls", "ms", "calls/s", "x at 8 times the length"])


if __name__ == "__main__":
    print(parse())
