"""Convolutions with constant weights, as programs: what the tests of their templates share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

import tatami as tt
from tatami.core.codec import to_builtins
from tatami.loop.verify import verify as verify_loops
from tatami.plan.choose_cpu import asked, cpu_candidates
from tatami.plan.ir import CpuPlaces, CpuPlanes, CpuWinograd
from tatami.plan.named_region import constant_tensors

Make = Callable[[tt.Graph, Any], Any]
P = TypeVar("P", CpuPlaces, CpuPlanes, CpuWinograd)


def weights(filters: int, channels: int, size: int | tuple[int, ...] = 3, dtype: Any = np.float32) -> np.ndarray:
    window = (size, size) if isinstance(size, int) else size
    made = np.random.default_rng(filters + channels).standard_normal((filters, channels, *window))
    return (made / np.prod((channels, *window)) ** 0.5).astype(dtype)


def convolution(filters: int, channels: int, size: int | tuple[int, ...] = 3, **attributes: Any) -> Make:
    def make(g: tt.Graph, x: Any) -> Any:
        w = weights(filters, channels // attributes.get("groups", 1), size)
        b = np.random.default_rng(1).standard_normal(filters).astype(np.float32)
        return x.conv(g.constant(w), g.constant(b), **attributes).relu()

    return make


def with_residual(g: tt.Graph, x: Any) -> Any:
    """An epilogue that reads along the pixels."""
    return (convolution(24, 24, padding=1)(g, x) + x).tanh()


def curved(make: Make) -> Make:
    """The convolution's result through functions that take as long for a vector as for an element, so that the ends of rows are whole vectors too."""

    def made(g: tt.Graph, x: Any) -> Any:
        y = make(g, x)
        return y * y.sigmoid() + y.erf()

    return made


def graph(make: Make, shape: tuple[Any, ...], dtype: Any = tt.fp32) -> tt.Graph:
    g = tt.Graph("convolution")
    g.output("y", make(g, g.input("x", shape, dtype)))
    return g


def compiled(make: Make, shape: tuple[Any, ...], kind: type[P], dtype: Any = tt.fp32, **options: Any) -> Any:
    """The program whose convolution is planned by `kind`, whether the estimate takes that or another."""
    f = tt.compile(graph(make, shape, dtype), **options)
    regions, (chosen,) = f.stages["region"].value, f.stages["plan"].value.main.regions
    if isinstance(chosen.choices[-1].plan, kind):
        return f
    (region,), (facts,) = regions.main.body, f.stages["poly_core"].value.main.regions
    hints = {n: s if isinstance(s, int) else s[1] for n, s in options.get("sizes", {}).items()}
    found, _ = cpu_candidates(asked(region, facts, f.compilation.target, hints, constant_tensors(regions, "main")))
    plan = next(c.plan for c in found if isinstance(c.plan, kind))
    return tt.compile(graph(make, shape, dtype), decisions={"plans": {chosen.key: to_builtins(plan)}}, **options)


def plan_of(f: Any, kind: type[P]) -> tuple[Any, str, P]:
    """The Region, the key and the plan of the one convolution."""
    (region,) = (r for r in f.stages["region"].value.main.body)
    (chosen,) = f.stages["plan"].value.main.regions
    plan = chosen.choices[-1].plan
    assert isinstance(plan, kind)
    return region, chosen.key, plan


def sample(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def check(f: Any, kind: type[P], make: Make, x: np.ndarray, tolerance: float = 2e-6) -> None:
    plan_of(f, kind)
    assert verify_loops(f.stages["loop"].value) == []
    wanted = tt.compile(graph(make, x.shape, f.stages["frontend"].value.main.signature.inputs[0].dtype), target="reference")
    got, want = f(x=x)["y"], wanted(x=x)["y"]
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= tolerance * np.abs(want).max()
