"""Views: the effect of a chain of movement on its base value, composed step by step (spec 3 §4.4).

A View maps coordinates i0, i1, … of its shape to base coordinates, in pieces: the first piece whose guards hold gives a read
(`map`) or a constant (`fill`); the last has no guards. Pads add pieces; guards that always hold, never hold or follow from
another are removed, and equal fills merge, so that a reducible chain stays small (spec 3 §4.3(7)).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple, assert_never

from tatami.core.algebra.bounds import Extents, bounds, is_within
from tatami.core.algebra.order import is_nonneg
from tatami.core.algebra.simplify import linearize, simplify, unravel
from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.expr import ONE, ZERO, Expr, Extreme, Floor, Shape, Var, product, var
from tatami.core.scalar import Scalar
from tatami.indexbook.ir import Guard
from tatami.tiny.ir import ExpandOp, FlipOp, Movement, PadOp, PermuteOp, ReshapeOp, ShrinkOp, ViewOp


class ViewPiece(NamedTuple):
    """One piece of a view: a read at `map`, or the constant `fill`, where all guards hold."""

    guards: tuple[Guard, ...]
    map: tuple[Expr, ...] | None
    fill: Scalar | None


class View:
    """A chain of movement as a piecewise map. `parent_axes[k]`: the operand's axis that result axis k is, if the last step
    only moved axes; else None."""

    def __init__(self, shape: Shape, pieces: tuple[ViewPiece, ...], parent_axes: tuple[int | None, ...] | None = None) -> None:
        self.shape = shape
        self.pieces = pieces
        self.parent_axes = parent_axes

    @cached_property
    def used(self) -> frozenset[str]:
        """Names on which any map or guard depends."""
        out: set[str] = set()
        for piece in self.pieces:
            for e in piece.map or ():
                out |= free_vars(e)
            for g in piece.guards:
                out |= free_vars(g.index)
        return frozenset(out)

    @cached_property
    def is_affine(self) -> bool:
        """True if every map and guard is affine with floordiv over the axes."""
        axes = frozenset(axis_name("i", k) for k in range(len(self.shape)))
        return all(is_affine(e, axes) for p in self.pieces for e in (*(p.map or ()), *(g.index for g in p.guards)))


MOST_TERMS = 64
"""Maximum terms of a view's map before the value that it views is copied: each further reshape that does not undo the last one
takes as many floors as there are terms, so that a chain of them grows exponentially."""


def terms_of(pieces: Sequence[ViewPiece]) -> int:
    """Number of terms of a view's longest map, those within floors included."""

    def of(e: Expr) -> int:
        inner = (a.num for mono, _ in e.terms for a in mono if isinstance(a, Floor))
        return len(e.terms) + sum(of(x) for x in inner)

    return max((sum(of(e) for e in p.map or ()) for p in pieces), default=0)


@lru_cache(maxsize=1024)
def axis_name(prefix: str, k: int) -> str:
    """The name of axis k: `prefix` and its number."""
    return f"{prefix}{k}"


def axis(k: int) -> Expr:
    """Axis k of a view as an expression."""
    return var(axis_name("i", k))


def extents_of(shape: Shape) -> Extents:
    """Extents of the axes i0, i1, … of a shape."""
    return {axis_name("i", k): size for k, size in enumerate(shape)}


def identity(shape: Shape) -> View:
    """The view of a value as itself; axes of size 1 are read at 0."""
    return View(shape, (ViewPiece((), tuple(ZERO if s == ONE else axis(k) for k, s in enumerate(shape)), None),))


def compose(view: View, op: Movement, shape: Shape, at: str) -> View:
    """The view after one more movement step, whose result has `shape`."""
    old = view.shape
    pad: PadOp | None = None
    parents: tuple[int | None, ...] | None = None
    match op:
        case PermuteOp(perm=perm):
            inverse = {p: k for k, p in enumerate(perm)}
            index = tuple(axis(inverse[j]) for j in range(len(old)))
            parents = perm
        case ReshapeOp():
            index = reshape_index(shape, old)
            parents = _kept_axes(index, shape)
        case ExpandOp(broadcast_dimensions=dims):
            index = tuple(ZERO if size == ONE else axis(dims[j]) for j, size in enumerate(old))
            parents = _kept_axes(index, shape)
        case ShrinkOp(lo=lo, step=step):
            index = tuple(axis(k) * step[k] + lo[k] for k in range(len(old)))
        case FlipOp(axes=axes):
            index = tuple(old[k] - 1 - axis(k) if k in axes else axis(k) for k in range(len(old)))
        case ViewOp(index_map=index_map):
            index = index_map
        case PadOp(pad=widths):
            index = tuple(axis(k) - widths[k][0] for k in range(len(old)))
            pad = op
        case _:
            assert_never(op)
    extents = extents_of(shape)
    values = {axis_name("i", k): e for k, e in enumerate(index)}
    outer = () if pad is None else tuple(Guard(i, size) for i, size in zip(index, old))
    pieces: list[ViewPiece] = []
    for piece in view.pieces:
        guards = [Guard(substitute(g.index, values), g.size) for g in piece.guards]
        kept = simplify_guards((*guards, *outer), extents)
        if kept is None:
            continue
        mapped = None if piece.map is None else tuple(simplify(substitute(e, values), extents) for e in piece.map)
        pieces.append(ViewPiece(kept, mapped, piece.fill))
        if not kept:
            break
    if pad is not None and (not pieces or pieces[-1].guards):
        pieces.append(ViewPiece((), None, pad.value))
    return View(shape, coalesce(tuple(pieces)), parents)


def _kept_axes(index: Sequence[Expr], shape: Shape) -> tuple[int | None, ...]:
    names = {e.as_name(): j for j, e in enumerate(index)}
    return tuple(names.get(axis_name("i", k)) for k in range(len(shape)))


# -- reshape -------------------------------------------------------------------------------------


@lru_cache(maxsize=8192)
def reshape_index(new: Shape, old: Shape) -> tuple[Expr, ...]:
    """Coordinates in `old` of the element at i0, i1, … of `new`: linearise, then split again (spec 3 §4.4).

    Axes of size 1 drop out; runs of axes with equal products are split independently, so an exact split or merge never sees
    the other axes. Axes that match no such run form one general run.
    """
    out = [ZERO] * len(old)
    if any(s == ZERO for s in (*new, *old)):
        return tuple(out)
    extents = extents_of(new)
    wide_new = [k for k, s in enumerate(new) if s != ONE]
    wide_old = [k for k, s in enumerate(old) if s != ONE]
    for left, right in _runs([new[k] for k in wide_new], [old[k] for k in wide_old]):
        from_axes = [wide_new[k] for k in left]
        to_axes = [wide_old[k] for k in right]
        linear = linearize(tuple(axis(k) for k in from_axes), tuple(new[k] for k in from_axes))
        for k, e in zip(to_axes, unravel(linear, tuple(old[k] for k in to_axes), extents)):
            out[k] = e
    return tuple(out)


def _runs(a: list[Expr], b: list[Expr]) -> list[tuple[range, range]]:
    """Pairs of runs of `a` and `b` with equal products, as short as possible; axes without an equal product are one middle
    run."""
    cuts = _common_prefixes(a, b)
    last_a, last_b = cuts[-1] if cuts else (0, 0)
    rest_a, rest_b = a[last_a:], b[last_b:]
    suffixes = _common_prefixes(rest_a[::-1], rest_b[::-1]) if product(a) != product(b) else []
    cuts += [(len(a) - i, len(b) - j) for i, j in reversed(suffixes)]
    cuts.append((len(a), len(b)))
    out: list[tuple[range, range]] = []
    start_a = start_b = 0
    for i, j in cuts:
        if i > start_a or j > start_b:
            out.append((range(start_a, i), range(start_b, j)))
        start_a, start_b = i, j
    return out


def _common_prefixes(a: list[Expr], b: list[Expr]) -> list[tuple[int, int]]:
    """Proper prefixes (i, j), 0 < i, 0 < j, with equal products."""
    seen: dict[Expr, int] = {}
    total = ONE
    for i, size in enumerate(a[:-1]):
        total = total * size
        seen.setdefault(total, i + 1)
    out: list[tuple[int, int]] = []
    total = ONE
    for j, size in enumerate(b[:-1]):
        total = total * size
        i_found = seen.get(total)
        if i_found is not None and (not out or i_found > out[-1][0]):
            out.append((i_found, j + 1))
    return out


# -- guards and pieces ---------------------------------------------------------------------------


def simplify_guards(guards: Sequence[Guard], extents: Extents) -> tuple[Guard, ...] | None:
    """The conjunction without guards that always hold or follow from another guard; None if it never holds."""
    kept: list[Guard] = []
    for guard in guards:
        index = simplify(guard.index, extents)
        if is_within(index, guard.size, extents):
            continue
        ends = bounds(index, extents)
        if ends is not None and (is_nonneg(-1 - ends[1]) or is_nonneg(ends[0] - guard.size)):
            return None
        new = Guard(index, guard.size)
        if any(implies(g, new) for g in kept):
            continue
        kept = [g for g in kept if not implies(new, g)]
        kept.append(new)
    return tuple(kept)


def implies(a: Guard, b: Guard) -> bool:
    """True if ``0 <= a.index < a.size`` proves ``0 <= b.index < b.size``."""
    shift = b.index - a.index
    return is_nonneg(shift) and is_nonneg(b.size - a.size - shift)


def coalesce(pieces: tuple[ViewPiece, ...]) -> tuple[ViewPiece, ...]:
    """The pieces without a fill that precedes an equal final fill."""
    out = list(pieces)
    while len(out) > 1 and out[-1].map is None and out[-2].map is None and out[-1].fill == out[-2].fill:
        del out[-2]
    return tuple(out)


def rename(pieces: tuple[ViewPiece, ...], names: Mapping[str, Expr]) -> tuple[ViewPiece, ...]:
    """Pieces with axes renamed, all at once."""
    return tuple(
        ViewPiece(
            tuple(Guard(substitute(g.index, names), g.size) for g in p.guards),
            None if p.map is None else tuple(substitute(e, names) for e in p.map),
            p.fill,
        )
        for p in pieces
    )


# -- affinity ------------------------------------------------------------------------------------


@lru_cache(maxsize=65536)
def is_affine(e: Expr, axes: frozenset[str]) -> bool:
    """True if `e` is affine over `axes` with floordiv by integers; sizes are parameters (spec 3 §4.3(1), D2.6)."""
    for mono, _ in e.terms:
        for atom in mono:
            match atom:
                case Var(name=name):
                    if name in axes and len(mono) > 1:
                        return False
                case Floor(num=num, den=den):
                    inner = not free_vars(num).isdisjoint(axes) or not free_vars(den).isdisjoint(axes)
                    if inner and (len(mono) > 1 or den.as_int() is None or not is_affine(num, axes)):
                        return False
                case Extreme(args=args):
                    if any(not free_vars(a).isdisjoint(axes) for a in args):
                        return False
                case _:
                    assert_never(atom)
    return True
