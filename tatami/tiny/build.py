"""Construction of tiny nodes, one line each: `Builder` makes ids and infers types, `Value` writes arithmetic.

Binary ops broadcast right-aligned, as the imported form may. Numbers become CONST of the other operand's dtype.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, IntoExpr, Shape, expr, product, var
from tatami.core.scalar import Scalar, scalar
from tatami.core.signature import Equation
from tatami.tiny import ir
from tatami.tiny.infer import Type, are_assumed_equal, infer, reshape_equation


class Value:
    """One node under construction: its id, dtype and shape, with Python's arithmetic operators."""

    __slots__ = ("builder", "dtype", "id", "shape")

    def __init__(self, builder: Builder, id: str, type: Type) -> None:
        self.builder = builder
        self.id = id
        self.dtype, self.shape = type

    @property
    def rank(self) -> int:
        """Number of axes of the value."""
        return len(self.shape)

    @property
    def unrounded(self) -> Value | None:
        """The operand of this node if it is a rounding to tf32; else None."""
        by_id = {n.id: n for n in self.builder.nodes}
        node = by_id[self.id]
        if node.op != ir.Elementwise("tf32"):
            return None
        source = by_id[node.src[0]]
        return Value(self.builder, source.id, Type(source.dtype, source.shape))

    # -- elementwise -------------------------------------------------------------------------------
    def fn(self, name: str, *others: Value | Scalar) -> Value:
        """The scalar op `name` of `core.ops` with this value as first operand."""
        b = self.builder
        return b.add(ir.Elementwise(name), (self, *(o if isinstance(o, Value) else b.const(o, self.dtype) for o in others)))

    def __add__(self, other: Value | float) -> Value:
        return self.fn("add", other)

    def __sub__(self, other: Value | float) -> Value:
        return self.fn("sub", other)

    def __mul__(self, other: Value | float) -> Value:
        return self.fn("mul", other)

    def __truediv__(self, other: Value | float) -> Value:
        return self.fn("div" if self.dtype.is_float else "idiv", other)

    def __neg__(self) -> Value:
        return self.fn("neg")

    def __lt__(self, other: Value | float) -> Value:
        return self.fn("lt", other)

    def __le__(self, other: Value | float) -> Value:
        return self.fn("le", other)

    def __gt__(self, other: Value | float) -> Value:
        return self.fn("gt", other)

    def __ge__(self, other: Value | float) -> Value:
        return self.fn("ge", other)

    def where(self, yes: Value, no: Value | Scalar) -> Value:
        """`yes` where this condition holds, else `no`."""
        return self.fn("where", yes, no if isinstance(no, Value) else self.builder.const(no, yes.dtype))

    def cast(self, to: DType) -> Value:
        """The value converted to dtype `to`."""
        return self if self.dtype == to else self.builder.add(ir.CastOp(to), (self,))

    def bitcast(self, to: DType) -> Value:
        """The same bits as dtype `to`, which has the same size."""
        return self if self.dtype == to else self.builder.add(ir.BitcastOp(to), (self,))

    # -- movement ----------------------------------------------------------------------------------
    def reshape(self, shape: Iterable[IntoExpr]) -> Value:
        """The value in another shape. Element counts that are not provably equal become an assumption of the program."""
        to = tuple(expr(s) for s in shape)
        if to == self.shape:
            return self
        equation = reshape_equation(Type(self.dtype, self.shape), to)
        if equation is not None and not are_assumed_equal(self.shape, to, {(e.lhs, e.rhs) for e in self.builder.assumptions}):
            self.builder.assume(*equation)
        return self.builder.add(ir.ReshapeOp(to), (self,))

    def permute(self, perm: Sequence[int]) -> Value:
        """Axis j of the result is axis ``perm[j]`` of this value."""
        return self if list(perm) == list(range(self.rank)) else self.builder.add(ir.PermuteOp(tuple(perm)), (self,))

    def expand(self, shape: Shape, dims: Sequence[int] | None = None) -> Value:
        """The value repeated to `shape`. `dims`: the result axis of each operand axis; by default right-aligned."""
        if shape == self.shape:
            return self
        at = tuple(range(len(shape) - self.rank, len(shape))) if dims is None else tuple(dims)
        return self.builder.add(ir.ExpandOp(shape, at), (self,))

    def pad(self, pads: Sequence[tuple[IntoExpr, IntoExpr]], value: Scalar = 0) -> Value:
        """The value with (elements before, elements after) each axis, filled with `value`; negative widths crop."""
        full = tuple((expr(lo), expr(hi)) for lo, hi in pads)
        if all(lo == ZERO and hi == ZERO for lo, hi in full):
            return self
        return self.builder.add(ir.PadOp(full, scalar(value)), (self,))

    def shrink(self, lo: Sequence[IntoExpr], hi: Sequence[IntoExpr], step: Sequence[int] | None = None) -> Value:
        """Elements lo, lo + step, … < hi of each axis; `step` is 1 by default."""
        los, his = tuple(map(expr, lo)), tuple(map(expr, hi))
        steps = tuple(step) if step is not None else (1,) * self.rank
        if all(s == ZERO for s in los) and his == self.shape and all(s == 1 for s in steps):
            return self
        return self.builder.add(ir.ShrinkOp(los, his, steps), (self,))

    def flip(self, axes: Sequence[int]) -> Value:
        """The value reversed along `axes`."""
        return self.builder.add(ir.FlipOp(tuple(axes)), (self,)) if axes else self

    def view(self, shape: Iterable[IntoExpr], index_map: Iterable[Expr]) -> Value:
        """Operand coordinate d is ``index_map[d]`` over the result's axes i0, i1, …"""
        return self.builder.add(ir.ViewOp(tuple(map(expr, shape)), tuple(index_map)), (self,))

    def unsqueeze(self, *axes: int) -> Value:
        """The value with axes of size 1 at these positions of the result, in ascending order."""
        shape = list(self.shape)
        for a in axes:
            shape.insert(a, ONE)
        return self.reshape(shape)

    def gather(self, shape: Shape, index_map: Sequence[Expr | None], *indices: Value, bounds: ir.Bounds = "wrap") -> Value:
        """Elements at ``index_map``, whose None entries are taken from `indices` in order; result of `shape`."""
        return self.builder.add(ir.GatherOp(shape, tuple(index_map), bounds), (self, *(i.expand(shape) for i in indices)))

    # -- reduce ------------------------------------------------------------------------------------
    def reduce(self, op: str, axes: Sequence[int], dtype: DType | None = None, *, keepdims: bool = False) -> Value:
        """The reduction over `axes`, accumulated in `dtype` (fp32 for 16-bit floats by default), which is also the result's.
        Without axes only the cast."""
        acc = dtype or (DType.fp32 if self.dtype.is_narrow_float else self.dtype)
        if op in ("argmax", "argmin"):
            acc = DType.i64
        elif not axes:
            return self.cast(acc)
        out = self.builder.add(ir.ReduceOp(op, tuple(sorted(axes)), acc), (self,))
        return out.unsqueeze(*sorted(axes)) if keepdims else out

    def sum(self, axes: Sequence[int], dtype: DType | None = None, *, keepdims: bool = False) -> Value:
        """The `reduce` by addition."""
        return self.reduce("sum", axes, dtype, keepdims=keepdims)

    def max(self, axes: Sequence[int], *, keepdims: bool = False) -> Value:
        """The `reduce` by maximum, in the value's own dtype."""
        return self.reduce("max", axes, self.dtype, keepdims=keepdims)

    def scan(self, op: str, axis: int, dtype: DType, *, exclusive: bool = False, reverse: bool = False) -> Value:
        """Running `op` along `axis`. `exclusive`: without the element itself; `reverse`: from the end."""
        return self.builder.add(ir.ScanOp(op, axis, dtype, exclusive, reverse), (self,))


class Builder:
    """The growing node table of one program."""

    def __init__(self) -> None:
        self.nodes: list[ir.Node] = []
        self.assumptions: list[Equation] = []
        self.at = ""
        """The frontend node being lowered: named in diagnostics and origins."""
        self.origins: dict[str, tuple[str, ...]] = {}
        self.shared: dict[tuple[ir.Op, DType, Shape], Value] = {}
        self.codes: dict[str, tuple[Value, DType]] = {}
        """Id of a number decoded from fp8 → (its byte, the fp8 dtype)."""

    def add(self, op: ir.Op, src: Sequence[Value] = (), own: Type | None = None, call: ir.CallOp | None = None) -> Value:
        """Append a node and return its value. CONST, SIZE and IOTA of one type are made once. `own`: type of a leaf; `call`:
        the CALL that a RESULT reads."""
        if not src and own is not None and isinstance(op, ir.ConstOp | ir.SizeOp | ir.IotaOp):
            key = (op, own.dtype, own.shape)
            if isinstance(op, ir.ConstOp):  # 1, 1.0 and True are equal in Python
                key = (ir.ConstOp(repr(op.value)), own.dtype, own.shape)
            if key not in self.shared:
                self.shared[key] = self._append(op, (), own, None)
            return self.shared[key]
        return self._append(op, src, own, call)

    def _append(self, op: ir.Op, src: Sequence[Value], own: Type | None, call: ir.CallOp | None) -> Value:
        id = f"n{len(self.nodes)}"
        type = infer(op, [Type(v.dtype, v.shape) for v in src], own, call=call, at=self.at or id)
        self.nodes.append(ir.Node(id, op, tuple(v.id for v in src), type.dtype, type.shape))
        self.origins[id] = (self.at,) if self.at else ()
        return Value(self, id, type)

    def const(self, value: Scalar, dtype: DType) -> Value:
        """A rank-0 constant of `dtype`."""
        return self.add(ir.ConstOp(scalar(value)), own=Type(dtype, ()))

    def size(self, value: Expr, dtype: DType = DType.i64) -> Value:
        """A rank-0 integer: CONST if the size is a number, else SIZE."""
        number = value.as_int()
        return self.const(number, dtype) if number is not None else self.add(ir.SizeOp(value), own=Type(dtype, ()))

    def iota(self, shape: Shape, axis: int, dtype: DType = DType.i64) -> Value:
        """The coordinate along `axis`, at every element of `shape`."""
        return self.add(ir.IotaOp(axis), own=Type(dtype, shape))

    def call(self, op: ir.CallOp, src: Sequence[Value]) -> tuple[Value, ...]:
        """Append a CALL and return its RESULTs."""
        node = self.add(op, src)
        return tuple(self.add(ir.ResultOp(i), (node,), call=op) for i in range(len(op.results)))

    def assume(self, lhs: Expr, rhs: Expr, *, is_read: bool = False) -> None:
        """Add the assumption lhs == rhs, unless it is trivial or known. `is_read`: a read relies on it."""
        equation = Equation(lhs, rhs, self.at, is_read)
        if lhs != rhs and equation not in self.assumptions:
            self.assumptions.append(equation)


def axis_vars(rank: int) -> list[Expr]:
    """Names i0, i1, … of the result axes in an index map."""
    return [var(f"i{j}") for j in range(rank)]


def count(shape: Shape, axes: Iterable[int]) -> Expr:
    """Number of elements along `axes`."""
    return product(shape[a] for a in axes)
