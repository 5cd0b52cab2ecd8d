"""How far an expression moves from one lane to the next."""

from __future__ import annotations

from functools import lru_cache

from tatami.core.algebra.visit import free_vars
from tatami.core.expr import ZERO, Atom, Expr, Floor, Var, var


@lru_cache(maxsize=65536)
def lane_step(e: Expr, vector: str, lanes: int = 0) -> Expr | None:
    """`c` when ``e = a + c * vector`` with `a` and `c` free of it; None when it is not of that form. With `lanes` the
    variable is a multiple of them, and a quotient that no lane changes counts as free of it."""
    if not vector or vector not in free_vars(e):
        return ZERO
    step = ZERO
    for mono, coef in e.terms:
        rest = [a for a in mono if not (isinstance(a, Var) and a.name == vector)]
        count = len(mono) - len(rest)
        if any(_moves(a, vector, lanes) for a in rest) or count > 1:
            return None
        if count:
            step = step + Expr(((tuple(rest), coef),))
    return step


def _moves(atom: Atom, vector: str, lanes: int) -> bool:
    """True if an atom differs between lanes of a vector. With `lanes`, the variable is a multiple of them at the first lane;
    without, an atom that contains the variable counts.

    floor((x + 32*y) / 64) is the same for 16 lanes when x is a multiple of 16.
    """
    if vector not in free_vars(Expr((((atom,), 1),))):
        return False
    if not lanes or not isinstance(atom, Floor) or (atom.den.as_int() or 1) % lanes:
        return True
    rest = atom.num - var(vector)
    return vector in free_vars(rest) or any(coef % lanes for _, coef in rest.terms)
