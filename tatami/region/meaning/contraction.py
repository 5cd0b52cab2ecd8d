"""A sum of products as one batched matrix product."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray


def contract(x: Array, y: Array, extents: tuple[int, ...], rank: int) -> Array:
    """``sum over dimensions rank… of x*y`` as one batched matrix product; dimensions of extent 1 in one operand repeat."""

    def size(group: list[int]) -> int:
        return int(np.prod([extents[d] for d in group], dtype=np.int64))

    dims = range(len(extents))
    in_x = [x.shape[d] != 1 or extents[d] == 1 for d in dims]
    in_y = [y.shape[d] != 1 or extents[d] == 1 for d in dims]
    reduced = [d for d in dims if d >= rank]
    only_x = tuple(d for d in reduced if in_x[d] and not in_y[d])
    only_y = tuple(d for d in reduced if in_y[d] and not in_x[d])
    repeat = int(np.prod([extents[d] for d in reduced if not in_x[d] and not in_y[d]], dtype=np.int64))
    with np.errstate(all="ignore"):
        if only_x:
            x = np.add.reduce(x, axis=only_x, keepdims=True, dtype=x.dtype)
        if only_y:
            y = np.add.reduce(y, axis=only_y, keepdims=True, dtype=y.dtype)
        kept = [d for d in dims if d < rank]
        batch = [d for d in kept if in_x[d] and in_y[d]]
        m = [d for d in kept if in_x[d] and not in_y[d]]
        n = [d for d in kept if in_y[d] and not in_x[d]]
        none = [d for d in kept if not in_x[d] and not in_y[d]]
        k = [d for d in reduced if in_x[d] and in_y[d]]
        rest = [d for d in dims if d not in k and d not in batch]
        a = np.transpose(x, [*batch, *[d for d in rest if d in m], *[d for d in rest if d not in m], *k])
        b = np.transpose(y, [*batch, *k, *[d for d in rest if d in n], *[d for d in rest if d not in n]])
        a, b = a.reshape(size(batch), size(m), size(k)), b.reshape(size(batch), size(k), size(n))
        out = np.matmul(a, b) if a.dtype.kind == "f" else np.einsum("bmk,bkn->bmn", a, b)
    if repeat != 1:
        out = out * out.dtype.type(repeat)
    order = [*batch, *m, *n, *none]
    out = out.reshape([extents[d] for d in (*batch, *m, *n)] + [1] * len(none))
    return np.transpose(out, [order.index(d) for d in kept])
