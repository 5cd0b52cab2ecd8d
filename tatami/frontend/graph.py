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

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tatami.core.algebra.size_forms import settled_size
from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, IntoExpr, expr, var
from tatami.core.faults.arguments import text_argument
from tatami.core.faults.size_fault import size_fault
from tatami.core.module import Module
from tatami.core.ops import highest, lowest
from tatami.core.scalar import scalar
from tatami.core.signature import Equation, Input, Mutability, Output, Role, Signature, Storage, port_fault
from tatami.core.sizes.conditions import broken_numbers
from tatami.core.tensor import Tensor as Payload
from tatami.frontend import ir
from tatami.frontend.graph_api.arguments import constant, integer
from tatami.frontend.graph_api.arguments import dtype as dtype_named
from tatami.frontend.graph_api.arguments import name as named
from tatami.frontend.graph_api.arguments import size as size_expr
from tatami.frontend.graph_api.kernels import Kernels
from tatami.frontend.graph_api.makers import Makers
from tatami.frontend.graph_api.place import caller
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.graph_api.tensor import tensors as listed
from tatami.frontend.operation import Site, attribute_values
from tatami.frontend.operations.result_sizes import found_symbols
from tatami.frontend.operations.size_conditions import node_claims, with_conditions
from tatami.frontend.ops import OPS, check_operand_count, infer, suggested_op

if TYPE_CHECKING:
    import numpy as np


class Graph(Makers, Kernels):
    """A graph under construction; subgraphs made by `subgraph` share its module."""

    def __init__(self, name: str = "main", parent: Graph | None = None) -> None:
        self.name = text_argument(name, "name")
        self.root: Graph = parent.root if parent else self
        self._inputs: list[Input] = []
        self._output_names: dict[str, str] = {}
        self._updates: dict[str, str | None] = {}
        self._assumptions: list[Equation] = []
        self._defaults: dict[str, int] = {}
        self._tensors: dict[str, ir.TensorType] = {}
        self._nodes: list[ir.Node] = []
        self._producer: dict[str, int] = {}
        self._unknown: dict[str, list[int]] = {}
        """Tensors whose dtype is not decided, and the nodes that read them."""
        self._names: set[str] = set()
        self._counters: dict[str, int] = {}
        self.origins: dict[str, tuple[str, ...]] = {}
        if parent is None:
            self._graphs: dict[str, Graph] = {}
            self._constants: dict[str, Payload] = {}
            self._built: dict[str, ir.Graph] = {}

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
        self, array: np.ndarray | float | Sequence[object], name: str | None = None, *, role: Role = "const"
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

    # -- operations --------------------------------------------------------------------------------
    def op(
        self,
        name: str,
        *operands: Tensor | bool | int | float | None,
        node: str | None = None,
        at: str | None = None,
        **attrs: object,
    ) -> Any:
        """Add any operation of the table: a Tensor, or a tuple of them. None is an absent operand. Raises TatamiError at the
        Python line."""
        where = caller() if at is None else at
        if not isinstance(name, str) or name not in OPS:
            raise fail("UnknownOp", where, f"{str(name)[:80]!r} is not an operation", suggested_op(str(name)))
        row = OPS[name]
        kinds = row.attrs.__annotations__
        try:
            struct = row.attrs(**{k: _attribute(v, str(kinds.get(k)), where) for k, v in attrs.items()})
            plain = attribute_values(struct)
        except (TypeError, NotImplementedError, ValueError, OverflowError) as error:
            names = ", ".join(f.name for f in msgspec.structs.fields(row.attrs)) or "none"
            raise fail("InvalidAttribute", where, str(error), f"the attributes of {name} are: {names}") from None
        tensors = self.lifted(operands, name)
        inputs = tuple("" if t is None else self._own(t, where).name for t in tensors)
        label = self._fresh(node or name)
        made = ir.Node(name, label, inputs, (), plain)
        check_operand_count(made)
        made, types = self._inferred(made, f"{label} ({where})", where)
        operand_types = [self._tensors.get(i) for i in made.inputs]
        if faults := broken_numbers(node_claims(made, operand_types, types, f"{label} ({where})")):
            raise TatamiError(*faults)
        for axis, size in ((k, s) for t in types for k, s in enumerate(t.shape)):
            if (fault := size_fault(size)) is not None:
                why = f"axis {axis} of the result has size {str(size)[:80]}"
                raise fail("AxisSizeMismatch", f"{label} ({where})", why, fault.suggestion)
        outputs = (label,) if len(types) == 1 else tuple(self._fresh(f"{label}.{i}") for i in range(len(types)))
        self._nodes.append(msgspec.structs.replace(made, outputs=outputs))
        self.origins[label] = (where,)
        results = tuple(self._define(o, t, len(self._nodes) - 1) for o, t in zip(outputs, types, strict=True))
        self._settle(inputs, len(self._nodes) - 1)
        return results[0] if len(results) == 1 else results

    @property
    def nodes(self) -> Sequence[ir.Node]:
        """The nodes added until here, in order."""
        return self._nodes

    def rename(self, tensor: Tensor, name: str) -> None:
        """Call the result of the last node `name` (`name_1`, … if that is taken), and the node too if it has no other
        result."""
        old, at = self._own(tensor, caller()).name, len(self._nodes) - 1
        if self._producer.get(old) != at:
            raise fail("InvalidAttribute", caller(), f"{old!r} is not a result of the last node", "rename a result at once")
        name = named(name, caller())
        self._names.discard(old)
        tensor.name = self._fresh(name)
        self._tensors[tensor.name] = self._tensors.pop(old)
        self._producer[tensor.name] = self._producer.pop(old)
        if old in self._unknown:
            self._unknown[tensor.name] = self._unknown.pop(old)
        node = self._nodes[at]
        outputs = tuple(tensor.name if o == old else o for o in node.outputs)
        label = tensor.name if len(outputs) == 1 else node.name
        self._nodes[at] = msgspec.structs.replace(node, name=label, outputs=outputs)
        self.origins[label] = self.origins.pop(node.name)

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
        """The graph as immutable nodes. Raises E1010 while a dtype is unknown."""
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

    def module(self) -> Module[ir.Graph]:
        """The whole module: this graph as `main`, the subgraphs, the constants, and the Python lines as origins."""
        root = self.root
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
        self._output_names[tensor.name] = name
        self._updates[name] = updates

    def _renames(self) -> dict[str, str]:
        """Tensor name during construction -> name in the finished graph: results are named like their outputs."""
        out = dict(self._output_names)
        for name in self._output_names.values():
            if name in self._tensors and name not in self._output_names:
                out[name] = self._fresh(name)
        return out

    def _define(self, name: str, type: ir.TensorType, producer: int | None = None) -> Tensor:
        self._tensors[name] = type
        if producer is not None:
            self._producer[name] = producer
        return Tensor(self, name)

    def _claim(self, name: str, where: str) -> None:
        if not isinstance(name, str):
            raise fail("InvalidAttribute", where, f"{name!r} is not a name", "names are strings")
        if not name or name in self._names or name in self.root._constants:
            raise fail("DuplicateId", where, f"{name!r} is empty or already used", "choose another name")
        self._names.add(name)

    def _fresh(self, stem: str, also: Mapping[str, object] | None = None) -> str:
        name = stem
        while name in self._names or (also and name in also):
            self._counters[stem] = self._counters.get(stem, 0) + 1
            name = f"{stem}_{self._counters[stem]}"
        self._names.add(name)
        return name

    def _own(self, tensor: Tensor, where: str) -> Tensor:
        if not isinstance(tensor, Tensor):
            raise fail(
                "InvalidAttribute",
                where,
                f"a {type(tensor).__name__} is not a tensor of the graph",
                "pass what an operation gave",
            )
        if tensor.graph is not self:
            raise fail(
                "UnknownValue",
                where,
                f"{tensor.name!r} belongs to graph {tensor.graph.name!r}",
                "pass it as an operand of the call",
            )
        return tensor

    def lifted(self, operands: Sequence[Tensor | bool | int | float | None], op: str) -> list[Tensor | None]:
        """`operands` with numbers as constants of the other operands' dtype; the condition of `where` decides nothing."""
        if not isinstance(operands, list | tuple):
            why = f"the operands of {op} are a {type(operands).__name__}"
            raise fail("InvalidAttribute", caller(), why, "give a list of tensors and numbers")
        values = operands[1:] if op == "where" else operands
        dtypes = [o.dtype for o in values if isinstance(o, Tensor)]
        decided = [d for d in dtypes if d != DType.unknown and d != DType.bool]
        any_dtype: DType = (decided or dtypes or [DType.unknown])[0]
        return [o if o is None or isinstance(o, Tensor) else self._lifted_number(o, any_dtype) for o in operands]

    def _lifted_number(self, value: object, beside: DType) -> Tensor:
        number = value.item() if hasattr(value, "item") and not getattr(value, "shape", True) else value
        if not isinstance(number, bool | int | float):
            raise fail(
                "InvalidAttribute",
                caller(),
                f"a {type(value).__name__} is not an operand",
                "operands are tensors of the graph and numbers; an array is g.constant(array)",
            )
        dtype = _fitting(number, beside)
        if dtype.is_int and not lowest(dtype) <= number <= highest(dtype):
            raise fail(
                "InvalidAttribute",
                caller(),
                f"{number} is outside {dtype}: {lowest(dtype)}..{highest(dtype)}",
                "cast the tensor to a wider dtype",
            )
        return self.number(number, dtype)

    def _inferred(self, node: ir.Node, at: str, where: str) -> tuple[ir.Node, tuple[ir.TensorType, ...]]:
        """(the node, its result types). If operands do not fit, the sizes that they have for large values of their symbols are
        tried, N - 1 elements for ``x[1:]``; a reshape records that, and its equation is checked when sizes are bound."""
        try:
            return node, self._infer(node, at)
        except TatamiError as error:
            settled = {i: tuple(map(settled_size, self._tensors[i].shape)) for i in dict.fromkeys(filter(None, node.inputs))}
            changed = [i for i, shape in settled.items() if shape != self._tensors[i].shape]
            for some in [[i] for i in changed] + [changed] * (len(changed) > 1):
                types = {i: ir.TensorType(self._tensors[i].dtype, settled[i]) for i in some}
                try:
                    found = self._infer(node, at, types)
                except TatamiError:
                    continue
                names = {i: self.op("reshape", Tensor(self, i), shape=settled[i], at=where).name for i in some}
                return msgspec.structs.replace(node, inputs=tuple(names.get(i, i) for i in node.inputs)), found
            raise error

    def _infer(self, node: ir.Node, at: str, instead: Mapping[str, ir.TensorType] | None = None) -> tuple[ir.TensorType, ...]:
        site = Site(at, self._callees(node), self.root._constants)
        types = self._tensors if instead is None else {**self._tensors, **instead}
        return infer(node, [types[i] if i else None for i in node.inputs], site)

    def _callees(self, node: ir.Node) -> Mapping[str, ir.Graph]:
        names = [v for v in (node.attrs.get(k) for k in ("graph", "then", "otherwise", "body")) if isinstance(v, str)]
        return {n: self.root._graphs[n].graph() for n in names if n in self.root._graphs}

    def _settle(self, inputs: Iterable[str], node: int) -> None:
        """Decide unknown dtypes from the other operands of `node`, and everything that follows."""
        made = self._nodes[node]
        for name in inputs:
            if name and self._tensors[name].dtype == DType.unknown:
                self._unknown.setdefault(name, []).append(node)
        if OPS[made.op].name in ("where",):
            inputs = list(inputs)[1:]
        if OPS[made.op].name in _OWN_DTYPES:
            return
        known = next((self._tensors[i].dtype for i in inputs if i and self._tensors[i].dtype != DType.unknown), None)
        if known is None:
            return
        self._decide([i for i in inputs if i and self._tensors[i].dtype == DType.unknown], known)

    def _decide(self, names: list[str], dtype: DType) -> None:
        work = list(names)
        while work:
            name = work.pop()
            if self._tensors[name].dtype != DType.unknown:
                continue
            self._tensors[name] = ir.TensorType(dtype, self._tensors[name].shape)
            if name in self._producer:
                at = self._producer[name]
                node = self._nodes[at]
                if node.op == "constant":
                    self._nodes[at] = msgspec.structs.replace(node, attrs={**node.attrs, "dtype": dtype.value})
                work += [i for i in node.inputs if i]
            for reader in self._unknown.pop(name, []):
                node = self._nodes[reader]
                for output, type in zip(node.outputs, self._infer(node, node.name), strict=True):
                    if self._tensors[output].dtype == DType.unknown and type.dtype != DType.unknown:
                        work.append(output)
                work += [i for i in node.inputs if i and node.op not in _OWN_DTYPES]


_OWN_DTYPES = frozenset(
    {
        "take",
        "gather",
        "gather_nd",
        "if",
        "loop",
        "call",
        "one_hot",
        "cast",
        "scatter",
        "scatter_nd",
        "quantize",
        "dequantize",
        "kernel",
        "kernel_reduce",
        "kernel_scan",
        "kernel_body",
    }
)
"""Operations whose operands may differ in dtype, so that one operand does not decide another's."""


def _symbols(names: Sequence[str], where: str) -> tuple[str, ...]:
    """Names that are legal for size symbols, as a tuple. Raises TatamiError for anything else."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise fail("InvalidAttribute", where, f"new sizes are called {names!r}", 'give a list of names: ["S"]')
    return tuple(named(name, where) for name in names)


def _graph_name(graph: Graph | str) -> str:
    if not isinstance(graph, Graph | str):
        raise fail("InvalidAttribute", caller(), f"{graph!r} is not a graph", "pass what g.subgraph gave, or its name")
    return graph if isinstance(graph, str) else graph.name


def _fitting(value: bool | int | float, dtype: DType) -> DType:
    """The dtype of a number that meets operands of `dtype`. A fraction among integers is fp32, which will not fit."""
    if isinstance(value, bool):
        return DType.bool
    if isinstance(value, float) and (dtype.is_int or dtype == DType.bool):
        return DType.fp32
    return dtype


def _attribute(value: object, kind: str, where: str) -> object:
    """A value in the form of the table's attributes: tuples, Python's numbers, dtypes as DType."""
    if isinstance(value, list | tuple):
        return tuple(_attribute(v, "", where) for v in value)
    if kind.startswith("DType") and value is not None:
        return dtype_named(value, where)
    if hasattr(value, "item") and not getattr(value, "shape", True):
        value = value.item()
    return scalar(value) if isinstance(value, float) and kind.startswith("Scalar") else value


def _as_array(value: object) -> np.ndarray:
    from tatami.core.tensor import as_array

    return as_array(value)
