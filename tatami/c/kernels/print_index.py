"""Index expressions as C text: int64_t arithmetic, floor division, min and max."""

from __future__ import annotations

from tatami.c.kernels.needs import Needs
from tatami.core.algebra.visit import free_vars, parts_of
from tatami.core.expr import Atom, Expr, Extreme, Floor, Var
from tatami.core.faults.size_fault import literal


class Bound:
    """Quotients, minima and maxima of sizes, computed once at the beginning of their function and named ``n0``, ``n1``, …
    Otherwise each access of a buffer of open sizes would contain them, thousands of times in a large kernel, for the C
    compiler to find equal."""

    def __init__(self, sizes: frozenset[str]) -> None:
        self._sizes = sizes
        self._names: dict[Atom, str | None] = {}
        self.lines: list[str] = []
        """Declarations of the named values, in order."""

    def named(self, atom: Atom, needs: Needs) -> str | None:
        """The name of the atom; None if it depends on more than sizes."""
        if isinstance(atom, Var):
            return None
        if atom not in self._names:
            self._names[atom] = None
            if self.can_name(atom):
                text = _text(atom, needs, self)
                self._names[atom] = f"n{len(self.lines)}"
                self.lines.append(f"  const int64_t {self._names[atom]} = {text};\n")
        return self._names[atom]

    def can_name(self, atom: Floor | Extreme) -> bool:
        """True if the atom depends only on sizes."""
        return all(free_vars(part) <= self._sizes for part in parts_of(atom))


def index_text(e: Expr, needs: Needs, bound: Bound | None = None) -> str:
    """C text of an expression of type int64_t, parenthesised unless it is one name or number. Raises E1305 for a number beyond
    64 bits."""
    if not e.terms:
        return "0"
    parts: list[str] = []
    for mono, coef in e.terms:
        factors = [_atom(a, needs, bound) for a in mono]
        if abs(literal(coef)) != 1 or not factors:
            factors.append(f"{abs(coef)}" if abs(coef) < 1 << 31 else f"INT64_C({abs(coef)})")
        sign = ("-" if coef < 0 else "") if not parts else (" - " if coef < 0 else " + ")
        parts.append(sign + " * ".join(factors))
    text = "".join(parts)
    return text if text.isalnum() else f"({text})"


def _atom(atom: Atom, needs: Needs, bound: Bound | None) -> str:
    name = bound.named(atom, needs) if bound is not None else None
    return _text(atom, needs, bound) if name is None else name


def _text(atom: Atom, needs: Needs, bound: Bound | None) -> str:
    match atom:
        case Var(name=name):
            return name
        case Floor(num=num, den=den):
            by = index_text(den, needs, bound)
            if (
                bound is not None and den.as_int() is None and bound.can_name(atom)
            ):  # computed early, also for sizes that make it 0
                by = f"{needs.add('index_max')}({by}, 1)"
            return f"{needs.add('floor_division')}({index_text(num, needs, bound)}, {by})"
        case Extreme(kind=kind, args=args):
            text = index_text(args[0], needs, bound)
            for a in args[1:]:
                text = f"{needs.add(f'index_{kind}')}({text}, {index_text(a, needs, bound)})"
            return text
