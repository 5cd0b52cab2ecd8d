"""Axes of a streaming kernel: neighbours that every address steps through evenly become one; accesses that take several
elements at once.

    p0[i0*K + i1] -> p1[i0*K + i1] over [i0 < M, i1 < K]     becomes     p0[i0] -> p1[i0] over [i0 < M*K]"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tatami.core.algebra.visit import free_vars, step_of
from tatami.core.expr import ONE, ZERO, Expr, Var
from tatami.region.ir import Index, Iter, Random, Read, RegionExpr, Select, Within
from tatami.region.walk import children


def merged_axes(axes: tuple[Iter, ...], indices: Iterable[Expr]) -> tuple[tuple[Iter, ...], dict[str, Expr]]:
    """The axes with neighbours merged, and the replacements of merged ones in index expressions: 0 for the outer axis, the one
    coordinate for the inner. Row-major order is kept."""
    out = list(axes)
    gone: dict[str, Expr] = {}
    every = tuple(indices)
    position = len(out) - 2
    while position >= 0:
        outer, inner = out[position], out[position + 1]
        if outer.size == ONE or all(_is_even(e, outer.name, inner) for e in every):
            out[position : position + 2] = [Iter(inner.name, outer.size * inner.size)]
            gone[outer.name] = ZERO
        position -= 1
    return tuple(out), gone


def _is_even(e: Expr, outer: str, inner: Iter) -> bool:
    slow, fast = step_of(e, outer), step_of(e, inner.name)
    return slow is not None and fast is not None and slow == fast * inner.size


def open_sizes(address: Expr, lane: str, width: int, axes: Mapping[str, Expr]) -> tuple[Expr, ...] | None:
    """Sizes that have to be multiples of `width` for an aligned vector at `address`, where `lane` begins one. None if the
    lanes are not contiguous, or sizes alone do not decide."""
    if step_of(address, lane) != ONE:
        return None
    out: dict[Expr, None] = {}
    for mono, coef in address.terms:
        if mono == (Var(lane),) or coef % width == 0:
            continue
        sizes = tuple(a for a in mono if isinstance(a, Var) and a.name not in axes)
        free = [a for a in mono if not isinstance(a, Var)]
        if not sizes or any(free_vars(Expr((((a,), 1),))) & axes.keys() for a in free):
            return None
        out.setdefault(Expr(((sizes, 1),)))
    return tuple(out)


def unconditional_reads(e: RegionExpr, lets: Mapping[str, RegionExpr]) -> list[Read]:
    """Reads that every evaluation of `e` makes, which excludes those on one side of a Select."""
    out: dict[Read, None] = {}
    seen: set[str] = set()
    stack: list[RegionExpr] = [e]
    while stack:
        x = stack.pop()
        if isinstance(x, Read):
            out.setdefault(x)
        elif isinstance(x, Select):
            stack.append(x.pred)
        elif (name := getattr(x, "let", None)) is not None:
            if name in lets and name not in seen:
                seen.add(name)
                stack.append(lets[name])
        else:
            stack.extend(reversed(children(x)))
    return list(out)


def indices_of(e: RegionExpr) -> list[Expr]:
    """Every index expression in `e`."""
    out: list[Expr] = []
    stack = [e]
    while stack:
        x = stack.pop()
        match x:
            case Read(map=entries):
                out += entries
            case Index(value=value) | Random(counter=value):
                out.append(value)
            case Within(guards=guards):
                out += [i for g in guards for i in (g.index, g.size)]
            case _:
                pass
        stack.extend(children(x))
    return out
