"""From Regions to facts (spec 3 §7, spec 5 §4): everything is computed from the Regions' own maps.

Halos of edges that poly_view has already analysed agree with these by construction (D2.11); a Region document given alone is
analysed the same way.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tatami.core.algebra.bounds import bounds
from tatami.core.algebra.visit import free_vars
from tatami.core.expr import ZERO, Expr, Floor, Var, product, var
from tatami.core.layout import size_elements
from tatami.core.module import Module
from tatami.core.renaming import renamed
from tatami.poly_core.ir import VALUE, BankHint, ComputeAt, Contraction, MinBuffer, PairDependence, PolyCore, RegionFacts
from tatami.poly_view.ir import PolyView
from tatami.region.ir import At, Binary, Let, Program, Read, ReadAt, Reduce, Ref, Region, Scan, Select, Step, Unary
from tatami.region.views.alike import OncePerForm
from tatami.region.views.dequantised import stored_operand
from tatami.region.views.kinds import contractions, epilogue_of, kind_of
from tatami.region.walk import LetUse, all_axes, index_expressions, let_shape, let_uses, lets_by_name, nodes, reads

BANKS = 32
"""Shared-memory banks of 4 bytes each (CUDA)."""
TILE = {"m": 128, "n": 128, "k": 64}
"""Widest tile of any template along an axis of each role, in elements: an extent that it divides needs no predicate."""
VECTOR_TILE = 128
"""Widest tile along an axis without a role, in elements."""


def analyse(region: Module[Program], poly_view: Module[PolyView] | None = None) -> Module[PolyCore]:
    """Facts of every Region of every program, and dependences between Regions of one program."""
    return Module({name: analyse_program(p) for name, p in region.programs.items()}, region.constants, {})


def analyse_program(program: Program) -> PolyCore:
    """Facts of the Regions of one program, and dependences between them."""
    regions = [item for item in program.body if isinstance(item, Region)]
    facts = OncePerForm(facts_of, _facts_in_names)
    return PolyCore(tuple(map(facts, regions)), tuple(pair_dependences(program)))


def _facts_in_names(facts: RegionFacts, names: Mapping[str, str], name: str) -> RegionFacts:
    """The facts of a Region called `name`, whose values are called `names[old]`."""
    return msgspec.structs.replace(renamed(facts, {VALUE: lambda value: names.get(value, value)}), region=name)


def facts_of(region: Region) -> RegionFacts:
    """All facts of one Region. An opaque Region has only its bytes."""
    kind = kind_of(region)
    found = tuple(
        Contraction(
            c.acc,
            c.batch,
            c.m,
            c.n,
            c.k,
            stored_operand(region, c.lhs),
            stored_operand(region, c.rhs),
            epilogue_of(region, c.acc),
        )
        for c in contractions(region)
    )
    closed = (
        region.opaque is None and all(is_affine(x, all_axes(region)) for x in _all_indices(region)) and not _gathers(region)
    )
    ring = tuple(dict.fromkeys(t for c in found for t in (c.lhs, c.rhs) if t))
    return RegionFacts(
        region=region.name,
        kind=kind,
        parallel_axes=parallel_axes(region),
        reduce_axes=reduce_axes(region),
        tail_axes=tail_axes(region, found),
        affine_closed=closed,
        compute_at=compute_at(region),
        min_buffer=min_buffers(region, ring),
        barrier={"cpu": "none", "sm80": "cp_async_group" if ring else "none", "sm90": "mbarrier" if ring else "none"},
        bank_hints=tuple(h for t in ring if (h := bank_hint(region, t)) is not None),
        contractions=found,
        flops=flops(region),
        bytes_read=bytes_read(region),
        bytes_written=_sum(size_elements(t.memref.layout, t.memref.shape) * t.memref.dtype.itemsize for t in region.outputs),
    )


def _sum(sizes: object) -> Expr:
    out = ZERO
    for s in sizes:  # type: ignore[attr-defined]
        out = out + s
    return out


def _all_indices(region: Region) -> list[Expr]:
    out = [x for let in region.lets for n in nodes(let.expr) for x in index_expressions(n)]
    return out + [m for y in region.yields for m in y.map or () if m is not None]


def _gathers(region: Region) -> bool:
    return any(isinstance(n, ReadAt) for let in region.lets for n in nodes(let.expr)) or any(y.indices for y in region.yields)


def is_affine(e: Expr, axes: Mapping[str, Expr]) -> bool:
    """True if `e` is affine with floordiv over `axes`: integer coefficients, constant denominators; size symbols are
    parameters."""
    for mono, _ in e.terms:
        moving = [a for a in mono if _names_axis(Expr((((a,), 1),)), axes)]
        if not moving:
            continue
        if len(mono) > 1:
            return False
        atom = moving[0]
        if isinstance(atom, Floor):
            if atom.den.as_int() is None or not is_affine(atom.num, axes):
                return False
        elif not isinstance(atom, Var):
            return False
    return True


def _names_axis(e: Expr, axes: Mapping[str, Expr]) -> bool:
    return not free_vars(e).isdisjoint(axes)


def parallel_axes(region: Region) -> tuple[str, ...]:
    """Axes of outputs along which no let carries a value: not scanned, and not written at computed positions."""
    scanned = {n.axis for let in region.lets for n in nodes(let.expr) if isinstance(n, Scan)}
    if any(y.indices or y.combine != "set" for y in region.yields):
        return ()
    lets = lets_by_name(region)
    out: dict[str, None] = {}
    for y in region.yields:
        for a in lets[y.source].axes:
            out.setdefault(a)
    return tuple(a for a in out if a not in scanned)


def reduce_axes(region: Region) -> tuple[str, ...]:
    """Axes that some reduce of the Region runs over."""
    out: dict[str, None] = {}
    for let in region.lets:
        for n in nodes(let.expr):
            if isinstance(n, Reduce):
                for a in n.axes:
                    out.setdefault(a)
    return tuple(out)


def tail_axes(region: Region, found: tuple[Contraction, ...]) -> tuple[str, ...]:
    """Axes that a tile may overhang: all of m, n, k of a contraction; else the innermost output axis and the reduced ones;
    without those whose extent the widest tile provably divides."""
    extents = all_axes(region)
    if region.opaque is not None:
        return ()
    widths: dict[str, int] = {}
    for c in found:
        for role, group in (("m", c.m), ("n", c.n), ("k", c.k)):
            whole = product(extents[a] for a in group)
            if group and not _divides(TILE[role], whole):
                widths |= {a: TILE[role] for a in group if not _divides(TILE[role], extents[a])}
    if not found:
        lets = lets_by_name(region)
        inner = [lets[y.source].axes[-1] for y in region.yields if lets[y.source].axes]
        for a in (*inner, *reduce_axes(region)):
            if not _divides(VECTOR_TILE, extents[a]):
                widths.setdefault(a, VECTOR_TILE)
    return tuple(a for a in extents if a in widths)


def _divides(tile: int, size: Expr) -> bool:
    """True if `size` is a multiple of `tile` for all values of the symbols."""
    return all(coef % tile == 0 for _, coef in size.terms)


# -- compute_at ------------------------------------------------------------------------------------


def compute_at(region: Region) -> tuple[ComputeAt, ...]:
    """For each let that another let uses: whether it can be computed inside its consumers' tile, and at what halo."""
    lets = lets_by_name(region)
    extents = all_axes(region)
    out: list[ComputeAt] = []
    used = _uses(region)
    for let in region.lets:
        uses = used.get(let.name)
        if not uses:
            continue
        halo: dict[str, int] = dict.fromkeys(let.axes, 0)
        ok = not isinstance(let.expr, Scan)
        for n, consumer in uses:
            if isinstance(n, Ref):
                continue
            for axis, entry in zip(let.axes, n.map):
                width = halo_width(entry, axis, consumer, extents)
                if width is None:
                    ok = False
                else:
                    halo[axis] = max(halo[axis], width)
        if any(halo.values()) and isinstance(let.expr, Reduce) and any(extents[a].as_int() is None for a in let.expr.axes):
            ok = False  # a contraction over a symbolic axis is never repeated
        out.append(ComputeAt(let.name, ok, halo, _halo_bytes(region, lets[let.name], halo)))
    return tuple(out)


def _uses(region: Region) -> dict[str, list[tuple[LetUse, Let]]]:
    """For each let: its references, and the let that contains each."""
    out: dict[str, list[tuple[LetUse, Let]]] = {}
    for consumer in region.lets:
        for n in let_uses(consumer.expr):
            out.setdefault(n.let, []).append((n, consumer))
    return out


def halo_width(entry: Expr, axis: str, consumer: Let, extents: Mapping[str, Expr]) -> int | None:
    """Elements beyond its own that one consumer tile needs along a producer axis read at `entry`; None if unbounded.

    ``stride*i + offset`` with offset in [lo, hi] touches, for a tile of t, ``stride*(t-1) + hi-lo+1`` elements: ``hi - lo + 1
    - stride`` beyond ``stride*t``.
    """
    stride = 1
    offset = entry
    for mono, coef in entry.terms:
        if len(mono) == 1 and isinstance(mono[0], Var) and mono[0].name in consumer.axes:
            stride = max(stride, abs(coef))
            offset = offset - var(mono[0].name) * coef
    if not is_affine(entry, extents) or free_vars(offset) & set(consumer.axes):
        r = bounds(entry, extents)
        return 0 if r is not None and r[0] == r[1] else None
    if not free_vars(entry) & set(consumer.axes) and not free_vars(offset) & extents.keys():
        return 0
    reduced = free_vars(offset) & extents.keys()
    if offset.as_name() in extents and offset == entry:
        return 0  # the consumer reduces the whole axis: its tile has all of it
    r = bounds(offset, {a: extents[a] for a in reduced})
    span = None if r is None else (r[1] - r[0]).as_int()
    return None if span is None else max(0, span + 1 - stride)


def _halo_bytes(region: Region, let: Let, halo: Mapping[str, int]) -> Expr:
    extents = all_axes(region)
    outer = product(extents[a] + halo.get(a, 0) for a in let.axes)
    return (outer - product(extents[a] for a in let.axes)) * let.dtype.itemsize


# -- storage and banks -----------------------------------------------------------------------------


def min_buffers(region: Region, ring: tuple[str, ...]) -> tuple[MinBuffer, ...]:
    """The least storage of each let and operand. Operands of contractions stream through a ring; a let that its consumers read
    at the same point stays in registers; a let that is read across a reduce or a shift needs shared storage; other tensors
    are only in memory."""
    out = [MinBuffer(p.name, "smem_ring" if p.name in ring else "gmem", 2 if p.name in ring else 1) for p in region.inputs]
    accs = {c.acc for c in contractions(region)}
    used = _uses(region)
    for let in region.lets:
        shared = False
        for n, consumer in used.get(let.name, ()):
            bound = set(consumer.expr.axes) if isinstance(consumer.expr, Reduce) else set()
            shared = shared or isinstance(n, At) or (bool(bound & set(let.axes)) and consumer.name in accs)
        out.append(MinBuffer(let.name, "smem_ring" if shared else "reg", 2 if let.name in accs or shared else 1))
    return tuple(out)


def conflict_ways(row_bytes: int, rows: int = 8, chunk: int = 16) -> int:
    """Degree of bank conflict: the most chunks of `chunk` bytes that fall into one bank if `rows` consecutive rows of pitch
    `row_bytes` are read."""
    counts = [0] * BANKS
    for r in range(rows):
        first = r * row_bytes // 4
        for b in range(chunk // 4):
            counts[(first + b) % BANKS] += 1
    return max(counts)


def bank_hint(region: Region, tensor: str) -> BankHint | None:
    """Bank conflicts of the tile rows of input `tensor`, and the swizzle that removes them; None if it is not an input."""
    memref = next((p.memref for p in region.inputs if p.name == tensor), None)
    if memref is None:
        return None
    row = TILE["k"] * min(memref.dtype.itemsize, 2)  # a k-major tile row of at most 128 bytes
    ways = conflict_ways(row)
    return BankHint(tensor, ways, f"xor{row}" if ways > 1 else "")


# -- work and traffic ------------------------------------------------------------------------------


def flops(region: Region) -> Expr:
    """Scalar operations of the Region: one per op, one per accumulation (so a fused multiply-add counts 2)."""
    extents = all_axes(region)
    total = ZERO
    for let in region.lets:
        points = product(let_shape(region, let))
        ops = sum(isinstance(n, Unary | Binary | Select) for n in nodes(let.expr))
        if isinstance(let.expr, Reduce):
            points, ops = points * product(extents[a] for a in let.expr.axes), ops + 1
        elif isinstance(let.expr, Scan):
            ops += 1
        total = total + points * ops
    return total


def bytes_read(region: Region) -> Expr:
    """Bytes read from memory: each input once, whole; for a tensor that is only gathered from, one element per gather."""
    total = ZERO
    plain: set[str] = set()
    gathered: dict[str, Expr] = {}
    for let in region.lets:
        for n in reads(let.expr):
            if isinstance(n, Read):
                plain.add(n.tensor)
            else:
                gathered[n.tensor] = gathered.get(n.tensor, ZERO) + product(let_shape(region, let))
    for p in region.inputs:
        whole = size_elements(p.memref.layout, p.memref.shape)
        total = total + (gathered[p.name] if p.name in gathered and p.name not in plain else whole) * p.memref.dtype.itemsize
    return total


# -- dependences between Regions -------------------------------------------------------------------


def pair_dependences(program: Program) -> list[PairDependence]:
    """True, anti and output dependences of items that share a buffer. An output that updates an input shares its buffer; every
    other value has its own."""
    buffer: dict[str, str] = {}
    writers: dict[str, list[str]] = {}
    readers: dict[str, list[str]] = {}
    out: list[PairDependence] = []

    def root(name: str) -> str:
        while name in buffer:
            name = buffer[name]
        return name

    for item in program.body:
        used = item.inputs if isinstance(item, Step) else tuple(p.name for p in item.inputs)
        for name in dict.fromkeys(used):
            b = root(name)
            out += [PairDependence("true", w, item.name, b) for w in writers.get(b, [])[-1:]]
        for made in item.outputs:
            updates = getattr(made, "updates", "")
            if updates:
                b = root(updates)
                out += [PairDependence("anti", r, item.name, b) for r in readers.get(b, []) if r != item.name]
                out += [PairDependence("output", w, item.name, b) for w in writers.get(b, [])[-1:]]
                readers[b] = []
                buffer[made.name] = b
            writers.setdefault(root(made.name), []).append(item.name)
        for name in dict.fromkeys(used):
            readers.setdefault(root(name), []).append(item.name)
    return list(dict.fromkeys(out))
