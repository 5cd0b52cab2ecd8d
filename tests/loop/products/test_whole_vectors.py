"""Products whose results go down the rows of the sums: blocks of rows are whole vectors, so that what follows the products, a GELU
say, is computed in vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.codec import to_builtins
from tatami.loop.ir import Call
from tatami.plan.ir import CpuContraction

LANES = 16


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def pointwise(places: int | str) -> tt.Graph:
    """A 1x1 convolution, whose weights are slivers and whose results lie along the places."""
    g = tt.Graph("pointwise")
    x = g.input("x", (2, 40, places), tt.fp32)
    y = x.conv(g.constant(values(64, 40, 1)), None)
    g.output("y", (y * 0.7071).erf() * y)
    return g


def down_the_rows(graph: tt.Graph) -> tuple[Any, CpuContraction]:
    """The Region's key, and a plan whose blocks have 48 rows."""
    (found,) = prepare(graph, target="cpu:avx512").stages["plan"].main.regions
    plan = found.choices[-1].plan
    assert isinstance(plan, CpuContraction)
    return found.key, msgspec.structs.replace(
        plan, mr=12, nr=32, mc=48, nc=32, swap=False, split="batch", images=(), in_place=()
    )


def calls(node: Any) -> Iterator[Call]:
    if isinstance(node, Call):
        yield node
    if isinstance(node, msgspec.Struct):
        for field in node.__struct_fields__:
            yield from calls(getattr(node, field))
    elif isinstance(node, tuple):
        for item in node:
            yield from calls(item)


@pytest.mark.parametrize("places", [64, 360, 361, 720])
def test_blocks_are_whole_vectors(places: int) -> None:
    """All but the last. Balanced ones of 45 rows would each leave 13 lanes to quarters of vectors and single elements."""
    graph = pointwise(places)
    key, plan = down_the_rows(graph)
    loops = prepare(graph, target="cpu:avx512", decisions={"plans": {key: to_builtins(plan)}}).stages["loop"].main
    rows = {n for kernel in loops.kernels.values() for call in calls(kernel.body) if "gemm" in call.function for n in call.rows}
    broken = [n for n in rows if n % LANES]
    assert rows and len(broken) <= 1 and all((2 * places - n) % LANES == 0 for n in broken), rows


@pytest.mark.parametrize("places", [1, 15, 16, 17, 45, 48, 49, 50, 97, 360])
@pytest.mark.runs_on("cpu:avx512")
def test_any_number_of_places(places: int) -> None:
    graph = pointwise("P")
    key, plan = down_the_rows(graph)
    f = tt.compile(graph, target="cpu:avx512", decisions={"plans": {key: to_builtins(plan)}})
    x = values(2, 40, places)
    want = tt.compile(graph, target="reference")(x=x)["y"]
    np.testing.assert_allclose(f(x=x)["y"], want, rtol=1e-4, atol=1e-4)
