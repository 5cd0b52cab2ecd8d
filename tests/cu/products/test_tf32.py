"""fp32 rounded to tf32 on tensor cores: numbers over storage orders and tails, machine code, banks, and who gets it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import var
from tatami.core.kernel import Condition
from tatami.core.numbers import numerics
from tatami.core.target import PRESETS
from tatami.gpu.lower import lower_region
from tatami.gpu.verify import verify_kernel
from tatami.plan.ir import Guarded, SchedulePlan, Sm80Mma, Sm90Mma
from tatami.region.ir import Region
from tatami.runtime.building.nvrtc import has_nvrtc
from tests.cu.machine_code import sass
from tests.cu.test_compile import compiled
from tests.emulated.kernels import Built
from tests.gpu.gemm_examples import gemm, sm80, sm90

ORDERS = ("nn", "nt", "tn", "tt")
BY4 = tuple(Condition(var(s), 4) for s in "MNK")
SIZES = ((68, 60, 36), (64, 64, 32), (4, 4, 4), (8, 68, 0), (0, 4, 4))


def product(order: str, **other: bool) -> Region:
    return gemm(dtype=DType.fp32, out=DType.fp32, a_col=order[0] == "t", b_col=order[1] == "t", tf32=True, **other)


@pytest.mark.parametrize("order", ORDERS)
def test_products_of_rounded_operands(order: str) -> None:
    wide = order in ("nn", "tt")
    plan = sm80((64, 64, 16), 3, warp="32x32", width=4 if wide else 1, inst_shape="m16n8k8", overlap=order == "tn")
    built = Built(product(order), plan, "sm80", BY4 if wide else (), sms=2)
    rng = np.random.default_rng(1)
    for m, n, k in SIZES if wide else ((67, 61, 37), (65, 63, 15), (1, 1, 1), (3, 5, 0)):
        a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
        bias = rng.standard_normal(n, np.float32)
        stored = {"A": a.T if order[0] == "t" else a, "B": b.T if order[1] == "t" else b, "bias": bias}
        c = built.run({name: np.ascontiguousarray(x) for name, x in stored.items()}, {"M": m, "N": n, "K": k})
        exact = [numerics.apply("tf32", [x], DType.fp32).astype(np.float64) for x in (a, b)]
        np.testing.assert_allclose(c, np.maximum(exact[0] @ exact[1] + bias, 0), rtol=1e-5, atol=1e-5)
        assert k == 0 or m * n < 2 or np.abs(c - np.maximum(a.astype(np.float64) @ b + bias, 0)).max() > 1e-5
    ones = {name: np.ones(shape, np.float32) for name, shape in (("A", (4, 4)), ("B", (4, 4)), ("bias", (4,)))}
    ones["A"].view(np.uint32)[0, 0] = 0x7F800001
    c = built.run(ones, {"M": 4, "N": 4, "K": 4})
    assert np.isnan(c).any(axis=1).tolist() == [True, False, False, False], "a NaN of the bits that are rounded away stays one"


TURNS = {"schedule": "pingpong", "persistent": True, "overlap": True}
BY_WGMMA = {
    "one tile": sm90((64, 64, 32), 3, depth=8, consumers=1, registers=(56, 224)),
    "turns": sm90((64, 96, 32), 2, depth=8, **TURNS),
    "a pair": sm90((128, 64, 32), 3, depth=8, cluster=(2, 1), multicast="b", persistent=True, overlap=True),
    "short rows exchanged": sm90((64, 16, 16), 2, depth=8, swap_ab=True, consumers=1, registers=(56, 224)),
}


@pytest.mark.parametrize("name", BY_WGMMA)
def test_products_by_wgmma(name: str) -> None:
    """The copies round, ties to even; the product's tails, and 0 to 5 blocks of k."""
    built = Built(product("nt"), BY_WGMMA[name], "sm90", BY4, sms=4)
    assert verify_kernel(built.kernel) == []
    rng = np.random.default_rng(1)
    for m, n, k in ((268, 100, 132), (64, 64, 32), (4, 4, 4), (68, 72, 64)):
        a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((n, k), np.float32)
        for x in (a, b):
            x.view(np.uint32)[:] |= 1  # no ties but these: half way between 1, the even one, and its neighbour
        a.view(np.uint32)[0] = 0x3F801000
        bias = rng.standard_normal(n, np.float32)
        c = built.run({"A": a, "B": b, "bias": bias}, {"M": m, "N": n, "K": k})
        exact = [numerics.apply("tf32", [x], DType.fp32).astype(np.float64) for x in (a, b)]
        exact[0][0] = 1.0
        np.testing.assert_allclose(c, np.maximum(exact[0] @ exact[1].T + bias, 0), rtol=1e-5, atol=1e-5)


def test_what_wgmma_does_not_multiply_is_refused_with_the_reason() -> None:
    def why(region: Region, plan: SchedulePlan) -> str:
        with pytest.raises(TatamiError) as caught:
            lower_region(region, Guarded(BY4, plan), PRESETS["sm90"])
        return str(caught.value)

    plan = BY_WGMMA["one tile"]
    assert "tf32 along k only, and p1 is contiguous along n" in why(product("nn"), plan)
    assert "fp32 rounded to tf32, not fp32" in why(gemm(dtype=DType.fp32, out=DType.fp32, b_col=True), plan)
    assert "inst_shape m64n64k8 does not multiply fp16" in why(gemm(b_col=True), plan)
    assert "is 2 or 4 steps of the instruction, not 8" in why(product("nt"), sm90((64, 64, 64), depth=8))


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
def test_machine_code_of_wgmma(tmp_path: Path) -> None:
    plan = sm90((128, 128, 32), 4, depth=8, persistent=True, overlap=True)
    ops = sass(compiled(product("nt"), plan, "sm90", BY4), tmp_path)
    assert ops["HGMMA"] == 4 and ops["UTMALDG"] == 2 and not ops.keys() & {"HMMA", "LDGSTS", "STL", "LDL"}


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize("order", ["nn", "nt", "tn"])
def test_its_machine_code(order: str, tmp_path: Path) -> None:
    plan = sm80((128, 128, 32), 3, width=4, inst_shape="m16n8k8")
    ops = sass(compiled(product(order, bias=False, relu=False), plan, "sm80", BY4), tmp_path)
    steps, turned = 32 // 8, {"nn": 1, "nt": 0, "tn": 2}[order]
    assert ops["HMMA"] == steps * (64 // 16) * (64 // 8)
    assert ops["LDSM"] == steps * (64 // 16) * (2 - turned)
    assert ops["LDS"] == steps * (64 // 16) * 4 * turned, "a word per element where ldmatrix cannot transpose"
    assert ops["LDGSTS"] == 3 * (128 + 128) * 32 * 4 // 16 // 128 and ops["STL"] == ops["LDL"] == 0


@pytest.mark.parametrize("extent", [32, 64, 128, 256])
def test_words_of_a_transposed_fragment_meet_no_bank_twice(extent: int) -> None:
    plan = sm80((extent, 64, 16), 2, warp="32x32", inst_shape="m16n8k8")
    kernel, _ = lower_region(product("tn"), Guarded(BY4, plan), PRESETS["sm80"])
    ring = kernel.smem[0]
    for first in range(0, extent, 16):
        for r in range(4):
            banks = set()
            for lane in range(32):
                row, chunk = lane % 4 + r // 2 * 4, first // 4 + lane // 16 + r % 2 * 2
                turn = row // max(ring.swizzle_rows, 1) * ring.swizzle_step % (ring.swizzle // 16)
                banks.add((row * ring.row_bytes + (chunk ^ turn) * 16 + lane // 4 % 4 * 4) // 4 % 32)
            assert len(banks) == 32


def test_the_planner_takes_tensor_cores_where_precision_allows() -> None:
    def plans(precision: str) -> list[str]:
        g, rng = tt.Graph("net"), np.random.default_rng(0)
        w, v, f = (g.constant(rng.standard_normal(s, np.float32)) for s in ((24, 40), (40, 16), (16, 8, 3, 3)))
        g.output("y", (g.input("x", ("B", 24), tt.fp32) @ w).relu() @ v)
        g.output("z", g.input("image", (2, 8, 9, 9), tt.fp32).conv(f, padding=1).relu())
        regions = prepare(g, target="sm80", precision=precision).stages["plan"].main.regions
        found = [r.choices[0].plan for r in regions]
        return [p.inst_shape if isinstance(p, Sm80Mma) else type(p).__name__ for p in found]

    assert plans("tf32") == ["m16n8k8"] * 3, "rounded in registers: no kernel of its own, neither for constants"
    assert plans("fp32") == ["fma"] * 3


def test_the_planner_takes_wgmma_where_both_operands_lie_along_k() -> None:
    g, rng = tt.Graph("net"), np.random.default_rng(0)
    x = g.input("x", (64, 32), tt.fp32)
    w, v, value = (rng.standard_normal(s, np.float32) for s in ((40, 32), (32, 40), (64, 32)))
    for e in (w, v, value):
        e.view(np.uint32)[:] |= 1  # no ties, which the two instructions' operands round differently
    g.output("y", x.linear(g.constant(w)))
    g.output("z", x @ g.constant(v))
    f = tt.compile(g, target="emulated-sm90", precision="tf32")
    along, turned = f.stages["plan"].value.main.regions
    assert isinstance(along.choices[0].plan, Sm90Mma) and along.choices[0].plan.inst_shape.endswith("k8")
    assert isinstance(turned.choices[0].plan, Sm80Mma)
    assert [r.why for r in turned.rejected if r.plan == "sm90_mma"] == [
        "wgmma reads tf32 along k only, and t1 is not contiguous there"
    ]
    found = f(x=value)
    for name, weights in (("y", w.T), ("z", v)):
        exact = [numerics.apply("tf32", [e], DType.fp32).astype(np.float64) for e in (value, weights)]
        np.testing.assert_allclose(found[name], exact[0] @ exact[1], rtol=1e-5, atol=1e-5)
