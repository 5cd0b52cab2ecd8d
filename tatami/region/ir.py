"""Kernels as value SSA: one Region is one kernel (spec 3 §6).

    Region = iters, reduce_axes, inputs (MemRef), lets, yields, outputs (MemRef)
    Let    = name, axes it runs over, dtype, one expression

Indices are named: an expression inside a let may use the let's axes and, inside a Reduce or Scan body, that reduce's
axes. `Ref(l)` reads let l at the same-named axes (its axes must all be in scope); `At(l, map)` reads it through a map,
one entry per axis of l. BroadcastInDim and Transpose are the named cases of At that the explicit form spells out
(`region@explicit`); the canonical form (`region`) reads directly (C-CON1).

A Reduce or a Scan is the whole expression of its let, and its body holds neither (SRNF: ``let acc = Reduce(op, K){…}``).
Only a Within predicate guards: where it fails, `then` is not evaluated.

A size symbol and an axis never share a name. Nothing here speaks of buffers, tiles or stages.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from tatami.core.custom.verbatim import KernelCode
from tatami.core.dtype import DType
from tatami.core.expr import Expr, Shape
from tatami.core.layout import MemRef
from tatami.core.scalar import Scalar
from tatami.core.signature import Signature
from tatami.indexbook.ir import Guard
from tatami.tiny.ir import Bounds


class Iter(msgspec.Struct, frozen=True):
    """One axis: its name and its extent."""

    name: str
    size: Expr


# -- expressions ---------------------------------------------------------------------------------


class Read(msgspec.Struct, frozen=True, tag_field="op", tag="read"):
    """Element of an input tensor at an axis map."""

    tensor: str
    map: tuple[Expr, ...]


class ReadAt(msgspec.Struct, frozen=True, tag_field="op", tag="read_at"):
    """A Read whose None entries of `map` take the values of `indices` in order (integer expressions). `bounds`: treatment of
    an index outside the tensor."""

    tensor: str
    map: tuple[Expr | None, ...]
    indices: tuple[RegionExpr, ...]
    bounds: Bounds = "wrap"


class Ref(msgspec.Struct, frozen=True, tag_field="op", tag="ref"):
    """Let `let` at the axes of the same names."""

    let: str


class At(msgspec.Struct, frozen=True, tag_field="op", tag="at"):
    """Let `let` at `map`, one expression per axis of that let."""

    let: str
    map: tuple[Expr, ...]


class Const(msgspec.Struct, frozen=True, tag_field="op", tag="const"):
    """A constant number of `dtype`."""

    value: Scalar
    dtype: DType


class Index(msgspec.Struct, frozen=True, tag_field="op", tag="index"):
    """The value of an index expression (Iota of an axis is ``Index("i0")``)."""

    value: Expr
    dtype: DType


class Within(msgspec.Struct, frozen=True, tag_field="op", tag="within"):
    """True where all guards ``0 <= index < size`` hold; the predicate of pads, slices and tails."""

    guards: tuple[Guard, ...]


class Unary(msgspec.Struct, frozen=True, tag_field="op", tag="unary"):
    """Scalar operation `fn` of `core.ops.OPS` of one operand."""

    fn: str
    x: RegionExpr


class Binary(msgspec.Struct, frozen=True, tag_field="op", tag="binary"):
    """Scalar operation `fn` of `core.ops.OPS` of two operands."""

    fn: str
    x: RegionExpr
    y: RegionExpr


class Select(msgspec.Struct, frozen=True, tag_field="op", tag="select"):
    """`then` where `pred` holds, else `other`. With a Within predicate `then` is not evaluated outside."""

    pred: RegionExpr
    then: RegionExpr
    other: RegionExpr


class Cast(msgspec.Struct, frozen=True, tag_field="op", tag="cast"):
    """`x` converted to dtype `to`."""

    x: RegionExpr
    to: DType
    bits: bool = False
    """True to reinterpret the bits instead of converting; False by default."""


class Reduce(msgspec.Struct, frozen=True, tag_field="op", tag="reduce"):
    """`fn` of `core.ops.REDUCE_OPS` of `body` over `axes`, accumulated in `dtype`, starting from `init`."""

    fn: str
    axes: tuple[str, ...]
    init: Scalar | None
    dtype: DType
    body: RegionExpr


class Scan(msgspec.Struct, frozen=True, tag_field="op", tag="scan"):
    """Running `fn` of `body` along `axis`, which is an axis of the let. `exclusive`: without the element itself; `reverse`:
    from the end."""

    fn: str
    axis: str
    dtype: DType
    body: RegionExpr
    exclusive: bool = False
    reverse: bool = False


class Random(msgspec.Struct, frozen=True, tag_field="op", tag="random"):
    """Philox4x32-10 word (u32) number `counter` under `key` (u64)."""

    key: RegionExpr
    counter: Expr


class BroadcastInDim(msgspec.Struct, frozen=True, tag_field="op", tag="broadcast_in_dim"):
    """Axis j of the operand is axis ``axes[broadcast_dimensions[j]]`` of the let. A Ref operand is matched by position; any
    other operand already names its axes."""

    operand: RegionExpr
    result_shape: Shape
    broadcast_dimensions: tuple[int, ...]


class Transpose(msgspec.Struct, frozen=True, tag_field="op", tag="transpose"):
    """Axis j of the let is axis ``permutation[j]`` of the operand (a Ref, matched by position)."""

    operand: RegionExpr
    permutation: tuple[int, ...]


RegionExpr: TypeAlias = (
    Read
    | ReadAt
    | Ref
    | At
    | Const
    | Index
    | Within
    | Unary
    | Binary
    | Select
    | Cast
    | Reduce
    | Scan
    | Random
    | BroadcastInDim
    | Transpose
)


# -- the Region ----------------------------------------------------------------------------------


class Param(msgspec.Struct, frozen=True):
    """An input. `name`: a value id of tiny, or a document's own name."""

    name: str
    memref: MemRef


class Target(msgspec.Struct, frozen=True, omit_defaults=True):
    """An output. `materialize`: "gmem" for memory; "deferred" hands it to the next Region on the same chip if the plan can
    (D2.9). `updates`: the input buffer that this output overwrites in place, or ""."""

    name: str
    memref: MemRef
    materialize: Literal["gmem", "deferred"] = "gmem"
    updates: str = ""


class Let(msgspec.Struct, frozen=True):
    """One assignment: the value of `expr` at every point of `axes`."""

    name: str
    axes: tuple[str, ...]
    dtype: DType
    expr: RegionExpr


class Yield(msgspec.Struct, frozen=True, omit_defaults=True):
    """Write let `source` to output `to`. `map`: the target index over the let's axes (None: the let's axes in order); its None
    entries come from `indices` (lets of the same axes). Writes to one element are combined by `combine` in row-major order.
    The writes of all yields to one output must cover it, unless the output updates an input."""

    source: str
    to: str
    cast: DType | None = None
    map: tuple[Expr | None, ...] | None = None
    indices: tuple[str, ...] = ()
    combine: Literal["set", "add", "mul", "max", "min"] = "set"
    bounds: Bounds = "wrap"


class Opaque(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a Region that is a named routine (sort, topk, …): reads all inputs, writes all outputs."""

    routine: str
    attrs: dict[str, Scalar | list[Scalar]] = {}
    operands: tuple[str, ...] = ()
    """The routine's operands as names of inputs, needed if one input stands twice; empty for the inputs in order."""
    code: KernelCode | None = None
    """The bodies that a user wrote, for routine "custom"; else None."""


class Region(msgspec.Struct, frozen=True, omit_defaults=True, weakref=True, tag_field="is", tag="region"):
    """One kernel. `iters`: axes of lets and yields; `reduce_axes`: axes that only reduces run over. Lets are in order of
    use."""

    name: str
    iters: tuple[Iter, ...]
    reduce_axes: tuple[Iter, ...]
    inputs: tuple[Param, ...]
    outputs: tuple[Target, ...]
    lets: tuple[Let, ...]
    yields: tuple[Yield, ...]
    opaque: Opaque | None = None


class Step(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="is", tag="step"):
    """Work that is not a Region: a CALL of tiny kept for execution (program, if, loop, host)."""

    name: str
    kind: Literal["program", "if", "loop", "host"]
    targets: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[Param, ...]
    sizes: dict[str, Expr] = {}
    new_symbols: tuple[str, ...] = ()
    attrs: dict[str, Scalar | list[Scalar]] = {}


class Program(msgspec.Struct, frozen=True):
    """Regions and steps in an order that respects data flow. Tensors are value ids of tiny.

    `inputs[i]` is the id that holds signature.inputs[i], `outputs[i]` the one that holds signature.outputs[i]; an output
    may be an input, or occur twice.
    """

    signature: Signature
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    body: tuple[Region | Step, ...]
