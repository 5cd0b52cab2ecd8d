"""Nodes without an import: one diagnostic that names every one, wherever it hides."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

import tatami as tt
from tatami.core.diagnostic import Diagnostic

FLOAT, BOOL, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64


def port(name: str, kind: int = FLOAT, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes: list[onnx.NodeProto], functions: list[onnx.FunctionProto] | None = None) -> onnx.ModelProto:
    inputs = [port("x", FLOAT, 2), port("c", BOOL), port("n", INT64)]
    graph = helper.make_graph(nodes, "g", inputs, [port("y", FLOAT, 2)])
    sets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, functions=functions or [], opset_imports=sets, ir_version=9)


def refused(made: onnx.ModelProto) -> Diagnostic:
    with pytest.raises(tt.TatamiError) as caught:
        tt.compile(made)
    (found,) = caught.value.diagnostics
    return found


def strange(number: int, result: str = "y") -> onnx.NodeProto:
    """The nodes are of three kinds: one of ONNX, one unknown to ONNX, one of a domain of its own."""
    op, domain = (("ImageDecoder", ""), ("Frobnicate", ""), ("Mix", "own"))[number % 3]
    return helper.make_node(op, ["x"], [result], name=f"strange_{number}", domain=domain)


def test_ten_unknown_nodes_in_branches_bodies_and_functions_are_one_diagnostic() -> None:
    deep = helper.make_graph([strange(0, "t")], "deep", [], [port("t")])
    nested = helper.make_node("If", ["c"], ["t"], then_branch=deep, else_branch=deep)
    body = helper.make_graph(
        [strange(1, "a"), nested, strange(2, "more")],
        "body",
        [port("i", INT64), port("go", BOOL)],
        [port("more", BOOL)],
    )
    branch = helper.make_graph([strange(3, "b")], "branch", [], [port("b")])
    nodes = [
        helper.make_node("Loop", ["n", ""], [], body=body),
        helper.make_node("If", ["c"], ["d"], then_branch=branch, else_branch=branch),
        strange(4, "e"),
        helper.make_node("F", ["x"], ["f"], domain="own"),
        strange(5),
    ]
    function = helper.make_function("own", "F", ["x"], ["y"], [strange(6, "y"), strange(7, "z")], model([]).opset_import)
    found = refused(model(nodes, [function]))
    assert (found.kind, found.at) == ("UnsupportedModel", "model")
    lines = found.why.splitlines()
    assert lines[0] == "10 nodes of 3 operators cannot be imported"
    told = sorted(line.split(":")[0].strip() for line in lines[1:])
    assert told == sorted([f"strange_{i}" for i in range(8)] + ["strange_0", "strange_3"])  # two branches are one graph twice
    assert "the operator own.Mix is not supported: ONNX has none of that name" in found.why
    for how in ("rewrite ImageDecoder", "a function Frobnicate", "a function Mix of domain 'own'"):
        assert how in found.suggestion


def test_one_unknown_node_is_named_by_the_place() -> None:
    assert refused(model([strange(1)])).at == "strange_1"


def test_only_so_many_nodes_are_told() -> None:
    why = refused(model([strange(1, f"t{i}") for i in range(150)] + [strange(1)])).why
    assert why.startswith("151 nodes of one operator")
    assert why.endswith("and 51 more")
    assert len(why.splitlines()) == 102


def test_an_operator_whose_name_is_no_text_is_refused() -> None:
    """protobuf gives such a name as bytes."""
    data = model([strange(1)]).SerializeToString().replace(b"Frobnicate", b"Frobn\xff\xffate")
    found = refused(onnx.ModelProto.FromString(data))
    assert (found.kind, found.at) == ("InvalidDocument", "node 0")
