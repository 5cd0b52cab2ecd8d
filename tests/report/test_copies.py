"""No copy where a view suffices: what the ExecutionPlan moves, for every movement operation and for chains of them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tatami.api import prepare
from tatami.compilation import Compilation
from tatami.core.cost import time_estimate
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.run import run as run_frontend
from tatami.region.run import run as run_regions
from tatami.report.copies import Move, moves
from tatami.report.explain import explain

Step = Callable[[Graph, Tensor], Tensor]


def index(g: Graph, *shape: object) -> Tensor:
    return g.input(f"index{len(g._inputs)}", tuple(map(str, shape)), DType.i64)


VIEWS: dict[str, Step] = {
    "permute": lambda g, x: x.permute(2, 0, 1),
    "unsqueeze": lambda g, x: x.unsqueeze(1),
    "squeeze": lambda g, x: x[:, :1].squeeze(1),
    "flip": lambda g, x: x.flip(0, 2),
    "tile": lambda g, x: x.tile(1, 2),
    "repeat": lambda g, x: x[:, :1].repeat(1, 3),
    "expand": lambda g, x: x.unsqueeze(0).expand(5, *x.shape),
    "reshape": lambda g, x: x.reshape(-1, 2),
    "flatten": lambda g, x: x.flatten(),
    "reshape of a permute": lambda g, x: x.permute(2, 0, 1).reshape(-1, 2),
    "reshape of a tile": lambda g, x: x.tile(1, 2).reshape(4, -1),
    "slice": lambda g, x: x[:, 1:, ::2],
    "slice backwards": lambda g, x: x[::-1, ::-2],
    "pad": lambda g, x: x.pad([(0, 0), (1, 2), (0, 1)]),
    "crop": lambda g, x: x.pad([(0, 0), (-1, 0), (0, -1)]),
    "roll": lambda g, x: x.roll(1, 2),
    "unfold of one axis": lambda g, x: x.unfold((2,)),
    "unfold of two": lambda g, x: x.unfold((2, 2), (1, 2), (1, 1), 2),
    "unfold of three": lambda g, x: x.unfold((1, 2, 2), (1, 1, 2), (1, 2, 1)),
    "unfold of a tile": lambda g, x: x.tile(1, 2).unfold((2,)),
    "diagonal": lambda g, x: x[:, :, :3].one("diagonal"),
    "view by an expression": lambda g, x: x.view((5,), linear="i0*7 % 24"),
    "wide wrap": lambda g, x: x.pad([(0, 0), (4, 9), (0, 1)], mode="wrap"),
    "wide reflect": lambda g, x: x.pad([(0, 0), (7, 9), (0, 1)], mode="reflect"),
    "concat": lambda g, x: g.concat([x, x.flip(0)], 1),
    "split": lambda g, x: x.split((1, 2), 1)[1],
    "depth_to_space": lambda g, x: x.reshape(1, 4, 2, 3).one("depth_to_space", block=2),
}
"""Views that are computed again at each use, however they are read: no copy between two kernels."""
STORED: dict[str, Step] = {
    "gather": lambda g, x: x.gather(1, index(g, 2, 2, 4)),
    "gather of a gather": lambda g, x: x.gather(1, index(g, 2, 2, 4)).gather(0, index(g, 1, 2, 4)),
    "take of a permute": lambda g, x: x.permute(2, 1, 0).take(index(g, 5), 1).flip(0),
    "gather_nd": lambda g, x: x.one("gather_nd", index(g, 5, 2)),
    "edge": lambda g, x: x.pad([(0, 0), (1, 2), (0, 1)], mode="edge"),
    "reflect": lambda g, x: x.pad([(0, 0), (1, 2), (0, 1)], mode="reflect"),
}
"""Indexed data lies in memory (D2.8); what a border's pieces share is stored once. The reading itself stays free."""


def built(step: Step, before: Step, after: Step, shape: tuple[int | str, ...] = (2, 3, 4)) -> Compilation:
    g = Graph("g")
    x = g.input("x", shape, DType.fp32)
    g.output("y", after(g, step(g, before(g, x))))
    return prepare(g)


def same(g: Graph, x: Tensor) -> Tensor:
    return x


def planned(c: Compilation) -> tuple[list[Move], int, int]:
    """Moves, instructions and arena buffers of main."""
    plan = c.stages["execution"].main
    found = moves(c.stages["execution"], c.stages["realised"])
    return found, len(plan.instructions), sum(b.kind == "arena" for b in plan.buffers)


def elements(c: Compilation) -> int:
    return int(np.prod([int(str(s)) for s in c.stages["frontend"].main.signature.outputs[0].shape]))


@pytest.mark.parametrize("name", [*VIEWS, *STORED])
def test_a_view_only_graph_moves_its_output_and_nothing_else(name: str) -> None:
    c = built((VIEWS | STORED)[name], same, same)
    (move,), instructions, arena = planned(c)
    assert move.is_output and (instructions, arena) == (1, 0)
    assert move.bytes.as_int() == 2 * 4 * elements(c)
    assert "the output y is a row-major array of its own" in explain(c)


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_between_two_operations_adds_no_kernel_and_no_buffer(name: str) -> None:
    found, instructions, arena = planned(built(VIEWS[name], lambda g, x: x.exp(), lambda g, y: y.sqrt()))
    assert found == [] and (instructions, arena) == (1, 0)


@pytest.mark.parametrize("name", STORED)
def test_what_a_gather_or_border_reads_is_stored_once_and_never_moved(name: str) -> None:
    found, instructions, arena = planned(built(STORED[name], lambda g, x: x.exp(), lambda g, y: y.sqrt()))
    assert found == [] and (instructions, arena) == (2, 1)


@pytest.mark.parametrize("name", [*VIEWS, *STORED])
def test_views_of_a_reduction_and_before_one_move_nothing(name: str) -> None:
    """A softmax before, a sum after: the same kernels as without the view, none of which only moves."""
    found, instructions, arena = planned(built((VIEWS | STORED)[name], lambda g, x: x.softmax(-1), lambda g, y: y.sum()))
    assert found == [] and instructions <= 2 and arena <= 1


def random_step(r: random.Random, x: Tensor) -> Tensor:
    sizes = [int(str(s)) for s in x.shape]
    axis = r.randrange(x.rank)
    cut = [slice(None)] * x.rank
    pads = [(0, 0)] * x.rank
    match r.randrange(9):
        case 0:
            return x.permute(*r.sample(range(x.rank), x.rank))
        case 1:
            return x.flip(axis)
        case 2 if np.prod(sizes) < 60:
            return x.tile(axis, 2)
        case 3 if x.rank < 4:
            return x.unsqueeze(r.randrange(x.rank + 1))
        case 4:
            cut[axis] = r.choice([slice(None, None, -1), slice(sizes[axis] // 2, None), slice(None, None, 2)])
            return x[tuple(cut)]
        case 5 if x.rank > 1:
            return x.reshape(-1, sizes[-1])
        case 6 if sizes[-1] > 1 and x.rank < 4:
            return x.unfold((2,))
        case 7:
            return x.roll(1, axis)
        case _:
            pads[axis] = (r.randint(-(sizes[axis] - 1), 2), r.randint(0, 2))
            return x.pad(pads)


@pytest.mark.parametrize("seed", range(60))
def test_random_chains_of_views_move_nothing_but_the_output(seed: int) -> None:
    r = random.Random(seed)
    between = seed % 2 == 1
    g = Graph("g")
    x = g.input("x", [r.randint(2, 4) for _ in range(r.randint(1, 3))], DType.fp32)
    y = x.exp() if between else x
    for _ in range(r.randint(1, 6)):
        y = random_step(r, y)
    g.output("y", y.sqrt() if between else y)
    c = prepare(g)
    found, instructions, arena = planned(c)
    assert (instructions, arena) == (1, 0)
    assert [m.is_output for m in found] == ([] if between else [True])
    a = np.random.default_rng(seed).standard_normal([int(str(s)) for s in x.shape]).astype(np.float32)
    want, got = run_frontend(c.stages["frontend"], {"x": a})["y"], run_regions(c.stages["region"], {"x": a}, {})["y"]
    assert np.allclose(got, want, rtol=1e-6, atol=0)


# -- copies that have to be ----------------------------------------------------------------------


def why(g: Graph, **kwargs: Any) -> list[tuple[str, bool]]:
    c = prepare(g, **kwargs)
    found = moves(c.stages["execution"], c.stages["realised"])
    text = explain(c)
    assert all(m.why in text for m in found)
    return [(m.why, m.is_output) for m in found]


def test_an_input_handed_out_is_copied() -> None:
    g = Graph("g")
    x = g.input("x", (3,), DType.fp32)
    g.output("y", x)
    g.output("z", x.exp())
    assert why(g) == [("the output y is the input x, and each is an array of its own", True)]


def test_one_value_under_two_names_is_copied() -> None:
    g = Graph("g")
    e = g.input("x", (3,), DType.fp32).exp()
    g.output("y", e)
    g.output("z", e)
    assert why(g) == [("the output z is the output y too, and each is an array of its own", True)]


def test_states_that_change_places_keep_one_aside() -> None:
    g = Graph("g")
    a, b = (g.input(n, (3,), DType.fp32, mutability="mutable") for n in "ab")
    g.update(a, b)
    g.update(b, a)
    reasons = [w for w, _ in why(g)]
    assert sum("two states change places" in w for w in reasons) == 2
    assert sum("takes its new value after the last read of the old one" in w for w in reasons) == 2


def test_an_argument_of_a_host_step_is_laid_out() -> None:
    g = Graph("g")
    x = g.input("x", (3, 4), DType.fp32)
    g.output("y", x.permute(1, 0).op("nonzero", size="K"))
    assert ("the host step nonzero reads its arguments from memory, row-major", False) in why(g)


def test_explain_says_what_a_conversion_takes() -> None:
    """The image and the weights get their channels last: bytes read and written at the chip's bandwidth, and a launch."""
    g = Graph("conv")
    w = g.constant(np.zeros((64, 128, 3, 3), np.float16), "w")
    g.output("y", g.input("x", (1, 128, 56, 56), DType.fp16).conv(w))
    c = prepare(g, target="sm80")
    said = re.findall(r"^  convert_\w+(?: \(setup\))?  (\d+) bytes  ([\d.]+) µs", explain(c), re.MULTILINE)
    assert {int(n) for n, _ in said} == {2 * 2 * 128 * 56 * 56, 2 * 2 * 64 * 128 * 3 * 3}
    for moved, micros in said:
        assert float(micros) == pytest.approx(1e6 * time_estimate(c.target, 0.0, int(moved)), abs=0.01)
