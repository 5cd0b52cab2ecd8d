"""Fields of a decided GPU plan that say what the kernel does are obeyed or refused, each by its name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.api import build, prepare
from tatami.core.diagnostic import TatamiError
from tatami.core.target import PRESETS
from tatami.decisions import Decisions
from tatami.plan.gpu.stream import stream_plan
from tatami.plan.ir import GpuStream, GpuSync, Sm80Mma, Sm80Pair, Sm90Mma, Sm90Pair
from tatami.plan.key import plan_key
from tatami.stages import show
from tests.plan.test_plans_are_obeyed import CASES, Case, whole

NUMPY = {tt.fp32: np.float32, tt.fp16: np.float16}
ROWS = 1e-3
"""Largest difference of an fp16 result near 1 from float64."""


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """An edit of a document: `path` leads through keys and positions."""

    def edit(document: dict[str, Any]) -> None:
        *most, last = (int(p) if p.isdigit() else p for p in path.split("/"))
        at: Any = document
        for step in most:
            at = at[step]
        if value is None:
            del at[last]
        else:
            at[last] = value

    return edit


EDITS: list[tuple[str, Any, str]] = [
    ("bind/m.o", None, "bind leaves out m.o"),
    ("bind", {}, "bind leaves out m.o, n.o"),
    ("bind", {"m.o": "warp.y", "n.o": "block.x"}, "bind puts m.o on 'warp.y'; it lies on block.x or block.y or block.z"),
    (
        "bind",
        {"m.o": "block.y", "n.o": "block.x", "m.i.o": "warp.x", "n.i.o": "warp.y"},
        "bind puts m.i.o on 'warp.x'; it lies on warp.y",
    ),
    (
        "bind",
        {"m.o": "block.y", "n.o": "block.x", "m.i": "lane"},
        "bind names 'm.i'; it places the sides of the product, m.o, n.o, b, b.o, m.i.o, n.i.o",
    ),
    ("cache", [], "cache leaves out A"),
    ("cache/0/at", "m.i", "cache copies x0 at 'm.i'"),
    ("cache/0/pingpong", False, "cache keeps one buffer of x0"),
    ("vectorize/axis", "m.i.i", "vectorize.axis 'm.i.i': neighbours are copied and stored along n.i.i"),
    ("k_steps", 1, "k_steps 1"),
    ("epilogue", [], "epilogue names nothing"),
    ("epilogue", ["add", "relu", "relu"], "in that order"),
    ("epilogue", ["bias", "add", "relu"], "in that order"),
    ("epilogue/2", None, "in that order"),
    ("epilogue", ["relu", "add"], "in that order"),
    ("local_edges/0/from", "other", "local_edges other -> "),
    ("local_edges/0/to", "other", " -> other: edges lead from "),
    ("algo_choice", {"matmul": "banana"}, "algo_choice.matmul 'banana': implicit_gemm, direct are implemented"),
    ("algo_choice/conv", "direct", "algo_choice names 'conv'; the key for this Region is matmul"),
    ("algo_choice", {"conv": "implicit_gemm"}, "algo_choice names 'conv'; the key for this Region is matmul"),
    (
        "cache",
        [{"tensor": "A", "at": "k.i"}, {"tensor": "B", "at": "k.i"}, {"tensor": "B", "at": "k.i"}],
        "cache names 'B' 2 times",
    ),
    ("predicate_tail", ["m", "n", "k", "n.i.i"], "predicate_tail names n 2 times"),
    ("predicate_tail", ["m.banana", "n", "k"], "predicate_tail names 'm.banana': parts of an axis are .o and .i"),
    (
        "bind",
        {"m.o": "block.y", "n.o": "block.x", "b": "block.z", "b.o": "block.z"},
        "bind names b and b.o, which are one axis",
    ),
    ("async/enabled", False, "nothing reads the field `$.async.enabled`"),
    ("cache/0/tier", 1, "nothing reads the field `$.cache[0].tier`"),
    ("layout_hints/A_swizzle", "banana", "layout_hints.A_swizzle 'banana': it is true or false"),
    ("stages", -1, "stages -1 is not a number of slots"),
]


STREAM_K = {"stream_k": {"rows": 1, "units": 5}, "swap_ab": False, "persistent": True, "split_k": 1}
"""Fields of a plan that cuts the last tiles of a product along k."""


@pytest.mark.parametrize("name", ["sm80 product", "sm90 product"])
def test_a_field_that_says_what_the_kernel_does_not_is_refused(name: str) -> None:
    target, kind, make = CASES[name]
    case = Case(target, kind, make())
    for path, value, words in EDITS:
        document = whole(case.plan)
        change(path, value)(document)
        with pytest.raises(TatamiError) as error:
            prepare(make(), target=target, decisions={"plans": {case.key: document}}).stages["gpu"]
        said = str(error.value)
        assert words in said or words.replace("x0", case.region.inputs[0].name) in said, (path, said)


@pytest.mark.parametrize(("name", "parts"), [("sm80 product", {"split_k": 2}), ("sm90 product", STREAM_K)])
def test_words_of_a_product_in_parts_are_those_of_its_region(name: str, parts: dict[str, Any]) -> None:
    """The epilogue runs in the kernel that sums the parts, and is named all the same."""
    target, kind, make = CASES[name]
    case = Case(target, kind, make())
    plan = whole(case.plan) | parts
    for words in (["other"], ["relu", "add"], [*plan["epilogue"], plan["epilogue"][-1]]):
        with pytest.raises(TatamiError, match=r"epilogue names 'other'|in that order"):
            prepare(make(), target=target, decisions={"plans": {case.key: plan | {"epilogue": words}}}, check=False).stages[
                "gpu"
            ]


def test_places_that_persistent_blocks_do_not_have_are_refused() -> None:
    """Blocks that take tiles in turn lie along x; `bind` says in which direction they count rows of tiles, for order `row`."""
    target, kind, make = CASES["sm90 product"]
    case = Case(target, kind, make())
    plan = {**whole(case.plan), "persistent": True, "async": {"prefetch_depth": case.plan.stages, "epilogue_overlap": True}}

    def text(order: str, m: str, n: str) -> str:
        document = plan | {"tile_order": order, "bind": {"m.o": f"block.{m}", "n.o": f"block.{n}"}}
        return show("cu", prepare(make(), target=target, decisions={"plans": {case.key: document}}).stages["cu"])

    assert text("row", "y", "x") != text("row", "x", "y")
    for order, m, n in (("grouped", "x", "y"), ("row", "z", "x"), ("hilbert", "y", "z")):
        with pytest.raises(TatamiError, match=f"persistent blocks take tiles in tile_order {order}; leave m.o on block.y"):
            text(order, m, n)


@pytest.mark.parametrize("name", ["sm80 product", "sm90 product", "sm80 pair", "sm90 pair", "sync"])
def test_stages_auto_is_a_number_that_fits(name: str) -> None:
    target, kind, make = CASES[name]
    case = Case(target, kind, make())
    document = {**whole(case.plan), "stages": "auto"}
    stages = prepare(make(), target=target, decisions={"plans": {case.key: document}}).stages
    taken = stages["plan"].main.regions[0].choices[0]
    assert isinstance(taken.plan, Sm80Mma | Sm90Mma | Sm80Pair | Sm90Pair | GpuSync) and 1 <= taken.plan.stages <= 8
    assert taken.estimate["total"] > 0
    assert taken.plan.stages == stages["gpu"].main.kernels[-1].stages


@pytest.mark.parametrize("name", ["sm80 product", "sync", "streaming", "rows by columns"])
def test_a_decided_plan_has_an_estimate(name: str) -> None:
    target, kind, make = CASES[name]
    case = Case(target, kind, make())
    free = prepare(make(), target=target, check=False).stages["plan"].main.regions[0]
    fixed = prepare(make(), target=target, check=False, decisions={"plans": {case.key: whole(case.plan)}}).stages["plan"]
    assert fixed.main.regions[0].choices[-1].estimate == free.choices[-1].estimate != {}


def test_a_product_decided_as_a_stream_has_an_estimate() -> None:
    """The terms of its own template, which are not those of the plan that the compiler would take."""
    target, _, make = CASES["sm80 product"]
    region = prepare(make(), target=target).stages["region"].main.body[0]
    plan = stream_plan(region, prepare(make(), target=target).target, {})
    decisions = Decisions(plans={plan_key(region, PRESETS["sm80"]): plan})
    taken = prepare(make(), target=target, decisions=decisions).stages["plan"].main.regions[0].choices[-1]
    assert isinstance(taken.plan, GpuStream) and 0 < taken.estimate["memory_occ"] <= 1
    assert taken.estimate["total"] == max(taken.estimate["compute"], taken.estimate["memory"]) + taken.estimate["launch"]


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_the_synchronous_template_has_the_stages_of_its_plan(stages: int) -> None:
    """A ring with a slot per stage, filled `stages` - 2 blocks ahead; one barrier per block from two on."""
    from tests.emulated.kernels import Built
    from tests.gpu.gemm_examples import gemm, sync

    plan = msgspec.structs.replace(sync((32, 32, 8), (8, 8)), stages=stages)
    region = gemm(37, 41, 43, dtype=tt.fp32, out=tt.fp32)
    built = Built(region, plan, "sm80", ())
    rng = np.random.default_rng(0)
    arrays = {p.name: rng.standard_normal([d.as_int() or 0 for d in p.memref.shape]).astype(np.float32) for p in region.inputs}
    got = built.run(arrays, {})
    a, b, bias = (arrays[n].astype(np.float64) for n in ("A", "B", "bias"))
    assert np.abs(got - np.maximum(a @ b + bias, 0)).max() < 1e-4
    assert (built.kernel.stages, [r.slots for r in built.kernel.smem]) == (stages, [stages, stages])


def test_a_plan_without_asynchronous_copies_keeps_its_stages() -> None:
    target, kind, make = CASES["sm80 product"]
    case = Case(target, kind, make())
    document = whole(case.plan)
    document |= synchronous(document) | {"stages": 2}
    kernel = prepare(make(), target=target, decisions={"plans": {case.key: document}}).stages["gpu"].main.kernels[0]
    assert (kernel.template, kernel.stages, kernel.tile) == ("sync", 2, case.plan.tile)
    large = document | {"stages": 8, "tile": [128, 128, 128], "warp_tile": "16x128", "k_steps": 8}
    with pytest.raises(TatamiError, match="shared memory"):
        prepare(make(), target=target, decisions={"plans": {case.key: large}}).stages["gpu"]
    for field, value, why in WITHOUT_EFFECT:
        with pytest.raises(TatamiError, match=why):
            prepare(make(), target=target, decisions={"plans": {case.key: document | {field: value}}}).stages["plan"]


def synchronous(document: dict[str, Any]) -> dict[str, Any]:
    """The fields of a plan whose kernel copies without asynchrony, as that kernel is."""
    rows, columns, _ = document["tile"]
    return {
        "async": {"enable": False},
        "warp_tile": f"{rows // 8}x{columns}",
        "inst_shape": "fma",
        "k_steps": max(1, document["tile"][2] // 16),
        "vectorize": {"axis": "n.i.i", "width": 1},
        "layout_hints": {"A_swizzle": False, "B_swizzle": False, "C_stride": "row"},
        "tile_order": "row",
    }


WITHOUT_EFFECT = [
    ("warp_tile", "32x32", "warp_tile 32x32: a warp of 16x16 threads computes"),
    ("inst_shape", "m16n8k16", "inst_shape m16n8k16: its instruction is fma"),
    ("vectorize", {"axis": "n.i.i", "width": 8}, "vectorize.width 8: it copies and stores single elements"),
    ("layout_hints", {"A_swizzle": True, "B_swizzle": False, "C_stride": "row"}, "layout_hints.A_swizzle true"),
    ("async", {"enable": False, "prefetch_depth": 3}, "prefetch_depth 3: nothing is copied ahead"),
    ("async", {"enable": False, "epilogue_overlap": True}, "nothing is copied ahead"),
    ("tile_order", "grouped", "tile_order grouped: its tiles lie in rows"),
]
"""Fields of a plan without asynchronous copies that its kernel would not obey."""


def two_passes(target: str, m: int, n: int, d: int, causal: bool, dtype: Any) -> tuple[Any, float]:
    """The compilation of attention by `streaming_softmax_2pass`, and its distance from float64."""
    g = tt.Graph("attention")
    q, k, v = g.input("q", (1, 2, m, d), dtype), g.input("k", (1, 2, n, d), dtype), g.input("v", (1, 2, n, d), dtype)
    g.output("y", q.attention(k, v, causal=causal))
    (free,) = prepare(g, target=target).stages["plan"].main.regions
    assert free.choices[0].plan.algo_choice == {"attention": "one_pass"}
    asked = [
        {"conditions": [], "plan": {**whole(c.plan), "algo_choice": {"attention": "streaming_softmax_2pass"}}}
        for c in free.choices
    ]
    compilation = prepare(g, target=target, decisions={"plans": {free.key: asked}})
    rng = np.random.default_rng(0)
    x = {p: rng.standard_normal((1, 2, s, d)).astype(NUMPY[dtype]) for p, s in (("q", m), ("k", n), ("v", n))}
    got = np.asarray(build(compilation, 1)(x)["y"], np.float64)
    q64, k64, v64 = (x[p].astype(np.float64) for p in "qkv")
    scores = np.einsum("bhmd,bhnd->bhmn", q64, k64) / np.sqrt(d)
    scores = np.where(np.tril(np.ones((m, n), bool)), scores, -np.inf) if causal else scores
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights / weights.sum(-1, keepdims=True) @ v64
    return compilation, float(np.abs(got - want).max())


@pytest.mark.parametrize(
    ("target", "shape", "causal", "dtype"),
    [
        ("emulated-sm80", (33, 33, 16), True, tt.fp32),
        ("emulated-sm80", (33, 40, 16), False, tt.fp16),
        ("emulated-sm90", (128, 128, 64), True, tt.fp16),
        ("emulated-sm90", (70, 96, 64), False, tt.fp16),
    ],
)
def test_attention_in_two_passes_stores_values_per_row_only(
    target: str, shape: tuple[int, int, int], causal: bool, dtype: Any
) -> None:
    compilation, distance = two_passes(target, *shape, causal, dtype)
    assert distance < ROWS
    (plan,) = {type(c.plan) for c in compilation.stages["plan"].main.regions[0].choices[:1]}
    assert plan is (Sm90Pair if target == "emulated-sm90" else Sm80Pair)
    arena = re.findall(r"arena +r0\.(\S+) +u8\[(\d+)\]", show("execution", compilation.stages["execution"]))
    assert {int(size) for name, size in arena if name[0] == "n" and name[1] != "o"} == {2 * shape[0] * 4}  # two heads, fp32
    assert all(int(size) < 2 * shape[0] * shape[1] * 2 for _, size in arena)


def test_two_passes_are_refused_where_rows_need_none() -> None:
    target, kind, make = CASES["sm80 pair"]
    case = Case(target, kind, make())
    document = {**whole(case.plan), "split": 2, "algo_choice": {"attention": "streaming_softmax_2pass"}}
    with pytest.raises(TatamiError, match="two passes over the keys with split 2"):
        prepare(make(), target=target, decisions={"plans": {case.key: document}}).stages["gpu"]
