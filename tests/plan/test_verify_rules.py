"""Each rule of the verifier of plans: a plan that breaks it has that one fault, and the chosen one has none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import tatami as tt
from tatami.core.target import PRESETS
from tatami.decisions import Decisions
from tatami.pipeline import compile_stages
from tatami.plan.choose import choose
from tatami.plan.cpu.split import split_parts
from tatami.plan.ir import (
    CpuContraction,
    CpuRows,
    CpuSplit,
    CpuTurn,
    CpuWindow,
    GpuStream,
    SchedulePlan,
)
from tatami.plan.verify_plan import verify_plan
from tatami.plan.views.form_passes import Wish
from tatami.plan.views.wished_plans import scalar_plan
from tatami.poly_core.analyse import analyse
from tatami.region.ir import Cast, Read, Region, RegionExpr, Yield
from tatami.region.verify import verify_region
from tatami.region.views.images.window import find_window
from tatami.region.walk import rewrite
from tests.loop.attention.test_streaming import graph as attention
from tests.loop.images.convolutions import convolution, graph
from tests.loop.images.test_planes import CASES as PLANES
from tests.loop.images.test_window import WINDOWS, C, depthwise
from tests.loop.images.test_window import graph as windows
from tests.region import examples as ex

replace = msgspec.structs.replace
AVX512, AVX2 = PRESETS["cpu:avx512"], PRESETS["cpu:avx2"]


def transpose(dtype: Any = tt.fp32) -> tt.Graph:
    g = tt.Graph("t")
    g.output("y", g.input("x", (100, 100), dtype).permute((1, 0)))
    return g


def product() -> tt.Graph:
    g = tt.Graph("product")
    y = g.input("x", (333, 1024), tt.fp32) @ g.input("w", (1024, 333), tt.fp32)
    g.output("y", (y + g.input("b", (333,), tt.fp32).expand((333, 333))).relu())
    return g


def narrow() -> tt.Graph:
    g = tt.Graph("narrow")
    g.output("y", g.input("x", (64, 256), tt.u8).cast(tt.i32) @ g.input("w", (256, 96), tt.i8).cast(tt.i32))
    return g


def mixed() -> tt.Graph:
    """A transpose and a row of another type."""
    g = tt.Graph("mixed")
    row = g.input("b", (100,), tt.fp64).cast(tt.fp32).expand((100, 100))
    g.output("y", row + g.input("x", (100, 100), tt.fp32).permute((1, 0)))
    return g


GRAPHS: dict[str, Any] = {
    "narrow": narrow,
    "mixed": mixed,
    "product": product,
    "winograd": lambda: graph(convolution(40, 24, padding=1), (1, 24, 14, 14)),
    "planes": lambda: graph(*PLANES["dilation"]),
    "a window of 5x5": lambda: graph(*PLANES["groups and a batch"]),
    "window": lambda: windows(WINDOWS["depthwise 3x3"], (1, C, 14, 14)),
    "streaming": lambda: attention(1, 64, 64),
    "turn": transpose,
}


def _planned(make: Any) -> tuple[Region, Any]:
    stages = compile_stages({"frontend": make().module()}, AVX512, Decisions(), lambda _, stage: stage())
    (region,), (plan,) = stages["region"].main.body, stages["plan"].main.regions
    return region, plan.choices[-1].plan


PLANNED = {name: _planned(make) for name, make in GRAPHS.items()}
"""The Region of each graph and the plan that is chosen for it."""


def planned(name: str) -> tuple[Region, Any]:
    return PLANNED[name]


def chosen_for(region: Region, target: Any = AVX512) -> Any:
    module = ex.program_of(region)
    return choose(module, analyse(module), target).main.regions[0].choices[-1].plan


def faults(plan: SchedulePlan, region: Region, target: Any = AVX512) -> list[str]:
    return [d.why for d in verify_plan(plan, region, target)]


@pytest.mark.parametrize("name", list(GRAPHS))
def test_a_chosen_plan_is_for_its_kind_of_target(name: str) -> None:
    region, plan = planned(name)
    assert faults(plan, region) == []
    assert faults(plan, region, PRESETS["sm80"]) == [f"a {plan.__struct_config__.tag} plan on target sm80"]


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("product", {"acc": "q"}, "'q' is not a contraction of the Region"),
    ("product", {"mr": 0}, "a tile of 0x"),
    ("product", {"nr": 0}, "a tile of "),
    ("product", {"width": 0}, "vectors of width 0"),
    ("product", {"kc": 0}, "blocks of 0, "),
    ("product", {"mc": 0}, "blocks of "),
    ("product", {"nc": 0}, "blocks of "),
    ("product", {"nr": 24, "nc": 24}, "a tile of "),
    ("product", {"width": 32}, "width 32; cpu:avx512 has 16 lanes"),
    ("product", {"mr": 40, "mc": 40}, "needs 83 vector registers"),
    ("product", {"mr": 1, "nc": 33}, "mc 48, nc 33 for a tile of 1x32"),
    ("product", {"nc": 64}, "nc 64 bounds nothing where columns are neither copied nor read together"),
    ("product", {"split": "n"}, "mc 48 bounds nothing where threads divide columns"),
    ("product", {"parts": 2}, "parts 2"),
    ("product", {"parts": 0}, "parts 0"),
    ("product", {"split": "k"}, "split k, parts 1"),
    ("product", {"epilogue": ()}, "epilogue []"),
    ("product", {"packed": ("q",)}, "q is not an operand of the contraction"),
    ("product", {"dot": "pairs"}, "pairs of k; the operands of "),
    ("product", {"images": ("q",), "split": "n"}, "images q, split n"),
    ("winograd", {"acc": "q"}, "'q' is not the convolution"),
    ("winograd", {"packed": ()}, "packed none; the weights are n1"),
    ("winograd", {"packed": ("q",)}, "packed q; the weights are n1"),
    ("winograd", {"rows": 0}, "blocks of 0, 7, 384"),
    ("winograd", {"columns": 0}, "blocks of 7, 0, 384"),
    ("winograd", {"kc": 0}, "blocks of 7, 7, 0"),
    ("winograd", {"width": 2}, "vectors of 2 elements of fp32"),
    ("winograd", {"mr": 40}, "needs 42 vector registers"),
    ("planes", {"acc": "q"}, "'q' is not the convolution"),
    ("planes", {"packed": ()}, "packed none"),
    ("planes", {"rows": 0}, "blocks of 0, 40, 192"),
    ("planes", {"mr": 40}, "needs 83 vector registers"),
    ("streaming", {"first": "q"}, "the pair q, "),
    ("streaming", {"second": "q"}, "q; the Region has "),
    ("streaming", {"keys": 0}, "blocks of 0"),
    ("streaming", {"nr": 40}, "a tile of 12x40"),
    ("streaming", {"mr": 30}, "needs 63 vector registers"),
    ("streaming", {"width": 2}, "vectors of 2 elements of fp32"),
    ("turn", {"across": "i1"}, "it turns i1 to i1"),
    ("turn", {"along": "i0"}, "it turns i0 to i0"),
    ("turn", {"tile": 0}, "tiles of 0, vectors of 16 elements"),
    ("turn", {"tile": 1025}, "tiles of 1025"),
    ("turn", {"width": 12}, "vectors of 12 elements"),
    ("turn", {"width": 32}, "vectors of 32 elements"),
    ("mixed", {"width": 32}, "vectors of 32 elements"),
    ("narrow", {"packed": ("q",)}, "q is not an operand of the contraction"),
    ("window", {"let": "q"}, "'q' is not the window"),
    ("window", {"rows": 0}, "blocks of 0 rows"),
    ("window", {"ahead": 0}, "0 ahead"),
    ("window", {"width": 0}, "width 0"),
    ("window", {"width": 12}, "width 12"),
    ("window", {"width": 32, "whole": False}, "width 32; cpu:avx512 has 16 lanes"),
    ("window", {"joined": True}, "planes that are copied whole"),
    ("window", {"lying": True}, "planes that are copied whole"),
    ("window", {"rows": 4}, "planes are not copied whole: blocks of 4 rows of 14"),
    ("window", {"whole": False, "lying": True, "ahead": 2}, "rows read where they lie, 2 blocks ahead"),
]


@pytest.mark.parametrize(("name", "fields", "why"), WRONG, ids=[f"{n} {f}" for n, f, _ in WRONG])
def test_a_broken_rule_is_the_one_fault(name: str, fields: dict[str, Any], why: str) -> None:
    region, plan = planned(name)
    found = faults(replace(plan, **fields), region)
    assert len(found) == 1 and why in found[0], found


EDGE: list[tuple[str, dict[str, Any]]] = [
    ("product", {"mr": 1, "mc": 1}),
    ("product", {"mr": 14, "nr": 32, "mc": 14, "nc": 32}),
    ("product", {"mr": 30, "nr": 16, "mc": 30, "nc": 16}),
    ("product", {"in_place": ("m", "n")}),
    ("product", {"parts": 2, "split": "k"}),
    ("product", {"split": "batch"}),
    ("narrow", {"dot": "pairs"}),
    ("narrow", {"packed": ("n0",)}),
    ("narrow", {"packed": ("n1",), "dot": ""}),
    ("product", {"in_place": ()}),
    ("winograd", {"width": 4, "nr": 4}),
    ("winograd", {"rows": 1, "columns": 1, "kc": 1}),
    ("planes", {"mr": 14, "rows": 1}),
    ("streaming", {"keys": 1, "mr": 1}),
    ("turn", {"tile": 1024}),
    ("turn", {"tile": 1, "width": 4}),
    ("window", {"whole": False, "rows": 1, "ahead": 1, "width": 2}),
]


@pytest.mark.parametrize(("name", "fields"), EDGE, ids=[f"{n} {f}" for n, f in EDGE])
def test_a_plan_at_the_edge_of_a_rule_is_accepted(name: str, fields: dict[str, Any]) -> None:
    region, plan = planned(name)
    assert faults(replace(plan, **fields), region) == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("winograd", "no 3x3 convolution to transform: "),
        ("planes", "no convolution to copy to planes: "),
        ("streaming", "no pair to stream: "),
        ("turn", "nothing to turn: "),
        ("window", "no window to slide: "),
        ("product", "is not a contraction of the Region"),
    ],
)
def test_a_plan_of_another_kind_of_region_is_refused(name: str, why: str) -> None:
    _, plan = planned(name)
    found = faults(plan, ex.running_sum())
    assert len(found) == 1 and why in found[0], found


def test_a_plan_of_tiles_of_2x2_is_for_windows_of_3x3() -> None:
    (found,) = faults(planned("winograd")[1], planned("a window of 5x5")[0])
    assert found.startswith("no 3x3 convolution to transform: ")


def test_blocks_of_a_product_are_whole_tiles() -> None:
    region, plan = planned("product")
    for field, size in (("mc", plan.mr), ("nc", plan.nr)):
        (found,) = faults(replace(plan, **{field: size + 1}), region)
        assert f"for a tile of {plan.mr}x{plan.nr}" in found


@pytest.mark.parametrize("swap", [False, True])
def test_a_packed_operand_is_not_used_in_place(swap: bool) -> None:
    region, plan = planned("product")
    operands = [p.name for p in region.inputs][:2]
    packed = replace(plan, swap=swap, packed=(operands[0 if swap else 1],))
    assert not any("packed: it lies" in f for f in faults(replace(packed, in_place=("m",)), region))
    assert any("side n" in f and "packed: it lies" in f for f in faults(replace(packed, in_place=("m", "n")), region))


def test_names_of_a_product_stand_once_and_are_sides() -> None:
    region, plan = planned("product")
    tensor = region.inputs[0].name
    assert faults(replace(plan, packed=(tensor,)), region) == []
    assert faults(replace(plan, packed=(tensor, tensor)), region) == [f"{tensor}, {tensor}: one stands twice"]
    assert "m, m: one stands twice" in faults(replace(plan, in_place=("m", "m")), region)
    (found,) = faults(replace(plan, in_place=("n",), swap=not plan.swap), region)
    assert found.startswith("the operand of side n is not a matrix")


def test_instructions_of_narrow_integers_are_the_target_s() -> None:
    region, plan = planned("product")
    for dot in ("pairs_vnni", "quads_vnni", "quads_amx"):
        found = faults(replace(plan, dot=dot, parts=1), region, replace(AVX512, features=()))
        assert any(f"dot {dot}; cpu:avx512 has no features" in f for f in found)
        with_both = replace(AVX512, features=("vnni", "amx_int8"))
        assert not any("has no features" in f or f"dot {dot};" in f for f in faults(replace(plan, dot=dot), region, with_both))
    tiles = replace(plan, dot="quads_amx", mr=32, nr=32, mc=32, nc=32)
    there = replace(AVX512, features=("amx_int8",))
    assert [f.split(" ")[0] for f in faults(tiles, region, there)] == ["quads_amx"]
    assert any(f == "a tile of 16x32 by quads_amx" for f in faults(replace(tiles, mr=16), region, there))
    assert any("split k, parts 2, by tiles" in f for f in faults(replace(tiles, split="k", parts=2), region, there))


def test_signs_of_narrow_integers_are_the_instruction_s() -> None:
    def signed() -> tt.Graph:
        g = tt.Graph("signed")
        g.output("y", g.input("x", (64, 256), tt.i8).cast(tt.i32) @ g.input("w", (256, 96), tt.i8).cast(tt.i32))
        return g

    region, plan = _planned(signed)
    assert faults(replace(plan, dot="quads"), region) == []
    assert faults(replace(plan, dot="quads_vnni"), region, replace(AVX512, features=("vnni",)))[0].startswith(
        "quads_vnni of k; "
    )


def test_images_are_axes_of_one_side() -> None:
    region, plan = planned("product")
    (m,), (n,) = ([i.name] for i in region.iters)
    sides = replace(plan, split="n", in_place=(), packed=())
    assert [f.split(",")[0] for f in faults(replace(sides, images=(m, n)), region)] == [f"images {m}"]
    assert faults(replace(sides, images=(m,), split="m"), region) == [f"images {m}, split m"]
    assert faults(replace(sides, images=(m, "k")), region) == [f"images {m}, k, split n"]
    assert faults(replace(sides, images=(m,), split="batch"), region) == []
    assert faults(replace(sides, images=(m,), mc=sides.mr), region) == []
    assert faults(replace(sides, images=(m,)), region) == [f"mc {sides.mc} bounds nothing where threads divide columns"]


def test_parts_of_a_split_are_all_lets_in_order_of_use() -> None:
    region = ex.softmax()
    lets = [l.name for l in region.lets]
    good = CpuSplit((tuple(lets[:1]), tuple(lets[1:])))
    assert faults(good, region) == []
    assert faults(CpuSplit((tuple(lets[1:]),)), region) == [f"the parts have {len(lets) - 1} lets, the Region {len(lets)}"]
    assert faults(CpuSplit((tuple(lets), (lets[0],))), region) == [
        f"the parts have {len(lets) + 1} lets, the Region {len(lets)}"
    ]
    assert any(
        f"{lets[1]} stands before {lets[0]}, which it uses" == f for f in faults(CpuSplit(((*lets[1:], lets[0]),)), region)
    )
    joined = (lets[0], *reversed(lets[1:]))
    assert len(lets) > 2 and len(faults(CpuSplit((joined,)), region)) == 1
    where = "the Region writes at computed positions or in place"
    first = region.yields[0]
    for yields in ((replace(first, combine="add"),), (replace(first, indices=("q",)),), (first, replace(first, combine="max"))):
        assert faults(good, replace(region, yields=yields)) == [where]
    updates = (replace(region.outputs[0], updates=region.inputs[0].name),)
    assert faults(good, replace(region, outputs=updates)) == [where]


def test_vectors_of_another_type_are_counted_in_their_elements() -> None:
    module = transpose(tt.fp64).module()
    stages = compile_stages({"frontend": module}, AVX512, Decisions(), lambda _, make: make())
    (region,), (chosen,) = stages["region"].main.body, stages["plan"].main.regions
    assert isinstance(chosen.choices[-1].plan, CpuTurn)
    assert faults(CpuTurn("i1", "i0", 64, 16), region) == []
    assert faults(CpuTurn("i1", "i0", 64, 4), region) == ["tiles of 64, vectors of 2 elements"]


def test_schedules_are_checked_by_their_rules() -> None:
    region = ex.softmax()
    rows, stream = chosen_for(region), chosen_for(region, PRESETS["sm80"])
    scalar = scalar_plan(region, Wish())
    assert isinstance(rows, CpuRows) and isinstance(stream, GpuStream)
    assert faults(rows, region) == [] == faults(stream, region, PRESETS["sm80"])
    assert faults(rows, region, PRESETS["sm80"]) == ["a cpu_rows plan on target sm80"]
    assert faults(stream, region) == [f"a gpu_stream plan on target {AVX512.name}"]
    assert faults(replace(stream, passes=stream.passes[1:]), region, PRESETS["sm80"]) != []
    assert faults(scalar, region, PRESETS["sm80"]) == []
    for plan in (scalar, rows):
        assert faults(plan, region) == []
        (phase,) = plan.phases
        assert faults(replace(plan, phases=(replace(phase, passes=phase.passes[1:]),)), region) != []


def test_vectors_are_as_wide_as_the_target_s() -> None:
    region, plan = planned("turn")
    assert faults(plan, region, AVX2) == ["width 16; cpu:avx2 has 8 lanes"]


def region_of_window(name: str, height: int, width: int) -> Region:
    return _planned(lambda: windows(WINDOWS[name], (1, C, height, width)))[0]


def test_rows_of_a_window_are_read_where_they_lie() -> None:
    _, plan = planned("window")
    lying = replace(plan, rows=4, ahead=1, whole=False, lying=True)
    assert faults(lying, region_of_window("depthwise 3x3", 40, 64)) == []
    (found,) = faults(lying, region_of_window("depthwise stride 3, uneven borders", 40, 64))
    assert found.startswith("rows are not read where they lie: ") and "stride 3" in found


def window_of(make: Any, shape: tuple[Any, ...], dtype: Any = tt.fp32) -> tuple[Region, str]:
    """The Region of a window, and its let."""
    region = _planned(lambda: windows(make, shape, dtype))[0]
    found = find_window(region)
    assert not isinstance(found, str)
    return region, found.let


WHOLE: list[tuple[Any, tuple[Any, ...], str]] = [
    (depthwise(padding=1), (1, C, 40, 32), ""),
    (depthwise(padding=1), (1, C, 40, 33), "33 columns, vectors of 16; a whole plane has 2"),
    (depthwise(padding=1, stride=(3, 1)), (1, C, 40, 20), ""),
    (depthwise(padding=1, stride=2), (1, C, 40, 40), ""),
    (depthwise(padding=1, stride=(1, 3)), (1, C, 40, 40), "stride 3; vectors take every element or every second one"),
    (depthwise((9, 9), padding=4), (1, C, 40, 20), "a window of more than 64 places"),
    (depthwise(padding=1), ("B", C, "H", 20), "a plane of H x 20 of 20; the sizes have to be known"),
]


@pytest.mark.parametrize(("make", "shape", "why"), WHOLE, ids=[w for _, _, w in WHOLE])
def test_planes_that_are_copied_whole(make: Any, shape: tuple[Any, ...], why: str) -> None:
    region, let = window_of(make, shape)
    found = faults(CpuWindow(let, 40, 1, 16, whole=True), region)
    assert len(found) == bool(why) and all(f.startswith(f"planes are not copied whole: {why}") for f in found), found


LYING: list[tuple[Any, tuple[Any, ...], Any, str]] = [
    (depthwise(), (1, C, 40, 64), tt.fp32, ""),
    (depthwise(padding=1), (1, C, 40, 16), tt.fp32, ""),
    (depthwise(padding=1), (1, C, 40, 15), tt.fp32, "15 columns of 15, vectors of 16 by 1"),
    (depthwise(), (1, C, 40, 17), tt.fp32, "15 columns of 17, vectors of 16 by 1"),
    (depthwise(padding=1, stride=(3, 1)), (1, C, 40, 60), tt.fp32, ""),
    (depthwise(padding=1, stride=2), (1, C, 40, 32), tt.fp32, ""),
    (depthwise(padding=1, stride=2), (1, C, 40, 31), tt.fp32, "16 columns of 31, vectors of 16 by 2"),
    (depthwise(padding=1, stride=(1, 3)), (1, C, 40, 64), tt.fp32, "stride 3 along the columns"),
    (depthwise((9, 9), padding=4), (1, C, 40, 64), tt.fp32, "a window of more than 64 places"),
    (depthwise(padding=1), ("B", C, "H", 64), tt.fp32, "a plane of H x 64 of 64"),
    (depthwise(padding=((1, 1), (76, 1))), (1, C, 40, 64), tt.fp32, ""),
    (depthwise(padding=((1, 1), (84, 1))), (1, C, 40, 64), tt.fp32, "7 vectors of columns see the outside"),
    (lambda g, x: x.avg_pool(3, 1, 1), (1, C, 40, 64), tt.fp16, "the windows see a function of the image, which is fp16"),
    (lambda g, x: x.exp().max_pool(3, 1, 1), (1, C, 40, 64), tt.fp32, "the windows see a function of the image, which is fp32"),
]


@pytest.mark.parametrize(("make", "shape", "dtype", "why"), LYING, ids=[f"{d} {s[-1]} {w}" for _, s, d, w in LYING])
def test_rows_that_lie(make: Any, shape: tuple[Any, ...], dtype: Any, why: str) -> None:
    region, let = window_of(make, shape, dtype)
    found = faults(CpuWindow(let, 4, 1, 16, lying=True), region)
    assert len(found) == bool(why) and all(f.startswith(f"rows are not read where they lie: {why}") for f in found), found


def test_the_image_is_the_tensor_that_slides() -> None:
    region, let = window_of(depthwise(padding=1), (1, C, 40, 64))
    first = replace(region, inputs=(ex.param("first", 4, dtype=tt.fp64), *region.inputs))
    assert faults(CpuWindow(let, 4, 1, 16, lying=True), first) == []


def test_an_image_in_a_narrower_type_than_its_sums_is_copied() -> None:
    region, let = window_of(lambda g, x: x.avg_pool(3, 1, 0), (1, C, 40, 64), tt.fp16)

    def bare(e: RegionExpr) -> RegionExpr:
        return e.x if isinstance(e, Cast) and isinstance(e.x, Read) else e

    plain = replace(region, lets=tuple(replace(n, expr=rewrite(n.expr, bare)) if n.name == let else n for n in region.lets))
    assert verify_region(plain) == []
    (found,) = faults(CpuWindow(let, 4, 1, 16, lying=True), plain)
    assert found.endswith("the windows see a function of the image, which is fp16, their result fp32")


def test_operands_of_amx_tiles_lie_in_groups_of_k() -> None:
    region, plan = planned("narrow")
    there = replace(AVX512, features=("amx_int8",))
    tiles = replace(plan, dot="quads_amx", mr=32, nr=32, mc=32, nc=32, packed=(), swap=False)
    assert faults(replace(tiles, in_place=("m",)), region, there) == []
    for side, swap in (("m", True), ("n", False)):
        (found,) = faults(replace(tiles, in_place=(side,), swap=swap), region, there)
        assert found.startswith(f"the operand of side {side} is not a matrix")


def test_images_of_a_matrix_and_a_vector_are_its_rows() -> None:
    lets = (ex.let("acc", "m", ex.total("k", ex.mul(ex.read("A", "m", "k"), ex.read("B", "k")))),)
    inputs = (ex.param("A", "M", "K"), ex.param("B", "K"))
    region = Region("r", ex.iters(m="M"), ex.iters(k="K"), inputs, (ex.target("C", "M"),), lets, (Yield("acc", "C"),))
    plan = CpuContraction("acc", 12, 32, 384, 12, 32, 16, False, "n", (), ())
    assert faults(replace(plan, images=("m",)), region) == []
    assert faults(replace(plan, images=("m", "k")), region) == ["images m, k, split n"]


def test_windows_of_many_places_join_no_vectors() -> None:
    region, plan = _planned(lambda: windows(depthwise((9, 9), padding=4), (1, C, 40, 64)))
    assert isinstance(plan, CpuWindow)
    copied = replace(plan, whole=False, lying=False, joined=False)
    assert faults(copied, region) == []
    assert faults(replace(copied, joined=True), region) == ["loops over the places of a window join no vectors"]
    small, other = planned("window")
    assert faults(replace(other, rows=4, ahead=1, whole=False, joined=True), small) == []


def test_one_of_two_outputs_is_updated() -> None:
    region = ex.softmax()
    both = (region.outputs[0], replace(region.outputs[0], name="Z", updates=region.inputs[0].name))
    split = CpuSplit((tuple(l.name for l in region.lets),))
    assert faults(split, replace(region, outputs=both)) == ["the Region writes at computed positions or in place"]


def test_an_operand_is_packed_or_in_place() -> None:
    region = ex.gemm()
    plan = CpuContraction("acc", 12, 32, 384, 12, 32, 16, False, "n", ("B",), ("c1", "c2"), ("m",))
    assert faults(plan, region) == []
    assert faults(replace(plan, in_place=("n",)), region) == [
        "the operand of side n, B, is packed: it lies in memory as it is read already"
    ]


def test_a_part_is_not_split_again() -> None:
    region = ex.attention()
    (first, *others) = split_parts(region)
    assert faults(CpuSplit((first, *others)), region) == []
    joined = (*first, *others[0])
    (fault,) = faults(CpuSplit((joined, *others[1:])), region)
    assert fault == f"part 0 is 2 Regions in turn: {' | '.join(', '.join(p) for p in (first, others[0]))}"
