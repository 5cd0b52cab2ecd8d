"""The Graph API: build a module in Python.

>>> from tatami.core.dtype import DType
>>> g = Graph("mlp")
>>> x = g.input("x", ("B", 4), DType.fp32)
>>> w = g.input("w", (4, 2), DType.fp32, role="param")
>>> g.output("y", (x @ w).relu())
>>> [n.op for n in g.module().main.graph]
['matmul', 'relu']

Shapes and dtypes are inferred as nodes are added, faults raise at once and name the Python line. A number in an
expression becomes a rank-0 constant of the other operand's dtype.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, IntoExpr, expr, shape_text, var
from tatami.core.faults.arguments import text_argument
from tatami.core.module import Module
from tatami.core.signature import Equation, Input, Mutability, Output, Role, Signature, Storage, port_fault
from tatami.core.tensor import Tensor as Payload
from tatami.frontend import ir
from tatami.frontend.graph_api.arguments import constant, integer
from tatami.frontend.graph_api.arguments import dtype as dtype_named
from tatami.frontend.graph_api.arguments import name as named
from tatami.frontend.graph_api.arguments import size as size_expr
from tatami.frontend.graph_api.nodes import Nodes
from tatami.frontend.graph_api.place import caller
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.graph_api.tensor import tensors as listed
from tatami.frontend.operations.result_sizes import found_symbols
from tatami.frontend.operations.size_conditions import with_conditions

if TYPE_CHECKING:
    import numpy as np


class Graph(Nodes):
    """A graph under construction; subgraphs made by `subgraph` share its module."""

    def __init__(self, name: str = "main", parent: Graph | None = None) -> None:
        super().__init__(text_argument(name, "name"))
        self.root: Graph = parent.root if parent else self
        self._inputs: list[Input] = []
        self._output_names: dict[str, str] = {}
        self._updates: dict[str, str | None] = {}
        self._promised: dict[str, ir.TensorType] = {}
        """Results that are declared before they are made, so that other graphs, and this one, can call the graph."""
        self._assumptions: list[Equation] = []
        self._defaults: dict[str, int] = {}
        if parent is None:
            self._graphs: dict[str, Graph] = {}
            self._constants: dict[str, Payload] = {}

    # -- signature ---------------------------------------------------------------------------------
    def input(
        self,
        name: str,
        shape: Sequence[IntoExpr],
        dtype: DType,
        *,
        role: Role = "data",
        mutability: Mutability = "immutable",
        storage: Storage = "argument",
        alignment: int = 0,
    ) -> Tensor:
        """Add an input; sizes are numbers, symbols ("B") or expressions ("2*N + 1"). An argument whose address is not
        a multiple of `alignment` bytes is copied to one that is. Raises E1305, E1503 for an alignment, E1603 for a used name."""
        where = caller()
        dtype = dtype_named(dtype, where)
        self._claim(name, where)
        self._inputs.append(Input(name, dtype, self._shape(shape, f"input {name!r} ({where})"), role, mutability, storage))
        if alignment:
            self._inputs[-1] = msgspec.structs.replace(self._inputs[-1], alignment=alignment)
            if why := port_fault(self._inputs[-1]):
                raise fail("LayoutMismatch", where, why, "leave it out, or give a power of two")
        self.origins[name] = (where,)
        return self._define(name, ir.TensorType(dtype, self._inputs[-1].shape))

    def constant(
        self, array: np.ndarray | float | Sequence[object] | Payload, name: str | None = None, *, role: Role = "const"
    ) -> Tensor:
        """Add a constant tensor, kept in the module's constants and bound to a const_pool input."""
        where = caller()
        try:
            payload = array if isinstance(array, Payload) else Payload(_as_array(array))
        except (ValueError, TypeError, OverflowError) as error:
            raise fail("UnsupportedDType", where, str(error), "convert the array to a supported dtype") from None
        name = self._fresh("constant" if name is None else named(name, where), self.root._constants)
        self._names.add(name)
        self.root._constants[name] = payload
        shape = tuple(expr(s) for s in payload.shape)
        self._inputs.append(Input(name, payload.dtype, shape, role, "immutable", "const_pool"))
        self.origins[name] = (where,)
        return self._define(name, ir.TensorType(payload.dtype, shape))

    def number(self, value: bool | int | float, dtype: DType = DType.unknown) -> Tensor:
        """A rank-0 constant; with dtype `unknown` it takes the dtype of the operand it meets."""
        return self.one("constant", value=constant(value, "number"), dtype=dtype)

    def output(self, name: str, tensor: Tensor) -> None:
        """Name a result. One tensor may have several names."""
        self._put_output(name, tensor, None)

    def promise(self, name: str, shape: Sequence[IntoExpr], dtype: DType) -> None:
        """Declare a result that `output` will name later. A graph all of whose results are promised can be called before it is
        made, by a branch of its own too."""
        where = caller()
        self._promised[named(name, where)] = ir.TensorType(dtype_named(dtype, where), self._shape(shape, f"result {name!r}"))

    def update(self, target: Tensor, value: Tensor) -> None:
        """Let the mutable input `target` take `value` in place, after all its reads; at most once per input."""
        where = caller()
        port = next((i for i in self._inputs if i.tensor == self._own(target, where).name), None)
        if port is None or port.mutability != "mutable":
            raise fail(
                "InvalidAttribute", where, f"{target.name!r} is not a mutable input", 'declare it with mutability="mutable"'
            )
        if f"{target.name}.updated" in self._updates:
            raise fail(
                "DuplicateId",
                where,
                f"{target.name!r} is updated already",
                "compute the value of both steps first, and update once",
            )
        self._put_output(f"{target.name}.updated", value, target.name)

    def size(self, symbol: str, default: int) -> None:
        """Give a size symbol that no input decides its default value."""
        self._symbol(named(symbol, caller()), caller())
        self._defaults[symbol] = integer(default, f"size {symbol}")

    def assume(self, lhs: IntoExpr, rhs: IntoExpr) -> None:
        """Record that two sizes are equal, to be checked when sizes are bound."""
        self._assumptions.append(Equation(size_expr(lhs, "assume"), size_expr(rhs, "assume"), caller()))

    # -- other graphs ------------------------------------------------------------------------------
    def subgraph(self, name: str) -> Graph:
        """A graph of the same module that can be called by name."""
        if named(name, caller()) == "main" or name in self.root._graphs:
            raise fail("DuplicateId", caller(), f"a graph {name!r} exists", "choose another name")
        self.root._graphs[name] = Graph(name, self)
        return self.root._graphs[name]

    def call(self, graph: Graph | str, *operands: Tensor, sizes: Mapping[str, IntoExpr] | None = None) -> Any:
        """The results of a graph made by `subgraph`. `sizes`: values of its symbols that no operand decides."""
        given = {} if sizes is None else sizes
        if not isinstance(given, Mapping):
            raise fail("InvalidAttribute", caller(), f"sizes are {given!r}", 'give a mapping: {"N": 4}')
        values = {named(k, "call"): size_expr(v, "call") for k, v in given.items()}
        new = self._found_sizes(_graph_name(graph))
        return self.op("call", *operands, graph=_graph_name(graph), sizes=values, new=new)

    def _found_sizes(self, graph: str) -> tuple[str, ...]:
        """A name for each size of a graph's results that nodes of that graph find."""
        if graph not in self.root._graphs:
            return ()
        callee = self.root._graphs[graph].graph()
        found = found_symbols(callee)
        open_ = dict.fromkeys(s for o in callee.signature.outputs for s in o.shape if not found.isdisjoint(free_vars(s)))
        return tuple(self.fresh_size() for _ in open_)

    def cond(
        self, condition: Tensor, then: Graph | str, otherwise: Graph | str, *operands: Tensor, new: Sequence[str] = ()
    ) -> Any:
        """Results of `then` or `otherwise`, called with the same operands. `new`: symbols for result sizes that differ between
        them."""
        names = _symbols(new, "cond")
        return self.op("if", condition, *operands, then=_graph_name(then), otherwise=_graph_name(otherwise), new=names)

    def loop(
        self,
        body: Graph | str,
        state: Sequence[Tensor],
        invariants: Sequence[Tensor] = (),
        *,
        trip: IntoExpr | Tensor | None = None,
        condition: Tensor | None = None,
        new: Sequence[str] = (),
    ) -> Any:
        """The results of `body`, called repeatedly; see the `loop` operation. `trip`: a size, or a rank-0 i64 tensor. `new`:
        symbols for sizes of the last state that the body changes, and for sizes of scan outputs that it finds."""
        state, invariants = listed(state, "loop"), listed(invariants, "loop")
        size = None if trip is None or condition is not None or isinstance(trip, Tensor) else size_expr(trip, "loop")
        count = trip if isinstance(trip, Tensor) or trip is None else self.size_of(trip)
        name = _graph_name(body)
        scans = name in self.root._graphs and len(self.root._graphs[name]._updates) > 1 + len(state)
        symbol = self.fresh_size("T") if scans and size is None else None
        carried = len(state)
        names = _symbols(new, "loop")
        attrs: dict[str, Any] = {"body": name, "carried": carried, "trip": size, "size": symbol, "new": names}
        return self.op("loop", count, condition, *state, *invariants, **attrs)

    def sizes_of(self, *numbers: Tensor) -> tuple[Expr, ...]:
        """Integers of rank 0 as sizes that shapes may use; read together when the program runs, and never negative."""
        names = tuple(self.fresh_size("extent") for _ in numbers)
        self.op("extents", *numbers, new=names)
        return tuple(map(var, names))

    def fresh_size(self, stem: str = "S") -> str:
        """A size symbol that is unused in the module."""
        used = self.root.__dict__.setdefault("_fresh_sizes", set())
        taken = used | {
            n
            for g in (self.root, *self.root._graphs.values())
            for t in g._tensors.values()
            for s in t.shape
            for n in free_vars(s)
        }
        k = 0
        while f"{stem}_{k}" in taken:
            k += 1
        used.add(f"{stem}_{k}")
        return f"{stem}_{k}"

    # -- result ------------------------------------------------------------------------------------
    def graph(self) -> ir.Graph:
        """The graph as immutable nodes, without them while promised results are not made. Raises E1010 while a dtype is
        unknown."""
        if not self._promised.keys() <= self._updates.keys():
            return self._announced()
        for name, type in self._tensors.items():
            if type.dtype == DType.unknown:
                where = self.origins.get(name, (name,))[0]
                raise fail(
                    "UnknownDType",
                    where,
                    f"nothing decides the dtype of {name!r}",
                    "give the number a dtype: g.number(v, dtype)",
                )
        to = self._renames()
        tensors = {to.get(name, name): type for name, type in self._tensors.items()}
        nodes = tuple(
            msgspec.structs.replace(
                n, inputs=tuple(to.get(i, i) for i in n.inputs), outputs=tuple(to.get(o, o) for o in n.outputs)
            )
            for n in self._nodes
        )
        outputs = tuple(Output(o, tensors[o].dtype, tensors[o].shape, u) for o, u in self._updates.items())
        signature = Signature(tuple(self._inputs), outputs, tuple(dict.fromkeys(self._assumptions)), dict(self._defaults))
        return with_conditions(ir.Graph(signature, tensors, nodes))

    def _announced(self) -> ir.Graph:
        """The graph as its callers see it: its inputs and its promised results."""
        types = {**{i.tensor: ir.TensorType(i.dtype, i.shape) for i in self._inputs}, **self._promised}
        outputs = tuple(Output(o, t.dtype, t.shape) for o, t in self._promised.items())
        return ir.Graph(Signature(tuple(self._inputs), outputs, defaults=dict(self._defaults)), types, ())

    def module(self) -> Module[ir.Graph]:
        """The whole module: this graph as `main`, the subgraphs, the constants, and the Python lines as origins. Raises E1602
        for a promised result that was not made."""
        root = self.root
        for g in (root, *root._graphs.values()):
            for name in g._promised.keys() - g._updates.keys():
                raise fail("UnknownValue", g.name, f"the promised result {name!r} is not made", f"call output({name!r}, …)")
        programs = {"main": root.graph(), **{name: g.graph() for name, g in root._graphs.items()}}
        origins = {"main": dict(root.origins), **{name: dict(g.origins) for name, g in root._graphs.items()}}
        return Module(programs, dict(root._constants), origins)

    def to_dot(self) -> str:
        """The module as DOT text, a cluster per subgraph."""
        from tatami.core.drawing.dot import dot
        from tatami.frontend.picture import picture

        return dot(picture(self.module()))

    def to_svg(self) -> str:
        """The module as an SVG document, which notebooks show for the graph."""
        from tatami.core.drawing.svg import svg
        from tatami.frontend.picture import picture

        return svg(picture(self.module()))

    def _repr_svg_(self) -> str:
        return self.to_svg()

    # -- inside ------------------------------------------------------------------------------------
    def _put_output(self, name: str, tensor: Tensor, updates: str | None) -> None:
        where = caller()
        self._own(tensor, where)
        if named(name, where) in self._updates or any(i.tensor == name for i in self._inputs):
            raise fail("DuplicateId", where, f"{name!r} is already an input or output", "choose another name")
        if tensor.name in {i.tensor for i in self._inputs} or tensor.name in self._output_names:
            tensor = self.op("identity", tensor, at=where)
        self._keep_promise(name, tensor, where)
        self._output_names[tensor.name] = name
        self._updates[name] = updates

    def _keep_promise(self, name: str, tensor: Tensor, where: str) -> None:
        """Check a result against its promise. Raises E1304, E1002."""
        wanted = self._promised.get(name)
        if wanted is None:
            if self._promised:
                raise fail(
                    "UnknownValue", where, f"{name!r} is not among the promised results", "promise every result, or none"
                )
            return
        if tensor.dtype != wanted.dtype:
            raise fail("DTypeMismatch", where, f"{name!r} is promised as {wanted.dtype}, it is {tensor.dtype}", "cast it")
        if tensor.shape != wanted.shape:
            why = f"{name!r} is promised with shape {shape_text(wanted.shape)}, it has {shape_text(tensor.shape)}"
            raise fail("AxisAlignmentMismatch", where, why, "reshape it, or promise its own shape")

    def _renames(self) -> dict[str, str]:
        """Tensor name during construction -> name in the finished graph: results are named like their outputs."""
        out = dict(self._output_names)
        for name in self._output_names.values():
            if name in self._tensors and name not in self._output_names:
                out[name] = self._fresh(name)
        return out

    def _payloads(self) -> Mapping[str, Payload]:
        return self.root._constants

    def _callees(self, node: ir.Node) -> Mapping[str, ir.Graph]:
        names = [v for v in (node.attrs.get(k) for k in ("graph", "then", "otherwise", "body")) if isinstance(v, str)]
        return {n: self.root._graphs[n].graph() for n in names if n in self.root._graphs}


def _symbols(names: Sequence[str], where: str) -> tuple[str, ...]:
    """Names that are legal for size symbols, as a tuple. Raises TatamiError for anything else."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise fail("InvalidAttribute", where, f"new sizes are called {names!r}", 'give a list of names: ["S"]')
    return tuple(named(name, where) for name in names)


def _graph_name(graph: Graph | str) -> str:
    if not isinstance(graph, Graph | str):
        raise fail("InvalidAttribute", caller(), f"{graph!r} is not a graph", "pass what g.subgraph gave, or its name")
    return graph if isinstance(graph, str) else graph.name


def _as_array(value: object) -> np.ndarray:
    from tatami.core.tensor import as_array

    return as_array(value)
