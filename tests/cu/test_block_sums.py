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
from tatami.core.expr import var
from tatami.core.target import PRESETS
from tatami.cu.print import headers, print_unit
from tatami.explain import explain
from tatami.gpu import ir
from tatami.gpu.lower import _kernels_of
from tatami.gpu.verify import verify_kernel
from tatami.plan.ir import Guarded, RegionPlan
from tatami.region.ir import Region
from tatami.runtime.host import resolve_target
from tatami.runtime.nvrtc import has_nvrtc
from tests.cu.machine_code import compiled, machine_code
from tests.gpu.gemm_examples import sm80, sm90

SMALL = msgspec.structs.replace(resolve_target("emulated-sm90"), sms=2)
"""A GPU that a few tiles fill, and on which its persistent CTAs have several."""
FOLDS: dict[str, Callable[[Any, int], Any]] = {
    "sum": lambda y, axis: y.sum(axis),
    "squares": lambda y, axis: (y.cast(tt.fp32) * y.cast(tt.fp32)).sum(axis),
    "max": lambda y, axis: y.max(axis),
    "low": lambda y, axis: y.cast(tt.fp32).min(axis),
}


def statistics(shape: tuple[Any, ...], axes: tuple[int, ...], *, stored: bool, fold: tuple[str, ...] = ("sum",)) -> tt.Graph:
    """Of y[..., m, n] = relu(x @ w + bias)."""
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


def blocks_in(body: tuple[ir.Stmt, ...]) -> list[ir.StBlocks]:
    out = []
    for s in body:
        out += [s] if isinstance(s, ir.StBlocks) else blocks_in(s.body) if isinstance(s, ir.Loop | ir.Role) else []
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
    """Of the rounded results, as float64 has it; nothing is reported, in another schedule either."""
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


def test_a_product_begins_one_reduction() -> None:
    """With more of them ptxas keeps values in memory."""
    g = statistics((256, 256, 64), (-1, -2), stored=True, fold=tuple(FOLDS))
    assert len(blocks_in(product_of(g).body)) == 1


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
        ((4096, 4096, 64), (-1, -2), "h100", "the epilogue of r0 has a reduction already"),
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


def planted(kernel: ir.Kernel, twice: bool = False, **fields: Any) -> ir.Kernel:
    def change(body: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
        out: list[ir.Stmt] = []
        for s in body:
            if isinstance(s, ir.Loop | ir.Role):
                out.append(msgspec.structs.replace(s, body=change(s.body)))
            else:
                out += [msgspec.structs.replace(s, **fields)] * (1 + twice) if isinstance(s, ir.StBlocks) else [s]
        return tuple(out)

    return msgspec.structs.replace(kernel, body=change(kernel.body))


FAULTS: dict[str, tuple[Callable[[ir.Kernel], ir.Kernel], str]] = {
    "an address for all blocks": (lambda k: planted(k, index=var("m")), "step with m and t"),
    "an address for each element": (lambda k: planted(k, index=4 * var("m") + var("t") + var("n")), "not with n"),
    "tails that count": (lambda k: planted(k, pred=()), "predicate lacks them"),
    "stored twice": (lambda k: planted(k, twice=True), "stored to more than once"),
    "a tile that cuts a block": (
        lambda k: msgspec.structs.replace(k, tile=(k.tile[0], 96, k.tile[2])),
        "a block of 64 is cut",
    ),
    "before the products have ended": (
        lambda k: planted(k, in_token=ir.Token("tMMA", var("KB") - 1)),
        "TokEpilogue is needed",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named(name: str) -> None:
    kernel = product_of(statistics((301, 200, 72), (-1,), stored=True))
    plant, words = FAULTS[name]
    assert any(words in str(d) for d in verify_kernel(plant(kernel))), [str(d) for d in verify_kernel(plant(kernel))]


PLANS: dict[str, tuple[Any, str]] = {
    "split": (sm90((128, 64, 64), 3, split_k=2), "split_k"),
    "exchanged": (sm90((128, 64, 64), 3, swap_ab=True), "swap_ab"),
    "tile": (sm90((128, 96, 64), 3), "tile 128x96"),
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
@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize("stored", [False, True])
def test_its_machine_code(axis: int, stored: bool, tmp_path: Path) -> None:
    """The largest tile, in a cluster: no spills, no warning, and the shuffles of each block."""
    kernel = product_of(statistics((4096, 3000, 1024), (axis,), stored=stored, fold=("sum",)), "h100")
    assert kernel.tile[:2] == (128, 256)
    unit = print_unit(kernel, PRESETS["h100"])
    cubin = compiled(unit, headers((kernel,)))
    assert cubin.spill_bytes == 0 and not cubin.warnings
    ops = machine_code(cubin, tmp_path)
    blocks = 2 * 4 if axis == -1 else 64
    assert sum(n for op, n in ops.items() if op.startswith("SHFL.BFLY")) == blocks * (2 if axis == -1 else 3)
