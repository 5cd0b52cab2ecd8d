"""The synchronous template of spec 5 §7: cooperative loads in the order of memory, a micro-tile per thread.

Thread (tx, ty) owns rows ty + i*rows and columns tx + j*cols of the tile, so that neighbouring threads store
neighbouring columns.
"""

from __future__ import annotations

from tatami.core.algebra.visit import substitute
from tatami.core.expr import Expr, var
from tatami.cu.expr_text import VALUE_TYPE, Scope, index_text, scalar_text
from tatami.cu.lines import Lines
from tatami.cu.products.epilogue import bounds_test, let_lines, stored
from tatami.gpu.ir import Kernel
from tatami.gpu.statement_ir import Epilogue, LoadTile, StGlobalVec
from tatami.region.ir import RegionExpr
from tatami.region.views.expressions import rename


def load_tile_text(k: Kernel, s: LoadTile, slot: str, l: Lines) -> None:
    """Print the load of an operand's block to `slot` in shared memory by all threads."""
    bm, bn, _ = k.tile
    is_a = s.dst_smem == k.a.ring
    o, role, extent = (k.a, "m", bm) if is_a else (k.b, "n", bn)
    assert o.value is not None
    block = index_text(s.block) if s.block.as_name() else f"({index_text(s.block)})"
    k_inner = o.major == "k" if o.param else is_a
    with l.block(f"for (int idx = tid; idx < {extent} * BK; idx += THREADS)"):
        if k_inner:
            l.add(f"const int {role}_i = idx / BK, k_i = idx % BK;")
        else:
            l.add(f"const int k_i = idx / {extent}, {role}_i = idx % {extent};")
        l.add(f"const tt_i64 {role} = {role}0 + {role}_i, kg = (tt_i64){block} * BK + k_i;")
        tests = [{"m": "m < M", "n": "n < N", "k": "kg < K"}[p] for p in s.predicate]
        value, d = scalar_text(_with_k(o.value), Scope({p.name: p.dtype for p in k.params}, {}))
        to = f"{slot}[{f'{role}_i * (BK + 1) + k_i' if is_a else f'k_i * BN + {role}_i'}]"
        zero = f"{VALUE_TYPE[d]}(0)"
        text = f"{' && '.join(tests)} ? {value} : {zero}" if tests else value
        l.add(f"{to} = {stored((f'({text})', d), o.dtype)};")


def _with_k(e: RegionExpr) -> RegionExpr:
    """The expression with kg for k, the index over the whole sum: in the text k counts blocks."""

    def index(i: Expr) -> Expr:
        return substitute(i, {"k": var("kg")})

    return rename(e, lambda t: t, index)


def fma_text(k: Kernel, slots: tuple[str, str], l: Lines) -> None:
    """Print the multiply-adds of one block, which lies in `slots`."""
    a, b = slots
    wide = VALUE_TYPE[k.acc_dtype]
    with l.block("for (int kk = 0; kk < BK; ++kk)"):
        l.add(f"{wide} a[TM], b[TN];")
        l.add(f"TT_UNROLL for (int i = 0; i < TM; ++i) a[i] = ({wide})tt_value({a}[(ty + i * {k.rows}) * (BK + 1) + kk]);")
        l.add(f"TT_UNROLL for (int j = 0; j < TN; ++j) b[j] = ({wide})tt_value({b}[kk * BN + tx + j * {k.cols}]);")
        l.add("TT_UNROLL for (int i = 0; i < TM; ++i) TT_UNROLL for (int j = 0; j < TN; ++j) acc[i][j] += a[i] * b[j];")


def sync_epilogue(k: Kernel, e: Epilogue, stores: tuple[StGlobalVec, ...], l: Lines) -> None:
    """Print the epilogue and the stores, one element of the micro-tile at a time."""
    l.add("TT_UNROLL for (int i = 0; i < TM; ++i)")
    with l.block("TT_UNROLL for (int j = 0; j < TN; ++j)"):
        l.add(f"const tt_i64 m = m0 + ty + i * {k.rows}, n = n0 + tx + j * {k.cols};")
        test = bounds_test(stores[0].pred)
        with l.block(f"if ({test})" if test else ""):
            l.add(f"const {VALUE_TYPE[k.acc_dtype]} acc_value = acc[i][j];")
            scope = let_lines(k, e.ops, l)
            for s in stores:
                to = next(p.dtype for p in k.params if p.name == s.ptr)
                l.add(f"{s.ptr}[{index_text(s.index)}] = {stored(scope.lets[s.regs], to)};")


def micro_tile(k: Kernel) -> str:
    """Declaration of the rows and columns of one thread."""
    tm, tn = k.tile[0] // k.rows, k.tile[1] // k.cols
    return f"constexpr int TM = {tm}, TN = {tn};  // of one thread"
