"""Nodes to JSON and back: the serialiser of every stage.

Structs become objects, expressions become integers or their text, dtypes their names. `from_builtins` is strict: an unknown
field, a wrong type and a bad expression are one E1605 diagnostic with the path of the fault."""

from __future__ import annotations

import json
import math
from typing import Any, TypeVar

import msgspec

from tatami.core.custom.verbatim import VerbatimCode
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.expr import Expr, expr

T = TypeVar("T")
MAX_BYTES = 256 << 20
"""Maximum bytes of a JSON text that is read."""
MAX_DEPTH = 200
"""Maximum nesting of objects and lists in a JSON text that is read."""


def to_builtins(value: Any) -> Any:
    """A node as plain JSON values: dicts with str keys, lists, numbers, text."""
    return msgspec.to_builtins(value, enc_hook=_encode_lines, str_keys=True)


class _Refused(ValueError):
    """Text stands where code would, and the document is not trusted."""


def from_builtins(value: Any, kind: type[T], at: str = "document", *, trust: bool = False, whole: bool = True) -> T:
    """Plain JSON values as a node of type `kind`. Raises TatamiError E1605, for unknown fields too if `value` is a `whole`
    document, and E1610, with the field, for code without `trust`."""
    try:
        made = msgspec.convert(value, kind, dec_hook=_decode_trusted if trust else _decode, strict=True)
    except (msgspec.ValidationError, ValueError) as error:
        if isinstance(error.__cause__, _Refused):
            why = f"{str(error).partition(' - at ')[2].strip('`') or 'it'} is code that would be compiled and run"
            raise fail("Untrusted", at, why, "pass --trust (trust=True) if you wrote it yourself") from None
        raise fail("InvalidDocument", at, str(error), _COMPARE) from None
    unknown = unknown_field(value, made) if whole else ""
    if unknown:
        raise fail("InvalidDocument", at, f"nothing reads the field `{unknown[:200]}`", _COMPARE)
    return made


_COMPARE = "compare the field with the schema of its stage (`tatami schema STAGE`)"


def unknown_field(value: Any, made: Any) -> str:
    """The path of a field of `value` that none of the nodes `made` of it has; empty if there is none."""
    stack: list[tuple[str, Any, Any]] = [("$", value, made)]
    while stack:
        place, plain, node = stack.pop()
        if isinstance(node, msgspec.Struct) and isinstance(plain, dict):
            config = type(node).__struct_config__
            named = dict(zip(type(node).__struct_encode_fields__, type(node).__struct_fields__, strict=True))
            for key, inner in plain.items():
                if key in named:
                    if isinstance(inner, dict | list | tuple):
                        stack.append((f"{place}.{key}", inner, getattr(node, named[key])))
                elif key != config.tag_field:
                    return f"{place}.{key}"
        elif isinstance(node, dict) and isinstance(plain, dict):
            stack.extend((f"{place}.{k}", a, b) for (k, a), b in zip(plain.items(), node.values(), strict=True))
        elif isinstance(node, tuple | list) and isinstance(plain, tuple | list):
            stack.extend((f"{place}[{i}]", a, b) for i, (a, b) in enumerate(zip(plain, node, strict=True)))
    return ""


def encode_record(value: Any) -> bytes:
    """Compact JSON of nodes that only Tatami reads back (`decode_record`), such as entries of a cache."""
    return msgspec.json.encode(value, enc_hook=_encode)


def decode_record(data: bytes, kind: type[T]) -> T:
    """The node of type `kind` in a record. Raises ValueError for anything but the output of `encode_record` for that type."""
    try:
        return msgspec.json.decode(data, type=kind, dec_hook=_decode)
    except (msgspec.MsgspecError, TatamiError, RecursionError) as error:
        raise ValueError(str(error)) from None


def schema(kind: Any) -> dict[str, Any]:
    """The JSON schema of a node type."""
    return msgspec.json.schema(kind, schema_hook=_schema)


def _encode(value: Any) -> Any:
    if isinstance(value, Expr):
        constant = value.as_int()
        return str(value) if constant is None else constant
    if isinstance(value, VerbatimCode):
        return str(value)
    raise NotImplementedError(type(value))


def _encode_lines(value: object) -> object:
    lines = str(value).split("\n") if isinstance(value, VerbatimCode) else ()
    return lines if len(lines) > 1 else _encode(value)


def _decode(kind: type, value: Any) -> Any:
    if kind is Expr:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError(f"expected an integer or an index expression, got {type(value).__name__}")
        return expr(value)
    if kind is VerbatimCode:
        if isinstance(value, VerbatimCode):
            return value
        raise ValueError(f"expected a text, got {type(value).__name__}") if _lines(value) is None else _Refused("code")
    raise NotImplementedError(kind)


def _decode_trusted(kind: type, value: Any) -> Any:
    text = _lines(value) if kind is VerbatimCode else None
    return _decode(kind, value) if text is None else VerbatimCode(text)


def _lines(value: object) -> str | None:
    """The text of code, which documents hold as one string or as a list of lines; None for anything else."""
    if isinstance(value, str):
        return value
    return "\n".join(value) if isinstance(value, list) and all(isinstance(line, str) for line in value) else None


def _schema(kind: type) -> dict[str, Any]:
    if kind is Expr:
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], "description": "index expression"}
    if kind is VerbatimCode:
        lines = {"type": "array", "items": {"type": "string"}}
        return {"anyOf": [{"type": "string"}, lines], "description": "code, a text or its lines; it needs --trust"}
    raise NotImplementedError(kind)


def dump_text(value: Any) -> str:
    """Deterministic JSON text: keys in field order; what fits on a line stands on one."""
    return _Writer().text(value) + "\n"


def parse_text(data: str | bytes, at: str = "document") -> Any:
    """Read JSON with the limits of untrusted input: size, depth, no NaN, no duplicate keys. Raises TatamiError."""
    if len(data) > MAX_BYTES:
        raise fail(
            "InputTooLarge",
            at,
            f"{len(data)} bytes; the limit is {MAX_BYTES}",
            "split the document, or keep constants in files",
        )
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data.removeprefix("\ufeff")
        _check_depth(text, at)
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    except UnicodeDecodeError as error:
        raise fail(
            "ParseError", at, f"not UTF-8 text: {error.reason} at byte {error.start}", "save the file as UTF-8"
        ) from None
    except RecursionError:
        raise fail("InputTooLarge", at, "values are nested too deeply", f"keep nesting below {MAX_DEPTH}") from None
    except json.JSONDecodeError as error:
        where = f"{at}:{error.lineno}:{error.colno}"
        raise fail(
            "ParseError", where, f"not JSON: {error.msg}", "repair the text at that place; JSON has no comments"
        ) from None
    except ValueError as error:
        raise fail("ParseError", at, str(error), "repair the value; JSON numbers are finite and keys unique") from None


def _check_depth(text: str, at: str) -> None:
    depth = deepest = 0
    in_string = escaped = False
    for ch in text:
        if in_string:
            if escaped:
                escaped = False
            elif ch == "\\":
                escaped = True
            elif ch == '"':
                in_string = False
        elif ch == '"':
            in_string = True
        elif ch in "[{":
            depth += 1
            if depth > deepest:
                deepest = depth
                if deepest > MAX_DEPTH:
                    raise fail(
                        "InputTooLarge", at, f"values are nested more than {MAX_DEPTH} deep", f"keep nesting below {MAX_DEPTH}"
                    )
        elif ch in "]}":
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in pairs:
        if key in out:
            raise ValueError(f"the key {key!r} stands twice in one object")
        out[key] = value
    return out


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON; write the string '-INF', 'INF' or 'NAN' where a value may be infinite")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} is too large for a float")
    return value


class _Writer:
    """Compact where a value fits on a line, indented otherwise."""

    width = 110

    def __init__(self) -> None:
        self._flat: dict[int, str | None] = {}

    def text(self, value: Any, indent: int = 0) -> str:
        flat = self.flat(value)
        if flat is not None and (len(flat) + indent <= self.width or not isinstance(value, dict | list | tuple) or not value):
            return flat
        pad = " " * (indent + 2)
        if isinstance(value, dict):
            items = [f"{pad}{_text(k)}: {self.text(v, indent + 2)}" for k, v in value.items()]
            return "{\n" + ",\n".join(items) + "\n" + " " * indent + "}"
        return "[\n" + ",\n".join(pad + self.text(v, indent + 2) for v in value) + "\n" + " " * indent + "]"

    def flat(self, value: object) -> str | None:
        """The value on one line; None if a list or an object is longer than a line."""
        if not isinstance(value, dict | list | tuple):
            return _text(value)
        if id(value) not in self._flat:
            inner = value.values() if isinstance(value, dict) else value
            parts = [self.flat(v) for v in inner]
            self._flat[id(value)] = self._joined(value, [p for p in parts if p is not None]) if None not in parts else None
        return self._flat[id(value)]

    def _joined(self, value: dict[str, object] | list[object] | tuple[object, ...], parts: list[str]) -> str | None:
        if isinstance(value, dict):
            made = "{" + ", ".join(f"{_text(k)}: {p}" for k, p in zip(value, parts, strict=True)) + "}"
        else:
            made = f"[{', '.join(parts)}]"
        return made if len(made) <= self.width else None


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
