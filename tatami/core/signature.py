"""The signature of a program: its ABI (spec 3 §2.2, §12). The same value stands in every layer."""

from __future__ import annotations

from collections.abc import Container
from typing import Literal, TypeAlias

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.dtype import DType
from tatami.core.expr import Expr, Shape, expr
from tatami.core.layout import Layout, layout_fault

Role: TypeAlias = Literal["data", "param", "state", "const"]
Mutability: TypeAlias = Literal["immutable", "mutable"]
Storage: TypeAlias = Literal["argument", "const_pool", "held"]


class Input(msgspec.Struct, frozen=True, omit_defaults=True):
    """One input. `storage="const_pool"`: bound from the module's constants, or from an output of `setup` with that
    name; when neither has it the caller passes it. `storage="held"`: an argument that keeps its content over many calls,
    such as a parameter: what is computed of held inputs and constants alone is work of `setup`."""

    tensor: str
    dtype: DType
    shape: Shape
    role: Role = "data"
    mutability: Mutability = "immutable"
    storage: Storage = "argument"
    layout: Layout | None = None
    alignment: int = 0
    """Bytes of which the argument's address is a multiple when kernels run, which their code relies on: an argument that lies
    elsewhere is copied. 0: the dtype's."""


class Output(msgspec.Struct, frozen=True, omit_defaults=True):
    """One output. `updates` names a mutable input that receives the value in place, after all its reads."""

    tensor: str
    dtype: DType
    shape: Shape
    updates: str | None = None
    layout: Layout | None = None
    alignment: int = 0
    """Bytes of which the address of a result is a multiple, except in an array that the caller gives. 0: the dtype's."""


class Equation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Two sizes that have to be equal; checked when sizes are bound (E1304 names both).

    `is_read`: True if a view reads outside its tensor where they differ (E1804 then).
    """

    lhs: Expr
    rhs: Expr
    at: str = ""
    is_read: bool = False


class Signature(msgspec.Struct, frozen=True, omit_defaults=True):
    """Inputs and outputs of a program in call order, and `assumptions` that are checked when sizes are bound."""

    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    assumptions: tuple[Equation, ...] = ()
    defaults: dict[str, int] = {}
    """Size symbol that no input decides -> its value."""
    must_bind: tuple[str, ...] = ()
    """Symbols on whose value the program specialises (non-affine index arithmetic)."""

    def input(self, tensor: str) -> Input | None:
        """The input of that name; None if there is none."""
        return next((i for i in self.inputs if i.tensor == tensor), None)


def symbols(signature: Signature) -> tuple[str, ...]:
    """All size symbols of the signature, in order of first appearance."""
    out: dict[str, None] = {}
    ports: tuple[Input | Output, ...] = (*signature.inputs, *signature.outputs)
    for port in ports:
        for size in port.shape:
            for name in sorted(free_vars(size)):
                out.setdefault(name)
    return tuple(out)


def bound_values(signature: Signature) -> dict[str, Expr]:
    """Symbol that has to be bound -> its default, where it has one."""
    return {s: expr(signature.defaults[s]) for s in signature.must_bind if s in signature.defaults}


def is_constant(port: Input, pool: Container[str]) -> bool:
    """True if an input is the same in every call: held, or one of the constants named in `pool`."""
    return port.storage == "held" or (port.storage == "const_pool" and port.tensor in pool)


MOST_ALIGNMENT = 4096
"""Largest `alignment` of an input or output in bytes: a page."""


POOL_ALIGNMENT = 64
"""Bytes of which the address of a constant is a multiple."""


def port_fault(port: Input | Output) -> str:
    """The reason why a port's layout or alignment cannot be had; "" if there is none."""
    n = port.alignment
    if n and (n < 1 or n > MOST_ALIGNMENT or n & (n - 1)):
        return f"alignment {n} is not a power of two up to {MOST_ALIGNMENT} bytes"
    if n > POOL_ALIGNMENT and isinstance(port, Input) and port.storage == "const_pool":
        return f"alignment {n} of a constant: constants lie at multiples of {POOL_ALIGNMENT} bytes"
    return "" if port.layout is None else layout_fault(port.layout, len(port.shape))


def repeated_input(signature: Signature) -> str:
    """A name that two inputs share; empty if all differ."""
    names = [p.tensor for p in signature.inputs]
    return next((n for k, n in enumerate(names) if n in names[:k]), "")
