import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paravt.answers.intervals import parse_interval, read_windows, temporal_iou, write_windows


@pytest.mark.parametrize(
    "text, interval",
    [
        ("24.3 - 30.4", (24.3, 30.4)),
        ("2.0 to 5.0 seconds", (2, 5)),
        ("[2.0, 5.0]", (2, 5)),
        ("(2, 5)", (2, 5)),
        ("00:02 - 00:05", (2, 5)),
        ("1:02:03 - 1:02:05", (3723, 3725)),
        ("starts at 2.0 seconds and ends at 5.0 seconds", (2, 5)),
        ("from 2s to 5s", (2, 5)),
        ("2s\u20135s", (2, 5)),
        ("<2.0 seconds> - <5.0 seconds>", (2, 5)),
        ("between 2 and 5", (2, 5)),
        ("1m30s to 1m45s", (90, 105)),
        ('{"start": 2, "end": 5}', (2, 5)),
        ("24.3-30.4", (24.3, 30.4)),
        ("24.3 - 30.4 (6.1 s)", (24.3, 30.4)),
        ("00:00:12,500 --> 00:00:20,000", (12.5, 20)),
        ("00:00:12.500 --> 00:00:20.000", (12.5, 20)),
        ("[00:12,00:20]", (12, 20)),
        ("de 12,5 à 20,3 secondes", (12.5, 20.3)),
        ("12 à 20,5 secondes", (12, 20.5)),
        ("von 12,5 bis 20,3 Sekunden", (12.5, 20.3)),
        ("da 12,5 a 20,3 secondi", (12.5, 20.3)),
        ("с 12,5 до 20,3 секунд", (12.5, 20.3)),
        ("从12.5秒到20秒", (12.5, 20)),
        ("12秒から20秒まで", (12, 20)),
        ("12초부터 20초까지", (12, 20)),
        ("từ 12 đến 20 giây", (12, 20)),
        ("12 से 20 सेकंड", (12, 20)),
        ("من 12 إلى 20 ثانية", (12, 20)),
        ("2分5秒到2分20秒", (125, 140)),
        ("１２秒〜２０秒", (12, 20)),
        ("12.5 to 20 seconds, i.e. [12.5, 20.0]", (12.5, 20)),
        ("1:05-1:20, that is 65 to 80 seconds", (65, 80)),
        ("0:12 to 0:20 (12 s to 20 s)", (12, 20)),
        ("1 minute and 5 seconds to 1 minute and 20 seconds", (65, 80)),
        ("1 hour 2 minutes to 1 hour 3 minutes", (3720, 3780)),
        ("90 seconds to 2 minutes", (90, 120)),
        ("It begins at 12 s and ends at 20 s of the 64 s video", (12, 20)),
        ("(2,5)", (2, 5)),
        ("[12,20]", (12, 20)),
        ("12..20", (12, 20)),
        ("12٫5 - 20٫25", (12.5, 20.25)),
        ("من ١٢٫٥ إلى ٢٠٫٢ ثانية", (12.5, 20.2)),
        ("1500 ms to 3000 ms", (1.5, 3)),
        ("1500-3000 milliseconds", (1.5, 3)),
        ("1500毫秒到3000毫秒", (1.5, 3)),
        ("1,200 to 1,350 s", (1200, 1350)),
        ("from 950 seconds to 1,020.5 seconds", (950, 1020.5)),
        ("1'05\" - 1'20\"", (65, 80)),
        ("1′05″ to 1′20.5″", (65, 80.5)),
        ("[1,200]", (1, 200)),
        ("12,500 - 20,300 s", None),  # may be decimals
        ("12-20, or 30-40", None),
        ("2 - 5 and 7 - 9", None),
        ("[2,5], [7,9]", None),
        ("1,000 - 2,000", None),
        ("5 - 2", None),
        ("-3 - 5", None),
        ("at 5 seconds", None),
        ("", None),
        ("1 2 3", None),
        ("soon", None),
        ("1:75 - 2:00", None),
    ],
)
def test_parse_interval(text, interval):
    assert parse_interval(text) == (None if interval is None else pytest.approx(interval))


@pytest.mark.parametrize(
    "a, b, iou",
    [
        ((0, 10), (5, 15), 1 / 3),
        ((0, 10), (0, 10), 1),
        ((5, 5), (5, 5), 0),
        ((10, 0), (0, 10), 0),
        ((0, 1), (2, 3), 0),
        ((0, 100), (20, 30), 0.1),
        ((math.nan, 1), (0, 1), 0),
        ((0, math.inf), (0, 1), 0),
    ],
)
def test_temporal_iou(a, b, iou):
    assert temporal_iou(a, b) == pytest.approx(iou)


@settings(max_examples=200, deadline=None)
@given(*[st.tuples(st.floats(), st.floats())] * 2)
def test_iou_is_symmetric_and_bounded(a, b):
    assert temporal_iou(a, b) == temporal_iou(b, a)
    assert 0 <= temporal_iou(a, b) <= 1


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(["12", "3,5", ":", "to", "-", " ", "s", "min", "[", "]", "end", "秒", "à"]), max_size=30)
)
def test_no_text_raises(pieces):
    interval = parse_interval("".join(pieces))
    assert interval is None or 0 <= interval[0] <= interval[1]


class TestWindows:
    @pytest.mark.parametrize(
        "truth, windows",
        [
            ("2 - 5", [(2, 5)]),
            ([2, 5], [(2, 5)]),
            ((2.0, 5.5), [(2, 5.5)]),
            ([[2, 5]], [(2, 5)]),
            ([[[2, 5]]], [(2, 5)]),
            ([[2, 5], [7, 9]], [(2, 5), (7, 9)]),
            ({"start": 2, "end": 5}, [(2, 5)]),
            ({"start_time": "0:02", "end_time": "0:05", "label": None}, [(2, 5)]),
            ([{"start": 2, "end": 5}, {"start": 7, "end": 9}], [(2, 5), (7, 9)]),
            (["00:02", "00:05"], [(2, 5)]),
            (["2", "5"], [(2, 5)]),
            (["2 - 5"], [(2, 5)]),
            (["2 - 5", "7 - 9"], [(2, 5), (7, 9)]),
            ("[[2.0, 5.0]]", [(2, 5)]),
            ("[[2, 5], [7, 9]]", [(2, 5), (7, 9)]),
            ('{"start": 2, "end": 5}', [(2, 5)]),
            ("{'start': 2, 'end': 5}", [(2, 5)]),
            ("from 2 to 5 seconds", [(2, 5)]),
            ([1e-7, 3], [(1e-7, 3)]),
            ([0, 98765.25], [(0, 98765.25)]),
            ([[1e-7, 3], [4, 5]], [(1e-7, 3), (4, 5)]),
        ],
    )
    def test_reads(self, truth, windows):
        assert read_windows(truth) == windows
        assert read_windows(write_windows(windows)) == windows

    @pytest.mark.parametrize(
        "truth",
        [
            None,
            True,
            5,
            "",
            "soon",
            [],
            {},
            [None, 5],
            [2, None],
            [5, 2],
            [5, 5],
            [2, 5, 7, 9],
            [True, 5],
            [math.nan, 5],
            ["a", "b"],
            {"start": 2},
            {"start": 5, "end": 2},
            [[2, 5], None],
            [[2, 5], [5, 5]],
            {"start": 2, "begin": 3, "end": 5},
            [[]],
            b"2 - 5",
        ],
    )
    def test_refuses(self, truth):
        with pytest.raises(ValueError):
            read_windows(truth)
