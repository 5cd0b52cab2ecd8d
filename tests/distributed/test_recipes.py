"""The recipes of docs/distributed.md hold what they compare."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch.distributed")

from tests.distributed.recipes import recipes, run_recipe
from tests.shares import slow


def test_the_page_has_four_recipes() -> None:
    assert set(recipes()) == {"ddp", "fsdp", "tensor_parallel", "pipeline"}


@pytest.mark.parametrize("name", ["ddp", *(pytest.param(n, marks=slow) for n in ("fsdp", "tensor_parallel", "pipeline"))])
def test_two_processes_give_what_one_gives(name: str, tmp_path: Path) -> None:
    for rank, (code, told, errors) in enumerate(run_recipe(name, 2, tmp_path)):
        assert code == 0, errors
        assert f"process {rank} of 2" in told and "equal those of one process" in told


@slow
def test_four_processes_give_what_one_gives(tmp_path: Path) -> None:
    assert [code for code, _, _ in run_recipe("pipeline", 4, tmp_path)] == [0] * 4
