"""A pairwise covering set of the matrix templates' plans, each through NVRTC and ptxas: nothing spills, no warning that
something was given up, and the instructions that the plan stands for, as often as it says (notes: gpu §8)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tatami.core.dtype import DType
from tatami.gpu.ir import Kernel
from tatami.runtime.building.nvrtc import has_nvrtc
from tests.cu.every_choice.covering import FAMILIES, covering, kernels_of, plan_of, source_of
from tests.cu.machine_code import compiled, machine_codes, without_modifiers, wrong_counts
from tests.pairwise import pairs_of

ROWS = [(family, row) for family in FAMILIES for row in covering(family)[0]]
TOGETHER = 10
"""Rows whose machine code is read by one call of the disassembler."""
PARTS = [(family, start) for family in FAMILIES for start in range(0, len(covering(family)[0]), TOGETHER)]
IMPOSSIBLE = {
    "sm80": set(),
    "fma": set(),
    "tf32": set(),
    "sm90": {
        # ping-pong: two consumers, each with a whole tile in its registers; 64 rows are too few to be divided
        *(("how", "pingpong", "tile", t) for t in ("128x256x64 2", "256x128x64 2", "192x64x32 3", "64x64x64 1")),
        *(("how", how, "tile", "64x256x64 2") for how in FAMILIES["sm90"]["how"] if how != "pingpong"),
        # exchanged operands are for few rows: registers hold the addresses of their results
        *(("how", "exchanged", "tile", t) for t in ("128x256x64 2", "256x128x64 2")),
        ("how", "split", "staged", True),
        # wgmma takes operands of other sizes than two bytes along k only
        *(("dtype", dtype, "order", order) for dtype in (DType.fp32, DType.f8e4m3fn) for order in ("nn", "tn", "tt")),
        ("dtype", DType.fp32, "staged", True),
    },
    "copied": set(),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_rows_hold_every_pair_that_a_plan_can_have(family: str) -> None:
    rows, impossible = covering(family)
    assert {tuple(x for item in sorted(p) for x in item) for p in impossible} == IMPOSSIBLE[family]
    met = {p for row in rows for p in pairs_of(row)}
    factors = FAMILIES[family]
    names = list(factors)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            for x in factors[a]:
                for y in factors[b]:
                    assert frozenset(((a, x), (b, y))) in met | impossible


def test_the_set_is_small() -> None:
    assert len(ROWS) <= 120


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize(("family", "start"), PARTS)
def test_plans_of_the_set_compile_to_what_they_say(family: str, start: int, tmp_path: Path) -> None:
    rows = covering(family)[0][start : start + TOGETHER]
    kernels = [kernels_of(family, row) for row in rows]
    sources = [source_of(family, some) for some in kernels]
    made = [[compiled(unit, source.headers) for unit in source.units] for source in sources]
    for row, cubins in zip(rows, made):
        for cubin in cubins:
            assert cubin.warnings == () and cubin.spill_bytes == 0, row
    codes = machine_codes([first for first, *_ in made], sources[0].units[0].arch, tmp_path)
    for row, (product, *_), found in zip(rows, kernels, codes, strict=True):
        ops = without_modifiers(found)
        assert ops["STL"] == ops["LDL"] == 0, row
        assert isinstance(product, Kernel), row
        assert list(wrong_counts(product, plan_of(family, row), found)) == [], row
