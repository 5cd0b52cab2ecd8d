"""Windows wider than the tensor."""

from __future__ import annotations

import numpy as np
import pytest

import tatami as tt

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("padding", [0, 1])
def test_a_window_wider_than_the_tensor_reads_only_what_is_there(include: bool, padding: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    g = tt.Graph("pools")
    node = g.input("x", x.shape, tt.fp32)
    pads = (padding, padding)
    attrs = {"kernel": (1000, 3), "stride": (1000, 2), "padding": (pads, pads), "ceil_mode": True}
    g.output("mean", node.op("avg_pool", count_include_pad=include, **attrs))
    g.output("most", node.op("max_pool", **attrs))
    g.output("where", node.op("max_pool_indices", **attrs))
    f = tt.compile(g)
    got = f(x=x)
    t = torch.from_numpy(x)
    mean = torch.nn.functional.avg_pool2d(t, (1000, 3), (1000, 2), padding, True, include)
    most, where = torch.nn.functional.max_pool2d(t, (1000, 3), (1000, 2), padding, 1, True, return_indices=True)
    np.testing.assert_allclose(got["mean"], mean.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(got["most"], most.numpy())
    np.testing.assert_array_equal(got["where"] % 20, where.numpy())
    assert max(n.shape[-1].as_int() or 0 for n in f.stages["tiny"].value.main.nodes if n.shape) < 100


@pytest.mark.parametrize("dilation", [1, 2, 3])
def test_the_largest_of_a_window_of_minus_infinities_is_the_first_inside(dilation: int) -> None:
    x = np.full((1, 2, 9, 8), -np.inf, np.float32)
    x[0, 1, 4, 4] = 1.0
    g = tt.Graph("pools")
    node = g.input("x", x.shape, tt.fp32)
    pads = (1, 1)
    attrs = {"kernel": (3, 3), "stride": (1, 2), "padding": (pads, pads), "dilation": (dilation, dilation)}
    g.output("where", node.op("max_pool_indices", **attrs))
    where = torch.nn.functional.max_pool2d(torch.from_numpy(x), 3, (1, 2), 1, dilation, return_indices=True)[1]
    for target in ("cpu", "reference"):
        (got,) = tt.compile(g, target=target)(x=x).values()
        np.testing.assert_array_equal(np.asarray(got), where.numpy() + np.array([0, 72]).reshape(1, 2, 1, 1))
