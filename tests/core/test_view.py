"""Each step reads what numpy reads, and what it cannot say is refused; `test_view_compose.py` composes them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from tatami.core import view as v
from tatami.core.diagnostic import TatamiError
from tatami.core.expr import expr
from tatami.core.view import View, contiguous, element, linear_form


def numbers(shape: Sequence[object]) -> list[int]:
    return [int(str(s)) for s in shape]


def read(view: View, data: np.ndarray, indices: Sequence[np.ndarray] = ()) -> np.ndarray:
    """The view of `data`, element by element."""
    flat = data.reshape(-1)
    sources = [[], *(list(map(int, i.reshape(-1))) for i in indices)]
    shape = numbers(view.shape)
    out = [flat[element(view, at, sources)] for at in product(*map(range, shape))]
    return np.array(out, data.dtype).reshape(shape)


def strides(view: View) -> tuple[list[int], int]:
    form = linear_form(view)
    assert form is not None
    return numbers(form[0]), int(str(form[1]))


def test_linear_views_have_strides_and_an_offset() -> None:
    assert strides(v.permute(contiguous((2, 3, 4)), (2, 0, 1))) == ([1, 12, 4], 0)
    assert strides(v.flip(contiguous((3, 4)), 0)) == ([-4, 1], 8)
    assert strides(v.unfold(contiguous((6,)), (3,))) == ([1, 1], 0)
    assert numbers(v.unfold(contiguous((10,)), (3,), (2,)).shape) == [3, 4]
    assert strides(v.repeat(v.unsqueeze(contiguous((3,)), 0), 0, 5)) == ([0, 1], 0)
    assert numbers(v.unfold(contiguous((6, 16, 16)), (3, 3), groups=2).shape) == [2, 3, 3, 3, 14, 14]
    assert linear_form(v.tile(contiguous((3,)), 0, 2)) is None
    assert linear_form(v.gather(contiguous((4, 6)), 1, (4, 3))) is None
    assert strides(v.permute(contiguous(("N", 4)), (1, 0)).__class__((expr(4), expr("N")), expr("4*i1 + i0"))) == ([1, 4], 0)


def test_steps_read_what_numpy_reads() -> None:
    x = np.arange(24).reshape(2, 3, 4)
    base = contiguous((2, 3, 4))
    assert np.array_equal(read(v.permute(base, (2, 0, 1)), x), x.transpose(2, 0, 1))
    assert np.array_equal(read(v.flip(base, 1), x), x[:, ::-1])
    assert np.array_equal(read(v.tile(base, 1, 3), x), np.tile(x, (1, 3, 1)))
    assert np.array_equal(read(v.squeeze(v.unsqueeze(base, 1), 1), x), x)
    assert np.array_equal(read(v.reshape(base, (4, 6)), x), x.reshape(4, 6))
    assert np.array_equal(read(v.view_expr((10,), "(i0 + 3) % 10"), np.arange(10)), np.roll(np.arange(10), -3))
    windows = np.lib.stride_tricks.sliding_window_view(x, 2, 2).transpose(0, 1, 3, 2)
    assert np.array_equal(read(v.unfold(base, (2,)), x), windows)


def test_what_needs_contiguous_elements_refuses_others() -> None:
    tiled = v.tile(contiguous((4, 6)), 0, 2)
    for refused in (
        lambda: v.reshape(tiled, (6, 8)),
        lambda: v.unfold(tiled, (3,)),
        lambda: v.reshape(v.permute(contiguous((4, 6)), (1, 0)), (24,)),
        lambda: v.reshape(contiguous((4, 6)), (5, 5)),
        lambda: v.squeeze(contiguous((2, 3)), 0),
        lambda: v.repeat(contiguous((2, 3)), 0, 4),
        lambda: v.permute(contiguous((2, 3)), (0, 0)),
        lambda: v.gather(contiguous((2, 3)), 0, (2,)),
        lambda: v.flip(contiguous((2,)), 1),
        lambda: v.slice(contiguous((4,)), 0, 1, 5),
        lambda: v.slice(contiguous((4,)), 0, 3, 1),
        lambda: v.slice(contiguous((4,)), 0, 4, 0, -1),
        lambda: v.slice(contiguous((4,)), 0, 0, 4, 0),
        lambda: v.pad(contiguous((4,)), 0, 1, 0),
        lambda: v.pad(contiguous((0,)), 0, 1, 0, "edge"),
        lambda: v.pad(contiguous((4,)), 0, -3, -3),
        lambda: v.diagonal(contiguous((4, 3))),
        lambda: v.diagonal(contiguous((4,))),
    ):
        with pytest.raises(TatamiError) as error:
            refused()
        assert len(error.value.diagnostics) == 1
    assert strides(v.reshape(v.unsqueeze(contiguous((4, 6)), 1), (24,))) == ([1], 0)


def test_a_gather_of_a_gather_of_a_permute_has_three_sources() -> None:
    r = np.random.default_rng(0)
    x, i, j = r.integers(0, 99, (4, 6)), r.integers(0, 4, (6, 3)), r.integers(0, 6, (2, 3))
    view = v.gather(v.gather(v.permute(contiguous((4, 6)), (1, 0)), 1, (6, 3)), 0, (2, 3))
    assert [load.src_index for load in view.loads] == [1, 2]
    want = np.take_along_axis(np.take_along_axis(x.T, i, 1), j, 0)
    assert np.array_equal(read(view, x, [j, i]), want)
    assert "LoadIndex(2, " in str(view)
