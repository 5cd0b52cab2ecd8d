"""Sizes as C text: expressions of symbols that stand in a vector of int64_t (`core.expr`).

    N*M + 3      (s[0] * s[1] + INT64_C(3))                     plain: of sizes that are known to fit
    N*M + 3      plus(times(s[0], s[1], over), INT64_C(3), over) checked: *over: set beyond 64 bits, and by a division by 0

The text calls floor_div, least and most, or plus, times, quotient, least and most where it is checked: the file that contains it
defines them."""

from __future__ import annotations

from collections.abc import Mapping

from tatami.core.expr import Atom, Expr, Floor, Monomial, Var
from tatami.core.faults.size_fault import literal


def size_text(e: Expr, symbols: Mapping[str, str]) -> str:
    """C text of an int64_t expression. `symbols`: size symbol -> its C text."""
    if not e.terms:
        return "0"
    parts: list[str] = []
    for mono, coef in e.terms:
        factors = [_atom(a, symbols, checked=False) for a in mono]
        if abs(literal(coef)) != 1 or not factors:
            factors.insert(0, f"INT64_C({abs(coef)})")
        parts.append(("- " if coef < 0 else "+ " if parts else "") + " * ".join(factors))
    return f"({' '.join(parts)})"


def checked_text(e: Expr, symbols: Mapping[str, str]) -> str:
    """The same as calls that mark an overflow in `*over`."""
    terms = [_term(mono, coef, symbols) for mono, coef in e.terms]
    text = terms[0] if terms else "0"
    for term in terms[1:]:
        text = f"plus({text}, {term}, over)"
    return text


def _term(mono: Monomial, coef: int, symbols: Mapping[str, str]) -> str:
    text = "" if literal(coef) == 1 and mono else f"INT64_C({coef})"
    for atom in mono:
        factor = _atom(atom, symbols, checked=True)
        text = f"times({text}, {factor}, over)" if text else factor
    return text


def _atom(a: Atom, symbols: Mapping[str, str], checked: bool) -> str:
    of = checked_text if checked else size_text
    match a:
        case Var(name=name):
            return symbols[name]
        case Floor(num=num, den=den):
            parts = f"{of(num, symbols)}, {of(den, symbols)}"
            return f"quotient({parts}, over)" if checked else f"floor_div({parts})"
        case _:
            text = of(a.args[0], symbols)
            for other in a.args[1:]:
                text = f"{'least' if a.kind == 'min' else 'most'}({text}, {of(other, symbols)})"
            return text
