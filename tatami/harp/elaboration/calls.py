"""Calls: of a graph of the program, of an operation of the table, of a method of the Graph API; constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, maximum, minimum, var
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.ir import TensorType
from tatami.frontend.operation import trusted_attributes
from tatami.frontend.ops import OPS
from tatami.harp import ir
from tatami.harp.elaboration.arguments import Binder, Given
from tatami.harp.elaboration.constants import Constants, literal
from tatami.harp.elaboration.parameters import GRAPH_METHODS, TENSOR_METHODS, Method, graph_method, tensor_method
from tatami.harp.elaboration.scope import Scope, Skipped, near
from tatami.harp.elaboration.values import DTYPES, GraphName, Results, Value, Word, describe
from tatami.harp.source import Span

_EXTREMES: dict[str, Callable[..., Expr]] = {"min": minimum, "max": maximum}
_OTHER_NAMES = {"if_else": "cond"}
MOST_AXES = 16
"""Maximum number of axes of a view's result: its coordinates are idx0 … idx15."""


class Calls:
    """The evaluation of calls in `scope`. `value` evaluates an expression."""

    def __init__(self, scope: Scope, constants: Constants, value: Callable[[ir.Expression], Value]) -> None:
        self.scope = scope
        self.constants = constants
        self.value = value
        self.target: str | None = None
        """The name that the constant of this statement gets."""

    # -- functions -----------------------------------------------------------------------------------
    def call(self, e: ir.Call) -> Value:
        """The value of ``name(arguments)``. Raises TatamiError at the callee or the argument."""
        name = e.callee.name
        if name in self.scope.graphs:
            return self._graph(e)
        if name == "constant" and e.arguments and _is_type(e.arguments[0].value):
            return self._constant(e)
        if not self.is_operation(name):
            raise self.unknown_function(e.callee)
        arguments = self._arguments(e)
        if name in _EXTREMES and arguments and _are_sizes([a.value for a in arguments]):
            return _EXTREMES[name](*(a.value for a in arguments))
        method = graph_method(_OTHER_NAMES.get(name, name))
        if method is not None and (name not in OPS or (name == "loop" and "body" not in _named(e))):
            return self._run_method(e.callee, method, self.scope.graph, arguments)
        if name in OPS:
            return self._run_row(e.callee, arguments)
        method = tensor_method(name)
        if method is not None and arguments:
            return self._run_method(e.callee, method, self.as_tensor(arguments[0].value, arguments[0].at), arguments[1:])
        how = "give it a tensor as the first argument"
        raise self.scope.refuse("InvalidAttribute", e.callee.at, f"{name} of no tensor", how)

    def is_operation(self, name: str) -> bool:
        """True if `name` is an operation of the table or a method of the Graph API."""
        return name in OPS or name in GRAPH_METHODS or name in TENSOR_METHODS or name in _OTHER_NAMES

    def unknown_function(self, callee: ir.Name) -> TatamiError:
        """The error for a callee that does not exist, with the nearest name."""
        name = callee.name
        if name in self.scope.names:
            why = f"{name!r} is a value, not a graph or an operation"
            return self.scope.refuse("UnknownOp", callee.at, why, "begin a statement that starts with '(' on a new line")
        known = sorted({*self.scope.graphs, *OPS, *GRAPH_METHODS, *TENSOR_METHODS, *_OTHER_NAMES})
        how = near(name, known) or "docs/operations.md lists all operations"
        return self.scope.refuse("UnknownOp", callee.at, f"no graph or operation is called {name!r}", how)

    def _arguments(self, e: ir.Call | ir.Method) -> list[Given]:
        if e.callee.name in ("view", "view_expr"):
            return self._with_coordinates(e)
        return [Given(a.name, self._argument(a.value), a.value.at) for a in e.arguments]

    def _argument(self, e: ir.Expression) -> Value:
        """The value of an argument. A bare word that is not defined may be a mode; the parameter it is bound to decides."""
        if isinstance(e, ir.Name) and not self.scope.is_defined(e.name):
            return Word(e)
        return self.value(e)

    def _with_coordinates(self, e: ir.Call | ir.Method) -> list[Given]:
        """The arguments of a view, in which idx0, idx1, … are the coordinates of the result."""
        sizes = self.scope.sizes
        self.scope.sizes = {**sizes, **{f"idx{k}": var(f"i{k}") for k in range(MOST_AXES)}}
        try:
            return [Given(a.name, self._argument(a.value), a.value.at) for a in e.arguments]
        finally:
            self.scope.sizes = sizes

    def _binder(self, callee: ir.Name) -> Binder:
        return Binder(self.scope.source, callee, self.scope.undefined)

    def _run_row(self, callee: ir.Name, arguments: Sequence[Given]) -> Value:
        self._skip_failed(arguments)
        operands, attributes = self._binder(callee).to_row(OPS[callee.name], arguments)
        with self._elementwise(callee), self.scope.at(callee.at):
            if self.scope.trust:
                attributes = trusted_attributes(OPS[callee.name], attributes)
            return self.result(callee.name, self.scope.graph.op(callee.name, *operands, node=None, at=None, **attributes))

    def _run_method(self, callee: ir.Name, method: Method, receiver: object, arguments: Sequence[Given]) -> Value:
        self._skip_failed(arguments)
        spread, named = self._binder(callee).to_method(method, arguments)
        with self._elementwise(callee), self.scope.at(callee.at):
            return self.result(callee.name, method.function(receiver, *spread, **named))

    def _skip_failed(self, arguments: Sequence[Given]) -> None:
        if any(isinstance(a.value, GraphName) and a.value.name in self.scope.failed for a in arguments):
            raise Skipped

    def _elementwise(self, callee: ir.Name) -> AbstractContextManager[None]:
        return self.scope.only_elementwise(callee.at)

    def result(self, name: str, made: object) -> Value:
        """The value of a call: one tensor, or the results to be taken apart."""
        self.scope.learn_sizes()
        if isinstance(made, tuple | list):
            return Results(tuple(made), name)
        assert isinstance(made, Tensor)
        return made

    # -- methods -------------------------------------------------------------------------------------
    def method(self, e: ir.Method, receiver: Value) -> Value:
        """The value of ``receiver.name(arguments)``. Raises TatamiError at the callee or the argument."""
        name = e.callee.name
        if isinstance(receiver, Results | DType | TensorType | str | list | GraphName | Word | None):
            why = f"{describe(receiver)} has no method {name!r}"
            raise self.scope.refuse("UnknownOp", e.callee.at, why, "call methods of tensors")
        x = self.as_tensor(receiver, e.receiver.at)
        arguments = self._arguments(e)
        if name == "view_expr":
            arguments = [_renamed(a, k) for k, a in enumerate(arguments)]
            name = "view"
        elif name == "abs_square":
            name = "square"
        method = tensor_method(name)
        if method is not None:
            return self._run_method(e.callee, method, x, arguments)
        if name in OPS:
            return self._run_row(e.callee, [Given(None, x, e.receiver.at), *arguments])
        if name in self.scope.graphs:
            raise self.scope.refuse("UnknownOp", e.callee.at, f"{name} is a graph, not a method", f"call it as {name}(…)")
        how = near(name, sorted({*TENSOR_METHODS, *OPS})) or "docs/operations.md lists all operations"
        raise self.scope.refuse("UnknownOp", e.callee.at, f"no operation is called {name!r}", how)

    # -- graphs --------------------------------------------------------------------------------------
    def _graph(self, e: ir.Call) -> Value:
        name = e.callee.name
        declared = self.scope.graphs[name]
        values = [self._argument(a.value) for a in e.arguments]
        for value in values:
            if isinstance(value, Word):
                raise self.scope.undefined(value.name)
        if name in self.scope.failed:
            raise Skipped
        sizes: dict[str, Expr] = {}
        operands: list[Tensor] = []
        dtypes = [DTYPES.get(p.type.dtype.name, DType.unknown) for p in declared.parameters]
        for a, value in zip(e.arguments, values, strict=True):
            if a.name is None:
                dtype = dtypes[len(operands)] if len(operands) < len(dtypes) else DType.unknown
                operands.append(self.as_tensor(value, a.value.at, dtype))
            else:
                sizes[self._size_of(declared, a.name)] = self._size(value, a.value.at)
        with self._elementwise(e.callee), self.scope.at(e.callee.at):
            return self.result(name, self.scope.graph.call(name, *operands, sizes=sizes))

    def _size_of(self, declared: ir.Graph, name: ir.Name) -> str:
        known = [s.name.name for s in declared.sizes]
        if name.name in known:
            return name.name
        why = f"{declared.name.name} has no size variable {name.name!r}"
        how = near(name.name, known) or "arguments of a graph are given by place"
        raise self.scope.refuse("InvalidAttribute", name.at, why, how)

    def _size(self, value: Value, at: Span) -> Expr:
        if isinstance(value, Expr) or (isinstance(value, int) and not isinstance(value, bool)):
            return expr(value)
        raise self.scope.refuse("InvalidAttribute", at, f"a size is not {describe(value)}", "give an integer or a size")

    # -- constants -----------------------------------------------------------------------------------
    def as_tensor(self, value: Value, at: Span, dtype: DType = DType.unknown) -> Tensor:
        """The value as a tensor; a number becomes a constant of `dtype`. Raises TatamiError for other values."""
        if isinstance(value, Tensor):
            return value
        if isinstance(value, bool | int | float):
            with self.scope.at(at):
                return self.scope.graph.number(value, DType.bool if isinstance(value, bool) else dtype)
        if isinstance(value, Results):
            names = ", ".join("abcdefgh"[k % 8] for k in range(len(value.tensors)))
            raise self.scope.refuse(
                "ResultCount",
                at,
                f"{value.of} gives {len(value.tensors)} results",
                f"take them apart: ({names}) = {value.of}(…)",
            )
        if isinstance(value, Expr):
            how = f"take its value as a tensor: size({value}).cast(f32)"
            raise self.scope.refuse("InvalidAttribute", at, f"{describe(value)} is not a tensor", how)
        raise self.scope.refuse("InvalidAttribute", at, f"{describe(value)} is not a tensor", "give a tensor or a number")

    def _constant(self, e: ir.Call) -> Tensor:
        type_, *rest = e.arguments
        values = {a.name.name if a.name else ("data", "role")[k]: a for k, a in enumerate(rest[:2])}
        if len(rest) not in (1, 2) or not values.keys() <= {"data", "role"} or "data" not in values:
            why = "a constant has a type, numbers or a name, and perhaps a role"
            raise self.scope.refuse(
                "InvalidAttribute", e.callee.at, why, 'write constant(f32[2], [1, 2]) or constant(f32[2], "w")'
            )
        assert isinstance(type_.value, ir.Index) and isinstance(type_.value.base, ir.Name)
        dtype = DTYPES[type_.value.base.name]
        shape = [self._extent(item) for item in type_.value.items]
        role = self.value(values["role"].value) if "role" in values else "const"
        if role not in ("const", "param", "state", "data"):
            raise self.scope.refuse("InvalidAttribute", values["role"].at, "a role is a string", '"const" or "param"')
        data = values["data"].value
        given = self.value(data)
        if isinstance(given, str):
            payload = self.constants.named(self.scope, given, dtype, tuple(shape), data.at)
            name: str | None = given
        else:
            payload = literal(self.scope, given, dtype, tuple(shape), data)
            name = self.target
        with self.scope.at(e.callee.at):
            return self.scope.graph.constant(payload, name, role=role)  # type: ignore[arg-type]

    def _extent(self, item: ir.Item) -> int:
        size = None if isinstance(item, ir.Slice | ir.Rest) else self.value(item)
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            why = "the sizes of a constant are numbers"
            raise self.scope.refuse("InvalidSymbol", item.at, why, "give integers that are 0 or more")
        return size


def _is_type(e: ir.Expression) -> bool:
    return isinstance(e, ir.Index) and isinstance(e.base, ir.Name) and e.base.name in DTYPES


def _are_sizes(values: Sequence[Value]) -> bool:
    sizes = all(isinstance(v, int | Expr) and not isinstance(v, bool) for v in values)
    return sizes and any(isinstance(v, Expr) for v in values)


def _named(e: ir.Call) -> set[str]:
    return {a.name.name for a in e.arguments if a.name is not None}


def _renamed(a: Given, place: int) -> Given:
    """The second argument of view_expr as the argument `linear` of `view`."""
    if place == 1 and a.name is None:
        return Given(ir.Name("linear", at=a.at, extent=a.at), a.value, a.at)
    return a
