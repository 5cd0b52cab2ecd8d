"""Images without the elements at their ends that no window reads."""

from __future__ import annotations

from collections.abc import Sequence

from tatami.core.expr import ZERO, Expr, expr
from tatami.frontend.graph_api.tensor import Tensor

Pads = Sequence[tuple[Expr, Expr]]
"""(before, after) of each spatial axis."""


def read_by_windows(image: Tensor, padding: Pads, spans: Sequence[Expr]) -> tuple[Tensor, tuple[tuple[Expr, Expr], ...]]:
    """(image, padding) with which windows along the last axes end with the last of the `spans` elements that they read, padding
    included. Without it, a strided window's gradient would have more places than the window: a convolution of stride 2 over an
    even number of elements leaves the last one out. Axes whose sizes are not numbers stay as they are."""
    stops, pads = list(image.shape), list(padding)
    lead = image.rank - len(spans)
    for i, span in enumerate(spans):
        size, (before, after) = image.shape[lead + i].as_int(), padding[i]
        read = (span - before).as_int()
        if size is None or read is None or after.as_int() is None or read < 1:
            continue
        stops[lead + i], pads[i] = expr(min(size, read)), (before, expr(max(0, read - size)))
    if tuple(stops) != image.shape:
        image = image.one("slice", starts=(ZERO,) * image.rank, stops=tuple(stops))
    return image, tuple(pads)
