"""A kernel as text: the frame that all templates share, then one piece of text per statement.

prologue (sizes, tile coordinates, rings)  ->  statements of the body in order
"""

from __future__ import annotations

from typing import assert_never

from tatami.core.diagnostic import fail
from tatami.core.expr import Expr, var
from tatami.cu.copy_text import copy_text
from tatami.cu.epilogue_text import fragment_epilogue, quad_epilogue
from tatami.cu.expr_text import SHORT, STORED_TYPE, VALUE_TYPE, factor_text, index_text
from tatami.cu.lines import Lines
from tatami.cu.mma_text import mma_text, ring_fma_text, warp_tile_lines
from tatami.cu.sync_text import fma_text, load_tile_text, micro_tile, sync_epilogue
from tatami.gpu.ir import (
    Barrier,
    CommitGroup,
    CpAsync,
    Epilogue,
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
    Stmt,
    SyncThreads,
    TmaLoad,
    Wait,
    Wgmma,
    ZeroAcc,
)

GROUP = 8
"""m-tiles that a grouped tile order visits together, so that their B tiles stay in L2."""


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
        self.spans: list[tuple[int, int, Stmt]] = []
        """First and last line of each statement."""
        self.fragments: list[LdMatrix] = []
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
        l.add(f"TT_KERNEL({k.threads}, 1)")
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
                l.add(f'TT_SMEM_LABEL({r.name}, {_slot_pitch(k, r) * r.slots}, "{r.name}");')
        for b in k.barriers:
            l.add(f"const tt_u32 {b.name} = tt_smem_address(smem) + {b.base};")
            l.add(f'TT_SMEM_LABEL({b.name}, {8 * b.slots}, "{b.name}");')
        l.add("const int tid = tt_thread();")
        if k.template != "sync":
            l.add("const int lane = tid % 32, warp = tt_uniform(tid / 32);")
        else:
            l.add(f"const int tx = tid % {k.cols}, ty = tid / {k.cols};")
        whole = f", K = {index_text(k.k)}" if k.split == 1 else ""
        l.add(f"const tt_i64 M = {index_text(k.m)}, N = {index_text(k.n)}{whole};")
        if k.split == 1:
            l.add("const int KB = (int)((K + BK - 1) / BK);")
        self.coordinates()
        if k.split > 1:
            l.add(f"constexpr int SPLIT = {k.split};  // parts of k, of whole blocks; K is the end of this one")
            l.add(f"const tt_i64 k_all = {index_text(k.k)}, k_part = (k_all + SPLIT * BK - 1) / (SPLIT * BK) * BK;")
            l.add("const tt_i64 k_first = split * k_part, K = tt_min_size(k_all, k_first + k_part);")
            l.add("const int KB = K > k_first ? (int)((K - k_first + BK - 1) / BK) : 0;")
        if k.barrier_model == "cp_async_group":
            l.add(*warp_tile_lines(k))
        if k.template == "sync":
            l.add(micro_tile(k), f"{VALUE_TYPE[k.acc_dtype]} acc[TM][TN];")
        self.statements(k.body)
        l.depth -= 1
        l.add("}")
        return l.text()

    def coordinates(self) -> None:
        k, l = self.k, self.l
        names = ["m0", "n0", *(f"b{i}" for i in range(len(k.batch)))]
        if self.persistent:
            l.add("const int MT = (int)((M + BM - 1) / BM), NT = (int)((N + BN - 1) / BN);")
            l.add(f"const int tiles = MT * NT{''.join(' * (int)' + factor_text(b) for b in k.batch)};")
            l.add(f"tt_i64 {', '.join(f'{n} = 0' for n in names)};")
            with l.block("auto locate = [&](int tile)", "};"):
                l.add("int t = tile % (MT * NT);")
                if k.tile_order == "grouped":
                    self.grouped()
                    l.add("m0 = (tt_i64)(first + t % height) * BM;", "n0 = (tt_i64)(t / height) * BN;")
                elif k.grid.get("x") == "n":
                    l.add("m0 = (tt_i64)(t / NT) * BM;", "n0 = (tt_i64)(t % NT) * BN;")
                else:
                    l.add("n0 = (tt_i64)(t / MT) * BN;", "m0 = (tt_i64)(t % MT) * BM;")
                if k.batch:
                    l.add("tt_i64 z = tile / (MT * NT);")
                    self.split_batch()
            return
        at = {role: f"tt_block_{c}()" for c, role in k.grid.items()}
        if k.tile_order == "grouped" and {k.grid["x"], k.grid["y"]} == {"m", "n"}:
            l.add("const int MT = (int)((M + BM - 1) / BM), NT = (int)((N + BN - 1) / BN);")
            l.add(f"int t = tt_block_y() * {'NT' if k.grid['x'] == 'n' else 'MT'} + tt_block_x();")
            self.grouped()
            l.add("const tt_i64 m0 = (tt_i64)(first + t % height) * BM, n0 = (tt_i64)(t / height) * BN;")
        else:
            l.add(f"const tt_i64 m0 = (tt_i64){at['m']} * BM, n0 = (tt_i64){at['n']} * BN;")
        if k.split > 1:
            count = " * ".join(factor_text(b) for b in k.batch) or "1"
            l.add(f"tt_i64 z = {at['b']};", f"const tt_i64 split = z / ({count});")
            if k.batch:
                l.add(f"tt_i64 {', '.join(names[2:])};", f"z %= {count};")
                self.split_batch()
        elif k.batch:
            l.add(f"tt_i64 z = {at['b']};", f"tt_i64 {', '.join(names[2:])};")
            self.split_batch()

    def grouped(self) -> None:
        """Tiles in groups of rows: `t` counts within the group of `height` rows from row `first`."""
        self.l.add(f"const int first = t / ({GROUP} * NT) * {GROUP};")
        self.l.add(f"const int height = MT - first < {GROUP} ? MT - first : {GROUP};")
        self.l.add(f"t %= {GROUP} * NT;")

    def split_batch(self) -> None:
        count = len(self.k.batch)
        for i in range(count - 1, -1, -1):
            size = factor_text(self.k.batch[i])
            self.l.add(f"b{i} = z;" if i == 0 else f"b{i} = z % {size}; z /= {size};")

    # -- statements ------------------------------------------------------------------------------
    def statements(self, body: tuple[Stmt, ...]) -> None:
        position = 0
        while position < len(body):
            s = body[position]
            first = len(self.l.out) + 1
            if isinstance(s, Epilogue):
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
                self.tma_load(s)
            case MBarrierInit():
                b = self.barriers[s.mbarrier]
                l.add(f"if (tid == 0) for (int i = 0; i < {b.slots}; ++i) tt_mbarrier_init({b.name} + 8 * i, {s.count});")
            case MBarrierArrive():
                self.arrive(s)
            case Wait():
                self.wait(s)
            case SyncThreads():
                if self.k.barriers and self.role is None:
                    l.add("if (tid == 0) tt_fence_mbarrier_init();")
                l.add("tt_sync_threads();")
            case SetMaxNReg():
                l.add(f"tt_setmaxnreg_{s.action}<{s.registers}>();")
            case ZeroAcc():
                self.zero()
            case LdMatrix():
                self.fragments.append(s)  # printed with the Mma that uses the fragments
            case Mma() | Fma():
                self.block_math()
            case Wgmma():
                self.wgmma(s)
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
        if self.k.ring_origin == "kernel":
            l.add("int base = 0, done = 0;  // blocks and tiles before this one")
            with l.block("for (int tile = tt_block_x(); tile < tiles; tile += tt_grid_x(), base += KB, ++done)"):
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
                l.add(f"const int group = warp / 4 - {s.first};")
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
        return f"{ring.name} + ({self.position(block)}) % STAGES * {_slot_pitch(self.k, ring)}"

    def barrier(self, b: Barrier, block: Expr) -> str:
        if b.slots == 1:
            return b.name
        return f"{b.name} + ({self.position(block)}) % STAGES * 8"

    def parity(self, b: Barrier, block: Expr, phase: int) -> str:
        if b.counts == "tiles":
            return f"(done + {phase}) & 1"
        return f"(({self.position(block)}) / STAGES + {phase}) & 1" if phase else f"({self.position(block)}) / STAGES & 1"

    def wait(self, s: Wait) -> None:
        match s.model:
            case "cp_async_group":
                self.l.add(f"tt_cp_async_wait<{s.pending}>();")
            case "wgmma_group":
                self.l.add(f"tt_wgmma_wait<{s.pending}>();")
                self.hold()
            case "mbarrier":
                assert s.block is not None
                b = self.barriers[s.mbarrier]
                guard = self.guard(s.block)
                text = f"tt_mbarrier_wait({self.barrier(b, s.block)}, {self.parity(b, s.block, s.phase)});"
                self.l.add(f"if ({guard}) {text}" if guard else text)
            case _:
                assert_never(s.model)

    def arrive(self, s: MBarrierArrive) -> None:
        b = self.barriers[s.mbarrier]
        tests = [self.guard(s.block)] if self.guard(s.block) else []
        if self.role is not None and not self.role.elected:
            tests.append("lane == 0")
        at = self.barrier(b, s.block)
        text = f"tt_mbarrier_arrive_expect_tx({at}, {s.expect_tx});" if s.expect_tx else f"tt_mbarrier_arrive({at});"
        self.l.add(f"if ({' && '.join(tests)}) {text}" if tests else text)

    # -- loads -----------------------------------------------------------------------------------
    def operand(self, ring: str) -> tuple[Operand, str, int]:
        """The operand of a ring, its tile coordinate and its extent in the tile."""
        return (self.k.a, "m", self.k.tile[0]) if ring == self.k.a.ring else (self.k.b, "n", self.k.tile[1])

    def cp_async(self, s: CpAsync) -> None:
        if self.persistent and s.tile == "this" and not self.located:
            self.l.add("int tile = tt_block_x();", "locate(tile);")
            self.located = True
        if self.persistent and s.tile == "next" and not self.moved:
            names = ["m0", "n0", *(f"b{i}" for i in range(len(self.k.batch)))]
            self.l.add(f"const tt_i64 {', '.join(f'{n}_done = {n}' for n in names)};")
            self.l.add("const bool more = tile + tt_grid_x() < tiles;", "if (more) locate(tile + tt_grid_x());")
            self.moved = True
        o, role, extent = self.operand(s.dst_smem)
        ring = self.rings[s.dst_smem]
        guard = " && ".join(filter(None, ["more" if s.tile == "next" else "", self.guard(s.block)]))
        with self.l.block(f"if ({guard})" if guard else ""):
            self.l.add(f"const tt_u32 slot = {self.slot(s.block, ring)};")
            copy_text(self.k, s, o, role, extent, ring, self.l)

    def tma_load(self, s: TmaLoad) -> None:
        l = self.l
        ring = self.rings[s.dst_smem]
        at = {"k": f"({index_text(s.block)}) * BK", "m": "(int)m0", "n": "(int)n0"}
        coords = [at.get(index_text(c), f"(int){factor_text(c)}") for c in s.coords]
        bar = self.barrier(self.barriers[s.mbarrier], s.block)
        call = f"tt_tma_load_{len(coords)}d"
        if s.boxes == 1:
            l.add(f"{call}({self.slot(s.block, ring)}, &{s.desc}, {', '.join(coords)}, {bar});")
            return
        coords[0] += " + 64 * box"
        l.add(f"for (int box = 0; box < {s.boxes}; ++box)")
        offset = f" + box * {ring.slot_bytes // s.boxes}"
        l.add(f"  {call}({self.slot(s.block, ring)}{offset}, &{s.desc}, {', '.join(coords)}, {bar});")

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

    def hold(self) -> None:
        self.l.add("TT_UNROLL for (int i = 0; i < ROWS / 64; ++i) tt_wgmma_hold(acc[i]);")

    def wgmma(self, s: Wgmma) -> None:
        l, k = self.l, self.k
        ring_a, ring_b = self.rings[s.a_smem], self.rings[s.b_smem]
        kind = SHORT[k.a.dtype]
        with l.block():
            l.add(f"const tt_u32 slot_a = {self.slot(s.block, ring_a)}, slot_b = {self.slot(s.block, ring_b)};")
            self.hold()
            l.add("tt_wgmma_fence();")
            l.add(f"TT_UNROLL for (int kk = 0; kk < {s.k_steps}; ++kk)")
            with l.block("TT_UNROLL for (int i = 0; i < ROWS / 64; ++i)"):
                part = "(group * (ROWS / 64) + i)"
                a_at = f"slot_a + {part} * {64 * ring_a.row_bytes} + kk * 32"
                if s.trans_a:
                    a_at = f"slot_a + {part} * (BK * 128) + kk * 2048"
                b_at = "slot_b + kk * 2048" if s.trans_b else "slot_b + kk * 32"
                l.add(f"tt_wgmma_m64k16<tt_{kind}, BN, {int(s.trans_a)}, {int(s.trans_b)}>::run(acc[i],")
                l.add(f"    {_descriptor(a_at, ring_a, s.trans_a)},")
                l.add(f"    {_descriptor(b_at, ring_b, s.trans_b)}, 1);")
            l.add("tt_wgmma_commit();")
            self.hold()

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


def _descriptor(address: str, ring: Ring, trans: bool) -> str:
    leading, stride = ("BK * 128", "1024") if trans else ("16", str(8 * ring.row_bytes))
    return f"tt_wgmma_descriptor({address}, {leading}, {stride}, {ring.swizzle})"
