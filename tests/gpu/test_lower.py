from __future__ import annotations

import msgspec
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.codec import dump_text, from_builtins, parse_text, to_builtins
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import var
from tatami.core.kernel import Condition
from tatami.core.module import Module
from tatami.core.signature import Signature
from tatami.core.target import PRESETS
from tatami.gpu import ir, statement_ir
from tatami.gpu.lower import lower, lower_region, lower_split
from tatami.gpu.proof.prove import explore, simulate
from tatami.gpu.show import show
from tatami.plan.ir import Guarded, ProgramPlan, RegionPlan
from tatami.plan.views.product_rules import shape_rules
from tatami.region.ir import Program, Region
from tests.gpu.gemm_examples import gemm, sm80, sm90, sync

BY8 = tuple(Condition(var(s), 8) for s in "MNK")


def kernel(region: Region, plan: object, target: str = "sm80", conditions: tuple[Condition, ...] = BY8) -> ir.Kernel:
    return lower_region(region, Guarded(conditions, plan), PRESETS[target])[0]  # type: ignore[arg-type]


def refused(region: Region, plan: object, target: str = "sm80", conditions: tuple[Condition, ...] = BY8) -> str:
    with pytest.raises(TatamiError) as error:
        kernel(region, plan, target, conditions)
    return str(error.value)


def program(*regions: Region) -> Module[Program]:
    return Module({"main": Program(Signature(), (), (), regions)})


@pytest.mark.parametrize("plan", [sm80(), sm80(stages=4, overlap=True), sm90(), sm90(persistent=True), sync()], ids=str)
def test_documents_round_trip(plan: object) -> None:
    k, binding = lower_region(gemm(), Guarded(BY8, plan), PRESETS["sm90"])  # type: ignore[arg-type]
    p = ir.Program((k,), (binding,))
    assert from_builtins(parse_text(dump_text(to_builtins(p))), ir.Program) == p


def test_equal_regions_share_a_kernel() -> None:
    one = gemm()
    two = msgspec.structs.replace(gemm("P", "Q", "R"), name="other")
    plans = ProgramPlan(tuple(RegionPlan(r.name, "", (Guarded((), sm80()),), ()) for r in (one, two)), {})
    out = lower(program(one, two), Module({"main": plans}), PRESETS["sm80"]).main
    assert len(out.kernels) == 1
    assert [b.kernel for b in out.bindings] == ["k0", "k0"]
    assert [str(s) for s in out.bindings[1].sizes] == ["P", "R", "Q"]
    assert "k0" in show(Module({"main": out}))


def test_every_choice_of_a_routine_has_its_kernels() -> None:
    g = tt.Graph("t")
    values, at = g.input("x", ("N",), tt.fp32).sort(0)
    g.output("values", values)
    g.output("at", at)
    stages = prepare(g, target="sm80").stages
    (region,) = (r for r in stages["region"].main.body if isinstance(r, Region))
    (whole,) = stages["plan"].main.regions[0].choices
    few = Guarded((Condition(var("N"), low=1, high=512),), msgspec.structs.replace(whole.plan, parts=()))
    tiles = Guarded((), msgspec.structs.replace(whole.plan, parts=(1024,)))
    plans = ProgramPlan((RegionPlan(region.name, "", (few, tiles), ()),), {})
    bindings = lower(program(region), Module({"main": plans}), PRESETS["sm80"]).main.bindings
    assert [b.conditions for b in bindings if b.choice == 0] == [few.conditions]
    assert len([b for b in bindings if b.choice == 1 and not b.conditions]) == len(bindings) - 1 > 1


def test_layout_decides_major_and_trans() -> None:
    def trans(k: ir.Kernel) -> list[bool]:
        loop = next(s for s in k.body if isinstance(s, statement_ir.Loop))
        return [s.trans for s in loop.body if isinstance(s, statement_ir.LdMatrix)]

    assert trans(kernel(gemm(), sm80())) == [False, True]
    assert trans(kernel(gemm(b_col=True), sm80())) == [False, False]
    assert trans(kernel(gemm(a_col=True), sm80())) == [True, True]


def test_tail_axes_and_only_those_are_predicated() -> None:
    k = kernel(gemm(128, 128, 64), sm80(tail=()))
    assert all(not s.predicate for s in k.body if isinstance(s, statement_ir.CpAsync))
    assert all(not s.pred for s in k.body if isinstance(s, statement_ir.StGlobalVec))
    k = kernel(gemm(100, 128, 64), sm80(tail=("m.i.i",)))
    assert [s.predicate for s in k.body if isinstance(s, statement_ir.CpAsync)] == [("m",), ()]
    assert "not in predicate_tail" in refused(gemm(100, 128, 64), sm80(tail=()))


def test_width_follows_the_plan_and_the_pitch() -> None:
    def widths(k: ir.Kernel) -> list[int]:
        return [s.width for s in k.body if isinstance(s, statement_ir.CpAsync)]

    assert widths(kernel(gemm(), sm80())) == [8, 8]
    assert widths(kernel(gemm(), sm80(width=4))) == [4, 4]
    assert widths(kernel(gemm(64, 77, 66), sm80())) == [2, 1]
    assert widths(kernel(gemm(), sm80(), conditions=())) == [1, 1]


def test_stages_shape_ring_and_wait() -> None:
    for stages in (2, 3, 4):
        k = kernel(gemm(), sm80((64, 64, 32), stages, warp="32x32"))
        assert [r.slots for r in k.smem] == [stages, stages]
        loop = next(s for s in k.body if isinstance(s, statement_ir.Loop))
        assert [s.pending for s in loop.body if isinstance(s, statement_ir.Wait)] == [stages - 2]
        assert k.shared_bytes == stages * (64 + 64) * 32 * 2


def test_bind_swaps_the_grid() -> None:
    swapped = {"m.o": "block.x", "n.o": "block.y"}
    assert kernel(gemm(), sm80()).grid == {"x": "n", "y": "m", "z": "b"}
    assert kernel(gemm(), sm80(bind=swapped)).grid == {"x": "m", "y": "n", "z": "b"}
    assert "'q.o'" in refused(gemm(), sm80(bind={"q.o": "block.x"}))


def test_impossible_plans_are_refused_with_numbers() -> None:
    assert "BK = 24" in refused(gemm(), sm80((64, 64, 24)))
    assert "128x64" in refused(gemm(), sm80(warp="48x64"))
    assert "262144 B > 166912 B" in refused(gemm(), sm80((256, 256, 64), 4, warp="64x32"))
    assert "setmaxnreg needs" in refused(gemm(), sm90(registers=(40, 256)), "sm90")
    assert "fp32" in refused(gemm(dtype=DType.fp32, out=DType.fp32), sm80())
    tensor_cores, cores = (sm80((64, 64, 16), warp="32x32", inst_shape=i) for i in ("m16n8k8", "fma"))
    exact, rounded = (gemm(dtype=DType.fp32, out=DType.fp32, tf32=t) for t in (False, True))
    assert "m16n8k8 does not multiply fp32" in refused(exact, tensor_cores)
    assert "fma does not multiply fp32 rounded to tf32" in refused(rounded, cores)
    assert "BK = 12 is none of 8, 16, 32, 64" in refused(rounded, sm80((64, 64, 12), warp="32x32", inst_shape="m16n8k8"))
    assert "sm90" in refused(gemm(), sm90(), "sm80")
    assert "multiple of 16" in refused(gemm(), sm90(), "sm90", ())
    assert "cache leaves out A" in refused(gemm(), msgspec.structs.replace(sm80(), cache=sm80().cache[1:]))


def test_async_off_is_the_synchronous_kernel() -> None:
    k = kernel(gemm(), sm80((64, 64, 32), enable=False))
    assert k.template == "sync" and (k.rows, k.cols) == (16, 16)


def test_overlap_loads_the_next_tile_before_the_epilogue() -> None:
    def order(k: ir.Kernel) -> list[str]:
        tiles = next(s for s in k.body if isinstance(s, statement_ir.Loop))
        return [type(s).__name__ for s in tiles.body]

    names = order(kernel(gemm(), sm80(stages=3, overlap=True)))
    assert names.index("CpAsync") < names.index("Epilogue")
    assert not any(isinstance(s, statement_ir.Loop) and s.over == "tiles" for s in kernel(gemm(), sm80()).body)


def test_batch_counts_on_z_and_moves_the_operands() -> None:
    k, binding = lower_region(gemm(batch="B", dtype=DType.bf16), Guarded(BY8, sm80()), PRESETS["sm80"])
    assert str(binding.grid[2]) == "B"
    assert str(k.a.offset) == "b0*s1*s2"
    k90, b90 = lower_region(gemm(batch="B"), Guarded(BY8, sm90()), PRESETS["sm90"])
    assert [len(t.dims) for t in b90.tensor_maps] == [3, 3]
    assert b90.tensor_maps[0].position == len(k90.params) + len(b90.sizes)


def test_the_exchange_form_names_statements_outside() -> None:
    from tatami.gpu.json_form import decode, encode

    k, binding = lower_region(gemm(), Guarded(BY8, sm90()), PRESETS["sm90"])
    p = ir.Program((k,), (binding,))
    value = parse_text(dump_text(encode(p)))
    assert "MBarrierInit" in value["kernels"][0]["body"][0]
    producer = value["kernels"][0]["body"][3]["Role"]["body"][1]["Loop"]["body"]
    assert producer[2]["TmaLoad"]["desc"] == "A_desc"
    assert decode(value) == p
    with pytest.raises(TatamiError, match="Waite"):
        decode({"kernels": [{"body": [{"Waite": {}}]}], "bindings": []})


def test_names_of_sizes_stay_outside_kernels() -> None:
    """A convolution divides by sizes to find its coordinates; all of them are arguments."""
    from tatami.cu.print import print_unit
    from tatami.frontend.graph import Graph
    from tests.cu.streaming.test_stream_numbers import stages_of

    def conv(g: Graph) -> None:
        x = g.input("x", ("Batch", 3, "Height", "Width"), DType.fp32)
        g.output("y", x.conv(g.input("w", (4, 3, 3, 3), DType.fp32), stride=2, padding=1))

    (kernel,) = stages_of(conv)["gpu"].main.kernels
    text = print_unit(kernel, PRESETS["sm80"]).text
    assert "/ (" in text and not any(word in text for word in ("Batch", "Height", "Width"))


def test_batches_of_an_operand_that_is_broadcast_are_no_copies() -> None:
    """Axes that one operand lacks are rows of the product, or a batch coordinate that does not move it."""
    g = tt.Graph("broadcast")
    x = g.input("x", ("B", 4, "M", 64), DType.fp16)
    g.output("y", x @ g.input("w", ("B", 1, 64, 128), DType.fp16).expand(("B", 4, 64, 128)))
    g.output("z", x @ g.input("v", (4, 64, 128), DType.fp16).expand(("B", 4, 64, 128)))
    made = prepare(g, target="sm80").stages["gpu"].main
    assert [(str(k.m), len(k.batch), str(k.b.offset)) for k in made.kernels] == [("4*s1", 1, "8192*b0"), ("s1", 2, "8192*b0")]
    assert len(made.bindings) == 2


def test_one_kernel_stores_every_result_of_its_epilogue() -> None:
    g = tt.Graph("results")
    h = g.input("x", ("M", 64), DType.fp16) @ g.input("w", (64, 128), DType.fp16)
    g.output("plain", h)
    g.output("activated", h.gelu())
    (k,) = prepare(g, target="sm80").stages["gpu"].main.kernels
    assert [(s.ptr, s.width) for s in k.body if isinstance(s, statement_ir.StGlobalVec)] == [("p2", 8), ("p3", 8)]


def test_persistent_parts_of_k_are_refused_where_no_zeros_end_them() -> None:
    parts = {"persistent": True, "split_k": 2}
    assert not [why for why in shape_rules(sm90(**parts, overlap=True)) if "split_k" in why]
    assert "which end equal parts of k with zeros" in "".join(shape_rules(sm90(**parts, loads=("cp_async", "tma"))))
    assert "without epilogue_overlap" in "".join(shape_rules(sm90(split_k=2, overlap=True)))


def test_persistent_parts_of_k_are_proved() -> None:
    (product, _), _ = lower_split(
        gemm(out=DType.fp32), Guarded(BY8, sm90(persistent=True, overlap=True, split_k=3)), PRESETS["sm90"]
    )
    assert isinstance(product, ir.Kernel) and product.split == 3
    assert explore(product) > 0
    simulate(product)
