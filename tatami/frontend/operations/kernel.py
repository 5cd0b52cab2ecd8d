"""Custom kernels as formulas: what a user writes at the level of one element (spec 1 "Kernel").

    kernel          a formula at every element                        input0 * 2 + ridx1
    kernel_reduce   the same, then a reduction over axes              sum over axis 1 of input0 * input1
    kernel_scan     the same, then a running sum, product, max, min

The formula's axes are those of the operands (one shape; rank 0 meets any), or of `shape`: `ridx0` runs along axis 0,
`shape0` is its size, before any reduction. Formulas become elementwise UOps and fuse like any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

import msgspec

from tatami.core.custom.formula import TypedTerm, typed
from tatami.core.custom.formula_text import parse_formula
from tatami.core.dtype import DType
from tatami.core.expr import Shape, shape_text
from tatami.frontend.ir import TensorType
from tatami.frontend.operation import Operands, Operation, Site, axis_of, joined, need, want
from tatami.frontend.operations.reduction import REDUCTION, Cumulative, Reduce

Reduction = Literal["sum", "prod", "max", "min", "and", "or", "mean"]
_ROWS = {op.name: op for op in REDUCTION}


class Kernel(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `kernel`. `shape`: sizes of the axes if no operand has them."""

    expression: str
    shape: Shape | None = None


class KernelReduce(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `kernel_reduce`. `axes` None: all axes. keepdims leaves axes of size 1."""

    expression: str
    op: Reduction
    axes: tuple[int, ...] | None = None
    keepdims: bool = False
    acc_dtype: DType | None = None
    shape: Shape | None = None

    @property
    def reduction(self) -> Reduce:
        """The attributes of the reduction after the formula."""
        return Reduce(self.axes, self.keepdims, self.acc_dtype)


class KernelScan(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `kernel_scan`. `exclusive`: without the element itself; `reverse`: from the end."""

    expression: str
    op: Literal["sum", "prod", "max", "min"]
    axis: int = 0
    exclusive: bool = False
    reverse: bool = False
    shape: Shape | None = None

    @property
    def scan(self) -> Cumulative:
        """The attributes of the scan after the formula."""
        return Cumulative(self.axis, self.exclusive, self.reverse)


def formula_terms(
    attrs: Kernel | KernelReduce | KernelScan, dtypes: tuple[DType, ...], rank: int, at: str
) -> tuple[TypedTerm, ...]:
    """The typed terms of a node's formula. Raises TatamiError with the place in the formula."""
    return typed(parse_formula(attrs.expression, at), dtypes, rank, at)


def formula_type(attrs: Kernel | KernelReduce | KernelScan, operands: Operands, site: Site) -> TensorType:
    """The type of the formula's values, before any reduction."""
    types = need(operands)
    for k, t in enumerate(types):
        want(t.dtype != DType.unknown, f"operand {k} has no dtype yet", "give it one: g.number(v, dtype)", site, "UnknownDType")
    shape = joined(types, site)
    if attrs.shape is not None:
        declared = attrs.shape
        want(
            not shape or shape == declared,
            f"the operands have shape {shape_text(shape)}, the kernel is declared over {shape_text(declared)}",
            "leave `shape` out, or expand the operands to it",
            site,
            "BroadcastMismatch",
        )
        shape = declared
    return TensorType(formula_terms(attrs, tuple(t.dtype for t in types), len(shape), site.at)[-1].dtype, shape)


def _kernel(attrs: Kernel, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    return (formula_type(attrs, operands, site),)


def _kernel_reduce(attrs: KernelReduce, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    return _ROWS[f"reduce_{attrs.op}"].infer(attrs.reduction, [formula_type(attrs, operands, site)], site)


def _kernel_scan(attrs: KernelScan, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    value = formula_type(attrs, operands, site)
    axis_of(attrs.axis, len(value.shape), site)
    return _ROWS[f"cum{attrs.op}"].infer(attrs.scan, [value], site)


Attrs = TypeVar("Attrs", bound=msgspec.Struct)


def _row(
    name: str, attrs: type[Attrs], infer: Callable[[Attrs, Operands, Site], tuple[TensorType, ...]], doc: str
) -> Operation:
    return Operation(name, attrs, 0, -1, infer, doc)


KERNEL: tuple[Operation, ...] = (
    _row("kernel", Kernel, _kernel, "a formula over input0…, ridx0…, shape0… at every element (docs/custom_kernels.md)"),
    _row("kernel_reduce", KernelReduce, _kernel_reduce, "the same, reduced over axes"),
    _row("kernel_scan", KernelScan, _kernel_scan, "the same, running along an axis"),
)
"""Rows of the table: custom kernels as formulas."""
