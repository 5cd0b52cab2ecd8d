"""The meaning of frontend operations, in numpy and from their definitions: the reference that lowered stages are compared with.

`declared` mode rounds each operation's result to its declared dtype (compound operations compute in double precision
and round once); `float64` keeps floats in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tatami.core.algebra.visit import free_vars
from tatami.core.dtype import DType
from tatami.core.faults.call_depth import most_calls, too_deep
from tatami.core.module import Module
from tatami.core.numbers.numerics import Array, Mode, cast
from tatami.core.numbers.run_programs import Observe, checked_inputs, known_sizes, loop_results, turn_while
from tatami.core.sizes.binding import bind_sizes, check_new_sizes
from tatami.frontend.ir import Graph, Node, TensorType
from tatami.frontend.meaning.collectives import COLLECTIVE
from tatami.frontend.meaning.contraction import CONTRACTION
from tatami.frontend.meaning.creation import CREATION
from tatami.frontend.meaning.elementwise import ELEMENTWISE
from tatami.frontend.meaning.indexing import INDEXING
from tatami.frontend.meaning.kernel import KERNEL
from tatami.frontend.meaning.movement import MOVEMENT
from tatami.frontend.meaning.recurrent import RECURRENT
from tatami.frontend.meaning.reduction import REDUCTION
from tatami.frontend.meaning.scope import Scope
from tatami.frontend.meaning.trees import TREES
from tatami.frontend.operation import attributes
from tatami.frontend.operations.control import CALLEES, Loop, call_inputs
from tatami.frontend.operations.result_sizes import found_symbols
from tatami.frontend.ops import operation

Meaning: TypeAlias = Callable[[Scope, Any], "Array | tuple[Array, ...]"]
MEANING: dict[str, Meaning] = {
    **ELEMENTWISE,
    **MOVEMENT,
    **CONTRACTION,
    **REDUCTION,
    **CREATION,
    **INDEXING,
    **RECURRENT,
    **TREES,
    **KERNEL,
    **COLLECTIVE,
}
"""Operation -> its numpy meaning, a function of operands and attributes."""


def run(
    module: Module[Graph],
    inputs: Mapping[str, Array],
    sizes: Mapping[str, int] | None = None,
    mode: Mode = "declared",
    observe: Observe | None = None,
) -> dict[str, Array]:
    """The outputs of `main` by name. `sizes`: values of symbols that no input decides; `observe(program, tensor, array)` is
    called for every value. Raises TatamiError."""
    main = module.main
    passed = [p for p in main.signature.inputs if p.storage != "const_pool" or p.tensor not in module.constants]
    given = {p.tensor: a for p, a in zip(passed, checked_inputs(passed, inputs, mode), strict=True)}
    return _Machine(module, mode, observe).graph("main", given, sizes or {}, 0)


def _without_counted(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int]:
    """`sizes` without the symbols that nodes of the graph find: their values are results."""
    counted = found_symbols(graph)
    return {name: value for name, value in sizes.items() if name not in counted}


def run_operation(
    node: Node,
    args: Sequence[Array | None],
    types: Sequence[TensorType],
    sizes: Mapping[str, int],
    mode: Mode = "declared",
    dtypes: Sequence[DType] = (),
) -> list[Array]:
    """The results of one operation that calls no graph. `types`: its declared results; `dtypes`: those of its operands."""
    scope = Scope(node.name, args, types, sizes, mode, dtypes)
    scope.check_memory()
    out = MEANING[node.op](scope, attributes(operation(node), node))
    results = out if isinstance(out, tuple) else (out,)
    return [scope.checked(r, t) for r, t in zip(results, types, strict=True)]


def _calls_of(module: Module[Graph]) -> dict[str, list[str]]:
    """Graph -> the graphs that it may call."""
    return {name: [n.attrs[k] for n in g.graph for k in CALLEES.get(n.op, ())] for name, g in module.programs.items()}


class _Machine:
    def __init__(self, module: Module[Graph], mode: Mode, observe: Observe | None) -> None:
        self.module = module
        self.mode = mode
        self.observe = observe

    def graph(self, name: str, given: Mapping[str, Array], sizes: Mapping[str, int], depth: int) -> dict[str, Array]:
        """The outputs of one graph on named operands; a value is dropped after its last use."""
        if depth > most_calls():
            raise too_deep(_calls_of(self.module), name, name)
        graph = self.module.programs[name]
        values: dict[str, Array] = {}
        for port in graph.signature.inputs:
            raw = given[port.tensor] if port.tensor in given else self.module.constants[port.tensor].array
            values[port.tensor] = cast(raw, port.dtype, self.mode)
        later = {n for node in graph.graph for t in node.outputs for s in graph.tensors[t].shape for n in free_vars(s)}
        later -= {n for port in graph.signature.inputs for s in port.shape for n in free_vars(s)}
        bound = bind_sizes(graph.signature, {k: v.shape for k, v in values.items()}, _without_counted(graph, sizes), later)
        last: dict[str, int] = {}
        for position, node in enumerate(graph.graph):
            for i in node.inputs:
                last[i] = position
        for out in graph.signature.outputs:
            last[out.tensor] = len(graph.graph)
        for position, node in enumerate(graph.graph):
            args = [values[i] if i else None for i in node.inputs]
            types = [graph.tensors[o] for o in node.outputs]
            results = self.node(graph, node, args, bound, depth)
            for output, value, type in zip(node.outputs, results, types, strict=True):
                values[output] = cast(value, type.dtype, self.mode)
                check_new_sizes(graph.signature, self._bind(type, values[output], bound), bound)
                if self.observe is not None:
                    self.observe(name, output, values[output])
            for i in node.inputs:
                if last[i] == position:
                    values.pop(i, None)
        return {o.tensor: values[o.tensor] for o in graph.signature.outputs}

    def _bind(self, type: TensorType, value: Array, bound: dict[str, int]) -> list[str]:
        """The symbols that get their value from `value`: sizes that a node decides, from the first result that has them."""
        new: list[str] = []
        for size, actual in zip(type.shape, value.shape, strict=True):
            symbol = size.as_name()
            if symbol is not None and symbol not in bound:
                bound[symbol] = actual
                new.append(symbol)
        return new

    def node(self, graph: Graph, node: Node, args: list[Array | None], sizes: dict[str, int], depth: int) -> Sequence[Array]:
        types = [graph.tensors[o] for o in node.outputs]
        attrs = attributes(operation(node), node)
        match node.op:
            case "call":
                return self.call(attrs.graph, args, known_sizes(attrs.sizes, sizes), depth)
            case "if":
                condition = args[0]
                assert condition is not None
                return self.call(attrs.then if bool(condition) else attrs.otherwise, args[1:], {}, depth)
            case "loop":
                return self.loop(attrs, args, types, sizes, depth)
            case _:
                dtypes = [graph.tensors[i].dtype for i in node.inputs if i]
                return run_operation(node, args, types, sizes, self.mode, dtypes)

    def call(self, name: str, args: Sequence[Array | None], sizes: Mapping[str, int], depth: int) -> list[Array]:
        ports = call_inputs(self.module.programs[name], self.module.constants)
        given = {p.tensor: a for p, a in zip(ports, args, strict=True) if a is not None}
        return list(self.graph(name, given, sizes, depth + 1).values())

    def loop(
        self, attrs: Loop, args: list[Array | None], types: Sequence[TensorType], sizes: dict[str, int], depth: int
    ) -> list[Array]:
        trip, condition, *rest = args
        invariants = rest[attrs.carried :]

        def turn(iteration: int, go: bool, state: Sequence[Array | None]) -> list[Array]:
            lead = np.asarray(iteration, np.int64), np.asarray(go)
            return self.call(attrs.body, [*lead, *state, *invariants], {}, depth)

        count = None if trip is None else int(trip)
        go = condition is None or bool(condition)
        state = [s for s in rest[: attrs.carried] if s is not None]
        turns = turn_while(count, go, state, len(types) - attrs.carried, turn)
        return loop_results(turns, types, {*attrs.new, *(() if attrs.size is None else (attrs.size,))}, sizes, self.mode)
