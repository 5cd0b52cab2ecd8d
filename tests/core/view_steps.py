"""Every view constructor on a shape, with numpy's meaning of each: what the tests of composition draw from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import permutations, product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tatami.core import view as v
from tatami.core.algebra.visit import evaluate
from tatami.core.view import View, contiguous

Array = np.ndarray[Any, Any]


class Step(NamedTuple):
    """One use of a constructor. `apply` needs the view's own shape; `meaning` is numpy's; `reads`: operands of a
    gather besides the data."""

    name: str
    apply: Callable[..., View]
    meaning: Callable[..., Array]
    reads: Array | None = None


def numbers(shape: Sequence[object]) -> list[int]:
    return [int(str(s)) for s in shape]


def read(view: View, data: Array, indices: Sequence[Array] = ()) -> Array:
    """The view of `data`, all elements at once; sources from 1 on are `indices`."""
    shape = numbers(view.shape)
    env: dict[str, Any] = {f"i{k}": grid for k, grid in enumerate(np.indices(shape))}
    for k, load in enumerate(view.loads):
        offset = np.broadcast_to(evaluate(load.offset, env), shape)
        value = indices[load.src_index - 1].reshape(-1)[offset]
        env[f"l{k}"] = np.where(value < 0, value + evaluate(load.size, env), value)
    at = np.broadcast_to(evaluate(view.index, env), shape)
    if at.size:
        assert at.min() >= 0 and at.max() < data.size, f"{view} reads outside {data.shape}"
    return data.reshape(-1)[at] if at.size else np.zeros(shape, data.dtype)


def steps(shape: Sequence[int]) -> list[Step]:
    """All constructors with all small parameters that suit `shape`."""
    return [*_moves(tuple(shape)), *_axis_reads(tuple(shape)), *_windows(tuple(shape)), *_indexed(tuple(shape))]


def _moves(shape: tuple[int, ...]) -> Iterator[Step]:
    rank = len(shape)
    for order in permutations(range(rank)):
        yield Step(f"permute{order}", lambda w, o=order: v.permute(w, o), lambda x, o=order: x.transpose(o))
    for axis in range(rank + 1):
        yield Step(f"unsqueeze({axis})", lambda w, a=axis: v.unsqueeze(w, a), lambda x, a=axis: np.expand_dims(x, a))
    for to in _shapes(prod(shape)):
        yield Step(f"reshape{to}", lambda w, t=to: v.reshape(w, t), lambda x, t=to: x.reshape(t))
    for axis in range(rank):
        yield Step(f"flip({axis})", lambda w, a=axis: v.flip(w, a), lambda x, a=axis: np.flip(x, a))
        yield Step(f"tile({axis})", lambda w, a=axis: v.tile(w, a, 2), lambda x, a=axis: np.concatenate([x, x], a))
        if shape[axis] == 1:
            yield Step(f"squeeze({axis})", lambda w, a=axis: v.squeeze(w, a), lambda x, a=axis: np.squeeze(x, a))
            yield Step(f"repeat({axis})", lambda w, a=axis: v.repeat(w, a, 3), lambda x, a=axis: np.repeat(x, 3, a))
    if rank >= 2 and shape[-1] == shape[-2]:
        yield Step("diagonal", v.diagonal, lambda x: np.diagonal(x, 0, -2, -1))


def _shapes(count: int) -> list[tuple[int, ...]]:
    if count == 0:
        return [(0,), (0, 3), (2, 0)]
    pairs = [(a, count // a) for a in range(1, count + 1) if count % a == 0]
    return [(count,), *pairs, *((a, b, c) for a, rest in pairs for b, c in pairs if a * b * c == count and rest == b * c)]


def _axis_reads(shape: tuple[int, ...]) -> Iterator[Step]:
    for axis, n in enumerate(shape):
        for start, stop, step in _bounds(n):
            end = None if stop < 0 else stop
            cut = (np.s_[:],) * axis + (np.s_[start:end:step],)
            yield Step(
                f"slice({axis}, {start}:{stop}:{step})",
                lambda w, a=axis, b=(start, stop, step): v.slice(w, a, *b),
                lambda x, c=cut: x[c],
            )
        for shift in (1, -2):
            yield Step(
                f"roll({axis}, {shift})",
                lambda w, a=axis, s=shift: v.roll(w, a, s),
                lambda x, a=axis, s=shift: np.roll(x, s, a),
            )
        if n:
            yield from _borders(axis, n, len(shape))


def _bounds(n: int) -> set[tuple[int, int, int]]:
    """Parts of an axis of n elements by steps in both directions, empty ones too."""
    wanted = [(0, n, 1), (1, n, 2), (n - 1, -1, -1), (n - 1, 0, -2), (n // 2, n, 3), (0, 0, 1)]
    return {(a, b, s) for a, b, s in wanted if 0 <= a <= n and (b >= a if s > 0 else a < n and b <= a)}


def _borders(axis: int, n: int, rank: int) -> Iterator[Step]:
    """Widths beyond the axis's own size, crops, and both at once."""
    for mode, lo, hi in [
        ("edge", 1, 2), ("reflect", 1, 0), ("reflect", 2 * n, n + 1), ("wrap", 2, 3 * n), ("constant", -(n // 2), 0),
        ("reflect", -(n - 1), 2), ("wrap", 1, -(n // 2)),
    ]:  # fmt: skip

        def meaning(x: Array, mode: str = mode, lo: int = lo, hi: int = hi) -> Array:
            cropped = x[(np.s_[:],) * axis + (np.s_[max(0, -lo) : n - max(0, -hi)],)]
            widths = [(0, 0)] * rank
            widths[axis] = (max(0, lo), max(0, hi))
            return np.pad(cropped, widths, mode)  # type: ignore[call-overload]

        yield Step(f"pad({axis}, {lo}, {hi}, {mode})", lambda w, a=(axis, lo, hi, mode): v.pad(w, *a), meaning)


def _windows(shape: tuple[int, ...]) -> Iterator[Step]:
    """Unfold of 1, 2, 3 axes with stride, dilation and groups, wherever at least one window fits."""
    for n in range(1, min(3, len(shape)) + 1):
        for kernel, stride, dilation, groups in product((1, 2), (1, 2), (1, 2), (1, 2)):
            lead = len(shape) - n
            fits = all(s >= (kernel - 1) * dilation + 1 for s in shape[lead:])
            if not fits or (groups > 1 and (lead == 0 or shape[lead - 1] % groups)):
                continue
            how = ((kernel,) * n, (stride,) * n, (dilation,) * n, groups)

            def meaning(x: Array, n: int = n, how: Any = how) -> Array:
                (k, *_), (s, *_), (d, *_), groups = how
                lead = x.ndim - n
                y = np.lib.stride_tricks.sliding_window_view(x, ((k - 1) * d + 1,) * n, tuple(range(lead, x.ndim)))
                y = y[(np.s_[:],) * lead + (np.s_[::s],) * n + (np.s_[::d],) * n]
                y = np.moveaxis(y, range(lead + n, lead + 2 * n), range(lead, lead + n))
                if groups > 1:
                    y = y.reshape(*y.shape[: lead - 1], groups, y.shape[lead - 1] // groups, *y.shape[lead:])
                return y

            yield Step(f"unfold{how}", lambda w, h=how: v.unfold(w, *h), meaning)


def _indexed(shape: tuple[int, ...]) -> Iterator[Step]:
    count = prod(shape)
    if not count:
        return
    for to, text in (((5,), f"(i0*7 + 2) % {count}"), ((2, 3), f"min(2*i0 + i1, {count - 1})"), ((), str(count - 1))):
        grid = np.indices(to)
        env = {f"i{k}": grid[k] for k in range(len(to))}

        def meaning(x: Array, to: tuple[int, ...] = to, env: Any = env, text: str = text) -> Array:
            at = eval(text, {"min": np.minimum}, env)
            return np.asarray(x.reshape(-1)[at]).reshape(to)

        yield Step(f"view_expr({to}, {text})", lambda w, t=to, e=text: v.compose(v.view_expr(t, e), w), meaning)
    random = np.random.default_rng(count)
    for axis, n in enumerate(shape):
        taken = tuple(max(1, s - 1) if k != axis else 3 for k, s in enumerate(shape))
        index = random.integers(-n, n, taken)

        def gathered(x: Array, axis: int = axis, index: Array = index) -> Array:
            part = tuple(np.s_[:] if k == axis else np.s_[:s] for k, s in enumerate(index.shape))
            return np.take_along_axis(x[part], index % x.shape[axis], axis)

        yield Step(f"gather({axis})", lambda w, a=axis, t=taken: v.gather(w, a, t), gathered, index)


def of_shape(step: Step, shape: Sequence[int]) -> View:
    """The step alone, over a tensor of `shape`."""
    return step.apply(contiguous(shape))


@cache
def alone(shape: tuple[int, ...]) -> list[tuple[Step, View]]:
    """Every step that suits `shape`, and its view over a tensor of that shape."""
    return [(step, of_shape(step, shape)) for step in steps(shape)]
