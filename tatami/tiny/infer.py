"""The type of a node from its op and the types of its operands: the only place of tiny's shape rules.

Binary and ternary ops broadcast right-aligned (spec 2 §0); `strict` requires operands of one shape, as normalised tiny has.
Leaves (INPUT, CONST, SIZE, IOTA) declare their own type: `own`.

>>> from tatami.core.expr import shape
>>> str(infer(ir.PermuteOp(perm=(1, 0)), [Type(DType.fp32, shape("M", "K"))]))
'fp32[K, M]'
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, assert_never

from tatami.core.algebra.order import is_always_less, is_outside, without_common_factor
from tatami.core.algebra.size_forms import slice_size
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, Shape, product, shape_text
from tatami.core.ops import OPS, REDUCE_OPS, SCAN_OPS, ScalarOp, result_dtype, scalar_fault
from tatami.core.scalar import Scalar
from tatami.tiny import ir


class Type(NamedTuple):
    """Dtype and shape of one value."""

    dtype: DType
    shape: Shape

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def infer(
    op: ir.Op,
    src: Sequence[Type],
    own: Type | None = None,
    *,
    call: ir.CallOp | None = None,
    strict: bool = False,
    at: str = "node",
) -> Type:
    """The type of the node `op` over operands `src`. Raises TatamiError naming `at`.

    `own` is the declared type of a leaf; `call` the CALL that a RESULT reads.
    """
    _check_arity(op, len(src), at)
    match op:
        case ir.InputOp() | ir.ConstOp() | ir.SizeOp() | ir.IotaOp():
            return _leaf(op, own, at)
        case ir.ReshapeOp(result_shape=to):
            left, right = product(src[0].shape), product(to)
            fewer, more = without_common_factor(left, right)
            if is_always_less(fewer, more) or is_always_less(more, fewer):
                raise fail(
                    "AxisSizeMismatch",
                    at,
                    f"RESHAPE of {src[0]} to {shape_text(to)} changes the number of elements from {left} to {right}",
                    "give a result_shape with the same number of elements",
                )
            return Type(src[0].dtype, to)
        case ir.PermuteOp(perm=perm):
            if sorted(perm) != list(range(len(src[0].shape))):
                raise fail(
                    "InvalidPermutation",
                    at,
                    f"{list(perm)} is not a permutation of the {len(src[0].shape)} axes of {src[0]}",
                    "name every axis exactly once",
                )
            return Type(src[0].dtype, tuple(src[0].shape[p] for p in perm))
        case ir.ExpandOp(result_shape=to, broadcast_dimensions=dims):
            return _expand(src[0], to, dims, at)
        case ir.PadOp(pad=pad, value=value):
            _check_rank("pad", len(pad), src[0], at)
            _check_value(value, src[0].dtype, at)
            return Type(src[0].dtype, tuple(s + lo + hi for s, (lo, hi) in zip(src[0].shape, pad, strict=True)))
        case ir.ShrinkOp():
            return _shrink(op, src[0], at)
        case ir.FlipOp(axes=axes):
            _check_axes(axes, src[0], at)
            return src[0]
        case ir.ViewOp(result_shape=to, index_map=index_map):
            _check_rank("index_map", len(index_map), src[0], at)
            return Type(src[0].dtype, to)
        case ir.Elementwise(fn=fn):
            if fn not in OPS:
                raise fail("UnknownOp", at, f"{fn!r} is not a scalar op", "use one of core.ops")
            return Type(_elementwise_dtype(OPS[fn], src, at), joined_shape([t.shape for t in src], at, strict=strict))
        case ir.CastOp(to=dtype):
            return Type(dtype, src[0].shape)
        case ir.BitcastOp(to=dtype):
            if dtype.itemsize != src[0].dtype.itemsize:
                raise fail(
                    "UnsupportedDType",
                    at,
                    f"BITCAST from {src[0].dtype} to {dtype} changes the size of an element",
                    "choose a dtype of the same size",
                )
            return Type(dtype, src[0].shape)
        case ir.ReduceOp():
            return _reduce(op, src[0], at)
        case ir.ScanOp(op=fn, axis=axis, dtype=dtype):
            if fn not in SCAN_OPS:
                raise fail("InvalidAttribute", at, f"{fn!r} is not a scan op", f"use one of {', '.join(SCAN_OPS)}")
            _check_axes((axis,), src[0], at)
            return Type(dtype, src[0].shape)
        case ir.GatherOp(result_shape=to, map=entries):
            _check_rank("map", len(entries), src[0], at)
            _check_indices(src[1:], to, at)
            return Type(src[0].dtype, to)
        case ir.ScatterOp(map=entries):
            _check_rank("map", len(entries), src[0], at)
            if src[1].dtype != src[0].dtype:
                raise _dtype_mismatch(src[:2], at)
            _check_indices(src[2:], src[1].shape, at)
            return src[0]
        case ir.RandOp(result_shape=to):
            if src[0] != Type(DType.u64, ()):
                raise fail("UnsupportedDType", at, f"the key of RAND is {src[0]}", "give a rank-0 u64")
            return Type(DType.u32, to)
        case ir.CallOp(results=results):
            first = results[0] if results else None
            return Type(DType.bool, ()) if first is None else Type(first.dtype, first.shape)
        case ir.ResultOp(index=index):
            if call is None or not 0 <= index < len(call.results):
                raise fail("UnknownValue", at, f"RESULT {index} does not name a result of a CALL", "read an index the CALL has")
            return Type(call.results[index].dtype, call.results[index].shape)
        case _:
            assert_never(op)


def reshape_equation(src: Type, to: Shape) -> tuple[Expr, Expr] | None:
    """The two element counts of a reshape if their equality is not proved; None if it is (D2.6)."""
    left, right = product(src.shape), product(to)
    return None if left == right else (left, right)


def are_assumed_equal(old: Shape, new: Shape, assumed: Collection[tuple[Expr, Expr]]) -> bool:
    """True if the equations `assumed` make the shapes equal axis by axis."""
    return len(old) == len(new) and all(a == b or (a, b) in assumed for a, b in zip(old, new, strict=True))


def joined_shape(shapes: Sequence[Shape], at: str, *, strict: bool = False) -> Shape:
    """The right-aligned broadcast of `shapes` (spec 2 §0). Raises E1001; with `strict`, whenever two differ."""
    rank = max(len(s) for s in shapes)
    if strict and any(s != shapes[0] for s in shapes):
        raise _broadcast_mismatch(shapes, at)
    out: list[Expr] = []
    for axis in range(rank):
        size = ONE
        for s in shapes:
            j = axis - (rank - len(s))
            if j < 0 or s[j] == ONE:
                continue
            if size == ONE:
                size = s[j]
            elif size != s[j]:
                raise _broadcast_mismatch(shapes, at, f"; axis {axis} is {size} and {s[j]}")
        out.append(size)
    return tuple(out)


def _broadcast_mismatch(shapes: Sequence[Shape], at: str, axis: str = "") -> TatamiError:
    widest = max(shapes, key=len)
    return fail(
        "BroadcastMismatch",
        at,
        f"operands of shapes {' and '.join(map(shape_text, shapes))} do not have one shape{axis}",
        f'insert EXPAND with "result_shape": {shape_text(widest)} on the smaller operand',
    )


def _leaf(op: ir.Op, own: Type | None, at: str) -> Type:
    if own is None:
        raise fail("UnknownDType", at, f"{type(op).__name__} does not declare its dtype and shape", "give both on the node")
    match op:
        case ir.ConstOp() if own.shape:
            raise fail("InvalidAttribute", at, f"CONST has shape {shape_text(own.shape)}", "a constant has rank 0; EXPAND it")
        case ir.SizeOp() if own.shape or not own.dtype.is_int:
            raise fail("InvalidAttribute", at, f"SIZE is {own}", "a size is a rank-0 integer")
        case ir.IotaOp(axis=axis):
            _check_axes((axis,), own, at)
        case _:
            pass
    return own


def _expand(src: Type, to: Shape, dims: tuple[int, ...], at: str) -> Type:
    if len(dims) != len(src.shape) or any(not 0 <= d < len(to) for d in dims) or list(dims) != sorted(set(dims)):
        raise fail(
            "AxisOutOfRange",
            at,
            f"broadcast_dimensions {list(dims)} do not place the {len(src.shape)} axes of {src} in {shape_text(to)}",
            "give one increasing result axis per operand axis",
        )
    for s, d in zip(src.shape, dims, strict=True):
        if s != ONE and s != to[d]:
            raise fail(
                "BroadcastMismatch",
                at,
                f"EXPAND puts an axis of size {s} on an axis of size {to[d]}",
                f"only an axis of size 1 repeats; write {s} at position {d} of result_shape",
            )
    return Type(src.dtype, to)


def _shrink(op: ir.ShrinkOp, src: Type, at: str) -> Type:
    for name, values in (("lo", op.lo), ("hi", op.hi), ("step", op.step)):
        _check_rank(name, len(values), src, at)
    out: list[Expr] = []
    for size, lo, hi, step in zip(src.shape, op.lo, op.hi, op.step, strict=True):
        if step < 1:
            raise fail("InvalidAttribute", at, f"SHRINK has step {step}", "use FLIP, then a positive step")
        if is_outside(lo, hi, size):
            raise fail(
                "AxisOutOfRange", at, f"SHRINK takes {lo} to {hi} of an axis of size {size}", "keep 0 <= lo <= hi <= size"
            )
        out.append(slice_size(lo, hi, step, size))
    return Type(src.dtype, tuple(out))


def _reduce(op: ir.ReduceOp, src: Type, at: str) -> Type:
    if op.op not in REDUCE_OPS:
        raise fail("InvalidAttribute", at, f"{op.op!r} is not a reduce op", f"use one of {', '.join(REDUCE_OPS)}")
    _check_axes(op.axes, src, at)
    arg = op.op in ("argmax", "argmin")
    if arg and (len(op.axes) != 1 or op.dtype != DType.i64):
        raise fail("InvalidAttribute", at, f"{op.op} reduces {len(op.axes)} axes to {op.dtype}", "give one axis and dtype i64")
    if op.op in ("and", "or") and src.dtype != DType.bool:
        raise fail("UnsupportedDType", at, f"{op.op} reduces {src.dtype}", "CAST the operand to bool")
    if op.init is not None:
        _check_value(op.init, op.dtype, at)
    return Type(op.dtype, tuple(s for i, s in enumerate(src.shape) if i not in op.axes))


def _check_value(value: Scalar, dtype: DType, at: str) -> None:
    if why := scalar_fault(value, dtype):
        raise fail("DTypeMismatch", at, why, "write a value of that type, or CAST the operand")


def _elementwise_dtype(op: ScalarOp, src: Sequence[Type], at: str) -> DType:
    out = result_dtype(op, tuple(t.dtype for t in src))
    if out is not None:
        return out
    values = src[1:] if op.rule == "select" else src
    if len({t.dtype for t in values}) > 1:
        raise _dtype_mismatch(values, at)
    raise fail(
        "UnsupportedDType",
        at,
        f"{op.uop} of {', '.join(str(t.dtype) for t in src)} is not defined",
        f"CAST the operands to {_WANTED[op.rule]}",
    )


_WANTED = {
    "same": "a numeric dtype",
    "signed": "a signed dtype",
    "float": "a float dtype",
    "compare": "one dtype",
    "logic": "bool",
    "int": "an integer dtype",
    "bits": "an integer dtype or bool",
    "select": "bool for the condition",
    "test": "a float dtype",
}


def _dtype_mismatch(src: Sequence[Type], at: str) -> TatamiError:
    widest = max((t.dtype for t in src), key=lambda d: (d.is_float, d.itemsize))
    return fail(
        "DTypeMismatch",
        at,
        f"operands have dtypes {' and '.join(str(t.dtype) for t in src)}",
        f'insert CAST with "to": "{widest}"',
    )


def _check_indices(indices: Sequence[Type], shape: Shape, at: str) -> None:
    for t in indices:
        if not t.dtype.is_int:
            raise fail("UnsupportedDType", at, f"an index operand is {t.dtype}", "CAST the index to i64")
        if t.shape != shape:
            raise fail(
                "BroadcastMismatch",
                at,
                f"an index operand has shape {shape_text(t.shape)}, the result {shape_text(shape)}",
                f'insert EXPAND with "result_shape": {shape_text(shape)}',
            )


_ARITY: dict[type, int] = {ir.InputOp: 0, ir.ConstOp: 0, ir.SizeOp: 0, ir.IotaOp: 0}


def _check_arity(op: ir.Op, count: int, at: str) -> None:
    match op:
        case ir.CallOp():
            return
        case ir.Elementwise(fn=fn):
            wanted = OPS[fn].arity if fn in OPS else count
        case ir.GatherOp(map=entries):
            wanted = 1 + entries.count(None)
        case ir.ScatterOp(map=entries):
            wanted = 2 + entries.count(None)
        case _:
            wanted = _ARITY.get(type(op), 1)
    if count != wanted:
        raise fail("InvalidAttribute", at, f"{type(op).__name__} has {count} operands", f"give {wanted}")


def _check_axes(axes: Sequence[int], src: Type, at: str) -> None:
    if any(not 0 <= a < len(src.shape) for a in axes) or len(set(axes)) != len(axes):
        raise fail(
            "AxisOutOfRange", at, f"axes {list(axes)} of a value of rank {len(src.shape)}", "name existing axes, each once"
        )


def _check_rank(what: str, count: int, src: Type, at: str) -> None:
    if count != len(src.shape):
        raise fail("InvalidAttribute", at, f"{what} has {count} entries for {src}", f"give {len(src.shape)}, one per axis")
