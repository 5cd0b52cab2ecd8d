"""CPU kernels as statement trees (spec 1 "SIMD", design §3 loop).

    Program  = kernels by symbol, bindings (which Region calls which kernel with which arguments)
    Kernel   = face, functions (static micro-kernels), body
    Stmt     = Declare | Assign | SetLane | Store | For | If | Parallel | LocalBuffer | Fault | Call | Prefetch
    Value    = Const | Reg | IndexOf | Load | Gather | Op | Cast | Splat | Lane | Shift | Across | Zip | Unzip | Horizontal | FirstLane | Fma
             | Within | LaneRange | Random

Every value has a dtype and a number of lanes (1: scalar); `type_of` tells both. Lanes mix only through Splat, Lane, Shift,
Across, Zip, Unzip, Horizontal and FirstLane. Index expressions are `core` Exprs over loop variables (x0, …) and size arguments
(s0, …), 64-bit, flooring. All names are our own counters: p0… parameters, b… local buffers, s… sizes, x… loop variables,
anything else registers.

16-bit floats live in registers as fp32 values on the 16-bit grid: Load widens, Store narrows, every Op rounds once. bool in
memory is one byte, 0 or 1.
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
    """A number of `dtype`, one lane."""

    value: Scalar
    dtype: DType


class Reg(msgspec.Struct, frozen=True, tag_field="v", tag="reg"):
    """The value of a declared register."""

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
    """`lanes` consecutive elements from element `index` on. With `active`, only this many first lanes are read; the others are
    0."""

    buffer: str
    index: Expr
    dtype: DType
    lanes: int = 1
    active: Expr | None = None


class Gather(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="v", tag="gather"):
    """Elements ``index + lane // each * step``; with `at`, elements ``index + at * step``, each lane with a position of its
    own."""

    buffer: str
    index: Expr
    step: Expr
    dtype: DType
    lanes: int
    each: int = 1
    at: Reg | None = None


class Op(msgspec.Struct, frozen=True, tag_field="v", tag="op"):
    """A scalar operation of `core.ops`, lane by lane."""

    fn: str
    args: tuple[Value, ...]


class Cast(msgspec.Struct, frozen=True, tag_field="v", tag="cast"):
    """Lanes converted to `to`; `bits`: the bits reinterpreted."""

    x: Value
    to: DType
    bits: bool = False


class Splat(msgspec.Struct, frozen=True, tag_field="v", tag="splat"):
    """One number in every lane."""

    x: Value
    lanes: int


class Lane(msgspec.Struct, frozen=True, tag_field="v", tag="lane"):
    """One lane; its index is an expression in 0..lanes-1."""

    x: Value
    lane: Expr


class Shift(msgspec.Struct, frozen=True, tag_field="v", tag="shift"):
    """Lane i is lane ``i - by`` of `x`, or lane i of `fill` where `x` has none."""

    x: Value
    by: int
    fill: Value


class Across(msgspec.Struct, frozen=True, tag_field="v", tag="across"):
    """A window of `x` followed by `y`, as many lanes as `x` has, from lane `start` on."""

    x: Value
    y: Value
    start: int


class Zip(msgspec.Struct, frozen=True, tag_field="v", tag="zip"):
    """Lanes of `x` and `y` alternately, from their first halves or, if `second`, their second halves."""

    x: Value
    y: Value
    second: bool


class Unzip(msgspec.Struct, frozen=True, tag_field="v", tag="unzip"):
    """Every second lane of `x` followed by `y`: the even ones, or the others if `odd`."""

    x: Value
    y: Value
    odd: bool


class Horizontal(msgspec.Struct, frozen=True, tag_field="v", tag="horizontal"):
    """Lanes combined in a fixed tree: sum, prod, max, min, and, or."""

    fn: str
    x: Value


class FirstLane(msgspec.Struct, frozen=True, tag_field="v", tag="first_lane"):
    """Index (i64) of the first true lane of the concatenated masks (at most 64 lanes); their total length if none is true."""

    masks: tuple[Value, ...]


class Fma(msgspec.Struct, frozen=True, tag_field="v", tag="fma"):
    """``x * y + z``: rounded once for fp32 if the target can, in vectors and scalars alike; otherwise where the unit allows
    contraction."""

    x: Value
    y: Value
    z: Value


class Within(msgspec.Struct, frozen=True, tag_field="v", tag="within"):
    """True if ``0 <= index < size`` holds for every guard; one lane."""

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
    """Give a declared register a new value."""

    reg: Reg
    value: Value


class SetLane(msgspec.Struct, frozen=True, tag_field="s", tag="set_lane"):
    """Give one lane of a declared register a new value."""

    reg: Reg
    lane: Expr
    value: Value


class Store(msgspec.Struct, frozen=True, tag_field="s", tag="store"):
    """Store consecutive elements from `index` on, as many as the value has lanes, or only the first `active`."""

    buffer: str
    index: Expr
    value: Value
    active: Expr | None = None
    nontemporal: bool = False
    """Store past the caches: full vectors of fp32 to parameters only."""


class For(msgspec.Struct, frozen=True, tag_field="s", tag="for"):
    """``for var from start below stop by step``. `simd`: the body works on `step` lanes (information for readers)."""

    var: str
    start: Expr
    stop: Expr
    body: tuple[Stmt, ...]
    step: int = 1
    simd: bool = False
    down: bool = False
    """Visit the same values in the opposite order."""


class If(msgspec.Struct, frozen=True, tag_field="s", tag="if"):
    """Run `then` if `cond` (bool, one lane) is true, else `otherwise`."""

    cond: Value
    then: tuple[Stmt, ...]
    otherwise: tuple[Stmt, ...] = ()


class Parallel(msgspec.Struct, frozen=True, tag_field="s", tag="parallel"):
    """Threads divide ``0 <= var < count`` in chunks of at least `grain`; never nested. The body sees parameters, sizes and
    local buffers declared before it, but no registers."""

    var: str
    count: Expr
    grain: Expr
    body: tuple[Stmt, ...]
    prologue: tuple[Stmt, ...] = ()
    """Statements that run once per chunk, before its loop: thread-local buffers."""


class LocalBuffer(msgspec.Struct, frozen=True, tag_field="s", tag="buffer"):
    """Scratch of the running thread, 64-byte aligned, alive until the enclosing block (kernel or chunk) ends."""

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
    """The value of an index expression, as an argument."""

    value: Expr


class Call(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="s", tag="call"):
    """A call of a static function of this kernel (a micro-kernel), or of a routine in a unit of its own (`routine`), which
    takes all pointers as one array and all integers as another. Its int result is a fault code."""

    function: str
    args: tuple[Pointer | Integer, ...]
    routine: bool = False
    rows: tuple[int, ...] = ()
    """For a micro-kernel, the numbers of rows with which it is called, and no others; empty: not known."""


class Prefetch(msgspec.Struct, frozen=True, tag_field="s", tag="prefetch"):
    """Prefetch the cache line of element `index`; `write`: in order to write it."""

    buffer: str
    index: Expr
    write: bool = False


Stmt: TypeAlias = Declare | Assign | SetLane | Store | For | If | Parallel | LocalBuffer | Fault | Call | Prefetch


# -- kernels -------------------------------------------------------------------------------------


class BufferParam(msgspec.Struct, frozen=True, tag_field="p", tag="buffer"):
    """A pointer parameter. `noalias`: no other parameter overlaps it."""

    name: str
    dtype: DType
    written: bool = False
    noalias: bool = True
    alignment: int = 0
    """Bytes of which the address is a multiple, since the program's signature says so of this argument; 0: the dtype's."""


class IntegerParam(msgspec.Struct, frozen=True, tag_field="p", tag="integer"):
    """A 64-bit integer parameter."""

    name: str


class Function(msgspec.Struct, frozen=True):
    """A static function, the micro-kernel. Not inlined, so that it is compiled once."""

    name: str
    params: tuple[BufferParam | IntegerParam, ...]
    body: tuple[Stmt, ...]


class UserRoutine(msgspec.Struct, frozen=True):
    """A routine with a user's own body, for the one kernel that calls it. The placeholders in `text` are replaced by our names
    (core/custom/kernel_body.py). It takes the operands, the results, then the extents of them all."""

    name: str
    inputs: tuple[BufferParam, ...]
    outputs: tuple[BufferParam, ...]
    sizes: tuple[str, ...]
    counters: tuple[str, ...]
    text: VerbatimCode
    preamble: VerbatimCode = NO_CODE


class Kernel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function of C that runs a Region. `params[i]` is the name of face.params[i] in the body (p0, p1, …); sizes are s0, s1,
    …"""

    face: KernelFace
    params: tuple[BufferParam, ...]
    body: tuple[Stmt, ...]
    functions: tuple[Function, ...] = ()
    contract: bool = False
    """True if multiply-adds may be fused (micro-kernels)."""
    about: str = ""
    """One line for readers: kind and plan, no user names."""
    user: UserRoutine | None = None
    side_by_side: bool = False
    """True if blocks hold several long chains for the C compiler to interleave (loop/passes/interleave.py)."""
    extents: tuple[Expr, ...] = ()
    """Number of elements of each parameter, over s0, s1, …, if every access is checked against them; empty: not checked."""
    is_run_once: bool = False
    """True if it makes constants and runs when a program is loaded: it is compiled in less time, for less speed."""


class Body(msgspec.Struct, frozen=True, omit_defaults=True):
    """The lowering of one Region: a kernel without its face."""

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
    """Dtype and number of lanes of a value."""

    dtype: DType
    lanes: int


def type_of(value: Value) -> ValueType:
    """Dtype and lanes. Raises ValueError if the operands of an op break its rule (a defect of the lowering)."""
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
