"""Sizes that reshapes assume to be equal (D2.6), rewritten so that every later layer can prove that it reads inside a tensor.

    x[N] reshaped to [M, 4]                  the input is x[4*M] (the caller's array must have that size)
    s[B, min(512, D)] reshaped to [B, D]     the equation stays an assumption, and s is padded to [B, D]

If an equation gives the size symbol of an input, the symbol is replaced everywhere in `main`. Any other equation becomes a pad
or crop of the axis that differs: nothing is read outside the tensor even before the assumption is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tatami.core.algebra.order import without_common_factor
from tatami.core.algebra.substitute import substitute_sizes
from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.expr import ONE, ZERO, Expr, Shape, product
from tatami.core.signature import Signature, symbols
from tatami.tiny.infer import Type, reshape_equation
from tatami.tiny.ir import Program, ReshapeOp


def replace_equal_symbols(program: Program) -> Program:
    """`main` with input symbols replaced by the expressions that its equations give for them."""
    signature = program.signature
    values = solved_symbols([(e.lhs, e.rhs) for e in signature.assumptions] + reshape_equations(program), signature)
    if not values:
        return program
    program = substitute_sizes(program, values)
    left = tuple(e for e in program.signature.assumptions if e.lhs != e.rhs)
    return msgspec.structs.replace(program, signature=msgspec.structs.replace(program.signature, assumptions=left))


def reshape_equations(program: Program) -> list[tuple[Expr, Expr]]:
    """The two element counts of every reshape whose equality is not proved."""
    nodes = {n.id: n for n in program.nodes}
    out: list[tuple[Expr, Expr]] = []
    for node in program.nodes:
        if isinstance(node.op, ReshapeOp):
            x = nodes[node.src[0]]
            equation = reshape_equation(Type(x.dtype, x.shape), node.shape)
            if equation is not None:
                out.append(equation)
    return out


def solved_symbols(equations: Iterable[tuple[Expr, Expr]], signature: Signature) -> Mapping[str, Expr]:
    """Symbol → the expression it equals, in terms of symbols that stay. Symbols with a default or a must_bind stay."""
    order = {name: i for i, name in enumerate(symbols_of_inputs(signature))}
    fixed = set(signature.must_bind) | signature.defaults.keys()
    values: dict[str, Expr] = {}
    for lhs, rhs in equations:
        a, b = without_common_factor(substitute(lhs, values), substitute(rhs, values))
        found = _solve(a, b, order, fixed)
        if found is None:
            continue
        name, value = found
        values = {n: substitute(v, {name: value}) for n, v in values.items()} | {name: value}
    return values


def symbols_of_inputs(signature: Signature) -> tuple[str, ...]:
    """Size symbols of the signature's inputs, in order."""
    return symbols(Signature(signature.inputs))


def _solve(a: Expr, b: Expr, order: Mapping[str, int], fixed: set[str]) -> tuple[str, Expr] | None:
    """The later symbol if a side of the equation is one, and the other side; else None."""
    candidates: list[tuple[str, Expr]] = []
    for side, other in ((a, b), (b, a)):
        name = side.as_name()
        names = free_vars(other)
        if name is not None and name in order and name not in fixed and name not in names and names <= order.keys():
            candidates.append((name, other))
    return max(candidates, key=lambda c: order[c[0]], default=None)


def differing_axes(old: Shape, new: Shape) -> tuple[int, int]:
    """(number of equal leading axes, number of equal trailing axes) of `old` and `new`; at least one axis of each is left
    between."""
    room = min(len(old), len(new)) - 1
    first = 0
    while first < room and old[first] == new[first]:
        first += 1
    last = 0
    while last < room - first and old[-1 - last] == new[-1 - last]:
        last += 1
    return first, last


def padded_reshape(old: Shape, new: Shape) -> tuple[Shape, tuple[tuple[Expr, Expr], ...], Shape]:
    """(merged shape, pads, padded shape): a reshape of `old` to `new` that needs no equation.

    Reshape to the first (exact), pad by the second, which gives the third, and reshape that to `new` (exact).
    """
    if not old or not new:
        old, new = old or (ONE,), new or (ONE,)
    first, last = differing_axes(old, new)
    end_old, end_new = len(old) - last, len(new) - last
    have, want = product(old[first:end_old]), product(new[first:end_new])
    merged = (*old[:first], have, *old[end_old:])
    pad = tuple((ZERO, want - have if k == first else ZERO) for k in range(len(merged)))
    return merged, pad, (*old[:first], want, *old[end_old:])
