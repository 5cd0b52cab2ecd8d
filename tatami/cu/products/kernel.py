"""A kernel as text: the frame that all templates share (`cu/products/frame.py`), then one piece of text per statement, in order."""

from __future__ import annotations

from contextlib import nullcontext
from typing import assert_never

from tatami.core.diagnostic import fail
from tatami.core.expr import Expr, expr
from tatami.cu.expr_text import index_text
from tatami.cu.lines import Lines
from tatami.cu.products.blocks import blocks_text
from tatami.cu.products.copies import Side, copy_text
from tatami.cu.products.epilogue import Fragments, exchanged_epilogue, fragment_epilogue, quad_epilogue
from tatami.cu.products.frame import frame_text
from tatami.cu.products.mma import mma_text, ring_fma_text
from tatami.cu.products.pair import (
    begin_text,
    finish_text,
    rescale_text,
    rows_text,
    state_lines,
    weigh_text,
)
from tatami.cu.products.pair_product import result_text, scores_text
from tatami.cu.products.ring import barrier_text, guard_text, parity_text, position_text, slot_pitch, slot_text
from tatami.cu.products.sync import fma_text, load_tile_text, sync_epilogue
from tatami.cu.products.tile import pair_tile_text, part_lines
from tatami.cu.products.warpgroup import (
    chunk_head,
    hold_text,
    is_turned,
    sharing_test,
    stmatrix_text,
    tma_fetch_text,
    tma_load_text,
    tma_store_text,
    wgmma_text,
)
from tatami.gpu.ir import Kernel, Operand, Weights
from tatami.gpu.statement_ir import (
    CommitGroup,
    CopiesArrive,
    CpAsync,
    Epilogue,
    FenceAsync,
    Fma,
    GridDependency,
    LdMatrix,
    LoadTile,
    Loop,
    MBarrierArrive,
    MBarrierInit,
    Mma,
    Rescale,
    Role,
    SetMaxNReg,
    StBlocks,
    StGlobalVec,
    StMatrix,
    Stmt,
    StRows,
    SyncThreads,
    SyncWarpgroup,
    TmaFetch,
    TmaLoad,
    TmaStore,
    Wait,
    Weigh,
    Wgmma,
    ZeroAcc,
)
from tatami.gpu.views.effects import operands_of, score_names


def kernel_text(kernel: Kernel) -> str:
    """The unit of one kernel; hardware is reached through the header's functions only."""
    return _Printer(kernel).text()


def statement_at(kernel: Kernel, line: int) -> Stmt | None:
    """The innermost statement that a line of the kernel's text was printed for (lines count from 1); None for other lines."""
    printer = _Printer(kernel)
    text = printer.text().splitlines()
    around = [(last - first, s) for first, last, s in printer.spans if first <= line <= last]
    if not around:
        return None
    found = min(around, key=lambda x: x[0])[1]
    if isinstance(found, Mma) and (
        "tt_ldmatrix" in text[line - 1] or "tt_load_shared" in text[line - 1]
    ):  # fragments are loaded where they are used
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
        """The epilogue of the chunks that follow."""
        self.products: dict[str, Wgmma] = {}
        """Token that Waits name -> the product that it stands for."""
        self.persistent = kernel.groups is None and any(
            isinstance(s, Loop) and s.over == "tiles"
            for x in kernel.body
            for s in ((x,) if not isinstance(x, Role) else x.body)
        )

    def text(self) -> str:
        self.l.add(*frame_text(self.k, self.persistent).splitlines())
        self.l.depth += 1
        self.statements(self.k.body)
        self.l.depth -= 1
        self.l.add("}")
        return self.l.text()

    # -- statements ------------------------------------------------------------------------------
    def statements(self, body: tuple[Stmt, ...]) -> None:
        position = 0
        while position < len(body):
            s = body[position]
            first = len(self.l.out) + 1
            if isinstance(s, Epilogue) and any(isinstance(x, Loop) for x in body[position + 1 : position + 2]):
                self.ops = s
            elif isinstance(s, Epilogue):
                stores: list[StGlobalVec | StRows] = []
                while position + 1 < len(body) and isinstance(store := body[position + 1], StGlobalVec | StRows):
                    position += 1
                    stores.append(store)
                if stores:
                    self.epilogue(s, stores)
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
                barrier = barrier_text(self.k, self.barriers[s.mbarrier], s.block)
                ring = self.rings[s.dst_smem]
                alone = self.role is None or self.role.elected
                with nullcontext() if alone else l.block(f"if ({self.first_thread()})"):
                    tma_load_text(self.k, s, ring, slot_text(self.k, ring, s.block), barrier, l)
            case CopiesArrive():
                how = "mbarrier_arrive" if s.stored else "cp_async_arrive"
                l.add(f"tt_{how}({barrier_text(self.k, self.barriers[s.mbarrier], s.block)});")
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
            case GridDependency():
                l.add("tt_grid_dependency_wait();", "tt_grid_dependency_launch();")
            case SyncWarpgroup():
                l.add("tt_named_sync(1 + own, 128);")
            case StBlocks():
                blocks_text(self.k, s, l)
            case StMatrix():
                assert self.ops is not None
                ring = self.rings[s.dst_smem]
                stmatrix_text(self.k, s, self.ops, ring, self.turned, l)
            case TmaFetch():
                tma_fetch_text(self.k, s, self.rings[s.dst_smem], l)
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
            case Mma() | Fma() if self.k.weights is not None:
                self.pair_math(s, self.k.weights)
            case Mma() | Fma():
                self.block_math(s)
            case Weigh():
                assert self.k.weights is not None
                weigh_text(self.k, self.k.weights, s.block, l)
            case Rescale():
                assert self.k.weights is not None
                rescale_text(self.k, self.k.weights, l)
            case Wgmma():
                self.products[s.out_token.name] = s
                ring_a, ring_b = self.rings.get(s.a_smem), self.rings[s.b_smem]
                side_a = (ring_a, slot_text(self.k, ring_a, s.block)) if ring_a is not None else None
                wgmma_text(self.k, s, (side_a, (ring_b, slot_text(self.k, ring_b, s.block))), l)
            case LoadTile():
                guard = guard_text(self.k, s.block)
                with l.block(f"if ({guard})") if guard else nullcontext():
                    load_tile_text(self.k, s, self.typed_slot(s.dst_smem, s.block), l)
            case Epilogue() | StGlobalVec() | StRows():
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
            with l.block(f"TT_ROLLED for (int k = {s.first}; k < KB; ++k)"):
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
        if self.k.groups is not None:
            l.add("const tt_i64 m_end = tt_min_size(m_first + BM, M);")
            counted = self.k.ring_origin == "kernel"
            if counted:
                l.add("int base = 0;  // blocks before this part")
            with l.block(f"for (tt_i64 m0 = m_first; m0 < m_end;{' base += KB' if counted else ''})"):
                part_lines(self.k.groups, l)
                self.statements(s.body)
                l.add("m0 = M;")
            return
        if self.k.weights is not None:
            l.add("int base = 0;  // blocks before this tile")
            with l.block("for (int done = 0; done * tt_grid_x() < tiles; ++done)"):
                # reversed in odd rounds, so that no CTA has the longer tile of every round
                mine = "(done % 2 ? tt_grid_x() - 1 - tt_block_x() : tt_block_x())" if self.k.section else "tt_block_x()"
                l.add(f"const int tile = done * tt_grid_x() + {mine};", "if (tile >= tiles) break;")
                pair_tile_text(self.k, "tile", l)
                self.statements(s.body)
                l.add("base += KB;")
            return
        if self.k.units:
            l.add("int base = 0, done = 0;  // blocks and pieces before this one")
            with l.block("for (tt_i64 at = begin; at < end; at += KB, base += KB, ++done)"):
                l.add("locate(piece(at));")
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
                staged = any(r.name == "smC" for r in k.smem)
                if not s.turns and (staged or any(b.in_order for b in k.barriers)):
                    l.add("const int own = group;")
                if staged:
                    l.add("int stored = 0;  // chunks of this warpgroup")
                l.add("float acc[ROWS / 64][BN / 2];")
                if k.weights is not None:
                    state_lines(k, k.weights, l)
            if not self.persistent and self.k.groups is None:
                l.add("constexpr int base = 0;")
            if s.elected:
                with l.block(f"if ({self.first_thread()})"):
                    self.statements(body)
            else:
                self.statements(body)
        self.role = None

    # -- waits ---------------------------------------------------------------------------------
    def wait(self, s: Wait) -> None:
        match s.model:
            case "cp_async_group":
                self.l.add(f"tt_cp_async_wait<{s.pending}>();")
            case "wgmma_group":
                self.l.add(f"tt_wgmma_wait<{s.pending}>();")
                for product in dict.fromkeys(self.products[t.name] for t in s.token):
                    hold_text(product, self.l)
            case "bulk_group":
                self.l.add(f"if (tid % 128 == 0) tt_bulk_wait_read<{s.pending}>();")
            case "fetch":
                b = self.barriers[s.mbarrier]
                self.l.add(f"tt_mbarrier_wait({b.name} + 8 * own, {'done & 1' if self.persistent else '0'});")
            case "mbarrier":
                assert s.block is not None
                b = self.barriers[s.mbarrier]
                guard = guard_text(self.k, s.block)
                text = f"tt_mbarrier_wait({barrier_text(self.k, b, s.block)}, {parity_text(self.k, b, s.block, s.phase)});"
                self.l.add(f"if ({guard}) {text}" if guard else text)
            case _:
                assert_never(s.model)

    def arrive(self, s: MBarrierArrive) -> None:
        b = self.barriers[s.mbarrier]
        tests = list(filter(None, [guard_text(self.k, s.block)]))
        if self.role is not None and not self.role.elected:
            one = "lane == 0" if self.role.arrivals > 1 else self.first_thread()
            tests.append(sharing_test(self.k, s.share) if s.share else one)
        at = barrier_text(self.k, b, s.block, next_one=True)
        if s.share:
            at = f"tt_map_shared({at}, lane)"
        text = (
            f"tt_mbarrier_arrive_expect_tx({at}, {s.expect_tx});"
            if s.expect_tx
            else f"tt_mbarrier_arrive{'_cluster' if s.share else ''}({at});"
        )
        self.l.add(f"if ({' && '.join(tests)}) {text}" if tests else text)

    def first_thread(self) -> str:
        """C test that this thread is the role's first."""
        assert self.role is not None
        return f"tid == {128 * self.role.first}"

    # -- loads -----------------------------------------------------------------------------------
    def operand(self, ring: str, block: Expr) -> tuple[Operand, Side, Side]:
        """(the operand of a ring, its part of the tile, its part of the axis that the product sums over)."""
        k, (bm, bn, bk) = self.k, self.k.tile
        first = "k_first + " if k.split > 1 or k.weights is not None else ""
        along = Side("k", bk, f"{first}(tt_i64)({index_text(block)}) * BK")
        for factors in k.weights.firsts if k.weights is not None else ():
            assert k.weights is not None
            deep = Side("d", 16 * k.weights.steps, "0")
            if ring == factors.left.ring:
                return factors.left, Side("m", bm, "m0"), deep
            if ring == factors.right.ring:
                return factors.right, along, deep
        return (k.a, Side("m", bm, "m0"), along) if ring == k.a.ring else (k.b, Side("n", bn, "n0"), along)

    def cp_async(self, s: CpAsync) -> None:
        if self.persistent and s.tile == "this" and not self.located and self.k.ring_origin == "tile":
            self.l.add("int tile = tt_block_x();", "locate(tile);")
            self.located = True
        if self.persistent and s.tile == "next" and not self.moved:
            names = ["m0", "n0", *(f"b{i}" for i in range(len(self.k.batch)))]
            self.l.add(f"const tt_i64 {', '.join(f'{n}_done = {n}' for n in names)};")
            self.l.add("const bool more = tile + tt_grid_x() < tiles;", "if (more) locate(tile + tt_grid_x());")
            self.moved = True
        o, mn, inner = self.operand(s.dst_smem, s.block)
        ring = self.rings[s.dst_smem]
        guard = " && ".join(filter(None, ["more" if s.tile == "next" else "", guard_text(self.k, s.block)]))
        with self.l.block(f"if ({guard})" if guard else ""):
            self.l.add(f"const tt_u32 slot = {slot_text(self.k, ring, s.block)};")
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
        if k.weights is not None:
            begin_text(k, k.weights, l)

    def typed_slot(self, name: str, block: Expr) -> str:
        """C text of a pointer to the first element of the block's slot, in the synchronous template."""
        ring, dtype = self.rings[name], self.k.a.dtype if name == self.k.a.ring else self.k.b.dtype
        at = position_text(self.k, block)
        pitch = slot_pitch(self.k, ring) // dtype.itemsize
        return name if ring.slots == 1 else f"({name} + ({at}) % STAGES * {pitch})"

    def block_math(self, s: Mma | Fma) -> None:
        k = self.k
        if k.template == "sync":
            fma_text(k, (self.typed_slot(k.a.ring, s.block), self.typed_slot(k.b.ring, s.block)), self.l)
            return
        a, b = (self.rings[name] for name in operands_of(k, s.acc))
        slots = slot_text(k, a, s.block), slot_text(k, b, s.block)
        if isinstance(s, Mma):
            mma_text(k, s.shape, a, b, *slots, self.l)
        else:
            ring_fma_text(k, a, b, *slots, self.l)

    def pair_math(self, s: Mma | Fma, w: Weights) -> None:
        rings = [self.rings[name] for name in operands_of(self.k, s.acc)]
        if s.acc == "acc":
            (values,) = rings
            result_text(self.k, w, values, slot_text(self.k, values, s.block), self.l)
            return
        number = score_names(self.k).index(s.acc)
        left, right = rings
        slots = slot_text(self.k, left, expr(0)), slot_text(self.k, right, s.block)
        scores_text(self.k, w, number, (left, right), slots, self.l)

    # -- epilogue --------------------------------------------------------------------------------
    def epilogue(self, e: Epilogue, after: list[StGlobalVec | StRows]) -> None:
        stores = tuple(s for s in after if isinstance(s, StGlobalVec))
        l, k = self.l, self.k
        with l.block():
            m0, n0 = "m0", "n0"
            if self.persistent and k.ring_origin == "tile":
                m0, n0 = "m0_done", "n0_done"
                for i in range(len(k.batch)):
                    l.add(f"const tt_i64 b{i} = b{i}_done;")
            if k.weights is not None:
                finish_text(k, k.weights, l)
            for s in after:
                if isinstance(s, StRows):
                    rows_text(k, s, l)
            if k.template == "sync":
                sync_epilogue(k, e, stores, l)
            elif k.template == "fma":
                quad_epilogue(k, e, stores, l, m0, n0)
            elif e.ring:
                exchanged_epilogue(k, e, stores, l, self.rings[e.ring], m0, n0)
            elif k.arch == "sm80":
                tile = Fragments(
                    row_blocks=k.tile[0] // k.rows // 16,
                    column_blocks=k.tile[1] // k.cols // 8,
                    row=f"{m0} + warp_m + 16 * i + 8 * h + lane / 4",
                    column=f"{n0} + warp_n",
                    acc=lambda i, j, e_: f"acc[{i}][{j}][2 * h + {e_}]",
                )
                fragment_epilogue(k, e, stores, l, tile)
            elif stores:
                tile = Fragments(
                    row_blocks=k.tile[0] // k.rows // 64,
                    column_blocks=k.tile[1] // 8,
                    row=f"{m0} + group * ROWS + 64 * i + 16 * (warp % 4) + 8 * h + lane / 4",
                    column=n0,
                    acc=lambda i, j, e_: f"acc[{i}][4 * ({j}) + 2 * h + {e_}]",
                )
                fragment_epilogue(k, e, stores, l, tile)
