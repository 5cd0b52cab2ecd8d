"""Arguments to parameters: by position, by name, each converted to the parameter's type; a fault is located at the argument."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tatami.core.diagnostic import TatamiError
from tatami.core.expr import Expr
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.operation import Operation
from tatami.harp import ir
from tatami.harp.elaboration.parameters import Method, Mismatch, Parameter, attributes_of, convert, find
from tatami.harp.elaboration.values import Value, Word, describe
from tatami.harp.source import Source, Span


@dataclass(frozen=True)
class Given:
    """One argument of a call: its name, if it has one, and its value."""

    name: ir.Name | None
    value: Value
    at: Span


class Binder:
    """The binding of one call's arguments. `callee` is the name that the caller wrote."""

    def __init__(self, source: Source, callee: ir.Name, undefined: Callable[[ir.Name], TatamiError]) -> None:
        self.source = source
        self.callee = callee
        self.undefined = undefined

    def refuse(self, at: Span, why: str, suggestion: str, kind: str = "InvalidAttribute") -> TatamiError:
        """An error at `at` in the text, to be raised."""
        return TatamiError(self.source.fault(kind, at, why, suggestion))

    def to_method(self, method: Method, arguments: Sequence[Given]) -> tuple[list[object], dict[str, object]]:
        """(positional, named) arguments for a method of the Graph API. Raises TatamiError at the argument."""
        out: dict[str, object] = {}
        spread: list[object] = []
        places = [p for p in method.parameters if p.kind == "positional"]
        variadic = next((p for p in method.parameters if p.kind == "variadic"), None)
        for k, given in enumerate(a for a in arguments if a.name is None):
            if k < len(places):
                out[places[k].name] = self.fitted(given, places[k])
            elif variadic is not None:
                spread += self._items(given, variadic)
            else:
                raise self._too_many(given, method.parameters)
        for given in arguments:
            if given.name is None:
                continue
            parameter = self._named(given.name, method.parameters, out)
            if parameter is variadic and not spread:
                spread = self._items(given, parameter)
            else:
                out[parameter.name] = self.fitted(given, parameter)
        self._all_there(method.parameters, out, spread)
        order = [p.name for p in places]
        if variadic is None:
            return [], out
        return [*(out.pop(n) for n in order if n in out), *spread], out

    def _items(self, given: Given, variadic: Parameter) -> list[object]:
        """The items of one array as arguments: ``permute([1, 0])`` is ``permute(1, 0)``."""
        values = given.value if isinstance(given.value, list) else [given.value]
        return [self.fitted(Given(None, v, given.at), variadic) for v in values]

    def to_row(
        self, row: Operation, arguments: Sequence[Given]
    ) -> tuple[list[Tensor | bool | int | float | None], dict[str, object]]:
        """(operands, attributes) of an operation: tensors are operands, and so is a number while tensors are too few."""
        parameters = attributes_of(row.name)
        operands: list[Tensor | bool | int | float | None] = []
        out: dict[str, object] = {}
        placed = [Given(None, v, a.at) for a in arguments if a.name is None for v in _spread(a.value)]
        missing = row.least - sum(isinstance(a.value, Tensor) or a.value is None for a in placed)
        for given in placed:
            value = given.value
            if isinstance(value, Tensor) or (value is None and len(operands) < _most(row)):
                operands.append(value)
                continue
            if isinstance(value, bool | int | float) and missing > 0:
                missing -= 1
                operands.append(value)
                continue
            free = [p for p in parameters if p.name not in out]
            if not free:
                raise self._too_many(given, parameters)
            out[free[0].name] = self.fitted(given, free[0])
        for given in arguments:
            if given.name is not None:
                parameter = self._named(given.name, parameters, out)
                out[parameter.name] = self.fitted(given, parameter)
        if not row.least <= len(operands) <= _most(row):
            how = (
                str(row.least)
                if row.least == row.most
                else f"{row.least} to {row.most}"
                if row.most >= 0
                else f"{row.least} or more"
            )
            raise self.refuse(
                self.callee.at, f"{row.name} takes {how} operands, the call gives {len(operands)}", f"{row.name}: {row.doc}"
            )
        self._all_there(parameters, out, [])
        return operands, out

    def fitted(self, given: Given, parameter: Parameter) -> object:
        """The argument's value as the type of the parameter. Raises TatamiError at the argument."""
        try:
            return convert(given.value, parameter.hint)
        except Mismatch as error:
            if isinstance(given.value, Word):
                raise self.undefined(given.value.name) from None
            why = f"{parameter.name} of {self.callee.name} takes {error}"
            raise self.refuse(given.at, why, f"give {parameter.name} as {str(error).split(', not')[0]}") from None

    def _named(self, name: ir.Name, parameters: Sequence[Parameter], taken: Iterable[str]) -> Parameter:
        found = find(parameters, name.name)
        if found is None:
            raise self.refuse(
                name.at,
                f"{self.callee.name} has no parameter {name.name!r}",
                _suggested(name.name, [p.name for p in parameters]),
            )
        if found.name in taken:
            raise self.refuse(name.at, f"{found.name} of {self.callee.name} is given twice", "leave one of them out")
        return found

    def _too_many(self, given: Given, parameters: Sequence[Parameter]) -> TatamiError:
        if isinstance(given.value, Word):
            return self.undefined(given.value.name)
        named = [p.name for p in parameters if p.kind == "named"]
        what = f"{self.callee.name} has no place for {describe(given.value)}"
        if isinstance(given.value, Expr):
            how = f"take its value as a tensor: size({given.value})"
        elif named:
            how = f"give it by name: {named[0]}=…"
        else:
            how = f"its parameters are: {', '.join(p.name for p in parameters)}" if parameters else "leave it out"
        return self.refuse(given.at, what, how)

    def _all_there(self, parameters: Sequence[Parameter], out: Iterable[str], spread: Sequence[object]) -> None:
        absent = [p.name for p in parameters if p.is_required and p.name not in out]
        if absent:
            raise self.refuse(self.callee.at, f"{self.callee.name} needs {absent[0]}", f"add {absent[0]}=…")


def _most(row: Operation) -> float:
    return row.most if row.most >= 0 else float("inf")


def _spread(value: Value) -> list[Value]:
    """The tensors of an array of tensors; a list of any other value alone."""
    return value if isinstance(value, list) and any(isinstance(v, Tensor) for v in value) else [value]


def _suggested(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name[:80], names, 1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"its parameters are: {', '.join(names)}" if names else "it has no parameters"
