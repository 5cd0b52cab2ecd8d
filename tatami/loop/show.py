"""A loop program as text: one statement per line, registers with their types.

kernel tatami_1f… (p0: fp32, p1: fp32 out; s0, s1)            # CpuRows
  parallel z1 < s0, grain 64
    a2: fp32x16 = splat(-INF)
    for x3 = 0 .. s1//16*16 by 16 simd
      a2 = max(a2, p0[s1*z1 + x3 : 16])
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from tatami.core.dtype import DType
from tatami.core.lines import Line, ended, text_of
from tatami.core.module import Module
from tatami.loop import ir


def show(module: Module[ir.Program]) -> str:
    """All kernels and bindings of the module as text."""
    return text_of(show_lines(module))


def show_lines(module: Module[ir.Program]) -> Iterator[Line]:
    """The same by lines: calls, each of a Region; those of a kernel, each of the register, loop or buffer that it declares or
    writes."""
    return ended(_program(name, program) for name, program in module.programs.items())


def _program(name: str, program: ir.Program) -> Iterator[Line]:
    yield Line(f"program {name}")
    for b in program.bindings:
        sizes = "; " + ", ".join(map(str, b.sizes)) if b.sizes else ""
        guard = " when " + " and ".join(map(str, b.conditions)) if b.conditions else ""
        yield Line(f"  {b.region} calls {b.kernel}({', '.join(b.buffers)}{sizes}){guard}", (name, b.region))
    for kernel in program.kernels.values():
        yield Line("")
        yield from kernel_lines(kernel, (name, kernel.face.symbol))


def kernel_lines(kernel: ir.Kernel, of: tuple[str, ...]) -> Iterator[Line]:
    """The lines of one kernel, the thing `of`: its face, functions, routine and body."""
    params = ", ".join(f"{p.name}: {p.dtype}{' out' if p.written else ''}" for p in kernel.params)
    sizes = "; " + ", ".join(f"s{i}" for i in range(kernel.face.sizes)) if kernel.face.sizes else ""
    yield Line(f"kernel {kernel.face.symbol} ({params}{sizes})" + (f"  # {kernel.about}" if kernel.about else ""), of)
    for i, o in kernel.face.in_place:
        yield Line(f"  {kernel.params[o].name} may take the place of {kernel.params[i].name}", of)
    for f in kernel.functions:
        names = ", ".join(f"{p.name}: {p.dtype}" if isinstance(p, ir.BufferParam) else p.name for p in f.params)
        yield Line(f"  function {f.name}({names})", (*of, f.name))
        yield from _block(f.body, 4, of)
    if kernel.user is not None:
        called = ", ".join([*(p.name for p in _ports(kernel.user)), *kernel.user.sizes])
        yield Line(f"  routine {kernel.user.name}({called})", of)
        yield from (Line(f"    | {line}", of) for line in kernel.user.text.splitlines())
    yield from _block(kernel.body, 2, of)


def _ports(user: ir.UserRoutine) -> tuple[ir.BufferParam, ...]:
    return (*user.inputs, *user.outputs)


def _block(body: tuple[ir.Stmt, ...], pad: int, of: tuple[str, ...]) -> Iterator[Line]:
    for s in body:
        yield from _stmt(s, pad, of)


def _stmt(s: ir.Stmt, pad: int, of: tuple[str, ...]) -> Iterator[Line]:
    p = " " * pad
    match s:
        case ir.Declare(reg=reg, value=value, integer=integer):
            kind = "index" if integer else _type(reg.dtype, reg.lanes)
            yield Line(f"{p}{reg.name}: {kind} = {value_text(value)}", (*of, reg.name))
        case ir.Assign(reg=reg, value=value):
            yield Line(f"{p}{reg.name} = {value_text(value)}", (*of, reg.name))
        case ir.SetLane(reg=reg, lane=lane, value=value):
            yield Line(f"{p}{reg.name}.lane({lane}) = {value_text(value)}", (*of, reg.name))
        case ir.Store(buffer=buffer, index=index, value=value, active=active, nontemporal=nontemporal):
            place = _place(buffer, str(index), ir.type_of(value).lanes, str(active) if active is not None else "")
            yield Line(f"{p}{place} = {value_text(value)}{' nontemporal' if nontemporal else ''}", (*of, buffer))
        case ir.For(var=var, start=start, stop=stop, body=body, step=step, simd=simd, down=down):
            how = (f" by {step}" if step != 1 else "") + (" simd" if simd else "") + (" down" if down else "")
            yield Line(f"{p}for {var} = {start} .. {stop}{how}", (*of, var))
            yield from _block(body, pad + 2, of)
        case ir.If(cond=cond, then=then, otherwise=otherwise):
            yield Line(f"{p}if {value_text(cond)}", of)
            yield from _block(then, pad + 2, of)
            if otherwise:
                yield Line(f"{p}else", of)
                yield from _block(otherwise, pad + 2, of)
        case ir.Parallel(var=var, count=count, grain=grain, body=body, prologue=prologue):
            yield Line(f"{p}parallel {var} < {count}, grain {grain}", (*of, var))
            if prologue:
                yield Line(f"{p}  once", of)
                yield from _block(prologue, pad + 4, of)
            yield from _block(body, pad + 2, of)
        case ir.LocalBuffer(name=name, dtype=dtype, elements=elements):
            yield Line(f"{p}{name}: buffer {dtype}[{elements}]", (*of, name))
        case ir.Fault(code=code):
            yield Line(f"{p}fault {code}", of)
        case ir.Call(function=function, args=args):
            texts = [f"&{a.buffer}[{a.index}]" if isinstance(a, ir.Pointer) else str(a.value) for a in args]
            yield Line(f"{p}call {function}({', '.join(texts)})", (*of, function))
        case ir.Prefetch(buffer=buffer, index=index, write=write):
            yield Line(f"{p}prefetch {buffer}[{index}]{' to write' if write else ''}", of)
        case _:
            assert_never(s)


def _type(dtype: DType, lanes: int) -> str:
    return f"{dtype}" if lanes == 1 else f"{dtype}x{lanes}"


def _place(buffer: str, index: str, lanes: int, active: str) -> str:
    wide = f" : {lanes}" if lanes > 1 else ""
    return f"{buffer}[{index}{wide}{f' of {active}' if active else ''}]"


def value_text(v: ir.Value) -> str:
    """A value as text, on one line."""
    match v:
        case ir.Const(value=value):
            return str(value)
        case ir.Reg(name=name):
            return name
        case ir.IndexOf(value=value, lanes=lanes, step=step):
            return f"index({value})" if lanes == 1 else f"index({value} + lane*{step if step is not None else 0})"
        case ir.Load(buffer=buffer, index=index, lanes=lanes, active=active):
            return _place(buffer, str(index), lanes, str(active) if active is not None else "")
        case ir.Gather(buffer=buffer, index=index, step=step, lanes=lanes, at=ir.Reg(name=at)):
            return f"{buffer}[{index} + {at}*{step} : {lanes}]"
        case ir.Gather(buffer=buffer, index=index, step=step, lanes=lanes, each=each):
            return f"{buffer}[{index} : {lanes} by {step}{f', each {each} times' if each > 1 else ''}]"
        case ir.Op(fn=fn, args=args):
            return f"{fn}({', '.join(map(value_text, args))})"
        case ir.Cast(x=x, to=to, bits=bits):
            return f"{'bits' if bits else 'cast'}({value_text(x)}, {to})"
        case ir.Splat(x=x):
            return f"splat({value_text(x)})"
        case ir.Lane(x=x, lane=lane):
            return f"{value_text(x)}.lane({lane})"
        case ir.Shift(x=x, by=by, fill=fill):
            return f"shift({value_text(x)}, {by}, {value_text(fill)})"
        case ir.Across(x=x, y=y, start=start):
            return f"across({value_text(x)}, {value_text(y)}, {start})"
        case ir.Zip(x=x, y=y, second=second):
            return f"zip({value_text(x)}, {value_text(y)}).{'second' if second else 'first'}"
        case ir.Unzip(x=x, y=y, odd=odd):
            return f"unzip({value_text(x)}, {value_text(y)}).{'odd' if odd else 'even'}"
        case ir.Horizontal(fn=fn, x=x):
            return f"across_{fn}({value_text(x)})"
        case ir.FirstLane(masks=masks):
            return f"first_lane({', '.join(map(value_text, masks))})"
        case ir.Fma(x=x, y=y, z=z):
            return f"fma({value_text(x)}, {value_text(y)}, {value_text(z)})"
        case ir.Within(guards=guards):
            return " and ".join(f"0 <= {g.index} < {g.size}" for g in guards) or "true"
        case ir.LaneRange(low=low, high=high):
            return f"lanes({low} .. {high})"
        case ir.Random(key=key, counter=counter):
            return f"philox({value_text(key)}, {counter})"
        case _:
            assert_never(v)
