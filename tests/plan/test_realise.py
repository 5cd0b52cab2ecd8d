from __future__ import annotations

import msgspec
import numpy as np
import pytest

from tatami.core.algebra.substitute import substitute_sizes
from tatami.core.dtype import DType
from tatami.core.expr import expr, shape
from tatami.core.layout import Layout, MemRef, address, packed_layout
from tatami.core.module import Module
from tatami.core.target import PRESETS
from tatami.core.tensor import Tensor
from tatami.plan.choose import choose
from tatami.plan.ir import CpuContraction, CpuWinograd, ProgramPlan
from tatami.plan.memory.convert import with_layouts
from tatami.plan.plan_realised import plan_realised
from tatami.plan.realise import realise
from tatami.plan.verify import verify as verify_plans
from tatami.plan.verify_plan import verify_plan
from tatami.poly_core.analyse import analyse
from tatami.region.ir import Let, Program, Read, Region, Yield
from tatami.region.ir import Target as Output
from tatami.region.run import run
from tatami.region.verify import verify
from tests.loop.products.contraction_harness import matmul
from tests.region import examples as ex

TARGET = PRESETS["cpu:avx512"]
rng = np.random.default_rng(2)


def with_constant(region: Region, tensor: str, array: np.ndarray) -> Module[Program]:
    module = ex.program_of(region)
    program = module.main
    inputs = tuple(
        msgspec.structs.replace(p, role="param", storage="const_pool") if p.tensor == tensor else p
        for p in program.signature.inputs
    )
    signature = msgspec.structs.replace(program.signature, inputs=inputs)
    return Module({"main": msgspec.structs.replace(program, signature=signature)}, {tensor: Tensor(array)})


def gemm_module(dtype: DType = DType.fp32) -> tuple[Module[Program], np.ndarray]:
    region = substitute_sizes(ex.gemm(dtype), {"N": expr(48), "K": expr(40)})
    weights = (rng.standard_normal((40, 48)) / 8).astype(np.float16 if dtype == DType.fp16 else np.float32)
    return with_constant(region, "B", weights), weights


@pytest.mark.parametrize("dtype", [DType.fp32, DType.fp16])
def test_constant_weights_are_packed_in_setup(dtype: DType) -> None:
    module, weights = gemm_module(dtype)
    plan = choose(module, analyse(module), TARGET, None, {"M": 64})
    chosen = plan.main.regions[0].choices[0].plan
    assert isinstance(chosen, CpuContraction)
    assert chosen.packed == ("B",)
    made = realise(module, plan)
    realised = made.module
    assert [str(d) for d in verify(realised)] == []
    assert [p.tensor for p in realised.programs["setup"].signature.outputs] == ["B_p"]
    assert [p.tensor for p in realised.main.signature.inputs] == ["A", "bias", "B_p"]
    arrays = {
        "A": (rng.standard_normal((7, 40)) / 8).astype(weights.dtype),
        "bias": rng.standard_normal(48).astype(weights.dtype),
    }
    for name, array in run(module, arrays).items():
        np.testing.assert_allclose(run(realised, arrays)[name], array, rtol=1e-3, atol=1e-6)
    new = plan_realised(made, plan, analyse(realised), TARGET)
    assert verify_plans(new, realised) == []
    final = new.main.regions[0].choices[0].plan
    assert isinstance(final, CpuContraction)
    assert final.packed == ("B_p",)


@pytest.mark.parametrize(
    ("weight", "features", "rows", "dot"),
    [
        ("u1", ("vnni",), 64, "quads_vnni"),
        ("i1", ("vnni",), 64, "pairs_vnni"),
        ("i1", (), 64, "pairs"),
        ("i1", (), 2, "quads"),
        ("i1", ("vnni", "amx_int8"), 64, "quads_amx"),
    ],
)
def test_narrow_weights_are_joined_in_groups_of_k(weight: str, features: tuple[str, ...], rows: int, dot: str) -> None:
    """51 of k are not whole groups. The realised Region reads the weights again from the groups. Few rows, for which weights
    are read once, are decided by bytes."""
    region = matmul("M", 48, 51, dtype=DType.i8, acc=DType.i32)
    weights = rng.integers(np.iinfo(weight).min, np.iinfo(weight).max + 1, (51, 48)).astype(weight)
    kind = DType.u8 if weight == "u1" else DType.i8
    second = msgspec.structs.replace(region.inputs[1], memref=msgspec.structs.replace(region.inputs[1].memref, dtype=kind))
    module = with_constant(msgspec.structs.replace(region, inputs=(region.inputs[0], second)), "b", weights)
    target = msgspec.structs.replace(TARGET, features=features)
    plan = choose(module, analyse(module), target, None, {"M": rows})
    assert verify_plans(plan, module) == []
    chosen = plan.main.regions[0].choices[0].plan
    assert isinstance(chosen, CpuContraction) and (chosen.dot, chosen.packed) == (dot, ("b",))
    made = realise(module, plan)
    realised = made.module
    assert [str(d) for d in verify(realised)] == []
    assert [str(p.shape) for p in realised.programs["setup"].signature.outputs] == [
        str(shape(26 if "pairs" in dot else 13, 48))
    ]
    a = rng.integers(-128, 128, (7, 51)).astype(np.int8)
    np.testing.assert_array_equal(run(realised, {"a": a})["y"], a.astype(np.int32) @ weights.astype(np.int32))
    new = plan_realised(made, plan, analyse(realised), target)
    assert verify_plans(new, realised) == []
    planned = module.main.body[0]
    assert isinstance(planned, Region)
    faults = {d.kind for d in verify_plan(chosen, planned, PRESETS["cpu:avx512"])}
    assert faults == ({"ResourceExceeded"} if features else set())
    if chosen.by_tiles:
        (tile,) = verify_plan(msgspec.structs.replace(chosen, mr=chosen.mr // 2), planned, target)
        assert tile.kind == "InvalidPlan" and "use 32x32" in str(tile)
    other = matmul("M", 48, 51, dtype=DType.u16, acc=DType.i32)
    (wide,) = verify_plan(msgspec.structs.replace(chosen, mr=1, dot="pairs", packed=()), other, TARGET)
    assert wide.kind == "InvalidPlan" and "not numbers that" in str(wide)


def test_a_packed_sliver_is_contiguous_over_k() -> None:
    layout = packed_layout(2, 32)
    at = lambda k, n: address(layout, (expr(40), expr(48)), (expr(k), expr(n))).as_int()  # noqa: E731
    assert [at(0, 0), at(0, 31), at(1, 0), at(39, 31), at(0, 32)] == [0, 31, 32, 40 * 32 - 1, 40 * 32]


WEIGHT_PLANS = [
    CpuContraction("acc", 12, 32, 384, 12, 32, 16, False, "n", ("F",), ()),
    CpuWinograd("acc", 2, 2, 12, 32, 384, 16, "channels", ("F",)),
]


@pytest.mark.parametrize("wanted", WEIGHT_PLANS, ids=["one", "of tiles"])
def test_conv_weights_become_matrices(wanted: CpuContraction | CpuWinograd) -> None:
    region = substitute_sizes(ex.conv(), {"Co": expr(64), "Ci": expr(8)})
    weights = rng.standard_normal((64, 8, 3, 3)).astype(np.float32)
    module = with_constant(region, "F", weights)
    sizes = {"N": 1, "H": 7, "W": 7}
    assert isinstance(choose(module, analyse(module), TARGET, None, sizes).main.regions[0].choices[0].plan, CpuWinograd)
    plan = choose(module, analyse(module), TARGET, {"": wanted}, sizes)
    assert plan.main.regions[0].choices[0].plan == wanted
    assert verify_plans(plan, module) == []
    made = realise(module, plan)
    realised = made.module
    assert [str(d) for d in verify(realised)] == []
    x = rng.standard_normal((1, 8, 7, 7)).astype(np.float32)
    np.testing.assert_allclose(run(realised, {"X": x})["Y"], run(module, {"X": x})["Y"], rtol=1e-4, atol=1e-4)


def winograd_plan(channels: int, side: int, filters: int) -> CpuWinograd:
    sizes = {"N": 1, "H": side, "W": side, "Co": filters, "Ci": channels}
    region = substitute_sizes(ex.conv(), {n: expr(size) for n, size in sizes.items()})
    module = with_constant(region, "F", np.zeros((filters, channels, 3, 3), np.float32))
    plan = choose(module, analyse(module), TARGET, None, {})
    chosen = plan.main.regions[0].choices[0].plan
    assert isinstance(chosen, CpuWinograd) and verify_plans(plan, module) == []
    return chosen


def test_weights_that_stream_past_few_tiles_of_an_image_pass_once() -> None:
    """Few tiles are one panel of narrow rows: a second one would wait for what the first has streamed."""
    streamed, kept = winograd_plan(256, 14, 256), winograd_plan(64, 28, 128)
    assert (streamed.mr, streamed.nr, streamed.rows * streamed.columns) == (16, 16, 16)
    assert (kept.mr, kept.nr) == (12, 32)


def test_weights_whose_tiles_no_cache_keeps_stay_as_they_are() -> None:
    """16 matrices for 9, read from memory, take longer than the products that they spare."""
    region = substitute_sizes(ex.conv(), {"Co": expr(512), "Ci": expr(512)})
    module = with_constant(region, "F", np.zeros((512, 512, 3, 3), np.float32))
    sizes = {"N": 1, "H": 14, "W": 14}
    assert isinstance(choose(module, analyse(module), TARGET, None, sizes).main.regions[0].choices[0].plan, CpuContraction)
    large = msgspec.structs.replace(TARGET, l3_bytes=100 << 20)
    assert isinstance(choose(module, analyse(module), large, None, sizes).main.regions[0].choices[0].plan, CpuWinograd)


@pytest.mark.parametrize(("channels", "side", "filters"), [(48, 128, 48), (48, 56, 48)])
def test_tiles_of_few_channels_lie_in_lines_of_their_own(channels: int, side: int, filters: int) -> None:
    """Panels as high as a vector, of blocks whose transforms of a channel stay in L1 twice."""
    chosen = winograd_plan(channels, side, filters)
    assert (chosen.mr, chosen.nr) == (16, 16)
    assert 2 * chosen.rows * chosen.columns * 16 * 4 <= TARGET.l1_bytes // 2


def test_tiles_of_a_machine_whose_registers_are_not_told() -> None:
    module = with_constant(
        substitute_sizes(ex.conv(), {"Co": expr(256), "Ci": expr(64)}), "F", np.zeros((256, 64, 3, 3), np.float32)
    )
    bare = msgspec.structs.replace(PRESETS["cpu:avx2"], vector_registers=0)
    chosen = choose(module, analyse(module), bare, None, {"N": 1, "H": 28, "W": 28}).main.regions[0].choices[0].plan
    assert isinstance(chosen, CpuWinograd) and (chosen.mr, chosen.nr) == (6, 16)


def test_without_layouts_to_obey_a_program_is_what_it_was() -> None:
    """An output that the document lays out by columns keeps its loops: the plan is for them."""
    program = ex.program_of(
        Region(
            "twice",
            ex.iters(m="M", n="N"),
            (),
            (ex.param("X", "M", "N"),),
            (Output("Y", MemRef(DType.fp32, shape("M", "N"), layout=Layout("blocked", order=(1, 0)))),),
            (Let("y", ("m", "n"), DType.fp32, ex.add(ex.read("X", "m", "n"), ex.read("X", "m", "n"))),),
            (Yield("y", "Y"),),
        )
    ).main
    assert with_layouts(program, {}) == (program, ())
    elsewhere, _ = with_layouts(program, {"other": Layout("blocked", order=(1, 0))})
    assert elsewhere.body[0] is program.body[0]


def test_a_plan_without_wishes_changes_nothing() -> None:
    module = ex.program_of(ex.softmax())
    plan = choose(module, analyse(module), TARGET)
    made = realise(module, plan)
    assert made.module is module
    assert plan_realised(made, plan, analyse(module), TARGET) is plan


def test_a_layout_is_converted_at_the_boundary() -> None:
    first = ex.softmax()
    lets = tuple(msgspec.structs.replace(n, expr=_renamed(n.expr)) for n in first.lets)
    second = msgspec.structs.replace(
        first,
        name="again",
        inputs=(ex.param("Y", "M", "N"),),
        outputs=(ex.target("Z", "M", "N"),),
        lets=lets,
        yields=(msgspec.structs.replace(first.yields[0], to="Z"),),
    )
    module = ex.program_of(first, second)
    col = Layout("col_major")
    plan = choose(module, analyse(module), TARGET).main
    wishes = Module({"main": ProgramPlan(plan.regions, {"X": col, "Y": col})})
    made = realise(module, wishes)
    realised = made.module
    assert [str(d) for d in verify(realised)] == []
    assert [item.name for item in realised.main.body] == ["convert_X", "softmax", "again"]
    body = [item for item in realised.main.body if isinstance(item, Region)]
    assert [body[1].inputs[0].memref.layout.kind, body[1].outputs[0].memref.layout.kind, body[2].inputs[0].memref.layout.kind] == ["col_major"] * 3  # fmt: skip
    assert body[2].outputs[0].memref.layout.kind == "row_major"
    x = rng.standard_normal((3, 4)).astype(np.float32)
    np.testing.assert_array_equal(run(realised, {"X": x})["Z"], run(module, {"X": x})["Z"])
    new = plan_realised(made, wishes, analyse(realised), TARGET)
    assert verify_plans(new, realised) == []


def _renamed(e: object) -> object:
    from tatami.region.walk import rewrite

    return rewrite(e, lambda n: Read("Y", n.map) if isinstance(n, Read) else n)  # type: ignore[arg-type]


def test_attention_streams_or_by_decision_runs_as_products_and_rows() -> None:
    from tatami.plan.ir import CpuSplit, CpuStreaming
    from tatami.region.views.kinds import kind_of

    module = ex.program_of(ex.attention())
    sizes = {"B": 12, "M": 128, "N": 128, "D": 64}
    free = choose(module, analyse(module), TARGET, None, sizes)
    assert free.main.regions[0].choices[0].plan == CpuStreaming("S", "o", 12, 32, 128, 16)
    split = CpuSplit((("S",), ("top", "P", "Z"), ("o", "y")))
    plan = choose(module, analyse(module), TARGET, {"": split}, sizes)
    assert plan.main.regions[0].choices[0].plan == split
    assert verify_plans(plan, module) == []
    made = realise(module, plan)
    realised = made.module
    assert [str(d) for d in verify(realised)] == []
    assert [kind_of(item) for item in realised.main.body if isinstance(item, Region)] == ["contraction", "rows", "contraction"]
    arrays = {n: rng.standard_normal((2, 5, 4)).astype(np.float32) for n in "QKV"}
    np.testing.assert_allclose(run(realised, arrays)["O"], run(module, arrays)["O"], rtol=1e-5)
    new = plan_realised(made, plan, analyse(realised), TARGET, sizes)
    assert verify_plans(new, realised) == []
    assert [type(r.choices[0].plan).__name__ for r in new.main.regions] == ["CpuContraction", "CpuRows", "CpuContraction"]


def test_regions_that_were_realised_pack_nothing_more() -> None:
    """Parts of a split Region are planned after `setup` is made: a packed operand would never be written."""
    module, _ = gemm_module()
    facts = analyse(module)
    (chosen,) = choose(module, facts, TARGET).main.regions
    (late,) = choose(module, facts, TARGET, realised=True).main.regions
    assert isinstance(chosen.choices[-1].plan, CpuContraction) and chosen.choices[-1].plan.packed
    assert not getattr(late.choices[-1].plan, "packed", ())
