"""Correct kernels pass; every planted fault has a message of its own that names the statement."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tatami.core.expr import expr, var
from tatami.core.kernel import Condition
from tatami.core.target import PRESETS
from tatami.gpu import ir, statement_ir
from tatami.gpu.lower import lower_region
from tatami.gpu.proof.machine import Machine
from tatami.gpu.proof.prove import explore, simulate
from tatami.gpu.proof.state import BLOCK, END, NO_TILE, TILE, Hazard
from tatami.gpu.verify import protocol_hazard, verify_kernel
from tatami.plan.ir import Guarded
from tests.gpu.gemm_examples import gemm, sm80, sm90, sync

BY8 = tuple(Condition(var(s), 8) for s in "MNK")


def kernel(plan: Any) -> ir.Kernel:
    return lower_region(gemm(), Guarded(BY8, plan), PRESETS["sm90"])[0]


SM80 = kernel(sm80((64, 64, 32), 3, warp="32x32"))
SM80_TILES = kernel(sm80((64, 64, 32), 3, warp="32x32", overlap=True))
SM90 = kernel(sm90(stages=3))
SM90_TILES = kernel(sm90(stages=2, persistent=True, overlap=True))
SM90_STRICT = kernel(sm90(stages=2, persistent=True))


@pytest.mark.parametrize(
    "k",
    [SM80, SM80_TILES, SM90, SM90_TILES, SM90_STRICT, kernel(sync()), kernel(sm80(depth=1)), kernel(sm90(wait_depth=0))],
    ids=["sm80", "sm80 tiles", "sm90", "sm90 tiles", "sm90 strict", "sync", "sm80 depth 1", "sm90 wait 0"],
)
def test_templates_are_free_of_hazards(k: ir.Kernel) -> None:
    assert verify_kernel(k) == []


@pytest.mark.parametrize("stages", range(2, 9))
def test_every_depth_is_proved(stages: int) -> None:
    k = kernel(sm80((64, 64, 16), stages, warp="32x32"))
    assert explore(k) > 0
    simulate(k)


def test_eight_stages_of_two_warpgroups_are_proved_in_few_states() -> None:
    k = kernel(sm90((128, 64, 64), 8, persistent=True, overlap=True))
    assert 0 < explore(k) < 2000, "one order of the actors stands for all"


@pytest.mark.parametrize("k", [SM80_TILES, SM90_TILES, SM90_STRICT], ids=["sm80 tiles", "sm90 tiles", "sm90 strict"])
def test_random_orders_find_nothing_that_the_proof_did_not(k: ir.Kernel) -> None:
    machine = Machine(k)
    for seed in range(30):
        rng = random.Random(seed)
        state = machine.start()
        blocks = rng.randrange(6)
        state.stream = ((BLOCK,) * blocks + (END, TILE)) * 3 + (BLOCK,) * blocks + (END, NO_TILE)
        while ready := [i for i in range(len(state.actors)) if machine.runnable(state, i)]:
            machine.step(state, rng.choice(ready))
        assert all(machine.programs[i][a.pc].kind == "end" for i, a in enumerate(state.actors))


Edit = Callable[[statement_ir.Stmt], statement_ir.Stmt | None]


def edited(k: ir.Kernel, edit: Edit, only: int | None = None) -> ir.Kernel:
    """The kernel with `edit` on every statement; None drops one. `only`: just the n-th that the edit changes."""
    count = [0]

    def body(statements: tuple[statement_ir.Stmt, ...]) -> tuple[statement_ir.Stmt, ...]:
        out: list[statement_ir.Stmt] = []
        for s in statements:
            if isinstance(s, statement_ir.Loop | statement_ir.Role):
                out.append(msgspec.structs.replace(s, body=body(s.body)))
                continue
            new = edit(s)
            if new is not s:
                count[0] += 1
                if only is not None and count[0] - 1 != only:
                    new = s
            if new is not None:
                out.append(new)
        return tuple(out)

    new = msgspec.structs.replace(k, body=body(k.body))
    assert count[0], "the edit met nothing"
    return new


def drop(kind: type, where: Callable[[Any], bool] = lambda s: True) -> Edit:
    return lambda s: None if isinstance(s, kind) and where(s) else s


def change(kind: type, where: Callable[[Any], bool] = lambda s: True, **fields: Any) -> Edit:
    return lambda s: msgspec.structs.replace(s, **fields) if isinstance(s, kind) and where(s) else s


def is_load_wait(s: statement_ir.Wait) -> bool:
    return s.token[0].name == "tA"


def is_free_wait(s: statement_ir.Wait) -> bool:
    return s.token[0].name == "tFree"


def is_mma_wait(s: statement_ir.Wait) -> bool:
    return s.model == "wgmma_group"


FAULTS: list[tuple[str, ir.Kernel, Edit, int | None, str]] = [
    ("sm80 dropped Wait", SM80, drop(statement_ir.Wait), None, "precedes a Wait"),
    ("sm80 wait count one too high", SM80, change(statement_ir.Wait, pending=2), None, "pending groups leave tA[k] under way"),
    ("sm80 dropped barrier", SM80, drop(statement_ir.SyncThreads), None, "and a barrier after it"),
    ("sm80 missing commit in the loop", SM80, drop(statement_ir.CommitGroup), 2, "under way"),
    ("sm80 missing all commits", SM80, drop(statement_ir.CommitGroup), None, "in no committed group"),
    (
        "sm80 slot filled too early",
        SM80,
        change(statement_ir.CpAsync, lambda s: str(s.block) == "k + 2", block=expr("k + 3")),
        None,
        "holds another block",
    ),
    (
        "sm80 copy of the wrong block",
        SM80,
        change(statement_ir.CpAsync, lambda s: str(s.block) == "1", block=expr(0)),
        None,
        "was never filled",
    ),
    (
        "sm80 next tile over unread slots",
        SM80_TILES,
        drop(statement_ir.SyncThreads, lambda s: str(s.out_token[0].block) == "KB - 1"),
        None,
        "TokFree",
    ),
    ("sm90 dropped full Wait", SM90, drop(statement_ir.Wait, is_load_wait), None, "precedes a Wait"),
    ("sm90 dropped TokFree wait", SM90, drop(statement_ir.Wait, is_free_wait), None, "refilled by producer before its TokFree"),
    ("sm90 dropped TokFree arrive", SM90, drop(statement_ir.MBarrierArrive, lambda s: s.mbarrier == "empty"), None, "0 arrive"),
    ("sm90 last arrive dropped", SM90_TILES, drop(statement_ir.MBarrierArrive, lambda s: s.mbarrier == "empty"), 1, "deadlock"),
    ("sm90 wrong full phase", SM90, change(statement_ir.Wait, is_load_wait, phase=1), None, "phase of full does not match"),
    ("sm90 wrong empty phase", SM90, change(statement_ir.Wait, is_free_wait, phase=0), None, "deadlock"),
    ("sm90 mma waits dropped", SM90, drop(statement_ir.Wait, is_mma_wait), None, "the phase of empty does not match"),
    ("sm90 last TokCompute wait dropped", SM90, drop(statement_ir.Wait, is_mma_wait), 1, "no Wait for its TokCompute"),
    (
        "sm90 wait depth one too high",
        SM90,
        change(statement_ir.Wait, lambda s: s.pending == 1, pending=2),
        None,
        "leave the MMA of tMMA",
    ),
    (
        "sm90 slot freed under the MMA",
        SM90,
        change(statement_ir.MBarrierArrive, lambda s: str(s.block) == "k - 1", block=var("k")),
        None,
        "it passes while consumer 0 may still read",
    ),
    (
        "sm90 epilogue before TokCompute",
        SM90,
        change(statement_ir.Epilogue, in_token=statement_ir.Token("tA", expr("KB - 1"))),
        None,
        "TokCompute is needed",
    ),
    (
        "sm90 epilogue of an older block",
        SM90,
        change(statement_ir.Epilogue, in_token=statement_ir.Token("tMMA", expr("KB - 2"))),
        None,
        "not on the last",
    ),
    (
        "sm90 store before the epilogue",
        SM90,
        change(statement_ir.StGlobalVec, in_token=statement_ir.Token("tMMA", expr("KB - 1"))),
        None,
        "TokEpilogue is needed",
    ),
    (
        "sm90 expect_tx too small",
        SM90,
        change(statement_ir.MBarrierArrive, lambda s: s.expect_tx > 0, expect_tx=128),
        None,
        "128 bytes are expected",
    ),
    (
        "sm90 wrong count",
        SM90,
        change(statement_ir.MBarrierInit, lambda s: s.mbarrier == "empty", count=4),
        None,
        "the count is 4, 8 arrive",
    ),
    ("sm90 no init", SM90, drop(statement_ir.MBarrierInit, lambda s: s.mbarrier == "full"), None, "never initialised"),
    ("sm90 no barrier after init", SM90, drop(statement_ir.SyncThreads), None, "no SyncThreads between"),
    (
        "sm90 load on the wrong barrier",
        SM90,
        change(statement_ir.TmaLoad, lambda s: s.dst_smem == "smB", mbarrier="empty"),
        None,
        "bytes are expected",
    ),
    (
        "sm90 epilogue ahead of the strict barrier",
        SM90_STRICT,
        change(statement_ir.Wait, lambda s: s.mbarrier == "idle", phase=0),
        None,
        "deadlock",
    ),
    (
        "sync no barrier before the product",
        kernel(sync()),
        drop(statement_ir.SyncThreads, lambda s: not s.out_token),
        None,
        "TokFree",
    ),
    (
        "sync no barrier after the product",
        kernel(sync()),
        drop(statement_ir.SyncThreads, lambda s: bool(s.out_token)),
        None,
        "TokFree",
    ),
    (
        "swapped model",
        SM80,
        change(statement_ir.Wait, model="mbarrier", mbarrier="full", block=var("k")),
        None,
        "a Wait by mbarrier on sm80",
    ),
    (
        "swapped model 90",
        SM90,
        change(statement_ir.Wait, is_load_wait, model="cp_async_group"),
        None,
        "a Wait by cp_async_group on sm90",
    ),
]


@pytest.mark.parametrize(("k", "edit", "only", "words"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_a_planted_fault_is_named(k: ir.Kernel, edit: Edit, only: int | None, words: str) -> None:
    found = verify_kernel(edited(k, edit, only))
    assert found, "the fault was not seen"
    assert found[0].code == "E1505"
    assert any(words in d.why for d in found), [d.why for d in found]
    assert ": " in found[0].at


def prologue_lost(k: ir.Kernel) -> ir.Kernel:
    """The first copies of the pipeline are gone: blocks 0 .. depth - 1 never arrive."""
    first = next(i for i, s in enumerate(k.body) if isinstance(s, statement_ir.Loop))
    return msgspec.structs.replace(
        k, body=tuple(s for s in k.body[:first] if not isinstance(s, statement_ir.CpAsync)) + k.body[first:]
    )


PIPELINING: list[tuple[str, ir.Kernel, str]] = [
    (
        "a pipelined loop without the barrier at its end",
        edited(kernel(sync()), drop(statement_ir.SyncThreads, lambda s: bool(s.out_token))),
        "TokFree",
    ),
    (
        "a slot of two stages refilled while it is read",
        edited(
            kernel(sm80((64, 64, 32), 2, warp="32x32")),
            change(statement_ir.CpAsync, lambda s: str(s.block) == "k + 1", block=expr("k + 2")),
        ),
        "TokFree",
    ),
    ("copies of the prologue lost", prologue_lost(SM80), "was never filled"),
    (
        "the producer of warp roles starts at the second block",
        edited(SM90, change(statement_ir.MBarrierArrive, lambda s: s.expect_tx > 0, block=expr("k + 1"))),
        "deadlock",
    ),
    (
        "phases that start anew with the second tile",
        msgspec.structs.replace(SM90_TILES, ring_origin="tile"),
        "the phase of full does not match",
    ),
    (
        "tiles of one block whose last slot is never freed",
        edited(SM90_TILES, drop(statement_ir.MBarrierArrive, lambda s: s.mbarrier == "empty"), 1),
        "deadlock",
    ),
]
"""Faults of public compilers in pipelines of this kind (docs/planted-faults.md)."""


@pytest.mark.parametrize(("k", "words"), [f[1:] for f in PIPELINING], ids=[f[0] for f in PIPELINING])
def test_known_faults_of_pipelines_are_refused(k: ir.Kernel, words: str) -> None:
    found = verify_kernel(k)
    assert found and found[0].code == "E1505" and words in found[0].why, [d.why for d in found]


def test_a_pipeline_of_one_block_is_among_the_trip_counts() -> None:
    broken = edited(SM90_TILES, drop(statement_ir.MBarrierArrive, lambda s: s.mbarrier == "empty"), 1)
    with pytest.raises(Hazard, match="deadlock"):
        simulate(broken, (1,))
    simulate(SM90_TILES, (1,))


def test_messages_differ_between_faults() -> None:
    whys = {}
    for name, k, edit, only, _ in FAULTS:
        found = verify_kernel(edited(k, edit, only))
        whys[name] = (found[0].at, found[0].why)
    assert len(set(whys.values())) >= len(FAULTS) - 3, whys


def test_barrier_model_belongs_to_the_architecture() -> None:
    wrong = msgspec.structs.replace(SM90, barrier_model="cp_async_group")
    assert "has to be mbarrier" in verify_kernel(wrong)[0].why


def test_overlapping_rings_are_found() -> None:
    ring = msgspec.structs.replace(SM80.smem[1], base=16)
    wrong = msgspec.structs.replace(SM80, smem=(SM80.smem[0], ring))
    assert "overlaps" in verify_kernel(wrong)[0].why


def test_equal_protocols_are_explored_once() -> None:
    one = kernel(sm90(stages=3))
    assert protocol_hazard(one) is protocol_hazard(one) is None
