"""Two products in one kernel whose weights are made of two: the gradients of attention's queries and keys, dQ = dS K and
dK = dS^T Q with dS = P (dO V^T - D) and P = exp(Q K^T / 4 - L). On the emulated GPU against float64, over masks, tails, odd
widths, operands that lie the other way, one slot or more; proved; taken by ptxas without spills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.algebra.visit import free_vars
from tatami.core.codec import to_builtins
from tatami.core.expr import var
from tatami.core.kernel import Condition, KernelFace
from tatami.core.target import PRESETS
from tatami.cu.print import headers, print_unit
from tatami.decisions import Decisions
from tatami.gpu import ir, statement_ir
from tatami.gpu.pairs.lower import lower_pair
from tatami.gpu.show import show
from tatami.gpu.verify import verify_kernel
from tatami.plan.ir import Guarded, Sm80Pair, Sm90Pair
from tatami.plan.key import plan_key
from tatami.plan.pairs.choose import estimate_of_pair, pair_plans
from tatami.plan.rename import kept_choices
from tatami.plan.views.pair_limits import pair_limits, pair_rules
from tatami.region.ir import Region
from tatami.region.views.pairs.pair import PairView, pair_view
from tatami.runtime.building.nvrtc import has_nvrtc
from tests.cu.machine_code import compiled, sass
from tests.cu.pairs.test_pair_direct import LENGTHS, Arrays
from tests.cu.pairs.test_pair_numbers import NUMPY, by_roles
from tests.gpu.test_verify import change, drop, edited


def gradient(
    dtype: Any, of: str = "q", width: int = 64, mask: str = "", columns: int = 0, turned: bool = False, heads: int = 2
) -> tt.Graph:
    """dQ = dS K, or dK = dS^T Q; with `columns` dS W. `turned`: K and Q are contiguous along their rows."""
    g = tt.Graph("gradient")

    def operand(name: str, size: str, width: int) -> Any:
        if turned and name in "qk":
            return g.input(name, ("B", heads, width, size), dtype).transpose(-2, -1)
        return g.input(name, ("B", heads, size, width), dtype)

    q, d_out, k, v = (operand(n, s, width) for n, s in (("q", "S"), ("dO", "S"), ("k", "T"), ("v", "T")))
    log_sum, product = (g.input(n, ("B", heads, "S", 1), tt.fp32) for n in "LD")
    full = ("B", heads, "S", "T")
    p = (q.matmul(k.transpose(-2, -1), out_dtype=tt.fp32) * 0.25 - log_sum.expand(full)).exp()
    ds = p * (d_out.matmul(v.transpose(-2, -1), out_dtype=tt.fp32) - product.expand(full)) * 0.25
    if mask == "causal":
        ds = (g.iota(full, 3) <= g.iota(full, 2)).where(ds, 0.0)
    elif mask == "given":
        ds = g.input("m", ("B", 1, "S", "T"), tt.bool).expand(full).where(ds, 0.0)
    ds = ds.cast(dtype) if dtype != tt.fp32 else ds
    if columns:
        g.output("y", ds @ operand("w", "T", columns))
    else:
        g.output("y", ds @ k if of == "q" else ds.transpose(-2, -1) @ q)
    return g


def arrays(f: Any, rows: int, keys: int) -> Arrays:
    rng = np.random.default_rng(1000 * rows + keys)
    out: Arrays = {}
    for p in f.signature.inputs:
        x = rng.standard_normal([{"B": 2, "S": rows, "T": keys}.get(str(s), s.as_int()) for s in p.shape])
        out[p.tensor] = x > -0.5 if p.dtype == tt.bool else (x / 2).astype(NUMPY[p.dtype])
    out["L"] = out["L"] + np.float32(2)
    return out


def wanted(x: Arrays, of: str, mask: str, turned: bool) -> np.ndarray:
    q, k, v, d_out, log_sum, product = (x[n].astype(np.float64) for n in ("q", "k", "v", "dO", "L", "D"))
    if turned:
        q, k = q.swapaxes(-1, -2), k.swapaxes(-1, -2)
    with np.errstate(all="ignore"):
        ds = np.exp(q @ k.swapaxes(-1, -2) / 4 - log_sum) * (d_out @ v.swapaxes(-1, -2) - product) / 4
        if mask:
            ds = np.where(x.get("m", np.arange(k.shape[2]) <= np.arange(q.shape[2])[:, None]), ds, 0)
        if "w" in x:
            return ds @ x["w"].astype(np.float64)
        return ds @ k if of == "q" else ds.swapaxes(-1, -2) @ q


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str, float]] = {
    "queries, causal": ({"dtype": tt.fp16, "mask": "causal"}, {}, "fp32", 2e-2),
    "keys, causal": ({"dtype": tt.fp16, "of": "k", "mask": "causal"}, {}, "fp32", 2e-2),
    "keys, given mask, odd width": ({"dtype": tt.bf16, "of": "k", "width": 72, "mask": "given"}, {}, "fp32", 1e-1),
    "depth 128": ({"dtype": tt.fp16, "width": 128}, {}, "fp32", 3e-2),
    "values of their own": ({"dtype": tt.fp16, "columns": 40, "mask": "causal"}, {}, "fp32", 2e-2),
    "one slot": ({"dtype": tt.fp16, "mask": "causal"}, {"stages": 1}, "fp32", 2e-2),
    "one slot, keys copied twice": ({"dtype": tt.fp16, "mask": "causal"}, {"stages": 1, "shared": False}, "fp32", 2e-2),
    "contiguous along rows": ({"dtype": tt.fp16, "turned": True}, {}, "fp32", 2e-2),
    "fp32": ({"dtype": tt.fp32, "width": 32, "mask": "causal"}, {}, "fp32", 2e-5),
    "fp32, contiguous along rows": ({"dtype": tt.fp32, "of": "k", "width": 36, "turned": True}, {}, "fp32", 2e-5),
    "tf32": ({"dtype": tt.fp32, "of": "k", "width": 40, "mask": "given"}, {}, "tf32", 4e-2),
    "tf32, contiguous along rows": ({"dtype": tt.fp32, "width": 32, "turned": True}, {}, "tf32", 4e-2),
}
ROLES_TAKE = ("queries, causal", "keys, given mask, odd width", "depth 128", "values of their own")
SIZES = ((70, 130), (130, 70), (1, 1), (64, 64), (0, 3), (3, 0))
LONG = ((33, 500), (500, 33))
"""More blocks than there are slots."""


def region_of(graph: tt.Graph, stage: str = "region", target: str = "sm80", **options: Any) -> Region:
    compilation = prepare(graph, target=target, sizes=LENGTHS, **options)
    (region,) = (x for x in compilation.stages[stage].main.body if isinstance(x, Region))
    return region


def view_of(region: Region) -> PairView:
    view = pair_view(region)
    assert isinstance(view, PairView), view
    return view


def by_warps(graph: tt.Graph, precision: str, fields: dict[str, Any]) -> Decisions:
    """The quickest plan with these fields, whatever the planner thinks of it."""
    target = prepare(graph, target="emulated-sm80").target
    region = region_of(graph, "realised", "emulated-sm80", precision=precision)
    shared = fields.get("shared", view_of(region).shared)
    plans = (msgspec.structs.replace(p, shared=shared) for p, _ in pair_plans(region, target, {}) if isinstance(p, Sm80Pair))
    plan = next(p for p in plans if p.stages == fields["stages"])
    return Decisions(plans={plan_key(region, target): to_builtins(kept_choices((Guarded((), plan),), region))})


@pytest.fixture(scope="module", params=[*((c, "sm80") for c in CASES), *((c, "sm90") for c in ROLES_TAKE)], ids="-".join)
def built(request: Any) -> tuple[Any, dict[str, Any], float]:
    name, isa = request.param
    shape, fields, precision, tolerance = CASES[name]
    graph = gradient(**shape)
    decisions = by_roles(graph, LENGTHS) if isa == "sm90" else by_warps(graph, precision, fields) if fields else None
    f = tt.compile(graph, target=f"emulated-{isa}", precision=precision, decisions=decisions, sizes=LENGTHS)
    (region,) = f.stages["plan"].value.main.regions
    assert isinstance(region.choices[0].plan, Sm90Pair if isa == "sm90" else Sm80Pair)
    for choice in region.choices:
        assert isinstance(choice.plan, Sm80Pair | Sm90Pair) and len(choice.plan.others) == 1
        by_fma = shape["dtype"] == tt.fp32 and precision == "fp32"
        assert choice.plan.shared == fields.get("shared", "columns" not in shape and not by_fma)
        assert choice.plan.stages == fields.get("stages", choice.plan.stages)
    return f, shape, tolerance


@pytest.mark.parametrize(("rows", "keys"), [*SIZES, *LONG])
def test_it_agrees_with_float64(built: Any, rows: int, keys: int) -> None:
    f, shape, tolerance = built
    x = arrays(f, rows, keys)
    (made,) = f(**x).values()
    exact = wanted(x, shape.get("of", "q"), shape.get("mask", ""), shape.get("turned", False))
    np.testing.assert_allclose(made.astype(np.float64), exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_value_that_is_not_finite_is_seen_where_its_weight_is_zero(built: Any, value: float) -> None:
    f, shape, tolerance = built
    x = arrays(f, 130, 130)
    name = "w" if "w" in x else "k" if shape.get("of", "q") == "q" else "q"
    x[name][0, 0, 3, 0] = value
    (made,) = f(**x).values()
    exact = wanted(x, shape.get("of", "q"), shape.get("mask", ""), shape.get("turned", False))
    np.testing.assert_allclose(made.astype(np.float64), exact, rtol=tolerance, atol=tolerance)


def test_nothing_of_rows_and_keys_is_in_memory_and_keys_are_copied_once() -> None:
    compilation = prepare(gradient(tt.fp16, mask="causal"), target="sm80", sizes=LENGTHS)
    stages = compilation.stages
    plan = stages["plan"].main.regions[0].choices[0].plan
    assert isinstance(plan, Sm80Pair) and plan.shared
    assert all("S*T" not in str(size) for b in stages["gpu"].main.bindings for _, size in b.scratch)
    arena = [b for b in stages["execution"].main.buffers if b.kind == "arena"]
    assert arena and not any({"S", "T"} <= free_vars(b.elements) for b in arena)
    (kernel,) = (k for k in stages["gpu"].main.kernels if isinstance(k, ir.Kernel))
    assert [r.name for r in kernel.smem] == ["smQ", "smK", "smQ1", "smK1"] and kernel.b.ring == "smK"
    assert "acc1 = sum over d < 64 of left1 * right1" in show(stages["gpu"])


# -- what is taken ---------------------------------------------------------------------------------


def test_what_is_estimated_to_be_slower_stays_three_products() -> None:
    short = {"B": 1, "S": 256, "T": 256}
    for target, width, dtype, sizes, count in (
        ("sm80", 64, tt.fp16, LENGTHS, 1),
        ("sm80", 64, tt.fp16, short, 3),
        ("sm80", 128, tt.fp32, {"B": 1, "S": 2048, "T": 2048}, 3),
        ("sm80", 128, tt.fp32, LENGTHS, 1),  # else 1 GB of weights
        ("sm90", 128, tt.fp16, LENGTHS, 1),
        ("sm90", 256, tt.fp16, LENGTHS, 3),
    ):
        found = prepare(gradient(dtype, width=width), target=target, sizes=sizes).stages["region"].main.body
        assert len([r for r in found if isinstance(r, Region)]) == count, (target, width, dtype)


def test_warpgroups_keep_more_slots_of_keys_that_are_values() -> None:
    """Two slots bring the next keys late: the same plan with four is simulated to take 0.6 of the time."""
    sizes = {"B": 4, "S": 4096, "T": 4096}
    region = region_of(gradient(tt.fp16, width=128, heads=8), target="sm90")
    best, estimate = pair_plans(region, PRESETS["sm90"], sizes)[0]
    assert isinstance(best, Sm90Pair) and best.stages == 4 and best.shared
    two = estimate_of_pair(region, msgspec.structs.replace(best, stages=2), PRESETS["sm90"], sizes)
    assert estimate["total"] < 0.6 * two["total"]


def test_depths_that_differ_are_refused() -> None:
    g = tt.Graph("two_depths")
    q, k = (g.input(n, (2, s, 64), tt.fp16) for n, s in (("q", "S"), ("k", "T")))
    d_out, v = (g.input(n, (2, s, 32), tt.fp16) for n, s in (("dO", "S"), ("v", "T")))
    ds = q.matmul(k.transpose(-2, -1), out_dtype=tt.fp32).exp() * d_out.matmul(v.transpose(-2, -1), out_dtype=tt.fp32)
    g.output("y", ds.cast(tt.fp16) @ k)
    lengths = {n: LENGTHS[n] for n in "ST"}
    regions = [r for r in prepare(g, target="sm80", sizes=lengths).stages["region"].main.body if isinstance(r, Region)]
    assert len(regions) == 3


def test_a_plan_says_which_products_it_has_and_what_they_share() -> None:
    region = region_of(gradient(tt.fp16))
    view, apart = view_of(region), view_of(region_of(gradient(tt.fp16, columns=64)))
    plan = plan_for(region)
    assert pair_rules(plan, view) == [] and not apart.shared
    roles = role_plan(region, stages=1)
    (why,) = pair_rules(roles, view)
    assert why.startswith("shared with overlap, and one stage")
    (why,) = pair_rules(msgspec.structs.replace(plan, others=()), view)
    assert why == f"others none; the Region has {view.firsts[1].acc}"
    (why,) = pair_rules(msgspec.structs.replace(plan, others=(apart.firsts[1].acc,)), apart)
    assert why == "shared: the second product's values are not what the first one multiplies by"


def test_tiles_that_registers_or_shared_memory_do_not_hold_are_refused() -> None:
    plain = region_of(gradient(tt.fp16))
    plan, view = plan_for(plain), view_of(plain)
    wide = msgspec.structs.replace(plan, tile=(128, 64, 64), warp_rows=32)
    assert any(why.startswith("296 registers per thread > 255") for why in pair_limits(wide, view, PRESETS["sm80"]))
    over = role_plan(plain, tile=(128, 64, 112))
    region = region_of(gradient(tt.fp16, mask="given"), target="sm90")
    given = view_of(region)
    assert pair_limits(over, view, PRESETS["sm90"]) == ["254 registers per consumer thread > setmaxnreg 240"]
    assert pair_limits(role_plan(region, tile=(128, 64, 80)), given, PRESETS["sm90"]) == [
        "259 registers per consumer thread > setmaxnreg 240"
    ]
    two = msgspec.structs.replace(plan, tile=(128, 64, 32), warp_rows=32)
    assert pair_limits(two, view, PRESETS["sm80"]) == []
    assert pair_limits(two, given, PRESETS["sm80"]) == ["256 registers per thread > 255"]
    deep = msgspec.structs.replace(plan, tile=(64, 256, 64), depth=256, stages=2)
    assert any("shared" in why or "smem" in why for why in pair_limits(deep, view, PRESETS["sm80"]))


# -- protocol and machine code ---------------------------------------------------------------------

BY8 = (Condition(var("S"), 8, low=1), Condition(var("T"), 8, low=1))


def plan_for(region: Region, **fields: Any) -> Sm80Pair:
    v = view_of(region)
    others = tuple(f.acc for f in v.firsts[1:])
    plan = Sm80Pair(v.first, v.second, (64, 64, 64), 64, 16, 2, (v.rows, v.keys), others=others, shared=v.shared)
    return msgspec.structs.replace(plan, **fields)


def role_plan(region: Region, **fields: Any) -> Sm90Pair:
    v = view_of(region)
    plan = Sm90Pair(v.first, v.second, (128, 64, 96), 64, 2, 4, (v.rows, v.keys), others=(v.firsts[1].acc,), shared=v.shared)
    return msgspec.structs.replace(plan, **fields)


def kernel_of(
    dtype: Any, width: int, of: str, mask: str, precision: str = "fp32", isa: str = "sm80", columns: int = 0, **fields: Any
) -> ir.Kernel:
    region = region_of(gradient(dtype, of, width, mask, columns), target=isa, precision=precision)
    plan = (role_plan if isa == "sm90" else plan_for)(region, depth=width, **fields)
    kernel, binding = lower_pair(region, Guarded(BY8, plan), PRESETS[isa])[-1]
    assert isinstance(kernel, ir.Kernel)
    return msgspec.structs.replace(kernel, face=KernelFace("k0", (), len(binding.sizes), ""))


WARPS: dict[str, tuple[Any, int, str, str, dict[str, Any]]] = {
    "fp16 64, queries, causal": (tt.fp16, 64, "q", "causal", {"tile": (64, 64, 64)}),
    "fp16 64, keys, one slot": (tt.fp16, 64, "k", "causal", {"tile": (128, 64, 32), "warp_rows": 32, "stages": 1}),
    "fp16 64, copied twice": (tt.fp16, 64, "q", "", {"stages": 1, "shared": False}),
    "bf16 128, queries": (tt.bf16, 128, "q", "causal", {"tile": (128, 128, 64)}),
    "fp16 128, keys, given mask": (tt.fp16, 128, "k", "given", {"tile": (64, 128, 32)}),
    "fp16 256, keys": (tt.fp16, 256, "k", "causal", {"tile": (64, 256, 32), "stages": 1}),
    "tf32 64, queries": (tt.fp32, 64, "q", "causal", {"tile": (64, 64, 32), "inst_shape": "m16n8k8", "precision": "tf32"}),
    "fma 64, keys": (tt.fp32, 64, "k", "causal", {"tile": (64, 64, 16), "inst_shape": "fma", "shared": False}),
    "fma 128, queries": (
        tt.fp32,
        128,
        "q",
        "causal",
        {"tile": (32, 128, 32), "stages": 1, "inst_shape": "fma", "shared": False},
    ),
}


ROLES: dict[str, tuple[Any, int, str, str, dict[str, Any]]] = {
    "64, queries, in turns, mixed": (tt.fp16, 64, "q", "causal", {"in_turns": True, "section": 4}),
    "64, keys, no overlap, one slot": (tt.bf16, 64, "k", "causal", {"overlap": False, "stages": 1}),
    "64, values of their own": (tt.fp16, 64, "q", "", {"columns": 64, "tile": (128, 64, 80), "stages": 1}),
    "64, keys, given mask": (tt.fp16, 64, "k", "given", {"tile": (128, 64, 64)}),
    "64, three warpgroups": (tt.fp16, 64, "q", "causal", {"tile": (192, 64, 32), "consumers": 3, "registers": (32, 160)}),
    "128, queries": (tt.fp16, 128, "q", "causal", {"tile": (128, 128, 64)}),
    "128, keys, in turns": (tt.bf16, 128, "k", "", {"tile": (128, 128, 64), "stages": 3, "in_turns": True}),
    "128, queries, given mask": (tt.fp16, 128, "q", "given", {"tile": (128, 128, 32), "stages": 2}),
}


@pytest.mark.parametrize("name", [*WARPS, *ROLES])
def test_the_protocol_is_proved(name: str) -> None:
    dtype, width, of, mask, fields = (WARPS | ROLES)[name]
    isa = "sm90" if name in ROLES else "sm80"
    assert verify_kernel(kernel_of(dtype, width, of, mask, isa=isa, **fields)) == []


def test_keys_that_are_freed_before_the_second_product_are_named() -> None:
    """Planted faults: what is the values' is freed with the scores; and not awaited of the second first product."""
    dtype, width, of, mask, fields = ROLES["128, queries"]
    kernel = kernel_of(dtype, width, of, mask, isa="sm90", **fields)
    early = change(statement_ir.MBarrierArrive, lambda s: s.mbarrier == "empty_K" and str(s.block) == "k - 1", block=var("k"))
    assert verify_kernel(edited(kernel, early))
    assert verify_kernel(edited(kernel, drop(statement_ir.Wait, lambda s: s.mbarrier == "full_K1")))
    one = change(statement_ir.Wait, lambda s: s.model == "wgmma_group" and len(s.token) == 2, pending=2)
    assert verify_kernel(edited(kernel, one))


def test_keys_that_are_copied_before_the_second_product_has_read_them_are_named() -> None:
    """A planted fault: without the threads' meeting after the second product, the one slot is filled under it."""
    *shape, fields = WARPS["fp16 64, keys, one slot"]
    kernel = kernel_of(*shape, **fields)
    assert verify_kernel(edited(kernel, drop(statement_ir.SyncThreads, lambda s: s.out_token[0].block == var("k"))))


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize("name", WARPS)
def test_machine_code_has_no_spills(name: str, tmp_path: Path) -> None:
    *shape, fields = WARPS[name]
    kernel = kernel_of(*shape, **fields)
    cubin = compiled(print_unit(kernel, PRESETS["sm80"]), headers((kernel,)))
    assert cubin.warnings == () and cubin.spill_bytes == 0
    ops = sass(cubin, tmp_path)
    assert ops["STL"] == ops["LDL"] == 0 and ops["LDGSTS"] > 0 and (ops["HMMA"] > 0) == (fields.get("inst_shape") != "fma")


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize("name", ROLES)
def test_machine_code_of_roles_has_no_spills(name: str, tmp_path: Path) -> None:
    dtype, width, of, mask, fields = ROLES[name]
    kernel = kernel_of(dtype, width, of, mask, isa="sm90", **fields)
    cubin = compiled(print_unit(kernel, PRESETS["sm90"]), headers((kernel,)))
    assert cubin.warnings == () and cubin.spill_bytes == 0
    ops = sass(cubin, tmp_path)
    products = 2 if fields.get("overlap", True) else 1
    assert ops["HGMMA"] == products * (2 * width // 16 + kernel.tile[2] // 16) and ops["UTMALDG"] >= 4
    assert ops["STL"] == ops["LDL"] == ops["HMMA"] == ops["LDGSTS"] == 0


@pytest.mark.parametrize(
    ("target", "width", "rows", "dtype", "why"),
    [
        ("emulated-sm90", 256, 8192, tt.fp16, "depth and columns 256 and 256; registers of warpgroups have room for 128"),
        ("emulated-sm80", 512, 8192, tt.fp16, "depth and columns 512 and 512; shared memory has room for 256"),
        ("emulated-sm80", 64, 8192, tt.fp64, "matrices of fp64; a pair takes one of bf16, fp16, fp32, summed in fp32"),
        ("emulated-sm80", 64, 256, tt.fp16, "2.62e+05 bytes of weights stay in cache without it"),
        ("cpu:avx2", 512, 2048, tt.fp32, "Δtime +"),
    ],
)
def test_explain_says_why_products_stay_apart(target: str, width: int, rows: int, dtype: Any, why: str) -> None:
    g = tt.Graph("gradient")
    q, k = (g.input(n, (2, rows, width), dtype) for n in "qk")
    sums = tt.fp64 if dtype == tt.fp64 else tt.fp32
    line = g.input("L", (2, rows, 1), sums).expand((2, rows, rows))
    p = (q.matmul(k.transpose(-2, -1), out_dtype=sums) - line).exp()
    g.output("y", (p if target.startswith("cpu") else p.cast(dtype)) @ k)
    said = [v.why for v in prepare(g, target=target).stages["partition"]["main"].verdicts if v.why]
    assert len(said) == 1 and said[0].startswith("as one kernel: ") and why in said[0]


@pytest.mark.parametrize(("depth", "said"), [((32,), "32 and 64"), ((8, 4), "8 x 4 and 64")])
def test_explain_names_depths_that_differ(depth: tuple[int, ...], said: str) -> None:
    g = tt.Graph("gradient")
    q, k = (g.input(n, (2, 4096, 64), tt.fp16) for n in "qk")
    a, b = (g.input(n, (2, 4096, *depth), tt.fp16) for n in "ab")
    line = g.input("L", (2, 4096, 1), tt.fp32).expand((2, 4096, 4096))
    inner = "cd"[: len(depth)]
    other = g.einsum(f"bm{inner},bn{inner}->bmn", a, b).cast(tt.fp32)
    p = (q.matmul(k.transpose(-2, -1), out_dtype=tt.fp32) - line).exp() * other
    g.output("y", p.cast(tt.fp16) @ k)
    whys = [v.why for v in prepare(g, target="emulated-sm80").stages["partition"]["main"].verdicts if v.why]
    assert whys == [f"as one kernel: first products of depths {said}; a pair has one"]
