"""UOps: movement, elementwise, reduce, in a table in topological order (spec 2, spec 3 §3).

A node is ``id, op, src, dtype, shape``; `op` is the UOp with its arguments. In JSON a node reads as in spec 2 §1.1: ``{"id":
"n2", "uop": "RESHAPE", "src": ["n0"], "arg": {"result_shape": ["M", 1, "K"]}, "dtype": …, "shape": …}``. Ids are our own
counters (``n0, n1, …``); `tag` has no effect on anything. Nodes are pure; mutation stands in the signature (`updates`), other
programs and routines behind CALL and RESULT.

Normalised (`tiny`): every binary and ternary op has operands of one shape, CONST is rank 0, a MUL that feeds only a
REDUCE(SUM) has the reduce's dtype (D2.21), which may differ from its operands' dtype.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from tatami.core.custom.verbatim import KernelCode
from tatami.core.dtype import DType
from tatami.core.expr import Expr, Shape
from tatami.core.scalar import Scalar
from tatami.core.signature import Signature


class InputOp(msgspec.Struct, frozen=True, tag_field="uop", tag="INPUT"):
    """An input of the signature by its tensor name."""

    tensor_id: str


class ConstOp(msgspec.Struct, frozen=True, tag_field="uop", tag="CONST"):
    """A rank-0 constant of the node's dtype."""

    value: Scalar


class SizeOp(msgspec.Struct, frozen=True, tag_field="uop", tag="SIZE"):
    """A rank-0 integer holding the value of a size expression."""

    value: Expr


class IotaOp(msgspec.Struct, frozen=True, tag_field="uop", tag="IOTA"):
    """The coordinate along `axis` of the node's own shape."""

    axis: int


class ReshapeOp(msgspec.Struct, frozen=True, tag_field="uop", tag="RESHAPE"):
    """The operand's elements in row-major order in another shape."""

    result_shape: Shape


class PermuteOp(msgspec.Struct, frozen=True, tag_field="uop", tag="PERMUTE"):
    """Axis j of the result is axis perm[j] of the operand."""

    perm: tuple[int, ...]


class ExpandOp(msgspec.Struct, frozen=True, tag_field="uop", tag="EXPAND"):
    """Operand axis j becomes result axis broadcast_dimensions[j]; other result axes repeat (one entry per operand
    axis; an operand axis of size 1 may land on an axis of any size)."""

    result_shape: Shape
    broadcast_dimensions: tuple[int, ...]


class PadOp(msgspec.Struct, frozen=True, tag_field="uop", tag="PAD"):
    """The operand with `lo` elements of the constant `value` before it and `hi` after it along each axis; `pad` is (lo, hi)
    per axis, and negative numbers crop."""

    pad: tuple[tuple[Expr, Expr], ...]
    value: Scalar = 0


class ShrinkOp(msgspec.Struct, frozen=True, tag_field="uop", tag="SHRINK"):
    """Elements lo, lo+step, … < hi of each axis; step > 0."""

    lo: Shape
    hi: Shape
    step: tuple[int, ...]


class FlipOp(msgspec.Struct, frozen=True, tag_field="uop", tag="FLIP"):
    """The operand reversed along `axes`."""

    axes: tuple[int, ...]


class ViewOp(msgspec.Struct, frozen=True, tag_field="uop", tag="VIEW"):
    """Operand coordinate d is ``index_map[d]`` over the result's axes i0, i1, …: affine with floordiv."""

    result_shape: Shape
    index_map: tuple[Expr, ...]


class Elementwise(msgspec.Struct, frozen=True, tag_field="uop", tag="ELEMENTWISE"):
    """A scalar op of `core.ops` at every element; in JSON `uop` is the op's own name (ADD, FDIV, WHERE, …)."""

    fn: str


class CastOp(msgspec.Struct, frozen=True, tag_field="uop", tag="CAST"):
    """The operand converted to dtype `to`."""

    to: DType


class BitcastOp(msgspec.Struct, frozen=True, tag_field="uop", tag="BITCAST"):
    """The same bits as another dtype of the same size."""

    to: DType


class ReduceOp(msgspec.Struct, frozen=True, tag_field="uop", tag="REDUCE"):
    """sum, prod, max, min, and, or, argmax, argmin over `axes`, which are removed. `dtype`: accumulation and result type;
    argmax and argmin give the first position (i64) and take exactly one axis. `init`: start value, by default the neutral
    element."""

    op: str
    axes: tuple[int, ...]
    dtype: DType
    init: Scalar | None = None


class ScanOp(msgspec.Struct, frozen=True, tag_field="uop", tag="SCAN"):
    """Running sum, prod, max or min along `axis`. `exclusive`: without the element itself; `reverse`: from the end."""

    op: str
    axis: int
    dtype: DType
    exclusive: bool = False
    reverse: bool = False


Bounds: TypeAlias = Literal["error", "wrap", "clamp", "zero", "assume"]
"""Out-of-range policy of an index. error: reported at run time; wrap: negative counts from the end, then error;
clamp: nearest; zero: reads 0, writes nothing; assume: the producer proved the range."""


class GatherOp(msgspec.Struct, frozen=True, tag_field="uop", tag="GATHER"):
    """``out[o] = data[map(o)]``; an entry None of `map` takes its value from the next index operand.

    src = data, then one index tensor (result-shaped, integer) for each None. torch.gather(x, 1, i) has map = [i0, None, i2];
    an embedding out[b, s, d] = W[i[b, s], d] has map = [None, i2] and i expanded.
    """

    result_shape: Shape
    map: tuple[Expr | None, ...]
    bounds: Bounds = "wrap"


class ScatterOp(msgspec.Struct, frozen=True, tag_field="uop", tag="SCATTER"):
    """A copy of src[0] in which element ``map(u)`` is combined with updates[u], in row-major order of u.

    src = target, updates, then one index tensor (updates-shaped) for each None of `map` (over the axes of updates).
    set: the last duplicate wins; add, mul, max, min combine all.
    """

    op: Literal["set", "add", "mul", "max", "min"]
    map: tuple[Expr | None, ...]
    bounds: Bounds = "wrap"


class RandOp(msgspec.Struct, frozen=True, tag_field="uop", tag="RAND"):
    """Philox4x32-10 words (u32): element with row-major index e is word e%4 of block e//4. src = key (u64, rank 0)."""

    result_shape: Shape


class ResultType(msgspec.Struct, frozen=True):
    """Dtype and shape of one result of a CALL."""

    dtype: DType
    shape: Shape


class CallOp(msgspec.Struct, frozen=True, tag_field="uop", tag="CALL"):
    """Work outside the DAG. `kind` program: call `targets[0]`; if: src[0] chooses targets[0] or targets[1]; loop: see decision
    0004; routine: a native routine with declared reads and writes; host: a Python step between kernels, which may own
    `new_symbols` (sizes it decides). Results are read by RESULT; the CALL node itself has the type of its first result and
    is read by nothing else."""

    kind: Literal["program", "if", "loop", "routine", "host"]
    targets: tuple[str, ...]
    results: tuple[ResultType, ...]
    sizes: dict[str, Expr] = {}
    """The callee's size symbols in terms of the caller's, for kind program; empty by default."""
    new_symbols: tuple[str, ...] = ()
    attrs: dict[str, Scalar | list[Scalar]] = {}
    code: KernelCode | None = None
    """The bodies that a user wrote, for routine "custom"; else None."""


class ResultOp(msgspec.Struct, frozen=True, tag_field="uop", tag="RESULT"):
    """Result number `index` of the CALL it reads."""

    index: int


Movement: TypeAlias = ReshapeOp | PermuteOp | ExpandOp | PadOp | ShrinkOp | FlipOp | ViewOp
Op: TypeAlias = (
    InputOp
    | ConstOp
    | SizeOp
    | IotaOp
    | Movement
    | Elementwise
    | CastOp
    | BitcastOp
    | ReduceOp
    | ScanOp
    | GatherOp
    | ScatterOp
    | RandOp
    | CallOp
    | ResultOp
)
MOVEMENT = (ReshapeOp, PermuteOp, ExpandOp, PadOp, ShrinkOp, FlipOp, ViewOp)
"""Ops that only move elements."""


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the table. `src`: ids of the operands; `tag`: a name for readers, without effect."""

    id: str
    op: Op
    src: tuple[str, ...]
    dtype: DType
    shape: Shape
    tag: str = ""


class Program(msgspec.Struct, frozen=True):
    """A table of nodes with its signature. `outputs[i]` is the node whose value is `signature.outputs[i]`."""

    signature: Signature
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
