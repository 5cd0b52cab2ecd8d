"""A pairwise covering set of the matrix templates' plans, each through NVRTC and ptxas: nothing spills, no warning that
something was given up, and the instructions that the plan stands for, as often as it says (notes §8)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tatami.cu.ir import Unit
from tatami.plan.ir import Sm80Mma, Sm90Mma
from tatami.runtime.cache import default_cache
from tatami.runtime.cuda.cubins import unit_key
from tatami.runtime.nvrtc import Cubin, compile_cubin, has_nvrtc
from tests.cu.covering import FAMILIES, Row, covering, pairs_of, plan_of, source_of
from tests.cu.test_compile import machine_code

ROWS = [(family, row) for family in FAMILIES for row in covering(family)[0]]
IMPOSSIBLE = {
    "sm80": set(),
    "fma": set(),
    "sm90": {
        # ping-pong: two consumers, each with a whole tile in its registers
        *(("how", "pingpong", "tile", t) for t in FAMILIES["sm90"]["tile"] if t not in ("128x192x64 2", "128x64x64 2")),
        # exchanged operands are for few rows: registers hold the addresses of their results
        *(("how", "exchanged", "tile", t) for t in ("128x256x64 2", "256x128x64 2", "128x192x64 2", "64x256x64 1")),
        ("how", "split", "staged", True),
    },
}

SPILLED = {"64x256x64 1": 16}
"""Bytes that a tile may spill: one consumer that holds 64 x 256 results. The planner has no such shape."""


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
@pytest.mark.parametrize("number", range(len(ROWS)), ids=lambda n: f"{ROWS[n][0]}-{n}")
def test_a_plan_of_the_set_compiles_to_what_it_says(number: int, tmp_path: Path) -> None:
    family, row = ROWS[number]
    source = source_of(family, row)
    for unit in source.units:
        cubin = compiled(unit, source.headers)
        assert cubin.warnings == () and cubin.spill_bytes <= SPILLED.get(row["tile"], 0), row
    check(row, plan_of(family, row), machine_code(compiled(source.units[0], source.headers), tmp_path))


def compiled(unit: Unit, headers: dict[str, str]) -> Cubin:
    """From the cache of machine code where an earlier run has left it."""
    cache = default_cache()
    key = unit_key(unit, headers, unit.arch)
    body = cache.get(key)
    if body is not None:
        return msgspec.msgpack.decode(body, type=Cubin)
    cubin = compile_cubin(unit.text, unit.arch, headers)
    cache.put(key, msgspec.msgpack.encode(cubin))
    return cubin


def check(row: Row, plan: Sm80Mma | Sm90Mma, code: Counter[str]) -> None:
    """Counts per block of k, in whole multiples: ptxas unrolls and peels as it likes."""
    ops: Counter[str] = Counter()
    for op, count in code.items():
        ops[op.split(".")[0]] += count
    bm, bn, bk = plan.tile
    assert row["tile"] in SPILLED or ops["STL"] == ops["LDL"] == 0
    if isinstance(plan, Sm90Mma):
        sharing = 1 if plan.schedule == "pingpong" else plan.consumers
        assert ops["HGMMA"] > 0 and ops["HGMMA"] % (bk // 16 * (bm // 64 // sharing)) == 0
        assert ops["UTMALDG"] >= 2 and ops["USETMAXREG"] == 2 and ops["HMMA"] == ops["LDGSTS"] == 0
        assert any("MULTICAST" in op for op in code) == (plan.multicast != "none")
        assert (ops["UTMASTG"] > 0) == (plan.epilogue_store == "stmatrix_tma")
        return
    if not plan.async_.enable:
        assert ops["LDGSTS"] == ops["HMMA"] == 0
        return
    wm, wn = map(int, plan.warp_tile.split("x"))
    threads = 32 * (bm // wm) * (bn // wn)
    if plan.inst_shape == "fma":
        assert ops["FFMA"] % (wm // 8 * (wn // 4)) == 0 and ops["HMMA"] == 0
    else:
        assert ops["HMMA"] > 0 and ops["HMMA"] % (wm // 16 * (wn // 8) * (bk // 16)) == 0
        assert ops["LDSM"] > 0 and ops["LDSM"] % ((wm // 16 + wn // 16) * (bk // 16)) == 0
    if row["width"] in (8, 4):
        size = 2 if row["width"] == 8 else 4
        assert ops["LDGSTS"] > 0 and ops["LDGSTS"] % ((bm + bn) * bk * size // 16 // threads) == 0
