"""The C text of one kernel, statement by statement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, assert_never

from tatami.c.kernels.c_types import memory_short, memory_type, register_type, short
from tatami.c.kernels.casts import bits_text, cast_text, narrow_text, widen_text
from tatami.c.kernels.definitions import MAKERS
from tatami.c.kernels.literals import constant_text
from tatami.c.kernels.needs import Needs
from tatami.c.kernels.print_index import Bound, index_text
from tatami.c.kernels.scalar_ops import op_text
from tatami.core.algebra.bounds import is_never_negative
from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.core.numbers.numerics import constant
from tatami.core.page import page
from tatami.core.scalar import Scalar, scalar
from tatami.loop import ir as loop

ALIGNMENT = 64
"""Bytes of the widest vector: in a buffer that begins at a multiple, all vectors are at multiples of their size."""


def _rounded(value: Scalar, dtype: DType) -> Scalar:
    return scalar(constant(value, dtype).item()) if dtype != DType.bf16 else scalar(float(constant(value, dtype)))


class KernelPrinter:
    """The printer of one kernel's unit."""

    KERNEL: ClassVar[str] = "kernel.c"
    """Name of the page of a kernel."""
    CHUNK: ClassVar[str] = "chunk.c"
    """Name of the page of a chunk."""
    LIMITS: ClassVar[Mapping[str, str | int]] = {}
    """Further values of the page of a chunk."""

    def __init__(self, kernel: loop.Kernel) -> None:
        self.k = kernel
        self.needs = Needs(MAKERS)
        self.chunks: list[str] = []
        self.buffers: dict[str, DType] = {p.name: p.dtype for p in kernel.params}
        self.locals: list[str] = []
        self.called: dict[str, str] = {}
        self.allows_nontemporal = True
        self.bound: Bound | None = None
        self.past_caches: set[str] = set()
        """The buffers that the chunk in the making stores to past the caches."""

    # -- functions -------------------------------------------------------------------------------
    def routines(self) -> str:
        """Prototypes of the routines that the kernel calls."""
        return "".join(f"int {name}({params});\n" for name, params in self.called.items())

    def function(self, f: loop.Function) -> str:
        """C text of a function of the kernel."""
        saved = dict(self.buffers)
        params: list[str] = []
        for p in f.params:
            match p:
                case loop.BufferParam(name=name, dtype=dtype, written=written, noalias=noalias):
                    self.buffers[name] = dtype
                    const, restrict = ("" if written else "const "), (" restrict" if noalias else "")
                    params.append(f"{const}{memory_type(dtype)}*{restrict} {name}")
                case loop.IntegerParam(name=name):
                    params.append(f"int64_t {name}")
        body = self.block(f.body, "  ")
        self.buffers = saved
        return f"static __attribute__((noinline)) void {f.name}({', '.join(params)}) {{\n{body}}}\n"

    def kernel(self) -> str:
        """C text of the kernel's own function."""
        self.bound = self.size_bound()
        body = self.block(self.k.body, "  ")
        given = self.prologue("buffers", "sizes") + "".join(self.bound.lines)
        return page("tatami.c", self.KERNEL).fill(SYMBOL=self.k.face.symbol, GIVEN=given, BODY=body)

    def size_bound(self) -> Bound:
        """The names of quotients and extremes of this kernel's sizes."""
        return Bound(frozenset(f"s{i}" for i in range(self.k.face.sizes)))

    def prologue(self, buffers: str, sizes: str) -> str:
        """C declarations of parameters and sizes."""
        lines: list[str] = []
        for i, p in enumerate(self.k.params):
            const = "" if p.written else "const "
            given = f"__builtin_assume_aligned({buffers}[{i}], {p.alignment})" if p.alignment else f"{buffers}[{i}]"
            lines.append(f"  {const}{memory_type(p.dtype)}* const {p.name} = {given}; (void){p.name};\n")
        for i in range(self.k.face.sizes):
            lines.append(f"  const int64_t s{i} = {sizes}[{i}]; (void)s{i};\n")
        return "".join(lines)

    # -- statements ------------------------------------------------------------------------------
    def block(self, body: tuple[loop.Stmt, ...], pad: str) -> str:
        """C text of statements in order."""
        return "".join(self.stmt(s, pad) for s in body)

    def ix(self, e: Expr) -> str:
        """C text of an index expression."""
        return index_text(e, self.needs, self.bound)

    def stmt(self, s: loop.Stmt, pad: str) -> str:
        """C text of one statement, indented."""
        match s:
            case loop.Declare(reg=reg, value=value, integer=integer):
                c = "int64_t" if integer else self.needs.register(reg.dtype, reg.lanes)
                return f"{pad}{c} {reg.name} = {self.value(value)};\n"
            case loop.Assign(reg=reg, value=value):
                return f"{pad}{reg.name} = {self.value(value)};\n"
            case loop.SetLane(reg=reg, lane=lane, value=value):
                text = self.value(value)
                return f"{pad}{reg.name}[{self.ix(lane)}] = {'-' + text if reg.dtype == DType.bool else text};\n"
            case loop.Store():
                return self.store(s, pad)
            case loop.For():
                return self.for_loop(s, pad)
            case loop.If(cond=cond, then=then, otherwise=otherwise):
                text = f"{pad}if ({self.value(cond)}) {{\n{self.block(then, pad + '  ')}{pad}}}"
                if otherwise:
                    text += f" else {{\n{self.block(otherwise, pad + '  ')}{pad}}}"
                return text + "\n"
            case loop.Parallel():
                return self.parallel(s, pad)
            case loop.LocalBuffer(name=name, dtype=dtype, elements=elements):
                self.buffers[name] = dtype
                self.locals.append(name)
                c = memory_type(dtype)
                return (
                    f"{pad}{c}* const {name} = tatami_scratch({self.ix(elements)} * (int64_t)sizeof({c}));\n"
                    f"{pad}if (!{name}) {{ tatami_release(mark); return TATAMI_OUT_OF_MEMORY; }}\n"
                )
            case loop.Fault(code=code):
                return f"{pad}if (fault < {code}) fault = {code};\n"
            case loop.Call():
                return self.call(s, pad)
            case loop.Prefetch(buffer=buffer, index=index, write=write):
                return f"{pad}__builtin_prefetch({buffer} + {self.ix(index)}, {int(write)});\n"
            case _:
                assert_never(s)

    def store(self, s: loop.Store, pad: str) -> str:
        """C text of a store: one element, a vector, or its active lanes."""
        t = loop.type_of(s.value)
        text = narrow_text(t.dtype, t.lanes, self.value(s.value), self.needs)
        place = f"{s.buffer} + {self.ix(s.index)}"
        if t.lanes == 1:
            return f"{pad}{s.buffer}[{self.ix(s.index)}] = {text};\n"
        v = self.needs.vector(memory_short(t.dtype), t.lanes)
        if s.active is not None:
            c = memory_type(t.dtype)
            if c == "float":
                return f"{pad}{self.needs.add(f'first_f32x{t.lanes}')}({place}, {text}, {self.ix(s.active)});\n"
            return f"{pad}{{ {v} v = {text}; memcpy({place}, &v, (size_t){self.ix(s.active)} * sizeof({c})); }}\n"
        if s.nontemporal and self.allows_nontemporal:
            self.past_caches.add(s.buffer)
            return f"{pad}{self.needs.add(f'past_f32x{t.lanes}')}({place}, {text});\n"
        return f"{pad}*({v}_u*)({place}) = {text};\n"

    def for_loop(self, s: loop.For, pad: str) -> str:
        """C text of a loop, upward or downward."""
        body = self.block(s.body, pad + "  ")
        start, stop = self.ix(s.start), self.ix(s.stop)
        note = "  /* simd */" if s.simd else ""
        if s.down:
            head = f"for (int64_t {s.var} = {stop} - 1; {s.var} >= {start}; --{s.var})"
        else:
            step = f"++{s.var}" if s.step == 1 else f"{s.var} += {s.step}"
            head = f"for (int64_t {s.var} = {start}; {s.var} < {stop}; {step})"
        return f"{pad}{head} {{{note}\n{body}{pad}}}\n"

    def parallel(self, s: loop.Parallel, pad: str) -> str:
        """C text of a parallel loop, whose body becomes a chunk function."""
        shared = list(self.locals)
        frame = f"struct chunk{len(self.chunks)}_frame"
        head = f"{frame} {{ void* const* buffers; const int64_t* sizes; void* local[{max(len(shared), 1)}]; }};\n"
        name = self.chunk(s, shared, frame, head)
        # an array may begin anywhere, and a store past the caches faults at an unaligned address
        if past := sorted(self.past_caches):
            self.allows_nontemporal = False
            plain = self.chunk(s, shared, frame, "")
            self.allows_nontemporal = True
            name = f"{' && '.join(f'(uintptr_t){b} % {ALIGNMENT} == 0' for b in past)} ? {name} : {plain}"
        inside = pad + "  "
        locals_text = ", ".join(shared) if shared else "0"
        return (
            f"{pad}{{\n{inside}{frame} frame = {{buffers, sizes, {{{locals_text}}}}};\n"
            f"{inside}const int r = tatami_parallel_for(pool, {self.ix(s.count)}, {self.ix(s.grain)}, {name}, &frame);\n"
            f"{inside}if (r > fault) fault = r;\n{pad}}}\n"
        )

    def chunk(self, s: loop.Parallel, shared: list[str], frame: str, head: str) -> str:
        """The name of a function, printed after `head` (the declaration of its frame), that computes some of the rows."""
        name = f"chunk{len(self.chunks)}"
        saved = dict(self.buffers)
        self.chunks.append("")
        place = len(self.chunks) - 1
        self.past_caches.clear()
        outer, self.bound = self.bound, self.size_bound()
        prologue = self.block(s.prologue, "  ")
        body = self.block(s.body, "    ")
        fence = self.needs.add("past_fence") if self.past_caches else ""
        del self.locals[len(shared) :]
        given = "".join((*(self.given(b, saved[b], i) for i, b in enumerate(shared)), *self.bound.lines))
        self.chunks[place] = page("tatami.c", self.CHUNK).fill(
            DECLARED=head,
            NAME=name,
            FRAME=frame,
            GIVEN=self.prologue("f->buffers", "f->sizes") + given,
            PROLOGUE=prologue,
            ROW=s.var,
            BODY=body,
            FENCE=fence,
            **self.LIMITS,
        )
        self.buffers, self.bound = saved, outer
        return name

    def given(self, buffer: str, dtype: DType, number: int) -> str:
        """C declaration of a local buffer of the kernel inside its chunks."""
        return f"  {memory_type(dtype)}* const {buffer} = f->local[{number}]; (void){buffer};\n"

    def call(self, s: loop.Call, pad: str) -> str:
        """C text of a call of a function or a routine."""
        given = [f"{a.buffer} + {self.ix(a.index)}" if isinstance(a, loop.Pointer) else self.ix(a.value) for a in s.args]
        if not s.routine:
            return f"{pad}{s.function}({', '.join(given)});\n"
        self.called[s.function] = "void* const* buffers, const int64_t* integers"
        pointers = [f"(void*)({g})" for g, a in zip(given, s.args, strict=True) if isinstance(a, loop.Pointer)]
        integers = [g for g, a in zip(given, s.args, strict=True) if not isinstance(a, loop.Pointer)]
        return (
            f"{pad}{{\n{pad}  void* const pointers[] = {{{', '.join(pointers) or '0'}}};\n"
            f"{pad}  const int64_t integers[] = {{{', '.join(integers) or '0'}}};\n"
            f"{pad}  const int r = {s.function}(pointers, integers);\n{pad}  if (r > fault) fault = r;\n{pad}}}\n"
        )

    # -- values ----------------------------------------------------------------------------------
    def value(self, v: loop.Value) -> str:
        """C text of a value, an atom or in parentheses."""
        n = self.needs
        match v:
            case loop.Const(value=value, dtype=dtype):
                return constant_text(value, dtype, _rounded)
            case loop.Reg(name=name):
                return name
            case loop.IndexOf():
                return self.index_of(v)
            case loop.Load():
                return self.load(v)
            case loop.Gather():
                return self.gather(v)
            case loop.Op(fn=fn, args=args):
                t = loop.type_of(args[-1])
                return op_text(fn, t.dtype, t.lanes, [self.value(a) for a in args], n)
            case loop.Cast(x=x, to=to, bits=bits):
                t = loop.type_of(x)
                return (bits_text if bits else cast_text)(t.dtype, to, t.lanes, self.value(x), n)
            case loop.Splat(x=x, lanes=lanes):
                dtype = loop.type_of(x).dtype
                text = self.value(x)
                return f"{n.add(f'splat_{short(dtype)}x{lanes}')}({'-' + text if dtype == DType.bool else text})"
            case loop.Lane(x=x, lane=lane):
                text = f"{self.value(x)}[{self.ix(lane)}]"
                return f"({text} & 1)" if loop.type_of(x).dtype == DType.bool else text
            case loop.Shift(x=x, by=by, fill=fill):
                t = loop.type_of(x)
                key = f"shift_{'up' if by > 0 else 'down'}{abs(by)}_{short(t.dtype)}x{t.lanes}"
                return f"{n.add(key)}({self.value(x)}, {self.value(fill)})"
            case loop.Across(x=x, y=y, start=start):
                t = loop.type_of(x)
                return f"{n.add(f'across_{start}_{short(t.dtype)}x{t.lanes}')}({self.value(x)}, {self.value(y)})"
            case loop.Zip(x=x, y=y, second=second):
                t = loop.type_of(x)
                key = f"zip_{'second' if second else 'first'}_{short(t.dtype)}x{t.lanes}"
                return f"{n.add(key)}({self.value(x)}, {self.value(y)})"
            case loop.Unzip(x=x, y=y, odd=odd):
                t = loop.type_of(x)
                key = f"unzip_{'odd' if odd else 'even'}_{short(t.dtype)}x{t.lanes}"
                return f"{n.add(key)}({self.value(x)}, {self.value(y)})"
            case loop.Horizontal(fn=fn, x=x):
                t = loop.type_of(x)
                return f"{n.add(f'h_{fn}_{t.dtype.value}x{t.lanes}')}({self.value(x)})"
            case loop.FirstLane(masks=masks):
                return self.first_lane([(self.value(m), loop.type_of(m).lanes) for m in masks])
            case loop.Fma(x=x, y=y, z=z) if loop.type_of(z).dtype == DType.fp32 and loop.type_of(z).lanes in (1, 4, 8, 16):
                texts = ", ".join(self.value(a) for a in (x, y, z))
                lanes = loop.type_of(z).lanes
                return f"{n.add('fmaone_f32' if lanes == 1 else f'fma_f32x{lanes}')}({texts})"
            case loop.Fma(x=x, y=y, z=z):
                return f"({self.value(x)} * {self.value(y)} + {self.value(z)})"
            case loop.Within(guards=guards):
                tests = [self.inside(g.index, g.size) for g in guards]
                return f"({' & '.join(tests)})" if tests else "1"
            case loop.LaneRange(low=low, high=high, lanes=lanes):
                return f"{n.add(f'lane_rangex{lanes}')}({self.ix(low)}, {self.ix(high)})"
            case loop.Random():
                return self.random(v)
            case _:
                assert_never(v)

    def inside(self, index: Expr, size: Expr) -> str:
        """C text of ``0 <= index < size``, in one comparison if the size is not negative."""
        i, n = self.ix(index), self.ix(size)
        return f"((uint64_t){i} < (uint64_t){n})" if is_never_negative(size, {}) else f"(({i} >= 0) & ({i} < {n}))"

    def index_of(self, v: loop.IndexOf) -> str:
        """C text of an index as a number, with a step per lane."""
        c = register_type(v.dtype, 1)
        first = f"(({c}){self.ix(v.value)})"
        if v.lanes == 1:
            return first
        element = short(v.dtype)
        self.needs.vector(element, v.lanes)
        base = f"{self.needs.add(f'splat_{element}x{v.lanes}')}({first})"
        if v.step is None:
            return base
        step = f"{self.needs.add(f'splat_{element}x{v.lanes}')}(({c}){self.ix(v.step)})"
        iota = f"{self.needs.add(f'iota_{element}x{v.lanes}')}()"
        if v.dtype.is_float:
            return f"({base} + {iota} * {step})"
        u = self.needs.vector(f"u{element[1:]}", v.lanes)
        return f"(({element}x{v.lanes})(({u}){base} + ({u}){iota} * ({u}){step}))"

    def first_lane(self, masks: list[tuple[str, int]]) -> str:
        """C text of the index of the first true lane of the masks; their total length if none is true."""
        bits, before = [], 0
        for text, lanes in masks:
            own = f"{self.needs.add(f'bits_i32x{lanes}')}({text})" if lanes > 1 else f"(uint64_t){text}"
            bits.append(f"{own} << {before}" if before else own)
            before += lanes
        return f"{self.needs.add('first_bit')}({' | '.join(bits)}, {before})"

    def load(self, v: loop.Load) -> str:
        """C text of a load: one element, a vector, or its active lanes."""
        if v.lanes == 1:
            return widen_text(v.dtype, 1, f"{v.buffer}[{self.ix(v.index)}]", self.needs)
        element = memory_short(v.dtype)
        vector = self.needs.vector(element, v.lanes)
        place = f"({v.buffer} + {self.ix(v.index)})"
        if v.active is not None:
            text = f"{self.needs.add(f'active_{element}x{v.lanes}')}({place}, {self.ix(v.active)})"
        else:
            text = f"(*(const {vector}_u*){place})"
        return widen_text(v.dtype, v.lanes, text, self.needs)

    def gather(self, v: loop.Gather) -> str:
        """C text of a load of elements at a distance, or at given positions."""
        element = memory_short(v.dtype)
        place = f"{v.buffer} + {self.ix(v.index)}"
        if v.at is not None:
            text = f"{self.needs.add(f'picked_{element}x{v.lanes}')}({place}, {self.ix(v.step)}, {self.value(v.at)})"
        elif v.each > 1:
            text = f"{self.needs.add(f'repeated_{v.each}_{element}x{v.lanes}')}({place}, {self.ix(v.step)})"
        elif v.step == 2:
            text = f"{self.needs.add(f'second_{element}x{v.lanes}')}({place})"
        else:
            text = f"{self.needs.add(f'strided_{element}x{v.lanes}')}({place}, {self.ix(v.step)})"
        return widen_text(v.dtype, v.lanes, text, self.needs)

    def random(self, v: loop.Random) -> str:
        """C text of Philox words, one per lane."""
        philox = self.needs.add("philox_word")
        key = self.value(v.key)
        words = [f"{philox}({key}, (uint64_t){self.ix(v.counter + i)})" for i in range(v.lanes)]
        if v.lanes == 1:
            return words[0]
        return f"(({self.needs.vector('u32', v.lanes)}){{{', '.join(words)}}})"
