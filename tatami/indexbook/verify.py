"""The seven MUSTs of spec 3 §4.3 as seven checks, and the agreement of the book with tiny and its signature.

Each check is one function over one value; `CHECKS` lists them in the spec's order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from tatami.core.algebra.simplify import simplify
from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.expr import ONE, Expr, Floor, Shape, shape_text
from tatami.core.module import Module
from tatami.indexbook.compose import MOST_TERMS, View, ViewPiece, compose, extents_of, is_affine, terms_of
from tatami.indexbook.ir import IndexBook, IndexInfo
from tatami.tiny.ir import MOVEMENT, CallOp, InputOp, Node, Program, ReduceOp

MAX_PIECES = 8
"""Maximum number of pieces of one operand without the warning W2101."""

Check: TypeAlias = Callable[[str, IndexInfo, "Context"], list[Diagnostic]]


class Context:
    """The book and tiny's nodes, which a check may read in addition to one entry."""

    def __init__(self, book: IndexBook, program: Program) -> None:
        self.book = book
        self.nodes = {n.id: n for n in program.nodes}
        self.copied: dict[str, bool] = {}

    def is_copied(self, node: Node) -> bool:
        """True if a movement value is copied: its map, composed with a movement that reads it, would pass MOST_TERMS."""
        if node.id not in self.copied:
            self.copied[node.id] = any(node.id in n.src and self._is_long(node, n) for n in self.nodes.values())
        return self.copied[node.id]

    def _is_long(self, node: Node, reader: Node) -> bool:
        info = self.book.values.get(node.id)
        if info is None or len(info.operands) != 1 or not isinstance(reader.op, MOVEMENT):
            return False
        pieces = tuple(ViewPiece(p.guards, None if p.read is None else p.read.map, p.fill) for p in info.operands[0].pieces)
        return terms_of(compose(View(node.shape, pieces), reader.op, reader.shape, reader.id).pieces) > MOST_TERMS


def verify(module: Module[IndexBook], tiny: Module[Program]) -> list[Diagnostic]:
    """All faults of the books; empty if they are well formed."""
    out: list[Diagnostic] = []
    for name, program in tiny.programs.items():
        book = module.programs.get(name)
        if book is None:
            out.append(_invalid(name, "the program has no book", "dump indexbook again from this tiny"))
            continue
        context = Context(book, program)
        out += align_params(book, program)
        for node in program.nodes:
            info = book.values.get(node.id)
            if info is None:
                out.append(_invalid(node.id, "the value has no entry", "dump indexbook again from this tiny"))
                continue
            for check in CHECKS:
                out += check(node.id, info, context)
    return out


def align_params(book: IndexBook, program: Program) -> list[Diagnostic]:
    """E1304 for each leaf whose axes do not have the sizes that the signature declares (spec 3 §4.2)."""
    out: list[Diagnostic] = []
    for node in program.nodes:
        info = book.values.get(node.id)
        if not isinstance(node.op, InputOp) or info is None:
            continue
        port = program.signature.input(node.op.tensor_id)
        if port is None:
            continue
        if len(port.shape) != len(info.axes):
            out.append(_misaligned(node.id, f"{len(info.axes)} axes", f"rank {len(port.shape)}", port.tensor))
            continue
        for axis, size in zip(info.axes, port.shape):
            if axis.size != size:
                out.append(_misaligned(node.id, f"axis {axis.name} of size {axis.size}", f"size {size}", port.tensor))
    return out


def _misaligned(at: str, have: str, want: str, tensor: str) -> Diagnostic:
    return diagnostic(
        "AxisAlignmentMismatch",
        at,
        f"the book has {have} where the signature of {tensor} has {want}",
        "write the signature's symbol in the book, or correct the signature",
    )


# -- the seven MUSTs -----------------------------------------------------------------------------


def maps_are_affine(ident: str, info: IndexInfo, context: Context) -> list[Diagnostic]:
    """MUST 1: maps are affine with floordiv, over the value's own axes; % has been expanded."""
    names = frozenset(a.name for a in (*info.axes, *info.reduced))
    out: list[Diagnostic] = []
    for e in _expressions(info):
        stray = sorted(v for v in free_vars(e) - names if _is_axis_name(v))
        if stray:
            out.append(diagnostic("AxisOutOfRange", ident, f"{e} names {stray[0]}, no axis of the value", "use its axes"))
        elif not info.flags and not is_affine(e, names):
            out.append(
                diagnostic(
                    "MissingDivGuard",
                    ident,
                    f"{e} is not affine with floordiv by integers in {', '.join(sorted(names))}",
                    "expand it by linearise and re-split, or mark the value non_scop",
                )
            )
    return out


def axes_are_numbered(ident: str, info: IndexInfo, context: Context) -> list[Diagnostic]:
    """MUST 2: axes are i0, i1, … in order, removed ones r0, r1, …; ids differ."""
    wanted = [f"i{k}" for k in range(len(info.axes))] + [f"r{k}" for k in range(len(info.reduced))]
    found = [a.name for a in (*info.axes, *info.reduced)]
    if found != wanted:
        return [_invalid(ident, f"axes are named {found}", f"name them {wanted}")]
    ids = [a.id for a in (*info.axes, *info.reduced)]
    if len(set(ids)) != len(ids):
        return [diagnostic("DuplicateId", ident, f"axis ids {ids} repeat", "give each axis its own id")]
    return []


def broadcasts_are_zero(ident: str, info: IndexInfo, context: Context) -> list[Diagnostic]:
    """MUST 3: a broadcast axis of a view does not occur in its map; an axis of size 1 of a base is read at 0."""
    out: list[Diagnostic] = []
    for axis in info.axes:
        if axis.kind != "broadcast":
            continue
        if info.is_movement and any(axis.name in free_vars(e) for e in _expressions(info)):
            out.append(_invalid(ident, f"broadcast axis {axis.name} occurs in a map", "write 0 there, or kind iter"))
        elif not info.is_movement and axis.size != ONE:
            out.append(_invalid(ident, f"axis {axis.name} of size {axis.size} is kind broadcast", "write kind iter"))
    for base, index, size in _reads(info, context):
        if size == ONE and index.as_int() is None:
            out.append(_invalid(ident, f"{base} has size 1 there and is read at {index}", "read it at 0"))
    return out


def reduce_axes_are_recorded(ident: str, info: IndexInfo, context: Context) -> list[Diagnostic]:
    """MUST 4: a reduce removes axes and records their ids, with the accumulation dtype."""
    node = context.nodes[ident]
    if not isinstance(node.op, ReduceOp):
        stray = info.reduce_axes or info.acc_dtype is not None
        return [_invalid(ident, "reduce_axes on a value that is not a reduce", "remove them")] if stray else []
    parent = context.book.values.get(node.src[0])
    if parent is None or any(a >= len(parent.axes) for a in node.op.axes):
        return []  # reported for the operand
    removed = tuple(parent.axes[a].id for a in sorted(node.op.axes))
    kept = tuple(a.id for k, a in enumerate(parent.axes) if k not in node.op.axes)
    if info.reduce_axes != removed or tuple(a.id for a in info.reduced) != removed:
        return [_invalid(ident, f"reduce_axes are {list(info.reduce_axes)}", f"write {list(removed)}")]
    if tuple(a.id for a in info.axes) != kept:
        return [_invalid(ident, f"axis ids are {[a.id for a in info.axes]}", f"the operand's are kept: {list(kept)}")]
    if info.acc_dtype != node.op.dtype:
        return [diagnostic("AccDtypeMissing", ident, f"acc_dtype is {info.acc_dtype}", f'write "acc_dtype": "{node.op.dtype}"')]
    return []


def non_affine_is_flagged(ident: str, info: IndexInfo, context: Context) -> list[Diagnostic]:
    """MUST 5: values read or written through an index tensor, and every CALL, carry non_scop."""
    must = info.gathered is not None or info.scattered is not None or isinstance(context.nodes[ident].op, CallOp)
    if must and not info.flags:
        return [_invalid(ident, "an access that is not affine has no flag", 'write "flags": ["non_scop"]')]
    return []


def denominators_are_positive(ident: str, info: IndexInfo, context: Context) -> list[Diagnostic]:
    """MUST 6: floordiv by positive numbers, in lowest terms (the algebra keeps both; documents may not)."""
    out: list[Diagnostic] = []
    for e in _expressions(info):
        if not _is_divisible(e):
            out.append(diagnostic("MissingDivGuard", ident, f"{e} divides by less than 1", "write a positive denominator"))
    return out


def _is_divisible(e: Expr) -> bool:
    return all((den := floor.den.as_int()) is None or den > 0 for floor in _floors(e))


def maps_are_simplified(ident: str, info: IndexInfo, context: Context) -> list[Diagnostic]:
    """MUST 7: movement is composed away (operands read base values) and maps are in simplest form."""
    out: list[Diagnostic] = []
    for operand in info.operands:
        for piece in operand.pieces:
            if piece.read is None:
                continue
            base = context.nodes.get(piece.read.value)
            if base is None:
                out.append(
                    diagnostic("UnknownValue", ident, f"reads {piece.read.value!r}, which is not a value", "read a base value")
                )
            elif isinstance(base.op, MOVEMENT) and not context.is_copied(base):
                out.append(_invalid(ident, f"reads the movement value {base.id}", "compose it: read its base"))
        if len(operand.pieces) > MAX_PIECES:
            out.append(
                diagnostic(
                    "ExcessivePiecewise",
                    ident,
                    f"{len(operand.pieces)} pieces; the limit for good code is {MAX_PIECES}",
                    "use one fill value in a chain of PADs, or materialise the value between them",
                )
            )
        if operand.pieces and operand.pieces[-1].guards:
            out.append(_invalid(ident, "the last piece has guards", "end with a piece that always applies"))
    if info.is_movement:
        extents = extents_of(tuple(a.size for a in info.axes))
        for e in _expressions(info):
            simpler = simplify(e, extents) if _is_divisible(e) else e
            if simpler != e:
                out.append(_invalid(ident, f"the map {e} is not in simplest form", f"write {simpler}"))
    return out


def axes_match_tiny(ident: str, info: IndexInfo, context: Context) -> list[Diagnostic]:
    """The axes have the sizes of the node's shape."""
    node: Node = context.nodes[ident]
    if isinstance(node.op, CallOp):
        return []
    shape: Shape = tuple(a.size for a in info.axes)
    if shape == node.shape:
        return []
    return [
        diagnostic(
            "AxisAlignmentMismatch",
            ident,
            f"axes have sizes {shape_text(shape)}, the node has shape {shape_text(node.shape)}",
            "dump indexbook again from this tiny",
        )
    ]


CHECKS: tuple[Check, ...] = (
    maps_are_affine,
    axes_are_numbered,
    broadcasts_are_zero,
    reduce_axes_are_recorded,
    non_affine_is_flagged,
    denominators_are_positive,
    maps_are_simplified,
    axes_match_tiny,
)
"""The checks in the spec's order."""


def _invalid(at: str, why: str, suggestion: str) -> Diagnostic:
    return diagnostic("InvalidDocument", at, why, suggestion)


def _is_axis_name(name: str) -> bool:
    return name[0] in "ir" and name[1:].isdigit()


def _expressions(info: IndexInfo) -> Iterator[Expr]:
    for operand in info.operands:
        for piece in operand.pieces:
            if piece.read is not None:
                yield from piece.read.map
            for guard in piece.guards:
                yield guard.index


def _reads(info: IndexInfo, context: Context) -> Iterator[tuple[str, Expr, Expr]]:
    for operand in info.operands:
        for piece in operand.pieces:
            base = None if piece.read is None else context.nodes.get(piece.read.value)
            if base is None or piece.read is None:
                continue
            for index, size in zip(piece.read.map, base.shape):
                yield base.id, index, size


def _floors(e: Expr) -> Iterator[Floor]:
    for mono, _ in e.terms:
        for atom in mono:
            if isinstance(atom, Floor):
                yield atom
                yield from _floors(atom.num)
                yield from _floors(atom.den)
