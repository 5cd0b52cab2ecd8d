"""The sizes of a call from the shapes of its inputs, as C statements: what `core.sizes.binding` does, solved when it is printed.

x: f32[B, 2*H]   y: f32[H, 3]        s[0] = x[0][0]; s[1] = x[1][0];
                                     x[0][1] is 2*s[1], x[1][1] is 3, else BAD_SHAPE
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tatami.c.size_text import checked_text
from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import fail
from tatami.core.expr import Expr, Monomial, Var, from_terms
from tatami.core.numbers.compared import escaped
from tatami.core.signature import Input, Signature
from tatami.core.sizes.conditions import equation_text


class Known(NamedTuple):
    """An equation with one known side: `size` is the int64_t of C text `value`; `fault` returns if no size solves it."""

    size: Expr
    value: str
    fault: str


def bind_text(signature: Signature, inputs: Sequence[Input], symbols: Mapping[str, str]) -> list[str]:
    """C statements that write each of `symbols` (name -> place in C) and check all sizes of `inputs`, which a caller passes.
    Raises UnboundSymbol for a symbol that neither a shape nor a default decides."""
    return [*_solve(signature, inputs, symbols), *_check(signature, inputs, symbols)]


def _axes(inputs: Sequence[Input]) -> list[Known]:
    return [
        Known(size, f"x[{k}][{a}]", f"return tatami_no_size({k}, {a}, x[{k}][{a}], {escaped(str(size))});")
        for k, port in enumerate(inputs)
        for a, size in enumerate(port.shape)
    ]


def _solve(signature: Signature, inputs: Sequence[Input], symbols: Mapping[str, str]) -> list[str]:
    known: set[str] = set()
    out: list[str] = []
    defaults = {n: v for n, v in signature.defaults.items() if n in symbols}
    while True:
        found = next((x for e in _equations(signature, inputs, symbols, known) if (x := _solution(e, known, symbols))), None)
        if found is not None:
            name, lines = found
            out += lines
            known.add(name)
        elif left := [n for n in defaults if n not in known]:
            out += [f"{symbols[n]} = INT64_C({defaults[n]});" for n in left]
            known.update(left)
        else:
            break
    missing = [n for n in symbols if n not in known]
    if missing:
        raise fail(
            "UnboundSymbol",
            missing[0],
            f"no input shape decides the size symbol {missing[0]}",
            f"fix it: -D {missing[0]}=...",
        )
    return out


def _equations(signature: Signature, inputs: Sequence[Input], symbols: Mapping[str, str], known: set[str]) -> list[Known]:
    """Equations of axes, plain symbols first, then assumptions with one side known."""
    axes = sorted(_axes(inputs), key=lambda e: e.size.as_name() is None)
    assumed = [
        Known(other, checked_text(side, symbols), f"return tatami_broken({escaped(equation_text(e))}, 0, 0);")
        for e in signature.assumptions
        for side, other in ((e.lhs, e.rhs), (e.rhs, e.lhs))
        if not e.is_read and free_vars(side) <= known
    ]
    return axes + assumed


def _solution(e: Known, known: set[str], symbols: Mapping[str, str]) -> tuple[str, list[str]] | None:
    """(symbol, statements that solve for it) of an equation that is linear in its one unknown symbol; else None."""
    unknown = [n for n in free_vars(e.size) if n not in known]
    if len(unknown) != 1 or unknown[0] not in symbols:
        return None
    (name,) = unknown
    if e.size.as_name() == name and e.value.startswith("x["):
        return name, [f"{symbols[name]} = {e.value};"]
    factor: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for mono, coef in e.size.terms:
        others = tuple(a for a in mono if not (isinstance(a, Var) and a.name == name))
        if len(mono) - len(others) > 1 or any(name in free_vars(Expr((((a,), 1),))) for a in others):
            return None
        if len(others) < len(mono):
            factor[others] = coef
        else:
            rest[mono] = -coef
    value = f"plus({e.value}, {checked_text(from_terms(rest), symbols)}, over)"
    solved = f"tatami_solved({value}, {checked_text(from_terms(factor), symbols)}, &{symbols[name]})"
    return name, [f"if (!{solved}) {e.fault}"]


def _check(signature: Signature, inputs: Sequence[Input], symbols: Mapping[str, str]) -> list[str]:
    out: list[str] = []
    for k, port in enumerate(inputs):
        for a, size in enumerate(port.shape):
            out.append(f"want = {checked_text(size, symbols)};")
            out.append(f"if (x[{k}][{a}] != want) return tatami_wrong_size({k}, {a}, x[{k}][{a}], want);")
    for e in signature.assumptions:
        if free_vars(e.lhs) | free_vars(e.rhs) <= symbols.keys():
            out.append(f"want = {checked_text(e.lhs, symbols)};")
            out.append(f"have = {checked_text(e.rhs, symbols)};")
            out.append(f"if (!*over && want != have) return tatami_broken({escaped(equation_text(e))}, want, have);")
    return out
