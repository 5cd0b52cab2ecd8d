"""The meaning of a plan, in numpy: its instructions one after another (target `reference`).

An Op is a frontend operation, run by `frontend.run`; a Launch is the Region of its instruction's name, run by
`region.run`. Buffers hold logical arrays; layouts have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, assert_never

import numpy as np

from tatami.core.algebra.visit import evaluate
from tatami.core.diagnostic import fail
from tatami.core.expr import Expr
from tatami.core.faults.call_depth import most_calls, too_deep
from tatami.core.faults.size_fault import negative_size
from tatami.core.module import Module
from tatami.core.numbers.numerics import Mode, cast, storage_dtype
from tatami.core.numbers.run_programs import Observe, known_sizes, loop_results, turn_while
from tatami.core.sizes.binding import bind_sizes, check_new_sizes
from tatami.execution.frames import calls_of
from tatami.execution.ir import (
    BufferInfo,
    Call,
    Choose,
    Copy,
    ExecutionPlan,
    Extent,
    Host,
    If,
    Instruction,
    Launch,
    Loop,
    Op,
)
from tatami.execution.waves import operation_symbols, order
from tatami.region.ir import Program, Region

Array: TypeAlias = np.ndarray


def run(
    module: Module[ExecutionPlan],
    inputs: Mapping[str, Array],
    sizes: Mapping[str, int] | None = None,
    mode: Mode = "declared",
    observe: Observe | None = None,
    regions: Module[Program] | None = None,
) -> dict[str, Array]:
    """The outputs of `main` by tensor name; the arrays in `inputs` are not changed. `regions`: the Regions of launches. Raises
    TatamiError."""
    machine = Machine(module, regions, mode, observe)
    plan = module.main
    kinds = {b.id: b.kind for b in plan.buffers}
    arguments: list[Array] = []
    shapes: dict[str, tuple[int, ...]] = {}
    for id, port in zip(plan.input_buffers, plan.signature.inputs):
        if kinds[id] == "constant":
            continue
        if port.tensor not in inputs:
            raise fail("InputMismatch", port.tensor, "the input is missing", f"pass {port.tensor}")
        array = cast(np.asarray(inputs[port.tensor]), port.dtype, mode)
        arguments.append(array.copy() if port.mutability == "mutable" else array)
        shapes[port.tensor] = array.shape
    later = {s for i in plan.instructions for s in operation_symbols(i.op)}
    bound = bind_sizes(plan.signature, {**{n: a.shape for n, a in machine.constants.items()}, **shapes}, sizes, later)
    results = machine.program("main", arguments, bound)
    return {port.tensor: value for port, value in zip(plan.signature.outputs, results)}


class Machine:
    """An interpreter of the programs of one module."""

    def __init__(
        self,
        module: Module[ExecutionPlan],
        regions: Module[Program] | None = None,
        mode: Mode = "declared",
        observe: Observe | None = None,
    ) -> None:
        self.plans = {name: order(plan) for name, plan in module.programs.items()}
        self.mode = mode
        self.observe = observe
        self.regions: dict[str, dict[str, Region]] = {}
        if regions is not None:
            for name, program in regions.programs.items():
                self.regions[name] = {r.name: r for r in program.body if isinstance(r, Region)}
        self.constants: dict[str, Array] = {n: cast(t.array, t.dtype, mode) for n, t in module.constants.items()}
        if "setup" in self.plans:
            setup = self.plans["setup"]
            bound = bind_sizes(setup.signature, {p.tensor: self.constants[p.tensor].shape for p in setup.signature.inputs})
            results = self.program("setup", [], bound)
            self.constants |= {p.tensor: r for p, r in zip(setup.signature.outputs, results)}

    def program(self, name: str, arguments: Sequence[Array], sizes: Mapping[str, int], depth: int = 0) -> list[Array]:
        """Outputs by signature. `arguments`: the inputs that are not constants; updated ones are written. Raises
        TatamiError."""
        if depth > most_calls():
            raise too_deep(calls_of(self.plans), name, name)
        return _Run(self, name, arguments, dict(sizes), depth).outputs()


class _Run:
    def __init__(
        self,
        machine: Machine,
        name: str,
        arguments: Sequence[Array],
        sizes: dict[str, int],
        depth: int,
    ) -> None:
        self.machine = machine
        self.name = name
        self.plan = plan = machine.plans[name]
        self.sizes = sizes
        self.depth = depth
        self.info = {b.id: b for b in plan.buffers}
        self.values: dict[str, Array] = {}
        given = iter(arguments)
        for id, port in zip(plan.input_buffers, plan.signature.inputs):
            self.values[id] = machine.constants[port.tensor] if self.info[id].kind == "constant" else next(given)
        self.last: dict[str, int] = {}
        for i, ins in enumerate(plan.instructions):
            for id in (*ins.inputs, *ins.outputs):
                while id:
                    self.last[id] = i
                    id = self.info[id].parent

    def outputs(self) -> list[Array]:
        for i, ins in enumerate(self.plan.instructions):
            inputs = [self.read(id) if id else None for id in ins.inputs]
            results = self.instruction(ins, inputs)
            for id, value in zip(ins.outputs, results):
                self.bind(operation_symbols(ins.op), self.info[id], value)
                self.write(id, value)
                if self.machine.observe is not None:
                    self.machine.observe(self.name, id, self.read(id))
            check_new_sizes(self.plan.signature, operation_symbols(ins.op), self.sizes)
            for id in {*ins.inputs, *ins.outputs}:
                if id and self.last[id] == i and self.info[id].kind == "arena":
                    self.values.pop(id, None)
        return [self.read(id) for id in self.plan.output_buffers]

    # -- buffers ---------------------------------------------------------------------------------

    def shape(self, b: BufferInfo) -> tuple[int, ...]:
        return tuple(max(0, int(evaluate(s, self.sizes))) for s in b.shape)

    def slice_of(self, b: BufferInfo) -> Array:
        whole = self.read(b.parent).reshape(-1)
        start = 0 if b.offset is None else int(evaluate(b.offset, self.sizes))
        return whole[start : start + int(evaluate(b.elements, self.sizes))].reshape(self.shape(b))

    def read(self, id: str) -> Array:
        b = self.info[id]
        if id in self.values:
            return self.values[id]
        if b.parent:
            return self.slice_of(b)
        self.values[id] = np.empty(self.shape(b), storage_dtype(b.dtype, self.machine.mode))
        return self.values[id]

    def write(self, id: str, value: Array) -> None:
        b = self.info[id]
        value = cast(np.asarray(value), b.dtype, self.machine.mode)
        if b.parent:
            np.copyto(self.slice_of(b), value)
        elif b.kind == "input":
            np.copyto(self.values[id], value)
        else:
            if value.shape != self.shape(b):
                raise fail(
                    "AxisAlignmentMismatch",
                    f"{self.name}: {id}",
                    f"the value has shape {list(value.shape)}, the buffer {list(self.shape(b))}",
                    "bind sizes that agree",
                )
            self.values[id] = value

    def bind(self, new: Sequence[str], b: BufferInfo, value: Array) -> None:
        for size, actual in zip(b.shape, np.shape(value)):
            symbol = size.as_name()
            if symbol is not None and symbol in new and symbol not in self.sizes:
                self.sizes[symbol] = actual

    # -- instructions ----------------------------------------------------------------------------

    def instruction(self, ins: Instruction, inputs: list[Array | None]) -> Sequence[Array]:
        match ins.op:
            case Op():
                return self.operation(ins, ins.op, inputs)
            case Launch() | Choose():
                return self.region(ins)
            case Copy():
                return [np.array(inputs[0])]
            case Call(program=program):
                return self.call(program, ins.op.sizes, inputs)
            case If(then=then, otherwise=otherwise):
                return self.call(then if bool(inputs[0]) else otherwise, ins.op.sizes, inputs[1:])
            case Loop():
                return self.loop(ins, ins.op, inputs)
            case Host(routine=routine, attrs=attrs):
                from tatami.tiny.run import ROUTINES  # type: ignore[attr-defined]

                if routine not in ROUTINES:
                    raise fail("UnknownOp", ins.debug_name, f"there is no host routine {routine!r}", "register it")
                return list(ROUTINES[routine]([x for x in inputs if x is not None], attrs))
            case Extent(new_symbols=new):
                values = [int(x) for x in inputs if x is not None]
                for symbol, value in zip(new, values, strict=True):
                    if value < 0:
                        raise fail("HostFault", ins.debug_name, *negative_size(value))
                    self.sizes[symbol] = value
                return []
            case _:
                assert_never(ins.op)

    def operation(self, ins: Instruction, op: Op, inputs: list[Array | None]) -> Sequence[Array]:
        from tatami.frontend.ir import Node, TensorType
        from tatami.frontend.run import run_operation

        node = Node(op.name, ins.debug_name, ins.inputs, ins.outputs, op.attrs)
        types = [TensorType(self.info[id].dtype, self.info[id].shape) for id in ins.outputs]
        dtypes = [self.info[id].dtype for id in ins.inputs if id]
        results: Sequence[Array] = run_operation(node, inputs, types, self.sizes, self.machine.mode, dtypes)
        return results

    def region(self, ins: Instruction) -> Sequence[Array]:
        from tatami.region.run import run_region

        region = self.machine.regions.get(self.name, {}).get(ins.debug_name)
        if region is None:
            raise fail(
                "InvalidExecution",
                ins.debug_name or "instruction",
                "a compiled kernel has no meaning here without its Region",
                "give the `region` document too",
            )
        tensors = {p.name: self.read(p.name) for p in region.inputs}
        tensors |= {t.updates: self.read(t.updates) for t in region.outputs if t.updates}
        made = run_region(region, tensors, self.sizes, self.machine.mode, self.machine.observe)
        return [made[id] for id in ins.outputs if id in made]

    def call(self, program: str, sizes: Mapping[str, Expr], arguments: Sequence[Array | None]) -> list[Array]:
        plan = self.machine.plans[program]
        kinds = {b.id: b.kind for b in plan.buffers}
        ports = [p for id, p in zip(plan.input_buffers, plan.signature.inputs) if kinds[id] != "constant"]
        present = [a for a in arguments if a is not None]
        later = {s for i in plan.instructions for s in operation_symbols(i.op)}
        shapes = {p.tensor: a.shape for p, a in zip(ports, present)}
        bound = bind_sizes(plan.signature, shapes, known_sizes(sizes, self.sizes), later)
        return self.machine.program(program, present, bound, self.depth + 1)

    def loop(self, ins: Instruction, op: Loop, inputs: list[Array | None]) -> list[Array]:
        trip = None if inputs[0] is None else int(inputs[0])
        keep = inputs[1] is None or bool(inputs[1])
        captured = inputs[2 + op.carried :]
        body = self.machine.plans[op.body]
        kinds = {b.id: b.kind for b in body.buffers}
        takes_condition = sum(kinds[i] != "constant" for i in body.input_buffers) == len(ins.inputs)

        def turn(iteration: int, keep: bool, state: Sequence[Array]) -> list[Array]:
            lead = [np.asarray(iteration, np.int64), *([np.asarray(keep)] if takes_condition else [])]
            return self.call(op.body, op.sizes, [*lead, *state, *captured])

        state = [x for x in inputs[2 : 2 + op.carried] if x is not None]
        turns = turn_while(trip, keep, state, op.scanned, turn)
        results = loop_results(turns, [self.info[id] for id in ins.outputs], op.new_symbols, self.sizes, self.machine.mode)
        return [*(np.array(x) for x in results[: op.carried]), *results[op.carried :]]
