"""The shape of what the frontend becomes (that it means the same is tested in tests/frontend/test_meaning.py)."""

import math

import numpy as np
import pytest

from tatami.core.dtype import DType
from tatami.core.expr import expr
from tatami.core.signature import Equation
from tatami.frontend.graph import Graph
from tatami.tiny.ir import CallOp, ConstOp, ReduceOp, SizeOp
from tatami.tiny.lower import lower
from tatami.tiny.show import uop_name
from tatami.tiny.verify import verify

H, F = DType.fp16, DType.fp32


def ops(g):
    return [uop_name(n.op) for n in lower(g.module()).main.nodes if uop_name(n.op) != "INPUT"]


def test_matmul_is_the_reference_sequence():
    g = Graph()
    x, w, b = g.input("X", ("M", "K"), H), g.input("W", ("K", "N"), H), g.input("bias", ("N",), H)
    g.output("Y", x.gemm(w, b).relu())
    want = ["PERMUTE", "RESHAPE", "EXPAND", "RESHAPE", "EXPAND", "MUL", "REDUCE", "CAST", "RESHAPE", "ADD", "CAST", "RELU"]
    assert ops(g) == want
    program = lower(g.module()).main
    (total,) = [n for n in program.nodes if isinstance(n.op, ReduceOp)]
    assert isinstance(total.op, ReduceOp)
    assert (total.op.op, total.op.axes, total.dtype) == ("sum", (2,), F)


def test_conv_is_pad_view_mul_reduce():
    g = Graph()
    x, w = g.input("X", ("N", 3, "H", "W"), F), g.input("K", (8, 3, 3, 3), F)
    g.output("Y", x.conv(w, stride=2, padding=1))
    assert ops(g) == ["PAD", "VIEW", "RESHAPE", "EXPAND", "RESHAPE", "EXPAND", "MUL", "REDUCE"]


def test_attention_has_two_contractions():
    g = Graph()
    q, k, v = (g.input(n, ("B", s, 64), H) for n, s in (("Q", "M"), ("K", "N"), ("V", "N")))
    g.output("O", q.attention(k, v, causal=True))
    nodes = lower(g.module()).main.nodes
    assert [(n.op.op, n.dtype) for n in nodes if isinstance(n.op, ReduceOp)] == [("sum", F), ("max", F), ("sum", F), ("sum", F)]


def test_no_scatter_in_transposed_convolution():
    g = Graph()
    x, w = g.input("X", (1, 3, "L"), F), g.input("K", (3, 4, 3), F)
    g.output("Y", x.conv_transpose(w, stride=2))
    assert "SCATTER" not in ops(g)


@pytest.mark.parametrize(
    ("kernel", "stride", "products"), [(3, 2, 9), (2, 2, 4), (1, 2, 1), (4, 2, 16), (5, 4, 64), (5, 1, 25)]
)
def test_a_transposed_convolution_multiplies_by_few_zeros(kernel: int, stride: int, products: int):
    """Products for each element of x and filter: 16 and 4 where phases of 3 and 1 taps were filled up; 25 phases of 4 are not
    worth 25 kernels."""
    g, size = Graph(), 64
    x, w = g.input("X", (1, 8, size, size), F), g.input("K", (8, 4, kernel, kernel), F)
    g.output("Y", x.conv_transpose(w, stride=stride))
    nodes = lower(g.module()).main.nodes
    sums = [n for n in nodes if isinstance(n.op, ReduceOp)]
    made = sum(math.prod(int(str(s)) for n in nodes if n.id == r.src[0] for s in n.shape) for r in sums)
    assert made / (8 * 4 * size * size) == pytest.approx(products, rel=0.15)


def test_an_unproved_reshape_is_an_assumption():
    g = Graph()
    g.output("y", g.input("x", ("N",), F).reshape("N//4", 4))
    (equation,) = lower(g.module()).main.signature.assumptions
    assert equation == Equation(expr("N"), expr("4*(N//4)"), "reshape")


def test_rank_0_constants_become_const():
    g = Graph()
    g.output("y", g.input("x", (2,), F) * g.constant(np.array(3.0, np.float32)))
    nodes = lower(g.module()).main.nodes
    assert any(isinstance(n.op, ConstOp) and n.op.value == 3.0 for n in nodes)
    assert [uop_name(n.op) for n in nodes].count("INPUT") == 1


def test_a_constant_that_counts_is_indices_and_no_other_is():
    def inputs(*numbers):
        g = Graph()
        g.output("y", g.input("x", (1, len(numbers)), DType.i64) + g.constant(np.array([numbers], np.int64)))
        program = lower(g.module()).main
        return ops(g), [n.tensor for n in program.signature.inputs]

    assert inputs(7, 5, 3)[0] == ["IOTA", "CONST", "MUL", "CONST", "ADD", "ADD"]
    for others in ((0, 1, 3), (4, 4, 4), (0,), (1 << 40, (1 << 40) + 1)):
        kinds, names = inputs(*others)
        assert "IOTA" not in kinds and len(names) == 2


def test_symbolic_means_divide_by_a_size():
    g = Graph()
    g.output("y", g.input("x", ("N", 3), F).mean(0))
    assert any(isinstance(n.op, SizeOp) for n in lower(g.module()).main.nodes)


def test_every_node_has_an_origin():
    g = Graph()
    g.output("y", g.input("x", ("N", 3), F).softmax())
    m = lower(g.module())
    assert all(m.origins["main"][n.id] for n in m.main.nodes)


def test_callees_get_their_constants_from_the_caller():
    g = Graph()
    f, h = g.subgraph("f"), g.subgraph("h")
    f.output("y", f.input("a", (2,), F) + f.constant(np.ones(2, np.float32), "c"))
    h.output("y", h.call(f, h.input("a", (2,), F)))
    g.output("y", g.call(h, g.input("x", (2,), F)))
    m = lower(g.module())
    assert [p.tensor for p in m.main.signature.inputs] == ["x", "c"]
    assert [(p.tensor, p.storage) for p in m.programs["h"].signature.inputs] == [("a", "argument"), ("c", "argument")]
    (call,) = [n for n in m.main.nodes if isinstance(n.op, CallOp)]
    assert len(call.src) == 2


def test_ten_thousand_nodes_lower():
    g = Graph()
    x = g.input("x", (2,), F)
    for _ in range(10_000):
        x = -x
    g.output("y", x)
    assert len(lower(g.module()).main.nodes) == 10_001


def test_a_graph_that_nothing_calls_may_read_constants() -> None:
    g = Graph("main")
    f = g.subgraph("f")
    a = f.input("a", (4,), DType.fp32)
    f.output("b", a * f.constant(np.arange(4, dtype=np.float32), name="w"))
    g.output("y", g.input("x", (4,), DType.fp32).exp())
    module = lower(g.module())
    assert [p.tensor for p in module.programs["f"].signature.inputs] == ["a", "w"] and not verify(module)
