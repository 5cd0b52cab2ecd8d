"""Products of fp8 on wgmma: numbers, every code, machine code, and who gets it."""

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
from tatami.core.target import PRESETS
from tatami.core.tensor import numpy_dtype
from tatami.gpu.lower import lower_region
from tatami.gpu.verify import verify_kernel
from tatami.plan.ir import Guarded, SchedulePlan, Sm80Mma, Sm90Mma
from tatami.region.ir import Region
from tatami.runtime.building.nvrtc import has_nvrtc
from tests.cu.machine_code import sass
from tests.cu.test_compile import compiled
from tests.emulated.kernels import Built
from tests.gpu.gemm_examples import gemm, sm80, sm90

E4M3, E5M2 = DType.f8e4m3fn, DType.f8e5m2
BY16 = (Condition(var("K"), 16), Condition(var("N"), 8))
TURNS = {"schedule": "pingpong", "persistent": True, "overlap": True}
PLANS = {
    "one tile": (E4M3, sm90((64, 64, 128), 3, depth=32, consumers=1, registers=(56, 224))),
    "turns": (E5M2, sm90((64, 96, 128), 2, depth=32, epilogue_store="stmatrix_tma", **TURNS)),
    "a pair": (E4M3, sm90((128, 64, 128), 3, depth=32, cluster=(2, 1), multicast="b", persistent=True, overlap=True)),
    "short rows exchanged": (E5M2, sm90((64, 16, 64), 2, depth=32, swap_ab=True, consumers=1, registers=(56, 224))),
}


def product(dtype: DType, *, b_col: bool = True, out: DType = DType.fp16) -> Region:
    return gemm(dtype=dtype, out=out, b_col=b_col, tf32=True)


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    return rng.standard_normal(shape).astype(numpy_dtype(dtype))


@pytest.mark.parametrize("name", PLANS)
def test_products(name: str) -> None:
    """Tails of every side, and 0 to 3 blocks of k."""
    dtype, plan = PLANS[name]
    built = Built(product(dtype), plan, "sm90", BY16, sms=4)
    assert verify_kernel(built.kernel) == []
    rng = np.random.default_rng(1)
    for m, n, k in ((268, 104, 272), (64, 64, 128), (1, 8, 16), (70, 72, 144)):
        a, b, bias = numbers(rng, (m, k), dtype), numbers(rng, (n, k), dtype), rng.standard_normal(n).astype(np.float16)
        c = built.run({"A": a, "B": b, "bias": bias}, {"M": m, "N": n, "K": k})
        exact = np.maximum(a.astype(np.float64) @ b.astype(np.float64).T + bias, 0)
        np.testing.assert_allclose(c, exact, rtol=1e-3, atol=1e-3)


def test_what_is_not_multiplied_is_refused_with_the_reason() -> None:
    def why(region: Region, plan: SchedulePlan) -> str:
        with pytest.raises(TatamiError) as caught:
            lower_region(region, Guarded(BY16, plan), PRESETS["sm90"])
        return str(caught.value)

    plan = PLANS["one tile"][1]
    assert "f8e4m3fn along k only, and p1 is contiguous along n" in why(product(E4M3, b_col=False), plan)
    assert "inst_shape m64n64k32 does not multiply fp16" in why(gemm(b_col=True), plan)
    assert "the MMA template takes fp16, bf16 and fp32" in why(product(E5M2), sm80())
    assert "the MMA template takes fp16, bf16 and fp32" in why(gemm(dtype=E5M2, b_col=True), plan), "no leave to round"


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_machine_code(dtype: DType, tmp_path: Path) -> None:
    plan = sm90((128, 256, 128), 4, depth=32, persistent=True, overlap=True, epilogue_store="stmatrix_tma")
    ops = sass(compiled(product(dtype), plan, "sm90", BY16), tmp_path)
    assert ops["QGMMA"] == 4, "one for each 32 elements of a block"
    assert ops["UTMALDG"] == 2 and not ops.keys() & {"HGMMA", "HMMA", "LDGSTS", "STL", "LDL"}


def test_every_code_and_who_gets_wgmma() -> None:
    """Both operands from memory along k take it; what a kernel or the caller lays otherwise is decoded by a kernel of its own."""
    rng = np.random.default_rng(0)
    codes = np.arange(256, dtype=np.uint8)
    every = {d: codes.view(numpy_dtype(d)).reshape(8, 32) for d in (E4M3, E5M2)}
    weights = {d: numbers(rng, (16, 32), d) for d in (E4M3, E5M2)}
    g = tt.Graph("codes")
    x, h = g.input("x", (8, 32), E4M3), g.input("h", (8, 32), E5M2)
    w, v, z = g.constant(weights[E4M3]), g.input("v", (16, 32), E5M2), g.input("z", (8, 32), E4M3)
    u = g.input("u", (16, 32), E5M2)
    g.output("held", x.cast(tt.fp32).linear(w.cast(tt.fp32)))
    g.output("scaled", (h.cast(tt.fp32) @ v.cast(tt.fp32).transpose(0, 1) * 0.5).cast(tt.fp16))
    g.output("made", (x.cast(tt.fp32) * 0.25).cast(E4M3).cast(tt.fp32).linear(w.cast(tt.fp32)))
    g.output("mixed", z.cast(tt.fp32).linear(u.cast(tt.fp32)))
    g.output("turned", z.cast(tt.fp32).transpose(0, 1) @ z.cast(tt.fp32))
    f = tt.compile(g, target="emulated-sm90", precision="tf32")
    plans = {r.region: r.choices[0].plan for r in f.stages["plan"].value.main.regions}
    shapes = [p.inst_shape[-3:] for p in plans.values() if isinstance(p, Sm90Mma | Sm80Mma)]
    assert len(shapes) == 5 and shapes.count("k32") == 3, shapes
    wide = {d: a.astype(np.float64) for d, a in every.items()}
    with np.errstate(invalid="ignore"):
        quarter = (every[E4M3].astype(np.float32) * np.float32(0.25)).astype(numpy_dtype(E4M3)).astype(np.float64)
        expected: dict[str, np.ndarray] = {
            "held": wide[E4M3] @ weights[E4M3].astype(np.float64).T,
            "scaled": (wide[E5M2] @ weights[E5M2].astype(np.float64).T * 0.5).astype(np.float16),
            "made": quarter @ weights[E4M3].astype(np.float64).T,
            "mixed": wide[E4M3] @ weights[E5M2].astype(np.float64).T,
            "turned": wide[E4M3].T @ wide[E4M3],
        }
    given = {"x": every[E4M3], "z": every[E4M3], "h": every[E5M2], "v": weights[E5M2], "u": weights[E5M2]}
    found, on_cpu = f(**given), tt.compile(g, precision="tf32")(**given)
    for name, right in expected.items():
        assert np.isnan(right).any() and not np.isnan(right).all(), name
        np.testing.assert_allclose(found[name], right, rtol=1e-3, atol=1e-3, err_msg=name)
        np.testing.assert_allclose(on_cpu[name], right, rtol=1e-3, atol=1e-3, err_msg=name)


def test_without_leave_to_round_fp8_is_multiplied_as_the_fp32_that_it_is() -> None:
    g = tt.Graph("exact")
    g.output("y", g.input("x", (8, 32), E4M3).cast(tt.fp32).linear(g.input("w", (16, 32), E4M3).cast(tt.fp32)))
    plans = [r.choices[0].plan for r in prepare(g, target="sm90").stages["plan"].main.regions]
    assert [p.inst_shape for p in plans if isinstance(p, Sm80Mma)] == ["fma"] and not any(isinstance(p, Sm90Mma) for p in plans)


def test_a_model_of_onnx_says_it_by_casts() -> None:
    onnx = pytest.importorskip("onnx")
    code, number = onnx.TensorProto.FLOAT8E5M2, onnx.TensorProto.FLOAT
    made = onnx.parser.parse_graph(
        f"""g (float8e5m2[M, 32] x, float8e5m2[16, 32] w) => (float16[M, 16] y) {{
            wide = Cast <to = {number}> (x)
            rows = Cast <to = {number}> (w)
            columns = Transpose <perm = [1, 0]> (rows)
            sums = MatMul (wide, columns)
            positive = Relu (sums)
            y = Cast <to = {onnx.TensorProto.FLOAT16}> (positive)
        }}"""
    )
    assert made.input[0].type.tensor_type.elem_type == code
    model = onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", 19)])
    (region,) = prepare(model, target="sm90", precision="tf32").stages["plan"].main.regions
    plan = region.choices[0].plan
    assert isinstance(plan, Sm90Mma) and plan.inst_shape.endswith("k32") and plan.epilogue
