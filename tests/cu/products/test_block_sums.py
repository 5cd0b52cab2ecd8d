"""Rows and columns of a product that are reduced in its epilogue, block by block (decision 0026)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import var
from tatami.core.kernel import KernelFace
from tatami.core.target import PRESETS
from tatami.core.tensor import numpy_dtype
from tatami.cu.print import headers, print_unit
from tatami.decisions import Decisions
from tatami.gpu import ir, statement_ir
from tatami.gpu.lower import _kernels_of, lower_region
from tatami.gpu.verify import verify_kernel
from tatami.plan.choose_gpu import measurable
from tatami.plan.ir import Cache, Guarded, RegionPlan, Sm90Mma
from tatami.plan.key import plan_key
from tatami.region.ir import Region
from tatami.report.explain import explain
from tatami.runtime.building.nvrtc import has_nvrtc
from tatami.targets import resolve_target
from tests.cu.machine_code import compiled, machine_code
from tests.gpu.gemm_examples import sm80, sm90
from tests.gpu.settled import settled

SMALL = msgspec.structs.replace(resolve_target("emulated-sm90"), sms=2)
"""A GPU that a few tiles fill, and on which its persistent CTAs have several."""
FOLDS: dict[str, Callable[[Any, int], Any]] = {
    "sum": lambda y, axis: y.sum(axis),
    "squares": lambda y, axis: (y.cast(tt.fp32) * y.cast(tt.fp32)).sum(axis),
    "max": lambda y, axis: y.max(axis),
    "low": lambda y, axis: y.cast(tt.fp32).min(axis),
}


def statistics(shape: tuple[Any, ...], axes: tuple[int, ...], *, stored: bool, fold: tuple[str, ...] = ("sum",)) -> tt.Graph:
    """Statistics of y[..., m, n] = relu(x @ w + bias)."""
    *outer, m, n, k = shape
    g = tt.Graph("statistics")
    x, w = g.input("x", (*outer, m, k), tt.fp16), g.input("w", (*outer, k, n), tt.fp16)
    y = (x @ w + g.input("bias", (n,), tt.fp16).expand((*outer, m, n))).relu()
    if stored:
        g.output("y", y)
    for axis in axes:
        for name in fold:
            g.output(f"{name}{abs(axis)}", FOLDS[name](y, axis))
    return g


def product_of(g: tt.Graph, target: Any = SMALL) -> ir.Kernel:
    kernels = prepare(g, target=target).stages["gpu"].main.kernels
    found = [k for k in kernels if isinstance(k, ir.Kernel)]
    assert len(found) == 1
    return found[0]


def blocks_in(body: tuple[statement_ir.Stmt, ...]) -> list[statement_ir.BlockFold]:
    out: list[statement_ir.BlockFold] = []
    for s in body:
        out += (
            s.folds
            if isinstance(s, statement_ir.StBlocks)
            else blocks_in(s.body)
            if isinstance(s, statement_ir.Loop | statement_ir.Role)
            else []
        )
    return out


CASES: dict[str, tuple[tuple[int, ...], int, str, bool]] = {
    "columns, whole": ((256, 256, 64), -2, "sum", False),
    "rows, whole": ((256, 256, 64), -1, "sum", False),
    "columns, beside what is stored": ((256, 256, 72), -2, "max", True),
    "rows, beside what is stored": ((256, 256, 72), -1, "squares", True),
    "columns, tails": ((301, 200, 72), -2, "squares", True),
    "rows, tails": ((301, 200, 72), -1, "low", True),
    "columns, tails, nothing stored": ((1000, 72, 40), -2, "low", False),
    "rows, tails, nothing stored": ((1000, 72, 40), -1, "max", False),
    "columns of a batch": ((3, 170, 136, 40), -2, "sum", True),
    "rows of a batch": ((3, 170, 136, 40), -1, "sum", False),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_on_the_emulated_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics of the rounded results agree with float64, and no schedule has a report."""
    shape, axis, fold, stored = CASES[name]
    *outer, m, n, k = shape
    g = statistics(shape, (axis,), stored=stored, fold=(fold,))
    kernel = product_of(g)
    assert [s.along for s in blocks_in(kernel.body)] == ["mn"[axis]] and verify_kernel(kernel) == []
    f = tt.compile(g, target=SMALL)
    given = eighths({"x": (*outer, m, k), "w": (*outer, k, n), "bias": (n,)})
    a = {name: v.astype(np.float64) for name, v in given.items()}
    y = np.maximum(a["x"] @ a["w"] + a["bias"], 0).astype(np.float16).astype(np.float64)
    want = {"sum": y.sum(axis), "squares": (y * y).sum(axis), "max": y.max(axis), "low": y.min(axis)}[fold]
    for schedule in ("0", "7"):
        monkeypatch.setenv("TATAMI_EMULATED_SCHEDULE", schedule)
        got = f(**given)
        np.testing.assert_allclose(got[f"{fold}{-axis}"].astype(np.float64), want, rtol=1e-3, atol=1e-3)
        if stored:
            np.testing.assert_allclose(got["y"].astype(np.float64), y, rtol=2e-3, atol=2e-3)


def eighths(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {name: (rng.integers(-8, 9, shape) / 8).astype(np.float16) for name, shape in shapes.items()}


def test_what_nobody_else_reads_is_not_stored() -> None:
    apart, beside = (product_of(statistics((256, 256, 64), (-1,), stored=s)) for s in (False, True))
    assert [str(p.dtype) for p in apart.params if p.written] == ["fp32"]
    assert [str(p.dtype) for p in beside.params if p.written] == ["fp16", "fp32"]


def reduced(y: np.ndarray, axis: int) -> dict[str, np.ndarray]:
    return {"sum": y.sum(axis), "squares": (y * y).sum(axis), "max": y.max(axis), "low": y.min(axis)}


@pytest.mark.parametrize(("shape", "stored"), [((256, 256, 64), False), ((301, 200, 72), True), ((3, 170, 136, 40), True)])
def test_one_product_begins_all_of_its_reductions(
    shape: tuple[int, ...], stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four of its rows and four of its columns, in one pass over the accumulator."""
    *outer, m, n, k = shape
    g = statistics(shape, (-1, -2), stored=stored, fold=tuple(FOLDS))
    kernel = product_of(g)
    assert sorted(s.along for s in blocks_in(kernel.body)) == [*"mmmmnnnn"] and verify_kernel(kernel) == []
    f = tt.compile(g, target=SMALL)
    given = eighths({"x": (*outer, m, k), "w": (*outer, k, n), "bias": (n,)})
    a = {name: v.astype(np.float64) for name, v in given.items()}
    y = np.maximum(a["x"] @ a["w"] + a["bias"], 0).astype(np.float16).astype(np.float64)
    monkeypatch.setenv("TATAMI_EMULATED_SCHEDULE", "7")
    got = f(**given)
    for axis in (-1, -2):
        for fold, want in reduced(y, axis).items():
            np.testing.assert_allclose(got[f"{fold}{-axis}"].astype(np.float64), want, rtol=1e-3, atol=1e-3)


TILES: dict[str, Any] = {"persistent": True, "overlap": True}
TAKEN: dict[str, Any] = {
    "one warpgroup": sm90((64, 128, 64), 3, consumers=1, registers=(56, 224)),
    "of 128 rows each": sm90((256, 64, 64), 2),
    "three": sm90((192, 64, 64), 2, consumers=3, registers=(32, 160)),
    "turns": sm90((64, 128, 64), 3, schedule="pingpong", **TILES),
    "strict": sm90((128, 64, 64), 3, persistent=True),
    "a pair of CTAs": sm90((64, 128, 64), 3, consumers=1, registers=(56, 224), cluster=(2, 1), multicast="b", **TILES),
    "staged": sm90((128, 128, 64), 2, epilogue_store="stmatrix_tma", **TILES),
}


@pytest.mark.parametrize("name", TAKEN)
def test_blocks_do_not_depend_on_the_plan(name: str) -> None:
    """Bit by bit."""
    g = statistics((301, 200, 72), (-1, -2), stored=True, fold=("sum", "squares"))
    given = eighths({"x": (301, 72), "w": (72, 200), "bias": (200,)})
    made = prepare(g, target=SMALL)
    region = made.stages["region"].main.body[0]
    plan = msgspec.structs.replace(TAKEN[name], cache=(Cache("A"), Cache("B")))
    f = tt.compile(g, target=SMALL, decisions=Decisions(plans={plan_key(region, made.target): settled(plan, region)}))
    assert plan.tile in [k.tile for k in f.stages["gpu"].value.main.kernels if isinstance(k, ir.Kernel)]
    want, got = tt.compile(g, target=SMALL)(**given), f(**given)
    for key, value in want.items():
        np.testing.assert_array_equal(got[key], value)


def normalisers(shape: tuple[Any, ...], *, stored: bool, axis: int = -1, finite: bool = True) -> tt.Graph:
    """The logarithm of the sum of exp(y[..., m, n]), y = x @ w + bias; `finite`: an infinite maximum counts as 0."""
    *outer, m, n, k = shape
    g = tt.Graph("normalisers")
    x, w = g.input("x", (*outer, m, k), tt.fp16), g.input("w", (*outer, k, n), tt.fp16)
    y = x @ w + g.input("bias", (n,), tt.fp16).expand((*outer, m, n))
    if stored:
        g.output("y", y)
    wide = y.cast(tt.fp32)
    top = wide.max(axis, keepdims=True)
    total = (wide - top.expand(wide.shape)).exp().sum(axis)
    g.output("lse", wide.logsumexp(axis) if finite else total.log() + top.squeeze(axis))
    return g


@pytest.mark.parametrize("finite", [True, False])
@pytest.mark.parametrize(("shape", "stored"), [((256, 256, 64), False), ((301, 200, 72), True), ((3, 170, 136, 40), False)])
def test_log_sum_exp_is_joined_from_blocks(shape: tuple[int, ...], stored: bool, finite: bool) -> None:
    """Where a block, or all of a row, is minus infinity; numbers far apart."""
    *outer, m, n, k = shape
    g = normalisers(shape, stored=stored, finite=finite)
    kernel = product_of(g)
    top, total = blocks_in(kernel.body)
    assert (top.fn, total.fn, total.top) == ("max", "sum", top.ptr) and verify_kernel(kernel) == []
    f = tt.compile(g, target=SMALL)
    given = eighths({"x": (*outer, m, k), "w": (*outer, k, n), "bias": (n,)})
    given["bias"][70:] += 100
    for masked in (slice(64, 128), slice(0, 40), slice(None)):
        given["bias"][masked] = -np.inf
        a = {name: v.astype(np.float64) for name, v in given.items()}
        y = (a["x"] @ a["w"] + a["bias"]).astype(np.float16).astype(np.float64)
        with np.errstate(divide="ignore"):
            want = np.logaddexp.reduce(y, axis=-1)
        if not finite and masked == slice(None):
            want = np.full_like(want, np.nan)
        np.testing.assert_allclose(f(**given)["lse"].astype(np.float64), want, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("dtype", [DType.fp32, DType.f8e4m3fn])
def test_products_of_rounded_operands_begin_theirs(dtype: DType, turned: bool) -> None:
    """Where both lie along k, as wgmma wants them; otherwise another template takes the product."""
    g = tt.Graph("rounded")
    rng = np.random.default_rng(3)
    shapes = {"x": (301, 80), "w": (200, 80) if turned else (80, 200)}
    given = {name: (rng.integers(-8, 9, shape) / 8).astype(numpy_dtype(dtype)) for name, shape in shapes.items()}
    x, w = (g.input(name, shape, dtype).cast(tt.fp32) for name, shape in shapes.items())
    y = (x @ (w.transpose(0, 1) if turned else w)).relu()
    g.output("y", y)
    g.output("sum", y.sum(-1))
    g.output("squares", (y * y).sum(-2))
    g.output("lse", y.logsumexp(-1))
    f = tt.compile(g, target=SMALL, precision="tf32")
    kernels = [k for k in f.stages["gpu"].value.main.kernels if isinstance(k, ir.Kernel)]
    assert sum(len(blocks_in(k.body)) for k in kernels) == (4 if turned else 0)
    a = {name: v.astype(np.float64) for name, v in given.items()}
    want = np.maximum(a["x"] @ (a["w"].T if turned else a["w"]), 0)
    wants = {"y": want, "sum": want.sum(-1), "squares": (want * want).sum(-2), "lse": np.logaddexp.reduce(want, axis=-1)}
    got = f(**given)
    for name, exact in wants.items():
        np.testing.assert_allclose(got[name].astype(np.float64), exact, rtol=1e-5, atol=1e-5)


def layer(batch: int, rows: int, *own: int) -> tuple[tt.Graph, np.ndarray, dict[str, np.ndarray]]:
    """y[b, s, ...] of a layer, reduced over all that is `own` and over b and s; what it stores, and its inputs."""
    g = tt.Graph("layer")
    given = eighths({"x": (batch, rows, 72), "w": (*own, 72)})
    x, w = (g.input(name, v.shape, tt.fp16) for name, v in given.items())
    letters = "hd"[: len(own)]
    equation = f"bsk,{letters}k->bs{letters}"
    y = g.einsum(equation, x, w).cast(tt.fp32)
    g.output("rows", y.sum(range(2, 2 + len(own))))
    g.output("squares", (y * y).sum((0, 1)))
    exact = np.einsum(equation, *(v.astype(np.float64) for v in given.values()))
    return g, exact.astype(np.float16).astype(np.float64), given


@pytest.mark.parametrize("own", [(200,), (4, 64), (2, 128)])
def test_rows_and_columns_of_several_axes_are_counted_together(own: tuple[int, ...]) -> None:
    """Activations [b, s, k], heads [h, d]: blocks lie within the last axis, and the other kernel adds over the rest."""
    g, y, given = layer(3, 112, *own)
    kernel = product_of(g)
    assert sorted(s.along for s in blocks_in(kernel.body)) == ["m", "n"] and verify_kernel(kernel) == []
    got = tt.compile(g, target=SMALL)(**given)
    np.testing.assert_allclose(got["rows"], y.sum(axis=tuple(range(2, y.ndim))), rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(got["squares"], (y * y).sum(axis=(0, 1)), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(
    ("rows", "own", "said"),
    [(100, (200,), "blocks of 16 would reach across the ends of m1, of 100"), (112, (4, 72), "across the ends of n1, of 72")],
)
def test_blocks_do_not_reach_from_one_end_to_the_next(rows: int, own: tuple[int, ...], said: str) -> None:
    g, y, given = layer(3, rows, *own)
    made = prepare(g, target=SMALL)
    assert said in explain(made)
    assert len(blocks_in(product_of(g).body)) == 1
    got = tt.compile(g, target=SMALL)(**given)
    np.testing.assert_allclose(got["rows"], y.sum(axis=tuple(range(2, y.ndim))), rtol=1e-5, atol=1e-3)


def test_why_log_sum_exp_is_apart() -> None:
    """Columns: lanes have two rows of each. Another's maximum: it is not that of what is summed."""
    assert blocks_in(product_of(normalisers((256, 256, 64), stored=True, axis=-2)).body) == []
    g = tt.Graph("shifted")
    y = (g.input("x", (256, 64), tt.fp16) @ g.input("w", (64, 256), tt.fp16)).cast(tt.fp32)
    top = (y * y).max(-1, keepdims=True)
    g.output("total", (y - top.expand(y.shape)).exp().sum(-1) + top.squeeze(-1))
    assert [s.fn for s in blocks_in(product_of(g).body)] == ["max"]


def test_who_needs_the_elements_too_reads_them_and_reduces() -> None:
    g = tt.Graph("softmax")
    g.output("y", (g.input("x", (512, 64), tt.fp16) @ g.input("w", (64, 512), tt.fp16)).softmax(-1))
    assert blocks_in(product_of(g).body) == []


@pytest.mark.parametrize("target", ["sm80", "cpu"])
def test_other_targets_keep_the_reduction_apart(target: str) -> None:
    regions = prepare(statistics((4096, 4096, 64), (-1,), stored=False), target=target).stages["region"].main.body
    assert not any("_p" in let.name for r in regions if isinstance(r, Region) for let in r.lets)


def test_a_product_that_does_not_fill_the_machine_keeps_its_reduction_apart() -> None:
    assert blocks_in(product_of(statistics((512, 512, 64), (-1,), stored=True), "h100").body) == []
    assert len(blocks_in(product_of(statistics((4096, 4096, 64), (-1,), stored=True), "h100").body)) == 1


@pytest.mark.parametrize(
    ("shape", "axes", "target", "said"),
    [
        ((4096, 4096, 64), (-1,), "h100", "begins in the epilogue of r0, 64 columns"),
        ((4096, 4096, 64), (-1, -2), "h100", "begins in the epilogue of r0, 16 rows"),
        ((512, 512, 64), (-1,), "h100", "a tile for each of 132 SMs"),
        ((4096, 4096, 64), (-1,), "a100", "no template of sm80"),
    ],
)
def test_explain_says_where_a_reduction_begins_or_why_not(
    shape: tuple[int, ...], axes: tuple[int, ...], target: str, said: str
) -> None:
    report = explain(prepare(statistics(shape, axes, stored=True), target=target))
    lines = report.split("reductions of products in main\n")[1].split("\n\n")[0].splitlines()
    assert len(lines) == len(axes) and said in lines[-1]


def test_the_estimate_counts_what_the_epilogue_does_more() -> None:
    """Seconds added by four reductions and by one, compared with the time of a separate sum to read the result."""
    target = PRESETS["h100"]

    def seconds(axes: tuple[int, ...], stored: bool = True, **fold: Any) -> float:
        region = (
            prepare(statistics((4096, 4096, 1024), axes, stored=stored, **fold), target="h100").stages["region"].main.body[0]
        )
        assert isinstance(region, Region)
        return measurable(region, target, {})[0].estimate["total"]

    none, one, four = seconds(()), seconds((-2,)), seconds((-1, -2), fold=("sum", "squares"))
    assert none < one < four < none + 2 * 4096 * 4096 / target.bandwidth
    assert seconds((-2,), stored=False) < one


def planted(kernel: ir.Kernel, change: Callable[[statement_ir.StBlocks], list[statement_ir.StBlocks]]) -> ir.Kernel:
    def changed(body: tuple[statement_ir.Stmt, ...]) -> tuple[statement_ir.Stmt, ...]:
        out: list[statement_ir.Stmt] = []
        for s in body:
            if isinstance(s, statement_ir.Loop | statement_ir.Role):
                out.append(msgspec.structs.replace(s, body=changed(s.body)))
            else:
                out += change(s) if isinstance(s, statement_ir.StBlocks) else [s]
        return tuple(out)

    return msgspec.structs.replace(kernel, body=changed(kernel.body))


def another(**fields: Any) -> Callable[[ir.Kernel], ir.Kernel]:
    return lambda k: planted(k, lambda s: [msgspec.structs.replace(s, **fields)])


def folded(**fields: Any) -> Callable[[ir.Kernel], ir.Kernel]:
    """The last of its reductions otherwise."""

    def change(s: statement_ir.StBlocks) -> list[statement_ir.StBlocks]:
        return [msgspec.structs.replace(s, folds=(*s.folds[:-1], msgspec.structs.replace(s.folds[-1], **fields)))]

    return lambda k: planted(k, change)


def begun_first(kernel: ir.Kernel) -> ir.Kernel:
    """Reduced before the tile's products are waited for."""
    found: list[statement_ir.Stmt] = []

    def taken(s: statement_ir.StBlocks) -> list[statement_ir.StBlocks]:
        found.append(s)
        return []

    without = planted(kernel, taken)

    def put(body: tuple[statement_ir.Stmt, ...]) -> tuple[statement_ir.Stmt, ...]:
        out: list[statement_ir.Stmt] = []
        for s in body:
            out.append(
                msgspec.structs.replace(s, body=put(s.body)) if isinstance(s, statement_ir.Loop | statement_ir.Role) else s
            )
            out += found if isinstance(s, statement_ir.Wgmma) else []
        return tuple(out)

    return msgspec.structs.replace(without, body=put(without.body))


FAULTS: dict[str, tuple[Callable[[ir.Kernel], ir.Kernel], str]] = {
    "an address for all blocks": (folded(index=var("n")), "step with n and t"),
    "an address for each element": (folded(index=4 * var("m") + var("t") + var("n")), "not with m"),
    "the address of a row's blocks": (folded(along="n"), "step with m and t, and not with n"),
    "two at one place": (folded(ptr="p4"), "stored to more than once"),
    "tails that count": (another(pred=()), "predicate lacks them"),
    "stored twice": (lambda k: planted(k, lambda s: [s, s]), "stored to more than once"),
    "a tile that cuts a block": (
        lambda k: msgspec.structs.replace(k, tile=(k.tile[0], 96, k.tile[2])),
        "a block of 64 is cut",
    ),
    "of all blocks of k but one": (another(in_token=statement_ir.Token("tMMA", var("KB") - 2)), "not on the last block's"),
    "of what the epilogue has made": (another(in_token=statement_ir.Token("tE", var("KB") - 1)), "TokCompute is needed"),
    "before the products have ended": (begun_first, "while an MMA is under way"),
}
OF_EXPONENTIALS: dict[str, tuple[Callable[[ir.Kernel], ir.Kernel], str]] = {
    "less another's maximum": (folded(top="p5"), "p5 is not a maximum of the rows"),
    "less the maximum of something else": (folded(regs="acc"), "p4 is not a maximum of the rows"),
    "a largest exponential": (folded(fn="max"), "p4 is not a maximum of the rows"),
    "before their maximum": (
        lambda k: planted(k, lambda s: [msgspec.structs.replace(s, folds=s.folds[::-1])]),
        "p4 is not a maximum of the rows",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named(name: str) -> None:
    kernel = product_of(statistics((301, 200, 72), (-1, -2), stored=True))
    assert [s.ptr for s in blocks_in(kernel.body)] == ["p4", "p5"]
    plant, words = FAULTS[name]
    assert any(words in str(d) for d in verify_kernel(plant(kernel))), [str(d) for d in verify_kernel(plant(kernel))]


@pytest.mark.parametrize("name", OF_EXPONENTIALS)
def test_a_planted_fault_in_exponentials_is_named(name: str) -> None:
    kernel = product_of(normalisers((301, 200, 72), stored=True))
    assert [s.ptr for s in blocks_in(kernel.body)] == ["p4", "p5"]
    plant, words = OF_EXPONENTIALS[name]
    assert any(words in str(d) for d in verify_kernel(plant(kernel))), [str(d) for d in verify_kernel(plant(kernel))]


PLANS: dict[str, tuple[Any, str]] = {
    "split": (sm90((128, 64, 64), 3, split_k=2), "split_k"),
    "exchanged": (sm90((128, 64, 64), 3, swap_ab=True), "swap_ab"),
    "tile": (sm90((128, 96, 64), 3), "tile 128x96"),
    "large": (sm90((128, 192, 64), 2, persistent=True, overlap=True, schedule="pingpong"), "192 accumulators"),
    "another template": (sm80((64, 64, 64), 3, warp="32x32"), "Sm80Mma reduces no"),
}


@pytest.mark.parametrize("name", PLANS)
def test_plans_without_whole_blocks_are_refused(name: str) -> None:
    c = prepare(statistics((512, 512, 64), (-1,), stored=False, fold=("sum",)), target=SMALL)
    region = c.stages["region"].main.body[0]
    assert isinstance(region, Region)
    plan, why = PLANS[name]
    with pytest.raises(TatamiError, match=why):
        _kernels_of(region, RegionPlan(region.name, "", (Guarded((), plan),), ()), PRESETS["sm90"])


def test_the_gradient_of_a_bias_begins_in_the_product_that_makes_it() -> None:
    """A training step of a layer: dh = (dy @ w2) where h > 0; its weight's gradient reads dh, its bias's does not."""
    g = tt.Graph("step")
    given = eighths({"x": (320, 72), "h": (320, 136), "dy": (320, 40), "w": (40, 136)})
    x, h, dy, w = (g.input(name, v.shape, tt.fp16) for name, v in given.items())
    zero = g.constant(np.zeros((), np.float16))
    dh = (h > zero).where((dy @ w), zero)
    g.output("dw", x.transpose(0, 1) @ dh)
    g.output("db", dh.sum(0))
    f = tt.compile(g, target=SMALL)
    kernels = [k for k in f.stages["gpu"].value.main.kernels if isinstance(k, ir.Kernel)]
    assert [len(blocks_in(k.body)) for k in kernels] == [1, 0]
    got, a = f(**given), {n: v.astype(np.float64) for n, v in given.items()}
    want = np.where(a["h"] > 0, a["dy"] @ a["w"], 0)
    np.testing.assert_allclose(got["db"].astype(np.float64), want.sum(0), rtol=2e-3, atol=2e-2)
    np.testing.assert_allclose(got["dw"].astype(np.float64), a["x"].T @ want, rtol=4e-3, atol=5e-2)


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize("axes", [(-1,), (-2,), (-1, -2)])
@pytest.mark.parametrize("stored", [False, True])
def test_its_machine_code(axes: tuple[int, ...], stored: bool, tmp_path: Path) -> None:
    """The largest tile, in a cluster, two reductions along each axis: no spills, no warning, and the shuffles of each block."""
    kernel = product_of(statistics((4096, 3000, 1024), axes, stored=stored, fold=("sum", "squares")), "h100")
    assert kernel.tile[:2] == (128, 256)
    cubin = compiled(print_unit(kernel, PRESETS["h100"]), headers((kernel,)))
    assert cubin.spill_bytes == 0 and not cubin.warnings
    ops = machine_code(cubin, tmp_path)
    rows, columns = 2 * 4 * 2, 8 * (4 + 2 + 1)  # exchanges of a quad; of eight lanes with eight columns each
    wanted = 2 * sum({-1: rows, -2: columns}[axis] for axis in axes)
    assert sum(n for op, n in ops.items() if op.startswith("SHFL.BFLY")) == wanted


USUAL: dict[str, Callable[[Sm90Mma], bool]] = {
    "128x256": lambda p: p.tile[:2] == (128, 256) and p.cluster == (1, 1),
    "256x128 in a cluster": lambda p: p.tile[:2] == (256, 128) and p.cluster != (1, 1),
    "128x128": lambda p: p.tile[:2] == (128, 128),
    "turns": lambda p: p.schedule == "pingpong",
}


LARGE = (4096, 3000, 1024)
REDUCED = {
    "four": statistics(LARGE, (-1, -2), stored=True, fold=("sum", "squares")),
    "log-sum-exp": normalisers(LARGE, stored=True),
}


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize("store", ["direct", "stmatrix_tma"])
@pytest.mark.parametrize("name", USUAL)
@pytest.mark.parametrize("what", REDUCED)
def test_reductions_fit_into_the_registers_of_the_usual_plans(what: str, name: str, store: str) -> None:
    c = prepare(REDUCED[what], target="h100")
    region, target = c.stages["region"].main.body[0], PRESETS["h100"]
    assert isinstance(region, Region)
    offered = [o.plan for o in measurable(region, target, {}) if isinstance(o.plan, Sm90Mma)]
    plan = msgspec.structs.replace(next(filter(USUAL[name], offered)), epilogue_store=store)
    kernel, _ = lower_region(region, Guarded((), plan), target)
    assert len(blocks_in(kernel.body)) == (4 if what == "four" else 2)
    kernel = msgspec.structs.replace(kernel, face=KernelFace("k0", (), 0, ""))
    cubin = compiled(print_unit(kernel, target), headers((kernel,)))
    assert cubin.spill_bytes == 0 and not cubin.warnings
