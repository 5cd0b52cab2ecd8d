"""Stream-K: the blocks of k of the last tiles on one line that is cut evenly, whose pieces are joined in the order of k."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.algebra.visit import evaluate
from tatami.core.codec import dump_text, from_builtins, parse_text, to_builtins
from tatami.core.diagnostic import TatamiError
from tatami.core.expr import expr, var
from tatami.core.kernel import KernelFace
from tatami.core.target import PRESETS
from tatami.cu.print import headers, print_unit
from tatami.decisions import Decisions
from tatami.gpu import ir, statement_ir
from tatami.gpu.lower import lower_stream_k
from tatami.gpu.products.problem import problem
from tatami.gpu.products.stream_k import cut_problem, stream_region
from tatami.gpu.proof.verify_stream_k import check_rows
from tatami.gpu.verify import verify_kernel
from tatami.plan.ir import Cache, GpuStream, Guarded, Sm90Mma, StreamK
from tatami.plan.key import plan_key
from tatami.plan.views.stream_k_cut import Cut, cut_of
from tatami.region.ir import Binary, Read, Region, RegionExpr, Select, Within
from tatami.runtime.building.nvrtc import has_nvrtc
from tests.cu.machine_code import compiled as compiled_unit
from tests.cu.machine_code import machine_code, wrong_counts
from tests.emulated.test_models import agrees, eighths
from tests.gpu.gemm_examples import gemm, sm90
from tests.gpu.settled import settled

ONE = {"consumers": 1, "registers": (56, 224)}
SMALL = sm90((64, 64, 64), 2, persistent=True, overlap=True, **ONE)
STRICT = sm90((64, 64, 64), 3, persistent=True, **ONE)
PAIR = sm90((64, 128, 64), 2, persistent=True, overlap=True, cluster=(2, 1), multicast="b", **ONE)
ACROSS = sm90((128, 64, 64), 2, persistent=True, overlap=True, cluster=(1, 2), multicast="a", tile_order="hilbert")
STAGED = sm90((64, 64, 64), 2, persistent=True, overlap=True, epilogue_store="stmatrix_tma", **ONE)


def streamed(plan: Sm90Mma, rows: int, units: int) -> Sm90Mma:
    return msgspec.structs.replace(plan, stream_k=StreamK(rows, units))


def compiled(plan: Sm90Mma, batch: int, m: int, n: int, k: int) -> tuple[Any, dict[str, np.ndarray], np.ndarray]:
    """A product with bias, residual and ReLU by one plan; its inputs and float64 results."""
    g = tt.Graph("product")
    outer = (batch,) if batch else ()
    a, b = g.input("a", (*outer, m, k), tt.fp16), g.input("b", (*outer, k, n), tt.fp16)
    c, r = g.input("c", (n,), tt.fp16), g.input("r", (*outer, m, n), tt.fp16)
    g.output("y", ((a @ b) + c.expand((*outer, m, n)) + r).relu())
    found = prepare(g, target="emulated-sm90")
    (region,) = found.stages["region"].main.body
    plan = msgspec.structs.replace(plan, cache=(Cache("A"), Cache("B")))
    f = tt.compile(
        g, target="emulated-sm90", decisions=Decisions(plans={plan_key(region, found.target): settled(plan, region)})
    )
    shapes = {"a": (*outer, m, k), "b": (*outer, k, n), "c": (n,), "r": (*outer, m, n)}
    arrays = {name: eighths(*shape, dtype=np.float16, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    x, y, bias, more = (arrays[name].astype(np.float64) for name in "abcr")
    return f, arrays, np.maximum(x @ y + bias + more, 0)


CASES: dict[str, tuple[Sm90Mma, int, int, int, int]] = {
    "all tiles, tails in m, n, k": (streamed(SMALL, 4, 5), 0, 200, 152, 200),
    "fewer tiles than units": (streamed(SMALL, 1, 7), 0, 40, 72, 712),
    "a tail of one row after the epilogue": (streamed(STRICT, 1, 5), 0, 200, 152, 264),
    "two blocks": (streamed(SMALL, 2, 5), 0, 136, 200, 128),
    "one unit a block": (streamed(SMALL, 2, 12), 0, 128, 128, 192),
    "batched": (streamed(SMALL, 1, 7), 3, 136, 72, 200),
    "column pair": (streamed(PAIR, 1, 4), 0, 300, 136, 264),
    "row pair": (streamed(ACROSS, 2, 4), 0, 300, 264, 136),
    "whole tiles by TMA": (streamed(STAGED, 2, 5), 0, 264, 136, 136),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_on_the_emulated_gpu(name: str) -> None:
    split = CASES[name][0].stream_k
    assert split is not None
    f, arrays, want = compiled(*CASES[name])
    agrees(f, arrays, {"y": want}, 4e-3, 2)
    made = [k for k in f.stages["gpu"].value.main.kernels if isinstance(k, ir.Kernel)]
    assert made[-1].units and len(made) == (1 if made[-1].tile_rows == (0, split.rows) else 2)
    assert np.array_equal(f(**arrays)["y"], f(**arrays)["y"])


@pytest.mark.parametrize("name", CASES)
def test_the_protocol_and_the_pieces_are_proved(name: str) -> None:
    for k in kernels(name):
        assert verify_kernel(k) == []


def kernels(name: str) -> list[ir.Kernel]:
    plan, batch, m, n, k = CASES[name]
    region = gemm(m, n, k, batch=batch or None)
    made = lower_stream_k(region, Guarded((), plan), PRESETS["sm90"])
    return [x for x, _ in made if isinstance(x, ir.Kernel)]


@pytest.mark.parametrize("tiles", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("blocks", [1, 2, 5, 16])
@pytest.mark.parametrize("units", [1, 2, 5, 13, 132])
def test_every_block_of_every_tile_has_one_unit(tiles: int, blocks: int, units: int) -> None:
    cut = Cut(0, 1, tiles, blocks, min(units, tiles * blocks))
    found = [(t, b) for u in range(cut.units) for t, first, end, _ in cut.pieces(u) for b in range(first, end)]
    assert found == [(t, b) for t in range(tiles) for b in range(blocks)]
    sizes = {sum(end - first for _, first, end, _ in cut.pieces(u)) for u in range(cut.units)}
    assert max(sizes) - min(sizes) <= 1 and min(sizes) >= 1, "the cut is even"
    for t in range(tiles):
        numbers = [n for u in range(cut.units) for own, _, _, n in cut.pieces(u) if own == t]
        assert numbers == list(range(cut.pieces_of(t)))
        assert evaluate(cut.pieces_at(var("t")), {"t": t}) == cut.pieces_of(t)


# -- what the verifier refuses ---------------------------------------------------------------------

FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "a slot too few": ({"split": -1}, "has no slot"),
    "more units than blocks": ({"units": 10_000}, "some have none"),
    "pieces of one length": ({"uneven": False}, "differ in their number of blocks"),
    "tiles in another order": ({"tile_order": "grouped"}, "not numbered row by row"),
    "columns first": ({"grid": {"x": "m", "y": "n", "z": "b"}}, "not numbered row by row"),
    "slots that overlap": ({"m": expr(1000)}, "elements apart"),
    "a line of unknown length": ({"k": var("s0")}, "no known length"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named(name: str) -> None:
    k = kernels("a tail of one row after the epilogue")[-1]
    changes, words = FAULTS[name]
    if "split" in changes:
        changes = {"split": k.split + changes["split"]}
    found = verify_kernel(msgspec.structs.replace(k, **changes))
    assert any(words in d.why for d in found), [d.why for d in found]


def test_turns_are_refused() -> None:
    k = kernels("two blocks")[-1]
    body = tuple(
        msgspec.structs.replace(s, turns=True) if isinstance(s, statement_ir.Role) and s.name == "consumer" else s
        for s in k.body
    )
    assert any("in turns" in d.why for d in verify_kernel(msgspec.structs.replace(k, body=body)))


@pytest.mark.parametrize(("rows", "words"), [((1, 3), "computed behind 3"), ((3, 2), "5 of 4 rows")])
def test_rows_of_tiles_that_two_kernels_compute_or_none_are_named(rows: tuple[int, int], words: str) -> None:
    plan, _, m, n, k = CASES["a tail of one row after the epilogue"]
    made = lower_stream_k(gemm(m, n, k), Guarded((), plan), PRESETS["sm90"])
    named = [(msgspec.structs.replace(x, face=KernelFace(f"k{i}", (), 0, "")), b) for i, (x, b) in enumerate(made)]

    def found(last: tuple[int, int]) -> list[str]:
        those = [msgspec.structs.replace(x, tile_rows=last) if isinstance(x, ir.Kernel) and x.units else x for x, _ in named]
        bindings = [msgspec.structs.replace(b, kernel=x.face.symbol) for x, b in named]
        return [d.why for d in check_rows(ir.Program(tuple(those), tuple(bindings)))]

    assert found((3, 1)) == []
    assert any(words in why for why in found(rows)), found(rows)


def joined(after: Region, place: dict[str, int]) -> list[int]:
    """The pieces that are added for one result, in order."""

    def visit(e: RegionExpr) -> list[int]:
        match e:
            case Binary(fn="add", x=x, y=y):
                return visit(x) + visit(y)
            case Select(pred=Within(guards=guards), then=then):
                inside = all(0 <= evaluate(g.index, place) < evaluate(g.size, place) for g in guards)
                return visit(then) if inside else []
            case Read(map=entries):
                assert [evaluate(e, place) for e in entries[1:]] == list(place.values())
                return [evaluate(entries[0], place)]
            case _:
                raise AssertionError(e)

    return visit(after.lets[0].expr)


@pytest.mark.parametrize("name", CASES)
def test_every_piece_is_joined_once_in_the_order_of_k(name: str) -> None:
    plan, batch, m, n, k = CASES[name]
    region = gemm(m, n, k, batch=batch or None)
    p = problem(region, "acc", ())
    cut = cut_problem(p, plan)
    after = stream_region(region, plan, p, cut).after
    down, across = plan.tile[0] * plan.cluster[0], plan.tile[1] * plan.cluster[1]
    rows, tile = m - cut.first * down, 0
    for b in range(batch or 1):
        for top in range(0, rows, down):
            for left in range(0, n, across):
                for at in ((top, left), (min(top + down, rows) - 1, min(left + across, n) - 1)):
                    place = ({"b": b} if batch else {}) | {"m": at[0], "n": at[1]}
                    assert joined(after, place) == list(range(cut.pieces_of(tile)))
                tile += 1
    assert tile == cut.tiles


def test_a_join_with_one_piece_too_many_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slot that is read then was never written."""
    monkeypatch.setattr(Cut, "pieces_at", lambda cut, tile: expr(cut.most))
    f, arrays, want = compiled(*CASES["batched"])
    with pytest.raises((AssertionError, TatamiError)):
        agrees(f, arrays, {"y": want}, 4e-3, 0)


@pytest.mark.parametrize(
    ("plan", "size", "words"),
    [
        (streamed(SMALL, 5, 4), (200, 152, 200), "rows 5 of 4 rows of tiles"),
        (streamed(SMALL, 1, 100), (200, 152, 200), "units 100 share 12 blocks"),
        (streamed(SMALL, 1, 3), (200, 152, 200), "cut none of 3 tiles"),
        (streamed(SMALL, 1, 50), (64, 64, 6400), "50 pieces > 32"),
        (streamed(SMALL, 1, 4), ("M", 152, 200), "known length"),
        (msgspec.structs.replace(streamed(SMALL, 1, 4), split_k=2), (200, 152, 200), "stream_k with split_k 2"),
        (msgspec.structs.replace(streamed(SMALL, 1, 4), persistent=False), (200, 152, 200), "persistent false"),
        (streamed(SMALL, 0, 4), (200, 152, 200), "both are at least 1"),
    ],
    ids=lambda x: x if isinstance(x, str) and " " in x else "",
)
def test_why_a_product_is_not_cut(plan: Sm90Mma, size: tuple[Any, ...], words: str) -> None:
    with pytest.raises(TatamiError, match=words):
        lower_stream_k(gemm(*size), Guarded((), plan), PRESETS["sm90"])


def test_the_plan_is_a_document() -> None:
    plan = streamed(PAIR, 2, 66)
    assert from_builtins(parse_text(dump_text(to_builtins(plan))), Sm90Mma) == plan
    assert cut_of(plan, (1, 300, 136, 16384)) == Cut(1, 2, 4, 256, 66)


# -- machine code ----------------------------------------------------------------------------------

LARGE = {
    "column pair": sm90((128, 256, 64), 4, persistent=True, overlap=True, cluster=(2, 1), multicast="b"),
    "row pair": sm90((256, 128, 64), 4, persistent=True, overlap=True, cluster=(1, 2), multicast="a", wait_depth=0),
    "one CTA": sm90((128, 192, 64), 4, persistent=True, overlap=True),
}


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize("name", LARGE)
def test_its_machine_code(name: str, tmp_path: Path) -> None:
    """Whole tiles, pieces and their sums: nothing spills, nothing is serialised, and pieces multiply as whole tiles do."""
    plan = streamed(LARGE[name], 4, 132 // (LARGE[name].cluster[0] * LARGE[name].cluster[1]))
    made = [k for k, _ in lower_stream_k(gemm(2304, 3072, 8192, residual=True), Guarded((), plan), PRESETS["sm90"])]
    named = [msgspec.structs.replace(k, face=KernelFace(f"k{i}", (), 0, "")) for i, k in enumerate(made)]
    for k in named:
        unit = print_unit(k, PRESETS["sm90"])
        cubin = compiled_unit(unit, headers(tuple(named)))
        assert cubin.warnings == () and cubin.spill_bytes == 0, unit.text
        code = machine_code(cubin, tmp_path)
        assert not {op.split(".")[0] for op in code} & {"STL", "LDL"}
        if isinstance(k, ir.Kernel):
            assert list(wrong_counts(k, plan, code)) == []


@pytest.mark.parametrize("sizes", [(0, 1024, 2048), (256, 1024, 0), (256, 0, 2048)])
def test_products_of_nothing_have_no_tail(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    g = tt.Graph("nothing")
    a, b = g.input("a", (m, k), tt.fp16), g.input("b", (k, n), tt.fp16)
    g.output("y", a @ b)
    (region,) = prepare(g, target="sm90").stages["plan"].main.regions
    assert [type(choice.plan) for choice in region.choices] == [GpuStream]
    y = tt.compile(g, target="emulated-sm90")(a=np.ones((m, k), np.float16), b=np.ones((k, n), np.float16))["y"]
    assert y.shape == (m, n) and not y.any()


def test_a_cut_of_nothing_is_refused() -> None:
    plan = streamed(SMALL, 1, 1)
    for rows, units, dims in (
        (0, 0, (1, 64, 64, 64)),
        (1, 0, (1, 64, 64, 64)),
        (1, 1, (0, 64, 64, 64)),
        (1, 1, (1, 64, 64, 0)),
    ):
        assert isinstance(cut_of(msgspec.structs.replace(plan, stream_k=StreamK(rows, units)), dims), str)
