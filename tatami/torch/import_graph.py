"""A whole fx graph of ATen operators as a frontend graph.

Every node is tried. Nodes that cannot be imported are listed with their reasons, and their results become inputs of the
graph, so that one pass finds everything. Inputs keep PyTorch's memory: an input whose axes have another order in memory
enters in that order and is permuted in the graph; results leave in the order that their metadata promises.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.effects import with_effects
from torch._subclasses.fake_tensor import FakeTensor

from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, expr, product
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.aten.view import part
from tatami.torch.fx_nodes import ASSERTIONS, ITEMS, check_own_storage, is_row_major, is_size_of, is_update, place_of, to_numpy
from tatami.torch.imported import ALONE, Argument, Check, Frame, Given, Imported, Result, Unsupported, View
from tatami.torch.importer import Importer, Number, Real, dtype_of
from tatami.torch.refusal import Refusal
from tatami.torch.rows import Rows, rows_around
from tatami.torch.shared_memory import owners, place_in, storage_of
from tatami.torch.sizes import is_never_negative, memory_order, shape_of, size_expr, strides_of
from tatami.torch.table import HANDLERS


def import_graph(gm: fx.GraphModule, frame: Frame = ALONE) -> Imported:
    """Import the nodes of `gm`. Never raises for an operator: unsupported ones are in `Imported.unsupported`."""
    return _Import(gm, frame).run()


class _Import:
    def __init__(self, gm: fx.GraphModule, frame: Frame) -> None:
        self.gm = gm
        self.frame = frame
        self.out = Imported(Graph("main"))
        self.m = Importer(self.out.graph, raises=frame.raises, finds_sizes=frame.logical, leaves=frame.leaves)
        self.values: dict[fx.Node, Any] = {}
        self.placeholders: dict[fx.Node, int] = {}
        self.updates = {n.args[0] for n in gm.graph.nodes if is_update(n)}
        self.owners: dict[int | None, fx.Node] = {}
        """Memory that several results share → the node that made it."""
        self.owned: dict[fx.Node, Result] = {}
        self.updated = set(frame.updates.values())

    def run(self) -> Imported:
        for node in self.gm.graph.nodes:
            match node.op:
                case "placeholder":
                    self.placeholder(node)
                case "get_attr":
                    self.attempt(node, self.attribute)
                case "call_function":
                    self.attempt(node, self.call)
                case "output":
                    self.output(node)
                case _:
                    self.refuse(node, f"a {node.op} node")
        self.out.random = bool(self.m.seeds)
        for k, (info, told) in enumerate(self.m.checks):
            self.out.graph.output(f"check{k}", info)
            axes = tuple(range(info.rank))
            strides = tuple(product(info.shape[a + 1 :]) for a in axes)
            self.out.checks.append(Check(Result(f"check{k}", axes, info.shape, strides, info.shape), *told))
        self.look()
        self.declare_sizes()
        return self.out

    def look(self) -> None:
        """Add a result that tells which of the forbidden values occurred: the number of the first one, or 0."""
        if not self.m.forbidden:
            return
        graph = self.out.graph
        found = graph.number(0, DType.i32)
        for k, (broken, _) in reversed(list(enumerate(self.m.forbidden))):
            found = graph.where(broken, graph.number(k + 1, DType.i32), found)
        self.out.forbidden += [what for _, what in self.m.forbidden]
        graph.output("found", found)
        self.out.found = Result("found", (), (), (), ())

    def declare_sizes(self) -> None:
        """Declare sizes that are arguments and are not in any tensor's shape as symbols with a default."""
        graph = self.out.graph
        said = {n for i in graph._inputs for s in i.shape for n in free_vars(s)}
        for node, position in self.placeholders.items():
            size = self.out.sizes.get(position)
            name = size.as_name() if size is not None else None
            if name is not None and name not in said:
                hint = node.meta["val"].node.hint
                graph.size(name, int(hint) if hint is not None else 2)

    # -- nodes -----------------------------------------------------------------------------------
    def placeholder(self, node: fx.Node) -> None:
        position = len(self.placeholders)
        self.placeholders[node] = position
        value = node.meta.get("val")
        try:
            if isinstance(value, torch.SymInt | int) and not isinstance(value, bool):
                self.values[node] = self.out.sizes[position] = size_expr(value)
            elif isinstance(value, torch.SymFloat):
                self.values[node] = Real(value.node.expr)  # computed from the sizes, which are arguments too
            elif node.users and all(u.target is with_effects and u.args[0] is node for u in node.users):
                self.values[node] = None  # a token, which PyTorch passes as None
            elif isinstance(value, torch.Tensor):
                self.values[node] = self.argument(node, value, position)
            else:
                self.values[node] = Refusal(f"an argument of type {type(value).__name__}")
        except Refusal as refusal:
            self.values[node] = refusal

    def argument(self, node: fx.Node, value: torch.Tensor, position: int) -> Tensor:
        dtype = dtype_of(value)
        if value.layout != torch.strided or value.is_quantized:
            raise Refusal(f"a tensor of layout {value.layout}")
        if position in self.frame.constants:
            held = self.frame.constants[position]
            return self.out.graph.constant(to_numpy(held), self.frame.names.get(position), role="param")
        name = self.frame.names.get(position, f"arg{position}")
        shape = shape_of(value)
        updated = node in self.updates or position in self.updated
        order = None if self.frame.logical else memory_order(shape, strides_of(value))
        may_slice = order is None and not (self.frame.logical or updated or position in self.frame.held)
        rows = rows_around(value) if may_slice and value.device.type == "cpu" else None
        if rows is not None:
            return self.slice_of_rows(Argument(position, name, None, rows=rows), rows, dtype)
        order = None if order is None or is_row_major(order) else order
        lies = shape if order is None else tuple(shape[a] for a in order)
        graph = self.out.graph
        if updated:
            x = graph.input(name, lies, dtype, role="state", mutability="mutable")
        elif position in self.frame.held:
            x = graph.input(name, lies, dtype, role="param", storage="held")
        else:
            x = graph.input(name, lies, dtype)
        self.out.arguments.append(Argument(position, name, order, updated))
        return x if order is None else x.permute(_inverse(order))

    def slice_of_rows(self, argument: Argument, rows: Rows, dtype: DType) -> Tensor:
        """The value of an argument that is read as a slice of the array around it."""
        whole = self.out.graph.input(argument.name, tuple(map(expr, rows.shape)), dtype)
        self.out.arguments.append(argument)
        columns = part(self.m, whole, len(rows.shape) - 1, expr(rows.begin), expr(rows.count))
        return columns.reshape(tuple(map(expr, rows.pieces))).permute(_inverse(rows.order))

    def attribute(self, node: fx.Node) -> Tensor:
        """A tensor held by the graph, as a constant."""
        value: Any = self.gm
        for name in str(node.target).split("."):
            value = getattr(value, name)
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
            raise Refusal(f"an attribute of type {type(value).__name__}")
        dtype_of(value)
        return self.out.graph.constant(to_numpy(value))

    def call(self, node: fx.Node) -> object:
        value = node.meta.get("val")
        if isinstance(value, torch.SymBool | bool):
            return Refusal("a truth about sizes")  # read by assertions only
        if isinstance(value, torch.SymInt | torch.SymFloat) and str(node.target).startswith("aten.") and not is_size_of(node):
            return self.number(node, value)
        if isinstance(value, torch.SymInt | int):
            return size_expr(value)
        if isinstance(value, torch.SymFloat):
            return Real(value.node.expr)
        if node.target is operator.getitem:
            return self.convert(node.args[0])[node.args[1]]
        if is_update(node):
            return self.update(node)
        if node.target is with_effects:
            return self.effect(node)
        target = str(node.target)
        if target in ASSERTIONS:
            return None
        handler = HANDLERS.get(target)
        if handler is None:
            raise Refusal("no function of the operator table imports it")
        if target in ("aten.as_strided.default", "prims.as_strided_scatter.default"):
            check_own_storage(node)
        self.m.at = f"{node.name} ({place_of(node)})"
        self.m.results = tuple(value) if isinstance(value, tuple | list) else (value,)
        for result in self.m.results:
            if isinstance(result, torch.Tensor) and result.is_complex():
                raise Refusal("complex numbers")
        arguments = [self.convert(a) for a in node.args]
        named = {k: self.convert(v) for k, v in node.kwargs.items()}
        made = handler(self.m, *arguments, **named)
        if not isinstance(value, tuple | list):
            return self.checked(made, value)
        assert isinstance(made, tuple | list)
        return tuple(self.checked(x, v) for x, v in zip(made, value, strict=False))

    def number(self, node: fx.Node, value: object) -> Expr:
        """An integer of the data (`x.item()`) as a size, read by a Host step."""
        if not isinstance(value, torch.SymInt) or str(node.target) not in ITEMS or not self.frame.logical:
            raise Refusal("a number that is read from data")
        if not is_never_negative(value):
            raise Refusal("a number that is read from data and may be negative (torch._check(n >= 0) says that it is not)")
        x = self.convert(node.args[0])
        self.out.graph.op("extent", x.reshape(()).cast(DType.i64), size=self.m.found_size(value))
        return size_expr(value)

    def effect(self, node: fx.Node) -> tuple[object, None]:
        """An operator that only raises errors; its token, which orders such operators, is passed on."""
        token, target, *arguments = node.args
        handler = HANDLERS.get(str(target))
        if handler is None or any(v is not None for v in node.meta["val"][1:]):
            raise Refusal(f"the effects of {target}")
        handler(self.m, *map(self.convert, arguments), **{k: self.convert(v) for k, v in node.kwargs.items()})
        return (self.convert(token), None)

    def update(self, node: fx.Node) -> object:
        """A `copy_` into an argument at the end of the graph: the argument is updated in place."""
        target, source = node.args[0], node.args[1]
        assert isinstance(target, fx.Node)
        later = list(self.gm.graph.nodes)
        after = set(later[later.index(node) + 1 :])
        if any(user in after and user.op != "output" for user in target.users):
            raise Refusal("an argument that is read again after it was updated")
        port = next((a for a in self.out.arguments if a.position == self.placeholders[target]), None)
        old = self.convert(target)
        value = self.convert(source)
        if port is None or not isinstance(old, Tensor):
            raise Refusal("the updated argument is not a tensor")
        self.put(port, old, value)
        return self.convert(source)

    def put(self, port: Argument, old: Tensor, value: Tensor | Number) -> None:
        """Write the value to the argument, in its order of axes in memory."""
        written = self.m.filled(self.m.tensor(value, old.dtype), old.shape)
        if port.order is not None:
            written = written.permute(port.order)
        graph = self.out.graph
        graph.update(Tensor(graph, port.name), written)

    def convert(self, value: object) -> Any:
        """An argument of a node in the form that the functions of the table take."""
        if isinstance(value, fx.Node):
            found = self.values[value]
            if isinstance(found, Refusal):
                raise Refusal(f"it reads {value.name}: {found}")
            return found
        if isinstance(value, list | tuple):
            return [self.convert(v) for v in value]
        if isinstance(value, torch.SymInt):
            return size_expr(value)
        if isinstance(value, complex):
            raise Refusal("complex numbers")
        return value

    def checked(self, made: object, value: object) -> object:
        """The result with the dtype and shape of the metadata. A shape that only differs in its form is assumed equal,
        which is checked when the program runs."""
        if not isinstance(made, Tensor) or not isinstance(value, torch.Tensor):
            return made
        if made.dtype != dtype_of(value):
            made = made.cast(dtype_of(value))
        shape = shape_of(value)
        if made.shape == shape:
            return made
        if made.rank != len(shape) or any((a - b).as_int() not in (0, None) for a, b in zip(made.shape, shape, strict=True)):
            raise Refusal(f"the result has shape {list(map(str, made.shape))} where PyTorch has {list(map(str, shape))}")
        return made.reshape(shape)

    # -- what does not go ------------------------------------------------------------------------
    def attempt(self, node: fx.Node, step: Callable[[fx.Node], object]) -> None:
        graph = self.out.graph
        first = len(graph._nodes)
        try:
            self.values[node] = step(node)
        except Refusal as refusal:
            self.refuse(node, str(refusal))
        except TatamiError as error:
            self.refuse(node, error.diagnostics[0].why)
        else:
            where = place_of(node)
            for made in graph._nodes[first:]:
                graph.origins[made.name] = (where,)

    def refuse(self, node: fx.Node, why: str) -> None:
        self.out.unsupported.append(Unsupported(node, str(node.target), why, place_of(node)))
        self.values[node] = self.stand_in(node.meta.get("val"), node.name, why)

    def stand_in(self, value: object, name: str, why: str) -> object:
        """The inputs that later nodes read instead of a result that PyTorch computes."""
        try:
            if isinstance(value, torch.Tensor):
                return self.out.graph.input(
                    f"from_torch_{len(self.values)}_{len(self.out.graph._inputs)}", shape_of(value), dtype_of(value)
                )
            if isinstance(value, tuple | list):
                return tuple(self.stand_in(v, name, why) for v in value)
        except Refusal as refusal:
            return refusal
        return Refusal(f"{name} stays in PyTorch")

    def view(self, node: fx.Node) -> View | None:
        """The result as a view of an argument, or of a result that several share; None if it has memory of its own."""
        value = node.meta.get("val")
        storage = None if self.frame.logical else storage_of(value)
        if storage is None:
            return None
        owner = self.owners.get(storage)
        if owner is not None:
            place = place_in(value, owner.meta["val"])
            if place is not None and owner not in self.owned:
                self.owned[owner] = self.result(owner, f"whole{len(self.owned)}")
            return View(self.owned[owner], *place) if place is not None else None
        for argument, position in self.placeholders.items():
            of = argument.meta.get("val")
            if storage_of(of) == storage and (place := place_in(value, of)) is not None:
                return View(position, *place)
        return None

    # -- outputs ---------------------------------------------------------------------------------
    def output(self, node: fx.Node) -> None:
        given = node.args[0]
        self.out.single = not isinstance(given, list | tuple)
        given = [given] if self.out.single else given
        assert isinstance(given, list | tuple)
        nodes = list(self.placeholders)
        ports = {a.position: a for a in self.out.arguments}
        if not self.frame.logical:
            self.owners = owners(self.gm, given, self.placeholders)
        for k, item in enumerate(given):
            try:
                if k in self.frame.updates:
                    target = self.frame.updates[k]
                    self.put(ports[target], self.values[nodes[target]], self.convert(item))
                    continue
                self.out.outputs.append(self.given(item, k))
            except Refusal as refusal:
                at = item if isinstance(item, fx.Node) else node
                self.out.unsupported.append(Unsupported(at, "output", str(refusal), place_of(at)))
                self.out.outputs.append(None)

    def given(self, item: object, k: int) -> Given:
        if not isinstance(item, fx.Node):
            return size_expr(item) if isinstance(item, int | torch.SymInt) and not isinstance(item, bool) else None
        if item in self.placeholders and not self.frame.logical:
            return self.placeholders[item]
        if (view := self.view(item)) is not None:
            return view
        value = self.convert(item)
        if isinstance(value, Expr) or value is None:
            return value
        return self.result(item, self.frame.outputs.get(k, f"out{k}"))

    def result(self, item: fx.Node, name: str) -> Result:
        """The node's value as an output of the program."""
        value = self.convert(item)
        if not isinstance(value, Tensor):
            raise Refusal(f"a result of type {type(value).__name__}")
        shape, strides = shape_of(item.meta["val"]), strides_of(item.meta["val"])
        if self.frame.logical:
            self.out.graph.output(name, value)
            return Result(name, tuple(range(len(shape))), shape, strides, shape)
        stored = tuple(ONE if at == ZERO and size != ZERO else size for size, at in zip(shape, strides, strict=True))
        for axis, size in enumerate(stored):
            if size != shape[axis]:
                value = part(self.m, value, axis, ZERO, ONE)
        order = memory_order(stored, strides)
        self.out.graph.output(name, value if order is None or is_row_major(order) else value.permute(order))
        return Result(name, order, shape, strides, stored)


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(order.index(k) for k in range(len(order)))
