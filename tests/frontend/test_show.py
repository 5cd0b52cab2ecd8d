"""The dump of a frontend module."""

import numpy as np

from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.frontend.show import show

WANT = """main(
    x: fp32[B, 4],
    w: fp32[4, 2] param const_pool,
) -> y: fp32[B, 2]
  matmul: fp32[B, 2]                       = matmul(x, w)
  y: fp32[B, 2]                            = softmax(matmul) axis=1
"""


def graph():
    g = Graph("mlp")
    x = g.input("x", ("B", 4), DType.fp32)
    w = g.constant(np.ones((4, 2), np.float32), "w", role="param")
    g.output("y", (x @ w).softmax(1))
    return g


def test_one_line_per_node():
    text = show(graph().module())
    assert text == WANT.replace("softmax(matmul) axis=1", "softmax(matmul) axis=1  # softmax")


def test_dot_names_every_node():
    text = graph().to_dot()
    assert text.startswith("digraph")
    assert "softmax\\nfp32[B, 2]" in text
