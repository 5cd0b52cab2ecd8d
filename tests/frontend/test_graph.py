"""The Graph API."""

from typing import Any

import numpy as np
import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import expr, shape
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.place import placed
from tatami.frontend.run import run
from tatami.frontend.verify import verify

F = DType.fp32


def fails(call):
    with pytest.raises(TatamiError) as e:
        call()
    return e.value.diagnostics[0]


def test_results_have_the_names_of_their_outputs():
    g = Graph()
    x = g.input("x", ("N",), F)
    y = x * 2
    g.output("relu", (y + 1).relu())
    g.output("double", y)
    m = g.module()
    assert verify(m) == []
    assert [o.tensor for o in m.main.signature.outputs] == ["relu", "double"]
    got = run(m, {"x": np.array([-1, 1], np.float32)})
    np.testing.assert_array_equal(got["relu"], [0, 3])
    np.testing.assert_array_equal(got["double"], [-2, 2])


def test_an_input_may_be_an_output_and_a_tensor_two_outputs():
    g = Graph()
    x = g.input("x", (2,), F)
    y = -x
    for name, t in (("a", x), ("b", y), ("c", y)):
        g.output(name, t)
    assert verify(g.module()) == []
    got = run(g.module(), {"x": np.ones(2, np.float32)})
    assert [got[k][0] for k in "abc"] == [1, -1, -1]


def test_numbers_take_the_dtype_of_what_they_meet():
    g = Graph()
    i = g.input("i", (3,), DType.i64)
    assert (i + 1).dtype == DType.i64
    assert (1 - i).dtype == DType.i64
    assert g.where(i > 0, i, 0).dtype == DType.i64
    assert fails(lambda: i * 0.5).code == "E1006"


def test_an_unknown_number_is_decided_later():
    g = Graph()
    two = g.number(2) * g.number(3)
    assert two.dtype == DType.unknown
    x = g.input("x", (3,), DType.fp16)
    y = x * two
    assert (two.dtype, y.dtype) == (DType.fp16, DType.fp16)
    g.output("y", y)
    assert verify(g.module()) == []


def test_a_number_that_meets_nothing_is_an_error():
    g = Graph()
    g.output("y", g.number(2))
    assert fails(g.module).code == "E1010"


def test_an_operation_with_one_result_takes_a_name_and_a_place():
    g = Graph()
    x = g.input("x", (2,), F)
    made = [g.one("relu", x, node="first"), x.one("relu", node="second")]
    assert [t.name for t in made] == ["first", "second"]
    assert fails(lambda: x.one("relu", at="model.py:7", slope=1)).at == "model.py:7"


def test_mismatch_names_the_expand_to_write():
    g = Graph()
    x, b = g.input("x", ("M", "N"), F), g.input("b", ("N",), F)
    d = fails(lambda: x + b)
    assert d.code == "E1001"
    assert "expand(shape=[M, N])" in d.suggestion
    c = g.input("c", ("M",), F)
    assert "expand(shape=[M, N], dims=[0])" in fails(lambda: x + c).suggestion
    assert "test_graph.py" in d.at


def test_two_bare_symbols_are_an_alignment_error():
    g = Graph()
    assert fails(lambda: g.input("x", ("M",), F) + g.input("y", ("N",), F)).code == "E1304"


def test_dtype_mismatch_names_the_cast():
    g = Graph()
    d = fails(lambda: g.input("x", (3,), F) + g.input("y", (3,), DType.fp16))
    assert d.code == "E1006"
    assert "cast(to=fp32)" in d.suggestion


@pytest.mark.parametrize("name", ["i0", "r12", "min", "1x", "a b", "N;"])
def test_illegal_size_symbols(name):
    assert fails(lambda: Graph().input("x", (name,), F)).code in ("E1305",)


def test_names_that_no_file_can_hold_are_refused():
    g = Graph()
    x = g.input("x", (2,), F)
    for call in (lambda: g.input("\ud800", (2,), F), lambda: g.output("y\udfff", x), lambda: g.constant(np.ones(2), "\ud800")):
        d = fails(call)
        assert d.code == "E1009" and "surrogate" in d.why


def test_slicing_as_numpy():
    g = Graph()
    a = np.arange(60).reshape(5, 12).astype(np.float32)
    x = g.input("x", ("M", 12), F)
    keys: list[Any] = [np.s_[1:, ::2], np.s_[::-1], np.s_[-1], np.s_[..., None, 3:1:-1], np.s_[:, -5:-2], np.s_[None, 2], np.s_[3:1], np.s_[7:],
            np.s_[:, 10:2:-3], np.s_[-3:], np.s_[:-1, 0], np.s_[:9]]  # fmt: skip
    for k, key in enumerate(keys):
        g.output(f"y{k}", x[key])
    got = run(g.module(), {"x": a})
    for k, key in enumerate(keys):
        np.testing.assert_array_equal(got[f"y{k}"], a[key])


def test_reshape_infers_one_size():
    g = Graph()
    x = g.input("x", ("B", 4, 6), F)
    assert x.reshape(-1, 24).shape == shape("B", 24)
    assert x.reshape(2, -1).shape == (expr(2), expr("12*B"))


def test_a_mutable_input_is_updated():
    g = Graph()
    cache = g.input("cache", (3,), F, role="state", mutability="mutable")
    g.update(cache, cache + 1)
    (out,) = g.module().main.signature.outputs
    assert out.updates == "cache"
    assert verify(g.module()) == []
    assert fails(lambda: g.update(g.input("x", (3,), F), cache)).code == "E1009"


def test_constants_are_const_pool_inputs():
    g = Graph()
    w = g.constant(np.ones((2, 3), np.float32), "w")
    g.output("y", g.input("x", ("N", 2), F) @ w)
    m = g.module()
    (weight,) = (p for p in m.main.signature.inputs if p.tensor == "w")
    assert weight.storage == "const_pool"
    assert m.constants["w"].shape == (2, 3)


def test_calls_bind_the_callee_s_sizes():
    g = Graph()
    f = g.subgraph("f")
    a = f.input("a", ("N", "M"), F)
    f.output("y", a.sum(0))
    assert g.call(f, g.input("x", ("B", 5), F)).shape == shape(5)
    assert fails(lambda: g.call(f, g.input("z", (5,), F))).code == "E1001"
    assert fails(lambda: g.call(f)).code == "E1801"


def test_branches_must_agree():
    g = Graph()
    yes, no = g.subgraph("yes"), g.subgraph("no")
    yes.output("y", yes.input("a", ("N",), F) * 2)
    no.output("y", no.input("a", ("N",), F).sum())
    x = g.input("x", (4,), F)
    assert fails(lambda: g.cond(x.sum() > 0, yes, no, x)).code == "E1001"


def test_a_tensor_of_another_graph_is_refused():
    g = Graph()
    x = g.subgraph("f").input("a", (2,), F)
    assert fails(lambda: g.output("y", x)).code == "E1602"


def test_nodes_remember_their_python_line():
    g = Graph()
    g.output("y", g.input("x", (2,), F).exp())
    assert g.module().origins["main"]["exp"][0].startswith("test_graph.py:")


def test_ten_thousand_nodes_are_ordinary():
    g = Graph()
    x = g.input("x", (2,), F)
    for _ in range(10_000):
        x = -x
    g.output("y", x)
    assert len(g.module().main.graph) == 10_000
    assert verify(g.module()) == []


def test_bad_attributes_are_named():
    g = Graph()
    x = g.input("x", (2, 3), F)
    assert "axis" in fails(lambda: x.op("softmax", axes=1)).suggestion
    assert fails(lambda: x.op("sofmax")).code == "E1601"
    assert fails(lambda: x.softmax(2)).code == "E1008"
    assert fails(lambda: x.permute(0, 0)).code == "E1003"
    assert fails(lambda: x.reshape(7)).code == "E1002"
    assert fails(lambda: x.op("exp").op("reduce_and")).code == "E1007"


def test_nodes_can_be_traced_to_a_place_in_a_text() -> None:
    g = Graph("t")
    with placed("model.harp:3:9"):
        y = g.input("x", (3,), DType.fp32).exp()
    assert g.origins == {"x": ("model.harp:3:9",), "exp": ("model.harp:3:9",)}
    y.exp()
    assert g.origins["exp_1"][0].startswith("test_graph.py:")


def test_the_result_of_the_last_node_can_be_renamed() -> None:
    g = Graph("t")
    x = g.input("x", (3,), DType.fp32)
    y = x.exp()
    g.rename(y, "scores")
    z = y.exp()
    g.rename(z, "scores")
    values, places = z.sort()
    g.rename(places, "order")
    g.output("y", values)
    assert [(n.name, n.inputs, n.outputs) for n in g.nodes] == [
        ("scores", ("x",), ("scores",)),
        ("scores_1", ("scores",), ("scores_1",)),
        ("sort", ("scores_1",), ("sort.0", "order")),
    ]
    assert g.module().main.graph[-1].outputs == ("y", "order")


def test_a_number_that_was_renamed_still_takes_the_dtype_it_meets() -> None:
    g = Graph("t")
    half = g.number(0.5)
    g.rename(half, "half")
    g.output("y", g.input("x", (3,), DType.fp16) * half)
    assert g.module().main.graph[0].attrs == {"value": 0.5, "dtype": "fp16"}
