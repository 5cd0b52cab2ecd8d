"""The part that loaded programs share on every machine: their sizes from the shapes of a call, and names of their steps for a
reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tatami.core.module import Module
from tatami.core.sizes.binding import bind_sizes
from tatami.core.sizes.quick_binding import QuickBinding
from tatami.execution.ir import ExecutionPlan
from tatami.execution.waves import operation_symbols

Where: TypeAlias = Callable[[str, str], str]
"""(program, debug name) -> the part of the model that it computes, in words for a reader."""


class LoadedModule:
    """An execution module that is loaded. `constant_shapes`: shapes of the module's constants, to which a program adds results
    of its `setup`."""

    def __init__(self, execution: Module[ExecutionPlan], where: Where | None = None) -> None:
        self.execution = execution
        self.constant_shapes: dict[str, tuple[int, ...]] = {n: t.shape for n, t in execution.constants.items()}
        self._quick: dict[str, QuickBinding] = {}
        self.where: Where = where or (lambda program, name: name)

    def bind(
        self, program: str, shapes: Mapping[str, tuple[int, ...]], sizes: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """Size symbol of the program -> value, from the shapes of its inputs. Raises E1304, UnboundSymbol, InputMismatch."""
        quick = self._quick.get(program)
        if quick is None:
            plan = self.execution.programs[program]
            later = {s for ins in plan.instructions for s in operation_symbols(ins.op)}
            quick = self._quick[program] = QuickBinding(plan.signature, later)
        found = quick.bind(shapes, self.constant_shapes, sizes)
        if found is not None:
            return found
        plan = self.execution.programs[program]
        later = {s for ins in plan.instructions for s in operation_symbols(ins.op)}
        return bind_sizes(plan.signature, {**self.constant_shapes, **shapes}, sizes, later)

    def step_name(self, program: str, debug_name: str) -> str:
        """The name of a step in words for a reader."""
        return self.where(program, debug_name)
