"""A kernel that somebody edited as C text: every access is compared with the size of its buffer before it is made.

    *({ const int64_t t$at = i*s0 + j; if (t$at < 0 || …) { tatami_release(mark); return 8; } p0$$ + t$at; })

An access outside ends the kernel with the fault OUTSIDE, and so do an index that divides by less than 1, a lane outside its
vector, scratch beyond reason and more than MOST_STEPS steps of loops. Index arithmetic wraps. Names of the kernel cannot equal
names of this text: registers and variables end in ``$``, buffers in ``$$``, and no name of a document has a ``$``; values of
the text itself begin with ``t$``.
"""

from __future__ import annotations

from tatami.c.ir import Unit
from tatami.c.kernels.c_types import memory_short, memory_type
from tatami.c.kernels.casts import narrow_text, widen_text
from tatami.c.kernels.kernel_printer import KernelPrinter
from tatami.c.kernels.print_kernel import unit_of
from tatami.core.dtype import DType
from tatami.core.expr import Atom, Expr, Extreme, Floor, Var
from tatami.loop import ir as loop

OUTSIDE = 8
"""Fault code of an access outside its buffer (`runtime.cpu.program.FAULTS`)."""
MOST_STEPS = 1 << 28
"""Maximum number of steps of the loops in one chunk of work, and of chunks: about a second."""
SCRATCH = 1 << 24
"""Maximum number of elements of a local buffer, in addition to four times those of all parameters."""
_LEAVE = f"{{ tatami_release(mark); return {OUTSIDE}; }}"
_WORDS = (1 << 64) - 1


def print_checked(kernel: loop.Kernel) -> Unit:
    """`print_kernel` for a kernel with `extents`, with every access checked. The kernel has no functions and calls no
    routine."""
    return unit_of(_Checked(kernel))


class _Checked(KernelPrinter):
    KERNEL = "kernel_checked.c"
    CHUNK = "chunk_checked.c"
    LIMITS = {"MOST": MOST_STEPS, "LEAVE": _LEAVE}

    # -- indices ---------------------------------------------------------------------------------
    def ix(self, e: Expr) -> str:
        return f"((int64_t)({self.wrapping(e)}))"

    def wrapping(self, e: Expr) -> str:
        terms = [" * ".join([f"UINT64_C({c & _WORDS})", *(f"(uint64_t){self.atom(a)}" for a in mono)]) for mono, c in e.terms]
        return " + ".join(terms) or "0"

    def atom(self, a: Atom) -> str:
        match a:
            case Var(name=name):
                return f"{name}$"
            case Floor(num=num, den=den):
                divide = self.needs.add("floor_division")
                return f"({{ const int64_t t$d = {self.ix(den)}; if (t$d < 1) {_LEAVE} {divide}({self.ix(num)}, t$d); }})"
            case Extreme(kind=kind, args=args):
                text = self.ix(args[0])
                for other in args[1:]:
                    text = f"{self.needs.add(f'index_{kind}')}({text}, {self.ix(other)})"
                return text

    def within(self, e: Expr, most: int) -> str:
        """C text of an index, checked to be from 0 to `most`."""
        return f"({{ const int64_t t$n = {self.ix(e)}; if (t$n < 0 || t$n > {most}) {_LEAVE} t$n; }})"

    def place(self, buffer: str, index: Expr, count: str) -> str:
        """C text of the address of `count` elements from `index` on, checked."""
        return (
            f"({{ const int64_t t$at = {self.ix(index)}, t$count = {count};\n"
            f"    if (t$count > 0 && (t$at < 0 || extent${buffer} < t$count || t$at > extent${buffer} - t$count)) {_LEAVE}\n"
            f"    {buffer}$$ + (t$count > 0 ? t$at : 0); }})"
        )

    # -- functions -------------------------------------------------------------------------------
    def prologue(self, buffers: str, sizes: str) -> str:
        lines = ["  int64_t t$work = 0; (void)t$work;\n"]
        for i in range(self.k.face.sizes):
            lines.append(f"  const int64_t s{i}$ = {sizes}[{i}]; (void)s{i}$;\n")
        for i, (p, elements) in enumerate(zip(self.k.params, self.k.extents, strict=True)):
            const = "" if p.written else "const "
            lines.append(f"  {const}{memory_type(p.dtype)}* const {p.name}$$ = {buffers}[{i}]; (void){p.name}$$;\n")
            most = self.needs.add("index_max")
            lines.append(f"  const int64_t extent${p.name} = {most}({self.ix(elements)}, 0); (void)extent${p.name};\n")
        total = "".join(f" + (uint64_t)extent${p.name}" for p in self.k.params)
        lines.append(f"  const uint64_t t$scratch = {SCRATCH} + 4 * (UINT64_C(0){total}); (void)t$scratch;\n")
        return "".join(lines)

    # -- statements ------------------------------------------------------------------------------
    def stmt(self, s: loop.Stmt, pad: str) -> str:
        match s:
            case loop.Declare(reg=reg, value=value, integer=integer):
                c = "int64_t" if integer else self.needs.register(reg.dtype, reg.lanes)
                return f"{pad}{c} {reg.name}$ = {self.value(value)};\n"
            case loop.Assign(reg=reg, value=value):
                return f"{pad}{reg.name}$ = {self.value(value)};\n"
            case loop.SetLane(reg=reg, lane=lane, value=value):
                text = self.value(value)
                sign = "-" if reg.dtype == DType.bool else ""
                return f"{pad}{reg.name}$[{self.within(lane, reg.lanes - 1)}] = {sign}{text};\n"
            case loop.LocalBuffer(name=name, dtype=dtype, elements=elements):
                self.buffers[name] = dtype
                self.locals.append(name)
                c = memory_type(dtype)
                return (
                    f"{pad}const int64_t extent${name} = {self.ix(elements)};\n"
                    f"{pad}if (extent${name} < 0 || (uint64_t)extent${name} > t$scratch) {_LEAVE}\n"
                    f"{pad}{c}* const {name}$$ = tatami_scratch(extent${name} * (int64_t)sizeof({c}));\n"
                    f"{pad}if (!{name}$$) {{ tatami_release(mark); return TATAMI_OUT_OF_MEMORY; }}\n"
                )
            case loop.Prefetch():
                return ""
            case loop.Call():
                raise ValueError("the accesses of a called routine cannot be checked")
            case _:
                return super().stmt(s, pad)

    def store(self, s: loop.Store, pad: str) -> str:
        t = loop.type_of(s.value)
        text = narrow_text(t.dtype, t.lanes, self.value(s.value), self.needs)
        if t.lanes == 1:
            return f"{pad}*{self.place(s.buffer, s.index, '1')} = {text};\n"
        v, c = self.needs.vector(memory_short(t.dtype), t.lanes), memory_type(t.dtype)
        count = str(t.lanes) if s.active is None else self.within(s.active, t.lanes)
        place = self.place(s.buffer, s.index, count)
        return f"{pad}{{ {v} t$v = {text}; memcpy({place}, &t$v, (size_t){count} * sizeof({c})); }}\n"

    def for_loop(self, s: loop.For, pad: str) -> str:
        body = self.block(s.body, pad + "  ")
        start, stop = self.ix(s.start), self.ix(s.stop)
        x = f"{s.var}$"
        if s.down:
            head = f"for (int64_t {x} = {self.ix(s.stop - 1)}; {x} >= {start}; --{x})"
        else:
            head = f"for (int64_t {x} = {start}; {x} < {stop}; {x} = {x} > INT64_MAX - {s.step} ? INT64_MAX : {x} + {s.step})"
        return f"{pad}{head} {{\n{pad}  if (++t$work > INT64_C({MOST_STEPS})) {_LEAVE}\n{body}{pad}}}\n"

    def parallel(self, s: loop.Parallel, pad: str) -> str:
        shared = list(self.locals)
        room = max(len(shared), 1)
        frame = f"struct chunk{len(self.chunks)}_frame"
        fields = f"void* const* buffers; const int64_t* sizes; void* local[{room}]; int64_t extent[{room}];"
        name = self.chunk(s, shared, frame, f"{frame} {{ {fields} }};\n")
        inside = pad + "  "
        locals_text = ", ".join(f"{b}$$" for b in shared) or "0"
        extents = ", ".join(f"extent${b}" for b in shared) or "0"
        return (
            f"{pad}{{\n{inside}{frame} frame = {{buffers, sizes, {{{locals_text}}}, {{{extents}}}}};\n"
            f"{inside}const int64_t t$count = {self.ix(s.count)};\n{inside}if (t$count > INT64_C({MOST_STEPS})) {_LEAVE}\n"
            f"{inside}const int r = tatami_parallel_for(pool, t$count, {self.ix(s.grain)}, {name}, &frame);\n"
            f"{inside}if (r > fault) fault = r;\n{pad}}}\n"
        )

    def given(self, buffer: str, dtype: DType, number: int) -> str:
        return (
            f"  {memory_type(dtype)}* const {buffer}$$ = f->local[{number}]; const int64_t extent${buffer} = f->extent[{number}];\n"
            f"  (void){buffer}$$; (void)extent${buffer};\n"
        )

    # -- values ----------------------------------------------------------------------------------
    def value(self, v: loop.Value) -> str:
        match v:
            case loop.Reg(name=name):
                return f"{name}$"
            case loop.Lane(x=x, lane=lane):
                text = f"{self.value(x)}[{self.within(lane, loop.type_of(x).lanes - 1)}]"
                return f"({text} & 1)" if loop.type_of(x).dtype == DType.bool else text
            case _:
                return super().value(v)

    def load(self, v: loop.Load) -> str:
        if v.lanes == 1:
            return widen_text(v.dtype, 1, f"(*{self.place(v.buffer, v.index, '1')})", self.needs)
        element = memory_short(v.dtype)
        vector = self.needs.vector(element, v.lanes)
        if v.active is None:
            text = f"(*(const {vector}_u*){self.place(v.buffer, v.index, str(v.lanes))})"
        else:
            count = self.within(v.active, v.lanes)
            text = f"{self.needs.add(f'active_{element}x{v.lanes}')}({self.place(v.buffer, v.index, count)}, {count})"
        return widen_text(v.dtype, v.lanes, text, self.needs)

    def gather(self, v: loop.Gather) -> str:
        vector = self.needs.vector(memory_short(v.dtype), v.lanes)
        own = f"(uint64_t)(t$l / {v.each})" if v.at is None else f"(uint64_t){v.at.name}$[t$l]"
        text = (
            f"({{ {vector} t$r = {{0}}; const int64_t t$first = {self.ix(v.index)}, t$step = {self.ix(v.step)};\n"
            f"    for (int t$l = 0; t$l < {v.lanes}; ++t$l) {{\n"
            f"      const int64_t t$at = (int64_t)((uint64_t)t$first + {own} * (uint64_t)t$step);\n"
            f"      if (t$at < 0 || t$at >= extent${v.buffer}) {_LEAVE}\n"
            f"      t$r[t$l] = {v.buffer}$$[t$at];\n    }}\n    t$r; }})"
        )
        return widen_text(v.dtype, v.lanes, text, self.needs)
