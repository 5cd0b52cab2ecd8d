"""The plan of a graph without a compiler: an instruction per node in an order that runs (spec 4 §3).

plan = tt.ExecutionPlan.from_graph(g)
plan.instructions, plan.buffers, plan.input_buffers, plan.output_buffers
plan.run({"x": array})["y"]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tatami.core.module import Module
from tatami.execution import ir
from tatami.execution.from_graph import from_graph
from tatami.execution.run import Array, run
from tatami.execution.show import show

if TYPE_CHECKING:
    from tatami.frontend.graph import Graph


class ExecutionPlan:
    """Instructions, buffers, input_buffers and output_buffers of a graph's main program. It owns its operations: later changes
    of the graph do not reach it."""

    def __init__(self, module: Module[ir.ExecutionPlan]) -> None:
        self.module = module

    @classmethod
    def from_graph(cls, graph: Graph) -> ExecutionPlan:
        """The nodes of a graph in topological order, an instruction each; inputs have buffers and no instruction. Raises
        UnknownValue and CyclicGraph for nodes that do not form a graph."""
        return cls(from_graph(graph.module()))

    @property
    def instructions(self) -> tuple[ir.Instruction, ...]:
        """The instructions in the order in which they run."""
        return self.module.main.instructions

    @property
    def buffers(self) -> tuple[ir.BufferInfo, ...]:
        """The buffers with their ids, shapes and dtypes."""
        return self.module.main.buffers

    @property
    def input_buffers(self) -> tuple[str, ...]:
        """Ids of the inputs' buffers, in the order of the signature."""
        return self.module.main.input_buffers

    @property
    def output_buffers(self) -> tuple[str, ...]:
        """Ids of the outputs' buffers, in the order of the signature."""
        return self.module.main.output_buffers

    def run(self, inputs: Mapping[str, Array], sizes: Mapping[str, int] | None = None) -> dict[str, Array]:
        """The outputs by name, computed by numpy in the graph's dtypes. `sizes`: values of symbols that no input decides."""
        return run(self.module, dict(inputs), dict(sizes or {}))

    def __str__(self) -> str:
        return show(self.module)
