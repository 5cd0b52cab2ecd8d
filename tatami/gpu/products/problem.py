"""A contraction Region in kernel words: axes become m, n, k, b0, …, sizes s0, …, tensors p0, …

    A[b, i, k] with m = (i, j)   ->   offset(b0) + m*stride_mn + k*stride_k

Axes of one role merge into one coordinate where every operand steps through them evenly; leading m or n axes that do not merge
become batch coordinates. An MMA template has no place for k axes that do not merge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, assert_never

import msgspec

import tatami.region.ir as region_ir
from tatami.core.algebra.visit import free_vars, step_of, substitute
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, floordiv, var
from tatami.core.kernel import Condition
from tatami.core.layout import address
from tatami.gpu.ir import Groups, Operand
from tatami.gpu.products.tma_walk import Boxes, Walk, boxes_of, walk_of
from tatami.gpu.statement_ir import BlockFold
from tatami.gpu.stream_ir import Param
from tatami.region.ir import Let, Read, Ref, Region, RegionExpr
from tatami.region.views.expressions import axes_of, rename
from tatami.region.views.images.boxes import Boxed, NoWay, way_of
from tatami.region.views.images.pixels import Pixels
from tatami.region.views.partials import Partial
from tatami.region.views.product import GemmOperand, Group, gemm_view, major_of, mergeable, run_of, why_not_mma, why_not_plain
from tatami.region.views.row_groups import GROUP, RowGroups
from tatami.region.walk import rewrite, used_lets


class Store(msgspec.Struct, frozen=True):
    """A value of a tile, `value` (a let or `acc`), stored as `dtype` to `param` at `index`."""

    param: str
    dtype: DType
    value: str
    index: Expr


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A contraction, ready for a template. `a` and `b` are set if `why_not_mma` is empty (or `why_not_wgmma`, which allows fp8
    too); `a_value` and `b_value` always are."""

    region: str
    roles: dict[str, str]
    """Region axis -> m, n, k or b."""
    m: Expr
    n: Expr
    k: Expr
    batch: tuple[Expr, ...]
    a: Operand | None
    b: Operand | None
    a_value: RegionExpr
    b_value: RegionExpr
    a_dtype: DType
    b_dtype: DType
    why_not_mma: str
    why_not_wgmma: str
    acc: str
    acc_dtype: DType
    params: tuple[Param, ...]
    buffers: tuple[str, ...]
    symbols: tuple[str, ...]
    """The program's size symbols, in the order of s0, s1, …"""
    lets: tuple[Let, ...]
    stores: tuple[Store, ...]
    blocks: tuple[BlockFold, ...] = ()
    """Reductions over blocks of rows or columns, in addition to `stores`."""
    conditions: tuple[Condition, ...]
    """Conditions on s0, s1, … that the guard of this kernel promises."""
    a_walk: Walk | Boxes | str = ""
    b_walk: Walk | Boxes | str = ""
    """How TMA walks over an operand that is not a matrix, its boxes, or the reason why it has neither; empty: a matrix."""
    groups: Groups | None = None
    """Groups of rows: where their ends are read, and how many matrices there are; None: one B for all rows."""
    tf32: bool = False
    """`a` and `b` are rounded to 10 fraction bits before they are multiplied (`GemmView.tf32`)."""

    @property
    def matrices(self) -> dict[str, Expr]:
        """Counters of matrices besides the batch, with their extents: the number of the rows' group."""
        return {} if self.groups is None else {"matrix": self.groups.matrices}

    @property
    def multiplied(self) -> str:
        """The operand type of the MMA instruction: the operands' dtype, or tf32."""
        return "tf32" if self.tf32 and self.b_dtype == DType.fp32 else str(self.b_dtype)


def problem(region: Region, acc: str, conditions: tuple[Condition, ...]) -> Problem:
    """The contraction of `region` with accumulator let `acc`. Raises InvalidPlan if the Region is not a contraction."""
    view = gemm_view(region, acc)
    if isinstance(view, str):
        raise _refuse(region, view, "use a plan of kind gpu_stream or scalar for this Region")
    lhs, rhs = view.lhs, view.rhs
    m, outer_m = mergeable(view.m, lhs, view.k)
    n, outer_n = mergeable(view.n, rhs, view.k)
    batch_axes = [*zip(view.batch.axes, view.batch.sizes), *outer_m, *outer_n]
    groups = (view.batch, view.m, view.n, view.k)
    own = {GROUP, view.groups.counter} if view.groups is not None else set()
    if view.partials:
        own |= {i.name for i in (*region.iters, *region.reduce_axes)}
    words = Words(region, own | {a for g in groups for a in g.axes}, [size for g in groups for size in g.sizes])
    words.place |= {a: var(f"b{i}") for i, (a, _) in enumerate(batch_axes)}
    for role, group in (("m", m), ("n", n), ("k", view.k)):
        words.place |= _split(role, Group(group.axes, tuple(words.index(size) for size in group.sizes)))
    row_groups = None if view.groups is None else _groups(view.groups, words)
    let_name = {view.acc: "acc"} | {x.name: f"v{i}" for i, x in enumerate(view.epilogue)}
    lets = words.lets(view.epilogue, let_name, ("m", "n"))
    in_blocks = {x.output.to for x in view.partials}
    whole = [y for y in region.yields if y.to not in in_blocks]
    stores = words.stores({*view.batch.axes, *view.m.axes, *view.n.axes}, let_name, whole)
    blocks: dict[str, BlockFold] = {}
    for x in view.partials:
        along: Literal["m", "n"] = "m" if x.axis in view.m.axes else "n"
        top = blocks[x.top].ptr if x.top else ""
        blocks[x.let] = _blocks(x, along, m if along == "m" else n, words, let_name, top)

    def operand(ring: str, o: GemmOperand, group: Group) -> Operand | None:
        if why_not_plain(o, group, view.k):
            return _gathered(ring, o, group, view.k, words)
        return _plain(ring, o, group, view.k, batch_axes, words)

    def walk(o: GemmOperand, group: Group) -> Walk | Boxes | str:
        match way_of(region, view, o, group):
            case Boxed() as boxed:
                return boxes_of(boxed, words.memrefs[boxed.read.tensor], words.index)
            case Pixels() as pixels:
                return walk_of(pixels, words.memrefs[pixels.read.tensor], words.index)
            case NoWay(why=why):
                return why
            case "matrix":
                return ""
            case other:
                assert_never(other)

    a, b = operand("smA", lhs, m), operand("smB", rhs, n)
    roles = {x: "b" for x, _ in batch_axes} | {x: r for r, g in (("m", m), ("n", n), ("k", view.k)) for x in g.axes}
    return Problem(
        region=region.name,
        roles=roles,
        m=words.index(m.size),
        n=words.index(n.size),
        k=words.index(view.k.size),
        batch=tuple(words.index(s) for _, s in batch_axes),
        a=a,
        b=b,
        a_value=words.flat(lhs.expr),
        b_value=words.flat(rhs.expr),
        a_dtype=lhs.dtype,
        b_dtype=rhs.dtype,
        why_not_mma=why_not_mma(view),
        why_not_wgmma=why_not_mma(view, codes=True),
        acc=view.acc,
        acc_dtype=view.dtype,
        params=words.params,
        buffers=tuple(words.param_of),
        symbols=words.symbols,
        lets=lets,
        stores=stores,
        blocks=tuple(blocks.values()),
        conditions=words.conditions(conditions),
        a_walk=walk(lhs, view.m),
        b_walk=walk(rhs, view.n),
        groups=row_groups,
        tf32=view.tf32,
    )


def _blocks(x: Partial, role: Literal["m", "n"], group: Group, words: Words, names: Mapping[str, str], top: str) -> BlockFold:
    """A block reduction in kernel words. `t` counts the blocks of all axes of the group together."""
    count = next(i.size for i in words.region.iters if i.name == x.block)
    sizes = (*(words.index(size) for size in group.sizes[:-1]), words.index(count))
    known = dict(words.place)
    words.place |= _split("t", Group((*group.axes[:-1], x.block), sizes))
    axes = next(let.axes for let in words.region.lets if let.name == x.let)
    (store,) = words.stores(set(axes), {x.let: names[x.source]}, (x.output,))
    words.place = known
    return BlockFold(store.param, store.index, store.value, x.fn, role, top)


def lets_for(values: set[str], lets: tuple[Let, ...]) -> tuple[Let, ...]:
    """The elements of `lets` that `values` need."""
    needed = set(values)
    for let in reversed(lets):
        if let.name in needed:
            needed |= set(used_lets(let.expr))
    return tuple(x for x in lets if x.name in needed)


def _groups(g: RowGroups, words: Words) -> Groups:
    """Groups of rows in kernel words. Adds the group's number to `words`, since the addresses of the second operand use it."""
    words.place |= {GROUP: var("matrix"), g.counter: var("e")}
    param = words.param_of[g.ends.tensor]
    return Groups(param, words.index(words.at(g.ends)), words.index(g.count), words.index(g.matrices))


def swapped(p: Problem) -> Problem:
    """The transposed problem: B becomes A, and n becomes m."""
    exchange = {"m": var("n"), "n": var("m")}

    def turn(e: Expr) -> Expr:
        return substitute(e, exchange)

    def operand(o: Operand | None, ring: str) -> Operand | None:
        if o is None:
            return None
        return msgspec.structs.replace(
            o,
            ring=ring,
            gather=None if o.gather is None else turn(o.gather),
            guards=tuple(type(g)(turn(g.index), turn(g.size)) for g in o.guards),
        )

    def walk(w: Walk | Boxes | str) -> Walk | Boxes | str:
        return w if isinstance(w, str) else msgspec.structs.replace(w, coords=tuple(map(turn, w.coords)))

    return msgspec.structs.replace(
        p,
        roles={axis: {"m": "n", "n": "m"}.get(role, role) for axis, role in p.roles.items()},
        m=p.n,
        n=p.m,
        a=operand(p.b, "smA"),
        b=operand(p.a, "smB"),
        a_walk=walk(p.b_walk),
        b_walk=walk(p.a_walk),
        a_value=rename(p.b_value, str, turn),
        b_value=rename(p.a_value, str, turn),
        a_dtype=p.b_dtype,
        b_dtype=p.a_dtype,
        lets=tuple(msgspec.structs.replace(x, expr=rename(x.expr, str, turn)) for x in p.lets),
        stores=tuple(msgspec.structs.replace(s, index=turn(s.index)) for s in p.stores),
    )


class Words:
    """The map from a Region's names to its kernel's: parameters p0, …, sizes s0, …; `place` holds the axes."""

    def __init__(self, region: Region, axes: set[str], sizes: list[Expr]) -> None:
        ports: list[region_ir.Param | region_ir.Target] = [*region.inputs, *region.outputs]
        self.region = region
        self.memrefs = {p.name: p.memref for p in ports}
        self.param_of = {p.name: f"p{i}" for i, p in enumerate(ports)}
        self.params = tuple(
            Param(self.param_of[p.name], p.memref.dtype, isinstance(p, region_ir.Target), p.memref.noalias) for p in ports
        )
        self.symbols = _symbols(region, axes, sizes)
        self.place: dict[str, Expr] = {s: var(f"s{i}") for i, s in enumerate(self.symbols)}

    def index(self, e: Expr) -> Expr:
        """An index expression in kernel names."""
        return substitute(e, self.place)

    def at(self, read: Read) -> Expr:
        """Element address of a read, over the Region's axes."""
        ref = self.memrefs[read.tensor]
        return address(ref.layout, ref.shape, read.map)

    def flat(self, e: RegionExpr) -> RegionExpr:
        """An expression whose reads are element addresses, in kernel names."""
        flat = rewrite(e, lambda x: Read(x.tensor, (self.at(x),)) if isinstance(x, Read) else x)
        return rename(flat, lambda t: self.param_of[t], self.index)

    def lets(self, lets: Iterable[Let], names: Mapping[str, str], axes: tuple[str, ...]) -> tuple[Let, ...]:
        """`lets` in kernel names, over `axes`; `names` maps every let that they use."""

        def named(e: RegionExpr) -> RegionExpr:
            return rewrite(self.flat(e), lambda x: Ref(names[x.let]) if isinstance(x, Ref) else x)

        return tuple(Let(names[x.name], axes, x.dtype, named(x.expr)) for x in lets)

    def stores(
        self, axes: set[str], names: Mapping[str, str], yields: Iterable[region_ir.Yield] | None = None
    ) -> tuple[Store, ...]:
        """Stores of `yields` (None: of all yields) whose lets run over `axes`. Raises InvalidPlan if one does not."""
        out = []
        let_axes = {x.name: x.axes for x in self.region.lets}
        for y in self.region.yields if yields is None else yields:
            if set(let_axes[y.source]) != axes:
                why = f"output {y.to} does not run over all axes of the contraction"
                raise _refuse(self.region, why, "cut the Region there")
            where = y.map if y.map is not None else tuple(var(a) for a in let_axes[y.source])
            to = self.memrefs[y.to]
            at = address(to.layout, to.shape, tuple(e for e in where if e is not None))
            out.append(Store(self.param_of[y.to], to.dtype, names[y.source], self.index(at)))
        return tuple(out)

    def conditions(self, conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
        """Conditions over s0, s1, …"""
        return tuple(msgspec.structs.replace(c, size=self.index(c.size)) for c in conditions)


def _refuse(region: Region, why: str, suggestion: str) -> TatamiError:
    return fail("InvalidPlan", region.name, f"no matrix product can be formed: {why}", suggestion)


def _split(role: str, group: Group) -> dict[str, Expr]:
    """Axes of a group as functions of its one coordinate, row-major."""
    out: dict[str, Expr] = {}
    rest = var(role)
    for position in range(len(group.axes) - 1, -1, -1):
        size = group.sizes[position]
        if position == 0:
            out[group.axes[0]] = rest
        else:
            outer = floordiv(rest, size)
            out[group.axes[position]] = rest - outer * size
            rest = outer
    return out


def _gathered(ring: str, operand: GemmOperand, group: Group, k: Group, words: Words) -> Operand | None:
    """An operand copied by runs of neighbours along k, or element by element. The tile in shared memory keeps the contiguous
    axis of the tensor, so that neighbouring threads read neighbouring elements. None: `operand` is not gathered."""
    g = operand.gather
    if g is None:
        return None
    major: Literal["k", "mn"] = "mn" if group.axes and step_of(g.index, group.axes[-1]) == ONE else "k"
    guards = tuple(type(x)(words.index(x.index), words.index(x.size)) for x in g.guards)
    run = run_of(operand, k) if major == "k" else 1
    return Operand(ring, operand.dtype, words.param_of[g.tensor], major, gather=words.index(g.index), guards=guards, run=run)


def _plain(ring: str, operand: GemmOperand, group: Group, k: Group, batch: list[tuple[str, Expr]], words: Words) -> Operand:
    major = major_of(operand, group, k)
    assert operand.strides is not None and major is not None
    stride_mn = operand.strides[group.axes[-1]] if group.axes else ZERO
    stride_k = operand.strides[k.axes[-1]] if k.axes else ZERO
    offset = words.index(operand.offset)
    for i, (axis, _) in enumerate(batch):
        offset = offset + words.index(operand.strides[axis]) * var(f"b{i}")
    return Operand(
        ring,
        operand.dtype,
        words.param_of[operand.tensor],
        major,
        words.index(stride_mn),
        words.index(stride_k),
        offset,
    )


def _symbols(region: Region, axes: set[str], sizes: list[Expr]) -> tuple[str, ...]:
    """Size symbols in order of first appearance."""
    out: dict[str, None] = {}

    def see(e: Expr) -> None:
        for name in _in_order(e):
            if name not in axes:
                out.setdefault(name)

    ports: list[region_ir.Param | region_ir.Target] = [*region.inputs, *region.outputs]
    for p in ports:
        for s in p.memref.shape:
            see(s)
    for s in sizes:
        see(s)
    for let in region.lets:
        for name in sorted(axes_of(let.expr)):
            if name not in axes:
                out.setdefault(name)
    for y in region.yields:
        for i in y.map or ():
            if i is not None:
                see(i)
    return tuple(out)


def _in_order(e: Expr) -> list[str]:
    return sorted(free_vars(e))
