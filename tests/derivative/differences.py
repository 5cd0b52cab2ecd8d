"""Derivatives against central differences of the float64 meaning, along random directions."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np

from tatami.core.dtype import DType
from tatami.core.module import Module
from tatami.derivative.api import gradient
from tatami.frontend import ir
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.reopen import closed, reopened
from tatami.frontend.run import run

STEP = 1e-6
"""Distance of a central difference: its own error, of order STEP**2, and the rounding of float64 are both below 1e-8."""
Inputs = dict[str, np.ndarray]


def with_loss(module: Module[ir.Graph], name: str = "loss_") -> Module[ir.Graph]:
    """The module with one more output: the sum of all elements of its float outputs, each with another weight."""
    g = reopened(module)
    total: Tensor | None = None
    for k, o in enumerate(module.main.signature.outputs):
        if o.dtype.is_float and not o.dtype.is_small:
            line = Tensor(g, o.tensor).cast(DType.fp64).reshape((-1,))
            weights = (g.one("iota", shape=line.shape, axis=0).cast(DType.fp64) * 0.7 + float(k + 1)).cos()
            part = (line * weights).sum()
            total = part if total is None else total + part
    assert total is not None, "a float output"
    g.output(name, total)
    return closed(g, module)


def variables(module: Module[ir.Graph]) -> list[str]:
    """The float arguments of a module."""
    ports = module.main.signature.inputs
    return [p.tensor for p in ports if p.storage == "argument" and p.dtype.is_float and not p.dtype.is_small]


def smooth(inputs: Inputs, name: str) -> Inputs:
    """The inputs in float64, moved off the corners of piecewise functions, where a difference is not a derivative."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    out: Inputs = {}
    for key, value in inputs.items():
        if np.issubdtype(value.dtype, np.integer) or value.dtype == np.bool_:
            out[key] = value
            continue
        moved = value.astype(np.float64) + rng.uniform(-0.03, 0.03, value.shape)
        out[key] = np.abs(moved) + 0.2 if key.startswith("positive") else moved
    return out


def error(module: Module[ir.Graph], inputs: Inputs, sizes: dict[str, int], of: str = "loss_") -> float:
    """The largest difference, relative to the sum of both, between the derivative along a direction and its difference."""
    wrt = variables(module)
    results = list(run(gradient(module, of=of, wrt=wrt), inputs, sizes, mode="float64").values())
    derivative = dict(zip(wrt, results[-len(wrt) :], strict=True))
    return along(lambda at: float(run(module, at, sizes, mode="float64")[of]), derivative, inputs)


def along(function: Callable[[Inputs], float], derivative: Inputs, inputs: Inputs) -> float:
    """The same of a function of arrays and its derivative by some of them."""
    rng = np.random.default_rng(7)
    worst = 0.0
    for _ in range(2):
        way = {k: rng.normal(size=np.shape(v)) for k, v in derivative.items()}
        up, down = (function({k: v + s * STEP * way[k] if k in way else v for k, v in inputs.items()}) for s in (1, -1))
        difference = (up - down) / (2 * STEP)
        exact = sum(float(np.sum(np.asarray(v, np.float64) * way[k])) for k, v in derivative.items())
        worst = max(worst, abs(difference - exact) / (1e-3 + abs(difference) + abs(exact)))
    return worst if np.isfinite(worst) else np.inf
