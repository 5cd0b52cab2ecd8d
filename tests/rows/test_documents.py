"""Documents of the stages between model and Region say what holds, and what does not hold of them is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import islpy
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.codec import to_builtins
from tatami.core.diagnostic import TatamiError
from tatami.core.module import Module
from tatami.poly_view.show import access_text, domain_text, outside_text
from tatami.stages import decode_body, show, stage, verify
from tatami.storage.derived import check_derived
from tests.rows.models import attention, gemm

DOCUMENT = json.loads((Path(__file__).parents[2] / "examples" / "spec" / "3-6.8.1-gemm-bias-relu.json").read_text())


def bias_of(document: dict[str, Any]) -> dict[str, Any]:
    """The BroadcastInDim of the bias in the specification's Region."""
    found: dict[str, Any] = document["region"]["lets"][1]["expr"]["add"][1]["BroadcastInDim"]
    return found


@pytest.mark.parametrize(
    ("dims", "words"),
    [([0], "the operand has axis n, which is axis 1"), ([], "the operand has axis n"), ([0, 1], "the operand has no axis 0")],
)
def test_broadcast_dimensions_of_an_inline_operand_are_its_axes(dims: list[int], words: str) -> None:
    made = copy.deepcopy(DOCUMENT)
    bias_of(made)["broadcast_dimensions"] = dims
    with pytest.raises(TatamiError) as error:
        prepare(made)
    (found,) = error.value.diagnostics
    assert found.code == "E1001" and words in found.why


def test_an_operand_of_full_rank_names_all_its_axes() -> None:
    made = copy.deepcopy(DOCUMENT)
    made["region"]["inputs"][2]["memref"]["shape"] = [1, "N"]
    bias_of(made)["operand"]["cast"][0]["read"]["map"] = [0, "n"]
    for dims in ([1], [0, 1]):
        bias_of(made)["broadcast_dimensions"] = dims
        assert prepare(made).stages["region"]
    bias_of(made)["broadcast_dimensions"] = [1, 0]
    with pytest.raises(TatamiError, match="the axes of bias are 0, n"):
        prepare(made)


def test_a_broadcast_that_is_left_out_is_shown_as_inserted() -> None:
    given, short = prepare(DOCUMENT), copy.deepcopy(DOCUMENT)
    short["region"]["lets"][1]["expr"]["add"][1] = bias_of(short)["operand"]
    compilation = prepare(short)
    text = show("region@explicit", compilation.stages["region@explicit"])
    assert "acc + BroadcastInDim(cast(bias[n], fp32), [M, N], [1])" in text
    assert show("region", compilation.stages["region"]) == show("region", given.stages["region"])


# -- indexbook -------------------------------------------------------------------------------------


def refused(graph: tt.Graph, edit: Callable[[dict[str, Any]], None]) -> list[str]:
    """Reasons why the graph's indexbook is refused after an edit of its entries."""
    compilation = prepare(graph)
    book = compilation.stages["indexbook"]
    body = json.loads(json.dumps(to_builtins(book.main)))
    edit(body["values"])
    try:
        edited = Module({"main": decode_body(stage("indexbook"), body, "indexbook", trust=False)}, book.constants, book.origins)
        given = {"tiny": compilation.stages["tiny"], "indexbook": edited}
        if not (found := verify("indexbook", edited, given.get)):
            check_derived(given, compilation.target, trust=False)
        return [d.why for d in found]
    except TatamiError as error:
        return [d.why for d in error.diagnostics]


def read(value: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda values: values[value]["operands"][0]["pieces"][0]


EDITS: dict[str, Callable[[dict[str, Any]], None]] = {
    "a broadcast axis called iter": lambda v: v["n4"]["axes"][1].update(kind="iter"),
    "an iterated axis called broadcast": lambda v: v["n4"]["axes"][0].update(kind="broadcast"),
    "an axis of another name": lambda v: v["n4"]["axes"][0].update(name="iter"),
    "an axis of an input called reduce": lambda v: v["n0"]["axes"][0].update(kind="reduce"),
    "non_scop on an affine value": lambda v: v["n7"].update(flags=["non_scop"]),
    "a remainder in floors": lambda v: read("n4")(v)["read"].update(map=["i0 - 7*(i0//7)", "i2"]),
    "axes exchanged": lambda v: read("n4")(v)["read"].update(map=["i2", "i0"]),
    "a piece twice": lambda v: v["n4"]["operands"][0]["pieces"].append(read("n4")(v)),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_damaged_indexbook_is_refused(name: str) -> None:
    assert refused(gemm(), lambda v: None) == []
    assert refused(gemm(), EDITS[name])


def test_entries_of_an_indexbook_have_all_fields() -> None:
    values = to_builtins(prepare(gemm()).stages["indexbook"].main)["values"]
    fields = {"axes", "operands", "reduced", "reduce_axes", "acc_dtype", "flags", "is_movement", "gathered", "scattered"}
    assert len(values) > 5 and all(set(entry) == fields for entry in values.values())
    assert all(set(a) == {"id", "name", "size", "kind"} for entry in values.values() for a in entry["axes"])


# -- poly_view -------------------------------------------------------------------------------------


def pads() -> tt.Graph:
    g = tt.Graph("g")
    x = g.input("x", ("M", 5), tt.fp32)
    g.output("y", x.pad(((1, 2), (3, 0)), 7.0).exp())
    return g


def test_the_view_of_a_pad_is_the_union_of_both_pieces() -> None:
    (s,) = prepare(pads()).stages["poly_view"].main.statements
    (access,), (outside,) = s.reads, s.outside
    assert outside.fill == 7.0
    inside = islpy.Map(access_text(s, access)).domain()
    rest, domain = islpy.Set(outside_text(s, outside)), islpy.Set(domain_text(s))
    assert inside.is_disjoint(rest) and inside.union(rest).is_equal(domain) and not rest.is_empty()


def test_the_softmax_of_attention_is_named() -> None:
    compilation = prepare(attention())
    view = compilation.stages["poly_view"].main
    (softmax,) = view.row_softmaxes
    roles = {p.role: p for p in view.patterns}
    assert softmax.source == roles["qk_matmul"].value and len(softmax.reduces) == 2
    assert softmax.value in (roles["pv_matmul"].lhs.tensor, roles["pv_matmul"].rhs.tensor)
    assert f"row_softmax {softmax.value}  of {softmax.source} by " in show("poly_view", compilation.stages["poly_view"])
    assert prepare(gemm()).stages["poly_view"].main.row_softmaxes == ()
