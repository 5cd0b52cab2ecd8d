"""Fusing is never estimated to be slower than leaving every edge unfused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.indexbook.analyse import analyse
from tatami.plan.ir import CpuRows
from tatami.poly_view.extract import extract
from tatami.region.fusion.partition import program_key
from tatami.region.fusion.values import resident_values, virtual_values
from tatami.region.partition_ir import Group, Partition
from tests.random_models.open_size_graphs import make_graph

TARGET = "cpu:avx512"


def total(stages: Any) -> float:
    """Seconds of all kernels of `main`, as estimated for their plans."""
    return sum(r.choices[-1].estimate["total"] for r in stages["plan"].main.regions if r.choices[-1].estimate)


def unfused(stages: Any) -> Partition:
    """Every value in a kernel of its own, but for products, which are summed at once, and what each reader repeats."""
    tiny = stages["tiny"]
    program, view = tiny.main, extract(tiny, analyse(tiny)).main
    statements = {s.value: s for s in view.statements}
    repeated = virtual_values(program, view, resident_values(program, view), "cpu")
    product_of = {p.value: p.product for p in view.patterns}
    order = {n.id: k for k, n in enumerate(program.nodes)}
    groups = []
    for v in statements:
        if v in repeated or v in product_of.values():
            continue
        own = {v, product_of.get(v, v)}
        stack = list(own)
        while stack:
            reads = {a.tensor for a in statements[stack.pop()].reads} & repeated - own
            own |= reads
            stack += reads
        groups.append(Group(tuple(sorted(own, key=order.__getitem__))))
    return Partition(tuple(groups))


def both(make: Callable[[], tt.Graph], **sizes: int) -> tuple[float, float, Any]:
    fused = prepare(make(), target=TARGET, sizes=sizes).stages
    apart = {program_key(fused["tiny"].main): unfused(fused)}
    return total(fused), total(prepare(make(), target=TARGET, sizes=sizes, decisions={"partitions": apart}).stages), fused


def decoder(mode: str, act: str = "", maps: int = 4) -> Callable[[], tt.Graph]:
    """Maps resized to the size of the first inside a concatenation that a product reads."""

    def make() -> tt.Graph:
        g = tt.Graph("decoder")
        xs = [g.input(f"x{k}", (1, 32, 32 >> k, 32 >> k), tt.fp32) for k in range(maps)]
        ys = [xs[0]]
        for k, x in enumerate(xs[1:], 1):
            x = x if not act else x * x.sigmoid()
            ys.append(x.resize((1, 32, 32, 32), mode, scales=(1.0, 1.0, 2.0**k, 2.0**k)))
        w = g.constant(np.ones((16, 32 * maps, 1, 1), np.float32))
        g.output("y", g.concat(ys[::-1], 1).conv(w).relu())
        return g

    return make


def pooled(k: int) -> Callable[[], tt.Graph]:
    """Pools of several sizes and a convolution of their concatenation."""

    def make() -> tt.Graph:
        g = tt.Graph("pools")
        x = g.input("x", (1, 32, 20, 20), tt.fp32)
        y = x * x.sigmoid()
        many = [y, *(y.max_pool(2 * j + 3, 1, j + 1) for j in range(k))]
        g.output("y", g.concat(many, 1).conv(g.constant(np.ones((16, 32 * len(many), 1, 1), np.float32))))
        return g

    return make


MODELS = {
    "nearest": decoder("nearest"),
    "linear": decoder("linear"),
    "cubic": decoder("cubic", maps=3),
    "linear behind an activation": decoder("linear", "silu"),
    "two maps": decoder("linear", maps=2),
    "pools": pooled(3),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_a_concatenation_takes_is_not_computed_for_each_place_of_the_joined_axis(name: str) -> None:
    fused, apart, stages = both(MODELS[name])
    assert fused <= apart
    for region in stages["plan"].main.regions:
        assert region.choices[-1].estimate.get("total", 0.0) <= apart
        plan = region.choices[-1].plan
        assert not isinstance(plan, CpuRows) or "workspace" not in plan.storage.values()


@pytest.mark.parametrize("seed", range(30))
def test_fusing_generated_graphs_is_not_estimated_to_be_slower(seed: int) -> None:
    fused, apart, _ = both(lambda: make_graph(seed), B=2, H=60, W=52)
    assert fused <= 1.1 * apart
