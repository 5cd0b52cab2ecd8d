"""Conditions on Regions and on the programs around them (spec 3 §6, §6.10, spec 5 §3.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from tatami.core.algebra.assumed import NOTHING, Assumed
from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.dtype import DType
from tatami.core.expr import Shape, shape_text
from tatami.core.layout import layout_fault
from tatami.core.module import Module
from tatami.core.numbers.routine_types import routine_fault
from tatami.core.signature import MOST_ALIGNMENT, Input, Output, port_fault, repeated_input, symbols
from tatami.region.checks.lets import check_let
from tatami.region.checks.yields import check_yields
from tatami.region.ir import Program, Region, Step
from tatami.region.views.alike import OncePerForm
from tatami.region.walk import all_axes, routine_operands


def verify(module: Module[Program]) -> list[Diagnostic]:
    """All faults of all programs."""
    out: list[Diagnostic] = []
    for name, program in module.programs.items():
        out += verify_program(program, name)
    known = ", ".join(module.programs)
    for name, program in module.programs.items():
        for item in program.body:
            if not isinstance(item, Step) or item.kind == "host":
                continue
            for t in item.targets:
                if t not in module.programs:
                    why = f"it calls {t!r}, which is not a program"
                    out.append(diagnostic("UnknownName", f"{name}: {item.name}", why, f"the programs are {known}"))
    return out


def verify_program(program: Program, name: str = "main") -> list[Diagnostic]:
    """All faults of one program: every tensor is an input or made once by an earlier item; then the faults of each Region."""
    out: list[Diagnostic] = []
    known: dict[str, Shape] = {}
    if len(program.inputs) != len(program.signature.inputs) or len(program.outputs) != len(program.signature.outputs):
        out.append(
            diagnostic(
                "InvalidRegion",
                name,
                f"{len(program.inputs)} input and {len(program.outputs)} output ids for {len(program.signature.inputs)} and "
                f"{len(program.signature.outputs)} tensors of the signature",
                "give one id for each input and each output of the signature",
            )
        )
    if twice := repeated_input(program.signature):
        out.append(diagnostic("DuplicateId", f"{name}: {twice}", "two inputs have this name", "rename one of them"))
    known |= {i: port.shape for i, port in zip(program.inputs, program.signature.inputs)}
    dtypes = {i: port.dtype for i, port in zip(program.inputs, program.signature.inputs)}
    names: set[str] = set()
    assumed, sizes = Assumed(program.signature.assumptions), frozenset(symbols(program.signature))
    faults = OncePerForm(partial(verify_region, sizes=sizes, assumed=assumed), _in_names)
    for item in program.body:
        if item.name in names:
            out.append(
                diagnostic("DuplicateId", f"{name}: {item.name}", "two items have this name", "give each item its own name")
            )
        names.add(item.name)
        used = item.inputs if isinstance(item, Step) else [p.name for p in item.inputs]
        out += [
            diagnostic(
                "UnknownValue",
                f"{name}: {item.name}",
                f"it reads {u}, which nothing before it makes",
                "order the items by data flow",
            )
            for u in used
            if u not in known
        ]
        for made in item.outputs:
            if made.name in known:
                out.append(
                    diagnostic(
                        "DuplicateId", f"{name}: {item.name}", f"{made.name} is made twice", "give each tensor one maker"
                    )
                )
            known[made.name] = made.memref.shape
            dtypes[made.name] = made.memref.dtype
        if isinstance(item, Region):
            out += _interface(item, known, dtypes)
            out += faults(item)
    out += [
        diagnostic("UnknownValue", name, f"output {o} is never made", "name a tensor that some item makes")
        for o in program.outputs
        if o not in known
    ]
    ports: tuple[Input | Output, ...] = (*program.signature.inputs, *program.signature.outputs)
    for port in ports:
        if why := port_fault(port):
            out.append(diagnostic("LayoutMismatch", f"{name}: {port.tensor}", why, "write a power of two, or leave it out"))
    for o, port in zip(program.outputs, program.signature.outputs):
        if o in known and (known[o], dtypes[o]) != (port.shape, port.dtype):
            why = f"output {port.tensor} is {port.dtype}{shape_text(port.shape)}, {o} is {dtypes[o]}{shape_text(known[o])}"
            out.append(diagnostic("AxisAlignmentMismatch", f"{name}: {o}", why, "write the type of what is given"))
    return out


def _in_names(found: list[Diagnostic], names: Mapping[str, str], name: str) -> list[Diagnostic] | None:
    """The faults of a Region of the same form: none, or those that are found again, since their sentences hold names."""
    return None if found else found


def _interface(region: Region, known: dict[str, Shape], dtypes: dict[str, DType]) -> Iterable[Diagnostic]:
    for memref in (*(p.memref for p in region.inputs), *(t.memref for t in region.outputs)):
        if memref.alignment < 1 or memref.alignment > MOST_ALIGNMENT or memref.alignment & (memref.alignment - 1):
            why = f"alignment {memref.alignment}"
            yield diagnostic("LayoutMismatch", region.name, why, f"use a power of two of bytes up to {MOST_ALIGNMENT}")
        if why := layout_fault(memref.layout, len(memref.shape)):
            yield diagnostic("LayoutMismatch", region.name, why, "write the layout's own fields")
    for t in region.outputs:
        if t.memref.layout.kind == "swizzled":
            why = f"output {t.name} is swizzled; tiles of operands in shared memory are"
            yield diagnostic("LayoutMismatch", region.name, why, "write row_major")
    for p in region.inputs:
        if p.name in dtypes and dtypes[p.name] != p.memref.dtype:
            why = f"the Region reads {p.memref.dtype}, the tensor is {dtypes[p.name]}"
            yield diagnostic("DTypeMismatch", f"{region.name}: {p.name}", why, "give the MemRef the tensor's dtype")
        if p.name in known and known[p.name] != p.memref.shape:
            yield diagnostic(
                "AxisAlignmentMismatch",
                f"{region.name}: {p.name}",
                f"the Region sees shape {shape_text(p.memref.shape)}, the tensor has {shape_text(known[p.name])}",
                "give the MemRef the tensor's shape",
            )


def verify_region(region: Region, sizes: frozenset[str] = frozenset(), assumed: Assumed = NOTHING) -> list[Diagnostic]:
    """All faults of one Region. `sizes`: size symbols of the program, which no axis may share a name with; `assumed`: the
    program's equations."""
    out = _names(region, sizes)
    if region.opaque is not None:
        if region.lets or region.yields:
            out.append(diagnostic("InvalidRegion", region.name, "an opaque Region has lets or yields", "keep only the routine"))
        for name in sorted(set(region.opaque.operands) - {p.name for p in region.inputs}):
            why = f"the routine takes {name!r}, which is not an input of the Region"
            out.append(diagnostic("UnknownValue", region.name, why, "list it among the inputs"))
        if not out:
            typed = {p.name: (p.memref.dtype, p.memref.shape) for p in region.inputs}
            operands = [typed[name] for name in routine_operands(region)]
            results = [(t.memref.dtype, t.memref.shape) for t in region.outputs]
            why = routine_fault(region.opaque.routine, operands, results, region.opaque.attrs)
            if why:
                out.append(diagnostic("InvalidRegion", region.name, why, "give the routine its operands and results"))
        return out
    if any(d.kind in ("DuplicateId", "InvalidSymbol") for d in out):
        return out
    seen: set[str] = set()
    for position, let in enumerate(region.lets):
        if let.name in seen:
            out.append(
                diagnostic(
                    "DuplicateId", f"{region.name}: {let.name}", "the let is assigned twice", "a let is assigned once (SSA)"
                )
            )
        seen.add(let.name)
        out += check_let(region, position, assumed)
    axes = all_axes(region)
    if any(a not in axes for let in region.lets for a in let.axes):
        return out  # said of the let; what it yields has no shape
    return out + check_yields(region)


def _names(region: Region, sizes: frozenset[str]) -> list[Diagnostic]:
    """Faults of names: axes, symbols, inputs and outputs are named once and do not collide."""
    out: list[Diagnostic] = []
    at = region.name
    axes = [i.name for i in (*region.iters, *region.reduce_axes)]
    for a in sorted({a for a in axes if axes.count(a) > 1}):
        out.append(diagnostic("DuplicateId", at, f"axis {a} is declared twice", "an axis is in iters or in reduce_axes, once"))
    used: set[str] = set(sizes)
    for i in (*region.iters, *region.reduce_axes):
        used |= free_vars(i.size)
    for memref in (*(p.memref for p in region.inputs), *(t.memref for t in region.outputs)):
        for s in memref.shape:
            used |= free_vars(s)
    for a in sorted(set(axes) & used):
        out.append(diagnostic("InvalidSymbol", at, f"{a} is both an axis and a size symbol", "rename the axis"))
    ports = [*(p.name for p in region.inputs), *(t.name for t in region.outputs)]
    for p in sorted({p for p in ports if ports.count(p) > 1}):
        out.append(diagnostic("DuplicateId", at, f"tensor {p} is declared twice", "an input or output is declared once"))
    inputs = {p.name for p in region.inputs}
    for t in region.outputs:
        if t.updates and t.updates not in inputs:
            out.append(
                diagnostic(
                    "UnknownValue", at, f"{t.name} updates {t.updates}, which is not an input", "name an input of the Region"
                )
            )
    return out
