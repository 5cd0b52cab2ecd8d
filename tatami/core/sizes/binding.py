"""Values of size symbols from the shapes a caller passes (spec 1 "Shape", D2.6).

Symbols are solved from input sizes, then from the caller's own `sizes`, then from the signature's defaults. A
size or recorded assumption that the result contradicts is E1304, with both sides and both values.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

from tatami.core.algebra.visit import evaluate, free_vars, sole_extreme, substitute
from tatami.core.diagnostic import Diagnostic, TatamiError, diagnostic, fail
from tatami.core.expr import Expr, Shape, expr
from tatami.core.signature import Equation, Signature, symbols
from tatami.core.sizes.conditions import MOST_OF_ARGUMENT

PartialShape: TypeAlias = tuple[int | None, ...]
"""Sizes of an input's axes; None for a size that stays open."""


def bind_sizes(
    signature: Signature,
    shapes: Mapping[str, tuple[int, ...]],
    sizes: Mapping[str, int] | None = None,
    later: Collection[str] = (),
) -> dict[str, int]:
    """The value of every symbol of `signature`. Inputs without a shape in `shapes` decide nothing; symbols in `later` get
    their values while the program runs (a host step owns them). Raises TatamiError: rank (InputMismatch), contradiction
    (E1304), symbol without a value (E1301)."""
    known: dict[str, int] = dict(sizes or {})
    equations: list[tuple[Expr, int, str]] = []
    for port in signature.inputs:
        actual = shapes.get(port.tensor)
        if actual is None:
            continue
        if len(actual) != len(port.shape):
            raise fail(
                "InputMismatch",
                port.tensor,
                f"rank {len(actual)}, shape {list(actual)}, where the signature has [{', '.join(map(str, port.shape))}]",
                f"pass an array of rank {len(port.shape)}",
            )
        check_empty_argument(port.tensor, actual)
        equations += [
            (size, value, f"axis {axis} of {port.tensor}") for axis, (size, value) in enumerate(zip(port.shape, actual))
        ]
    _solve_all(signature, equations, known)
    missing = [name for name in (*symbols(signature), *signature.must_bind) if name not in known and name not in later]
    if (unsolved := _without_solution(signature, known)) is not None:
        raise TatamiError(unsolved)
    if missing:
        raise fail(
            "UnboundSymbol",
            missing[0],
            f"no input shape decides the size symbol {missing[0]}",
            f"pass sizes={{{missing[0]!r}: ...}} (command line: -D {missing[0]}=...)",
        )
    negative = [name for name, value in known.items() if value < 0]
    if negative:
        raise fail("InvalidSymbol", negative[0], f"the size is {known[negative[0]]}", "sizes are 0 or more")
    faults = [fault for size, value, at in equations if (fault := _disagreement(size, value, at, known)) is not None]
    faults += check_assumptions(signature, known)
    if faults:
        raise TatamiError(*faults)
    return known


def solve_sizes(
    signature: Signature, shapes: Mapping[str, tuple[int, ...]], sizes: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Values that `shapes` and `sizes` decide, then defaults. Nothing is checked, and symbols may stay without a value."""
    known = dict(sizes or {})
    equations = [
        (size, value, port.tensor)
        for port in signature.inputs
        if len(shapes.get(port.tensor, ())) == len(port.shape)
        for size, value in zip(port.shape, shapes.get(port.tensor, ()))
    ]
    _solve_all(signature, equations, known)
    return known


def check_assumptions(signature: Signature, sizes: Mapping[str, int]) -> list[Diagnostic]:
    """A diagnostic (E1304, or E1804 for a read) for every recorded equation that `sizes` break; equations with a symbol that
    has no value yet pass."""
    out: list[Diagnostic] = []
    for equation in signature.assumptions:
        if not equation_symbols(equation) <= sizes.keys():
            continue
        lhs, rhs = evaluate(equation.lhs, sizes), evaluate(equation.rhs, sizes)
        if lhs != rhs:
            out.append(broken_equation(equation, lhs, rhs, sizes))
    return out


def check_empty_argument(at: str, shape: tuple[int, ...]) -> None:
    """Raises E1304 for an array without elements whose other axes are longer than any array in memory: a value without its
    axis of size 0 would be as long."""
    if 0 in shape and math.prod(size for size in shape if size) > MOST_OF_ARGUMENT:
        raise fail(
            "AxisAlignmentMismatch",
            at,
            f"its shape is {list(shape)}, the axes other than those of size 0 have more than 2**47 elements",
            "pass an array whose other axes fit a memory",
        )


def check_numbers(signature: Signature) -> list[Diagnostic]:
    """E1304 for recorded equations between two numbers, which values of symbols have left, that do not hold."""
    return check_assumptions(signature, {})


def check_new_sizes(signature: Signature, new: Collection[str], sizes: Mapping[str, int]) -> None:
    """Raises E1304 for the recorded equations that the symbols `new`, just given values in `sizes`, break."""
    if not new:
        return
    touched = tuple(e for e in signature.assumptions if not equation_symbols(e).isdisjoint(new))
    faults = check_assumptions(Signature(assumptions=touched), sizes)
    if faults:
        raise TatamiError(*faults)


def bind_results(
    shapes: Sequence[Shape], results: Sequence[tuple[int, ...]], new: Collection[str], sizes: dict[str, int]
) -> None:
    """Add to `sizes` the values of the symbols `new`, read off the shapes of `results`; the first axis of a symbol decides."""
    found: set[str] = set()
    for shape, result in zip(shapes, results):
        for size, actual in zip(shape, result):
            name = size.as_name()
            if name is not None and name in new and name not in found:
                sizes[name] = actual
                found.add(name)


def bind_loop_results(
    shapes: Sequence[Shape],
    states: Sequence[tuple[int, ...]],
    rows: Sequence[tuple[int, ...] | None],
    turns: int,
    new: Collection[str],
    sizes: dict[str, int],
) -> None:
    """`bind_results` for a loop: its last `states`, then `rows` stacked `turns` times (None: the loop had no turn). Symbols
    that only a turn would decide are 0 then."""
    actual = [*states, *((turns, *row) if row is not None else (turns,) for row in rows)]
    bind_results(shapes, actual, new, sizes)
    for name in new:
        sizes.setdefault(name, 0)


def equation_symbols(equation: Equation) -> frozenset[str]:
    """Names of the size symbols on both sides of an equation."""
    return frozenset(free_vars(equation.lhs) | free_vars(equation.rhs))


def broken_equation(equation: Equation, lhs: int, rhs: int, sizes: Mapping[str, int] | None = None) -> Diagnostic:
    """E1304, or E1804 for a read, with both sides, their values, and the place that needs them to be equal."""
    if equation.is_read:
        return diagnostic(
            "IndexOutOfRange",
            equation.at or "signature",
            f"the view reads outside its tensor: {_bound_text(equation, lhs, rhs) or f'{equation.lhs} is {lhs}, not {rhs}'}",
            "keep the expression inside, for example by % or min and max, or choose with where what is read",
        )
    return diagnostic(
        "AxisAlignmentMismatch",
        equation.at or "signature",
        (_bound_text(equation, lhs, rhs) or f"{equation.lhs} = {lhs} where {equation.rhs} = {rhs} is needed")
        + _values_text(equation, sizes or {}),
        "pass inputs whose sizes agree with this equation",
        lhs=equation.lhs,
        rhs=equation.rhs,
    )


def _values_text(equation: Equation, sizes: Mapping[str, int]) -> str:
    """`` (N = 3)``: the symbols that the text of an equation hides in an expression."""
    plain = {side.as_name() for side in (equation.lhs, equation.rhs)}
    extreme = sole_extreme(equation.lhs)
    plain |= {a.as_name() for a in extreme.args} if extreme is not None else set()
    hidden = [n for n in sorted(equation_symbols(equation)) if n in sizes and n not in plain]
    return f" ({', '.join(f'{n} = {sizes[n]}' for n in hidden)})" if hidden else ""


def _bound_text(equation: Equation, lhs: int, rhs: int) -> str | None:
    """``min(1, N) == 1`` and ``max(N, K) == N`` in words: what is too small or too large, and for what; None for any other
    equation."""
    if equation.lhs.as_int() is not None and equation.rhs.as_int() is not None:
        return f"a size is {rhs} where {lhs} is needed"
    extreme = sole_extreme(equation.lhs)
    if extreme is None or equation.rhs not in extreme.args or len(extreme.args) != 2:
        return None
    small = next((a for a in extreme.args if a != equation.rhs), equation.rhs)
    at_least = extreme.kind == "min"
    if small.as_int() is not None:
        return f"{equation.rhs} = {rhs} where {'at most' if at_least else 'at least'} {small} is needed"
    limit = str(rhs) if equation.rhs.as_int() is not None else f"{equation.rhs} = {rhs}"
    return f"{small} = {lhs} where {'at least' if at_least else 'at most'} {limit} is needed"


def _solve_all(signature: Signature, equations: Sequence[tuple[Expr, int, str]], known: dict[str, int]) -> None:
    """Solve by shapes and by the assumptions of the signature, then by defaults for what is still open."""
    _solve_with_assumptions(signature, equations, known)
    for name, value in signature.defaults.items():
        known.setdefault(name, value)
    _solve_with_assumptions(signature, equations, known)


def _solve_with_assumptions(signature: Signature, equations: Sequence[tuple[Expr, int, str]], known: dict[str, int]) -> None:
    solve(equations, known)
    while signature.assumptions:
        before = len(known)
        solve(list(_half_known(signature, known)), known)
        if len(known) == before:
            return
        solve(equations, known)


def _half_known(signature: Signature, known: Mapping[str, int]) -> Iterator[tuple[Expr, int, str]]:
    """Assumed equations with one side known: (other side, value, place)."""
    for e in signature.assumptions:
        for side, other in ((e.lhs, e.rhs), (e.rhs, e.lhs)):
            if not e.is_read and free_vars(side) <= known.keys() and not free_vars(other) <= known.keys():
                yield other, evaluate(side, known), e.at


def _without_solution(signature: Signature, known: Mapping[str, int]) -> Diagnostic | None:
    """E1304 for an assumption that no value of its one open symbol meets."""
    for side, value, at in _half_known(signature, known):
        names = free_vars(side) - known.keys()
        if len(names) == 1 and all(not mono or [str(m) for m in mono] == [*names] for mono, _ in side.terms):
            why = f"{value} is assumed to be {side}, which it is for no {min(names)}"
            return diagnostic(
                "AxisAlignmentMismatch", at or "signature", why, "pass inputs whose sizes agree with this equation"
            )
    return None


def solve(equations: Sequence[tuple[Expr, int, str]], known: dict[str, int]) -> None:
    """Solve sizes that are linear in one unknown symbol, until nothing changes. Each equation: size, value, place."""
    progress = True
    while progress:
        progress = False
        for size, value, _ in equations:
            unknown = free_vars(size) - known.keys()
            if len(unknown) != 1:
                continue
            (name,) = unknown
            solution = _linear_solution(
                substitute(size, {k: expr(known[k]) for k in free_vars(size) & known.keys()}), name, value
            )
            if solution is not None:
                known[name] = solution
                progress = True


def _linear_solution(size: Expr, name: str, value: int) -> int | None:
    coefficient, constant = 0, 0
    for mono, coef in size.terms:
        if not mono:
            constant = coef
        elif len(mono) == 1 and str(mono[0]) == name:
            coefficient = coef
        else:
            return None
    if coefficient == 0 or (value - constant) % coefficient:
        return None
    solution = (value - constant) // coefficient
    return solution if solution >= 0 else None


def _disagreement(size: Expr, value: int, at: str, known: Mapping[str, int]) -> Diagnostic | None:
    if not free_vars(size) <= known.keys():
        return None
    expected = evaluate(size, known)
    if expected == value:
        return None
    text = f"{size} = {expected}" if size.as_int() is None else str(expected)
    return diagnostic(
        "AxisAlignmentMismatch", at, f"the size is {value} where the signature has {text}", "pass inputs whose sizes agree"
    )
