"""Numbers in PAD and REDUCE are values of the dtype, and fields of a signature are known."""

from __future__ import annotations

from typing import Any

import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.ops import scalar_fault

LACKS = [
    ("i32", 0.5, "0.5 is not a whole number"),
    ("u8", 300, "300 is outside 0..255"),
    ("u8", -1, "-1 is outside 0..255"),
    ("i64", 2**63, "is outside -9223372036854775808.."),
    ("bool", 2, "2 is outside 0..1"),
    ("i32", "INF", "INF is not a whole number"),
    ("i32", "NAN", "NAN is not a whole number"),
    ("fp16", 65520.0, "65520.0 is not finite in fp16"),
    ("fp32", 1e39, "1e+39 is not finite in fp32"),
    ("fp32", "nan", "the words are INF, -INF, NAN"),
]
HAS = [
    ("i32", 7),
    ("i32", 7.0),
    ("u8", 255),
    ("bool", True),
    ("fp16", 65519.0),
    ("fp32", "-INF"),
    ("fp32", "NAN"),
    ("i8", -128),
]


def document(dtype: str, op: dict[str, Any], **port: Any) -> dict[str, Any]:
    """A program of one operation on four elements."""
    input_ = {"tensor": "a", "dtype": dtype, "shape": [4], **port}
    return {
        "signature": {"inputs": [input_], "outputs": [{"tensor": "n1"}]},
        "uops": [{"id": "n1", "dtype": dtype, "src": ["a"], **op}],
    }


def operations(dtype: str, value: Any) -> list[dict[str, Any]]:
    return [
        {"uop": "PAD", "arg": {"pad": [[0, 1]], "value": value}},
        {"uop": "REDUCE", "arg": {"op": "MAX", "axes": [0], "init": value, "dtype": dtype}},
    ]


@pytest.mark.parametrize(("dtype", "value", "words"), LACKS)
def test_a_value_that_the_dtype_lacks_is_refused(dtype: str, value: Any, words: str) -> None:
    for op in operations(dtype, value):
        with pytest.raises(TatamiError) as error:
            prepare(document(dtype, op))
        (found,) = error.value.diagnostics
        assert words in found.why and found.at == "n1" and found.code in ("E1006", "E1009")
    g = tt.Graph("g")
    x = g.input("x", (4,), DType(dtype))
    with pytest.raises(TatamiError) as error:
        g.output("y", x.pad(((0, 1),), value))
        prepare(g).stages["tiny"]
    assert words in str(error.value)


@pytest.mark.parametrize(("dtype", "value"), HAS)
def test_a_value_that_the_dtype_has_is_taken(dtype: str, value: Any) -> None:
    for op in operations(dtype, value):
        assert prepare(document(dtype, op)).stages["tiny"]


def test_small_types_have_the_range_of_their_bits() -> None:
    assert scalar_fault(7, DType.i4) == scalar_fault(-8, DType.i4) == scalar_fault(15, DType.u4) == ""
    assert "outside -8..7" in scalar_fault(8, DType.i4) and "outside 0..3" in scalar_fault(4, DType.u2)


def test_an_unknown_field_of_a_signature_is_refused() -> None:
    op = operations("fp32", 0)[0]
    with pytest.raises(TatamiError, match="unknown field 'banana'"):
        prepare(document("fp32", op, banana=1))
    made = document("fp32", op)
    made["signature"]["outputs"][0]["banana"] = 1
    with pytest.raises(TatamiError, match="unknown field 'banana'"):
        prepare(made)
    made = document("fp32", op)
    made["signature"]["banana"] = []
    with pytest.raises(TatamiError, match="unknown field 'banana'"):
        prepare(made)
