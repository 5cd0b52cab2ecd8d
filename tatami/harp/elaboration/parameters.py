"""Methods and operations that can be called by name: the Graph API's methods with their parameters, and the table of
operations.

There is no list of operations here. `convert` fits a value of the language to the type of a parameter or of an attribute."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from tatami.core.custom.verbatim import VerbatimCode
from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr
from tatami.core.scalar import scalar
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.ir import TensorType
from tatami.frontend.ops import OPS
from tatami.harp.elaboration.values import GraphName, Value, Word, describe

_NOT_OPERATIONS = frozenset({"op", "one", "made"})
_BUILDING = frozenset(
    """input constant number output update size assume rename subgraph fresh_size graph module to_dot op one kernel_body""".split()  # noqa: SIM905
)
"""Methods of a graph for which the language has its own forms."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a method, or an attribute of an operation. `default` is `inspect.Parameter.empty` if there is none."""

    name: str
    hint: object
    default: object
    kind: str
    """How arguments reach it: positional, named or variadic."""

    @property
    def is_required(self) -> bool:
        """True if a call has to give it a value."""
        return self.default is inspect.Parameter.empty and self.kind != "variadic"


@dataclass(frozen=True)
class Method:
    """A method of the Graph API, and its parameters."""

    name: str
    function: Callable[..., object]
    parameters: tuple[Parameter, ...]


class Mismatch(Exception):
    """A value that does not fit a parameter; the message names the values that do."""


def _methods(cls: type, excluded: frozenset[str]) -> dict[str, Callable[..., object]]:
    return {
        name: function
        for name, function in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_") and name not in excluded
    }


TENSOR_METHODS = _methods(Tensor, _NOT_OPERATIONS)
"""Name -> method of a tensor."""


def grad(graph: Graph, of: Tensor, wrt: Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """The derivatives of the sum of `of` by each of `wrt`; the tensor itself for one."""
    from tatami.derivative.api import between

    found = between(graph, of, wrt)
    return found[0] if len(found) == 1 else found


GRAPH_METHODS = {**_methods(Graph, _BUILDING), "grad": grad}
"""Name -> function whose first operand is the graph: its methods, and `grad`."""


@lru_cache(maxsize=512)
def tensor_method(name: str) -> Method | None:
    """The method of a tensor with this name, or None."""
    return _method(name, TENSOR_METHODS)


@lru_cache(maxsize=512)
def graph_method(name: str) -> Method | None:
    """The method of a graph with this name, or None."""
    return _method(name, GRAPH_METHODS)


def _method(name: str, table: Mapping[str, Callable[..., object]]) -> Method | None:
    if name not in table:
        return None
    function = table[name]
    hints = _hints(function)
    parameters: list[Parameter] = []
    for p in list(inspect.signature(function).parameters.values())[1:]:
        kind = "positional"
        if p.kind is p.VAR_POSITIONAL:
            kind = "variadic"
        elif p.kind is p.KEYWORD_ONLY:
            kind = "named"
        elif p.kind is p.VAR_KEYWORD:
            parameters += [_of_row(f) for f in _row_fields(name) if f.name not in {q.name for q in parameters}]
            continue
        parameters.append(Parameter(p.name, hints.get(p.name, Any), p.default, kind))
    return Method(name, function, tuple(parameters))


def _hints(function: Callable[..., object]) -> dict[str, object]:
    """Parameter -> type, for a method. Names that its module imports for type checkers only are the API's own, any value of a
    graph (`Self`, `Value`) is a Tensor; aliases written as text are evaluated first."""
    import numpy as np

    known: dict[str, object] = {
        "Any": Any,
        "Tensor": Tensor,
        "Value": Tensor,
        "Self": Tensor,
        "Graph": Graph,
        "np": np,
        "Expr": Expr,
        "Sequence": Sequence,
        "Mapping": Mapping,
    }
    spelled = {n: v for n, v in function.__globals__.items() if isinstance(v, str) and n[0].isupper()}
    for name, text in spelled.items():
        with suppress(NameError):  # an alias of a type that no method of the language takes
            known[name] = typing.get_type_hints(types.SimpleNamespace(__annotations__={name: text}), {}, known)[name]
    return typing.get_type_hints(function, localns=known)


def _row_fields(name: str) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(OPS[name].attrs) if name in OPS else ()


def _of_row(f: msgspec.structs.FieldInfo) -> Parameter:
    required = f.default is msgspec.NODEFAULT and f.default_factory is msgspec.NODEFAULT
    return Parameter(
        f.name,
        str | None if VerbatimCode in _options(f.type) else f.type,
        inspect.Parameter.empty if required else f.default,
        "named",
    )


@lru_cache(maxsize=512)
def attributes_of(name: str) -> tuple[Parameter, ...]:
    """The attributes of an operation, in the order of its row."""
    return tuple(_of_row(f) for f in _row_fields(name))


# -- values to what a parameter takes ----------------------------------------------------------------
def convert(value: Value, hint: object) -> object:
    """`value` as the type `hint`. Raises Mismatch, whose message names the values that the parameter takes."""
    options = _options(hint)
    if isinstance(value, Word) and str in options and not {Graph, DType} & set(options):
        return value.name.name
    for option in options:
        try:
            fitted = _convert(value, option)
        except Mismatch:
            continue
        return scalar(fitted) if isinstance(fitted, int | float) and option is float and str in options else fitted
    raise Mismatch(f"{wanted(hint)}, not {describe(value)}")


def _options(hint: object) -> list[object]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        options = [o for h in typing.get_args(hint) for o in _options(h)]
        if Expr in options:  # a size written as text is Python's; here sizes are expressions
            options = [o for o in options if o not in (str, int)]
        if float in options and int in options:  # an integer stays one
            options.sort(key=lambda o: o is float)
        return options
    return [hint]


def _convert(value: Value, hint: object) -> object:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return [_convert(v, Any) for v in value] if isinstance(value, list) else _plain(value)
    if hint is type(None) and value is None:
        return None
    if hint is Tensor and isinstance(value, Tensor):
        return value
    if hint is bool and isinstance(value, bool):
        return value
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if hint is Expr and isinstance(value, int | Expr) and not isinstance(value, bool):
        return expr(value)
    if (hint is DType and isinstance(value, DType)) or (hint is TensorType and isinstance(value, TensorType)):
        return value
    if hint is str and isinstance(value, str | GraphName):
        return _plain(value)
    if hint is str and isinstance(value, Expr) and value.as_name() is not None:
        return value.as_name()  # the symbol of a size that the operation decides
    if hint is Graph and isinstance(value, GraphName):
        return value.name
    if origin is typing.Literal and _word(value) in args:
        return _word(value)
    if origin in (tuple, list, Sequence) or hint in (tuple, list):
        return _converted_items(value, args)
    raise Mismatch


def _converted_items(value: Value, args: tuple[object, ...]) -> tuple[object, ...]:
    repeated = len(args) < 2 or args[1] is Ellipsis
    if not isinstance(value, list):
        if not repeated or value is None:
            raise Mismatch
        return (convert(value, args[0] if args else Any),)
    if repeated:
        return tuple(convert(v, args[0] if args else Any) for v in value)
    if len(value) != len(args):
        raise Mismatch
    return tuple(convert(v, a) for v, a in zip(value, args, strict=True))


def _plain(value: Value) -> object:
    if isinstance(value, GraphName):
        return value.name
    if isinstance(value, Word):
        raise Mismatch
    return value


def _word(value: Value) -> object:
    return value.name.name if isinstance(value, Word) else value


def wanted(hint: object) -> str:
    """The values that a type takes, in words for diagnostics."""
    words: list[str] = []
    for option in _options(hint):
        origin, args = typing.get_origin(option), typing.get_args(option)
        if origin is typing.Literal:
            words.append("one of " + ", ".join(f'"{a}"' for a in args))
        elif origin in (tuple, list, Sequence):
            pair = len(args) == 2 and args[1] is not Ellipsis
            words.append("a pair" if pair else "an array of " + wanted(args[0]).removeprefix("an ").removeprefix("a ") + "s")
        else:
            words.append(_WORDS.get(option, "a value"))
    return " or ".join(dict.fromkeys(words))


_WORDS: dict[object, str] = {
    type(None): "none", Tensor: "a tensor", bool: "true or false", int: "an integer", float: "a number", Expr: "a size",
    DType: "a dtype", TensorType: "a type such as f32[N]", str: "a string", Graph: "a graph",
}  # fmt: skip


def find(parameters: Sequence[Parameter], name: str) -> Parameter | None:
    """The parameter called `name`, or None; `dim` is a synonym of `axis`."""
    names = {p.name: p for p in parameters}
    return names.get(name) or (names.get("axis") or names.get("axes") if name == "dim" else None)
