"""compose(outer, inner) reads what outer reads of inner's result: every pair of constructors, and longer chains."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tatami.core.diagnostic import TatamiError
from tatami.core.view import View, compose, contiguous
from tests.core.view_steps import Array, alone, of_shape, read, steps

SHAPES = [(4,), (2, 3), (3, 3), (1, 4), (2, 1, 3), (2, 2, 2), (2, 0)]


def data(shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(7).permutation(prod(shape)).reshape(shape)


@pytest.mark.parametrize("shape", [*SHAPES, (2, 4, 3, 3), (1, 1), ()])
def test_every_constructor_reads_what_numpy_reads(shape: tuple[int, ...]) -> None:
    x = data(shape)
    for step in steps(shape):
        got = read(of_shape(step, shape), x, [] if step.reads is None else [step.reads])
        assert np.array_equal(got, step.meaning(x)), step.name


def test_the_pairs_cover_every_constructor() -> None:
    seen = {step.name.split("(")[0] for shape in SHAPES for step in steps(shape)}
    assert seen == {
        "permute",
        "unsqueeze",
        "squeeze",
        "flip",
        "tile",
        "repeat",
        "reshape",
        "slice",
        "pad",
        "unfold",
        "diagonal",
        "roll",
        "gather",
        "view_expr",
    }
    ranks = {len(eval(step.name[6:])[0]) for shape in SHAPES for step in steps(shape) if step.name.startswith("unfold")}
    assert ranks == {1, 2, 3}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_composition_of_every_pair_is_pointwise(shape: tuple[int, ...]) -> None:
    """A step applied to the view itself is the composition too, unless it asks for contiguous elements."""
    x = data(shape)
    for first, inner in alone(shape):
        middle = first.meaning(x)
        below = [] if first.reads is None else [first.reads]
        for second, outer in alone(middle.shape):
            want = second.meaning(middle)
            above = [] if second.reads is None else [second.reads]
            both = compose(outer, inner)
            where = f"{second.name} of {first.name} of {shape}"
            assert tuple(map(str, both.shape)) == tuple(map(str, want.shape)), f"{where}: {both}"
            assert np.array_equal(read(both, x, [*above, *below]), want), f"{where}: {both}"
            try:
                applied = second.apply(inner)
            except TatamiError:
                assert second.name.startswith(("reshape", "unfold")), where
                continue
            if applied != both:
                assert np.array_equal(read(applied, x, [*above, *below]), want), where


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_composition_of_chains_is_pointwise(draw: st.DataObject) -> None:
    """Up to 6 steps, composed from the inside out and from the outside in."""
    shape = tuple(draw.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    x = data(shape)
    value, view, views = x, contiguous(shape), []
    indices: list[np.ndarray] = []
    for _ in range(draw.draw(st.integers(1, 6))):
        suited = [s for s in steps(value.shape) if s.meaning(value).size <= 96 and s.meaning(value).ndim <= 5]
        step = draw.draw(st.sampled_from(suited))
        views.append(of_shape(step, value.shape))
        view = compose(views[-1], view)
        value = step.meaning(value)
        if step.reads is not None:
            indices.insert(0, step.reads)
        assert np.array_equal(read(view, x, indices), value), step.name
    outside_in: View = views[-1]
    for inner in reversed(views[:-1]):
        outside_in = compose(outside_in, inner)
    assert np.array_equal(read(outside_in, x, indices), value)
