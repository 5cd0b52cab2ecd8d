"""Random graphs for hypothesis: movement mixed with elementwise and reduces, sizes with 0, 1, primes and tails.

Inputs are small multiples of 1/4, so comparisons and selections cannot flip by rounding and nothing needs loosening.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr
from tatami.core.module import Module
from tatami.frontend.graph import Graph

SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 33)
COMMON = SIZES[2:]


@dataclass
class Generated:
    """A module, its inputs and the values of its symbols."""

    module: Module
    inputs: dict[str, np.ndarray]
    sizes: dict[str, int]
    ops: list[str]


@st.composite
def graphs(draw: st.DrawFn, *, most: int = 8) -> Generated:
    """A graph of up to `most` operations over one to three inputs; some sizes are symbols."""
    g = Graph("g")
    rank = draw(st.integers(1, 4))
    numbers = [draw(st.sampled_from(SIZES if draw(st.integers(0, 9)) == 0 else COMMON[:7])) for _ in range(rank)]
    sizes: dict[str, int] = {}
    shape: list[Expr] = []
    for i, n in enumerate(numbers):
        if draw(st.booleans()):
            sizes[f"D{i}"] = n
            shape.append(expr(f"D{i}"))
        else:
            shape.append(expr(n))
    seed = draw(st.integers(0, 2**31))
    rng = np.random.default_rng(seed)
    inputs: dict[str, np.ndarray] = {}
    values = []
    for i in range(draw(st.integers(1, 3))):
        values.append(g.input(f"x{i}", tuple(shape), DType.fp32))
        inputs[f"x{i}"] = (rng.integers(-8, 9, numbers) / 4).astype(np.float32)
    ops: list[str] = []
    for _ in range(draw(st.integers(1, most))):
        x = values[draw(st.integers(max(0, len(values) - 4), len(values) - 1))]
        new, name = _step(draw, x, values)
        values.append(new)
        ops.append(name)
    g.output("y", values[-1])
    if draw(st.booleans()) and len(values) > 2:
        g.output("z", values[draw(st.integers(0, len(values) - 2))])
    return Generated(g.module(), inputs, sizes, ops)


def _step(draw, x, values):
    rank = x.rank
    choices = ["neg", "abs", "relu", "square", "half", "add_self", "compare"]
    if rank:
        choices += ["flip", "pad", "slice", "sum", "max", "min", "expand", "unsqueeze", "stride", "flatten", "cumsum"]
    if rank > 1:
        choices += ["permute", "permute", "merge", "softmaxish", "mean_centre"]
    same = [v for v in values if v is not x and v.shape == x.shape and v.dtype == x.dtype]
    if same:
        choices += ["add", "sub", "maximum", "where"] * 2
    name = draw(st.sampled_from(choices))
    axis = draw(st.integers(0, rank - 1)) if rank else 0
    match name:
        case "neg":
            return -x, name
        case "abs":
            return x.abs(), name
        case "relu":
            return x.relu(), name
        case "square":
            return (x * 0.5).clamp(-4.0, 4.0).square(), name
        case "half":
            return x * 0.5 + 0.25, name
        case "add_self":
            return x + x, name
        case "compare":
            return (x > 0.25).cast(DType.fp32), name
        case "flip":
            return x.flip(axis), name
        case "pad":
            pads = [(0, 0)] * rank
            pads[axis] = (draw(st.integers(0, 3)), draw(st.integers(0, 3)))
            return x.pad(pads, value=draw(st.sampled_from([0.0, 1.5]))), name
        case "slice":
            number = x.shape[axis].as_int()
            if number is None or number < 2:
                return -x, "neg"
            low = draw(st.integers(0, number - 1))
            high = draw(st.integers(low, number))
            return x[(*[slice(None)] * axis, slice(low, high))], name
        case "stride":
            if x.shape[axis].as_int() is None:
                return x.relu(), "relu"
            return x[(*[slice(None)] * axis, slice(None, None, draw(st.integers(2, 3))))], name
        case "sum":
            return x.sum(axis), name
        case "max":
            return x.max(axis), name
        case "min":
            return x.min(axis), name
        case "expand":
            return x.unsqueeze(axis).expand(*x.shape[:axis], 3, *x.shape[axis:]), name
        case "unsqueeze":
            return x.unsqueeze(axis), name
        case "flatten":
            return x.flatten(), name
        case "cumsum":
            return x.cumsum(axis), name
        case "permute":
            return x.permute(*draw(st.permutations(range(rank)))), name
        case "merge":
            at = draw(st.integers(0, rank - 2))
            return x.reshape(*x.shape[:at], x.shape[at] * x.shape[at + 1], *x.shape[at + 2 :]), name
        case "softmaxish":
            return x - x.max(axis, keepdims=True).expand(*x.shape), name
        case "mean_centre":
            return x - x.sum(axis, keepdims=True).expand(*x.shape) * 0.125, name
        case "where":
            other = same[draw(st.integers(0, len(same) - 1))]
            return x.graph.where(x > other, x, other * 0.5), name
        case _:
            other = same[draw(st.integers(0, len(same) - 1))]
            return {"add": x + other, "sub": x - other, "maximum": x.maximum(other)}[name], name
