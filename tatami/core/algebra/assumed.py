"""Equations between sizes as rewrites: one of two sizes that are assumed to be equal is written as the other.

    8*((H + 31)//32) == 4*((H + 15)//16)      every (H + 15)//16 is 2*((H + 31)//32)

A read of x[.., (H + 15)//16] at i < 2*((H + 31)//32) is then proved to be inside: the equation is checked when sizes are
bound, before anything is read (D2.6).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import gcd

from tatami.core.algebra.order import is_at_most
from tatami.core.algebra.visit import parts_of, sole_extreme
from tatami.core.expr import ZERO, Atom, Expr, Extreme, Floor, Var, floordiv, maximum, minimum, product
from tatami.core.signature import Equation


class Assumed:
    """Rewrites from the equations of a signature. An equation without a term that is one atom is left out, so that equal sizes
    may keep two forms."""

    def __init__(self, equations: Iterable[Equation] = ()) -> None:
        self.values: dict[Atom, Expr] = {}
        self.least: dict[Expr, Expr] = {}
        """b -> min(a, b), for an equation min(a, b) == b: b is at most a."""
        self.greatest: dict[Expr, Expr] = {}
        """a -> max(a, b), for an equation max(a, b) == a: b is at most a."""
        self._known: dict[Expr, Expr] = {}
        for equation in equations:
            for side, other in ((equation.lhs, equation.rhs), (equation.rhs, equation.lhs)):
                extreme = sole_extreme(side)
                if extreme is not None and other in extreme.args:
                    (self.least if extreme.kind == "min" else self.greatest)[other] = side
            solved = _solved(self.rewrite(equation.lhs) - self.rewrite(equation.rhs))
            if solved is not None:
                atom, value = solved
                self.values[atom] = value
                self._known.clear()

    def __bool__(self) -> bool:
        return bool(self.values)

    def rewrite(self, e: Expr) -> Expr:
        """An expression that equals `e` wherever all equations hold."""
        if not self.values:
            return e
        if e not in self._known:
            done = e
            for _ in range(len(self.values) + 1):  # a value may hold an atom that a later equation gives
                again = self._once(done)
                if again == done:
                    break
                done = again
            self._known[e] = done
        return self._known[e]

    def is_at_most(self, a: Expr, b: Expr) -> bool:
        """True if the equations say ``a <= b``: the two are one size, or one is an extreme of the other."""
        below, box = self.ordered(b, {"a": a})
        return self.rewrite(a) == self.rewrite(b) or is_at_most(box["a"], below)

    def ordered(self, size: Expr, extents: Mapping[str, Expr]) -> tuple[Expr, dict[str, Expr]]:
        """`size` as an upper bound and the `extents` of axes, each written as the extreme that it equals."""
        return self.greatest.get(size, size), {axis: self.least.get(s, s) for axis, s in extents.items()}

    def extents(self, sizes: Mapping[str, Expr]) -> dict[str, Expr]:
        """Axis -> its size, rewritten."""
        return {axis: self.rewrite(size) for axis, size in sizes.items()}

    def _once(self, e: Expr) -> Expr:
        total = ZERO
        for mono, coef in e.terms:
            total = total + product(self._atom(a) for a in mono) * coef
        return total

    def _atom(self, atom: Atom) -> Expr:
        value = self.values.get(atom)
        if value is not None:
            return value
        match atom:
            case Var():
                return Expr((((atom,), 1),))
            case Floor(num=num, den=den):
                by = self._once(den)
                if (number := by.as_int()) is not None and number < 1:  # no sizes meet such equations
                    return Expr((((atom,), 1),))
                return floordiv(self._once(num), by)
            case Extreme(kind=kind, args=args):
                return (minimum if kind == "min" else maximum)(*(self._once(a) for a in args))


def _solved(difference: Expr) -> tuple[Atom, Expr] | None:
    """The atom to rewrite and its value if `difference` is 0: the longest atom that no other term holds. None if there is
    none."""
    common = 0
    for _, coef in difference.terms:
        common = gcd(common, coef)
    best: tuple[Atom, Expr] | None = None
    for mono, coef in difference.terms:
        if len(mono) != 1 or abs(coef) != common:
            continue
        rest = difference - Expr(((mono, coef),))
        value = Expr(tuple((m, c // common * (-1 if coef > 0 else 1)) for m, c in rest.terms))
        if _holds(value, mono[0]):
            continue
        if best is None or len(str(mono[0])) > len(str(best[0])):
            best = mono[0], value
    return best


def _holds(e: Expr, atom: Atom) -> bool:
    return any(a == atom or any(_holds(part, atom) for part in parts_of(a)) for mono, _ in e.terms for a in mono)


NOTHING = Assumed()
"""No equations: every rewrite is the identity."""
