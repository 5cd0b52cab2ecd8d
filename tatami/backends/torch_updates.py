"""Updates as optimisers write them, replaced in the graph of Dynamo: lists of tensors, and factors that are arguments of the graph.

    torch._foreach_add_(ps, gs, alpha=-lr)   ->   p.add_(g * -lr) for each p, g

PyTorch has no decomposition of operators of lists, and takes the factor of an update as a constant of the graph, so that each learning
rate would be a graph of its own. A factor of a product is an argument of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import fx

Traced: TypeAlias = Any
"""An argument or result of an operator while PyTorch traces it: a tensor, a number, or a list of them."""
FOREACH = "_foreach_"
"""The beginning of the names of functions of lists of tensors."""
FACTORS = {"add": "alpha", "sub": "alpha", "addcmul": "value", "addcdiv": "value"}
"""Operator -> its argument that scales a term."""
OPERANDS = {"add": ("other",), "sub": ("other",), "addcmul": ("tensor1", "tensor2"), "addcdiv": ("tensor1", "tensor2")}
"""Operator -> names of its operands after the first, which is `input` of a function and `self` of a method."""
OTHERS = ("norm", "max", "powsum")
"""Functions of lists whose arguments are not those of the methods of tensors."""
NUMBERS = ("scalar", "scalars")
"""Names of the last argument of functions of lists, which the methods call otherwise."""
OF_NUMBERS = {"maximum": "clamp_min", "maximum_": "clamp_min_", "minimum": "clamp_max", "minimum_": "clamp_max_"}
"""Function of lists -> the method that takes numbers as well as tensors, where its own does not."""


def replace_update(node: fx.Node) -> None:
    """Replace a node of Dynamo's graph that updates lists, or by a factor that is an argument of the graph, in place."""
    name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
    if node.op == "call_function" and node.target is getattr(torch, name, None) and name.startswith(FOREACH):
        base = name.removeprefix(FOREACH)
        if hasattr(torch.Tensor, base) and base.rstrip("_") not in OTHERS:
            node.target = _Each(base)
        return
    if node.target is torch.ops.prims.fma.default and any(map(_is_number, node.args)):
        node.target = _fused
        return
    base = name.rstrip("_")
    factor = FACTORS.get(base)
    if factor is None or not _is_number(node.kwargs.get(factor)):
        return
    is_known = node.op == "call_method" or node.target is getattr(torch, base)
    if is_known and node.kwargs.keys() <= {factor, "input", *OPERANDS[base]}:  # not `out`
        node.op, node.target = "call_function", _One(name)


def _is_number(x: Traced) -> bool:
    """True if the argument of a node is a number that the graph gets."""
    return isinstance(x, fx.Node) and isinstance(x.meta.get("example_value"), torch.SymFloat)


def _fused(a: Traced, b: Traced, c: Traced) -> Traced:
    """a * b + c, into which Dynamo turns some updates by a factor."""
    return a * b + c


class _One:
    """A method of tensors, whose factor is one of a product unless it is a constant."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self._method: Callable[..., Traced] = getattr(torch.Tensor, name)
        self._base = name.rstrip("_")

    def __call__(self, /, *args: Traced, **given: Traced) -> Traced:
        factor = FACTORS.get(self._base)
        if factor is None:
            return self._method(*args, **given)
        names = ("input", *OPERANDS[self._base])
        operands: list[Traced] = [*args, *[given.pop(n) for n in names if n in given]]
        x = operands.pop(0)
        by = given.pop(factor, 1)
        if len(operands) > len(OPERANDS[self._base]):  # a function of lists may have factors as its last argument
            by = operands.pop()
        if isinstance(by, int | float):
            return self._method(x, *operands, **given, **({factor: by} if by != 1 else {}))
        term = operands[0]
        if self._base == "addcmul":
            term = operands[0] * operands[1]
        elif self._base == "addcdiv":
            term = operands[0] / operands[1]
        add = "sub" if self._base == "sub" else "add"
        is_in_place = self.__name__.endswith("_")
        return getattr(x, f"{add}_")(term * by) if is_in_place else getattr(torch, add)(x, term * by)


class _Each:
    """A function of lists of tensors: its method for each tensor of the lists, with all other arguments."""

    def __init__(self, name: str) -> None:
        self.__name__ = f"{FOREACH}{name}"
        self._one = _One(OF_NUMBERS.get(name, name))

    def __call__(self, /, *args: Traced, **given: Traced) -> Traced:
        args = (*(given.pop(n) for n in ("self",) if n in given), *args, *(given.pop(n) for n in NUMBERS if n in given))
        count = next(len(a) for a in (*args, *given.values()) if isinstance(a, list | tuple))

        def own(value: Traced, k: int) -> Traced:
            return value[k] if isinstance(value, list | tuple) else value

        made = []
        for k in range(count):
            x, *operands = (own(a, k) for a in args)
            if not isinstance(x, torch.Tensor):  # a power of a number
                made.append(torch.pow(x, *operands))
                continue
            made.append(self._one(x, *operands, **{name: own(a, k) for name, a in given.items()}))
        return made
