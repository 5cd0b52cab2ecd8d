"""Execution plans: instructions in waves over buffers in an arena (spec 4, spec 1 "Program", spec 3 §12).

    ExecutionPlan = instructions (with wave ids), buffers, input and output buffers, kernels
    Instruction   = op, inputs, outputs, debug_name, wave

Wave w+1 starts after wave w; instructions of one wave are independent. Sizes are expressions over the signature's
symbols; offsets are planned when sizes are bound.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from tatami.core.dtype import DType
from tatami.core.expr import Expr, Shape
from tatami.core.kernel import Condition, LocalBytes, Window
from tatami.core.layout import Layout
from tatami.core.module import Module
from tatami.core.numbers.collectives import COLLECTIVES
from tatami.core.scalar import Scalar
from tatami.core.signature import Signature


class BufferInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of memory of a program. `elements`: the physical count (layout included). `parent`: the buffer of which this is
    a slice, `offset` elements in; a slice of an input holds its updated value. `in_place_of`: the buffer whose memory this one
    takes over; the instruction that writes this one is the last to read that one. `first_use`, `last_use`: instruction
    positions (arena buffers only). `arena_offset`: bytes from the start of the arena if all sizes are numbers, else -1 and
    planned at bind; for a constant, bytes from the start of the ConstPool."""

    id: str
    dtype: DType
    shape: Shape
    elements: Expr
    kind: Literal["input", "output", "constant", "arena"]
    layout: Layout | None = None
    parent: str = ""
    offset: Expr | None = None
    in_place_of: str = ""
    first_use: int = -1
    last_use: int = -1
    arena_offset: int = -1
    alignment: int = 64


# -- operations ----------------------------------------------------------------------------------


class Ptr(msgspec.Struct, frozen=True, tag_field="arg", tag="ptr"):
    """An argument: the address of a buffer."""

    buffer: str


class SizeArg(msgspec.Struct, frozen=True, tag_field="arg", tag="size"):
    """An argument: the value of a size expression, an i64."""

    value: Expr


class TensorMap(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="arg", tag="tensor_map"):
    """A TMA descriptor over a buffer (`TensorMapSpec`)."""

    buffer: str
    dims: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    box: tuple[int, ...]
    swizzle: int
    tf32: bool = False
    window: Window | None = None


Arg: TypeAlias = Ptr | SizeArg | TensorMap


class Launch(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="launch"):
    """A generated kernel. On the CPU `grid` and `block` are empty; a kernel divides its work itself."""

    kernel: str
    args: tuple[Arg, ...]
    grid: tuple[Expr, ...] = ()
    block: tuple[int, ...] = ()
    cluster: tuple[int, ...] = ()
    shared_bytes: int = 0
    dependent: bool = False
    """True if on a GPU it may begin while the launch before it ends: the kernel waits itself before it touches memory."""
    local_bytes: LocalBytes = LocalBytes()
    """Bytes of local buffers that a loaded program allocates for its threads."""


class Case(msgspec.Struct, frozen=True):
    """Kernels that run one after another if all conditions hold."""

    conditions: tuple[Condition, ...]
    launches: tuple[Launch, ...]


class Choose(msgspec.Struct, frozen=True, tag_field="op", tag="choose"):
    """A Region with several kernels or several guarded plans: the first case that holds; the last always does."""

    cases: tuple[Case, ...]


class Call(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="call"):
    """A call of another program; `sizes`: its symbols as expressions of ours."""

    program: str
    sizes: dict[str, Expr] = {}
    new_symbols: tuple[str, ...] = ()
    """Sizes that only a run of the program decides (it has Host steps); found from the shapes of its results."""


class If(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="if"):
    """A call of one of two programs: inputs[0] (a rank-0 bool) chooses `then` or `otherwise`; the other inputs are the
    arguments of both."""

    then: str
    otherwise: str
    sizes: dict[str, Expr] = {}
    new_symbols: tuple[str, ...] = ()


class Loop(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="loop"):
    """Repeated calls of `body`. Inputs: trip count (i64, may be absent: ""), start condition (bool or ""), carried values,
    then captured values. The body takes (iteration, condition, carried…, captured…) and returns (condition, carried…,
    scanned…); outputs are the last carried values, then the scanned ones stacked along a new first axis."""

    body: str
    carried: int
    scanned: int
    sizes: dict[str, Expr] = {}
    new_symbols: tuple[str, ...] = ()
    varying: tuple[str, ...] = ()
    """The body's symbols whose value may differ in each turn: found from the shapes of its arguments."""


class Host(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="host"):
    """A Python step between segments (`runtime/host_steps.py`). It binds `new_symbols` before the next instruction."""

    routine: str
    new_symbols: tuple[str, ...] = ()
    attrs: dict[str, Scalar | list[Scalar]] = {}


class Extent(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="extent"):
    """Sizes read from memory by compiled code: `new_symbols`[k] is the integer inputs[k] (i64, rank 0), which is not negative. No
    buffer and no call of its program depends on them, since memory is planned before the program runs (`extents`)."""

    new_symbols: tuple[str, ...]


class Copy(msgspec.Struct, frozen=True, tag_field="op", tag="copy"):
    """The copy outputs[0] = inputs[0]."""


class Op(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", tag="op"):
    """A frontend operation run by the reference (only in plans of `from_graph`)."""

    name: str
    attrs: dict[str, Any] = {}
    new_symbols: tuple[str, ...] = ()
    """Sizes that its result decides."""


def is_collective(op: Operation) -> bool:
    """True if the operation exchanges data with other processes: it only begins the exchange, whose result is waited for
    before the first instruction that uses it."""
    return isinstance(op, Host) and op.routine in COLLECTIVES


def is_exchange_of_reference(op: Operation) -> bool:
    """True if the operation is a collective that the reference runs: it waits for the exchange at once."""
    return isinstance(op, Op) and op.name in COLLECTIVES


Operation: TypeAlias = Launch | Choose | Call | If | Loop | Host | Extent | Copy | Op


def launches(op: Operation) -> tuple[Launch, ...]:
    """The kernels that an operation may run itself."""
    match op:
        case Launch():
            return (op,)
        case Choose(cases=cases):
            return tuple(launch for c in cases for launch in c.launches)
        case _:
            return ()


def pointers(op: Operation) -> tuple[str, ...]:
    """The buffers that are arguments of an operation's kernels."""
    return tuple(a.buffer for launch in launches(op) for a in launch.args if isinstance(a, Ptr | TensorMap))


UNORDERED = -1
"""The wave of an instruction in a document without an order: `waves.order` infers one."""


class Instruction(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operation on buffers. An empty input is an absent one; `debug_name`: the Region or step that it was made from."""

    op: Operation
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    debug_name: str = ""
    wave: int = UNORDERED
    beside: bool = False
    """True for a launch, or a loop, that runs in parallel with others of its wave and kind that are marked so, each on one
    thread."""


class ExecutionPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """A program as instructions in order; `input_buffers`, `output_buffers`: ids in the order of the signature."""

    signature: Signature
    instructions: tuple[Instruction, ...]
    buffers: tuple[BufferInfo, ...]
    input_buffers: tuple[str, ...]
    output_buffers: tuple[str, ...]


def launched_kernels(execution: Module[ExecutionPlan]) -> set[str]:
    """The symbols of all kernels that an instruction may run."""
    return {launch.kernel for plan in execution.programs.values() for ins in plan.instructions for launch in launches(ins.op)}
