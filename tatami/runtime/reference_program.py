"""The reference as a loaded program: numpy runs the plan, or the document of a stage that computes (target `reference`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

import numpy as np

from tatami.core.algebra.visit import evaluate, free_vars
from tatami.core.diagnostic import fail
from tatami.core.expr import product
from tatami.core.module import Module
from tatami.core.signature import Input, Output, Signature, symbols
from tatami.core.sizes.binding import bind_sizes
from tatami.execution.ir import BufferInfo, ExecutionPlan
from tatami.execution.run import Machine
from tatami.region.ir import Program
from tatami.runtime.loaded import LoadedModule
from tatami.runtime.memory import Memory

Array: TypeAlias = np.ndarray


class _Signed(Protocol):
    """A program with a signature."""

    @property
    def signature(self) -> Signature: ...


class _Machine(Protocol):
    """Runs the programs of one module."""

    def program(self, name: str, arguments: Sequence[Array], sizes: Mapping[str, int]) -> list[Array]: ...


class ReferenceProgram(LoadedModule):
    """A plan run by numpy. `regions`: the region module of a lowered plan; a plan of `from_graph` needs none."""

    def __init__(
        self, execution: Module[ExecutionPlan], regions: Module[Program] | None = None, machine: _Machine | None = None
    ) -> None:
        super().__init__(execution)
        self.machine: _Machine = machine or Machine(execution, regions)

    def run(
        self, program: str, inputs: Sequence[Array], sizes: Mapping[str, int], outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        """Run a program on arrays: `inputs` in the order of its interface, `outputs` by signature (None: allocated). Raises
        TatamiError."""
        plan = self.execution.programs[program]
        kinds = {b.id: b.kind for b in plan.buffers}
        ids = [i for i in plan.input_buffers if kinds[i] == "input"]
        try:
            results = self.machine.program(program, list(inputs), sizes)
        except MemoryError as error:
            raise fail("OutOfMemory", "memory", f"numpy: {error}", "use smaller sizes") from None
        arrays = dict(zip(ids, inputs))
        out: list[Array] = []
        for k, (id, made) in enumerate(zip(plan.output_buffers, results)):
            given = arrays.get(id, outputs[k] if k < len(outputs) else None)
            if given is None:
                out.append(np.asarray(made, order="C") if made.flags.writeable else np.array(made, order="C"))
            else:
                if given is not made:
                    np.copyto(given, made)
                out.append(given)
        return out

    def fast(
        self, program: str, inputs: Sequence[Array], sizes: Mapping[str, int], results: Sequence[Array]
    ) -> Callable[[], None]:
        """A call with fixed arrays, which runs and copies the results."""

        def call() -> None:
            self.run(program, inputs, sizes, results)

        return call

    def memory(self, sizes: Mapping[str, int]) -> Memory:
        """Bytes of constants and of the arena without reuse."""
        plan = self.execution.main
        arena = sum(evaluate(b.elements, sizes) * b.dtype.itemsize for b in plan.buffers if b.kind == "arena" and not b.parent)
        constants = sum(t.array.nbytes for t in self.execution.constants.values())
        return {"constants": constants, "arena_without_reuse": arena}


class StageProgram(ReferenceProgram):
    """A stage's document run by its meaning in numpy. `run`: the meaning, a function of the module, arrays by name, and sizes."""

    def __init__(self, module: Module[_Signed], run: Callable[..., dict[str, Array]]) -> None:
        execution = interface(module)
        super().__init__(execution, machine=_StageMachine(module, run, execution.main))

    def bind(
        self, program: str, shapes: Mapping[str, tuple[int, ...]], sizes: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """Size symbol of the program -> value; sizes of outputs that no input has are found by the run. Raises TatamiError."""
        signature = self.execution.programs[program].signature
        later = set(symbols(signature)) - {s for port in signature.inputs for size in port.shape for s in free_vars(size)}
        return bind_sizes(signature, {**self.constant_shapes, **shapes}, sizes, later - signature.defaults.keys())


class _StageMachine:
    def __init__(self, module: Module[_Signed], run: Callable[..., dict[str, Array]], plan: ExecutionPlan) -> None:
        self.module = module
        self.run = run
        self.signature = plan.signature
        kinds = {b.id: b.kind for b in plan.buffers}
        self.inputs = [p.tensor for id, p in zip(plan.input_buffers, plan.signature.inputs) if kinds[id] == "input"]

    def program(self, name: str, arguments: Sequence[Array], sizes: Mapping[str, int]) -> list[Array]:
        """The outputs of `main` by signature."""
        made = self.run(self.module, dict(zip(self.inputs, arguments, strict=True)), dict(sizes), mode="declared")
        return [made[o.tensor] for o in self.signature.outputs]


def interface(module: Module[_Signed]) -> Module[ExecutionPlan]:
    """The inputs and outputs of a stage's `main` as a plan without instructions."""
    signature = module.main.signature
    buffers: list[BufferInfo] = []

    def buffer(port: Input | Output, kind: Literal["input", "output", "constant"]) -> str:
        buffers.append(BufferInfo(f"b{len(buffers)}", port.dtype, port.shape, product(port.shape), kind))
        return buffers[-1].id

    place = {
        p.tensor: buffer(p, "constant" if p.storage == "const_pool" and p.tensor in module.constants else "input")
        for p in signature.inputs
    }
    outputs = tuple(place[o.updates] if o.updates else buffer(o, "output") for o in signature.outputs)
    inputs = tuple(place[p.tensor] for p in signature.inputs)
    return Module({"main": ExecutionPlan(signature, (), tuple(buffers), inputs, outputs)}, module.constants)
