"""Invariants of loop programs. Returns diagnostics, never raises.

Registers are declared once, before use, in an enclosing block; both sides of an assignment have one type; every buffer
is a parameter or a local in scope; index expressions name loop variables, integer registers and sizes in scope; Parallel
is not nested and sees no register of its surroundings; parameters that may share memory do not harm each other;
bindings name kernels and pass one buffer per parameter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import assert_never

from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.core.module import Module
from tatami.core.ops import OPS
from tatami.loop.ir import (
    Across,
    Assign,
    BufferParam,
    Call,
    Cast,
    Const,
    Declare,
    Fault,
    FirstLane,
    Fma,
    For,
    Function,
    Gather,
    Horizontal,
    If,
    IndexOf,
    Integer,
    IntegerParam,
    Kernel,
    Lane,
    LaneRange,
    Load,
    LocalBuffer,
    Op,
    Parallel,
    Pointer,
    Prefetch,
    Program,
    Random,
    Reg,
    SetLane,
    Shift,
    Splat,
    Stmt,
    Store,
    Unzip,
    UserRoutine,
    Value,
    ValueType,
    Within,
    Zip,
    type_of,
)
from tatami.loop.passes.in_place import in_place
from tatami.loop.passes.nontemporal import misplaced

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_ABOUT = re.compile(r"[A-Za-z0-9_ ,.:x-]{0,200}")
_C_WORDS = frozenset(
    [
        "auto",
        "break",
        "case",
        "char",
        "const",
        "continue",
        "default",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "float",
        "for",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "register",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "typedef",
        "union",
        "unsigned",
        "void",
        "volatile",
        "while",
        "asm",
        "typeof",
        "main",
    ]
)
LANES = (1, 2, 4, 8, 16, 32, 64)
"""Elements of the vectors that there are."""
MOST_SIZES = 1 << 12
"""Size arguments of a kernel."""
INDEX_OUT_OF_RANGE = 1
"""The one fault that a statement of a kernel reports."""
_USER = re.compile(r"tatami_user_[0-9a-f]{16}")
_ROUTINE = re.compile(
    r"tatami_(?:sort|topk|tree_ensemble|tiles_[iu]8[iu]8|along_f(?:32|64)_[1-9]\d?x[1-9]\d?_(?:2|4|8|16)"
    r"|quads_[iu]8x4(?:vnni|[iu])_[1-9]\d?x[1-9]\d?_[1-9]\d{0,3}x[12]_[1-9]\d{0,3}_(?:4|8|16)|pack_(?:[fu](?:32|64)|f32(?:[iu]8|[hb]16))_\d{1,2}"
    r"|(?:(?:gemm|rows|into|lies|table|wide|slivers)_[fu](?:32|64)"
    r"|(?:gemm|into|lies)_f32(?:[iu]8|[hb]16)|codes(?:lie)?_f32i[48]s?z?|blockdots_f32(?:i4z?v?|i8v)|places[1-9]_[iu]8x4(?:vnni|[iu])|(?:gemm|into)_(?:b16x2|i16x2(?:vnni)?|[iu]8x4(?:vnni|[iu])))_(\d{1,2})x(\d{1,4})_(\d{1,2}))"
)


def is_c_name(name: str) -> bool:
    """True if the name may stand in C text. Documents are data: their names must not become code."""
    return _NAME.fullmatch(name) is not None and name not in _C_WORDS


def is_routine(name: str) -> bool:
    """True if the routine exists. A micro-kernel has 1 to 64 rows and whole vectors of columns; one of places has a place in each
    row of an image."""
    found = _ROUTINE.fullmatch(name)
    if found is None or found[1] is None:
        return found is not None
    rows, columns, lanes = (int(found[i]) for i in (1, 2, 3))
    runs = re.match(r"tatami_places(\d)", name)
    if runs is not None and rows < int(runs[1]):
        return False
    return 1 <= rows <= 64 and lanes > 0 and columns > 0 and columns % lanes == 0


def verify(module: Module[Program]) -> list[Diagnostic]:
    """Diagnostics for a module of loop programs: kernels, and the bindings that call them. Empty if all invariants hold."""
    out: list[Diagnostic] = []
    for name, program in module.programs.items():
        for symbol, kernel in program.kernels.items():
            if symbol != kernel.face.symbol or not is_c_name(symbol):
                out.append(_wrong(f"{name}.{symbol[:80]!r}", f"the kernel is called {kernel.face.symbol[:80]!r} inside"))
            out += verify_kernel(kernel)
        for b in program.bindings:
            called = program.kernels.get(b.kernel)
            if called is None:
                out.append(_wrong(f"{name}.{b.region}", f"calls kernel {b.kernel}, which does not exist"))
            elif len(b.buffers) != len(called.face.params) or len(b.sizes) != called.face.sizes:
                out.append(
                    _wrong(f"{name}.{b.region}", f"passes {len(b.buffers)} buffers and {len(b.sizes)} sizes to {b.kernel}")
                )
    return out


def verify_kernel(kernel: Kernel) -> list[Diagnostic]:
    """Diagnostics for one kernel, at most 20. Empty if all invariants hold."""
    check = _Check(kernel.face.symbol, kernel.user)
    if not 0 <= kernel.face.sizes <= MOST_SIZES:
        check.wrong(f"{kernel.face.sizes} sizes")
        return check.found
    if kernel.user is not None:
        u = kernel.user
        check.words(*(p.name for p in (*u.inputs, *u.outputs)), *u.sizes, *u.counters)
        if _USER.fullmatch(u.name) is None:
            check.wrong(f"{u.name[:80]!r} cannot name a routine of a user")
    if [(p.dtype, p.written) for p in kernel.params] != [(p.dtype, p.written) for p in kernel.face.params]:
        check.wrong("its face and its parameters are not of the same types")
    params = [p.name for p in kernel.params] + [p.name for f in kernel.functions for p in f.params]
    check.words(kernel.face.symbol, *(f.name for f in kernel.functions), *params)
    if _ABOUT.fullmatch(kernel.about) is None:
        check.wrong("`about` is not a plain line of words")
    names = {f"s{i}" for i in range(kernel.face.sizes)}
    functions = {f.name for f in kernel.functions}
    for f in kernel.functions:
        check.function(f, functions)
    check.block(
        kernel.body,
        _Scope(
            {}, {p.name: p.dtype for p in kernel.params}, {p.name for p in kernel.params if not p.written}, names, functions
        ),
    )
    for buffer in () if check.found else misplaced(kernel):
        check.wrong(
            f"a nontemporal store to {buffer}: those are of whole vectors of fp32 at their places, to results that are not read, "
            "where threads share a loop"
        )
    if not check.found and kernel.face.in_place:
        proved = in_place(kernel.params, kernel.body)
        for i, o in kernel.face.in_place:
            if (i, o) not in proved:
                check.wrong(f"parameter {o} may not take the place of parameter {i}: it may be written before that is read")
    return check.found


def _wrong(at: str, why: str) -> Diagnostic:
    return diagnostic("InvalidExecution", at, why, "report this: the lowering to loops made an invalid kernel")


class _Scope:
    def __init__(
        self, regs: dict[str, Reg], buffers: dict[str, DType], fixed: set[str], names: set[str], functions: set[str]
    ) -> None:
        self.regs, self.buffers, self.fixed, self.names, self.functions = regs, buffers, fixed, names, functions
        self.parallel = False

    def inner(self) -> _Scope:
        out = _Scope(dict(self.regs), dict(self.buffers), self.fixed, set(self.names), self.functions)
        out.parallel = self.parallel
        return out


class _Check:
    def __init__(self, at: str, user: UserRoutine | None = None) -> None:
        self.at = at
        self.user = user
        self.found: list[Diagnostic] = []
        self.declared: set[str] = set()

    def wrong(self, why: str) -> None:
        if len(self.found) < 20:
            self.found.append(_wrong(self.at, why))

    def words(self, *names: str) -> None:
        for name in names:
            if not is_c_name(name):
                self.wrong(f"{name[:80]!r} is not a name for C")

    def function(self, f: Function, functions: set[str]) -> None:
        buffers = {p.name: p.dtype for p in f.params if isinstance(p, BufferParam)}
        fixed = {p.name for p in f.params if isinstance(p, BufferParam) and not p.written}
        names = {p.name for p in f.params if isinstance(p, IntegerParam)}
        self.block(f.body, _Scope({}, buffers, fixed, names, functions))

    def block(self, body: tuple[Stmt, ...], s: _Scope) -> None:
        for stmt in body:
            self.stmt(stmt, s)

    def stmt(self, stmt: Stmt, s: _Scope) -> None:
        match stmt:
            case Declare(reg=reg, value=value, integer=integer):
                if reg.lanes not in LANES:
                    self.wrong(f"register {reg.name} of {reg.lanes} elements: there are those of {', '.join(map(str, LANES))}")
                self.same(value, ValueType(reg.dtype, reg.lanes), reg.name, s)
                self.words(reg.name)
                if reg.name in s.regs or reg.name in s.names:
                    self.wrong(f"{reg.name} is declared twice")
                s.regs[reg.name] = reg
                if integer:
                    s.names.add(reg.name)
                    if reg.dtype != DType.i64 or reg.lanes != 1:
                        self.wrong(f"index register {reg.name} is not one i64")
            case Assign(reg=reg, value=value):
                self.known(reg, s)
                self.same(value, ValueType(reg.dtype, reg.lanes), reg.name, s)
            case SetLane(reg=reg, lane=lane, value=value):
                self.known(reg, s)
                self.index(lane, s)
                self.same(value, ValueType(reg.dtype, 1), reg.name, s)
            case Store(buffer=buffer, index=index, value=value, active=active):
                self.buffer(buffer, s, write=True)
                self.index(index, s)
                if active is not None:
                    self.index(active, s)
                t = self.type(value, s)
                if active is not None and t is not None and t.lanes == 1:
                    self.wrong(f"{buffer} is stored one element at a time, and {active} lanes are active")
                if t is not None and buffer in s.buffers and t.dtype != s.buffers[buffer]:
                    self.wrong(f"{t.dtype} is stored in {buffer} of {s.buffers[buffer]}")
            case For(var=var, start=start, stop=stop, body=body, step=step):
                self.index(start, s)
                self.index(stop, s)
                self.words(var)
                if step < 1:
                    self.wrong(f"loop {var} steps by {step}")
                inner = s.inner()
                inner.names.add(var)
                self.block(body, inner)
            case If(cond=cond, then=then, otherwise=otherwise):
                self.same(cond, ValueType(DType.bool, 1), "a condition", s)
                self.block(then, s.inner())
                self.block(otherwise, s.inner())
            case Parallel():
                self.parallel(stmt, s)
            case LocalBuffer(name=name, dtype=dtype, elements=elements):
                self.index(elements, s)
                self.words(name)
                if name in s.buffers:
                    self.wrong(f"buffer {name} is declared twice")
                s.buffers[name] = dtype
            case Call(function=function, args=args, routine=routine):
                if not routine and function not in s.functions:
                    self.wrong(f"function {function} does not exist")
                if routine and self.user is not None and function == self.user.name:
                    self.user_call(self.user, args, s)
                elif routine and not is_routine(function):
                    self.wrong(f"routine {function[:80]!r} does not exist")
                for a in args:
                    match a:
                        case Pointer(buffer=buffer, index=index):
                            self.buffer(buffer, s)
                            self.index(index, s)
                        case Integer(value=integer_value):
                            self.index(integer_value, s)
            case Prefetch(buffer=buffer, index=index):
                self.buffer(buffer, s)
                self.index(index, s)
            case Fault(code=code):
                if code != INDEX_OUT_OF_RANGE:
                    self.wrong(f"fault {code}: kernels report an index out of range, {INDEX_OUT_OF_RANGE}")
            case _:
                assert_never(stmt)

    def user_call(self, user: UserRoutine, args: Sequence[Pointer | Integer], s: _Scope) -> None:
        """A body gets what its text was bound to; anything else would be read as memory."""
        wanted = [p.dtype for p in (*user.inputs, *user.outputs)]
        given = [s.buffers.get(a.buffer) for a in args if isinstance(a, Pointer)]
        sizes = len(args) - len(given)
        if given != wanted or sizes != len(user.sizes):
            takes = f"{', '.join(map(str, wanted))} and {len(user.sizes)} sizes"
            self.wrong(f"routine {user.name} takes {takes}, the call gives {', '.join(map(str, given))} and {sizes}")

    def parallel(self, p: Parallel, s: _Scope) -> None:
        if s.parallel:
            self.wrong(f"parallel {p.var} is nested")
        self.words(p.var)
        self.index(p.count, s)
        self.index(p.grain, s)
        sizes = {n for n in s.names if n.startswith("s") and n[1:].isdigit()}
        inner = _Scope({}, dict(s.buffers), s.fixed, sizes | {"begin"}, s.functions)
        inner.parallel = True
        self.block(p.prologue, inner)
        inner.names.add(p.var)
        self.block(p.body, inner)

    def known(self, reg: Reg, s: _Scope) -> None:
        if s.regs.get(reg.name) != reg:
            self.wrong(f"register {reg.name} is used where it is not declared, or with another type")

    def buffer(self, name: str, s: _Scope, write: bool = False) -> None:
        if name not in s.buffers:
            self.wrong(f"buffer {name} does not exist here")
        elif write and name in s.fixed:
            self.wrong(f"input {name} is written")

    def index(self, e: Expr, s: _Scope) -> None:
        unknown = free_vars(e) - s.names
        if unknown:
            self.wrong(f"index {e} names {', '.join(sorted(unknown))}, which is not in scope")

    def same(self, value: Value, wanted: ValueType, what: str, s: _Scope) -> None:
        t = self.type(value, s)
        if t is not None and t != wanted:
            self.wrong(f"{what} is {wanted.dtype}x{wanted.lanes}, its value {t.dtype}x{t.lanes}")

    def type(self, value: Value, s: _Scope) -> ValueType | None:
        """The type, after checking the leaves; None when an op's operands break its rule."""
        stack: list[Value] = [value]
        while stack:
            v = stack.pop()
            lanes = getattr(v, "lanes", 1)
            if lanes not in LANES:
                self.wrong(f"a vector of {lanes} elements: there are those of {', '.join(map(str, LANES))}")
                return None
            match v:
                case Reg():
                    self.known(v, s)
                case IndexOf(value=e, step=step):
                    self.index(e, s)
                    if step is not None:
                        self.index(step, s)
                case Load(buffer=buffer, index=index) | Gather(buffer=buffer, index=index):
                    self.buffer(buffer, s)
                    self.index(index, s)
                    if isinstance(v, Load) and v.active is not None:
                        self.index(v.active, s)
                        if v.lanes == 1:
                            self.wrong(f"{buffer} is read one element at a time, and {v.active} lanes are active")
                    if isinstance(v, Gather):
                        self.index(v.step, s)
                    if isinstance(v, Gather) and (v.each < 1 or v.lanes % v.each):
                        self.wrong(f"{v.lanes} lanes in groups of {v.each}")
                    if isinstance(v, Gather) and v.at is not None:
                        self.known(v.at, s)
                        if (v.at.dtype, v.at.lanes, v.each) != (DType.i64, v.lanes, 1):
                            self.wrong(
                                f"{v.lanes} lanes, each at a position of its own, of {v.at.dtype}x{v.at.lanes} positions"
                            )
                    if buffer in s.buffers and s.buffers[buffer] != v.dtype:
                        self.wrong(f"{buffer} of {s.buffers[buffer]} is read as {v.dtype}")
                case Op(fn=fn, args=args):
                    if fn not in OPS:
                        self.wrong(f"there is no scalar op {fn[:80]!r}")
                        return None
                    stack.extend(args)
                case Cast(x=x) | Splat(x=x) | Lane(x=x) | Horizontal(x=x):
                    stack.append(x)
                    if isinstance(v, Horizontal) and v.fn not in ("sum", "prod", "max", "min", "and", "or"):
                        self.wrong(f"lanes are not combined by {v.fn[:80]!r}")
                    if isinstance(v, Splat) and type_lanes(x) != 1:
                        self.wrong("a vector is splat")
                    if isinstance(v, Lane):
                        self.index(v.lane, s)
                case FirstLane(masks=masks):
                    stack.extend(masks)
                case Shift(x=x, fill=fill):
                    stack.extend((x, fill))
                case Zip(x=x, y=y) | Unzip(x=x, y=y) | Across(x=x, y=y):
                    stack.extend((x, y))
                case Fma(x=x, y=y, z=z):
                    stack.extend((x, y, z))
                case Within(guards=guards):
                    for g in guards:
                        self.index(g.index, s)
                        self.index(g.size, s)
                case LaneRange(low=low, high=high):
                    self.index(low, s)
                    self.index(high, s)
                case Random(key=key, counter=counter):
                    stack.append(key)
                    self.index(counter, s)
                case Const():
                    pass
                case _:
                    assert_never(v)
        try:
            return type_of(value)
        except ValueError as error:
            self.wrong(str(error))
            return None


def type_lanes(v: Value) -> int:
    """Lanes of a value whose ops are known to be well formed; 1 when they are not."""
    try:
        return type_of(v).lanes
    except ValueError:
        return 1
