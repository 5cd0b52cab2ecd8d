"""Attention in one kernel on the emulated GPU: against float64, over tails, masks, grouped heads and values that are not
finite, with nothing to report; and its machine code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.codec import to_builtins
from tatami.core.kernel import Condition, KernelFace
from tatami.core.target import PRESETS
from tatami.cu.print import headers, print_unit
from tatami.decisions import Decisions
from tatami.gpu.ir import Kernel
from tatami.gpu.pairs.lower import lower_pair
from tatami.plan.ir import INST_K, Guarded, Sm80Pair, Sm90Pair
from tatami.plan.key import plan_key
from tatami.plan.pairs.choose import pair_plans
from tatami.plan.rename import kept_choices
from tatami.region.ir import Region
from tatami.region.views.pairs.pair import PairView, pair_view
from tatami.region.walk import all_axes
from tatami.runtime.building.nvrtc import Cubin, has_nvrtc
from tests.cu.machine_code import compiled, sass
from tests.gpu.pairs.test_pair import attention, plan_for, region_for

NUMPY = {tt.fp16: np.float16, tt.bf16: ml_dtypes.bfloat16, tt.fp32: np.float32}
TOLERANCE = {tt.fp16: 2e-3, tt.bf16: 1.5e-2, tt.fp32: 3e-6}
OF_PRECISION = {"fp32": 3e-6, "tf32": 4e-3}
Arrays = dict[str, np.ndarray]


def graph(
    depth: int, columns: int, heads: tuple[int, int], dtype: Any, mask: Any = None, safe: bool = False, **attrs: Any
) -> Any:
    """Named S rows, T keys; `safe`: rows that see nothing give 0, and the log of the sum of exp(score) is an output."""
    g = tt.Graph("attention")
    q = g.input("q", ("B", heads[0], "S", depth), dtype)
    k, v = (g.input(n, ("B", heads[1], "T", w), dtype) for n, w in (("k", depth), ("v", columns)))
    full = ("B", heads[0], "S", "T")
    m = None
    if mask == "lengths":
        few = ("B", 1, 1, "T")
        m = (g.iota(few, 3, dtype=tt.i32) < g.input("n", ("B",), tt.i32).reshape("B", 1, 1, 1).expand(few)).expand(full)
    elif mask:
        m = g.input("m", ("B", 1, "S", "T"), dtype if mask == "added" else tt.bool).expand(full)
    if safe:
        assert m is not None
        scores = m.where((q @ k.permute((0, 1, 3, 2))).cast(tt.fp32), -np.inf)
        p = scores.softmax(axis=3)
        p = p.isnan().where(g.full(full, 0.0, tt.fp32), p).cast(dtype)
        g.output("y", p @ v)
        g.output("l", scores.logsumexp(axis=3))
    else:
        g.output("y", q.attention(k, v, m, **attrs))
    return g


def arrays(depth: int, columns: int, heads: tuple[int, int], dtype: Any, mask: Any, rows: int, keys: int) -> Arrays:
    rng = np.random.default_rng(rows * 1000 + keys)

    def some(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(NUMPY[dtype])

    x = {
        "q": some(1, heads[0], rows, depth) / NUMPY[dtype](4),
        "k": some(1, heads[1], keys, depth),
        "v": some(1, heads[1], keys, columns),
    }
    if mask == "added":
        x["m"] = some(1, 1, rows, keys)
    elif mask == "lengths":
        x["n"] = np.array([-(-keys * 2 // 3)], np.int32)
    elif mask:
        x["m"] = rng.random((1, 1, rows, keys)) < 0.5
        x["m"][:, :, : rows // 2 : 3] = False
    return x


def scores_of(
    x: Arrays, safe: bool, causal: bool = False, window: int = 0, softcap: float = 0.0, scale: float = 0.0
) -> np.ndarray:
    q, k = (x[n].astype(np.float64) for n in "qk")
    k = np.repeat(k, q.shape[1] // k.shape[1], 1)
    s = q @ k.swapaxes(-1, -2) * (scale or (1.0 if safe else q.shape[-1] ** -0.5))
    s = softcap * np.tanh(s / softcap) if softcap else s
    if "m" in x:
        s = np.where(x["m"], s, -np.inf) if x["m"].dtype == np.bool_ else s + x["m"].astype(np.float64)
    i, j = np.arange(q.shape[2])[:, None], np.arange(k.shape[2])
    s = np.where((j <= i) | (not causal), s, -np.inf)
    s = np.where((j > i - window) | (not window), s, -np.inf)
    return np.where(j < x["n"][:, None, None, None], s, -np.inf) if "n" in x else s


def wanted(x: Arrays, safe: bool, **attrs: Any) -> np.ndarray:
    s, v = scores_of(x, safe, **attrs), x["v"].astype(np.float64)
    v = np.repeat(v, s.shape[1] // v.shape[1], 1)
    with np.errstate(invalid="ignore"):
        e = np.exp(s - s.max(-1, keepdims=True, initial=-np.inf))
        p = e / e.sum(-1, keepdims=True)
        p = np.where(np.isnan(p), 0.0, p) if safe else p
        return p @ v


CASES: dict[str, tuple[Any, ...]] = {
    "causal, grouped heads": (64, 64, (4, 2), tt.fp16, None, False, {"causal": True}),
    "added mask, odd widths": (72, 40, (2, 2), tt.bf16, "added", False, {}),
    "window and softcap": (32, 128, (1, 1), tt.fp16, None, False, {"causal": True, "window": 20, "softcap": 3.0}),
    "given mask, rows of nothing are 0": (16, 24, (2, 1), tt.fp16, "given", True, {}),
    "as many keys as an input says": (64, 64, (2, 1), tt.fp16, "lengths", False, {"causal": True}),
    "fp32, causal, grouped heads": (32, 64, (4, 2), tt.fp32, None, False, {"causal": True}),
    "fp32, given mask, odd widths": (30, 17, (2, 1), tt.fp32, "given", True, {}),
}
SIZES = ((70, 130), (1, 1), (33, 64), (5, 0))


def by_roles(model: Any, sizes: Any = None) -> Decisions:
    """The quickest plan with warp roles, whatever the planner thinks of it."""
    compilation = prepare(model, target="emulated-sm90", sizes=sizes)
    (region,) = (r for r in compilation.stages["realised"].main.body if isinstance(r, Region))
    plans = [p for p, _ in pair_plans(region, compilation.target, {})]
    roles, warps = (next(p for p in plans if isinstance(p, kind)) for kind in (Sm90Pair, Sm80Pair))
    v = pair_view(region)
    assert isinstance(v, PairView)
    choices = (Guarded((Condition(all_axes(region)[v.keys], low=1),), roles), Guarded((), warps))
    return Decisions(plans={plan_key(region, compilation.target): to_builtins(kept_choices(choices, region))})


@pytest.fixture(scope="module", params=[*((c, "sm80") for c in CASES), *((c, "sm90") for c in list(CASES)[:5])], ids="-".join)
def built(request: Any) -> tuple[tuple[Any, ...], Any]:
    """The kernels of a request; both targets have the same one for fp32."""
    case, isa = request.param
    *given, attrs = CASES[case]
    model = graph(*given, **attrs)
    function = tt.compile(model, target=f"emulated-{isa}", decisions=by_roles(model) if isa == "sm90" else None)
    kinds = [c.plan.__struct_config__.tag for c in function.stages["plan"].value.main.regions[0].choices]
    assert kinds[0] == f"{isa}_pair" and set(kinds) <= {"sm80_pair", "sm90_pair"}
    return CASES[case], function


@pytest.mark.parametrize(("rows", "keys"), SIZES)
def test_it_agrees_with_float64(built: Any, rows: int, keys: int) -> None:
    (depth, columns, heads, dtype, mask, safe, attrs), function = built
    x = arrays(depth, columns, heads, dtype, mask, rows, keys)
    assert_agrees(function(**x), x, safe, TOLERANCE[dtype], **attrs)


def assert_agrees(made: Arrays, x: Arrays, safe: bool, tolerance: float, **attrs: Any) -> None:
    """The log of a sum of exp(score) is -inf of nothing, inf and NaN where a score is."""
    with np.errstate(all="ignore"):
        y, sums = wanted(x, safe, **attrs), np.log(np.exp(scores_of(x, safe, **attrs)).sum(-1))
    np.testing.assert_allclose(made["y"].astype(np.float64), y, rtol=0, atol=tolerance)
    if safe:
        np.testing.assert_allclose(made["l"], sums, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("value", "place"), [(np.inf, 0), (-np.inf, 0), (np.nan, 40)])
def test_a_score_that_is_not_finite_is_in_its_row(built: Any, value: float, place: int) -> None:
    (depth, columns, heads, dtype, mask, safe, attrs), function = built
    x = arrays(depth, columns, heads, dtype, mask, 70, 130)
    x["k"][0, 0, place] = 0
    x["k"][0, 0, place, 0] = value
    assert_agrees(function(**x), x, safe, TOLERANCE[dtype], **attrs)


@pytest.mark.parametrize(("precision", "turned"), [("fp32", True), ("tf32", False), ("tf32", True)])
def test_operands_of_fp32_may_lie_either_way(precision: str, turned: bool) -> None:
    function = tt.compile(attention(24, 40, tt.fp32, turned=turned), target="emulated-sm80", precision=precision)
    (plan,) = {c.plan.__struct_config__.tag for c in function.stages["plan"].value.main.regions[0].choices}
    assert plan == "sm80_pair"
    for rows, keys in SIZES:
        x = arrays(24, 40, (2, 2), tt.fp32, None, rows, keys)
        given = {n: np.ascontiguousarray(a.swapaxes(-1, -2)) if turned else a for n, a in x.items()}
        np.testing.assert_allclose(function(**given)["y"], wanted(x, False), rtol=0, atol=OF_PRECISION[precision])


@pytest.mark.parametrize("place", [0, 50, 69])
def test_an_infinite_value_is_seen_where_its_weight_is_zero(built: Any, place: int) -> None:
    (depth, columns, heads, dtype, mask, safe, attrs), function = built
    x = arrays(depth, columns, heads, dtype, mask, 70, 70)
    x["v"][0, 0, place, 3] = np.inf
    y = function(**x)["y"].astype(np.float64)
    np.testing.assert_allclose(y, wanted(x, safe, **attrs), rtol=0, atol=TOLERANCE[dtype])


def test_a_score_that_is_nan_makes_its_row_nan(built: Any) -> None:
    (depth, columns, heads, dtype, mask, safe, attrs), function = built
    x = arrays(depth, columns, heads, dtype, mask, 33, 33)
    x["q"][0, 0, 7, 2] = np.nan
    y = function(**x)["y"].astype(np.float64)
    np.testing.assert_allclose(y, wanted(x, safe, **attrs), rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize(
    ("width", "tile", "warp_rows", "stages", "shape"),
    [
        (64, (128, 64, 64), 32, 1, "m16n8k16"),
        (128, (64, 128, 64), 16, 2, "m16n8k16"),
        (256, (64, 256, 64), 16, 1, "m16n8k16"),
        (64, (64, 64, 32), 32, 2, "m16n8k8"),
        (256, (32, 256, 32), 16, 1, "m16n8k8"),
    ],
    ids=lambda x: str(x),
)
def test_its_machine_code_copies_reads_and_multiplies_without_spills(
    width: int, tile: tuple[int, int, int], warp_rows: int, stages: int, shape: str, tmp_path: Path
) -> None:
    region = region_for(shape, width, causal=True)
    plan = plan_for(region, tile=tile, depth=width, warp_rows=warp_rows, stages=stages, inst_shape=shape)
    cubin = cubin_of(region, plan)
    ops = sass(cubin, tmp_path)
    _, bn, bk = tile
    blocks = warp_rows // 16  # blocks of 16 rows
    deep = INST_K[shape]
    steps = min(width // deep, 4)  # along the depth, four at a time where there are more
    assert ops["HMMA"] == blocks * (steps * bk // 8 + bk // deep * bn // 8)
    of_values = bk // 16 * bn // 16 if shape == "m16n8k16" else 0  # fp32 is not transposed by ldmatrix
    assert ops["LDSM"] == steps * (blocks + bk // 16) + of_values
    assert ops["LDGSTS"] > 0 and ops["STL"] == ops["LDL"] == 0
    assert ops["MUFU"] >= blocks * 2 * bk // 4


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize(
    ("width", "tile", "warp_rows"), [(64, (64, 64, 16), 16), (128, (16, 128, 16), 16)], ids=lambda x: str(x)
)
def test_multiply_adds_are_all_of_its_machine_code_without_spills(
    width: int, tile: tuple[int, int, int], warp_rows: int, tmp_path: Path
) -> None:
    region = region_for("fma", width, causal=True)
    plan = plan_for(region, tile=tile, depth=width, warp_rows=warp_rows, stages=2, inst_shape="fma")
    cubin = cubin_of(region, plan)
    ops = sass(cubin, tmp_path)
    _, bn, bk = tile
    rows = warp_rows // 8  # rows of a lane
    assert ops["FFMA"] >= rows * (2 * 4 * bk // 4 + bk * bn // 4)  # two steps of four along the depth; all keys
    assert ops["HMMA"] == ops["STL"] == ops["LDL"] == 0 and ops["LDGSTS"] > 0
    assert ops["SHFL"] >= rows * bk


def cubin_of(region: Region, plan: Sm80Pair) -> Cubin:
    kernel, binding = lower_pair(region, Guarded((), plan), PRESETS["sm80"])[-1]
    assert isinstance(kernel, Kernel)
    kernel = msgspec.structs.replace(kernel, face=KernelFace("k0", (), len(binding.sizes), ""))
    cubin = compiled(print_unit(kernel, PRESETS["sm80"]), headers((kernel,)))
    assert cubin.warnings == () and cubin.spill_bytes == 0
    return cubin
