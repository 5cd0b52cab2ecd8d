"""The table of operators: complete by ONNX Runtime's own list, and printed as the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as runtime

import tatami as tt
from tatami.onnx.load import load_model
from tatami.onnx.microsoft.not_taken import LIMITS, NOT_TAKEN
from tatami.onnx.microsoft.show_operators import show_operators
from tatami.onnx.microsoft.signatures import SIGNATURES, signature
from tatami.onnx.microsoft.table import MICROSOFT, NCHWC
from tests.onnx.microsoft.against_onnxruntime import model_of, node

KNOWN = {(domain, op) for domain, each in SIGNATURES.items() for op in each}
PAGE = Path(__file__).parents[3] / "docs" / "onnx-microsoft.md"


def names_of(domain: str) -> set[str]:
    return {o.name for o in runtime.get_all_operator_schema() if o.domain == domain}


def test_every_operator_has_an_import_or_a_reason() -> None:
    assert not set(MICROSOFT) & set(NOT_TAKEN)
    assert set(LIMITS) <= set(MICROSOFT)
    assert names_of("com.microsoft") <= {*MICROSOFT, *NOT_TAKEN}
    assert names_of("com.microsoft.nchwc") <= set(NCHWC)


def test_the_page_is_the_table(update_golden: bool) -> None:
    if update_golden:
        PAGE.write_text(show_operators())
    assert PAGE.read_text() == show_operators()


@pytest.mark.parametrize("op", ["BeamSearch", "WordConvEmbedding", "QOrderedMatMul"])
def test_the_reason_is_told(op: str) -> None:
    model = model_of([node(op, ["x"])], {"x": np.zeros((2, 3), "f4")}, {"y": (1, [2, 3])})
    with pytest.raises(tt.TatamiError) as told:
        tt.compile(model)
    assert NOT_TAKEN[op].split("; ")[0] in str(told.value)


def test_operands_and_attributes_are_those_of_onnxruntime() -> None:
    described = {(o.domain, o.name): o for o in runtime.get_all_operator_schema() if (o.domain, o.name) in KNOWN}
    assert {name for domain, name in KNOWN if domain == "com.microsoft"} == set(MICROSOFT)
    for key, theirs in described.items():
        ours = signature(*key)
        assert ours is not None
        assert [i.name for i in ours.inputs] == [i.name.replace(" ", "_") for i in theirs.inputs], key
        assert {a: v.required for a, v in ours.attributes.items()} == {a: v.required for a, v in theirs.attributes.items()}, key
        assert (ours.min_input, ours.max_input) == (theirs.min_input, theirs.max_input), key


def refused(made: onnx.NodeProto, *arrays: str) -> str:
    feed = dict.fromkeys(arrays, np.zeros((2, 3, 12), "f4"))
    with pytest.raises(tt.TatamiError) as told:
        tt.compile(model_of([made], feed, {"y": (1, ["a", "b", "c"])}, {"w": np.zeros((12, 36), "f4")}))
    return str(told.value)


def test_what_a_node_lacks_is_told() -> None:
    assert "needs the attribute 'num_heads'" in refused(node("Attention", ["x", "w"]), "x")
    assert "takes 2 to 7 operands, and has 1" in refused(node("Attention", ["x"], num_heads=3), "x")
    assert "has no operand 'weights'" in refused(node("Attention", ["x", "", "b"], num_heads=3), "x", "b")
    assert "is of type FLOAT" in refused(node("Attention", ["x", "w"], num_heads=1.5), "x")


@pytest.mark.parametrize("rank", [0, 1, 2, 3, 4, 5])
def test_operands_of_any_rank_are_taken_or_refused_with_a_reason(rank: int) -> None:
    """No handler stumbles over floats of 2 by 2 by .. for every operand."""
    for op in sorted({*MICROSOFT} - {"Tokenizer"}):  # strings
        own = signature("com.microsoft", op)
        assert own is not None
        given = {a: _VALUES[v.type.name] for a, v in own.attributes.items() if v.required}
        count = 5 if own.max_input > 100 else own.max_input
        feed = {f"x{i}": np.ones((2,) * rank, "f4") for i in range(count)}
        made = node(op, [*feed], ["y"], **given)
        try:
            load_model(model_of([made], feed, {"y": (1, ["a"])}))
        except tt.TatamiError as told:
            assert "do not fit together" not in str(told), (op, told)


_VALUES: dict[str, Any] = {"INT": 1, "FLOAT": 1.0, "STRING": "relu", "INTS": [1, 1, 0], "FLOATS": [1.0], "STRINGS": ["a"]}
