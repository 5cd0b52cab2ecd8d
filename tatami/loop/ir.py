"""CPU kernels as statement trees (spec 1 "SIMD", design §3 loop).

    Program  = kernels by symbol, bindings (which Region calls which kernel with which arguments)
    Kernel   = face, functions (static micro-kernels), body
    Stmt     = Declare | Assign | SetLane | Store | For | If | Parallel | LocalBuffer | Fault | Call | Prefetch
    Value    = Const | Reg | IndexOf | Load | Gather | Op | Cast | Splat | Lane | Shift | Across | Zip | Unzip | Horizontal | FirstLane | Fma
             | Within | LaneRange | Random

Every value has a dtype and a number of lanes (1: scalar); `type_of` tells both. Lanes mix only through Splat, Lane,
Shift, Across, Zip, Unzip, Horizontal and FirstLane. Index expressions are `core` Exprs over loop variables (x0, …) and size arguments
(s0, …), 64-bit, flooring.
All names are our own counters: p0… parameters, b… local buffers, s… sizes, x… loop variables, anything else registers.

16-bit floats live in registers as fp32 values on the 16-bit grid: Load widens, Store narrows, every Op rounds once.
bool in memory is one byte, 0 or 1.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

import msgspec

from tatami.core.custom.verbatim import NO_CODE, VerbatimCode
from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.core.kernel import Binding, KernelFace
from tatami.core.ops import OPS, result_dtype
from tatami.core.scalar import Scalar
from tatami.indexbook.ir import Guard

# -- values --------------------------------------------------------------------------------------


class Const(msgspec.Struct, frozen=True, tag_field="v", tag="const"):
    value: Scalar
    dtype: DType


class Reg(msgspec.Struct, frozen=True, tag_field="v", tag="reg"):
    """A declared register."""

    name: str
    dtype: DType
    lanes: int = 1


class IndexOf(msgspec.Struct, frozen=True, tag_field="v", tag="index"):
    """``value + lane * step`` as a number of `dtype`."""

    value: Expr
    dtype: DType
    lanes: int = 1
    step: Expr | None = None


class Load(msgspec.Struct, frozen=True, tag_field="v", tag="load"):
    """`lanes` consecutive elements from element `index` on. With `active` only that many first lanes are read
    (the others are 0)."""

    buffer: str
    index: Expr
    dtype: DType
    lanes: int = 1
    active: Expr | None = None


class Gather(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="v", tag="gather"):
    """Elements ``index + lane // each * step``; with `at`, elements ``index + at * step``, a position of its own for every lane."""

    buffer: str
    index: Expr
    step: Expr
    dtype: DType
    lanes: int
    each: int = 1
    at: Reg | None = None


class Op(msgspec.Struct, frozen=True, tag_field="v", tag="op"):
    """A scalar op of `core.ops`, lane by lane."""

    fn: str
    args: tuple[Value, ...]


class Cast(msgspec.Struct, frozen=True, tag_field="v", tag="cast"):
    x: Value
    to: DType
    bits: bool = False


class Splat(msgspec.Struct, frozen=True, tag_field="v", tag="splat"):
    x: Value
    lanes: int


class Lane(msgspec.Struct, frozen=True, tag_field="v", tag="lane"):
    """One lane, by an index expression in 0..lanes-1."""

    x: Value
    lane: Expr


class Shift(msgspec.Struct, frozen=True, tag_field="v", tag="shift"):
    """Lane i is lane ``i - by`` of `x`; where there is none, lane i of `fill`."""

    x: Value
    by: int
    fill: Value


class Across(msgspec.Struct, frozen=True, tag_field="v", tag="across"):
    """As many lanes as `x` has, from lane `start` on, of `x` followed by `y`."""

    x: Value
    y: Value
    start: int


class Zip(msgspec.Struct, frozen=True, tag_field="v", tag="zip"):
    """Lanes of `x` and `y` in turns: those of their first halves, or with `second` of their second ones."""

    x: Value
    y: Value
    second: bool


class Unzip(msgspec.Struct, frozen=True, tag_field="v", tag="unzip"):
    """Every second lane of `x` followed by `y`: those of even numbers, or with `odd` the others."""

    x: Value
    y: Value
    odd: bool


class Horizontal(msgspec.Struct, frozen=True, tag_field="v", tag="horizontal"):
    """Lanes combined in a fixed tree: sum, prod, max, min, and, or."""

    fn: str
    x: Value


class FirstLane(msgspec.Struct, frozen=True, tag_field="v", tag="first_lane"):
    """The number of the first lane that is True, counted through the masks one after the other, as i64; that of all their lanes,
    at most 64, where none is."""

    masks: tuple[Value, ...]


class Fma(msgspec.Struct, frozen=True, tag_field="v", tag="fma"):
    """``x * y + z``: in one rounding for fp32 where the target can, lanes and single numbers alike, else where the unit
    allows contraction."""

    x: Value
    y: Value
    z: Value


class Within(msgspec.Struct, frozen=True, tag_field="v", tag="within"):
    """True where all ``0 <= index < size`` hold (one lane)."""

    guards: tuple[Guard, ...]


class LaneRange(msgspec.Struct, frozen=True, tag_field="v", tag="lane_range"):
    """A mask: True in lanes ``low <= lane < high``."""

    low: Expr
    high: Expr
    lanes: int


class Random(msgspec.Struct, frozen=True, tag_field="v", tag="random"):
    """Philox4x32-10 words number ``counter + lane`` under `key` (u64)."""

    key: Value
    counter: Expr
    lanes: int = 1


Value: TypeAlias = (
    Const
    | Reg
    | IndexOf
    | Load
    | Gather
    | Op
    | Cast
    | Splat
    | Lane
    | Shift
    | Across
    | Zip
    | Unzip
    | Horizontal
    | FirstLane
    | Fma
    | Within
    | LaneRange
    | Random
)


# -- statements ----------------------------------------------------------------------------------


class Declare(msgspec.Struct, frozen=True, tag_field="s", tag="let"):
    """A new register with a first value. An `integer` register may stand in index expressions as a variable."""

    reg: Reg
    value: Value
    integer: bool = False


class Assign(msgspec.Struct, frozen=True, tag_field="s", tag="assign"):
    reg: Reg
    value: Value


class SetLane(msgspec.Struct, frozen=True, tag_field="s", tag="set_lane"):
    reg: Reg
    lane: Expr
    value: Value


class Store(msgspec.Struct, frozen=True, tag_field="s", tag="store"):
    """Consecutive elements from `index` on, as many as the value has lanes (or the first `active`)."""

    buffer: str
    index: Expr
    value: Value
    active: Expr | None = None
    nontemporal: bool = False
    """Past the caches: of whole vectors of fp32 in parameters."""


class For(msgspec.Struct, frozen=True, tag_field="s", tag="for"):
    """``for var from start below stop by step``. simd: the body works on `step` lanes (a mark for readers)."""

    var: str
    start: Expr
    stop: Expr
    body: tuple[Stmt, ...]
    step: int = 1
    simd: bool = False
    down: bool = False
    """Visit the same values in the opposite order."""


class If(msgspec.Struct, frozen=True, tag_field="s", tag="if"):
    cond: Value
    then: tuple[Stmt, ...]
    otherwise: tuple[Stmt, ...] = ()


class Parallel(msgspec.Struct, frozen=True, tag_field="s", tag="parallel"):
    """Threads share ``0 <= var < count`` in chunks of at least `grain`. Never nested. The body sees parameters, sizes
    and local buffers declared before it, no registers."""

    var: str
    count: Expr
    grain: Expr
    body: tuple[Stmt, ...]
    prologue: tuple[Stmt, ...] = ()
    """Once per chunk, before its loop: thread-local buffers."""


class LocalBuffer(msgspec.Struct, frozen=True, tag_field="s", tag="buffer"):
    """Scratch of the running thread, 64-byte aligned, until the enclosing block (kernel or chunk) ends."""

    name: str
    dtype: DType
    elements: Expr


class Fault(msgspec.Struct, frozen=True, tag_field="s", tag="fault"):
    """Remember a run-time fault (1: index out of range); the kernel goes on and returns the code at its end."""

    code: int = 1


class Pointer(msgspec.Struct, frozen=True, tag_field="a", tag="pointer"):
    """The address of element `index` of a buffer, as an argument."""

    buffer: str
    index: Expr


class Integer(msgspec.Struct, frozen=True, tag_field="a", tag="integer"):
    value: Expr


class Call(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="s", tag="call"):
    """A static function of this kernel (a micro-kernel), or a routine in a unit of its own (`routine`): it takes all
    pointers as one array and all integers as another, and its int result is a fault code."""

    function: str
    args: tuple[Pointer | Integer, ...]
    routine: bool = False
    rows: tuple[int, ...] = ()
    """Of a micro-kernel: the numbers of rows that it is called with, where they are known. It refuses others."""


class Prefetch(msgspec.Struct, frozen=True, tag_field="s", tag="prefetch"):
    buffer: str
    index: Expr
    write: bool = False


Stmt: TypeAlias = Declare | Assign | SetLane | Store | For | If | Parallel | LocalBuffer | Fault | Call | Prefetch


# -- kernels -------------------------------------------------------------------------------------


class BufferParam(msgspec.Struct, frozen=True, tag_field="p", tag="buffer"):
    name: str
    dtype: DType
    written: bool = False
    noalias: bool = True


class IntegerParam(msgspec.Struct, frozen=True, tag_field="p", tag="integer"):
    name: str


class Function(msgspec.Struct, frozen=True):
    """A static function: a micro-kernel. Not inlined, so that it is compiled once."""

    name: str
    params: tuple[BufferParam | IntegerParam, ...]
    body: tuple[Stmt, ...]


class UserRoutine(msgspec.Struct, frozen=True):
    """A routine whose body a user wrote, for the one kernel that calls it. In `text` the placeholders are names of ours
    (core/custom/kernel_body.py); it takes the operands, the results, then the extents of them all."""

    name: str
    inputs: tuple[BufferParam, ...]
    outputs: tuple[BufferParam, ...]
    sizes: tuple[str, ...]
    counters: tuple[str, ...]
    text: VerbatimCode
    preamble: VerbatimCode = NO_CODE


class Kernel(msgspec.Struct, frozen=True, omit_defaults=True):
    """`params[i]` is the name of face.params[i] in the body (p0, p1, …); sizes are s0, s1, …"""

    face: KernelFace
    params: tuple[BufferParam, ...]
    body: tuple[Stmt, ...]
    functions: tuple[Function, ...] = ()
    contract: bool = False
    """Multiply-adds may be fused (micro-kernels)."""
    about: str = ""
    """One line for readers: kind and plan, no user names."""
    user: UserRoutine | None = None
    side_by_side: bool = False
    """Blocks hold several long chains for the C compiler to lay side by side (loop/passes/interleave.py)."""
    extents: tuple[Expr, ...] = ()
    """Elements of each parameter, over s0, s1, …, where each access is compared with them before it is made."""


class Body(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a lowering makes of one Region: a kernel without its face."""

    stmts: tuple[Stmt, ...]
    functions: tuple[Function, ...] = ()
    contract: bool = False
    about: str = ""
    user: UserRoutine | None = None


class Program(msgspec.Struct, frozen=True):
    """Kernels by symbol, and the calls each Region makes in call order. Kernels of equal key are one kernel."""

    kernels: dict[str, Kernel]
    bindings: tuple[Binding, ...]


# -- types ---------------------------------------------------------------------------------------


class ValueType(msgspec.Struct, frozen=True):
    dtype: DType
    lanes: int


def type_of(value: Value) -> ValueType:
    """Dtype and lanes. Raises ValueError when an op's operands break its rule (a defect of the lowering)."""
    match value:
        case Const(dtype=dtype):
            return ValueType(dtype, 1)
        case (
            Reg(dtype=dtype, lanes=lanes)
            | IndexOf(dtype=dtype, lanes=lanes)
            | Load(dtype=dtype, lanes=lanes)
            | Gather(dtype=dtype, lanes=lanes)
        ):
            return ValueType(dtype, lanes)
        case Op(fn=fn, args=args):
            types = [type_of(a) for a in args]
            dtype_ = result_dtype(OPS[fn], tuple(t.dtype for t in types))
            if dtype_ is None or len({t.lanes for t in types}) != 1:
                raise ValueError(f"{fn} over {[(str(t.dtype), t.lanes) for t in types]}")
            return ValueType(dtype_, types[0].lanes)
        case Cast(x=x, to=to):
            return ValueType(to, type_of(x).lanes)
        case Splat(x=x, lanes=lanes):
            return ValueType(type_of(x).dtype, lanes)
        case Lane(x=x) | Horizontal(x=x):
            return ValueType(type_of(x).dtype, 1)
        case FirstLane(masks=masks):
            types = [type_of(m) for m in masks]
            if any(t.dtype != DType.bool for t in types) or not 0 < sum(t.lanes for t in types) <= 64:
                raise ValueError(f"the first lane of {[(str(t.dtype), t.lanes) for t in types]}")
            return ValueType(DType.i64, 1)
        case Fma(x=x, y=y, z=z):
            t = type_of(z)
            if type_of(x) != t or type_of(y) != t:
                raise ValueError(f"{type_of(x)} times {type_of(y)} and {t}")
            return t
        case Shift(x=x, by=by, fill=fill):
            t = type_of(x)
            if type_of(fill) != t or not 0 < abs(by) < t.lanes:
                raise ValueError(f"{t.lanes} lanes of {t.dtype} move by {by}")
            return t
        case Across(x=x, y=y, start=start):
            t = type_of(x)
            if type_of(y) != t or not 0 < start < t.lanes:
                raise ValueError(f"from lane {start} of {t.lanes} lanes of {t.dtype} on, then {type_of(y)}")
            return t
        case Zip(x=x, y=y) | Unzip(x=x, y=y):
            t = type_of(x)
            if type_of(y) != t or t.lanes % 2:
                raise ValueError(f"{t.lanes} lanes of {t.dtype} in turns with {type_of(y)}")
            return t
        case Within():
            return ValueType(DType.bool, 1)
        case LaneRange(lanes=lanes):
            return ValueType(DType.bool, lanes)
        case Random(lanes=lanes):
            return ValueType(DType.u32, lanes)
        case _:
            assert_never(value)
