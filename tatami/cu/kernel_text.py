"""A kernel as text: the frame that all templates share, then one piece of text per statement.

prologue (sizes, tile coordinates, rings)  ->  statements of the body in order
"""

from __future__ import annotations

from typing import assert_never

from tatami.core.diagnostic import fail
from tatami.core.expr import Expr, expr, var
from tatami.cu.copy_text import Side, copy_text
from tatami.cu.epilogue_text import fragment_epilogue, quad_epilogue
from tatami.cu.expr_text import STORED_TYPE, VALUE_TYPE, index_text
from tatami.cu.lines import Lines
from tatami.cu.mma_text import mma_text, ring_fma_text, warp_tile_lines
from tatami.cu.pair_text import finish_text, result_text, scores_text, state_lines, weigh_text
from tatami.cu.sync_text import fma_text, load_tile_text, micro_tile, sync_epilogue
from tatami.cu.tile_text import tile_text
from tatami.cu.warpgroup_text import (
    chunk_head,
    hold_text,
    is_turned,
    sharing_test,
    slot_pitch,
    stmatrix_text,
    tma_load_text,
    tma_store_text,
    wgmma_text,
)
from tatami.gpu.ir import (
    Barrier,
    CommitGroup,
    CpAsync,
    Epilogue,
    FenceAsync,
    Fma,
    Kernel,
    LdMatrix,
    LoadTile,
    Loop,
    MBarrierArrive,
    MBarrierInit,
    Mma,
    Operand,
    Ring,
    Role,
    SetMaxNReg,
    StGlobalVec,
    StMatrix,
    Stmt,
    SyncThreads,
    SyncWarpgroup,
    TmaLoad,
    TmaStore,
    Wait,
    Weigh,
    Weights,
    Wgmma,
    ZeroAcc,
)


def kernel_text(kernel: Kernel) -> str:
    """The unit of one kernel; hardware is reached through the header's functions only."""
    return _Printer(kernel).text()


def statement_at(kernel: Kernel, line: int) -> Stmt | None:
    """The innermost statement that a line of the kernel's text belongs to (lines count from 1)."""
    printer = _Printer(kernel)
    text = printer.text().splitlines()
    around = [(last - first, s) for first, last, s in printer.spans if first <= line <= last]
    if not around:
        return None
    found = min(around, key=lambda x: x[0])[1]
    if isinstance(found, Mma) and "tt_ldmatrix" in text[line - 1]:  # fragments are loaded where they are used
        ring = (kernel.a if "slot_a" in text[line - 1] else kernel.b).ring
        return next(s for s in printer.fragments if s.src_smem == ring)
    return found


class _Printer:
    def __init__(self, kernel: Kernel) -> None:
        self.k = kernel
        self.l = Lines()
        self.rings = {r.name: r for r in kernel.smem}
        self.barriers = {b.name: b for b in kernel.barriers}
        self.role: Role | None = None
        self.located = False
        self.moved = False
        self.started = False
        self.turned = False
        self.spans: list[tuple[int, int, Stmt]] = []
        """First and last line of each statement."""
        self.fragments: list[LdMatrix] = []
        self.ops: Epilogue | None = None
        """Of the chunks that follow."""
        self.persistent = any(
            isinstance(s, Loop) and s.over == "tiles"
            for x in kernel.body
            for s in ((x,) if not isinstance(x, Role) else x.body)
        )

    # -- the frame -------------------------------------------------------------------------------
    def text(self) -> str:
        k, l = self.k, self.l
        l.add('#include "tatami_ptx.cuh"', '#include "tatami_math.cuh"', "")
        params = [f"{'' if p.written else 'const '}{STORED_TYPE[p.dtype]}* __restrict__ {p.name}" for p in k.params]
        params += [f"const tt_i64 s{i}" for i in range(k.face.sizes)]
        params += [f"TT_GRID_CONSTANT tt_tensor_map {m}" for m in k.maps]
        l.add(f"TT_KERNEL({k.threads}, 1)" if k.ctas == 1 else f"TT_KERNEL_CLUSTER({k.threads}, {k.ctas})")
        l.add(f"{k.face.symbol}({', '.join(params)}) {{")
        l.depth += 1
        bm, bn, bk = k.tile
        l.add(f"constexpr int BM = {bm}, BN = {bn}, BK = {bk}, STAGES = {k.stages};")
        if not k.maps:
            l.add(f"constexpr int THREADS = {k.threads};")
        l.add("TT_DYNAMIC_SMEM(smem);")
        if k.template == "sync":
            for o, r in ((k.a, k.smem[0]), (k.b, k.smem[1])):
                l.add(f"{STORED_TYPE[o.dtype]}* const {r.name} = ({STORED_TYPE[o.dtype]}*)(smem + {r.base});")
        else:
            for r in k.smem:
                l.add(f"const tt_u32 {r.name} = tt_smem_address(smem) + {r.base};")
                l.add(f'TT_SMEM_LABEL({r.name}, {slot_pitch(k, r) * r.slots}, "{r.name}");')
        for b in k.barriers:
            l.add(f"const tt_u32 {b.name} = tt_smem_address(smem) + {b.base};")
            l.add(f'TT_SMEM_LABEL({b.name}, {8 * b.slots}, "{b.name}");')
        l.add("const int tid = tt_thread();")
        if k.maps:
            l.add(f"if (tid == 0) {{ {' '.join(f'tt_prefetch_tensor_map(&{m});' for m in k.maps)} }}")
        if k.template != "sync":
            l.add("const int lane = tid % 32, warp = tt_uniform(tid / 32);")
        else:
            l.add(f"const int tx = tid % {k.cols}, ty = tid / {k.cols};")
        plain = k.split == 1 and k.weights is None
        whole = f", K = {index_text(k.k)}" if plain else ""
        l.add(f"const tt_i64 M = {index_text(k.m)}, N = {index_text(k.n)}{whole};")
        if plain:
            l.add("const int KB = (int)((K + BK - 1) / BK);")
        tile_text(k, self.persistent, l)
        if k.split > 1:
            l.add(f"constexpr int SPLIT = {k.split};  // parts of k, of whole blocks; K is the end of this one")
            l.add(f"const tt_i64 k_all = {index_text(k.k)}, k_part = (k_all + SPLIT * BK - 1) / (SPLIT * BK) * BK;")
            l.add("const tt_i64 k_first = split * k_part, K = tt_min_size(k_all, k_first + k_part);")
            l.add("const int KB = K > k_first ? (int)((K - k_first + BK - 1) / BK) : 0;")
        if k.barrier_model == "cp_async_group":
            l.add(*warp_tile_lines(k))
        if k.weights is not None:
            state_lines(l)
        if k.template == "sync":
            l.add(micro_tile(k), f"{VALUE_TYPE[k.acc_dtype]} acc[TM][TN];")
        self.statements(k.body)
        l.depth -= 1
        l.add("}")
        return l.text()

    # -- statements ------------------------------------------------------------------------------
    def statements(self, body: tuple[Stmt, ...]) -> None:
        position = 0
        while position < len(body):
            s = body[position]
            first = len(self.l.out) + 1
            if isinstance(s, Epilogue) and isinstance(body[position + 1], Loop):
                self.ops = s
            elif isinstance(s, Epilogue):
                stores = []
                while position + 1 < len(body) and isinstance(body[position + 1], StGlobalVec):
                    position += 1
                    stores.append(body[position])
                self.epilogue(s, tuple(x for x in stores if isinstance(x, StGlobalVec)))
            else:
                self.statement(s)
            self.spans.append((first, len(self.l.out), s))
            position += 1

    def statement(self, s: Stmt) -> None:
        l = self.l
        match s:
            case CpAsync():
                self.cp_async(s)
            case CommitGroup():
                l.add("tt_cp_async_commit();")
            case TmaLoad():
                barrier = self.barrier(self.barriers[s.mbarrier], s.block)
                ring = self.rings[s.dst_smem]
                tma_load_text(self.k, s, ring, self.slot(s.block, ring), barrier, l)
            case MBarrierInit():
                b = self.barriers[s.mbarrier]
                l.add(f"if (tid == 0) for (int i = 0; i < {b.slots}; ++i) tt_mbarrier_init({b.name} + 8 * i, {s.count});")
            case MBarrierArrive():
                self.arrive(s)
            case Wait():
                self.wait(s)
            case SyncThreads():
                if self.k.barriers and self.role is None and not self.started:
                    l.add("if (tid == 0) tt_fence_mbarrier_init();")
                    self.started = True
                l.add(*(("tt_cluster_arrive();", "tt_cluster_wait();") if s.cluster else ("tt_sync_threads();",)))
            case SyncWarpgroup():
                l.add("tt_named_sync(1 + own, 128);")
            case StMatrix():
                assert self.ops is not None
                ring = self.rings[s.dst_smem]
                stmatrix_text(self.k, s, self.ops, ring, self.turned, l)
            case FenceAsync():
                l.add("tt_fence_proxy_async();")
            case TmaStore():
                tma_store_text(self.k, s, self.rings[s.src_smem], l)
            case SetMaxNReg():
                l.add(f"tt_setmaxnreg_{s.action}<{s.registers}>();")
            case ZeroAcc():
                self.zero()
            case LdMatrix():
                self.fragments.append(s)  # printed with the Mma that uses the fragments
            case Mma() if self.k.weights is not None:
                self.pair_math(s, self.k.weights)
            case Mma() | Fma():
                self.block_math()
            case Weigh():
                assert self.k.weights is not None
                weigh_text(self.k, self.k.weights, l)
            case Wgmma():
                rings = self.rings[s.a_smem], self.rings[s.b_smem]
                wgmma_text(self.k, s, rings, (self.slot(s.block, rings[0]), self.slot(s.block, rings[1])), l)
            case LoadTile():
                load_tile_text(self.k, s, l)
            case Epilogue() | StGlobalVec():
                raise fail("InvalidDocument", s.__class__.__name__, "a store stands without its epilogue", "keep them together")
            case Loop():
                self.loop(s)
            case Role():
                self.in_role(s)
            case _:
                assert_never(s)

    def loop(self, s: Loop) -> None:
        l = self.l
        if s.over == "blocks":
            with l.block("TT_ROLLED for (int k = 0; k < KB; ++k)"):
                self.statements(s.body)
            return
        if s.over == "chunks":
            store = next(x for x in s.body if isinstance(x, TmaStore))
            self.turned = is_turned(store)
            rows, columns = chunk_head(self.k, self.rings[store.src_smem])
            l.add(rows)
            with l.block(columns):
                self.statements(s.body)
            return
        if self.k.ring_origin == "kernel":
            first, step, blocks = "tt_block_x()", "tt_grid_x()", "KB"
            if self.k.ctas > 1:
                first, step = f"{first} / CTAS", f"{step} / CTAS"
            if self.role is not None and self.role.turns:
                l.add("int base = own * KB, done = 0;  // blocks before this tile, own tiles before it")
                first, step, blocks = (f"{first} + own * ({step})", f"{self.role.count} * ({step})", f"{self.role.count} * KB")
            else:
                l.add("int base = 0, done = 0;  // blocks and tiles before this one")
            with l.block(f"for (int tile = {first}; tile < tiles; tile += {step}, base += {blocks}, ++done)"):
                l.add("locate(tile);")
                self.statements(s.body)
            return
        if not self.located:
            l.add("int tile = tt_block_x();", "locate(tile);")
            self.located = True
        with l.block("for (; tile < tiles; tile += tt_grid_x())"):
            self.statements(s.body)

    def in_role(self, s: Role) -> None:
        l = self.l
        self.role = s
        last = s.first + s.count - 1
        test = f"warp / 4 == {s.first}" if s.count == 1 else f"warp / 4 >= {s.first} && warp / 4 <= {last}"
        with l.block(f"if ({test})", f"}}  // {s.name}"):
            body = s.body
            if body and isinstance(body[0], SetMaxNReg):
                self.statement(body[0])
                body = body[1:]
            if s.name == "consumer":
                k = self.k
                l.add(f"constexpr int ROWS = BM / {k.rows};  // of the tile, per warpgroup")
                if s.turns:
                    l.add(f"const int own = warp / 4 - {s.first};", "constexpr int group = 0;")
                else:
                    l.add(f"const int group = warp / 4 - {s.first};")
                if any(r.name == "smC" for r in k.smem):
                    l.add(*(() if s.turns else ("const int own = group;",)), "int stored = 0;  // chunks of this warpgroup")
                l.add("float acc[ROWS / 64][BN / 2];")
            if not self.persistent:
                l.add("constexpr int base = 0;")
            if s.elected:
                with l.block(f"if (tid == {128 * s.first})"):
                    self.statements(body)
            else:
                self.statements(body)
        self.role = None

    # -- blocks, slots, phases -------------------------------------------------------------------
    def guard(self, block: Expr) -> str:
        """Test that the block exists; "" where the loop says so."""
        text = index_text(block)
        if text == "k":
            return ""
        c = block.as_int()
        if c is not None:
            return f"{c} < KB"
        if text == "KB - 1":
            return "KB > 0"
        return f"{text.replace('k - ', 'k >= ')}" if text.startswith("k - ") else f"{text} < KB"

    def position(self, block: Expr) -> str:
        text = index_text(block)
        return text if self.k.ring_origin == "tile" else f"base + {text}"

    def slot(self, block: Expr, ring: Ring) -> str:
        if ring.slots == 1:
            return ring.name
        return f"{ring.name} + ({self.position(block)}) % STAGES * {slot_pitch(self.k, ring)}"

    def barrier(self, b: Barrier, block: Expr) -> str:
        if b.slots == 1:
            return b.name
        return f"{b.name} + ({self.position(block)}) % STAGES * 8"

    def parity(self, b: Barrier, block: Expr, phase: int) -> str:
        if b.counts == "turns":
            return f"(done + (own == 0 ? {phase} : {1 - phase})) & 1"
        if b.counts == "tiles":
            return f"(done + {phase}) & 1"
        return f"(({self.position(block)}) / STAGES + {phase}) & 1" if phase else f"({self.position(block)}) / STAGES & 1"

    def wait(self, s: Wait) -> None:
        match s.model:
            case "cp_async_group":
                self.l.add(f"tt_cp_async_wait<{s.pending}>();")
            case "wgmma_group":
                self.l.add(f"tt_wgmma_wait<{s.pending}>();")
                hold_text(self.l)
            case "bulk_group":
                self.l.add(f"if (tid % 128 == 0) tt_bulk_wait_read<{s.pending}>();")
            case "mbarrier":
                assert s.block is not None
                b = self.barriers[s.mbarrier]
                guard = self.guard(s.block)
                at = f"{b.name} + 8 * own" if b.counts == "turns" else self.barrier(b, s.block)
                text = f"tt_mbarrier_wait({at}, {self.parity(b, s.block, s.phase)});"
                self.l.add(f"if ({guard}) {text}" if guard else text)
            case _:
                assert_never(s.model)

    def arrive(self, s: MBarrierArrive) -> None:
        b = self.barriers[s.mbarrier]
        tests = [self.guard(s.block)] if self.guard(s.block) else []
        if self.role is not None and not self.role.elected:
            tests.append(sharing_test(self.k, s.share) if s.share else "lane == 0")
        at = f"{b.name} + 8 * ((own + 1) % {b.slots})" if b.counts == "turns" else self.barrier(b, s.block)
        if s.share:
            at = f"tt_map_shared({at}, lane)"
        text = (
            f"tt_mbarrier_arrive_expect_tx({at}, {s.expect_tx});"
            if s.expect_tx
            else f"tt_mbarrier_arrive{'_cluster' if s.share else ''}({at});"
        )
        self.l.add(f"if ({' && '.join(tests)}) {text}" if tests else text)

    # -- loads -----------------------------------------------------------------------------------
    def operand(self, ring: str, block: Expr) -> tuple[Operand, Side, Side]:
        """The operand of a ring, the part of the tile that it spans, and the part of the axis that the product sums over."""
        k, (bm, bn, bk) = self.k, self.k.tile
        first = "k_first + " if k.split > 1 or k.weights is not None else ""
        along = Side("k", bk, f"{first}(tt_i64)({index_text(block)}) * BK")
        if k.weights is not None and ring == k.weights.left.ring:
            return k.weights.left, Side("m", bm, "m0"), Side("d", 16 * k.weights.steps, "0")
        if k.weights is not None and ring == k.weights.right.ring:
            return k.weights.right, along, Side("d", 16 * k.weights.steps, "0")
        return (k.a, Side("m", bm, "m0"), along) if ring == k.a.ring else (k.b, Side("n", bn, "n0"), along)

    def cp_async(self, s: CpAsync) -> None:
        if self.persistent and s.tile == "this" and not self.located:
            self.l.add("int tile = tt_block_x();", "locate(tile);")
            self.located = True
        if self.persistent and s.tile == "next" and not self.moved:
            names = ["m0", "n0", *(f"b{i}" for i in range(len(self.k.batch)))]
            self.l.add(f"const tt_i64 {', '.join(f'{n}_done = {n}' for n in names)};")
            self.l.add("const bool more = tile + tt_grid_x() < tiles;", "if (more) locate(tile + tt_grid_x());")
            self.moved = True
        o, mn, inner = self.operand(s.dst_smem, s.block)
        ring = self.rings[s.dst_smem]
        guard = " && ".join(filter(None, ["more" if s.tile == "next" else "", self.guard(s.block)]))
        with self.l.block(f"if ({guard})" if guard else ""):
            self.l.add(f"const tt_u32 slot = {self.slot(s.block, ring)};")
            copy_text(self.k, s, o, mn, inner, ring, self.l)

    # -- math ------------------------------------------------------------------------------------
    def zero(self) -> None:
        l, k = self.l, self.k
        if k.template in ("sync", "fma"):
            l.add("TT_UNROLL for (int i = 0; i < TM; ++i) TT_UNROLL for (int j = 0; j < TN; ++j) acc[i][j] = 0;")
        elif k.arch == "sm80":
            l.add("TT_UNROLL for (int i = 0; i < WM / 16; ++i) TT_UNROLL for (int j = 0; j < WN / 8; ++j)")
            l.add("  TT_UNROLL for (int e = 0; e < 4; ++e) acc[i][j][e] = 0.0f;")
        else:
            l.add("TT_UNROLL for (int i = 0; i < ROWS / 64; ++i) TT_UNROLL for (int e = 0; e < BN / 2; ++e) acc[i][e] = 0.0f;")

    def block_math(self) -> None:
        k = self.k
        if k.template == "sync":
            fma_text(k, self.l)
            return
        block = var("k")
        rings = self.rings[k.a.ring], self.rings[k.b.ring]
        slots = self.slot(block, rings[0]), self.slot(block, rings[1])
        (mma_text if k.template == "mma" else ring_fma_text)(k, *rings, *slots, self.l)

    def pair_math(self, s: Mma, w: Weights) -> None:
        left, right, values = (self.rings[o.ring] for o in (w.left, w.right, self.k.b))
        if s.acc == "scores":
            slots = self.slot(expr(0), left), self.slot(s.block, right)
            scores_text(self.k, w, (left, right), slots, self.l)
        else:
            result_text(self.k, values, self.slot(s.block, values), self.l)

    # -- epilogue --------------------------------------------------------------------------------
    def epilogue(self, e: Epilogue, stores: tuple[StGlobalVec, ...]) -> None:
        l, k = self.l, self.k
        with l.block():
            m0, n0 = "m0", "n0"
            if self.persistent and k.ring_origin == "tile":
                m0, n0 = "m0_done", "n0_done"
                for i in range(len(k.batch)):
                    l.add(f"const tt_i64 b{i} = b{i}_done;")
            if k.template == "sync":
                sync_epilogue(k, e, stores, l)
            elif k.template == "fma":
                quad_epilogue(k, e, stores, l, m0, n0)
            elif k.arch == "sm80":
                if k.weights is not None:
                    finish_text(k, k.weights, l)
                fragment_epilogue(
                    k,
                    e,
                    stores,
                    l,
                    row_blocks=k.tile[0] // k.rows // 16,
                    column_blocks=k.tile[1] // k.cols // 8,
                    row=f"{m0} + warp_m + 16 * i + 8 * h + lane / 4",
                    column=f"{n0} + warp_n",
                    acc=lambda i, j, e_: f"acc[{i}][{j}][2 * h + {e_}]",
                )
            else:
                fragment_epilogue(
                    k,
                    e,
                    stores,
                    l,
                    row_blocks=k.tile[0] // k.rows // 64,
                    column_blocks=k.tile[1] // 8,
                    row=f"{m0} + group * ROWS + 64 * i + 16 * (warp % 4) + 8 * h + lane / 4",
                    column=n0,
                    acc=lambda i, j, e_: f"acc[{i}][4 * ({j}) + 2 * h + {e_}]",
                )


def _slot_pitch(kernel: Kernel, ring: Ring) -> int:
    """Bytes from one slot to the next; TMA slots start at multiples of 1024."""
    return -(-ring.slot_bytes // 1024) * 1024 if kernel.arch == "sm90" and kernel.maps else ring.slot_bytes
