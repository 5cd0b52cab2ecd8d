"""Slices of an axis whose size is a symbol are numpy's at every size, 0 included."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import tatami as tt
from tatami.core.algebra.size_forms import slice_size
from tatami.core.algebra.visit import evaluate
from tatami.core.expr import expr
from tatami.frontend.graph_api.slices import slice_bounds

BOUNDS = (None, *range(-7, 8))
STEPS = (None, 1, 2, 3, -1, -2, -3)
KEYS = [slice(*key) for key in product((None, 0, 2, -1, -3), (None, 1, 4, -2, -5), (1, 2, -1, -2))]


def test_bounds_are_numpys_at_every_size() -> None:
    """Bounds with a symbol, then its value, mean what numpy reads of an axis of that size."""
    n = expr("N")
    for start, stop, step in product(BOUNDS, BOUNDS, STEPS):
        lo, hi, stride, reverse = slice_bounds(slice(start, stop, step), n)
        count = slice_size(lo, hi, stride, n)
        for size in range(7):
            values = {"N": size}
            axis = np.arange(size)[::-1] if reverse else np.arange(size)
            first, last = evaluate(lo, values), evaluate(hi, values)
            assert 0 <= first <= last and (last <= size or first == last)
            wanted = np.arange(size)[start:stop:step]
            assert axis[first:last:stride].tolist() == wanted.tolist(), (start, stop, step, size)
            assert evaluate(count, values) == len(wanted), (start, stop, step, size)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_slices_equal_numpy_at_every_size(target: str) -> None:
    """Plain, doubled, sliced again and joined, on one symbolic axis of 0 … 6 elements."""
    g = tt.Graph("slices")
    x = g.input("x", ("N", 2), tt.fp32)
    for i, key in enumerate(KEYS):
        g.output(f"y{i}", x[key] * 2.0)
    g.output("again", x[1:][:-1][::2] + 1.0)
    g.output("difference", x[1:] - x[:-1])
    g.output("joined", g.concat([x[-1:], x[:-1]], 0) - x)
    g.output("padded", x[2:].pad([(1, 2), (0, 0)]))
    f = tt.compile(g, target=target)
    for size in range(7):
        a = np.arange(2 * size, dtype=np.float32).reshape(size, 2)
        wanted = {f"y{i}": a[key] * 2 for i, key in enumerate(KEYS)}
        wanted["again"] = a[1:][:-1][::2] + 1
        wanted["difference"] = a[1:] - a[:-1]
        wanted["joined"] = np.concatenate([a[-1:], a[:-1]]) - a
        wanted["padded"] = np.pad(a[2:], [(1, 2), (0, 0)])
        got = f(x=a)
        for name, array in wanted.items():
            np.testing.assert_array_equal(got[name], array, f"{name} at size {size}")


def test_one_size_has_one_form() -> None:
    g = tt.Graph("g")
    x, y = g.input("x", ("N",), tt.fp32), g.input("y", ("2*M",), tt.fp32)
    forms = {
        "max(0, N - 1)": (x[1:], x[:-1], x[::-1][1:], x[:0:-1]),
        "max(0, N - 2)": (x[2:], x[1:][1:], x[1:-1]),
        "min(1, N)": (x[:1], x[-1:]),
        "max(0, min(5, N) - 2)": (x[2:5],),
        "N": (x[::-1], g.concat([x[:1], x[1:]], 0), g.concat([x[:-1], x[-1:]], 0)),
        "M": (y[::2], y[1::2], y[:"M"], y["M":]),
    }
    assert {size: {str(t.shape[0]) for t in parts} for size, parts in forms.items()} == {size: {size} for size in forms}


def test_a_bound_that_is_a_size_is_kept_inside_the_axis() -> None:
    f = tt.compile(tt.parse("graph<N, K> main(x: f32[N], k: f32[K]) -> f32[max(0, N - K)] { return x[K:] * 1.0 }"))
    for n, k in product(range(4), range(4)):
        a = np.arange(n, dtype=np.float32)
        assert f(x=a, k=np.zeros(k, np.float32))["output"].tolist() == a[k:].tolist()


def test_a_slice_meets_what_it_equals_from_some_size_on() -> None:
    """x[1:] and N - 1 elements, rows end to end and N: taken to be equal, checked when sizes are bound."""
    text = """graph<N> main(x: f32[N], w: f32[M]) -> (y: f32[N], z: f32[M], f: f32[N]) {
        inner = x[2:] - x[:-2]
        return concat([x[:1], inner, x[-1:]], 0) + x, x[1:] * w, x[:1].expand([N])
    }""".replace("M", "N - 1")
    for target in ("reference", "cpu"):
        f = tt.compile(tt.parse(text), target=target)
        for n in (2, 3, 9):
            x, w = np.arange(n, dtype=np.float32) ** 2, np.arange(n - 1, dtype=np.float32) + 1
            got = f(x=x, w=w)
            np.testing.assert_array_equal(got["y"], np.concatenate([x[:1], x[2:] - x[:-2], x[-1:]]) + x)
            np.testing.assert_array_equal(got["z"], x[1:] * w)
            np.testing.assert_array_equal(got["f"], np.broadcast_to(x[:1], n))
        with pytest.raises(tt.TatamiError, match="E1304"):
            f(x=np.ones(1, np.float32), w=np.ones(0, np.float32))
    with pytest.raises(tt.TatamiError, match="E1001"):
        tt.parse("graph<N> main(x: f32[N]) -> f32[N] { return x[1:] + x }")


def test_more_elements_than_64_bits_count_are_one_diagnostic() -> None:
    g = tt.Graph("g")
    g.output("y", g.input("x", (1, 1, 1), tt.fp32).expand([10**12, 10**12, 3]).sum())
    for target in ("reference", "cpu"):
        with pytest.raises(tt.TatamiError, match="E1304"):
            tt.compile(g, target=target)(x=np.ones((1, 1, 1), np.float32))


def test_a_reshape_that_does_not_fit_is_one_diagnostic() -> None:
    g = tt.Graph("g")
    g.output("y", g.input("x", ("N",), tt.fp32).reshape(("M", 4)))
    for target in ("reference", "cpu"):
        with pytest.raises(tt.TatamiError, match="E1304"):
            tt.compile(g, target=target, sizes={"M": 2})(x=np.ones(7, np.float32))
