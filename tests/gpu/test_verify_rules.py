"""Each rule about names, memory, barriers and bindings of kernels: a kernel that breaks it has that one fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tatami.core.custom.verbatim import VerbatimCode
from tatami.core.dtype import DType
from tatami.core.expr import expr, var
from tatami.core.kernel import Binding, Condition, KernelFace
from tatami.core.module import Module
from tatami.core.target import PRESETS
from tatami.gpu import ir, statement_ir
from tatami.gpu.lower import lower_region
from tatami.gpu.proof.program import all_statements
from tatami.gpu.proof.verify_blocks import check_dependency
from tatami.gpu.proof.verify_memory import check_memory
from tatami.gpu.proof.verify_stream_k import check_rows
from tatami.gpu.proof.verify_tokens import check_tokens
from tatami.gpu.statement_ir import GridDependency, SyncThreads, Token, Wait
from tatami.gpu.stream_ir import Param, SortKernel
from tatami.gpu.verify import check_words, values_hazard, verify, verify_any, verify_kernel
from tatami.plan.ir import Guarded, LocalEdge
from tests.cu.pairs.test_pair_roles import last_kernel, plan_for, stored
from tests.gpu.gemm_examples import gemm, sm80, sm90
from tests.gpu.gemm_examples import sync as gpu_sync
from tests.gpu.pairs.test_pair import region_of
from tests.gpu.proof.test_verify_stream_k import TAIL
from tests.gpu.proof.test_verify_stream_rules import kernel as streaming
from tests.gpu.test_verify import BY8, SM80, SM90, SM90_STRICT, SM90_TILES, change, drop, edited, kernel

replace: Any = msgspec.structs.replace


def said(found: Any) -> list[str]:
    return [d.why for d in found]


CLUSTER = kernel(sm90((128, 128, 64), 3, persistent=True, cluster=(2, 1), multicast="b"))
FETCHED = lower_region(
    gemm(residual=True),
    Guarded(BY8, sm90((128, 128, 64), 2, persistent=True, epilogue_store="stmatrix_tma", epilogue_load="tma")),
    PRESETS["sm90"],
)[0]
COPIED = lower_region(
    gemm(), Guarded(BY8, sm90((128, 128, 64), 3, loads=("cp_async", "tma"), registers=(80, 208))), PRESETS["sm90"]
)[0]
PAIRED = region_of(stored("nnn", causal=True))
PAIR = last_kernel(PAIRED, Guarded((Condition(var("S"), 8, low=1),), plan_for(PAIRED, in_turns=True)), PRESETS["sm90"])[0]
ALL = [SM80, SM90, SM90_TILES, SM90_STRICT, CLUSTER, FETCHED, COPIED]


@pytest.mark.parametrize("k", ALL, ids=["sm80", "sm90", "tiles", "strict", "cluster", "fetched", "copied"])
def test_kernels_of_the_compiler_pass(k: ir.Kernel) -> None:
    assert verify_kernel(k) == []


# -- names -----------------------------------------------------------------------------------------


NAMES = "names in kernels are letters, digits and _"


@pytest.mark.parametrize("word", ["a b", "a;", "é", "x" * 81, "a--b!"])
def test_every_word_of_a_kernel_is_a_name(word: str) -> None:
    fault = [NAMES]
    first = SM80.smem[0]
    for k in (
        replace(SM80, face=replace(SM80.face, symbol=word)),
        replace(SM80, smem=(replace(first, name=word), *SM80.smem[1:])),
        replace(SM80, grid={**SM80.grid, word: "m"}),
        replace(SM80, grid={**SM80.grid, "x": word}),
        replace(SM80, maps=(word,)),
        replace(SM80, tokens={**SM80.tokens, word: "TokLoad"}),
    ):
        assert said(check_words(k)) == fault
        assert said(verify_kernel(k)) == fault
    named = replace(streaming(), face=replace(streaming().face, symbol=word))
    assert said(verify_any(named)) == fault


def test_a_word_is_shown_as_far_as_it_is_short() -> None:
    (found,) = check_words(replace(SM80, maps=("!" + "x" * 90,)))
    assert found.at.endswith(repr("!" + "x" * 79))


def test_a_word_of_eighty_letters_is_a_name() -> None:
    assert check_words(replace(SM80, maps=("x" * 80, "-1", ""))) == []


def test_a_streaming_kernel_is_checked() -> None:
    assert verify_any(streaming()) == []
    assert verify_any(replace(streaming(), threads=33)) != []


def sorter(**fields: Any) -> SortKernel:
    face = KernelFace("k", (), 2, "0")
    params = tuple(Param(f"p{i}", DType.fp32) for i in range(2))
    return replace(SortKernel(face, params, var("s0"), var("s1"), expr(1), expr(1), False, 64, 64, 2048, "tile"), **fields)


def body(**fields: Any) -> ir.BodyKernel:
    face = KernelFace("k", (), 0, "0")
    return replace(ir.BodyKernel(face, (), (), (), ("i0",), VerbatimCode("a = b;"), VerbatimCode(""), 64), **fields)


def test_a_sort_is_checked() -> None:
    assert verify_any(sorter()) == []
    assert said(verify_any(sorter(threads=33))) == ["33 threads, a tile of 64 in 2048 bytes"]
    assert said(verify_any(sorter(face=KernelFace("a b", (), 2, "0")))) == [NAMES]


def test_a_body_is_its_caller_s_and_its_names_are_names() -> None:
    assert verify_any(body()) == []
    assert said(verify_any(body(counters=("i 0",)))) == [NAMES]


def test_registers_are_proved_where_the_protocol_is() -> None:
    """Results of an accumulator that nothing sets to zero."""
    wrong = edited(SM90, drop(statement_ir.ZeroAcc))
    hazard = values_hazard(wrong)
    assert hazard is not None and values_hazard(SM90) is None
    assert said(verify_kernel(wrong)) == [hazard.why]


# -- programs --------------------------------------------------------------------------------------


def bound(*names: str, **fields: Any) -> tuple[Binding, ...]:
    made = lower_region(gemm(), Guarded(BY8, sm90(stages=3)), PRESETS["sm90"])[1]
    return tuple(replace(made, region="r", kernel=n, **fields) for n in names)


def test_bindings_name_kernels_once() -> None:
    wrong = replace(SM90, barrier_model="cp_async_group")
    name = SM90.face.symbol

    def found(kernels: tuple[Any, ...], bindings: tuple[Binding, ...]) -> list[str]:
        return said(verify(Module({"main": ir.Program(kernels, bindings)})))

    assert found((SM90,), bound(name)) == []
    assert found((SM90,), bound(name, "q")) == ["kernel q is not defined"]
    once = found((wrong,), ())
    assert once and found((wrong, wrong), ()) == once
    waits = "it may begin while the kernel before it still writes"
    assert found((SM90,), bound(name, dependent=True))[0].startswith(waits)
    early = replace(SM90, body=(GridDependency(), *SM90.body))
    assert found((early,), bound(name, dependent=True)) == []
    assert found((streaming(),), bound(streaming().face.symbol, dependent=True))[0].startswith(waits)


def test_a_kernel_that_begins_early_waits_once_before_everything_else() -> None:
    early = (GridDependency(), *SM90.body)
    assert check_dependency(replace(SM90, body=early)) == [] == check_dependency(SM90)
    setup = next(i for i, s in enumerate(SM90.body) if not isinstance(s, statement_ir.MBarrierInit | SyncThreads))
    behind = (*SM90.body[:setup], GridDependency(), *SM90.body[setup:])
    assert setup > 0 and check_dependency(replace(SM90, body=behind)) == []
    for body in ((GridDependency(), *early), (*SM90.body, GridDependency()), (*early, GridDependency())):
        assert said(check_dependency(replace(SM90, body=body))) == [
            "threads may touch memory that the kernel before still writes"
        ]


def test_rows_of_a_program_are_checked() -> None:
    """Pieces of tiles whose whole tiles no kernel computes."""
    assert said(verify(Module({"main": ir.Program((TAIL,), bound(TAIL.face.symbol))}))) == said(
        check_rows(ir.Program((TAIL,), bound(TAIL.face.symbol)))
    )
    assert check_rows(ir.Program((TAIL,), bound(TAIL.face.symbol))) != []


@pytest.mark.parametrize("cluster", [(0, 1), (1, 0), (2, -1)])
def test_a_cluster_has_ctas(cluster: tuple[int, int]) -> None:
    """Nothing is computed from a cluster without CTAs: neither blocks nor the rows of a program."""
    none = f"cluster {cluster[0]}x{cluster[1]} has no CTA"
    assert said(verify_kernel(replace(SM90, cluster=cluster))) == [none]
    assert said(verify_kernel(replace(SM90, cluster=cluster, arch="a b"))) == [NAMES]
    empty = replace(TAIL, cluster=cluster)
    assert said(verify(Module({"main": ir.Program((empty,), bound(TAIL.face.symbol))}))) == [none]


# -- memory ----------------------------------------------------------------------------------------


def ring(k: ir.Kernel, number: int, **fields: Any) -> ir.Kernel:
    return replace(k, smem=tuple(replace(r, **fields) if i == number else r for i, r in enumerate(k.smem)))


def barrier(k: ir.Kernel, number: int, **fields: Any) -> ir.Kernel:
    return replace(k, barriers=tuple(replace(b, **fields) if i == number else b for i, b in enumerate(k.barriers)))


def test_rings_and_barriers_have_places_of_their_own() -> None:
    last = max(SM90.smem, key=lambda r: r.base)
    number = SM90.smem.index(last)
    end = last.base + last.tma_pitch * (last.slots - 1) + last.slot_bytes
    assert check_memory(replace(SM90, shared_bytes=end)) == []
    assert said(check_memory(replace(SM90, shared_bytes=end - 1))) == [f"ends at {end}, behind the {end - 1} shared bytes"]
    (moved,) = check_memory(ring(SM90, number, base=last.base + 512))[:1]
    assert moved.why == f"base {last.base + 512} is not a multiple of 1024, which TMA and wgmma want of a swizzled tile"
    flat = SM80.smem
    assert said(check_memory(ring(SM80, 1, base=flat[1].base - 16))) != []
    assert said(check_memory(ring(SM80, 1, base=flat[0].base + flat[0].slot_bytes * flat[0].slots - 1)))[0].startswith(
        "overlaps "
    )
    first = SM90.barriers[0]
    assert said(check_memory(barrier(SM90, 0, base=first.base + 4)))[0] == f"base {first.base + 4} is not a multiple of 8"
    near = barrier(SM90, 1, base=first.base + 8 * first.slots - 8)
    assert said(check_memory(near))[0].startswith("overlaps ")
    assert said(check_memory(replace(SM80, smem=(), barriers=()))) == ["the kernel has no such ring"] * 2
    more = SM90.smem[0].slots + 1
    assert f"{more} slots, and the kernel has {SM90.stages} stages" in said(check_memory(ring(SM90, 0, slots=more)))
    tail = replace(SM90, barriers=(*SM90.barriers, replace(first, name="late", base=SM90.shared_bytes)))
    (behind,) = check_memory(tail)
    assert behind.at.endswith(": late") and behind.why.startswith(f"ends at {SM90.shared_bytes + 8 * first.slots}, behind")


@pytest.mark.parametrize(("k", "pitch"), [(SM90, 2048), (SM80, 1536)], ids=["roles", "no roles"])
def test_slots_of_roles_begin_at_multiples_of_1024(k: ir.Kernel, pitch: int) -> None:
    last = max(k.smem, key=lambda r: r.base)
    short = ring(k, k.smem.index(last), rows=1536 // last.row_bytes)
    end = last.base + pitch * (last.slots - 1) + 1536
    assert last.slots > 1 and 1536 % last.row_bytes == 0
    assert check_memory(replace(short, shared_bytes=end, barriers=())) == []
    assert said(check_memory(replace(short, shared_bytes=end - 1, barriers=()))) == [
        f"ends at {end}, behind the {end - 1} shared bytes"
    ]


def test_a_ring_holds_the_rows_that_an_epilogue_lays_down() -> None:
    plan = sm80((64, 128, 32), 3, warp="32x32")
    by_ring = replace(plan, local_edges=(LocalEdge("acc", "relu", "smem_ring", 2),))
    k = lower_region(gemm(), Guarded(BY8, by_ring), PRESETS["sm80"])[0]
    assert isinstance(k, ir.Kernel) and (k.threads, k.cols, k.stages) == (256, 4, 3)
    (number,) = (i for i, r in enumerate(k.smem) if r.slots == 2)
    rows, row_bytes = 128, 128  # sixteen of each of 8 warps; 32 columns of fp32
    assert check_memory(k) == []
    assert check_memory(ring(k, number, rows=rows, row_bytes=row_bytes)) == []
    why = ["the epilogue lays down 128 rows of 128 bytes, which the ring does not hold"]
    assert said(check_memory(ring(k, number, rows=rows - 1, row_bytes=row_bytes))) == why
    assert said(check_memory(ring(k, number, rows=rows, row_bytes=row_bytes - 1))) == why
    assert set(said(check_memory(edited(k, change(statement_ir.Epilogue, ring="q"))))) == {
        *why,
        "2 slots, and the kernel has 3 stages",
    }


def test_a_fetch_expects_the_slots_that_it_fills() -> None:
    (fetch,) = {s for s in all_statements(FETCHED.body) if isinstance(s, statement_ir.TmaFetch)}
    size = next(r.slot_bytes for r in FETCHED.smem if r.name == fetch.dst_smem)
    less = edited(FETCHED, change(statement_ir.TmaFetch, bytes=fetch.bytes - 1))
    wrong = f"{fetch.bytes - 1} bytes are expected of {fetch.chunks} slots of {size}"
    assert set(said(check_memory(less))) == {wrong}
    other = edited(FETCHED, change(statement_ir.TmaFetch, dst_smem="q"))
    assert set(said(check_memory(other))) == {
        f"{fetch.bytes} bytes are expected of {fetch.chunks} slots of 0",
        "the kernel has no such ring",
    }


# -- tokens ----------------------------------------------------------------------------------------


def tokens(k: ir.Kernel, edit: Callable[[Any], Any], only: int | None = None) -> list[str]:
    return said(check_tokens(edited(k, edit, only)))


Q = Token("q", expr("KB - 1"))
NEVER = "token q is never given"
OTHER: list[tuple[str, ir.Kernel, Any, str]] = [
    ("a wait for nothing", SM90, change(Wait, lambda s: s.model == "mbarrier", token=(Q,)), NEVER),
    ("a wait for the other kind", SM90, change(Wait, lambda s: s.model == "wgmma_group", token=(Token("tA", expr("k")),)), "token tA is a TokLoad; TokCompute is needed"),
    ("a load of nothing", SM80, change(statement_ir.LdMatrix, in_token=Q), NEVER),
    ("a load of products", SM80, change(statement_ir.LdMatrix, in_token=Token("tMMA", expr("k"))), "token tMMA is "),
    ("a product of nothing", SM90, change(statement_ir.Wgmma, in_token=(Q,)), NEVER),
    ("a product of products", SM90, change(statement_ir.Wgmma, in_token=(Token("tMMA", expr("k")),)), "token tMMA is a TokCompute; TokLoad is needed"),
    ("an unknown barrier", SM90, change(Wait, lambda s: s.model == "mbarrier", mbarrier="q"), "barrier 'q' does not exist"),
    ("an arrival at no barrier", SM90, change(statement_ir.MBarrierArrive, mbarrier="q"), "barrier 'q' does not exist"),
    ("copies that arrive nowhere", COPIED, change(statement_ir.CopiesArrive, mbarrier="q"), "barrier 'q' does not exist"),
    ("results of nothing", FETCHED, change(statement_ir.StMatrix, in_token=Q), NEVER),
    ("no epilogue", SM90, drop(statement_ir.Epilogue), "no Epilogue"),
    ("no barrier of the cluster at the end", CLUSTER, drop(SyncThreads, lambda s: s.cluster), "no SyncThreads of the cluster at the end: a CTA may be gone when others still arrive at its barriers"),
    ("no barrier of the cluster before the roles", CLUSTER, change(SyncThreads, lambda s: s.cluster, cluster=False), "no SyncThreads of the cluster between MBarrierInit and the roles"),
    ("a fetch that nobody waits for", FETCHED, change(statement_ir.MBarrierInit, count=77), "the count is 77, "),
    ("copies that are not counted", COPIED, change(statement_ir.MBarrierInit, count=77), "the count is 77, "),
    ("a wait for no block", SM90, change(Wait, lambda s: s.model == "mbarrier", block=None), "it names no block of "),
    ("copies of two operands told by one token", SM90, change(statement_ir.TmaLoad, lambda s: s.out_token.name == "tB", out_token=Token("tA", expr("k"))), "token tA tells of copies into "),
    ("a fetch by no barrier", FETCHED, change(Wait, lambda s: s.model == "fetch", mbarrier="q"), "barrier 'q' does not exist"),
]  # fmt: skip


@pytest.mark.parametrize(("k", "edit", "why"), [o[1:] for o in OTHER], ids=[o[0] for o in OTHER])
def test_a_broken_rule_of_tokens_is_named(k: ir.Kernel, edit: Any, why: str) -> None:
    assert any(f.startswith(why) for f in tokens(k, edit)), tokens(k, edit)


def test_a_barrier_has_slots() -> None:
    why = f"barrier {SM90.barriers[0].name} has {{}} slots"
    for slots in (0, -1):
        assert why.format(slots) in said(check_tokens(barrier(SM90, 0, slots=slots)))
    assert why.format(1) not in said(check_tokens(barrier(SM90, 0, slots=1)))


def test_a_token_without_a_kind_is_never_given() -> None:
    lost = replace(SM90, tokens={n: kind for n, kind in SM90.tokens.items() if n != "tA"})
    assert "token tA is never given" in said(check_tokens(lost))


def test_barrier_models_are_those_of_the_templates_that_wait() -> None:
    sync = replace(kernel(gpu_sync()), arch="sm90")
    waits = replace(sync, body=(*sync.body, Wait((), "mbarrier")))
    assert check_tokens(sync) == []
    assert said(check_tokens(waits)) == ["a Wait by mbarrier on sm90; legal are cp_async_group"]
    assert check_tokens(PAIR) == []
    other = "barrier_model cp_async_group on sm90; it has to be mbarrier"
    assert said(check_tokens(replace(PAIR, barrier_model="cp_async_group")))[0] == other


def test_results_may_be_waited_for() -> None:
    """The producer of strict tiles waits until the epilogue has ended."""
    (idle,) = {s for s in all_statements(SM90_STRICT.body) if isinstance(s, Wait) and s.mbarrier == "idle"}
    assert idle.token[0].name == "tE" and SM90_STRICT.tokens["tE"] == "TokEpilogue"
    assert "token tE is never given" in tokens(SM90_STRICT, drop(statement_ir.Epilogue))


def test_arrivals_are_counted_for_barriers_of_their_own() -> None:
    alone = edited(COPIED, drop(statement_ir.MBarrierArrive, lambda s: s.mbarrier == "full"))
    assert any(f.endswith(", 128 arrive in each phase") for f in said(check_tokens(alone)))
    lonely = (*SM90.barriers, replace(SM90.barriers[0], name="lonely"))
    for count, wanted in ((1, ["the count is 1, 0 arrive in each phase"]), (0, [])):
        setup = statement_ir.MBarrierInit("lonely", count)
        assert said(check_tokens(replace(SM90, barriers=lonely, body=(setup, *SM90.body)))) == wanted


def test_warpgroups_that_share_rounds_arrive_one_by_one() -> None:
    (go,) = (b for b in PAIR.barriers if b.counts == "rounds")
    assert go.in_order
    apart = replace(PAIR, barriers=tuple(replace(b, counts="blocks") if b is go else b for b in PAIR.barriers))
    assert any(f.startswith("the count is ") for f in said(check_tokens(apart)))


def test_all_threads_meet_before_the_roles() -> None:
    first = next(i for i, s in enumerate(SM90.body) if isinstance(s, statement_ir.Role))
    meets = [s for s in SM90.body[:first] if isinstance(s, SyncThreads)]
    others = tuple(s for s in SM90.body if s not in meets)
    assert said(check_tokens(replace(SM90, body=(*others, *meets)))) == ["no SyncThreads between MBarrierInit and the roles"]


def test_a_cluster_ends_together() -> None:
    without = replace(CLUSTER, body=CLUSTER.body[:-1])
    assert isinstance(CLUSTER.body[-1], SyncThreads) and any("may be gone" in f for f in said(check_tokens(without)))
    alone = replace(CLUSTER, body=(*CLUSTER.body[:-1], replace(CLUSTER.body[-1], cluster=False)))
    assert any("may be gone" in f for f in said(check_tokens(alone)))


def test_what_a_kernel_waits_for_at_its_end_may_be_copies() -> None:
    ends = replace(COPIED, body=(*COPIED.body, Wait((), "cp_async_group")))
    assert check_tokens(ends) == []
    assert (
        "a Wait by cp_async_group on sm90"
        in said(check_tokens(replace(SM90, body=(*SM90.body, Wait((), "cp_async_group")))))[0]
    )


def test_sizes_are_no_part_of_a_protocol() -> None:
    from tatami.gpu.proof.protocol import protocol_hazard

    other = kernel(sm90(stages=3))
    moved = replace(other, n=var("Q"), face=replace(other.face, symbol="q"))
    assert protocol_hazard(other) is protocol_hazard(moved) is None
