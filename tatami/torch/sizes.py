"""SymInts as size expressions, and the order of a tensor's axes in memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TypeAlias

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._sympy import functions as torch_sympy

from tatami.core.expr import Expr, Shape, ceildiv, expr, floordiv, maximum, minimum, mod, product, var
from tatami.torch.refusal import Refusal

Size: TypeAlias = int | torch.SymInt | Expr
"""A size of PyTorch or of Tatami."""


def size_expr(size: Size) -> Expr:
    """A PyTorch size as a size expression. Raises Refusal for a form that size expressions do not have."""
    if isinstance(size, Expr):
        return size
    if isinstance(size, torch.SymInt):
        return from_sympy(size.node.expr)
    return expr(int(size))


def is_found_by_data(size: object) -> bool:
    """True if PyTorch has a symbol for the size that no input's shape decides."""
    return isinstance(size, torch.SymInt) and bool(free_unbacked_symbols(size))


def is_never_negative(size: torch.SymInt) -> bool:
    """True if PyTorch has proved, or was told by `torch._check`, that the number is 0 or more."""
    return bool(size.node.shape_env.bound_sympy(size.node.expr).lower >= 0)


def shape_of(value: torch.Tensor) -> Shape:
    """The shape of a torch tensor as size expressions. Raises Refusal."""
    return tuple(size_expr(s) for s in value.shape)


def from_sympy(e: sympy.Expr) -> Expr:
    """A sympy expression of integer symbols as a size expression: sums, products, powers, floor division, remainder,
    minimum and maximum. Raises Refusal for any other."""
    match e:
        case sympy.Integer():
            return expr(int(e))
        case sympy.Symbol():
            return var(str(e))
        case sympy.Add():
            return reduce(lambda a, b: a + b, map(from_sympy, e.args))
        case sympy.Mul():
            return _product(e)
        case sympy.Pow() if isinstance(e.exp, sympy.Integer) and int(e.exp) > 0:
            return product([from_sympy(e.base)] * int(e.exp))
        case torch_sympy.PowByNatural() if isinstance(e.args[1], sympy.Integer):
            return product([from_sympy(e.args[0])] * int(e.args[1]))
        case torch_sympy.FloorDiv():
            return floordiv(from_sympy(e.args[0]), from_sympy(e.args[1]))
        case torch_sympy.CeilDiv():
            return ceildiv(from_sympy(e.args[0]), from_sympy(e.args[1]))
        case torch_sympy.CleanDiv():
            return floordiv(from_sympy(e.args[0]), from_sympy(e.args[1]))
        case torch_sympy.Mod() | torch_sympy.PythonMod():
            return mod(from_sympy(e.args[0]), from_sympy(e.args[1]))
        case torch_sympy.ModularIndexing():
            base, divisor, modulus = map(from_sympy, e.args)
            return mod(floordiv(base, divisor), modulus)
        case torch_sympy.Max() | sympy.Max():
            return maximum(*map(from_sympy, e.args))
        case torch_sympy.Min() | sympy.Min():
            return minimum(*map(from_sympy, e.args))
        case torch_sympy.Identity():
            return from_sympy(e.args[0])
        case _:
            raise Refusal(f"the size {e} is not a sum of products with floor division")


def _product(e: sympy.Mul) -> Expr:
    """An integer product; a rational factor divides the product of the other factors."""
    numerator, denominator = e.as_numer_denom()
    if denominator == 1:
        return product(map(from_sympy, e.args))
    return floordiv(from_sympy(numerator), from_sympy(denominator))


def strides_of(value: torch.Tensor) -> Shape:
    """The strides of a torch tensor as size expressions. Raises Refusal."""
    return tuple(size_expr(s) for s in value.stride())


def memory_order(shape: Shape, strides: Shape) -> tuple[int, ...] | None:
    """The axes from the slowest to the fastest in memory if the elements have neither gaps nor overlaps; else None."""
    ones = [a for a in range(len(shape)) if shape[a].as_int() == 1]
    order: list[int] = []
    inner: tuple[Expr, Expr] = (expr(1), expr(1))  # PyTorch computes strides with size 1, or 0, for an axis of size 0
    left = [a for a in range(len(shape)) if a not in ones]
    while left:  # from the fastest axis on
        fits = [a for a in left if strides[a] in inner]
        if not fits:
            return None
        order.insert(0, fits[-1])
        left.remove(fits[-1])
        size = shape[fits[-1]]
        inner = (inner[0] * size, inner[1] * maximum(size, 1))
    return _place_ones(order, ones, len(shape))


def in_order(tensor: torch.Tensor, order: tuple[int, ...] | None) -> torch.Tensor:
    """The tensor with its axes in memory order; unchanged for None."""
    return tensor if order is None else tensor.permute(*order)


def _place_ones(order: Sequence[int], ones: Sequence[int], rank: int) -> tuple[int, ...]:
    """The order with axes of size 1, which may stand anywhere, inserted so that it stays nearest to 0, 1, 2, …"""
    out = list(order)
    for axis in ones:
        at = next((k for k, other in enumerate(out) if other > axis), len(out))
        out.insert(at, axis)
    return tuple(out)
