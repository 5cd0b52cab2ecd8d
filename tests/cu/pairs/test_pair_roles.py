"""Two products in one kernel by warp roles: on the emulated GPU with several tiles per CTA, tiles that differ in their
blocks, every depth, order of operands and kind of plan; proved by the verifier; taken by ptxas without spills."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.algebra.visit import evaluate
from tatami.core.diagnostic import TatamiError
from tatami.core.expr import var
from tatami.core.kernel import Binding, Condition, KernelFace
from tatami.core.target import PRESETS, Target
from tatami.cu.print import headers, print_unit
from tatami.decisions import Decisions
from tatami.gpu import statement_ir
from tatami.gpu.ir import Kernel
from tatami.gpu.pairs.lower import lower_pair
from tatami.gpu.verify import verify_kernel
from tatami.plan.ir import Guarded, Sm80Pair, Sm90Pair
from tatami.plan.key import plan_key
from tatami.plan.pairs.choose import pair_plans
from tatami.plan.views.product_limits import MAX_SPLIT
from tatami.region.ir import Region
from tatami.region.views.pairs.pair import PairView, pair_view
from tatami.runtime.building.nvrtc import has_nvrtc
from tests.cu.machine_code import compiled, sass
from tests.cu.pairs.test_pair_numbers import scores_of, wanted
from tests.cu.products.test_warpgroups import assert_named, first
from tests.emulated.kernels import NUMPY, Built
from tests.gpu.pairs.test_pair import attention, region_of

SM90 = PRESETS["sm90"]
ONE: dict[str, Any] = {"consumers": 1, "registers": (56, 224)}
THREE: dict[str, Any] = {"consumers": 3, "registers": (32, 160)}


def last_kernel(region: Region, choice: Guarded, target: Target) -> tuple[Kernel, Binding]:
    kernel, binding = lower_pair(region, choice, target)[-1]
    assert isinstance(kernel, Kernel)
    return kernel, binding


def plan_for(region: Region, width: tuple[int, int] = (64, 64), keys: int = 32, **fields: Any) -> Sm90Pair:
    v = pair_view(region)
    assert isinstance(v, PairView), v
    depth, columns = (-(-x // 16) * 16 for x in width)
    consumers = fields.get("consumers", 2)
    tail = (v.rows, v.keys, *((v.depth,) if depth != width[0] else ()), *((v.columns,) if columns != width[1] else ()))
    plan = Sm90Pair(v.first, v.second, (64 * consumers, columns, keys), depth, consumers, 2, tail)
    return msgspec.structs.replace(plan, **fields)


def stored(order: str, dtype: Any = tt.fp16, width: tuple[int, int] = (64, 64), **attrs: Any) -> tt.Graph:
    """Attention whose operands lie as `order` says: n, or t where rows, keys are contiguous in memory."""
    g = tt.Graph("attention")

    def given(name: str, turned: str, heads: int, columns: int) -> Any:
        if turned == "n":
            return g.input(name, ("B", heads, "S", columns), dtype)
        return g.input(name, ("B", heads, columns, "S"), dtype).permute((0, 1, 3, 2))

    q, k, v = (given(*x) for x in zip("qkv", order, (2, 1, 1), (width[0], width[0], width[1])))
    g.output("y", q.attention(k, v, **attrs))
    return g


CASES: dict[str, tuple[tt.Graph, dict[str, Any], dict[str, Any]]] = {
    "causal": (stored("nnn", causal=True), {}, {"causal": True}),
    "causal, in turns, mixed": (stored("nnn", causal=True), {"in_turns": True, "section": 3}, {"causal": True}),
    "causal, three in turns": (
        stored("nnn", causal=True),
        {"in_turns": True, "section": 2, "keys": 16, **THREE},
        {"causal": True},
    ),
    "window, no overlap": (stored("nnn", causal=True, window=20), {"overlap": False, **ONE}, {"causal": True, "window": 20}),
    "window, overlap": (
        stored("nnn", causal=True, window=20),
        {"stages": 3, "section": 4, **ONE},
        {"causal": True, "window": 20},
    ),
    "turned operands": (stored("ttt", tt.bf16), {"keys": 64, "in_turns": True}, {}),
    "turned rows": (stored("tnt"), ONE, {}),
    "depth 96": (stored("nnn", width=(96, 96)), {"keys": 48, "width": (96, 96), **ONE}, {}),
    "depth 128": (stored("ntn", tt.bf16, width=(128, 128)), {"keys": 64, "width": (128, 128), "in_turns": True}, {}),
    "depth 192": (stored("nnt", width=(192, 192), causal=True), {"keys": 64, "width": (192, 192), **ONE}, {"causal": True}),
    "depth 256": (stored("nnn", width=(256, 256)), {"keys": 32, "width": (256, 256), "stages": 3, **ONE}, {}),
    "odd widths": (stored("ntn", width=(72, 40)), {"keys": 48, "width": (72, 40), **ONE}, {}),
}
NONFINITE = "nonfinite'"
BY8 = (Condition(var("S"), 8, low=1),)


def region_and_plan(name: str) -> tuple[Region, Sm90Pair]:
    graph, fields, _ = CASES[name]
    region = region_of(graph)
    return region, plan_for(region, **fields)


@cache
def built(name: str) -> Built:
    """The program for a GPU of three SMs: several tiles per CTA."""
    return Built(*region_and_plan(name), "sm90", BY8, sms=3, lower=last_kernel)


def kernel(name: str) -> Kernel:
    region, plan = region_and_plan(name)
    return last_kernel(region, Guarded(BY8, plan), SM90)[0]


@pytest.mark.parametrize(("rows", "schedule"), [(200, 0), (8, 7)])
@pytest.mark.parametrize("name", CASES)
def test_numbers_on_the_emulated_gpu(name: str, rows: int, schedule: int) -> None:
    """Tiles of different numbers of blocks, from one on, and one tile alone."""
    b, attrs = built(name), CASES[name][2]
    rng = np.random.default_rng(rows)
    arrays: dict[str, np.ndarray] = {}
    seen: dict[str, np.ndarray] = {}
    for letter, p in zip("qkv", b.region.inputs, strict=True):
        shape = [evaluate(s, {"B": 2, "S": rows}) for s in p.memref.shape]
        x = arrays[p.name] = (rng.standard_normal(shape) / 2).astype(NUMPY[p.memref.dtype])
        seen[letter] = x if str(p.memref.shape[2]) == "S" else x.swapaxes(-1, -2)
    if NONFINITE in b.binding.buffers:
        arrays[NONFINITE] = np.zeros((2, 1), np.float32)  # all values are finite
    made = b.run(arrays, {"B": 2, "S": rows}, schedule)
    tolerance = 2e-3 if seen["q"].dtype == np.float16 else 1.5e-2
    np.testing.assert_allclose(made.astype(np.float64), wanted(seen, False, **attrs), rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_the_protocol_is_proved(name: str) -> None:
    assert verify_kernel(kernel(name)) == []


FAULTS: list[tuple[str, str, Callable[[Any], bool], Callable[[Any], Any], str]] = [
    (
        "causal",
        "scores read too early",
        first(statement_ir.Wait, model="wgmma_group", pending=1),
        lambda s: None,
        "no Wait for tS",
    ),
    (
        "causal",
        "the accumulator scaled under its product",
        first(statement_ir.Wait, token=(statement_ir.Token("tMMA", var("k") - 1),)),
        lambda s: None,
        "scales an accumulator, or replaces weights",
    ),
    (
        "causal",
        "weights of the block before",
        first(statement_ir.Rescale, block=var("k")),
        lambda s: None,
        "weights of another block",
    ),
    (
        "causal",
        "keys freed under their product",
        first(statement_ir.Wait, model="wgmma_group", pending=1),
        lambda s: msgspec.structs.replace(s, pending=2),
        "leave the MMA of tS[k] under way",
    ),
    (
        "causal",
        "rows never freed",
        first(statement_ir.MBarrierArrive, mbarrier="empty_Q"),
        lambda s: None,
        "arrive in each phase",
    ),
    (
        "causal",
        "rows filled again too early",
        first(statement_ir.Wait, mbarrier="empty_Q"),
        lambda s: None,
        "is refilled by producer before its TokFree",
    ),
    (
        "causal",
        "values not awaited",
        first(statement_ir.Wait, mbarrier="full_B"),
        lambda s: None,
        "precedes a Wait",
    ),
    (
        "causal, in turns, mixed",
        "a warpgroup does not wait for its turn in a block",
        first(statement_ir.Wait, mbarrier="go", block=var("k")),
        lambda s: None,
        "may arrive at go while the phase before is under way",
    ),
    (
        "causal, in turns, mixed",
        "the first waits for the last",
        first(statement_ir.Wait, mbarrier="go"),
        lambda s: msgspec.structs.replace(s, phase=0),
        "already seen",
    ),
]


@pytest.mark.parametrize(("name", "fault", "where", "change", "words"), FAULTS, ids=[f[1] for f in FAULTS])
def test_a_planted_fault_is_named(
    name: str, fault: str, where: Callable[[Any], bool], change: Callable[[Any], Any], words: str
) -> None:
    assert_named(kernel(name), where, change, words)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"consumers": 4}, "one to three warpgroups"),
    ({"tile": (192, 64, 32)}, "192 rows by 2 consumers"),
    ({"in_turns": True, **ONE}, "nobody to take turns with"),
    ({"section": -1}, "section -1 is outside 0..1024"),
    ({"section": 1 << 20}, "section 1048576 is outside"),
    ({"keys": 40}, "40 keys: no multiple of 16"),
    ({"keys": 256, "stages": 4}, "B per CTA"),
    ({"keys": 256}, "registers per consumer thread > setmaxnreg 240"),
    ({"split": 2, "section": 2}, "parts of the keys are not mixed"),
    ({"split": 33}, "split 33 is outside 1..32"),
    ({"registers": (40, 240)}, "> 64512 that 384 threads start with"),
    ({"registers": (24, 232), "split": 2}, "32 registers per producer thread > setmaxnreg 24"),
    ({"registers": (40, 112), "keys": 64}, "128 registers per consumer thread > setmaxnreg 112"),
]


@pytest.mark.parametrize(("fields", "words"), REFUSED, ids=[w for _, w in REFUSED])
def test_a_plan_that_cannot_be_is_refused_with_numbers(fields: dict[str, Any], words: str) -> None:
    region = region_of(CASES["causal"][0])
    with pytest.raises(TatamiError, match=words):
        lower_pair(region, Guarded(BY8, plan_for(region, **fields)), SM90)


def test_sizes_that_tma_does_not_take_get_the_other_body_and_the_reason() -> None:
    plan = prepare(attention(64, 20, causal=True), target="sm90").stages["plan"].main.regions[0]
    assert isinstance(plan.choices[0].plan, Sm80Pair)
    assert any(r.plan == "sm90_pair" and "whole 16 bytes" in r.why for r in plan.rejected), plan.rejected


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize(
    ("width", "keys", "fields"),
    [(64, 128, THREE), (96, 128, {}), (128, 128, {}), (192, 112, {}), (256, 80, {})],
    ids=lambda x: str(x),
)
def test_its_machine_code_at_every_depth(width: int, keys: int, fields: dict[str, Any], tmp_path: Path) -> None:
    """Two products twice, in the loop and around it; one wait each; copies by TMA; nothing spills."""
    region = region_of(attention(width, width, causal=True))
    plan = plan_for(region, (width, width), keys, in_turns=True, section=4, **fields)
    some_keys = Condition(var("T"), low=1)
    kernel, binding = last_kernel(region, Guarded((*BY8, some_keys), plan), SM90)
    kernel = msgspec.structs.replace(kernel, face=KernelFace("k0", (), len(binding.sizes), ""))
    unit = print_unit(kernel, SM90)
    cubin = compiled(unit, headers((kernel,)))
    assert cubin.warnings == () and cubin.spill_bytes == 0
    ops = sass(cubin, tmp_path)
    assert ops["HGMMA"] == 2 * (width // 16 + keys // 16) and ops["UTMALDG"] >= 3
    assert ops["USETMAXREG"] == 2 and ops["STL"] == ops["LDL"] == ops["HMMA"] == ops["LDGSTS"] == 0
    assert ops["MUFU"] >= 2 * keys // 2, "an exponential a score"


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
def test_a_mask_leaves_the_planner_fewer_keys_of_which_none_spills() -> None:
    """A mask read at each place takes registers: a block has 128 keys, where it has 176 without a mask."""
    g = tt.Graph("masked")
    q, k, v = (g.input(n, ("B", 2, "S", 128), tt.fp16) for n in "qkv")
    g.output("y", q.attention(k, v, g.input("m", ("B", 1, "S", "S"), tt.fp16).expand(("B", 2, "S", "S"))))
    region = region_of(g)
    plans = [p for p, _ in pair_plans(region, SM90, {}) if isinstance(p, Sm90Pair)]
    assert max(p.tile[2] for p in plans if p.consumers == 2) == 128
    fields: dict[str, Any] = {"width": (128, 128), "keys": 176}
    with pytest.raises(TatamiError, match="280 registers per consumer thread > setmaxnreg 240"):
        lower_pair(region, Guarded(BY8, plan_for(region, **fields)), SM90)
    kernel, binding = last_kernel(region, Guarded(BY8, next(p for p in plans if p.tile[2] == 128)), SM90)
    kernel = msgspec.structs.replace(kernel, face=KernelFace("k0", (), len(binding.sizes), ""))
    assert compiled(print_unit(kernel, SM90), headers((kernel,))).spill_bytes == 0


# -- keys shared out -------------------------------------------------------------------------------


def few_rows(rows: int, keys: int, heads: int = 2, **attrs: Any) -> tt.Graph:
    g = tt.Graph("decode")
    q = g.input("q", (1, heads, rows, 64), tt.fp16)
    k, v = (g.input(n, (1, 1, keys, 64), tt.fp16) for n in "kv")
    if attrs:
        g.output("y", q.attention(k, v, **attrs).cast(tt.fp32) * 2.0)
        return g
    k, v = (x.expand((1, heads, keys, 64)) for x in (k, v))
    scores = (q @ k.permute((0, 1, 3, 2))).cast(tt.fp32) * 0.125
    g.output("y", (scores.softmax(axis=3).cast(tt.fp16) @ v).cast(tt.fp32) * 2.0)
    g.output("l", scores.logsumexp(axis=3, keepdims=True))
    return g


@pytest.mark.parametrize(
    ("isa", "rows", "keys", "attrs"),
    [("sm80", 1, 70, {}), ("sm90", 1, 70, {}), ("sm90", 70, 200, {"causal": True, "window": 50})],
    ids=["sm80", "sm90", "sm90 window"],
)
def test_parts_of_the_keys_are_joined(isa: str, rows: int, keys: int, attrs: dict[str, Any]) -> None:
    """Four parts, of which one has no key, or none that a row sees; the log of the sum of exp(score) too."""
    graph = few_rows(rows, keys, **attrs)
    compilation = prepare(graph, target=f"emulated-{isa}")
    (region,) = (x for x in compilation.stages["region"].main.body if isinstance(x, Region))
    v = pair_view(region)
    assert isinstance(v, PairView), v
    plan: Sm80Pair | Sm90Pair = Sm80Pair(v.first, v.second, (64, 64, 32), 64, 16, 2, (v.rows, v.keys), split=4)
    if isa == "sm90":
        plan = plan_for(region, split=4, **ONE)
    plans = {plan_key(region, compilation.target): plan}
    f = tt.compile(graph, target=compilation.target, decisions=Decisions(plans=plans))
    rng = np.random.default_rng(keys)
    shapes = {"q": (1, 2, rows, 64), "k": (1, 1, keys, 64), "v": (1, 1, keys, 64)}
    x = {n: (rng.standard_normal(shape) / 2).astype(np.float16) for n, shape in shapes.items()}
    made = f(**x)
    np.testing.assert_allclose(made["y"], 2 * wanted(x, False, **attrs), rtol=0, atol=4e-3)
    if "l" in made:
        sums = np.log(np.exp(scores_of(x, False)).sum(-1, keepdims=True))
        np.testing.assert_allclose(made["l"], sums, rtol=0, atol=4e-3)


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
def test_as_many_parts_as_there_can_be_are_joined_without_spills() -> None:
    """A thread joins four results at a time if there are more than 16 parts."""
    region = region_of(CASES["causal"][0])
    *_, (join, binding) = lower_pair(region, Guarded(BY8, plan_for(region, split=MAX_SPLIT, registers=(40, 232))), SM90)
    join = msgspec.structs.replace(join, face=KernelFace("k0", (), len(binding.sizes), ""))
    assert compiled(print_unit(join, SM90), headers((join,))).spill_bytes == 0


def test_one_query_and_long_keys_are_shared_out_by_the_planner() -> None:
    graph = few_rows(1, 65536, heads=8)
    for target in ("a100", "h100"):
        plan = prepare(graph, target=target).stages["plan"].main.regions[0].choices[0].plan
        assert isinstance(plan, Sm80Pair | Sm90Pair) and plan.split > 1, plan
