from __future__ import annotations

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.dtype import DType
from tatami.core.expr import var
from tatami.core.target import PRESETS, Target
from tatami.plan.choose import choose
from tatami.plan.cpu.contraction import even_band
from tatami.plan.ir import Blocks, CpuContraction, CpuRows, CpuTurn, CpuWinograd, LoopPass, LoopPhase
from tatami.plan.loops.schedule import skeleton
from tatami.plan.verify_plan import verify_plan
from tatami.poly_core.analyse import analyse
from tatami.region.ir import Region, Scan
from tests.loop import zoo
from tests.loop.products.contraction_harness import matmul
from tests.region import examples as ex

AVX512 = PRESETS["cpu:avx512"]
SIZES = {"M": 256, "N": 384, "K": 512, "D": 64, "B": 4}


def planned(make: object, sizes: dict[str, int] = SIZES) -> object:
    module = ex.program_of(make())  # type: ignore[operator]
    return choose(module, analyse(module), AVX512, None, sizes).main.regions[0]


@pytest.mark.parametrize("make", ex.ALL, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", ["cpu:avx512", "cpu:avx2", "cpu:generic", "cpu:neon"])
def test_every_region_has_a_valid_plan_and_rejected_ones(make: object, name: str) -> None:
    region = make()  # type: ignore[operator]
    module = ex.program_of(region)
    facts = analyse(module)
    plan = choose(module, facts, PRESETS[name]).main.regions[0]
    assert plan.choices[-1].conditions == ()
    assert len(plan.rejected) >= 1
    for choice in plan.choices:
        assert [str(d) for d in verify_plan(choice.plan, region, PRESETS[name])] == []


def test_gemm_is_packed() -> None:
    plan = planned(ex.gemm).choices[-1].plan  # type: ignore[attr-defined]
    assert isinstance(plan, CpuContraction)
    assert (plan.mr, plan.nr, plan.kc, plan.swap, plan.epilogue) == (12, 32, 384, False, ("c1", "c2"))


def test_a_matvec_is_rows() -> None:
    plan = planned(ex.gemm, {"M": 1, "N": 384, "K": 512}).choices[-1].plan  # type: ignore[attr-defined]
    assert isinstance(plan, CpuRows)
    assert vectors_of(plan) == {"n"} and plan.blocks == Blocks("k", 42)


def test_softmax_has_three_passes_over_a_row() -> None:
    plan = planned(ex.softmax).choices[-1].plan  # type: ignore[attr-defined]
    assert isinstance(plan, CpuRows)
    passes = (
        LoopPass((), ("top",), along={"top": "n"}),
        LoopPass(("n",), ("e", "z"), "n"),
        LoopPass(("n",), ("p",), "n"),
    )
    assert plan.phases == (LoopPhase(("m",), ("m",), passes),)
    assert plan.storage == {"top": "register", "e": "row", "z": "register", "p": "register"}


def test_layer_norm_repeats_the_cheap_difference() -> None:
    bones = skeleton(ex.layer_norm(), SIZES, 1 << 20)
    assert bones.outer == ("m",)
    assert bones.storage["d"] == "recompute"
    assert [p.lets for p in bones.passes] == [("s",), ("mean",), ("v",), ("r",), ("y",)]


def test_attention_keeps_scores_in_a_row() -> None:
    bones = skeleton(ex.attention(), SIZES, 1 << 20)
    assert bones.outer == ("b", "m")
    assert [(p.axes, p.lets) for p in bones.passes] == [
        (("n", "d"), ("S",)), (("n",), ("top",)), (("n",), ("P", "Z")), (("e", "n"), ("o",)), (("e",), ("y",)),
    ]  # fmt: skip
    assert bones.storage == {"S": "row", "top": "register", "P": "row", "Z": "register", "o": "row", "y": "register"}


def test_a_moved_axis_is_not_outer() -> None:
    bones = skeleton(ex.two_windows(), SIZES, 1 << 20)
    assert bones.outer == ()
    assert bones.storage["w"] == "tile"


def test_reduces_over_outer_axes_run_in_columns() -> None:
    plan = planned(ex.column_norm).choices[-1].plan  # type: ignore[attr-defined]
    assert isinstance(plan, CpuRows)
    assert vectors_of(plan) == {"n"} and [phase.threads for phase in plan.phases] == [("n",), ("m",)]


def vectors_of(plan: CpuRows) -> set[str]:
    return {p.vector for phase in plan.phases for p in phase.passes}


def scanned(shape: tuple[int, ...], axis: int, cores: int = 2) -> CpuRows:
    axes = tuple(f"i{k}" for k in range(len(shape)))
    r = zoo.region(
        dict(zip(axes, shape)), {}, {"x": zoo.tensor(*shape)}, {"y": zoo.tensor(*shape)},
        [zoo.let("l", " ".join(axes), Scan("sum", f"i{axis}", zoo.f32, zoo.read("x", *map(var, axes))))],
    )  # fmt: skip
    module = ex.program_of(r)
    plan = choose(module, analyse(module), msgspec.structs.replace(AVX512, cores=cores)).main.regions[0].choices[-1].plan
    assert isinstance(plan, CpuRows)
    assert verify_plan(plan, r, AVX512) == []
    return plan


def test_a_scan_takes_lanes_along_or_across_its_axis() -> None:
    plan = planned(ex.running_sum).choices[-1].plan  # type: ignore[attr-defined]
    assert isinstance(plan, CpuRows)
    assert (vectors_of(plan), plan.blocks) == ({"n"}, Blocks("n", 4096)) and plan.phases[0].threads == ("m",)
    assert vectors_of(scanned((100, 1000, 100), 1)) == {"i2"}


def test_few_long_lines_are_shared_by_all_threads() -> None:
    assert scanned((10**7,), 0).blocks == Blocks("i0", 4096, 64)
    assert scanned((3, 10**6), 1).blocks == Blocks("i1", 4096, 64)
    assert scanned((10, 10**6), 1).blocks == Blocks("i1", 4096)
    assert scanned((10**6, 64), 0).blocks == Blocks("i0", 64, 64)
    assert scanned((100, 1000), 1).blocks is None


@pytest.mark.parametrize(("shape", "axis"), [((10**7,), 0), ((3, 10**6), 1), ((10**6, 40), 0), ((7, 70000, 3), 1)])
def test_blocks_do_not_depend_on_the_threads(shape: tuple[int, ...], axis: int) -> None:
    plans = [scanned(shape, axis, cores) for cores in (1, 2, 3, 64)]
    assert len({(*vectors_of(p), p.width, p.blocks and p.blocks.size) for p in plans}) == 1
    assert plans[0].blocks is not None and plans[0].blocks.round == 0


@pytest.mark.parametrize(
    ("blocks", "why"),
    [(Blocks("m", 64), "nothing reduces or scans"), (Blocks("n", 0), "0 elements"), (Blocks("n", 8, -1), "-1 at a time")],
)
def test_blocks_that_make_no_sense_are_refused(blocks: Blocks, why: str) -> None:
    region = ex.running_sum()
    plan = planned(ex.running_sum).choices[-1].plan  # type: ignore[attr-defined]
    (d,) = verify_plan(msgspec.structs.replace(plan, blocks=blocks), region, AVX512)
    assert d.kind == "InvalidPlan" and why in d.why


def reduced(shape: tuple[int, ...], kept: tuple[int, ...], cores: int = 2, fn: str = "sum") -> CpuRows:
    axes = [f"i{k}" if k in kept else f"r{k}" for k in range(len(shape))]
    extents = dict(zip(axes, shape))
    own, over = [a for a in axes if a[0] == "i"], [a for a in axes if a[0] == "r"]
    r = zoo.region(
        {a: extents[a] for a in own}, {a: extents[a] for a in over}, {"x": zoo.tensor(*shape)},
        {"y": zoo.tensor(*(extents[a] for a in own))},
        [zoo.let("l", " ".join(own), zoo.red(fn, " ".join(over), zoo.read("x", *map(var, axes))))],
    )  # fmt: skip
    module = ex.program_of(r)
    plan = choose(module, analyse(module), msgspec.structs.replace(AVX512, cores=cores)).main.regions[0].choices[-1].plan
    assert isinstance(plan, CpuRows)
    assert verify_plan(plan, r, AVX512) == []
    return plan


def test_few_long_reduces_are_cut_into_blocks() -> None:
    assert reduced((10**6,), ()).blocks == Blocks("r0", 16384)
    assert reduced((1000, 1000), ()).blocks == Blocks("r0", 16)
    assert reduced((10**6, 8), (1,)).blocks == Blocks("r0", 2048)
    assert reduced((64, 10**5), (0,)).blocks is None
    assert reduced((1000,), ()).blocks is None
    assert [reduced((10**6,), (), cores, "argmax").blocks for cores in (2, 4)] == [None, Blocks("r0", 16384)]


def test_threads_take_whole_lines_where_that_is_even() -> None:
    """Threads get the same blocks: the order of additions does not depend on their number."""
    plans = {cores: reduced((4, 10**6), (0,), cores) for cores in (1, 2, 3, 4, 64)}
    assert {plan.blocks for plan in plans.values()} == {Blocks("r1", 16384)}
    shared = {cores: "r1.b" in plan.phases[0].threads for cores, plan in plans.items()}
    assert shared == {cores: cores in (3, 64) for cores in plans}


def test_registers_of_a_tile_are_counted_in_its_element_type() -> None:
    region = matmul(256, 256, 256, dtype=DType.fp64, acc=DType.fp64)
    module = ex.program_of(region)
    plan = choose(module, analyse(module), AVX512).main.regions[0].choices[-1].plan
    assert isinstance(plan, CpuContraction)
    assert (plan.mr, plan.nr, plan.width) == (12, 16, 16)
    assert verify_plan(msgspec.structs.replace(plan, nr=8, nc=plan.nc // 8 * 8), region, AVX512) == []
    (d,) = verify_plan(msgspec.structs.replace(plan, nr=32, nc=plan.nc // 32 * 32), region, AVX512)
    assert d.kind == "ResourceExceeded" and "needs 53 vector registers" in d.why


@pytest.mark.parametrize(
    ("size", "sides"),
    [
        ((333, 333, 333), ("m",)),
        ((333, 333, 1024), ()),
        ((128, 128, 64), ("m", "n")),
        ((128, 512, 512), ()),
        ((64, 500, 512), ("n",)),
        ((64, 512, 512), ()),
        (("M", 333, "K"), ()),
        ((64, 64, 8192), ("m",)),  # a long k: a sliver is copied unless it is the only one
        ((64, 32, 8192), ("m", "n")),
        ((256, 64, 32768), ("m",)),  # rows 128 KB apart
        ((256, 128, 32768), ()),
        ((256, 256, 32768), ()),
        ((256, 256, 32760), ("m",)),
    ],
)
def test_more_is_used_in_place_where_rows_lie_near_each_other(size: tuple[str | int, ...], sides: tuple[str, ...]) -> None:
    module = ex.program_of(matmul(*size))
    plan = choose(module, analyse(module), AVX512, None, {"M": 333, "K": 333}).main.regions[0].choices[-1].plan
    assert isinstance(plan, CpuContraction) and plan.in_place == sides


def test_a_long_k_is_split_where_the_sums_are_few() -> None:
    """Products of weights' gradients. Parts do not depend on the threads; rows are divided if there are more threads than parts."""

    def chosen(size: tuple[int, int, int], cores: int) -> CpuContraction:
        module = ex.program_of(matmul(*size, transpose_a=True))
        target = msgspec.structs.replace(AVX512, cores=cores)
        plan = choose(module, analyse(module), target).main.regions[0].choices[-1].plan
        region = module.main.body[0]
        assert isinstance(plan, CpuContraction) and isinstance(region, Region)
        assert verify_plan(plan, region, target) == []
        return plan

    assert {(p.split, p.parts) for cores in (1, 2, 8) for p in [chosen((256, 256, 32768), cores)]} == {("k", 8)}
    assert [chosen((256, 256, k), 2).parts for k in (1024, 2048, 4096)] == [1, 1, 5]
    assert (chosen((2048, 2048, 8192), 2).split, chosen((2048, 2048, 8192), 8).split) == ("k", "m")
    assert chosen((8, 4096, 8192), 2).split == "n"  # one panel reads the columns once in any order
    plan = chosen((256, 256, 32768), 2)
    for wrong in (msgspec.structs.replace(plan, parts=1), msgspec.structs.replace(plan, split="m")):
        (d,) = verify_plan(wrong, matmul(256, 256, 32768, transpose_a=True), AVX512)
        assert d.kind == "InvalidPlan" and "give parts" in str(d)


@pytest.mark.parametrize(
    ("size", "cores", "split"),
    [
        ((4, 11008, 8192), 2, ("k", 8, 5504)),
        ((1, 4096, 4096), 2, ("k", 8, 4096)),
        ((1, 4096, 4096), 3, ("k", 8, 4096)),
        ((1, 4096, 4096), 1, ("k", 8, 4096)),
        ((1, 4096, 800), 2, ("k", 2, 4096)),
        ((1, 4096, 4096), 16, ("n", 1, 1024)),  # parts for half of the threads
        ((1, 4096, 512), 2, ("n", 1, 2048)),
        ((6, 4096, 4096), 2, ("n", 1, 2048)),
        (("M", 4096, 4096), 2, ("n", 1, 32)),  # a number of rows that is not known: columns a tile at a time
    ],
)
def test_few_rows_read_long_ones_whole_and_in_place(
    size: tuple[str | int, ...], cores: int, split: tuple[str, int, int]
) -> None:
    module = ex.program_of(matmul(*size))
    target = msgspec.structs.replace(AVX512, cores=cores)
    plan = choose(module, analyse(module), target, None, {"M": 4}).main.regions[0].choices[-1].plan
    assert isinstance(plan, CpuContraction) and plan.in_place == ("n",)
    assert (plan.split, plan.parts, plan.nc) == split


@pytest.mark.parametrize(
    ("slivers", "most", "threads", "band"),
    [
        (16, 4, 2, 4),
        (14, 4, 2, 4),  # 4 and 4, 4 and 2: no worse than other bands
        (20, 4, 2, 5),  # 5 bands of 4 would be 12 and 8
        (11, 2, 2, 2),
        (1000, 4, 2, 4),  # enough rows that a remainder does not matter
        (3, 0, 2, 1),
    ],
)
def test_threads_have_as_many_slivers_if_they_can(slivers: int, most: int, threads: int, band: int) -> None:
    assert even_band(slivers, most, threads) == band


@pytest.mark.parametrize(
    ("channels", "size", "cores", "rows", "split"),
    [
        (128, 28, 2, 7, "tiles"),  # 14 rows of tiles: 5, 5 and 4 would leave one thread with 10
        (128, 28, 1, 5, "tiles"),
        (256, 14, 2, 4, "channels"),  # 7 rows do not divide
        (64, 56, 2, 2, "tiles"),
    ],
)
def test_blocks_of_tiles_divide_evenly_where_some_do(channels: int, size: int, cores: int, rows: int, split: str) -> None:
    g = tt.Graph("conv")
    weights = np.zeros((channels, channels, 3, 3), np.float32)
    g.output("y", g.input("x", (1, channels, size, size), tt.fp32).conv(g.constant(weights), padding=1))
    target = msgspec.structs.replace(AVX512, cores=cores, l1_bytes=32 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20)
    plans = [r.choices[-1].plan for r in prepare(g, target=target).stages["plan"].main.regions]
    (plan,) = (p for p in plans if isinstance(p, CpuWinograd))
    assert (plan.rows, plan.split) == (rows, split)


@pytest.mark.parametrize(("shape", "tile"), [((1024, 1024), 64), ((4096, 4096), 128), ((64, 1 << 18), 64)])
def test_tiles_of_a_transpose_are_larger_where_memory_is_read(shape: tuple[int, int], tile: int) -> None:
    g = tt.Graph("transpose")
    g.output("y", g.input("x", shape, tt.fp32).permute((1, 0)))
    target = msgspec.structs.replace(AVX512, l3_bytes=32 << 20)
    plan = prepare(g, target=target).stages["plan"].main.regions[0].choices[-1].plan
    assert isinstance(plan, CpuTurn) and plan.tile == tile


def test_rows_at_computed_positions_are_written_in_vectors() -> None:
    """Rows as in gradients of embeddings and caches of keys. Equal positions are added in order."""
    g = tt.Graph("scatter")
    zeros, at, rows = g.input("z", (512, 64), tt.fp32), g.input("i", (300,), tt.i64), g.input("x", (300, 64), tt.fp32)
    g.output("y", zeros.scatter_nd(at.reshape(300, 1), rows, op="add"))
    f = tt.compile(g, target="cpu")
    (plan,) = [r.choices[-1].plan for r in f.stages["plan"].value.main.regions]
    assert isinstance(plan, CpuRows) and plan.width > 1
    rng = np.random.default_rng(0)
    z, i, x = rng.standard_normal((512, 64)).astype("f4"), rng.integers(0, 40, 300), rng.standard_normal((300, 64)).astype("f4")
    wanted = z.copy()
    np.add.at(wanted, i, x)
    np.testing.assert_array_equal(f({"z": z, "i": i, "x": x})["y"], wanted)


WIDE_CORE = msgspec.structs.replace(AVX512, clock=3.7e9, flops_fp32=4 * 16 * 3.7e9, bandwidth=1.2e10, l3_bytes=32 << 20)
NARROW_CORE = msgspec.structs.replace(WIDE_CORE, flops_fp32=2 * 16 * 3.7e9, bandwidth=3.2e10)
"""A core with one multiply-add of a vector a cycle, next to one with two; AVX-512 has both kinds."""


@pytest.mark.parametrize(("target", "kind"), [(WIDE_CORE, CpuContraction), (NARROW_CORE, CpuWinograd)])
def test_what_a_core_does_in_a_cycle_decides_between_convolutions(target: Target, kind: type) -> None:
    g = tt.Graph("conv")
    w = g.constant(np.zeros((512, 512, 3, 3), np.float32))
    g.output("y", g.input("x", (1, 512, 7, 7), tt.fp32).conv(w, None, padding=1))
    assert isinstance(prepare(g, target=target).stages["plan"].main.regions[0].choices[-1].plan, kind)


def test_few_rows_do_not_read_a_large_matrix_again_for_each() -> None:
    """Plain loops would, and their estimate says so."""
    g = tt.Graph("few")
    g.output("y", g.input("x", (7, 768), tt.fp32) @ g.input("w", (768, 3072), tt.fp32))
    chosen = prepare(g, target=NARROW_CORE).stages["plan"].main.regions[0]
    assert isinstance(chosen.choices[-1].plan, CpuContraction)
