"""Each fault a kernel may have is planted once, and found by the message that names it.

The kernels are the printed GEMMs and the hand-written texts; a fault is a word of the text that is changed. Most of
them leave the numbers right on some GPU some of the time: what is looked at is the order, not the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from tatami.core.dtype import DType
from tatami.emulated.report import KINDS, Report
from tatami.runtime.emulated.machine import EmulatedMachine, Pointer
from tests.cu.test_compile import BY8
from tests.emulated.kernels import Built, changed
from tests.emulated.texts import CASES, eighths, machine_of, run, text_of
from tests.gpu.gemm_examples import gemm, sm80, sm90

pytestmark = pytest.mark.xdist_group("planted bugs")  # one machine for all of them


@dataclass(frozen=True)
class Bug:
    """A planted bug: `wrong` replaces `right` in `kernel`. The report is of `check` and has `words`, unless a schedule draws
    another of `also` first. `sizes` of a product: M, N, K."""

    name: str
    kernel: str
    right: str
    wrong: str
    check: str
    words: str
    also: tuple[str, ...] = ()
    sizes: tuple[int, int, int] = (144, 72, 296)


FIRE = "  tt_cp_async_commit();\n    {"
BUGS = (
    # cp.async, ldmatrix, mma.sync: three stages of 64x64x32
    Bug("the wait is missing", "gemm80", "tt_cp_async_wait<1>();", "", "in flight", "while the cp.async issued at"),
    Bug("one group too few is waited for", "gemm80", "tt_cp_async_wait<1>();", "tt_cp_async_wait<2>();", "in flight", "ldmatrix"),
    Bug("no empty group at the tail", "gemm80", FIRE, f"  if (k + 2 < KB){FIRE}", "in flight", "while the cp.async issued at"),
    Bug("the barrier is missing", "gemm80", "    tt_sync_threads();\n    if (k + 2", "    if (k + 2", "race", "no barrier orders the two"),
    Bug("a slot is filled one block early", "gemm80", "smA + (k + 2) % STAGES", "smA + (k + 1) % STAGES", "in flight", "overwrites", ("race",)),
    Bug("the ring has a slot less than the text counts", "gemm80", "smB + (k + 2) % STAGES", "smB + (k + 2) % 2", "in flight", "smB", ("race",)),
    Bug("ldmatrix forgets the swizzle", "gemm80", "tt_tile_offset<64, 64>(warp_m", "tt_tile_offset<64, 0>(warp_m", "layout", "not equally far apart"),
    Bug("the tail of m is one too long", "gemm80", "g_row < M &&", "g_row <= M &&", "out of bounds", "of A"),
    Bug("the tail of k is not predicated", "gemm80", "g_row < K && g_column < N", "g_column < N", "out of bounds", "of B"),
    Bug("the epilogue stores one row too many", "gemm80", "if (m < M && n < N) tt_store", "if (m <= M && n < N) tt_store", "out of bounds", "of C"),
    Bug("half a warp shuffles", "gemm80", "tt_quad_transpose(packed0, lane);", "if (lane < 16) tt_quad_transpose(packed0, lane);", "divergence", "shfl.sync"),
    Bug("the source of a copy is not aligned", "gemm80", "g_row * s1 + g_column :", "g_row * s1 + g_column + 1 :", "misuse", "no multiple of 16"),
    Bug("the destination of a copy is not aligned", "gemm80", "smB = tt_smem_address(smem) + 12288", "smB = tt_smem_address(smem) + 12296", "misuse", "no multiple of 16"),
    Bug("more bytes are read than copied", "gemm80", "inside ? 16 : 0);", "inside ? 32 : 0);", "misuse", "reads 32"),
    Bug("the epilogue reads the output", "gemm80", "wide0, p2 + n_first", "wide0, p3 + n_first", "uninitialised", "of C"),
    Bug("an input is written", "gemm80", "tt_store_global_v4(p3 +", "tt_store_global_v4((tt_f16*)p0 +", "out of bounds", "may only read"),
    Bug("all blocks write the first rows", "gemm80", "m = m0 + warp_m", "m = warp_m", "race", "another block wrote"),
    Bug("shared memory ends before the ring", "gemm80", "smB = tt_smem_address(smem) + 12288", "smB = tt_smem_address(smem) + 16384", "out of bounds", "shared address"),
    Bug("a copy of the prologue is lost", "gemm80", "if (1 < KB) {\n    const tt_u32 slot = smA", "if (KB < 0) {\n    const tt_u32 slot = smA", "uninitialised", "never written"),
    # TMA, mbarrier, wgmma: three stages of 128x64x64
    Bug("the wait for data is missing", "gemm90", "tt_mbarrier_wait(full + (base + k) % STAGES * 8, (base + k) / STAGES & 1);", "", "in flight", "while the TMA load issued at", ("race",)),
    Bug("the consumer waits for the phase before", "gemm90", "(base + k) / STAGES & 1);", "((base + k) / STAGES + 1) & 1);", "in flight", "TMA load", ("uninitialised", "race")),
    Bug("too few bytes are expected", "gemm90", "24576", "16384", "in flight", "TMA load", ("misuse",)),
    Bug("too many bytes are expected", "gemm90", "24576", "24704", "deadlock", "128 bytes to come"),
    Bug("a barrier counts one arrival too many", "gemm90", "tt_mbarrier_init(empty + 8 * i, 8)", "tt_mbarrier_init(empty + 8 * i, 9)", "deadlock", "1 of 9 arrivals missing"),
    Bug("the producer starts with the wrong parity", "gemm90", "((base + k) / STAGES + 1) & 1", "(base + k) / STAGES & 1", "deadlock", "of parity 0"),
    Bug("the producer does not wait for a free slot", "gemm90", "tt_mbarrier_wait(empty + (base + k) % STAGES * 8, ((base + k) / STAGES + 1) & 1);", "", "misuse", "more arrivals", ("in flight", "race")),
    Bug("a slot is given back before its wgmma ends", "gemm90", "if (k >= 1 && lane == 0) tt_mbarrier_arrive(empty + (base + k - 1)", "if (lane == 0) tt_mbarrier_arrive(empty + (base + k)", "race", "the wgmma of warpgroup", ("misuse",)),
    Bug("the epilogue does not wait", "gemm90", "    tt_wgmma_wait<0>();", "", "in flight", "a register of the wgmma issued at", ("race",)),
    Bug("a stride of the descriptor is wrong", "gemm90", "16, 1024, 128)", "16, 512, 128)", "layout", "element (m"),
    Bug("the descriptor forgets the swizzle", "gemm90", "16, 1024, 128)", "16, 1024, 64)", "layout", "of A"),
    Bug("the descriptor's offsets are exchanged", "gemm90", "8192, 1024, 128)", "1024, 8192, 128)", "in flight", "smB", ("out of bounds", "race", "layout", "uninitialised")),
    Bug("B is not transposed", "gemm90", "BN, 0, 1>", "BN, 0, 0>", "in flight", "smB", ("race", "uninitialised")),
    Bug("the k step of B is wrong", "gemm90", "slot_b + kk * 2048", "slot_b + kk * 2056", "layout", "of B", ("misuse",)),
    Bug("fresh barriers are not fenced", "gemm90", "if (tid == 0) tt_fence_mbarrier_init();", "", "proxy fence", "is not fenced"),
    Bug("fresh barriers are not awaited", "gemm90", "  tt_sync_threads();\n", "", "race", "initialises", ("misuse",)),
    Bug("wgmma without its fence", "gemm90", "tt_wgmma_fence();", "", "misuse", "without a wgmma.fence"),
    Bug("one warpgroup never gives slots back", "gemm90", "if (k >= 1 && lane", "if (group == 0 && k >= 1 && lane", "deadlock", "4 of 8 arrivals missing"),
    Bug("a swizzled tile starts off its rows", "gemm90", "smA = tt_smem_address(smem) + 1024", "smA = tt_smem_address(smem) + 1152", "misuse", "multiple of 1024"),
    Bug("the warpgroups ask for too many registers", "gemm90", "tt_setmaxnreg_inc<232>", "tt_setmaxnreg_inc<256>", "misuse", "a block has 65536"),
    Bug("descriptors differ in a warpgroup", "gemm90", "slot_b + kk * 2048", "slot_b + kk * 2048 + (lane == 3 ? 16 : 0)", "divergence", "other descriptors"),
    Bug("half a warpgroup commits", "gemm90", "tt_wgmma_commit();", "if (warp % 4 < 2) tt_wgmma_commit();", "divergence", "warpgroup"),
    # pairs of CTAs that share B, stores by TMA, two tiles each; warpgroups in turns
    Bug("slots are given back to the own CTA only", "pair90", "lane < CTAS && (lane % CLUSTER_N == rank_n)", "lane == rank", "deadlock", "4 of 8 arrivals missing"),
    Bug("a part is loaded for the own CTA only", "pair90", "(tt_u16)(3 << rank_n)", "(tt_u16)(1 << rank)", "deadlock", "bytes to come"),
    Bug("a chunk is not fenced", "pair90", "tt_fence_proxy_async();", "", "proxy fence", "fence.proxy.async is missing"),
    Bug("a chunk is written while it is stored", "pair90", "if (tid % 128 == 0) tt_bulk_wait_read<1>();", "", "race", "bulk stores of thread 128"),
    Bug("a chunk is stored while it is written", "pair90", "tt_fence_proxy_async();\n        tt_named_sync(1 + own, 128);", "tt_fence_proxy_async();", "race", "stmatrix", ("uninitialised",)),
    Bug("the last chunk is not awaited", "pair90", "if (tid % 128 == 0) tt_bulk_wait_read<0>();", "", "in flight", "wait_group.read is missing"),
    Bug("a warpgroup never gives the turn on", "turns90", "lane == 0) tt_mbarrier_arrive(turn", "lane == 99) tt_mbarrier_arrive(turn", "deadlock", "4 of 4 arrivals missing"),
    Bug("a warpgroup does not wait for its turn", "turns90", "if (0 < KB) tt_mbarrier_wait(turn", "if (KB < 0) tt_mbarrier_wait(turn", "in flight", "TMA load", ("race", "deadlock", "uninitialised", "misuse")),
    Bug("phases start anew with the second tile", "turns90", "(base + k) / STAGES & 1);", "k / STAGES & 1);", "in flight", "TMA load", ("deadlock",)),
    Bug("the last slot of a tile of one block is never freed", "turns90", "if (KB > 0 && lane == 0) tt_mbarrier_arrive(empty", "if (KB > 1 && lane == 0) tt_mbarrier_arrive(empty", "deadlock", "4 of 4 arrivals missing", (), (144, 200, 64)),
    # bulk stores
    Bug("ordinary stores are not fenced for TMA", "tma_store", "    tt_fence_proxy_async();\n", "", "proxy fence", "fence.proxy.async is missing"),
    Bug("what is fetched is not awaited", "fetch90", "      tt_mbarrier_wait(landed + 8 * own, done & 1);\n", "", "race", "ldmatrix", ("in flight", "uninitialised")),
    Bug("a lane overwrites what another has not read", "fetch90", "tt_sync_warp();  // all lanes have what lay there\n", "", "race", "may still be reading"),
    Bug("a slot is filled before it was stored", "fetch90", "      if (tid % 128 == 0) tt_bulk_wait_read<0>();\n      if", "      if", "race", "bulk stores"),
    Bug("what was fetched is read without its swizzle", "fetch90", "tt_ldmatrix_x4(fetched, smC + (own * 2 + stored % 2) * 8192 + tt_tile_offset<128, 128>", "tt_ldmatrix_x4(fetched, smC + (own * 2 + stored % 2) * 8192 + tt_tile_offset<128, 0>", "layout", "not equally far apart"),
    Bug("the store starts before all threads wrote", "tma_store", "    tt_fence_proxy_async();\n    tt_sync_threads();", "    tt_fence_proxy_async();", "race", "stmatrix", ("uninitialised",)),
    Bug("the staging tile is written while it is read", "tma_store", "    if (tid == 0) tt_bulk_wait_read<0>();\n", "", "race", "bulk stores of thread 0"),
    Bug("a store is never committed", "tma_add", "    tt_bulk_commit();\n", "", "in flight", "without committing"),
    Bug("the last store is not awaited", "tma_store", "  if (tid == 0) tt_bulk_wait<0>();\n", "", "in flight", "wait_group.read is missing"),
    Bug("a store is read back too early", "tma_add", "    tt_bulk_wait<0>();\n", "    tt_bulk_wait_read<0>();\n    back[tt_block_x() * 512] += 1;\n", "in flight", "cp.async.bulk issued at"),
    Bug("expected bytes are forgotten", "tma_add", "    tt_mbarrier_expect_tx(bar, 2048);\n", "", "in flight", "cp.async.bulk issued at", ("misuse",)),
    # clusters
    Bug("slots are given back to the own block", "cluster", "tt_mbarrier_arrive_cluster(tt_map_shared(empty, 0));", "tt_mbarrier_arrive(empty);", "deadlock", "128 of 256 arrivals missing", ("race",)),
    Bug("the tile is filled again too early", "cluster", "        tt_mbarrier_wait(empty, (k + 1) & 1);\n", "", "race", "TMA load", ("misuse", "in flight")),
    Bug("the cluster does not meet before the end", "cluster", "  tt_cluster_arrive();\n  tt_cluster_wait();\n  const", "  const", "uninitialised", "inbox", ("race", "misuse")),
    Bug("the cluster does not meet at the start", "cluster", "  tt_cluster_arrive();\n  tt_cluster_wait();\n  float", "  float", "misuse", "no barrier was initialised", ("race",)),
    Bug("a copy goes to a block outside the cluster", "cluster", "full, 3);", "full, 7);", "misuse", "a cluster of 2"),
    Bug("an address of a block outside the cluster", "cluster", "tt_map_shared(inbox, 1 - rank)", "tt_map_shared(inbox, 2 - rank)", "out of bounds", "a cluster of 2"),
    # several blocks
    Bug("a flag is set without a release", "flags", "tt_store_release(flag,", "tt_store_relaxed(flag,", "race", "another block wrote"),
    Bug("a flag is read without an acquire", "flags", "tt_load_acquire(flag)", "tt_load_relaxed(flag)", "race", "another block"),
    Bug("a flag is set before the block has written", "flags", "  partial[tid] = sum;\n  tt_sync_threads();", "  partial[tid] = sum;", "race", "another block"),
    Bug("a flag is never set", "flags", "(tt_u32)(block + 1));", "(tt_u32)block);", "deadlock", "for a change of byte 0 of flag"),
    Bug("no fence before a relaxed flag", "fences", "    tt_fence_device();\n    tt_store_relaxed", "    tt_store_relaxed", "race", "another block wrote"),
    Bug("a tile is written twice", "fences", "taken[tile] =", "taken[tile % 3] =", "race", "taken", ("race",)),
    # roles, registers, warps
    Bug("cp.async feeds wgmma without a fence", "registers", "    tt_fence_proxy_async();\n", "", "proxy fence", "cp.async"),
    Bug("B is used before it arrives", "registers", "    tt_mbarrier_wait(bar, 0);\n", "", "in flight", "cp.async"),
    Bug("named barriers count differently", "registers", "tt_named_sync(1, 256)", "tt_named_sync(1, 224)", "misuse", "bar.sync 1", ("divergence",)),
    Bug("nobody arrives at a named barrier", "registers", "    tt_named_arrive(1, 256);\n", "", "deadlock", "128 of 256 threads there"),
    Bug("registers of A change under a wgmma", "registers", "    tt_wgmma_commit();\n", "    tt_wgmma_commit();\n    x[k][0] += 1u;\n", "in flight", "a register of the wgmma"),
    Bug("an accumulator is used a group too early", "registers", "tt_wgmma_wait<1>();", "tt_wgmma_wait<3>();", "in flight", "a register of the wgmma"),
    Bug("lanes exchange without a barrier", "exchange", "  tt_sync_warp();\n", "", "uninitialised", "never written", ("race",)),
    Bug("rows are overwritten while others read", "exchange", "  tt_sync_threads();\n  row[tid] =", "  row[tid] =", "race", "may still be reading"),
    Bug("warps exchange over a warp's barrier", "exchange", "  tt_sync_threads();\n  y[tid]", "  tt_sync_warp();\n  y[tid]", "race", "no barrier orders", ("uninitialised",)),
    Bug("a vote by half a warp", "exchange", "const tt_u32 positive = tt_ballot(value > 0);", "tt_u32 positive = 0; if (lane < 16) positive = tt_ballot(value > 0);", "deadlock", "vote.sync", ("divergence",)),
    Bug("a tile of other rank than its map", "im2col", "&image, 0, -1, -1, 0, (tt_u16)(tap % 2), (tt_u16)(tap / 2), bar)", "&image, 0, -1, -1, 0, (tt_u16)(tap % 2), (tt_u16)(tap / 2), bar + 8)", "misuse", "no barrier was initialised"),
    Bug("the filter shifts further than an instruction holds", "im2col", "(tt_u16)(tap / 2), bar)", "(tt_u16)(tap / 2 * 255), bar)", "misuse", "shifts coordinate 2 by 255"),
    Bug("a phase is waited for twice", "im2col", "tt_mbarrier_wait(bar, tap & 1)", "tt_mbarrier_wait(bar, 0)", "race", "TMA im2col load", ("in flight", "deadlock")),
)  # fmt: skip


TILES: dict[str, Any] = {"persistent": True, "overlap": True, "epilogue_store": "stmatrix_tma"}
GEMMS: dict[str, tuple[str, Any]] = {
    "gemm80": ("sm80", sm80((64, 64, 32), 3, warp="32x32")),
    "gemm90": ("sm90", sm90((128, 64, 64), 3)),
    "pair90": ("sm90", sm90((64, 128, 64), 3, consumers=1, registers=(56, 224), cluster=(2, 1), multicast="b", **TILES)),
    "turns90": ("sm90", sm90((64, 64, 64), 3, schedule="pingpong", **TILES)),
    "fetch90": ("sm90", sm90((128, 64, 64), 3, consumers=1, registers=(56, 224), epilogue_load="tma", **TILES)),
}


@pytest.fixture(scope="module")
def machine() -> EmulatedMachine:
    texts = {}
    for i, bug in enumerate(BUGS):
        if bug.kernel in GEMMS:
            text = BUILT[bug.kernel].text
            name = "k0"
        else:
            text, name = text_of(bug.kernel), bug.kernel
        text = changed(bug.right, bug.wrong)(text)
        texts[f"bug{i}"] = changed(f"\n{name}(", f"\nbug{i}(")(text)
    return machine_of(texts)


RESIDUAL = {"fetch90"}
BUILT = {
    name: Built(gemm(residual=name in RESIDUAL), plan, target, BY8, load=False, sms=2) for name, (target, plan) in GEMMS.items()
}


def operands(kernel: str, m: int, n: int, k: int) -> dict[str, np.ndarray]:
    shapes = {"A": (m, k), "B": (k, n), "bias": (n,)} | ({"R": (m, n)} if kernel in RESIDUAL else {})
    return {name: eighths(*shape, dtype=np.float16) for name, shape in shapes.items()}


def report_of(machine: EmulatedMachine, bug: Bug, symbol: str, schedule: int) -> Report | None:
    if bug.kernel in GEMMS:
        m, n, k = bug.sizes
        arrays = operands(bug.kernel, m, n, k)
        return BUILT[bug.kernel].report(arrays, {"M": m, "N": n, "K": k}, schedule, machine, symbol)[0]
    case = CASES[bug.kernel]
    return run(machine, case, symbol, replace(case.shape, schedule=schedule))[0]


@pytest.mark.parametrize("number", range(len(BUGS)), ids=lambda i: f"{BUGS[i].kernel}: {BUGS[i].name}")
def test_a_planted_bug_is_named(number: int, machine: EmulatedMachine) -> None:
    bug = BUGS[number]
    found = report_of(machine, bug, f"bug{number}", 0)
    assert found is not None, "nothing was reported"
    assert (found.check, bug.words in found.text) == (bug.check, True), found
    assert (found.check in KINDS and found.line > 0) or found.check == "deadlock"
    for seed in (1, 2):
        again = report_of(machine, bug, f"bug{number}", seed)
        assert (again.check if again else "none") in (bug.check, *bug.also), again


@pytest.mark.parametrize("kernel", GEMMS)
def test_a_printed_gemm_is_never_reported(kernel: str) -> None:
    built = BUILT[kernel]
    whole = machine_of({"right": changed("\nk0(", "\nright(")(built.text)})
    arrays = operands(kernel, 72, 72, 136)
    want = np.maximum(arrays["A"].astype(float) @ arrays["B"].astype(float) + arrays["bias"] + arrays.get("R", 0), 0)
    for schedule in range(21):
        report, made = built.report(arrays, {"M": 72, "N": 72, "K": 136}, schedule, whole, "right")
        assert report is None, (schedule, report)
        np.testing.assert_allclose(made.astype(float), want, rtol=2e-3, atol=2e-3)


def test_rows_that_follow_no_formula_are_said_to_be_gathered() -> None:
    label = 'TT_SMEM_LABEL(smA, 12288, "smA");'
    scattered = changed("g_row * s1 + g_column :", "(g_row * g_row % 64) * s1 + g_column :")(BUILT["gemm80"].text)
    texts = {"bad": scattered, "good": changed(label, f"{label} TT_SMEM_GATHERED(smA, 12288);")(scattered)}
    pair = machine_of({n: changed("\nk0(", f"\n{n}(")(t) for n, t in texts.items()})
    arrays = {n: eighths(64, 64, dtype=np.float16) for n in ("A", "B")} | {"bias": eighths(64, dtype=np.float16)}
    found = {n: BUILT["gemm80"].report(arrays, {"M": 64, "N": 64, "K": 64}, 0, pair, n)[0] for n in texts}
    assert found["bad"] is not None and found["bad"].check == "layout"
    assert found["good"] is None


def test_a_kernel_that_starts_early_waits_for_the_one_before(machine: EmulatedMachine) -> None:
    texts = {"good": text_of("exchange"), "bad": changed("  tt_grid_dependency_wait();\n", "")(text_of("exchange"))}
    pair = machine_of({n: changed("\nexchange(", f"\n{n}(")(t) for n, t in texts.items()})
    x, y, z = (pair.copied(n, eighths(64), DType.fp32) for n in "xyz")
    shape = CASES["exchange"].shape
    for kernel in texts:
        assert pair.run("good", [Pointer(x, x, False), Pointer(y, y, True)], shape) is None
        found = pair.run(kernel, [Pointer(y, y, False), Pointer(z, z, True)], replace(shape, overlaps_previous=True))
        assert (found is None) == (kernel == "good")
        assert found is None or "which the kernel before may still be writing: griddepcontrol.wait is missing" in found.text
        # A buffer that the kernel only writes may still be read by the kernel before it.
        assert pair.run("good", [Pointer(x, x, False), Pointer(y, y, True)], shape) is None
        found = pair.run(kernel, [Pointer(z, z, False), Pointer(x, x, True)], replace(shape, overlaps_previous=True))
        assert (found is None) == (kernel == "good")
        assert found is None or "which the kernel before may still be reading: griddepcontrol.wait is missing" in found.text
