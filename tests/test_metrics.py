import pytest

from paravt.metrics import episode_stats, summarise, table, window_readings


def call(status="ok", turn=0, start=0.0, end=1.0):
    return {"status": status, "turn": turn, "start": start, "end": end}


def test_rates():
    stats = [
        episode_stats([call(), call(), call("refused"), call(turn=1)], True, 1.0),
        episode_stats([], False, 0.5),
        episode_stats([], True, None),
    ]
    assert summarise(stats) == pytest.approx(
        {
            "compliance": 2 / 3,
            "calls_per_rollout": 4 / 3,
            "calls_per_turn": 2,
            "call_rate": 1 / 3,
            "failure_rate": 1 / 4,
            "no_room_rate": 0,
            "accuracy": 0.75,
            "answered_with_tool_accuracy": 1.0,
            "answered_without_tool_accuracy": 0.5,
        }
    )
    assert "failure_rate" not in summarise([episode_stats([], True, 1.0)])


def test_windows_that_are_frame_numbers_show():
    # 20 minutes, 512 overview frames, the event at 165 to 350 s: asked for as frames 70 to 151.
    found = window_readings([call(start=70.0, end=151.0), call("refused")], (165.0, 350.0), 1200.0, 512)
    assert found == {"seconds": 0.0, "frame_numbers": 1.0}
    assert window_readings([], (0.0, 1.0), 10.0, 4) == {}


def test_table():
    assert table("rows", [("a", {"x": 1.0}), ("long", {"y": 2.5})], ["x", "y"]).splitlines() == [
        "rows     x     y",
        "----------------",
        "a     1.00     -",
        "long     -  2.50",
    ]
