"""An execution plan as text: buffers, then instructions by wave.

program main (x: fp32[B, 64], w: fp32[64, 8]) -> (y: fp32[B, 8])
  input     n0      fp32[B, 64]
  arena     n4      fp32[B, 8]     use 0..1
  wave 0
    n4 = k0(n0, n1; B)             # r0
  execution_order r0 @0
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from tatami.core.kernel import Condition, condition_text
from tatami.core.lines import Line, ended, text_of
from tatami.core.module import Module, Origins, names_text
from tatami.core.scalar import one_line
from tatami.core.signature import Signature
from tatami.execution import ir
from tatami.execution.waves import operation_name


def show(module: Module[ir.ExecutionPlan]) -> str:
    """The text of every program: signature, buffers, instructions by wave."""
    return text_of(show_lines(module))


def show_lines(module: Module[ir.ExecutionPlan]) -> Iterator[Line]:
    """The same by lines, each of a buffer or of the Region or step of an instruction."""
    return ended(_program(name, plan, module.origins.get(name, {})) for name, plan in module.programs.items())


def _program(name: str, plan: ir.ExecutionPlan, names: Origins) -> Iterator[Line]:
    yield Line(f"program {name} {_signature(plan.signature)}")
    rows = [_buffer(b) for b in plan.buffers]
    widths = [max((len(r[c]) for r in rows), default=0) for c in range(3)]
    for b, r in zip(plan.buffers, rows, strict=True):
        yield Line("  " + "  ".join(cell.ljust(w) for cell, w in zip(r, (*widths, 0))).rstrip(), (name, b.id))
    yield from _instructions(name, plan, names)


def _signature(s: Signature) -> str:
    ins = ", ".join(f"{i.tensor}: {i.dtype}[{', '.join(map(str, i.shape))}]" for i in s.inputs)
    outs = ", ".join(
        f"{o.tensor}: {o.dtype}[{', '.join(map(str, o.shape))}]{f' updates {o.updates}' if o.updates else ''}"
        for o in s.outputs
    )
    return f"({ins}) -> ({outs})"


def _buffer(b: ir.BufferInfo) -> tuple[str, str, str, str]:
    notes: list[str] = []
    if b.layout is not None:
        notes.append(f"layout {b.layout.kind}{''.join(f' {a}x{f}' for a, f in b.layout.blocks)}")
    if b.parent:
        notes.append(f"slice of {b.parent} at {b.offset}")
    if b.in_place_of:
        notes.append(f"in place of {b.in_place_of}")
    if b.first_use >= 0:
        notes.append(f"use {b.first_use}..{b.last_use}")
    if b.arena_offset >= 0:
        notes.append(f"at byte {b.arena_offset}{' of the pool' if b.kind == 'constant' else ''}")
    return b.kind, b.id, f"{b.dtype}[{', '.join(map(str, b.shape))}]", "  ".join(notes)


def _instructions(program: str, plan: ir.ExecutionPlan, names: Origins) -> Iterator[Line]:
    texts = [_instruction(i) for i in plan.instructions]
    width = min(60, max((len(t) for t in texts), default=0))
    wave: int | None = None
    for ins, text in zip(plan.instructions, texts):
        if ins.wave != wave:
            wave = ins.wave
            yield Line(f"  wave {wave}" if wave >= 0 else "  no order given")
        made = names.get(ins.debug_name, ())
        nodes = f"({names_text(made)})" if made and made != (ins.debug_name,) else ""
        notes = " ".join(w for w in (ins.debug_name, nodes, "beside" if ins.beside else "") if w)
        of = (program, ins.debug_name) if ins.debug_name else ()
        yield Line(f"    {text.ljust(width)}  # {notes}" if notes else f"    {text}", of)
    flat = ", ".join(f"{i.debug_name or operation_name(i.op)} @{i.wave}" for i in plan.instructions if i.wave >= 0)
    if flat:
        yield Line(f"  execution_order {flat}")


def _instruction(ins: ir.Instruction) -> str:
    left = ", ".join(ins.outputs) or "()"
    arguments = ", ".join(i or "-" for i in ins.inputs)
    match ins.op:
        case ir.Launch():
            return f"{left} = {_launch(ins.op)}"
        case ir.Choose(cases=cases):
            parts = [f"{_conditions(c.conditions)}{' then '.join(_launch(k) for k in c.launches)}" for c in cases]
            return f"{left} = {' | '.join(parts)}"
        case ir.Call(program=program):
            return f"{left} = call {program}({arguments}){_named(ins.op.sizes)}{_new(ins.op.new_symbols)}"
        case ir.If(then=then, otherwise=otherwise):
            return f"{left} = if {ins.inputs[0]} {then} else {otherwise} ({', '.join(ins.inputs[1:])}){_named(ins.op.sizes)}{_new(ins.op.new_symbols)}"
        case ir.Loop(body=body, carried=carried, scanned=scanned):
            sizes = f"{_named(ins.op.sizes)}{''.join(f' {s} varies' for s in ins.op.varying)}{_new(ins.op.new_symbols)}"
            return f"{left} = loop {body}({arguments}) carried {carried} scanned {scanned}{sizes}"
        case ir.Host(routine=routine, attrs=attrs) if ir.is_collective(ins.op):
            shown = "".join(f" {k}={one_line(v)}" for k, v in attrs.items())
            return f"{left} = begin {routine}({arguments}){shown}"
        case ir.Host(routine=routine, new_symbols=new):
            return f"{left} = host {routine}({arguments}){_new(new)}"
        case ir.Extent(new_symbols=new):
            return f"{', '.join(new)} = extent {arguments}"
        case ir.Copy():
            return f"{left} = copy {arguments}"
        case ir.Op(name=name, attrs=attrs):
            shown = "".join(f" {k}={one_line(v)}" for k, v in attrs.items())
            return f"{left} = {name}({arguments}){shown}"
        case _:
            assert_never(ins.op)


def _launch(k: ir.Launch) -> str:
    pointers = ", ".join(_arg(a) for a in k.args if not isinstance(a, ir.SizeArg))
    sizes = ", ".join(str(a.value) for a in k.args if isinstance(a, ir.SizeArg))
    text = f"{k.kernel}({pointers}{'; ' + sizes if sizes else ''})"
    if k.grid:
        text += f" grid [{', '.join(map(str, k.grid))}] block [{', '.join(map(str, k.block))}]"
    if k.shared_bytes:
        text += f" shared {k.shared_bytes}"
    if k.dependent:
        text += " dependent"
    return text


def _arg(a: ir.Arg) -> str:
    match a:
        case ir.Ptr(buffer=buffer):
            return buffer
        case ir.TensorMap(buffer=buffer, box=box, swizzle=swizzle, tf32=tf32, window=w):
            walk = "" if w is None else f" im2col {list(w.lower)} to {list(w.upper)} by {list(w.steps)}"
            return f"tma {buffer} box {list(box)} swizzle {swizzle}{' tf32' if tf32 else ''}{walk}"
        case ir.SizeArg(value=value):
            return str(value)
        case _:
            assert_never(a)


def _conditions(conditions: tuple[Condition, ...]) -> str:
    return f"when {' and '.join(map(condition_text, conditions))}: " if conditions else ""


def _named(sizes: object) -> str:
    if not isinstance(sizes, dict) or not sizes:
        return ""
    return f" with {', '.join(f'{k}={v}' for k, v in sizes.items())}"


def _new(symbols: tuple[str, ...]) -> str:
    return f" binds {', '.join(symbols)}" if symbols else ""
