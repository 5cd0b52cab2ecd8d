"""The one serialiser: exact round trips, strict reading, limits of untrusted input."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tatami.core.codec import MAX_DEPTH, dump_text, from_builtins, parse_text, schema, to_builtins
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import Shape, expr, shape
from tatami.core.signature import Input, Signature


class Thing(msgspec.Struct, frozen=True):
    name: str
    dtype: DType
    shape: Shape
    table: dict[str, int] = {}


def test_round_trip() -> None:
    thing = Thing("a", DType.bf16, shape("2*M + 1", 3), {"k": 1})
    value = to_builtins(thing)
    assert value["dtype"] == "bf16"
    assert list(value["shape"]) == ["2*M + 1", 3]
    assert from_builtins(parse_text(dump_text(value)), Thing) == thing


@pytest.mark.parametrize(
    ("field", "value"),
    [("dtype", "float"), ("shape", ["M M"]), ("shape", [1.5]), ("shape", [True]), ("name", 3), ("table", {"k": "x"})],
)
def test_wrong_fields_are_one_diagnostic(field: str, value: Any) -> None:
    good = to_builtins(Thing("a", DType.fp32, shape(1)))
    with pytest.raises(TatamiError, match="E1605"):
        from_builtins({**good, field: value}, Thing)


def test_missing_field_is_named() -> None:
    with pytest.raises(TatamiError, match="name"):
        from_builtins({"dtype": "fp32", "shape": []}, Thing)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("{", "ParseError"),
        ('{"a": NaN}', "ParseError"),
        ('{"a": 1e999}', "ParseError"),
        ('{"a": 1, "a": 2}', "ParseError"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "InputTooLarge"),
        (b"\xff", "ParseError"),
        ('{"a": 1} // no', "ParseError"),
    ],
)
def test_bad_text_is_one_diagnostic(text: str | bytes, kind: str) -> None:
    with pytest.raises(TatamiError) as error:
        parse_text(text)
    assert [d.kind for d in error.value.diagnostics] == [kind]


def test_brackets_in_strings_are_not_depth() -> None:
    assert parse_text('["' + "[" * 500 + '\\""]') == ["[" * 500 + '"']


def test_a_byte_order_mark_is_accepted() -> None:
    assert parse_text(b"\xef\xbb\xbf[1]") == [1]
    assert parse_text("\ufeff[1]") == [1]


def test_text_is_deterministic_and_schema_is_published() -> None:
    signature = Signature((Input("x", DType.fp32, shape("N")),))
    assert dump_text(to_builtins(signature)) == dump_text(to_builtins(signature))
    assert "properties" in str(schema(Signature))
    assert from_builtins(to_builtins(signature), Signature) == signature


def test_expressions_are_canonical_after_reading() -> None:
    assert from_builtins(to_builtins(Thing("a", DType.fp32, (expr("N*4"),))), Thing).shape[0] == expr("4*N")
