"""Shape in which a value is stored between Regions.

If all readers see a value through the same transpose and reshape, it is stored the way they see it, provided that this turns
divided indices into plain ones: heads are joined where attention writes, not where the projection reads.

    O [b, h, m, d] read at [b, k//64, m, k - 64*(k//64)]   ->   stored as n40 [b, m, 64*h + d], read at [b, m, k]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tatami.core.algebra.inverse import invert
from tatami.core.algebra.simplify import simplify
from tatami.core.algebra.visit import substitute
from tatami.core.expr import Expr, Floor
from tatami.indexbook.ir import IndexBook
from tatami.poly_view.ir import PolyAccess, Statement
from tatami.region.partition_ir import Partition
from tatami.tiny.ir import MOVEMENT, Program

MAX_CANDIDATES = 8
"""Maximum number of movements of one value that are tried, to bound compile time."""


class Stored(msgspec.Struct, frozen=True):
    """The movement `name`, stored instead of a base value; its coordinates over the base value's axes i0, i1, …"""

    name: str
    coordinates: tuple[Expr, ...]


def choose_storage(
    program: Program,
    book: IndexBook,
    statements: Mapping[str, Statement],
    readers: Mapping[str, set[str]],
    partition: Partition,
) -> dict[str, Stored]:
    """Value → the movement that is stored instead of it, for values that are better stored so."""
    home: dict[str, set[int]] = {}
    for k, group in enumerate(partition.groups):
        for v in group.values:
            home.setdefault(v, set()).add(k)
    outside: dict[str, list[tuple[Statement, PolyAccess]]] = {}
    for s in statements.values():
        for a in s.reads:
            if a.tensor in statements and home.get(a.tensor) != home.get(s.value):
                outside.setdefault(a.tensor, []).append((s, a))
    wanted = {v for v, reads in outside.items() if any(_divides(a.map) for _, a in reads)}
    wanted = {
        v
        for v in wanted
        if readers[v] <= statements.keys()
        and len(home.get(v, ())) == 1
        and statements[v].kind != "scatter"
        and not any(a.may for _, a in outside[v])
    }
    if not wanted:
        return {}
    out = {}
    for v in wanted:
        found = _best(v, _movements_of(v, program), book, statements, outside[v])
        if found is not None:
            out[v] = found
    return out


def _movements_of(value: str, program: Program) -> list[str]:
    """Movement values over `value`, nearest first."""
    seen = {value}
    out: list[str] = []
    for node in program.nodes:
        if isinstance(node.op, MOVEMENT) and node.src[0] in seen:
            seen.add(node.id)
            out.append(node.id)
            if len(out) == MAX_CANDIDATES:
                break
    return out


def _best(
    value: str,
    candidates: Sequence[str],
    book: IndexBook,
    resident: Mapping[str, Statement],
    reads: list[tuple[Statement, PolyAccess]],
) -> Stored | None:
    s = resident[value]
    for w in candidates:
        pieces = book.values[w].operands[0].pieces
        read = pieces[0].read
        if w in resident or len(pieces) != 1 or read is None or read.value != value:
            continue
        extents = {a.name: a.size for a in book.values[w].axes}
        names = tuple(a.name for a in s.axes)
        made = invert(read.map, extents, names, tuple(a.size for a in s.axes))
        if made is None or _divides(made):
            continue
        if not any(_divides(_at(made, s, a, reader)) for reader, a in reads):
            return Stored(w, made)
    return None


def _at(coordinates: tuple[Expr, ...], s: Statement, access: PolyAccess, reader: Statement) -> tuple[Expr, ...]:
    into = {axis.name: e for axis, e in zip(s.axes, access.map) if e is not None}
    box = {a.name: a.size for a in (*reader.axes, *reader.reduced)}
    return tuple(simplify(substitute(e, into), box) for e in coordinates)


def _divides(index_map: Sequence[Expr | None]) -> bool:
    return any(isinstance(atom, Floor) for e in index_map if e is not None for mono, _ in e.terms for atom in mono)
