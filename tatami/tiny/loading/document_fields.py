"""Fields of a spec document: JSON values of the wanted type, sizes and dtypes; a fault names where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tatami.core.algebra.visit import substitute
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, Shape, expr


class Fields:
    """Reader of the fields of one document. `at`: the place named in faults. `definitions`: symbols that an assumption defines, substituted in every size."""

    def __init__(self) -> None:
        self.at = "document"
        self.definitions: dict[str, Expr] = {}

    def field(self, where: Mapping[str, Any], name: str, kind: type, default: Any = None) -> Any:
        """A field of the wanted JSON type; required if `default` is None. Raises InvalidDocument."""
        self.is_object(where)
        if name not in where:
            if default is None:
                raise fail("InvalidDocument", self.at, f"the field {name!r} is missing", f"add {name!r} ({kind.__name__})")
            return default
        value = where[name]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise fail(
                "InvalidDocument",
                self.at,
                f"{name!r} is {type(value).__name__} where {kind.__name__} is needed",
                f"write {name!r} as a JSON {kind.__name__}",
            )
        return value

    def is_object(self, value: Any) -> None:
        """Raise InvalidDocument unless `value` is a JSON object."""
        if not isinstance(value, Mapping):
            raise fail("InvalidDocument", self.at, f"{value!r} stands where an object is needed", "write an object {…}")

    def size(self, value: Any) -> Expr:
        """Read a size or index expression, with definitions applied."""
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise fail(
                "InvalidDocument", self.at, f"{value!r} is not a size", 'write an integer or an expression such as "2*M + 1"'
            )
        if isinstance(value, str) and "%" in value:
            raise fail(
                "MissingDivGuard",
                self.at,
                f"{value!r} keeps %",
                "write E % q as E - q*(E//q), or RESHAPE, which splits and merges axes",
            )
        try:
            read = expr(value)
        except ValueError as error:
            raise fail("IndexSyntax", self.at, str(error), "write + - * // and parentheses over sizes and axes") from None
        for _ in range(4):
            read = substitute(read, self.definitions)
        return read

    def shape(self, value: Any) -> Shape:
        """Read a list of sizes. Raises InvalidDocument."""
        if not isinstance(value, list):
            raise fail("InvalidDocument", self.at, f"{value!r} is not a shape", 'write a list such as ["M", 1, "K"]')
        return tuple(self.size(v) for v in value)

    def dtype(self, value: Any) -> DType:
        """Read the name of a dtype."""
        try:
            found = DType(value)
        except ValueError:
            found = DType.unknown
        if found == DType.unknown:
            names = ", ".join(d.value for d in DType if d != DType.unknown)
            raise fail("InvalidDocument", self.at, f"{value!r} is not a dtype", f"the dtypes are {names}")
        return found
