"""Text that the C compiler reads in less time: loops that have their last vector, kernels that make constants."""

from __future__ import annotations

import numpy as np
import pytest

import tatami as tt
from tatami.loop.ir import Fma, For, Store
from tatami.loop.walk import nodes

ROWS, PLACES = 8, 9


def depthwise(height: int | str, width: int | str) -> tt.Graph:
    """A window over a function of an image, whose rows are copied: those of an image itself may be read where they lie."""
    g, rng = tt.Graph("window"), np.random.default_rng(0)
    w = g.constant(rng.standard_normal((4, 1, 3, 3)).astype(np.float32))
    g.output("y", (g.input("x", (1, 4, height, width), tt.fp32) * 0.5).conv(w, groups=4, padding=1).relu())
    return g


@pytest.mark.parametrize(("height", "width"), [("H", "W"), (16, 37), (16, 48)])
def test_a_window_has_one_loop_over_whole_vectors_and_the_last_one(height: int | str, width: int | str) -> None:
    """The long text of the sums stands once for a group of rows, and once for rows left over where there may be some."""
    f = tt.compile(depthwise(height, width), target="cpu")
    kernels = f.stages["loop"].value.main.kernels.values()
    loops = [n for k in kernels for n in nodes(k.body) if isinstance(n, For) and n.simd]
    sums = [sum(isinstance(n, Fma) for n in nodes(loop.body)) for loop in loops]
    assert sorted((n for n in sums if n), reverse=True) == [ROWS * PLACES, *([PLACES] if height == "H" else [])]
    cut = any(isinstance(n, Store) and n.active is not None for loop in loops for n in nodes(loop.body))
    assert cut == (width != 48)
    shape = (1, 4, 19 if isinstance(height, str) else height, 37 if isinstance(width, str) else width)
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    wanted = tt.compile(depthwise(*shape[2:]), target="reference")(x=x)["y"]
    np.testing.assert_allclose(f(x=x)["y"], wanted, rtol=1e-5, atol=1e-5)


def test_kernels_that_make_constants_are_compiled_in_less_time() -> None:
    """A kernel of `setup` runs once; the same work of `main` is compiled for speed, and is another kernel."""
    g, rng = tt.Graph("constants"), np.random.default_rng(0)
    w = g.constant(rng.standard_normal((64, 33)).astype(np.float32))
    v = g.input("v", (64, 33), tt.fp32)
    g.output("y", g.input("x", (64, 33), tt.fp32) * w.exp())
    g.output("z", v.exp())
    f = tt.compile(g)
    loop, units = f.stages["loop"].value, f.stages["c"].value.main.units
    once = set(loop.programs["setup"].kernels)
    assert once and not once & set(loop.main.kernels)
    assert all(units[f"{s}.c"].light for s in once) and not any(units[f"{s}.c"].light for s in loop.main.kernels)
    x = rng.standard_normal((64, 33)).astype(np.float32)
    reference = tt.compile(g, target="reference")
    for name, array in reference(x=x, v=x).items():
        np.testing.assert_allclose(f(x=x, v=x)[name], array, rtol=1e-6)
