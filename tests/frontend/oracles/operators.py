"""Python's operators and numpy's indexing on tensors of a graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.frontend.oracles.oracle import Oracle, oracle


@oracle
def arithmetic_as_written(o: Oracle) -> None:
    """Numbers on either side, numpy's numbers among them; the dtype is the tensor's."""
    x = np.array([1.5, -2.0, 0.25, 3.0, -0.5], np.float32)
    n = np.array([7, -7, 3, 1, -5], np.int32)
    b = np.array([True, False, True, True, False])
    t, m, c = o.given(x), o.given(n), o.given(b)
    two: Any = np.float32(2)
    three: Any = np.int64(3)
    pairs: dict[str, tuple[Any, Any]] = {
        "x + 1": (t + 1, x + 1), "1 + x": (1 + t, 1 + x), "x - 0.5": (t - 0.5, x - np.float32(0.5)), "2 - x": (2 - t, 2 - x),
        "x * 3": (t * 3, x * 3), "3.0 * x": (3.0 * t, 3 * x), "x / 4": (t / 4, x / 4), "1 / x": (1 / t, 1 / x),
        "x // 2": (t // 2, x // 2), "7 // x": (7 // t, 7 // x), "x % 2": (t % 2, x % 2), "5 % x": (5 % t, 5 % x),
        "x ** 3": (t**3, x**3), "2.0 ** x": (2.0**t, two**x), "-x": (-t, -x), "+x": (+t, x), "abs": (abs(t), abs(x)),
        "numpy * x": (two * t, two * x), "x * numpy": (t * two, two * x), "numpy - x": (three - t, 3 - x),
        "x > 0": (t > 0, x > 0), "0 > x": (t < 0, x < 0), "x >= 1.5": (t >= 1.5, x >= 1.5), "x < 1": (t < 1, x < 1),
        "x <= 3": (t <= 3, x <= 3), "x == 3": (t == 3, x == 3), "x != 3": (t != 3, x != 3),
        "n // 2": (m // 2, n // 2), "n % 3": (m % 3, n % 3), "9 % n": (9 % m, 9 % n), "100 // n": (100 // m, 100 // n),
        "n & 6": (m & 6, n & 6), "6 & n": (6 & m, 6 & n), "n | 8": (m | 8, n | 8), "8 | n": (8 | m, 8 | n),
        "n ^ 5": (m ^ 5, n ^ 5), "5 ^ n": (5 ^ m, 5 ^ n), "n << 2": (m << 2, n << 2), "n >> 1": (m >> 1, n >> 1),
        "~n": (~m, ~n), "~b": (~c, ~b), "b & True": (c & True, b & True), "True ^ b": (True ^ c, True ^ b),
        "n ** 2": (m**2, n**2), "divmod": (divmod(t, 2), np.divmod(x, np.float32(2))),
        "1 << n": (1 << o.given(np.array([0, 3], np.int32)), np.array([1, 8], np.int32)), "99 >> n": (99 >> o.given(np.array([0, 3], np.int32)), np.array([99, 12], np.int32)),
        "rank 0": (t * o.given(np.float32(4)), x * 4), "rank 0 first": (o.given(np.float32(4)) - t, 4 - x),
        "where": (o.g.where(c, t, 0), np.where(b, x, np.float32(0))), "masked_fill": (t.masked_fill(c, -1), np.where(b, np.float32(-1), x)),
        "float on int": (m.cast("fp32") * 0.5, n.astype(np.float32) * np.float32(0.5)),
    }  # fmt: skip
    for what, (tensor, want) in pairs.items():
        o.same(what, tensor, want)
    o.same("vectors @", o.given(x) @ o.given(x), x @ x)


KEYS: list[Any] = [
    np.s_[0], np.s_[-1], np.s_[1:], np.s_[:-1], np.s_[:0], np.s_[2:2], np.s_[5:1], np.s_[-3:-1], np.s_[:, 2], np.s_[:, -2],
    np.s_[..., 0], np.s_[..., -1], np.s_[0, ...], np.s_[None], np.s_[:, None], np.s_[..., None], np.s_[None, 1:, None, ::2, None],
    np.s_[1:, ::2, None], np.s_[::-1], np.s_[:, ::-1, ::-1], np.s_[::-2, 1::3], np.s_[3:0:-1], np.s_[:, 4:1:-2], np.s_[-1:-4:-1],
    np.s_[:, :, 5:-9:-3], np.s_[1, 2, 3], np.s_[1, ..., 2], np.s_[1, None, :, None, 2], np.s_[100:], np.s_[:100], np.s_[-100:2],
    np.s_[:, 100:0:-1], np.s_[-1, ::-1, 1:3], np.s_[::7], np.s_[0:4:3, 1:6:2, 5:0:-2], np.s_[...], np.s_[()],
    np.s_[np.int64(1), np.int32(-2)], np.s_[:, np.int64(1) :],
]  # fmt: skip


@oracle
def indexing_as_in_numpy(o: Oracle) -> None:
    x = np.arange(4 * 6 * 7, dtype=np.float32).reshape(4, 6, 7)
    known, open_sizes = o.given(x), o.given(x, ("A", "B", "C"))
    for key in KEYS:
        o.same(f"x[{key}]", known[key], x[key])
        o.same(f"symbolic x[{key}]", open_sizes[key], x[key])


@oracle
def indexing_of_short_axes(o: Oracle) -> None:
    """Sizes 1 and 2 behind symbols: slices that reach beyond the ends are shorter or empty, as in numpy."""
    for n in (1, 2):
        x = np.arange(n * 3, dtype=np.int32).reshape(n, 3)
        t = o.given(x, (f"N{n}", 3))
        for key in (
            np.s_[1:],
            np.s_[:1],
            np.s_[:-1],
            np.s_[-1:],
            np.s_[::-1],
            np.s_[::2],
            np.s_[2:],
            np.s_[:, ::-2],
            np.s_[1:0:-1],
        ):
            o.same(f"{n} rows x[{key}]", t[key], x[key])


@oracle
def indexing_by_tensors(o: Oracle) -> None:
    x = np.arange(5 * 4 * 3, dtype=np.float32).reshape(5, 4, 3)
    rows: Any = np.array([3, -1, 0, 3])
    grid = np.array([[0, 2], [1, -1]])
    t, r, m = o.given(x), o.given(rows), o.given(grid)
    o.same("x[i]", t[r], x[rows])
    o.same("x[:, i]", t[:, m], x[:, grid])
    o.same("x[..., j]", t[..., o.given(np.array([2, 0]))], x[..., [2, 0]])
    o.same("x[1:, i, ::-1]", t[1:, r, ::-1], x[1:, rows, ::-1])
    o.same("x[[2, 0]]", t[[2, 0]], x[[2, 0]])
    o.same("x[array]", t[rows], x[rows])
    o.same("rows in turn", o.g.concat([row * 2 for row in t], 0), (x * 2).reshape(-1, 3))
