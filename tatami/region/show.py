"""Regions as text: one line per let, in the words of the expression.

region r0 (contraction)  m:M n:N | k:K
  in   A : fp16[M, K]   B : fp16[K, N]   bias : fp16[N]
  acc[m, n] : fp32 = sum over k of A[m, k] * B[k, n]
  c1[m, n] : fp32 = acc + cast(bias[n], fp32)
  C : fp16[M, N] <- c1 as fp16
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from tatami.core.custom.verbatim import code_texts
from tatami.core.expr import Expr, Shape
from tatami.core.layout import ROW_MAJOR, MemRef
from tatami.core.lines import Line, ended, split_lines, text_of
from tatami.core.module import Module
from tatami.core.scalar import one_line
from tatami.core.signature import Signature
from tatami.indexbook.ir import Guard
from tatami.region import ir
from tatami.region.views.kinds import kind_of

_INFIX = {
    "add": ("+", 5), "sub": ("-", 5), "mul": ("*", 6), "div": ("/", 6), "eq": ("==", 3), "ne": ("!=", 3), "lt": ("<", 3),
    "le": ("<=", 3), "gt": (">", 3), "ge": (">=", 3), "and": ("and", 2), "or": ("or", 1),
}  # fmt: skip


def show(module: Module[ir.Program]) -> str:
    """All programs of the module as text."""
    return text_of(show_lines(module))


def show_lines(module: Module[ir.Program]) -> Iterator[Line]:
    """The same by lines: the signature, then those of Regions and their lets, and of steps."""
    return ended(_program(name, p) for name, p in module.programs.items())


def _program(name: str, program: ir.Program) -> Iterator[Line]:
    yield Line(f"program {name}")
    yield from _signature(name, program.signature, program)
    for item in program.body:
        if isinstance(item, ir.Region):
            yield from region_lines(item, name)
        else:
            yield from split_lines(_step(item), (name, item.name))


def _signature(name: str, signature: Signature, program: ir.Program) -> Iterator[Line]:
    for i, id_ in zip(signature.inputs, program.inputs):
        yield Line(f"  input  {id_} = {i.tensor} : {i.dtype}{_shape(i.shape)}", (name, id_))
    for o, id_ in zip(signature.outputs, program.outputs):
        updated = f" updates {o.updates}" if o.updates else ""
        yield Line(f"  output {o.tensor} = {id_} : {o.dtype}{_shape(o.shape)}{updated}", (name, id_))


def _step(step: ir.Step) -> str:
    outs = ", ".join(f"{p.name} : {_memref(p.memref)}" for p in step.outputs)
    return f"  step {step.name}: {outs} = {step.kind} {' | '.join(step.targets)}({', '.join(step.inputs)})"


def show_region(region: ir.Region) -> str:
    """One Region as text: axes, inputs, one line per let, outputs."""
    return text_of(region_lines(region, ""))


def region_lines(region: ir.Region, program: str) -> Iterator[Line]:
    """The same by lines, in the program of this name: a let is (program, Region, let)."""
    of = (program, region.name)
    axes = " ".join(_iter(i) for i in region.iters)
    reduced = " ".join(_iter(i) for i in region.reduce_axes)
    head = f"  region {region.name} ({kind_of(region)})  {axes}" + (f" | {reduced}" if reduced else "")
    yield Line(head.rstrip(), of)
    yield from (Line(f"    in   {p.name} : {_memref(p.memref)}", of) for p in region.inputs)
    if region.opaque is not None:
        attrs = ", ".join(
            f"{k}={one_line(v)}" for k, v in sorted((region.opaque.attrs | code_texts(region.opaque.code)).items())
        )
        twice = f" of {', '.join(region.opaque.operands)}" if region.opaque.operands else ""
        yield from split_lines(f"    {region.opaque.routine}({attrs}){twice}", of)
        yield from (Line(f"    out  {t.name} : {_memref(t.memref)}", of) for t in region.outputs)
        return
    for let in region.lets:
        yield from split_lines(f"    {show_let(let)}", (*of, let.name))
    targets = {t.name: t for t in region.outputs}
    for y in region.yields:
        target = targets.get(y.to)
        note = ""
        if target is not None:
            note = f" : {_memref(target.memref)}"
        arrow = "<-" if y.combine == "set" else f"<-{y.combine}"
        yield Line(f"    {y.to}{_place(y)}{note} {arrow} {y.source}{_yield_notes(y, target)}", (*of, y.source))


def _yield_notes(y: ir.Yield, target: object) -> str:
    note = f" as {y.cast}" if y.cast is not None else ""
    if getattr(target, "materialize", "gmem") == "deferred":
        note += " (deferred)"
    if getattr(target, "updates", ""):
        note += f" (updates {target.updates})"  # type: ignore[attr-defined]
    return note


def _place(y: ir.Yield) -> str:
    if y.map is None:
        return ""
    names = iter(y.indices)
    return "[" + ", ".join(next(names) if m is None else str(m) for m in y.map) + "]"


def _iter(i: ir.Iter) -> str:
    return f"{i.name}:{i.size}"


def _shape(shape: Shape) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def _memref(memref: MemRef) -> str:
    text = f"{memref.dtype}{_shape(memref.shape)}"
    if memref.layout != ROW_MAJOR:
        text += f" {memref.layout.kind}"
    return text


def show_let(let: ir.Let) -> str:
    """One let as one line: name, axes, dtype, expression."""
    return f"{let.name}{'[' + ', '.join(let.axes) + ']' if let.axes else ''} : {let.dtype} = {show_expr(let.expr)}"


def show_expr(e: ir.RegionExpr, outer: int = 0) -> str:
    """An expression as one line. `outer`: precedence of the operator around it."""
    match e:
        case ir.Read(tensor=tensor, map=entries):
            return f"{tensor}[{_list(entries)}]"
        case ir.ReadAt(tensor=tensor, map=maybe, indices=indices, bounds=bounds):
            names = iter(indices)
            inside = ", ".join(f"@{show_expr(next(names))}" if m is None else str(m) for m in maybe)
            return f"{tensor}[{inside}; {bounds}]"
        case ir.Ref(let=let):
            return let
        case ir.At(let=let, map=entries):
            return f"{let}[{_list(entries)}]"
        case ir.Const(value=value):
            return str(value)
        case ir.Index(value=value):
            return f"index({value})"
        case ir.Within(guards=guards):
            return " and ".join(_guard(g) for g in guards) or "always"
        case ir.Unary(fn=fn, x=x):
            return f"{fn}({show_expr(x)})"
        case ir.Binary(fn=fn, x=x, y=y):
            if fn not in _INFIX:
                return f"{fn}({show_expr(x)}, {show_expr(y)})"
            sign, level = _INFIX[fn]
            text = f"{show_expr(x, level)} {sign} {show_expr(y, level + 1)}"
            return f"({text})" if level < outer else text
        case ir.Select(pred=pred, then=then, other=other):
            return f"({show_expr(then)} where {show_expr(pred)} else {show_expr(other)})"
        case ir.Cast(x=x, to=to, bits=bits):
            return f"{'bitcast' if bits else 'cast'}({show_expr(x)}, {to})"
        case ir.Reduce(fn=fn, axes=axes, body=body, init=init):
            start = "" if init is None or init == 0 else f" from {init}"
            text = f"{fn} over {', '.join(axes)}{start} of {show_expr(body, 0)}"
            return f"({text})" if outer else text
        case ir.Scan(fn=fn, axis=axis, body=body, exclusive=exclusive, reverse=reverse):
            how = (" exclusive" if exclusive else "") + (" reverse" if reverse else "")
            return f"scan {fn} along {axis}{how} of {show_expr(body)}"
        case ir.Random(key=key, counter=counter):
            return f"random(key {show_expr(key)}, word {counter})"
        case ir.BroadcastInDim(operand=operand, result_shape=shape, broadcast_dimensions=dims):
            return f"BroadcastInDim({show_expr(operand)}, {_shape(shape)}, [{', '.join(map(str, dims))}])"
        case ir.Transpose(operand=operand, permutation=permutation):
            return f"Transpose({show_expr(operand)}, [{', '.join(map(str, permutation))}])"
        case _:
            assert_never(e)


def _guard(g: Guard) -> str:
    return f"0 <= {g.index} < {g.size}"


def _list(entries: tuple[Expr, ...]) -> str:
    return ", ".join(map(str, entries))
