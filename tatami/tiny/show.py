"""A tiny module as text: a header with the signature, one line per node.

n7    MUL       n5 n6                                    fp32[M, N, K]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from tatami.core.custom.verbatim import code_texts
from tatami.core.expr import Shape
from tatami.core.lines import Line, ended, split_lines, text_of
from tatami.core.module import Module
from tatami.core.ops import OPS
from tatami.core.scalar import one_line
from tatami.core.signature import Signature
from tatami.core.sizes.conditions import equation_text
from tatami.tiny import ir


def show(module: Module[ir.Program]) -> str:
    """Every program as text, main first."""
    return text_of(show_lines(module))


def show_lines(module: Module[ir.Program]) -> Iterator[Line]:
    """The same by lines, each of a node."""
    return ended(_program(name, program) for name, program in module.programs.items())


def _program(name: str, program: ir.Program) -> Iterator[Line]:
    yield from split_lines(_header(name, program))
    for node in program.nodes:
        yield from split_lines(_line(node), (name, node.id))


def _header(name: str, program: ir.Program) -> str:
    signature = program.signature
    ins = ",\n    ".join(
        f"{p.tensor}: {p.dtype}[{_shape(p.shape)}]{_port_notes(p.role, p.storage, p.mutability)}" for p in signature.inputs
    )
    outs = ", ".join(
        f"{p.tensor}: {p.dtype}[{_shape(p.shape)}] = {ident}{f' updates {p.updates}' if p.updates else ''}"
        for p, ident in zip(signature.outputs, program.outputs)
    )
    head = f"{name}(\n    {ins},\n) -> {outs}" if ins else f"{name}() -> {outs}"
    return "\n".join([head, *_notes(signature)])


def _port_notes(role: str, storage: str, mutability: str) -> str:
    notes = [w for w, plain in ((role, "data"), (storage, "argument"), (mutability, "immutable")) if w != plain]
    return f" {' '.join(notes)}" if notes else ""


def _notes(signature: Signature) -> list[str]:
    out = [f"  assume {equation_text(e)}{f'  at {e.at}' if e.at else ''}" for e in signature.assumptions]
    if signature.defaults:
        out.append("  default " + ", ".join(f"{k} = {v}" for k, v in signature.defaults.items()))
    if signature.must_bind:
        out.append("  must bind " + ", ".join(signature.must_bind))
    return out


def _line(node: ir.Node) -> str:
    body = "  ".join(part for part in (" ".join(node.src), _argument(node.op)) if part)
    text = f"{node.id:<5} {uop_name(node.op):<9} {body}"
    result = _results(node.op) if isinstance(node.op, ir.CallOp) else f"{node.dtype}[{_shape(node.shape)}]"
    tag = f"   # {node.tag}" if node.tag else ""
    return f"{text:<60} {result}{tag}"


def uop_name(op: ir.Op) -> str:
    """The spec's name of the op."""
    return OPS[op.fn].uop if isinstance(op, ir.Elementwise) else str(op.__struct_config__.tag)


def _argument(op: ir.Op) -> str:
    match op:
        case ir.InputOp(tensor_id=tensor):
            return tensor
        case ir.ConstOp(value=value):
            return str(value)
        case ir.SizeOp(value=value):
            return str(value)
        case ir.IotaOp(axis=axis):
            return f"axis={axis}"
        case ir.ReshapeOp(result_shape=shape) | ir.RandOp(result_shape=shape):
            return f"[{_shape(shape)}]"
        case ir.PermuteOp(perm=perm):
            return f"{list(perm)}"
        case ir.ExpandOp(result_shape=shape, broadcast_dimensions=dims):
            return f"[{_shape(shape)}] {list(dims)}"
        case ir.PadOp(pad=pad, value=value):
            return f"{' '.join(f'({lo},{hi})' for lo, hi in pad)} value={value}"
        case ir.ShrinkOp(lo=lo, hi=hi, step=step):
            return " ".join(f"{a}:{b}" + (f":{s}" if s != 1 else "") for a, b, s in zip(lo, hi, step))
        case ir.FlipOp(axes=axes):
            return f"axes={list(axes)}"
        case ir.ViewOp(result_shape=shape, index_map=index_map):
            return f"[{_shape(shape)}] <- [{_shape(index_map)}]"
        case ir.Elementwise():
            return ""
        case ir.CastOp(to=to) | ir.BitcastOp(to=to):
            return str(to)
        case ir.ReduceOp(op=fn, axes=axes, dtype=dtype, init=init):
            return f"{fn.upper()} axes={list(axes)} {dtype}" + ("" if init is None else f" init={init}")
        case ir.ScanOp(op=fn, axis=axis, dtype=dtype, exclusive=exclusive, reverse=reverse):
            return f"{fn.upper()} axis={axis} {dtype}{' exclusive' * exclusive}{' reverse' * reverse}"
        case ir.GatherOp(map=entries, bounds=bounds):
            return f"[{_entries(entries)}] {bounds}"
        case ir.ScatterOp(op=fn, map=entries, bounds=bounds):
            return f"{fn} [{_entries(entries)}] {bounds}"
        case ir.CallOp(kind=kind, targets=targets, sizes=sizes, new_symbols=symbols, attrs=attrs, code=code):
            parts = [kind, "|".join(targets)]
            parts += [f"{k}={v}" for k, v in sizes.items()]
            parts += [f"{k}={one_line(v)}" for k, v in (attrs | code_texts(code)).items()]
            return " ".join([*parts, *(f"new {s}" for s in symbols)])
        case ir.ResultOp(index=index):
            return str(index)
        case _:
            assert_never(op)


def _entries(entries: tuple[object, ...]) -> str:
    return ", ".join("*" if e is None else str(e) for e in entries)


def _results(op: ir.CallOp) -> str:
    return ", ".join(f"{r.dtype}[{_shape(r.shape)}]" for r in op.results)


def _shape(shape: Shape) -> str:
    return ", ".join(map(str, shape))
