"""Interface for functions of the operator table: the graph under construction, the metadata of the results, casts,
broadcasts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import sympy
import torch
from torch.utils._sympy import functions as torch_sympy

from tatami.core.dtype import DType
from tatami.core.expr import ZERO, Expr, IntoExpr, Shape, expr, product
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.dtypes import FROM_TORCH, Promotion, promote
from tatami.torch.imported import Forbidden
from tatami.torch.refusal import Refusal
from tatami.torch.sizes import Size, from_sympy, is_found_by_data, shape_of, size_expr


@dataclass(frozen=True)
class Real:
    """A float computed from sizes (a SymFloat)."""

    value: sympy.Expr


Number: TypeAlias = bool | int | float | Expr | Real
Operand: TypeAlias = Tensor | Number
"""An operand of an elementwise operator."""
Value: TypeAlias = "Tensor | Number | tuple[Value, ...] | None"


@dataclass
class Importer:
    """The builder of one frontend graph. `results`: metadata of the results of the node that is being imported."""

    graph: Graph
    results: tuple[torch.Tensor, ...] = ()
    seeds: list[Tensor] = field(default_factory=list)
    """The key of the program's random numbers, as an additional input; empty until an operator needs it."""
    draws: int = 0
    """Number of operators that have drawn random numbers; each has a stream of its own."""

    checks: list[tuple[Tensor, tuple[str, bool]]] = field(default_factory=list)
    """(LAPACK's info of an operator that raises if it is not 0, (name, is one matrix) for PyTorch's check)."""
    forbidden: list[tuple[Tensor, Forbidden]] = field(default_factory=list)
    """(condition that must be false for every element, diagnostic for an element that breaks it)."""
    _looked: dict[tuple[str, Expr, bool], Tensor] = field(default_factory=dict)
    """Results of `within` by (index name, size, `from_end`), so that an index is checked once."""
    at: str = ""
    """Name of the node that is being imported, for diagnostics."""
    raises: bool = True
    """True if the caller of the program evaluates `checks` and `forbidden`."""
    finds_sizes: bool = False
    """True if data may decide sizes, each read by a Host step; else operators with such sizes are refused."""
    leaves: bool = False
    """True if operators that PyTorch runs faster may stay in PyTorch."""
    found: set[str] = field(default_factory=set)
    """Symbols of the sizes that Host steps read."""
    begun: set[str] = field(default_factory=set)
    """Names of results of exchanges with other processes, and of averages of these."""

    def check(self, info: Tensor, name: str, is_matrix: bool) -> None:
        """Let the caller raise eager's error `name` if `info` is not 0."""
        if not self.raises:
            raise Refusal(f"{name} raises where it fails, which a program alone cannot (forms named _ex give info instead)")
        self.checks.append((info, (name, is_matrix)))

    def leave_larger(self, matrix: Tensor, order: int) -> None:
        """Refuse a matrix with more rows or columns than `order`, or of open sizes, if PyTorch may run the operator: LAPACK
        works in blocks, our loops one column or rotation at a time."""
        sizes = [s.as_int() for s in matrix.shape[-2:]]
        if self.leaves and any(s is None or s > order for s in sizes):
            raise Refusal(f"PyTorch is quicker for matrices of more than {order} rows or columns")

    @property
    def raises_for_values(self) -> bool:
        """True if eager checks values on this device, and the caller can be told; on a GPU that would mean waiting."""
        return self.raises and all(v.device.type == "cpu" for v in self.results if isinstance(v, torch.Tensor))

    def forbid_zero(self, divisor: Tensor, given: Tensor | Number) -> None:
        """Forbid integer division by 0 in all elements. `given`: the operator's divisor, a number or a tensor."""
        if isinstance(given, int) and given:
            return
        if not self.raises_for_values or not divisor.dtype.is_int or any(s == ZERO for s in self.shape):
            return
        zero = divisor.one("eq", self.graph.number(0, divisor.dtype))
        if divisor.shape != self.shape and any(s.as_int() is None for s in self.shape):
            zero = zero.one("and", self.graph.size_of(product(self.shape)).one("ne", 0))
        why, suggestion = "an integer is divided by 0", "check the values of the divisor"
        self._forbid(zero, Forbidden("DivisionByZero", self.at, why, suggestion))

    def within(self, index: Tensor, size: IntoExpr, *, from_end: bool = False) -> tuple[Tensor, str]:
        """(index of an axis of `size` elements, out-of-range policy for kernels). The index is int32 or int64; with
        `from_end` negative ones count from the end. If the caller can be told, one check of the whole index serves all
        reads, which then only stay inside; else the kernels check."""
        if not self.raises_for_values:
            return index, "wrap" if from_end else "error"
        size = expr(size)
        number = size.as_int()
        if number is None or number >= 2**31:
            index = index.cast(DType.i64)
        count = self.graph.size_of(size).cast(index.dtype) if number is None else self.graph.number(number, index.dtype)
        key = (index.name, size, from_end)
        if key not in self._looked:
            outside = index.one("ge", count).one("or", index < (0 - count if from_end else 0))
            suggestion = "check the values of the index tensor"
            self._forbid(outside, Forbidden("IndexOutOfRange", self.at, f"an index is outside {size} elements", suggestion))
            self._looked[key] = self.graph.where(index < 0, index + count, index) if from_end else index
        return self._looked[key], "clamp"

    def _forbid(self, truth: Tensor, what: Forbidden) -> None:
        self.forbidden.append((truth.any() if truth.rank else truth, what))

    # -- what the result is ----------------------------------------------------------------------
    @property
    def shape(self) -> Shape:
        """The shape of the (first) result."""
        return self.shape_at(0)

    @property
    def dtype(self) -> DType:
        """The dtype of the (first) result."""
        return self.dtype_at(0)

    def shape_at(self, k: int) -> Shape:
        """The shape of result number k."""
        return shape_of(self.results[k])

    def dtype_at(self, k: int) -> DType:
        """The dtype of result number k."""
        return dtype_of(self.results[k])

    def found_size(self, size: Size) -> str:
        """The symbol of a size that the node being imported reads from data. Raises Refusal if data may not decide it."""
        name = size_expr(size).as_name()
        if not self.finds_sizes or not is_found_by_data(size) or name is None or name in self.found:
            raise Refusal("how many elements it gives depends on data")
        self.found.add(name)
        return name

    # -- operands --------------------------------------------------------------------------------
    def tensor(self, value: Tensor | Number, dtype: DType) -> Tensor:
        """A tensor or a number as a tensor of `dtype`; numbers have rank 0."""
        match value:
            case Tensor():
                return self.cast(value, dtype)
            case Expr():
                number = value.as_int()
                return self.graph.number(number, dtype) if number is not None else self.cast(self.graph.size_of(value), dtype)
            case Real():
                return self.cast(self._real(value.value), dtype)
            case bool() | int() | float():
                return self.graph.number(_fitting(value, dtype), dtype)
            case _:
                raise Refusal(f"a {type(value).__name__} where a tensor or a number is needed")

    def _real(self, e: sympy.Expr) -> Tensor:
        """A float expression over sizes, in fp64."""
        match e:
            case sympy.Integer() | sympy.Float() | sympy.Rational():
                return self.graph.number(float(e), DType.fp64)
            case torch_sympy.FloatTrueDiv() | torch_sympy.IntTrueDiv():
                return self._real(e.args[0]) / self._real(e.args[1])
            case torch_sympy.ToFloat():
                return self._real(e.args[0])
            case torch_sympy.OpaqueUnaryFn_sqrt():
                return self._real(e.args[0]).sqrt()
            case torch_sympy.FloatPow():
                return self._real(e.args[0]).one("pow", self._real(e.args[1]))
            case sympy.Add() | sympy.Mul() if not e.is_integer:
                out = self._real(e.args[0])
                for other in map(self._real, e.args[1:]):
                    out = out + other if isinstance(e, sympy.Add) else out * other
                return out
            case _:
                return self.graph.size_of(from_sympy(e)).cast(DType.fp64)

    def cast(self, x: Tensor, dtype: DType) -> Tensor:
        """The tensor converted to `dtype`."""
        return x.cast(dtype)

    def expand(self, x: Tensor, shape: Sequence[IntoExpr]) -> Tensor:
        """`x` broadcast to `shape` from the right; rank 0 stays, since elementwise operations repeat it."""
        to = tuple(expr(s) for s in shape)
        return x if x.shape == to or not x.shape else x.expand(to)

    def taken_as(self, x: Tensor, shape: Sequence[IntoExpr]) -> Tensor:
        """`x` in a shape whose sizes PyTorch guards to be equal although the expressions differ: recorded as an assumption,
        checked when sizes are bound."""
        to = tuple(expr(s) for s in shape)
        return x if x.shape == to else x.reshape(to)

    def filled(self, x: Tensor, shape: Sequence[IntoExpr]) -> Tensor:
        """`x` repeated to exactly `shape`, also from rank 0."""
        to = tuple(expr(s) for s in shape)
        return x if x.shape == to else x.expand(to)

    def promoted(self, *operands: Tensor | Number, promotion: Promotion = "default") -> DType:
        """The dtype in which PyTorch computes with these operands."""
        tensors = [(o.dtype, bool(o.shape)) for o in operands if isinstance(o, Tensor)]
        numbers = [
            1 if isinstance(o, Expr) else 1.0 if isinstance(o, Real) else o for o in operands if not isinstance(o, Tensor)
        ]
        return promote(tensors, numbers, promotion)

    def joined(self, *operands: Tensor | Number, promotion: Promotion = "default", dtype: DType | None = None) -> list[Tensor]:
        """The operands in one dtype and in the result's shape (numbers and rank 0 stay rank 0)."""
        to = dtype or self.promoted(*operands, promotion=promotion)
        return [self.expand(self.tensor(o, to), self.shape) for o in operands]

    def elementwise(self, op: str, *operands: Tensor | Number, promotion: Promotion = "default", **attrs: object) -> Tensor:
        """An elementwise operation of the frontend over operands converted by PyTorch's rules."""
        values = self.joined(*operands, promotion=promotion)
        return self.graph.one(op, *values, node=None, at=None, **attrs)

    # -- axes ------------------------------------------------------------------------------------
    def axis(self, axis: int, rank: int) -> int:
        """The axis counted from the front; negative ones count from the end, and rank 0 counts as rank 1."""
        return axis % max(rank, 1)

    def axes(self, axes: Sequence[int] | int | None, rank: int) -> tuple[int, ...]:
        """Sorted axes counted from the front; None and the empty list stand for all."""
        if axes is None or (not isinstance(axes, int) and not axes):
            return tuple(range(rank))
        given = (axes,) if isinstance(axes, int) else axes
        return tuple(sorted(self.axis(a, rank) for a in given)) if rank else ()


def dtype_of(value: torch.Tensor) -> DType:
    """Dtype of a torch tensor. Raises Refusal."""
    found = FROM_TORCH.get(value.dtype)
    if found is None:
        raise Refusal(f"the element type {str(value.dtype).removeprefix('torch.')}")
    return found


def constant_int(size: IntoExpr | float, what: str) -> int:
    """A size that must be a number. Raises Refusal."""
    number = expr(size).as_int() if not isinstance(size, bool | float) else int(size)
    if number is None:
        raise Refusal(f"{what} is {size}, and has to be a number")
    return number


def _fitting(value: bool | int | float, dtype: DType) -> bool | int | float:
    """A Python number converted to `dtype`, as PyTorch converts numbers to the dtype it computes in."""
    if dtype == DType.bool:
        return bool(value)
    if dtype.is_int:
        return int(value)
    return float(value)
