"""Index expressions as C text: int64_t arithmetic, floor division, min and max."""

from __future__ import annotations

from tatami.c.needs import Needs
from tatami.core.expr import Atom, Expr, Extreme, Floor, Var
from tatami.core.size_fault import literal


def index_text(e: Expr, needs: Needs) -> str:
    """An expression of type int64_t, parenthesised unless it is one name or number. Raises E1305 for a number beyond 64 bits."""
    if not e.terms:
        return "0"
    parts: list[str] = []
    for mono, coef in e.terms:
        factors = [_atom(a, needs) for a in mono]
        if abs(literal(coef)) != 1 or not factors:
            factors.append(f"{abs(coef)}" if abs(coef) < 1 << 31 else f"INT64_C({abs(coef)})")
        sign = ("-" if coef < 0 else "") if not parts else (" - " if coef < 0 else " + ")
        parts.append(sign + " * ".join(factors))
    text = "".join(parts)
    return text if text.isalnum() else f"({text})"


def _atom(atom: Atom, needs: Needs) -> str:
    match atom:
        case Var(name=name):
            return name
        case Floor(num=num, den=den):
            return f"{needs.add('floor_division')}({index_text(num, needs)}, {index_text(den, needs)})"
        case Extreme(kind=kind, args=args):
            text = index_text(args[0], needs)
            for a in args[1:]:
                text = f"{needs.add(f'index_{kind}')}({text}, {index_text(a, needs)})"
            return text
