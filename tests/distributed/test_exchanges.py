"""Collectives of torch.distributed in compiled programs."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch.distributed")

from tests.distributed.processes import outputs, started

SCRIPT = Path(__file__).parent / "exchanges.py"


def test_every_collective_agrees_with_eager_in_one_program(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with started(SCRIPT, 2, "float32", "bfloat16", cache=tmp_path) as processes:
        for code, told, errors in outputs(processes, 300):
            assert code == 0 and "right" in told, errors
