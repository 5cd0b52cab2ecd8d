"""PolyView as text. Sets and maps are in isl's own notation and parse there; expressions without an affine form are marked."""

from __future__ import annotations

from collections.abc import Iterator

from tatami.core.expr import Expr, Floor, Var
from tatami.core.lines import Line, ended, text_of
from tatami.core.module import Module
from tatami.indexbook.ir import Axis, Guard
from tatami.poly_view.ir import ContractionPattern, Edge, Outside, PolyAccess, PolyView, Statement


def show(module: Module[PolyView]) -> str:
    """The views of all programs as text."""
    return text_of(show_lines(module))


def show_lines(module: Module[PolyView]) -> Iterator[Line]:
    """The same by lines, each of a value: statements, patterns, edges (of the value that reads), dependences, excluded values."""
    return ended(_view(name, view) for name, view in module.programs.items())


def _view(name: str, view: PolyView) -> Iterator[Line]:
    yield Line(f"poly_view {name}")
    width = max((len(s.value) for s in view.statements), default=0)
    for s in view.statements:
        of = (name, s.value)
        yield Line(f"  {s.value:<{width}}  {s.kind:<11} {domain_text(s)}", of)
        for a in s.reads:
            yield Line(f"  {'':<{width}}  {'may read' if a.may else 'reads':<11} {access_text(s, a)}", of)
        for o in s.outside:
            yield Line(f"  {'':<{width}}  {'outside':<11} {outside_text(s, o)} = {o.fill}", of)
    yield from (Line(f"  {_pattern(p)}", (name, p.value)) for p in view.patterns)
    for x in view.row_softmaxes:
        yield Line(f"  row_softmax {x.value}  of {x.source} by {', '.join(x.reduces)}", (name, x.value))
    yield from (Line(f"  {_edge(e)}", (name, e.consumer)) for e in view.edges)
    for d in view.dependences:
        if d.kind != "true":
            yield Line(f"  {d.kind} dependence {d.source} -> {d.target}", (name, d.target))
    yield from (Line(f"  excluded {x.value}: {x.reason}", (name, x.value)) for x in view.excluded)


def domain_text(s: Statement) -> str:
    """The iteration domain as an isl set."""
    return _isl([], f"{s.value}[{_names(s)}]", s, ())


def access_text(s: Statement, a: PolyAccess) -> str:
    """One access as an isl map from the domain; an indexed dimension is a free one."""
    entries = [f"d{k}" if e is None else _affine(e, _axis_names(s)) for k, e in enumerate(a.map)]
    if any(e is None for e in entries):
        return f"not affine: {a.tensor}[{', '.join('?' if e is None else str(e) for e in a.map)}]"
    target = f"{s.value}[{_names(s)}] -> {a.tensor}[{', '.join(str(e) for e in entries)}]"
    return _isl([e for e in a.map if e is not None], target, s, a.guards)


def outside_text(s: Statement, o: Outside) -> str:
    """The points of the domain outside the guards, as an isl set: what the operand's reads leave."""
    axes = _axis_names(s)
    failed = []
    for group in o.groups:
        sides = []
        for g in group:
            index = _affine(g.index, axes) or str(g.index)
            sides += [f"{index} < 0", f"{index} >= {_affine(g.size, axes) or g.size}"]
        failed.append(f"({' or '.join(sides)})")
    guards = tuple(g for group in o.groups for g in group)
    inside = _isl([], f"{s.value}[{_names(s)}]", s, ())
    head = _isl([], "", s, guards).partition("{")[0]
    body = inside.partition("{")[2].removesuffix(" }")
    return f"{head}{{{body}{' and ' if ' : ' in body else ' : '}{' and '.join(failed)} }}"


def _isl(expressions: list[Expr], body: str, s: Statement, guards: tuple[Guard, ...]) -> str:
    axes = _axis_names(s)
    every = [*expressions, *(a.size for a in (*s.axes, *s.reduced)), *(x for g in guards for x in (g.index, g.size))]
    parameters: dict[str, None] = {}
    for e in every:
        for name in _parameters(e, axes):
            parameters.setdefault(name)
    conditions = [f"0 <= {a.name} < {_affine(a.size, axes) or a.size}" for a in (*s.axes, *s.reduced)]
    conditions += [f"0 <= {_affine(g.index, axes) or g.index} < {_affine(g.size, axes) or g.size}" for g in guards]
    head = f"[{', '.join(parameters)}] -> " if parameters else ""
    return f"{head}{{ {body}{' : ' + ' and '.join(conditions) if conditions else ''} }}"


def _axis_names(s: Statement) -> frozenset[str]:
    return frozenset(a.name for a in (*s.axes, *s.reduced))


def _names(s: Statement) -> str:
    axes: tuple[Axis, ...] = (*s.axes, *s.reduced)
    return ", ".join(a.name for a in axes)


def _parameters(e: Expr, axes: frozenset[str]) -> list[str]:
    out = []
    for mono, _ in e.terms:
        symbols = [a.name for a in mono if isinstance(a, Var) and a.name not in axes]
        if symbols and len(symbols) == len(mono):
            out.append("__".join(symbols))
        for a in mono:
            if isinstance(a, Floor):
                out.extend(_parameters(a.num, axes))
    return out


def _affine(e: Expr, axes: frozenset[str]) -> str | None:
    """isl text of an expression: floors written out, a product of symbols as one parameter; None if it is not affine."""
    parts: list[str] = []
    for mono, coef in e.terms:
        if not mono:
            text = ""
        elif len(mono) == 1 and isinstance(mono[0], Floor):
            inner, den = _affine(mono[0].num, axes), mono[0].den.as_int()
            if inner is None or den is None:
                return None
            text = f"floor(({inner})/{den})"
        elif all(isinstance(a, Var) for a in mono) and (len(mono) == 1 or not {str(a) for a in mono} & axes):
            text = "__".join(str(a) for a in mono)
        else:
            return None
        size = abs(coef)
        term = str(size) if not text else text if size == 1 else f"{size}*{text}"
        sign = "-" if coef < 0 else "+" if parts else ""
        parts.append(f"{sign} {term}" if parts else f"{sign}{term}")
    return " ".join(parts) or "0"


def _pattern(p: ContractionPattern) -> str:
    roles = (("batch", p.batch), ("m", p.m), ("n", p.n), ("k", p.k))
    text = " ".join(f"{name}:{','.join(axes)}" for name, axes in roles if axes)
    out = f"pattern {p.value} {p.pattern}  {text}  lhs {_read(p.lhs)}  rhs {_read(p.rhs)}"
    if p.affine_offsets:
        out += "  offsets " + ", ".join(f"{at} = {e}" for at, e in p.affine_offsets.items())
    return out + (f"  ({p.role})" if p.role else "")


def _read(a: PolyAccess) -> str:
    return f"{a.tensor}[{', '.join('?' if e is None else str(e) for e in a.map)}]"


def _edge(e: Edge) -> str:
    out = f"edge {e.producer} -> {e.consumer}  " + (e.rule if e.fusible else f"forbidden ({e.rule})")
    if e.halo:
        out += "  halo " + " ".join(f"{axis}+{n}" for axis, n in e.halo.items())
    if e.halo_bytes is not None:
        out += f" = {e.halo_bytes} bytes"
    return out + (f"; {e.change}" if e.change else "")
