"""Each rule of the verifier of stream-K: a kernel, a cut or a program that breaks it is named, and others are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tatami.core.expr import shape, var
from tatami.core.kernel import Binding
from tatami.core.target import PRESETS
from tatami.gpu import ir, statement_ir
from tatami.gpu.lower import lower_stream_k
from tatami.gpu.proof.program import all_statements
from tatami.gpu.proof.verify_stream_k import _uncovered, check_rows, check_units, cut_of_kernel, rows_of_tail
from tatami.plan.ir import Guarded, StreamK
from tatami.plan.views.stream_k_cut import Cut
from tests.gpu.gemm_examples import gemm, sm90

replace: Any = msgspec.structs.replace
PLAN = sm90((64, 64, 64), 2, persistent=True, overlap=True, consumers=1, registers=(56, 224))


def kernels(rows: int, units: int, *sizes: int) -> list[ir.Kernel]:
    """Kernels of one product: whole tiles, if there are any, then the tail."""
    plan = replace(PLAN, stream_k=StreamK(rows, units))
    made = lower_stream_k(gemm(*sizes), Guarded((), plan), PRESETS["sm90"])
    return [k for k, _ in made if isinstance(k, ir.Kernel)]


WHOLE, TAIL = kernels(1, 4, 200, 152, 264)
(ALL,) = kernels(4, 5, 200, 152, 200)


def faults(k: ir.Kernel) -> list[str]:
    return [d.why for d in check_units(k)]


def edited(k: ir.Kernel, change: Callable[[Any], Any]) -> ir.Kernel:
    def body(statements: tuple[Any, ...]) -> tuple[Any, ...]:
        inner = (
            replace(s, body=body(s.body)) if isinstance(s, statement_ir.Loop | statement_ir.Role) else s for s in statements
        )
        return tuple(map(change, inner))

    return replace(k, body=body(k.body))


def test_kernels_of_the_compiler_pass() -> None:
    assert TAIL.units and ALL.units and not WHOLE.units
    assert faults(TAIL) == faults(ALL) == faults(WHOLE) == []
    assert faults(replace(WHOLE, uneven=True, tile_order="hilbert")) == []


LAST = [s for s in TAIL.body if isinstance(s, statement_ir.Role)][-1]


def turned(s: Any) -> Any:
    return replace(s, turns=True) if isinstance(s, statement_ir.Role) and s.name == LAST.name else s


def store(**fields: Any) -> Callable[[Any], Any]:
    return lambda s: replace(s, **fields) if isinstance(s, statement_ir.StGlobalVec) else s


ONE = "only persistent tiles of one product are cut into pieces"
WRONG: list[tuple[ir.Kernel, str]] = [
    (replace(TAIL, weights=object()), ONE),
    (replace(TAIL, weights=object(), uneven=False), ONE),
    (replace(TAIL, groups=object()), ONE),
    (replace(TAIL, uneven=False), "pieces differ in their number of blocks, which `uneven` does not say"),
    (edited(TAIL, turned), "warpgroups take tiles in turns"),
    (replace(TAIL, tile_order="grouped"), "tiles are not numbered row by row"),
    (replace(TAIL, grid={**TAIL.grid, "x": "m"}), "tiles are not numbered row by row"),
    (replace(TAIL, m=var("M")), "the line of blocks has no known length"),
    (replace(TAIL, n=var("N")), "the line of blocks has no known length"),
    (replace(TAIL, k=var("K")), "the line of blocks has no known length"),
    (replace(TAIL, batch=shape("B")), "the line of blocks has no known length"),
    (replace(TAIL, units=16), "16 units share 15 blocks: some have none"),
    (replace(TAIL, split=1), "has no slot: there are 1"),
    (edited(TAIL, store(index=var("m"))), "pieces lie 0 elements apart, a slot has"),
]


@pytest.mark.parametrize(("k", "why"), WRONG, ids=[w for _, w in WRONG])
def test_a_broken_rule_is_the_first_fault(k: ir.Kernel, why: str) -> None:
    found = faults(k)
    assert why in found[0], found
    assert len(found) == 1 or "apart" in found[1] or "apart" in found[0], found


def test_kernels_without_roles_are_not_cut() -> None:
    flat = replace(TAIL, barrier_model="cp_async_group")
    assert not flat.has_roles and faults(flat) == [ONE]


def test_a_slot_has_the_rows_of_the_tail_in_every_batch() -> None:
    assert (rows_of_tail(TAIL), rows_of_tail(ALL), rows_of_tail(WHOLE)) == (8, 200, 200)
    assert rows_of_tail(replace(TAIL, m=var("M"))) == 0
    assert rows_of_tail(replace(TAIL, tile_rows=None)) == 200
    assert rows_of_tail(replace(TAIL, tile=(32, 64, 64))) == 200 - 96
    assert rows_of_tail(replace(TAIL, cluster=(2, 1), tile_rows=(1, 1))) == 200 - 128
    assert any(isinstance(s, statement_ir.StGlobalVec) for s in all_statements(TAIL.body))


def test_the_cut_of_a_kernel_is_by_its_sizes() -> None:
    assert cut_of_kernel(TAIL) == Cut(3, 1, 3, 5, 4)
    assert cut_of_kernel(ALL) == Cut(0, 4, 12, 4, 5)
    assert cut_of_kernel(replace(ALL, batch=shape(2))) == Cut(0, 4, 24, 4, 5)
    assert cut_of_kernel(replace(ALL, cluster=(2, 1), tile_rows=None)) == Cut(0, 2, 6, 4, 5)
    assert cut_of_kernel(replace(ALL, cluster=(1, 2))) == Cut(0, 4, 8, 4, 5)


class Pieces:
    """A cut whose pieces are as they are given: per unit (tile, first, end, number)."""

    def __init__(self, tiles: int, blocks: int, *units: tuple[tuple[int, int, int, int], ...]) -> None:
        self.tiles, self.blocks, self.made = tiles, blocks, units
        self.units, self.line = len(units), tiles * blocks

    def pieces(self, unit: int) -> tuple[tuple[int, int, int, int], ...]:
        return self.made[unit]


@pytest.mark.parametrize(
    ("cut", "why"),
    [
        (Pieces(2, 3, ((0, 0, 2, 0),), ((0, 2, 3, 1), (1, 0, 3, 0))), ""),
        (Pieces(2, 3, ((0, 0, 3, 0), (1, 0, 1, 0)), ((1, 1, 3, 1),)), ""),
        (Pieces(1, 2, ((0, 0, 1, 0),), ((0, 1, 2, 1),)), ""),
        (Pieces(1, 2, ((0, 0, 1, 0),), ((0, 1, 2, 1),), ()), "3 units share 2 blocks: some have none"),
        (Pieces(2, 3, ((0, 1, 3, 0),)), "unit 0 begins at block 1 of tile 0, the blocks before it end at 0 of tile 0"),
        (Pieces(2, 3, ((1, 0, 3, 0),)), "unit 0 begins at block 0 of tile 1, the blocks before it end at 0 of tile 0"),
        (Pieces(2, 3, ((0, 0, 3, 0),), ((0, 0, 3, 0),)), "unit 1 begins at block 0 of tile 0, the blocks before it end at 0 of tile 1"),
        (Pieces(2, 3, ((0, 0, 2, 0),), ((0, 2, 3, 0),)), "piece 1 of tile 0 is stored as piece 0"),
        (Pieces(1, 3, ((0, 0, 1, 0),), ((0, 1, 2, 1),), ((0, 2, 3, 2),)), "piece 2 of tile 0 has no slot: there are 2"),
        (Pieces(2, 3, ((0, 0, 3, 0),)), "1 of 2 tiles are whole"),
        (Pieces(1, 3, ((0, 0, 2, 0),)), "0 of 1 tiles are whole"),
        (Pieces(1, 1, ((0, 0, 1, 0), (1, 0, 1, 0))), "2 of 1 tiles are whole"),
    ],
)  # fmt: skip
def test_pieces_make_whole_tiles(cut: Any, why: str) -> None:
    assert list(_uncovered(cut, 2)) == ([why] if why else [])


def rows(*parts: ir.Kernel, region: str = "r", choice: int = 0) -> list[str]:
    named = [replace(k, face=replace(k.face, symbol=f"k{i}")) for i, k in enumerate(parts)]
    bindings = tuple(Binding(region, k.face.symbol, (), (), choice=choice) for k in named)
    return [d.why for d in check_rows(ir.Program(tuple(named), bindings))]


def test_kernels_of_some_rows_compute_all_together() -> None:
    assert rows(WHOLE, TAIL) == [] == rows(TAIL, WHOLE)
    assert rows(ALL) == [] == rows(replace(WHOLE, tile_rows=None))
    assert rows(WHOLE) == ["3 of 4 rows of tiles are computed"]
    assert rows(TAIL) == ["rows of tiles 3 .. are computed behind 0"]
    assert rows(WHOLE, replace(TAIL, tile_rows=(2, 2))) == ["rows of tiles 2 .. are computed behind 3"]
    assert rows(WHOLE, replace(TAIL, tile_rows=(3, 2))) == ["5 of 4 rows of tiles are computed"]
    wide = (replace(WHOLE, cluster=(2, 1), tile_rows=(0, 1)), replace(TAIL, cluster=(2, 1), tile_rows=(1, 1)))
    assert rows(*wide) == []
    low = (replace(WHOLE, tile=(32, 64, 64)), replace(TAIL, tile=(32, 64, 64), tile_rows=(3, 4)))
    assert rows(*low) == []


def test_rows_are_counted_per_region_and_choice() -> None:
    named = [replace(k, face=replace(k.face, symbol=f"k{i}")) for i, k in enumerate((WHOLE, TAIL))]
    places = [(0, "r", 0), (1, "r", 0), (0, "r", 1), (1, "r", 1), (0, "s", 0)]
    bindings = tuple(Binding(r, named[k].face.symbol, (), (), choice=c) for k, r, c in places)
    found = check_rows(ir.Program(tuple(named), bindings))
    assert [(d.at, d.why) for d in found] == [("s", "3 of 4 rows of tiles are computed")]
    unknown = ir.Program(tuple(named), (Binding("r", "q", (), ()),))
    assert check_rows(unknown) == []
