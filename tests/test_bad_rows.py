from collections import deque

import pytest
import torch
from accelerate import Accelerator

from paravt.bad_rows import BadRows, keep_of_last, length_metrics, scales_of_means


@pytest.fixture
def accelerator():
    return Accelerator(cpu=True)


class TestBadRows:
    def test_a_bad_row_spoils_its_group(self, accelerator):
        rows = BadRows(accelerator)
        assert rows.left_out([None, "gone", None, None], 2, 1.0).tolist() == [True, True, False, False]
        assert (rows.seen, rows.failed) == (4, 1)

    def test_too_many_are_an_error_once_there_are_some_rows(self, accelerator):
        rows = BadRows(accelerator)
        rows.left_out(["first"] * 8, 2, 0.5)
        with pytest.raises(RuntimeError, match="60% of the rows .* more than `max_bad_rows` 50%; the last: last"):
            rows.left_out([None] * 8 + ["then"] * 3 + ["last"], 2, 0.5)


@pytest.mark.parametrize(
    ("counts", "scales"),
    [
        ([[True, True], [True, True]], (1.0, 1.0)),
        ([[True, True], [False, False]], (2.0, 2.0)),
        ([[True, False], [True, False]], (2.0, 1.0)),
        ([[False, False]], (1.0, 1.0)),
    ],
)
def test_scales_of_means(accelerator, counts, scales):
    assert scales_of_means([torch.tensor(rows) for rows in counts], accelerator) == scales


def test_length_metrics_of_nothing_are_nan():
    nothing = length_metrics(torch.zeros(0), torch.zeros(0, dtype=torch.bool))
    assert all(value != value for value in nothing.values())
    cut = length_metrics(torch.tensor([3.0, 5.0]), torch.tensor([False, False]))
    assert cut["completions/mean_length"] == 4 and cut["completions/max_terminated_length"] == 0
    assert cut["completions/clipped_ratio"] == 1


def test_keep_of_last():
    log = deque([1, 2, 3, 4], maxlen=8)
    keep_of_last(log, [False, True, False])
    assert list(log) == [1, 3] and log.maxlen == 8
