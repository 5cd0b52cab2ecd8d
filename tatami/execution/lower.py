"""Regions and steps to instructions (spec 3 §12, D2.14).

    region r3 (n1, n2) -> n7     becomes     wave 1: launch k3(n1, n2, n7; B, 64)
    output n1 that is an input               copy n1 -> out0
    n9 updates the mutable input x           copy n9 -> x, after every read of x

Inputs have buffers and no instruction. A code layer passes kernels as `Binding`s; without one, a Region is a Launch
of its own name, which the reference runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import ZERO, Expr, Shape, expr, var
from tatami.core.kernel import Binding, TensorMapSpec
from tatami.core.layout import ROW_MAJOR, Layout, MemRef, size_elements
from tatami.core.module import Module
from tatami.core.signature import Input, Output, symbols
from tatami.execution import ir
from tatami.execution.arena import pool_offsets, with_offsets
from tatami.execution.beside import run_beside, run_loops_beside
from tatami.execution.extents import read_extents
from tatami.execution.frames import Layouts
from tatami.execution.in_place import take_places
from tatami.execution.joined import join
from tatami.execution.waves import order
from tatami.loop.ir import Program as LoopProgram
from tatami.region.ir import Program, Region, Step


class _Launch(Protocol):
    """One kernel for one Region, as the CPU layer describes it."""

    @property
    def kernel(self) -> str: ...
    @property
    def buffers(self) -> tuple[str, ...]: ...
    @property
    def sizes(self) -> tuple[Expr, ...]: ...


def lower(region: Module[Program], plan: Module[Any] | None, kernels: Module[Any] | None) -> Module[ir.ExecutionPlan]:
    """The plan of every program. The schedules of `plan` decide which kernels run in parallel."""
    setup = region.programs.get("setup")
    pool = {*region.constants, *(o.tensor for o in (setup.signature.outputs if setup is not None else ()))}
    loops = kernels if kernels is not None and isinstance(kernels.main, LoopProgram) else None
    programs: dict[str, ir.ExecutionPlan] = {}
    origins: dict[str, dict[str, tuple[str, ...]]] = {}
    for name, program in region.programs.items():
        bindings = None if kernels is None else _bindings(kernels.programs[name])
        made = order(join(_Lowering(region, program, pool, bindings).plan(), program))
        if plan is not None and name in plan.programs:
            made = run_beside(made, plan.programs[name])
        if loops is not None:
            made = take_places(made, {symbol: k.face for symbol, k in loops.programs[name].kernels.items()})
        programs[name] = made
        origins[name] = {item.name: (item.name,) for item in program.body}
    if loops is not None:
        programs = run_loops_beside(read_extents(Module(programs, region.constants, origins)))
    programs = {name: with_offsets(made) for name, made in programs.items()}
    return with_pool_offsets(Module(programs, region.constants, origins))


def with_pool_offsets(module: Module[ir.ExecutionPlan]) -> Module[ir.ExecutionPlan]:
    """The plans with the offsets of their constants in the ConstPool, if all sizes are numbers (spec 3 §12)."""
    found: dict[str, int] = {}
    pooled = Layouts(module).pooled
    for plan in module.programs.values():
        info = {b.id: b for b in plan.buffers}
        for id, port in zip(plan.input_buffers, plan.signature.inputs):
            count = info[id].elements.as_int()
            if info[id].kind == "constant" and count is not None:
                found[port.tensor] = count * info[id].dtype.itemsize
    if not pooled or any(name not in found for name in pooled):
        return module
    offsets, _ = pool_offsets({name: found[name] for name in pooled})
    programs: dict[str, ir.ExecutionPlan] = {}
    for name, plan in module.programs.items():
        at = {id: offsets.get(port.tensor, -1) for id, port in zip(plan.input_buffers, plan.signature.inputs)}
        buffers = tuple(
            msgspec.structs.replace(b, arena_offset=at[b.id]) if b.kind == "constant" and name != "setup" else b
            for b in plan.buffers
        )
        programs[name] = msgspec.structs.replace(plan, buffers=buffers)
    return Module(programs, module.constants, module.origins)


def _bindings(kernels: Any) -> dict[str, list[Binding]]:
    """Region -> `bindings` of a code layer with several kernels per Region, else its `launches`."""
    out: dict[str, list[Binding]] = {}
    if hasattr(kernels, "bindings"):
        for b in kernels.bindings:
            out.setdefault(b.region, []).append(b)
        return out
    launches: Mapping[str, _Launch] = kernels.launches
    return {region: [Binding(region, k.kernel, k.buffers, k.sizes)] for region, k in launches.items()}


class _Lowering:
    def __init__(
        self, module: Module[Program], program: Program, pool: set[str], bindings: Mapping[str, list[Binding]] | None
    ) -> None:
        self.module = module
        self.program = program
        self.pool = pool
        self.bindings = bindings
        self.buffers: dict[str, ir.BufferInfo] = {}
        self.instructions: list[ir.Instruction] = []
        self.produced: dict[str, MemRef] = {}
        self.input_of = dict(zip((i.tensor for i in program.signature.inputs), program.inputs))

    def plan(self) -> ir.ExecutionPlan:
        program = self.program
        for id, port in zip(program.inputs, program.signature.inputs, strict=True):
            self._input(id, port)
        updated = self._updates()
        for item in program.body:
            for out in item.outputs:
                self.produced[out.name] = out.memref
        kinds = self._output_kinds(updated)
        for item in program.body:
            for out in item.outputs:
                self._result(out.name, out.memref, kinds, updated, getattr(out, "updates", ""))
        for item in program.body:
            self.instructions.append(self._step(item) if isinstance(item, Step) else self._region(item))
        outputs = self._outputs(kinds, updated)
        return ir.ExecutionPlan(
            signature=program.signature,
            instructions=tuple(self.instructions),
            buffers=tuple(self.buffers.values()),
            input_buffers=program.inputs,
            output_buffers=outputs,
        )

    # -- buffers ---------------------------------------------------------------------------------

    def _buffer(self, id: str, dtype: DType, shape: Shape, kind: str, layout: Layout | None, parent: str = "") -> None:
        layout = None if layout == ROW_MAJOR else layout
        self.buffers[id] = ir.BufferInfo(
            id=id,
            dtype=dtype,
            shape=shape,
            elements=size_elements(layout or ROW_MAJOR, shape),
            kind=kind,  # type: ignore[arg-type]
            layout=layout,
            parent=parent,
            offset=ZERO if parent else None,
        )

    def _input(self, id: str, port: Input) -> None:
        constant = port.storage == "const_pool" and port.tensor in self.pool
        self._buffer(id, port.dtype, port.shape, "constant" if constant else "input", port.layout)

    def _updates(self) -> dict[int, str]:
        """Output position -> id of the mutable input it updates."""
        out: dict[int, str] = {}
        for i, port in enumerate(self.program.signature.outputs):
            if port.updates is not None:
                target = self.program.signature.input(port.updates)
                if target is None or target.mutability != "mutable":
                    raise fail(
                        "InvalidExecution",
                        f"output {i}",
                        "the output updates something that is not a mutable input",
                        "declare the input with mutability 'mutable'",
                    )
                out[i] = self.input_of[port.updates]
        return out

    def _output_kinds(self, updated: dict[int, str]) -> dict[str, int]:
        """Value that a kernel writes directly into an output buffer -> output position."""
        out: dict[str, int] = {}
        for i, (id, port) in enumerate(zip(self.program.outputs, self.program.signature.outputs, strict=True)):
            if i not in updated and id in self.produced and id not in out:
                made = self.produced[id].layout
                if (None if made == ROW_MAJOR else made) == (None if port.layout == ROW_MAJOR else port.layout):
                    out[id] = i
        return out

    def _result(self, id: str, memref: MemRef, kinds: dict[str, int], updated: dict[int, str], updates: str) -> None:
        if updates:
            by = next((i for i, target in updated.items() if target == updates and self.program.outputs[i] == id), None)
            if by is None or id in kinds:
                raise fail(
                    "InvalidExecution",
                    id,
                    f"a Region overwrites {updates} in place, but the signature does not say that this value updates it",
                    "list the value as an output that updates the input, and as nothing else",
                )
            self._buffer(id, memref.dtype, memref.shape, "input", memref.layout, parent=updates)
            return
        self._buffer(id, memref.dtype, memref.shape, "output" if id in kinds else "arena", memref.layout)

    def _outputs(self, kinds: dict[str, int], updated: dict[int, str]) -> tuple[str, ...]:
        """Ids of the output buffers in the order of the signature; the copies that outputs need are added."""
        out: list[str] = []
        for i, (id, port) in enumerate(zip(self.program.outputs, self.program.signature.outputs, strict=True)):
            if id not in self.buffers:
                raise fail("UnknownValue", id, "an output is never computed", "name a value of the program")
            if i in updated:
                target = updated[i]
                out.append(target)
                if self.buffers[id].parent != target and id != target:
                    self._update(id, target, set(updated.values()))
            elif kinds.get(id) == i:
                out.append(id)
            else:
                out.append(self._copied_output(i, id, port))
        return tuple(out)

    def _update(self, id: str, target: str, mutable: set[str]) -> None:
        if id in mutable:  # two states that swap: copy the earlier value first
            b = self.buffers[id]
            aside = f"{id}.old"
            if aside not in self.buffers:
                self._buffer(aside, b.dtype, b.shape, "arena", b.layout)
                self.instructions.append(ir.Instruction(ir.Copy(), (id,), (aside,), f"{id}.keep"))
            id = aside
        self.instructions.append(ir.Instruction(ir.Copy(), (id,), (target,), f"{target}.update"))

    def _copied_output(self, i: int, id: str, port: Output) -> str:
        b = self.buffers[id]
        if (b.layout or ROW_MAJOR) != (port.layout or ROW_MAJOR):
            raise fail(
                "LayoutMismatch",
                id,
                f"the value lies as {b.layout}, the output is declared as {port.layout or 'row-major'}",
                "insert a Region that converts the layout",
            )
        name = f"out{i}"
        self._buffer(name, b.dtype, b.shape, "output", port.layout)
        self.instructions.append(ir.Instruction(ir.Copy(), (id,), (name,), name))
        return name

    # -- instructions ----------------------------------------------------------------------------

    def _region(self, region: Region) -> ir.Instruction:
        inputs = tuple(dict.fromkeys(p.name for p in region.inputs))
        outputs = tuple(o.name for o in region.outputs)
        if self.bindings is None:
            op: ir.Operation = ir.Launch(region.name, tuple(ir.Ptr(b) for b in (*inputs, *outputs)))
            return ir.Instruction(op, inputs, outputs, region.name)
        bindings = self.bindings.get(region.name)
        if not bindings:
            raise fail("InvalidExecution", region.name, "no kernel was made for this Region", "lower it with the same plan")
        outputs += self._scratch(region.name, bindings)
        if len(bindings) == 1 and not bindings[0].conditions:
            op = self._launch(bindings[0], f"{region.name}.0.w")
        else:
            cases: dict[int, list[tuple[int, Binding]]] = {}
            for k, b in enumerate(bindings):
                cases.setdefault(b.choice, []).append((k, b))
            op = ir.Choose(
                tuple(
                    ir.Case(group[0][1].conditions, tuple(self._launch(b, f"{region.name}.{k}.w") for k, b in group))
                    for _, group in sorted(cases.items())
                )
            )
        return ir.Instruction(op, inputs, outputs, region.name)

    def _scratch(self, region: str, bindings: list[Binding]) -> tuple[str, ...]:
        """Arena buffers that live during this Region only: scratch between its kernels, and workspaces."""
        out: list[str] = []
        for k, b in enumerate(bindings):
            made = [(f"{region}.{name}", size) for name, size in b.scratch]
            if b.workspace.terms:
                made.append((f"{region}.{k}.w", b.workspace))
            for name, size in made:
                if name not in self.buffers:
                    self._buffer(name, DType.u8, (size,), "arena", None)
                    out.append(name)
        return tuple(out)

    def _launch(self, b: Binding, workspace: str) -> ir.Launch:
        maps = {m.position: m for m in b.tensor_maps}
        args: list[ir.Arg] = []
        for i, name in enumerate(b.buffers):
            if i in maps:
                args.append(self._map(b, maps[i]))
            else:
                args.append(ir.Ptr(self._name(b, name)))
        if b.workspace.terms:
            args.append(ir.Ptr(workspace))
        args.extend(ir.SizeArg(e) for e in b.sizes)
        # A map in addition to its pointer follows the sizes; one in place of its pointer is set above.
        later = sorted(((p, m) for p, m in maps.items() if p >= len(b.buffers)), key=lambda x: x[0])
        args.extend(self._map(b, m) for _, m in later)
        return ir.Launch(b.kernel, tuple(args), b.grid, b.block, b.cluster, b.shared_bytes, b.dependent, b.local_bytes)

    def _map(self, b: Binding, m: TensorMapSpec) -> ir.TensorMap:
        return ir.TensorMap(self._name(b, m.buffer), m.dims, m.strides, m.box, m.swizzle, m.tf32, m.window)

    def _name(self, b: Binding, name: str) -> str:
        return name if name in self.buffers else f"{b.region}.{name}"

    def _step(self, step: Step) -> ir.Instruction:
        outputs = tuple(o.name for o in step.outputs)
        new = step.new_symbols
        if step.kind == "host":
            return ir.Instruction(ir.Host(step.targets[0], new, step.attrs), step.inputs, outputs, step.name)
        callees = [self._callee(step, t) for t in step.targets]
        lead = {"program": 0, "if": 1, "loop": 0}[step.kind]
        arguments = self._arguments(step, callees[0], lead)
        sizes = dict(step.sizes)
        for callee in callees:
            self._complete(step, sizes, callee, arguments[lead:])
        match step.kind:
            case "program":
                op: ir.Operation = ir.Call(step.targets[0], sizes, new)
            case "if":
                op = ir.If(step.targets[0], step.targets[1], sizes, new)
            case "loop":
                op = ir.Loop(step.targets[0], _carried(step), len(step.outputs) - _carried(step), sizes, new, _varying(step))
        return ir.Instruction(op, arguments, outputs, step.name)

    def _callee(self, step: Step, target: str) -> Program:
        if target not in self.module.programs:
            raise fail("UnknownValue", step.name, "it calls a program that does not exist", "name a program of the module")
        return self.module.programs[target]

    def _arguments(self, step: Step, callee: Program, lead: int) -> tuple[str, ...]:
        """The step's inputs without those that the callee takes from the ConstPool."""
        ports = callee.signature.inputs
        passed = len(step.inputs) - lead
        if passed == sum(not self._is_pooled(p) for p in ports) or passed != len(ports):
            return step.inputs
        kept = [i for i, p in zip(step.inputs[lead:], ports) if not self._is_pooled(p)]
        return (*step.inputs[:lead], *kept)

    def _is_pooled(self, port: Input) -> bool:
        return port.storage == "const_pool" and port.tensor in self.pool

    def _complete(self, step: Step, sizes: dict[str, Expr], callee: Program, arguments: tuple[str, ...]) -> None:
        """Decide the callee's size symbols from the shapes of its arguments, unless the step does."""
        given = {*step.sizes, *_varying(step)}
        ports = [p for p in callee.signature.inputs if not self._is_pooled(p)]
        for port, name in zip(ports, arguments):
            if name not in self.buffers or len(self.buffers[name].shape) != len(port.shape):
                continue
            for size, actual in zip(port.shape, self.buffers[name].shape):
                symbol = size.as_name()
                if symbol is None or symbol in given:
                    continue
                if sizes.setdefault(symbol, actual) != actual and not self._same_callee_symbol(callee, symbol, sizes):
                    raise fail(
                        "AxisAlignmentMismatch",
                        step.name,
                        f"a size of the called program is both {sizes[symbol]} and {actual}",
                        "pass arguments whose sizes agree",
                    )
        mine = set(symbols(self.program.signature))
        for symbol in symbols(callee.signature):
            if symbol in given:
                continue
            if symbol not in sizes and symbol in mine:
                sizes[symbol] = var(symbol)
            elif symbol not in sizes and symbol in callee.signature.defaults:
                sizes[symbol] = expr(callee.signature.defaults[symbol])

    def _same_callee_symbol(self, callee: Program, symbol: str, sizes: dict[str, Expr]) -> bool:
        """True if two values of the symbol may be equal: with symbols they are assumed so, and checked at run time."""
        return bool(free_vars(sizes[symbol]))


def _carried(step: Step) -> int:
    value = step.attrs.get("carried", len(step.inputs) - 2)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= len(step.outputs):
        raise fail("InvalidExecution", step.name, f"a loop that carries {value!r} values", "give the number of carried values")
    return value


def _varying(step: Step) -> tuple[str, ...]:
    value = step.attrs.get("varying", [])
    if not isinstance(value, list) or not all(isinstance(s, str) for s in value):
        raise fail("InvalidExecution", step.name, f"a loop whose varying sizes are {value!r}", "give a list of size symbols")
    return tuple(map(str, value))


def size_of(buffer: ir.BufferInfo) -> Expr:
    """The bytes of a buffer's elements."""
    return buffer.elements * buffer.dtype.itemsize
