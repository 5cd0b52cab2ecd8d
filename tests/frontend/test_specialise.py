"""Size symbols replaced in a frontend module."""

import numpy as np

from tatami.core.dtype import DType
from tatami.core.expr import expr
from tatami.frontend.graph import Graph
from tatami.frontend.run import run
from tatami.frontend.specialise import specialise
from tatami.frontend.verify import verify


def test_attributes_are_specialised_too():
    g = Graph()
    x = g.input("x", ("N", 4), DType.fp32)
    g.output("y", x[1:].reshape("2*N - 2", 2) + g.full(("2*N - 2", 2), 1.0, DType.fp32))
    m = specialise(g.module(), {"N": expr(3)})
    assert verify(m) == []
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(run(m, {"x": a})["y"], a[1:].reshape(4, 2) + 1)
