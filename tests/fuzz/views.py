"""Random chains of views over open sizes: whatever a chain does, it compiles and means what numpy says.

    python -m tests.fuzz.views --seeds 0-2000          down to the kernels' text, every stage verified
    python -m tests.fuzz.views --seeds 0-100 --run     the kernels too, at three bindings

A chain is flips, pads of every mode, rolls, slices, permutations, splits and merges of axes, windows, tiles, joins and
broadcasts of x[a, b, c] whose axes are symbols, products of symbols and numbers. Sizes that a call refuses (E1304) are refused
by the reference and the kernels alike.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tatami as tt
from tatami.api import prepare
from tatami.core.algebra.visit import evaluate
from tatami.core.diagnostic import TatamiError
from tatami.core.expr import exact_div, expr
from tatami.stages import STAGES, runner
from tests.fuzz.campaign import run_campaign

AXES = ("a", "b", "c", "2*a", "2*b", "3", "1", "7", "a + 1", "4")
BINDINGS = ({"a": 3, "b": 4, "c": 5}, {"a": 1, "b": 1, "c": 1}, {"a": 8, "b": 2, "c": 6})


class Chain:
    """One graph as it grows: the last value, and what was done."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.graph = tt.Graph(f"views{seed}")
        shape = tuple(self.r.choice(AXES) for _ in range(self.r.randint(1, 3)))
        self.x: Any = self.graph.input("x", shape, tt.fp32)
        for k, symbol in enumerate("abc"):  # a symbol of every axis has an argument that decides it
            self.graph.input(f"w{k}", (symbol,), tt.fp32)
        self.done: list[str] = [f"x{list(shape)}"]

    def made(self) -> tt.Graph:
        for _ in range(self.r.randint(2, 6)):
            step = self.r.choice(STEPS)
            try:
                self.x = step(self)
            except TatamiError as error:
                if error.diagnostics[0].code not in REFUSED_BY_NAME:
                    raise
        if self.r.random() < 0.3:
            self.x = self.x + 1.0
        if self.r.random() < 0.2:
            self.x = self.x.sum((self.axis(),)) if self.rank else self.x
        self.graph.output("y", self.x)
        return self.graph

    @property
    def rank(self) -> int:
        return len(self.x.shape)

    def axis(self) -> int:
        return self.r.randrange(self.rank)

    def say(self, text: str) -> None:
        self.done.append(text)


REFUSED_BY_NAME = frozenset({"E1001", "E1002", "E1008", "E1009", "E1304"})
"""Codes of steps that do not fit the shape they are drawn for: refused when the graph is made, by name."""


def flip(c: Chain) -> Any:
    axis = c.axis()
    c.say(f".flip({axis})")
    return c.x.flip(axis)


def pad(c: Chain) -> Any:
    mode = c.r.choice(("constant", "edge", "reflect", "wrap"))
    widths = [(0, 0)] * c.rank
    low = -1 if c.r.random() < 0.3 else 0
    widths[c.axis()] = (c.r.randint(low, 2), c.r.randint(low, 2))
    c.say(f".pad({widths}, {mode})")
    return c.x.pad(widths, mode=mode)


def roll(c: Chain) -> Any:
    axis, shift = c.axis(), c.r.choice((-2, -1, 1, 2, 5))
    c.say(f".roll({shift}, {axis})")
    return c.x.roll(shift, axis)


def cut(c: Chain) -> Any:
    axis = c.axis()
    size = c.x.shape[axis]
    start, stop, step = c.r.choice((0, 0, 1)), c.r.choice((size, size - 1, expr(2))), c.r.choice((1, 1, 2, 3))
    starts, stops, steps = [expr(0)] * c.rank, list(c.x.shape), [1] * c.rank
    starts[axis], stops[axis], steps[axis] = expr(start), stop, step
    c.say(f".slice({start}:{stop}:{step}, {axis})")
    return c.x.op("slice", starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))


def numpy_slice(c: Chain) -> Any:
    axis = c.axis()
    part = c.r.choice(
        (slice(1, None), slice(None, -1), slice(None, None, -1), slice(None, 2), slice(-2, None), slice(1, None, 2))
    )
    c.say(f"[{part} of {axis}]")
    return c.x[(slice(None),) * axis + (part,)]


def permute(c: Chain) -> Any:
    perm = list(range(c.rank))
    c.r.shuffle(perm)
    c.say(f".permute({perm})")
    return c.x.permute(perm)


def merge(c: Chain) -> Any:
    if c.rank < 2:
        return c.x
    k = c.r.randrange(c.rank - 1)
    shape = (*c.x.shape[:k], c.x.shape[k] * c.x.shape[k + 1], *c.x.shape[k + 2 :])
    c.say(f".reshape({[str(s) for s in shape]})")
    return c.x.reshape(shape)


def split(c: Chain) -> Any:
    axis = c.axis()
    factors = [expr(f) for f in ("2", "3", "7", "a", "b", "c", "2*a") if exact_div(c.x.shape[axis], expr(f)) is not None]
    if not factors or c.rank > 4:
        return c.x
    by = c.r.choice(factors)
    rest = exact_div(c.x.shape[axis], by)
    assert rest is not None
    pair = (by, rest) if c.r.random() < 0.5 else (rest, by)
    shape = (*c.x.shape[:axis], *pair, *c.x.shape[axis + 1 :])
    c.say(f".reshape({[str(s) for s in shape]})")
    return c.x.reshape(shape)


def regroup(c: Chain) -> Any:
    """The same elements with the axes in another order, as a wrong reshape of a transposed tensor does."""
    shape = list(c.x.shape)
    c.r.shuffle(shape)
    c.say(f".reshape({[str(s) for s in shape]})")
    return c.x.reshape(tuple(shape))


def tile(c: Chain) -> Any:
    repeats = [1] * c.rank
    repeats[c.axis()] = 2
    c.say(f".tile({repeats})")
    return c.x.op("tile", repeats=tuple(repeats))


def unfold(c: Chain) -> Any:
    if c.rank > 3:
        return c.x
    kernel, stride, dilation = c.r.randint(1, 3), c.r.randint(1, 2), c.r.randint(1, 2)
    c.say(f".unfold({kernel}, {stride}, {dilation})")
    return c.x.op("unfold", kernel=(kernel,), stride=(stride,), dilation=(dilation,))


def join(c: Chain) -> Any:
    axis = c.axis()
    c.say(f".concat(flipped, {axis})")
    return c.graph.op("concat", c.x, c.x.flip(axis), axis=axis)


def spread(c: Chain) -> Any:
    if c.rank > 4:
        return c.x
    axis, size = c.r.randint(0, c.rank), c.r.choice(("a", "c", "2"))
    x = c.x.unsqueeze(axis)
    shape = (*x.shape[:axis], expr(size), *x.shape[axis + 1 :])
    c.say(f".expand({[str(s) for s in shape]})")
    return x.expand(shape)


STEPS: tuple[Callable[[Chain], Any], ...] = (
    flip,
    pad,
    pad,
    roll,
    cut,
    numpy_slice,
    permute,
    merge,
    split,
    split,
    regroup,
    tile,
    unfold,
    join,
    spread,
)


def arrays(graph: tt.Graph, binding: Mapping[str, int]) -> dict[str, np.ndarray]:
    out = {}
    for port in graph.graph().signature.inputs:
        shape = tuple(int(evaluate(s, binding)) for s in port.shape)
        out[port.tensor] = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    return out


def outcome(call: Callable[..., Mapping[str, Any]], *arguments: Any) -> np.ndarray | str:
    """The value of y, or the code of what refuses these sizes."""
    try:
        return np.asarray(call(*arguments)["y"])
    except TatamiError as error:
        return error.diagnostics[0].code


def differs(wanted: np.ndarray | str, got: np.ndarray | str) -> str:
    if isinstance(wanted, str) or isinstance(got, str):
        return "" if isinstance(wanted, str) and isinstance(got, str) else f"{_text(wanted)} became {_text(got)}"
    if wanted.shape != got.shape:
        return f"shape {wanted.shape} became {got.shape}"
    return "" if np.allclose(wanted, got, rtol=1e-6) else "other numbers"


def _text(value: np.ndarray | str) -> str:
    return value if isinstance(value, str) else f"an array of shape {value.shape}"


def check(seed: int, *, run: bool = False) -> str:
    """The fault of one chain; "" if there is none."""
    chain = Chain(seed)
    graph = chain.made()
    after = f"after {''.join(chain.done)}"
    compilation = prepare(graph, target="cpu:avx2" if not run else "cpu")
    stages = compilation.stages
    try:
        assert stages["c"]
    except TatamiError as error:
        return f"{str(error).splitlines()[0]} {after}"
    runners = {s.name: runner(s.name) for s in STAGES if s.runs and s.name != "frontend"}
    kernels = tt.compile(graph, target="cpu", threads=1) if run else None
    for binding in BINDINGS:
        given = arrays(graph, binding)
        wanted = outcome(compilation.reference_run, given, {})
        for name, meaning in runners.items():
            assert meaning is not None
            got = outcome(meaning, stages[name], dict(given), {})
            if fault := differs(wanted, got):
                return f"{name} at {binding}: {fault} {after}"
        if kernels is not None and (fault := differs(wanted, outcome(kernels, given))):
            return f"kernels at {binding}: {fault} {after}"
    return ""


if __name__ == "__main__":
    raise SystemExit(run_campaign(__doc__, check, "also compile the kernels and run them"))
