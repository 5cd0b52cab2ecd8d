"""Visits of an expression: the variables in it, parts replaced by others, its value for numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, Literal

from tatami.core.diagnostic import fail
from tatami.core.expr import MAX_SIZE, Atom, Expr, Extreme, Floor, Monomial, Var, extreme, floordiv, from_terms, var


def sole_extreme(e: Expr) -> Extreme | None:
    """The min(...) or max(...) that is the whole expression; None for other forms."""
    if len(e.terms) == 1 and e.terms[0][1] == 1 and len(e.terms[0][0]) == 1:
        atom = e.terms[0][0][0]
        return atom if isinstance(atom, Extreme) else None
    return None


def has_64_bits(e: Expr) -> bool:
    """True if every number of the expression fits 64 bits."""
    return all(
        abs(coef) <= MAX_SIZE and all(has_64_bits(part) for atom in mono for part in parts_of(atom)) for mono, coef in e.terms
    )


def parts_of(atom: Atom) -> tuple[Expr, ...]:
    """The expressions inside an atom."""
    match atom:
        case Var():
            return ()
        case Floor(num=num, den=den):
            return num, den
        case Extreme(args=args):
            return args


def free_vars(e: Expr) -> frozenset[str]:
    """Names of all variables in `e`, also inside floors and extremes."""
    if e.names is None:
        e.names = _NOBODY.union(*map(_names_of, (atom for mono, _ in e.terms for atom in mono)))
    return e.names


_NOBODY: Final[frozenset[str]] = frozenset()


@lru_cache(maxsize=65536)
def _names_of(atom: Atom) -> frozenset[str]:
    return frozenset((atom.name,)) if isinstance(atom, Var) else _NOBODY.union(*map(free_vars, parts_of(atom)))


def rebuild(
    e: Expr,
    leaf: Callable[[Var], Expr] | None,
    floor: Callable[[Expr, Expr], Expr] = floordiv,
    extreme: Callable[[Literal["min", "max"], tuple[Expr, ...]], Expr] = extreme,
) -> Expr:
    """The expression rebuilt bottom-up, with each variable replaced by `leaf` (None: unchanged), each floor by `floor` and
    each extreme by `extreme`."""

    def replaced(atom: Atom) -> Expr | None:
        match atom:
            case Var():
                return None if leaf is None else leaf(atom)
            case Floor(num=num, den=den):
                return floor(rebuild(num, leaf, floor, extreme), rebuild(den, leaf, floor, extreme))
            case Extreme(kind=kind, args=args):
                return extreme(kind, tuple(rebuild(a, leaf, floor, extreme) for a in args))

    return _with_atoms(e, replaced)


def substitute(e: Expr, values: Mapping[str, Expr]) -> Expr:
    """The expression with variables replaced by expressions, all at once."""
    if not values or free_vars(e).isdisjoint(values):
        return e
    if (name := e.as_name()) is not None:
        return values[name]

    def replaced(atom: Atom) -> Expr | None:
        if isinstance(atom, Var):
            return values.get(atom.name)
        if _names_of(atom).isdisjoint(values):
            return None
        if isinstance(atom, Floor):
            return floordiv(substitute(atom.num, values), substitute(atom.den, values))
        return extreme(atom.kind, tuple(substitute(a, values) for a in atom.args))

    return _with_atoms(e, replaced)


def _with_atoms(e: Expr, replaced: Callable[[Atom], Expr | None]) -> Expr:
    """The expression with other expressions in the place of atoms; None: the atom stays."""
    out: dict[Monomial, int] = {}
    is_same = True
    for mono, coef in e.terms:
        kept: list[Atom] = []
        term: Expr | None = None
        for atom in mono:
            new = replaced(atom)
            if new is None:
                kept.append(atom)
            else:
                term = new if term is None else term * new
        if term is None:
            out[mono] = out.get(mono, 0) + coef
            continue
        is_same = False
        if kept:
            term = term * Expr(((tuple(kept), 1),))
        for made, count in term.terms:
            out[made] = out.get(made, 0) + coef * count
    return e if is_same else from_terms(out)


def step_of(e: Expr, name: str) -> Expr | None:
    """The constant change of `e` per step of the variable; None if `e` is not affine in it."""
    change = substitute(e, {name: var(name) + 1}) - e
    return None if name in free_vars(change) else change


def evaluate(e: Expr, env: Mapping[str, Any]) -> Any:
    """The value of `e` for variables `env`: integers, or numpy integer arrays (then elementwise)."""
    total: Any = 0
    for mono, coef in e.terms:
        term: Any = coef
        for atom in mono:
            match atom:
                case Var(name=name):
                    term = term * env[name]
                case Floor(num=num, den=den):
                    term = term * _evaluate_floor(num, den, env)
                case Extreme(kind=kind, args=args):
                    term = term * _evaluate_extreme(kind, [evaluate(a, env) for a in args])
        total = total + term
    return total


def concrete(sizes: Iterable[Expr], env: Mapping[str, int]) -> tuple[int, ...]:
    """Sizes, strides or indices as numbers, for integers `env`."""
    return tuple(int(evaluate(s, env)) for s in sizes)


def _evaluate_floor(num: Expr, den: Expr, env: Mapping[str, Any]) -> Any:
    try:
        return evaluate(num, env) // evaluate(den, env)
    except ZeroDivisionError:
        how = "pass sizes by which one can divide"
        raise fail("InvalidSymbol", str(Floor(num, den)), f"{den} is 0 here", how) from None


def _evaluate_extreme(kind: str, values: list[Any]) -> Any:
    best = values[0]
    for v in values[1:]:
        better = (v < best) if kind == "min" else (v > best)
        best = better * v + (1 - better) * best if hasattr(better, "shape") else (v if better else best)
    return best
