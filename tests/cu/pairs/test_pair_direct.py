"""Two products in one kernel whose weights know nothing of their row, as the gradient of attention's values: on the emulated
GPU against float64, over masks, tails, heads in common and values that are not finite; proved; taken by ptxas without spills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import TatamiError
from tatami.core.expr import var
from tatami.core.kernel import Condition, KernelFace
from tatami.core.target import PRESETS
from tatami.cu.print import headers, print_unit
from tatami.gpu import ir, statement_ir
from tatami.gpu.pairs.lower import lower_pair
from tatami.gpu.show import show
from tatami.gpu.verify import verify_kernel
from tatami.plan.ir import Guarded, Sm80Pair, Sm90Pair
from tatami.region.ir import Region
from tatami.region.views.pairs.pair import PairView, pair_view
from tatami.runtime.building.nvrtc import has_nvrtc
from tests.cu.machine_code import compiled, sass
from tests.cu.pairs.test_pair_numbers import NUMPY, by_roles
from tests.cu.pairs.test_pair_roles import ONE
from tests.cu.pairs.test_pair_roles import plan_for as role_plan
from tests.cu.products.test_warpgroups import assert_named, first
from tests.gpu.pairs.test_pair import plan_for

LENGTHS: dict[str, Any] = {"B": (0, 4, 64), "S": (0, 4096, 1 << 16), "T": (0, 4096, 1 << 16)}
"""Long enough that weights in memory would leave L2."""
Arrays = dict[str, np.ndarray]


def gradient_of_values(dtype: Any, depth: int = 64, columns: int = 64, mask: str = "causal", heads: int = 2) -> tt.Graph:
    """dV = P^T dO with P = exp(Q K^T / 4 - L): keys stand in rows, and rows stream."""
    g = tt.Graph("gradient_of_values")
    k = g.input("k", ("B", heads, "T", depth), dtype)
    q, d_out = (g.input(n, ("B", heads, "S", width), dtype) for n, width in (("q", depth), ("dO", columns)))
    total = g.input("L", ("B", heads, "S", 1), tt.fp32)
    full = ("B", heads, "S", "T")
    weights = (q.matmul(k.transpose(-2, -1), out_dtype=tt.fp32) * 0.25 - total.expand(full)).exp()
    if mask == "causal":
        weights = (g.iota(full, 3) <= g.iota(full, 2)).where(weights, 0.0)
    elif mask == "given":
        weights = g.input("m", ("B", 1, "S", "T"), tt.bool).expand(full).where(weights, 0.0)
    g.output("dV", weights.cast(dtype).transpose(-2, -1) @ d_out)
    return g


def sigmoid_attention(dtype: Any, depth: int = 64, columns: int = 64, **attrs: Any) -> tt.Graph:
    """sigmoid(Q K^T / 4) V."""
    g = tt.Graph("sigmoid_attention")
    q = g.input("q", ("B", 2, "S", depth), dtype)
    k, v = (g.input(n, ("B", 2, "T", width), dtype) for n, width in (("k", depth), ("v", columns)))
    weights = (q.matmul(k.transpose(-2, -1), out_dtype=tt.fp32) * 0.25).sigmoid()
    g.output("y", weights.cast(dtype) @ v)
    return g


def arrays(f: Any, rows: int, keys: int) -> Arrays:
    rng = np.random.default_rng(1000 * rows + keys)
    out: Arrays = {}
    for p in f.signature.inputs:
        x = rng.standard_normal([{"B": 2, "S": rows, "T": keys}.get(str(s), s.as_int()) for s in p.shape])
        out[p.tensor] = x > -0.5 if p.dtype == tt.bool else (x / 2).astype(NUMPY[p.dtype])
    if "L" in out:
        out["L"] = out["L"] + np.float32(2)
    return out


def wanted(x: Arrays) -> np.ndarray:
    with np.errstate(all="ignore"):
        if "dO" not in x:
            q, k, v = (x[n].astype(np.float64) for n in "qkv")
            return (1 / (1 + np.exp(-q @ k.swapaxes(-1, -2) / 4))) @ v
        q, k, d_out, total = (x[n].astype(np.float64) for n in ("q", "k", "dO", "L"))
        p = np.exp(q @ k.swapaxes(-1, -2) / 4 - total)
        seen = x.get("m", np.arange(k.shape[2]) <= np.arange(q.shape[2])[:, None])
        return np.where(seen, p, 0).swapaxes(-1, -2) @ d_out


def prepared(graph: tt.Graph, target: str, **options: Any) -> Any:
    return prepare(graph, target=target, sizes=LENGTHS, **options)


def region_of(graph: tt.Graph, target: str = "sm80", **options: Any) -> Region:
    (region,) = (x for x in prepared(graph, target, **options).stages["region"].main.body if isinstance(x, Region))
    return region


CASES: dict[str, tuple[tt.Graph, str, float]] = {
    "rows before a key are passed over": (gradient_of_values(tt.fp16), "fp32", 1e-2),
    "given mask, odd widths": (gradient_of_values(tt.bf16, 72, 40, "given"), "fp32", 6e-2),
    "depth 128": (gradient_of_values(tt.fp16, 128, 128), "fp32", 1e-2),
    "sigmoid": (sigmoid_attention(tt.fp16, 32, 64), "fp32", 1e-2),
    "fp32": (gradient_of_values(tt.fp32, 32, 64), "fp32", 1e-5),
    "tf32, given mask": (gradient_of_values(tt.fp32, 24, 40, "given"), "tf32", 3e-2),
}
NARROW = list(CASES)[:4]
SIZES = ((70, 130), (130, 70), (1, 1), (64, 64), (0, 3))


@pytest.fixture(scope="module", params=[*((c, "sm80") for c in CASES), *((c, "sm90") for c in NARROW)], ids="-".join)
def built(request: Any) -> tuple[Any, float]:
    name, isa = request.param
    graph, precision, tolerance = CASES[name]
    decisions = by_roles(graph, LENGTHS) if isa == "sm90" else None
    f = tt.compile(graph, target=f"emulated-{isa}", precision=precision, decisions=decisions, sizes=LENGTHS)
    (region,) = f.stages["plan"].value.main.regions
    kinds = {type(c.plan) for c in region.choices}
    assert kinds <= {Sm80Pair, Sm90Pair} and (Sm90Pair in kinds) == (isa == "sm90")
    return f, tolerance


@pytest.mark.parametrize(("rows", "keys"), SIZES)
def test_it_agrees_with_float64(built: Any, rows: int, keys: int) -> None:
    f, tolerance = built
    x = arrays(f, rows, keys)
    (made,) = f(**x).values()
    np.testing.assert_allclose(made.astype(np.float64), wanted(x), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_value_that_is_not_finite_is_seen_where_its_weight_is_zero(built: Any, value: float) -> None:
    f, tolerance = built
    x = arrays(f, 130, 130)
    x["dO" if "dO" in x else "v"][0, 0, 0, 3] = value
    (made,) = f(**x).values()
    np.testing.assert_allclose(made.astype(np.float64), wanted(x), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("isa", ["sm80", "sm90"])
def test_what_is_read_of_a_key_keeps_its_dtype_in_lanes_that_ask_for_it(isa: str) -> None:
    """c / (c + c) is 0 in fp16 where the sum is infinite, and 1/2 elsewhere; in fp32 it is always 1/2."""
    g = tt.Graph("halved")
    q = g.input("q", ("B", 2, "S", 32), tt.fp16)
    k, v = (g.input(n, ("B", 2, "T", 32), tt.fp16) for n in "kv")
    c = g.input("c", ("B", 1, 1, "T"), tt.fp16).expand(("B", 2, "S", "T"))
    weights = (q.matmul(k.transpose(-2, -1), out_dtype=tt.fp32) * 0.25).sigmoid() * (c / (c + c)).cast(tt.fp32)
    g.output("y", weights.cast(tt.fp16) @ v)
    f = tt.compile(g, target=f"emulated-{isa}", decisions=by_roles(g, LENGTHS) if isa == "sm90" else None, sizes=LENGTHS)
    assert any("of_key0s[c] = " in u.text for u in f.stages["cu"].value.main.units)
    x = arrays(f, 70, 130)
    x["c"] = np.where(x["c"] > 0, 40000, 1).astype(np.float16)
    counted = wanted({**x, "v": np.where(x["c"].swapaxes(-1, -2) > 1, 0, x["v"] / 2)})
    np.testing.assert_allclose(f(**x)["y"].astype(np.float64), counted, rtol=1e-2, atol=1e-2)


def test_no_weights_are_in_memory_and_keys_bound_the_rows_they_stream() -> None:
    compilation = prepared(CASES["rows before a key are passed over"][0], "sm80")
    stages = compilation.stages
    assert isinstance(stages["plan"].main.regions[0].choices[0].plan, Sm80Pair)
    assert all("S*T" not in str(size) for b in stages["gpu"].main.bindings for _, size in b.scratch)
    arena = [b for b in stages["execution"].main.buffers if b.kind == "arena"]
    assert arena and not any({"S", "T"} <= free_vars(b.elements) for b in arena)
    text = show(stages["gpu"])
    assert "weight = exp(" in text and "keys m to any" in text


def test_direct_weights_have_no_state_of_their_rows() -> None:
    view = pair_view(region_of(CASES["rows before a key are passed over"][0]))
    assert isinstance(view, PairView) and view.direct and (view.low, view.high) == ((var(view.rows),), ())
    assert view.of_rows == {} and not view.divided
    (unit,) = (u.text for u in prepared(CASES["fp32"][0], "sm80").stages["cu"].main.units if "scores" in u.text)
    assert "total[" not in unit and "tt_quad_max" not in unit


@pytest.mark.parametrize(
    "graph", [sigmoid_attention(tt.fp16, 64, 320), sigmoid_attention(tt.fp64)], ids=["320 columns", "fp64"]
)
def test_what_the_template_does_not_take_stays_two_products(graph: tt.Graph) -> None:
    assert len([r for r in prepared(graph, "sm80").stages["region"].main.body if isinstance(r, Region)]) == 2


def test_columns_that_roles_have_no_registers_for_stay_two_products() -> None:
    """Products of 16 bits are computed by warpgroups on SM90; a pair of 256 columns is not."""
    counts = {}
    for target, width in (("sm80", 256), ("sm90", 256), ("sm90", 128)):
        found = prepared(gradient_of_values(tt.fp16, width, width), target).stages["region"].main.body
        counts[target, width] = len([r for r in found if isinstance(r, Region)])
    assert counts == {("sm80", 256): 1, ("sm90", 256): 2, ("sm90", 128): 1}


def test_short_sequences_stay_two_products_whose_weights_fit_into_cache() -> None:
    found = prepare(gradient_of_values(tt.fp16), target="sm80", sizes={"B": 1, "S": 256, "T": 256}).stages["region"].main
    assert len([r for r in found.body if isinstance(r, Region)]) == 2


# -- protocol and machine code ---------------------------------------------------------------------

BY8 = (Condition(var("S"), 8, low=1), Condition(var("T"), 8, low=1))


def roles_kernel(width: int, keys: int, mask: str = "causal", **fields: Any) -> ir.Kernel:
    region = region_of(gradient_of_values(tt.fp16, width, width, mask), "sm90" if width <= 128 else "sm80")
    plan = role_plan(region, (width, width), keys, **fields)
    kernel, binding = lower_pair(region, Guarded(BY8, plan), PRESETS["sm90"])[-1]
    assert isinstance(kernel, ir.Kernel)
    return msgspec.structs.replace(kernel, face=KernelFace("k0", (), len(binding.sizes), ""))


def warps_kernel(dtype: Any, width: int, precision: str = "fp32", **fields: Any) -> ir.Kernel:
    region = region_of(gradient_of_values(dtype, width, width), precision=precision)
    plan = plan_for(region, depth=width, **fields)
    kernel, binding = lower_pair(region, Guarded(BY8, plan), PRESETS["sm80"])[-1]
    assert isinstance(kernel, ir.Kernel)
    return msgspec.structs.replace(kernel, face=KernelFace("k0", (), len(binding.sizes), ""))


WARPS: dict[str, tuple[Any, int, str, dict[str, Any]]] = {
    "fp16 64": (tt.fp16, 64, "fp32", {"tile": (128, 64, 64), "warp_rows": 32, "stages": 1}),
    "bf16 128": (tt.bf16, 128, "fp32", {"tile": (64, 128, 64), "warp_rows": 16, "stages": 2}),
    "tf32 64": (tt.fp32, 64, "tf32", {"tile": (64, 64, 32), "warp_rows": 32, "stages": 2, "inst_shape": "m16n8k8"}),
    "fma 64": (tt.fp32, 64, "fp32", {"tile": (64, 64, 16), "warp_rows": 16, "stages": 2, "inst_shape": "fma"}),
}
ROLES: dict[str, tuple[int, int, dict[str, Any]]] = {
    "64, in turns, mixed": (64, 128, {"in_turns": True, "section": 4}),
    "128": (128, 112, {"in_turns": True}),
    "128, no overlap": (128, 64, {"overlap": False, **ONE}),
    "64, given mask": (64, 80, {"in_turns": True, "mask": "given"}),
    "128, given mask": (128, 64, {"mask": "given"}),
}


@pytest.mark.parametrize("name", [*WARPS, *ROLES])
def test_the_protocol_is_proved(name: str) -> None:
    dtype, width, precision, fields = WARPS.get(name, (None, 0, "", {}))
    if dtype is not None:
        kernel = warps_kernel(dtype, width, precision, **fields)
    else:
        width, keys, fields = ROLES[name]
        kernel = roles_kernel(width, keys, **fields)
    assert verify_kernel(kernel) == []


def test_a_plan_whose_consumers_would_spill_is_refused() -> None:
    with pytest.raises(TatamiError, match="258 registers per consumer thread > setmaxnreg 240"):
        roles_kernel(256, 64)


def test_weights_of_the_block_before_are_named() -> None:
    kernel = roles_kernel(64, 64)
    assert_named(kernel, first(statement_ir.Rescale, block=var("k")), lambda s: None, "weights of another block")


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize("name", WARPS)
def test_machine_code_of_warps_has_no_spills(name: str, tmp_path: Path) -> None:
    dtype, width, precision, fields = WARPS[name]
    kernel = warps_kernel(dtype, width, precision, **fields)
    cubin = compiled(print_unit(kernel, PRESETS["sm80"]), headers((kernel,)))
    assert cubin.warnings == () and cubin.spill_bytes == 0
    ops = sass(cubin, tmp_path)
    assert ops["STL"] == ops["LDL"] == 0 and ops["LDGSTS"] > 0 and (ops["HMMA"] > 0) == (fields.get("inst_shape") != "fma")


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize("name", ROLES)
def test_machine_code_of_roles_has_no_spills(name: str, tmp_path: Path) -> None:
    width, keys, fields = ROLES[name]
    kernel = roles_kernel(width, keys, **fields)
    cubin = compiled(print_unit(kernel, PRESETS["sm90"]), headers((kernel,)))
    assert cubin.warnings == () and cubin.spill_bytes == 0
    ops = sass(cubin, tmp_path)
    products = 2 if fields.get("overlap", True) else 1
    assert ops["HGMMA"] == products * (width // 16 + keys // 16) and ops["UTMALDG"] >= 3
    assert ops["STL"] == ops["LDL"] == ops["HMMA"] == ops["LDGSTS"] == 0
