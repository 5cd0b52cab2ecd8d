"""Groups of axes as one linear range, and loops over a part of that range.

A contraction treats several axes (ho, wo of a convolution) as one row-major index. `collapse` joins neighbouring axes
where every address is affine in the joined axis; `walk` visits ``lo <= index < hi`` as a nest over the remaining axes, so that
addresses stay affine in the innermost variable and nothing is divided per element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from tatami.core.algebra.visit import free_vars, step_of, substitute
from tatami.core.expr import ONE, ZERO, Expr, Floor, ceildiv, expr, floordiv, maximum, minimum, product, var
from tatami.loop.ir import For, Stmt


class Span(msgspec.Struct, frozen=True):
    """One axis of a collapsed group."""

    name: str
    size: Expr


class JoinedAxes(msgspec.Struct, frozen=True):
    """Axes joined to fewer loops: the `spans` from outermost to innermost (at least one), and `values`, the index along each
    original axis over the spans' names."""

    spans: tuple[Span, ...]
    values: dict[str, Expr]


def collapse(axes: Sequence[str], sizes: Mapping[str, Expr], uses: Iterable[Expr], prefix: str) -> JoinedAxes:
    """Join neighbours a, b (b of size S) where every use is free of floors after a -> t//S, b -> t mod S.

    >>> g = collapse(("h", "w"), {"h": expr(5), "w": expr(7)}, [expr("7*h + w + 70")], "t")
    >>> [(s.name, str(s.size)) for s in g.spans]
    [('t1', '35')]
    """
    spans = [Span(f"{prefix}_{a}", sizes[a]) for a in axes]
    values = {a: var(s.name) for a, s in zip(axes, spans, strict=True)}
    current = [substitute(u, values) for u in uses]
    made = 0
    i = len(spans) - 2
    while i >= 0:
        outer, inner = spans[i], spans[i + 1]
        made += 1
        joined = var(f"{prefix}{made}")
        quotient = floordiv(joined, inner.size)
        change = {outer.name: quotient, inner.name: joined - inner.size * quotient}
        tried = [substitute(u, change) for u in current]
        if not any(_divides(u, f"{prefix}{made}") for u in tried):
            spans[i : i + 2] = [Span(f"{prefix}{made}", outer.size * inner.size)]
            values = {a: substitute(v, change) for a, v in values.items()}
            current = tried
        i -= 1
    if not spans:
        spans = [Span(f"{prefix}0", ONE)]
    return JoinedAxes(tuple(spans), values)


def cut_innermost(group: JoinedAxes, uses: Iterable[Expr], unit: int) -> JoinedAxes:
    """The innermost span as lines, where floors of it step only at multiples of `unit`: t -> D * line + t.

    >>> g = cut_innermost(JoinedAxes((Span("t", expr(128)),), {"n": var("t")}), [floordiv(var("t"), expr(64))], 32)
    >>> [(s.name, str(s.size)) for s in g.spans], str(g.values["n"])
    ([('t_line', '2'), ('t', '64')], 't + 64*t_line')
    """
    inner = group.spans[-1]
    size = inner.size.as_int()
    steps = {f.den.as_int() or 1 for e in uses for f in _floors(e) if inner.name in free_vars(f.num)}
    step = min(steps, default=1)
    if size is None or size % step or step % unit or any(other % step for other in steps):
        return group
    line = Span(f"{inner.name}_line", expr(size // step))
    whole = {inner.name: var(line.name) * step + var(inner.name)}
    spans = (*group.spans[:-1], line, Span(inner.name, expr(step)))
    return JoinedAxes(spans, {a: substitute(v, whole) for a, v in group.values.items()})


def _floors(e: Expr) -> Iterator[Floor]:
    for mono, _ in e.terms:
        for atom in mono:
            if isinstance(atom, Floor):
                yield atom
                yield from _floors(atom.num)


def _divides(e: Expr, name: str) -> bool:
    """True if a floor (or an extreme) in `e` contains the variable."""
    return any(not hasattr(a, "name") and name in free_vars(Expr((((a,), 1),))) for mono, _ in e.terms for a in mono)


Inner = Callable[[dict[str, Expr], str, Expr, Expr, Expr], tuple[Stmt, ...]]
"""inner(values, name, lo, hi, base): the innermost axis `name` runs over lo … hi, where ``base + name`` is the linear
index; `values` gives the outer spans."""


def walk(group: JoinedAxes, lo: Expr, hi: Expr, fresh: Callable[[Expr], str], inner: Inner) -> tuple[Stmt, ...]:
    """Loops that visit the linear indices ``lo … hi-1`` of the group, in order; `fresh` makes a
    loop variable below a size."""
    spans = group.spans

    def loops(depth: int, base: Expr, values: dict[str, Expr]) -> tuple[Stmt, ...]:
        """The loops from `depth` on, behind the linear index `base` of the outer ones."""
        span = spans[depth]
        if depth == len(spans) - 1:
            if depth == 0:
                return inner(values, span.name, lo, hi, base)
            return inner(values, span.name, maximum(ZERO, lo - base), minimum(span.size, hi - base), base)
        stride = product(s.size for s in spans[depth + 1 :])
        safe = stride if stride.as_int() else maximum(stride, ONE)
        name = fresh(span.size)
        start, stop = floordiv(lo - base, safe), floordiv(hi - base - 1, safe) + 1
        if depth > 0:
            start, stop = maximum(ZERO, start), minimum(span.size, stop)
        body = loops(depth + 1, base + var(name) * stride, {**values, span.name: var(name)})
        return (For(name, start, stop, body),)

    return loops(0, ZERO, {})


def guard_range(index: Expr, size: Expr, name: str) -> tuple[Expr, Expr] | None:
    """(first, stop) of the values of the variable where ``0 <= index < size``, for an index affine in it with a constant step;
    None for any other index."""
    step = step_of(index, name)
    by = None if step is None else step.as_int()
    if by is None or by == 0:
        return None
    rest = substitute(index, {name: ZERO})
    if by > 0:  # by*x + rest >= 0 and by*x + rest <= size - 1
        return ceildiv(-rest, expr(by)), ceildiv(size - rest, expr(by))
    return floordiv(rest - size, expr(-by)) + 1, floordiv(rest, expr(-by)) + 1
