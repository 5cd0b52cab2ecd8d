"""Two moments of `python -m tests.distributed.kills`."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

pytest.importorskip("torch.distributed")

from tests.distributed.kills import TIMEOUT, Moment, ends_after
from tests.shares import slow


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=slow)])
def test_a_process_that_dies_or_hangs_is_one_diagnostic_in_the_other(how: signal.Signals, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (end,) = ends_after(Moment(0.3, True, how, 1), tmp_path)
    assert end.is_told and end.errors.count("E1814 CollectiveFailed") == 1, end.errors
    assert end.seconds < (0 if how == signal.SIGKILL else TIMEOUT) + 20  # a connection that closes is noticed at once
