"""The reference as a loaded program: numpy runs the plan (target `reference`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from tatami.core.algebra.visit import evaluate
from tatami.core.diagnostic import fail
from tatami.core.module import Module
from tatami.execution.ir import ExecutionPlan
from tatami.execution.run import Machine
from tatami.region.ir import Program
from tatami.runtime.loaded import LoadedModule
from tatami.runtime.memory import Memory

Array: TypeAlias = np.ndarray


class ReferenceProgram(LoadedModule):
    """A plan run by numpy. `regions`: the region module of a lowered plan; a plan of `from_graph` needs none."""

    def __init__(self, execution: Module[ExecutionPlan], regions: Module[Program] | None = None) -> None:
        super().__init__(execution)
        self.machine = Machine(execution, regions)

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
