"""Each rule of the frontend's verifier on a planted fault."""

import msgspec
import pytest

from tatami.core.dtype import DType
from tatami.core.expr import shape
from tatami.core.module import Module
from tatami.core.signature import Input
from tatami.core.tensor import Tensor, as_array
from tatami.frontend.graph import Graph
from tatami.frontend.ir import Node, TensorType
from tatami.frontend.operations.control import CALLEES
from tatami.frontend.verify import verify

F = DType.fp32


def module():
    g = Graph()
    x = g.input("x", ("N", 4), F)
    g.output("y", (x.relu() * 2).sum(1))
    return g.module()


def changed(graph_change=None, signature_change=None, programs=None):
    m = module()
    graph = m.main
    if graph_change:
        graph = msgspec.structs.replace(graph, **graph_change(graph))
    if signature_change:
        graph = msgspec.structs.replace(
            graph, signature=msgspec.structs.replace(graph.signature, **signature_change(graph.signature))
        )
    return Module({"main": graph, **(programs or {})}, m.constants, m.origins)


def codes(m):
    return [d.code for d in verify(m)]


def test_a_good_module_has_no_faults():
    assert codes(module()) == []


def replace_node(graph, i, **fields):
    nodes = list(graph.graph)
    nodes[i] = msgspec.structs.replace(nodes[i], **fields)
    return {"graph": tuple(nodes)}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda g: replace_node(g, 0, op="rellu"), "E1601"),
        (lambda g: replace_node(g, 0, inputs=("nope",)), "E1602"),
        (lambda g: replace_node(g, 0, inputs=("y",)), "E1604"),
        (lambda g: replace_node(g, 0, inputs=("x", "x")), "E1009"),
        (lambda g: replace_node(g, 0, attrs={"alpha": 1}), "E1009"),
        (lambda g: replace_node(g, 0, name="mul"), "E1603"),
        (lambda g: {"tensors": {**g.tensors, "relu": TensorType(F, shape("N", 5))}}, "E1605"),
        (lambda g: {"tensors": {**g.tensors, "relu": TensorType(DType.fp16, shape("N", 4))}}, "E1605"),
        (lambda g: {"tensors": {k: v for k, v in g.tensors.items() if k != "relu"}}, "E1602"),
        (lambda g: {"graph": (*g.graph, g.graph[0])}, "E1603"),
    ],
)
def test_node_faults(change, code):
    assert code in codes(changed(change))


def test_port_faults():
    dup = lambda s: {"inputs": (*s.inputs, s.inputs[0])}  # noqa: E731
    assert "E1603" in codes(changed(signature_change=dup))
    bad = lambda s: {"inputs": (*s.inputs, Input("z", F, shape("i0")))}  # noqa: E731
    assert "E1305" in codes(changed(signature_change=bad))
    unknown = lambda s: {"inputs": (*s.inputs, Input("z", DType.unknown, ()))}  # noqa: E731
    assert "E1010" in codes(changed(signature_change=unknown))
    updates = lambda s: {"outputs": (msgspec.structs.replace(s.outputs[0], updates="x"),)}  # noqa: E731
    assert "E1009" in codes(changed(signature_change=updates))


def test_constants_have_the_declared_type():
    g = Graph()
    g.output("y", g.constant([1.0, 2.0], "c") * 2)
    m = g.module()
    assert "E1801" in codes(Module(m.programs, {"c": Tensor(as_array([1, 2]))}, m.origins))


def test_main_is_needed():
    assert codes(Module({"f": module().main})) == ["E1605"]


def test_recursion_is_found():
    body = module().main
    call = Node("call", "again", ("x",), ("z",), {"graph": "f"})
    f = msgspec.structs.replace(body, graph=(*body.graph, call), tensors={**body.tensors, "z": TensorType(F, shape("N"))})
    m = Module({"main": body, "f": f})
    assert "E1607" in codes(m)


def test_a_call_of_no_graph_and_a_circle_that_data_end_are_not_recursion():
    """A `loop` whose body is the graph itself may end by data; a call of a graph that does not exist is a fault of its own."""
    body = module().main
    for op, named in (("call", "nowhere"), ("loop", "f")):
        node = Node(op, "again", ("x",), ("z",), {CALLEES[op][0]: named})
        f = msgspec.structs.replace(body, graph=(*body.graph, node), tensors={**body.tensors, "z": TensorType(F, shape("N"))})
        assert "E1607" not in codes(Module({"main": body, "f": f})), op
