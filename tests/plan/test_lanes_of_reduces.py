"""The axis of lanes of a reduce: along its own axis only where its accesses move less far than across its results."""

from __future__ import annotations

import numpy as np

import tatami as tt
from tatami.plan.ir import CpuRows


def test_products_of_one_row_in_one_region_read_their_weights_row_by_row() -> None:
    """Two products of one row with a norm around them are one Region. Lanes of the first run along the axis that the second sums
    over: there they would read the second matrix column by column."""
    g = tt.Graph("g")
    x = g.input("x", (1, 256), tt.fp32)
    names = {"a": (256, 256), "w": (256, 2048), "v": (2048, 256)}
    a, w, v = (g.input(n, s, tt.fp32) for n, s in names.items())
    first = x @ a
    first = first - first.mean(axis=(0, 1))
    last = (first @ w).relu() @ v + first
    g.output("y", last - last.mean(axis=(0, 1)))
    f = tt.compile(g, threads=1)
    plans = f.stages["plan"].value.main
    passes = [
        p for r in plans.regions for c in r.choices if isinstance(c.plan, CpuRows) for h in c.plan.phases for p in h.passes
    ]
    long = [p for p in passes if len(p.axes) == 1 and p.along]
    assert long and all(p.vector for p in long), passes
    rng = np.random.default_rng(0)
    given = {n: (rng.normal(size=s) / 16).astype(np.float32) for n, s in {"x": (1, 256), **names}.items()}
    mine = given["x"] @ given["a"]
    mine -= mine.mean()
    end = np.maximum(mine @ given["w"], 0) @ given["v"] + mine
    np.testing.assert_allclose(f(**given)["y"], end - end.mean(), rtol=1e-4, atol=1e-5)
