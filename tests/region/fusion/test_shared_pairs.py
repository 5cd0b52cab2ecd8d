"""Streaming pairs that are made of the same values: all gradients of attention, without an array of rows x keys."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.diagnostic import TatamiError
from tatami.region.fusion.partition import program_key
from tatami.region.ir import Reduce, Region
from tatami.region.partition_ir import Group
from tatami.region.views.pairs.online import Online, find_online

LENGTHS = {"R": (0, 4096, 1 << 16), "K": (0, 4096, 1 << 16)}
FACTOR = 0.25


def gradients(mask: str = "", width: int = 16, dtype: Any = tt.fp32, heads: int = 4, extra: str = "") -> tt.Graph:
    """dQ, dK and dV, all said of one S = Q K^T and one dO V^T. `extra`: what else the graph makes."""
    g = tt.Graph("gradients")
    q, d_out = (g.input(n, (heads, "R", width), dtype) for n in ("q", "dO"))
    k, v = (g.input(n, (heads, "K", width), dtype) for n in "kv")
    total, product = (g.input(n, (heads, "R", 1), tt.fp32) for n in "LD")
    if extra == "statistics":
        total = (total.exp() + total.exp()).log() - 0.6931471805599453
    s = q.matmul(k.transpose(-2, -1), out_dtype=tt.fp32) * FACTOR
    e = (s - total.expand(s.shape)).exp()
    of_p = d_out.matmul(v.transpose(-2, -1), out_dtype=tt.fp32)
    ds, p = e * (of_p - product.expand(s.shape)) * FACTOR, e
    if mask:
        seen = g.iota(s.shape, 2) <= g.iota(s.shape, 1)
        seen = g.input("mask", (1, "R", "K"), tt.bool).expand(s.shape) if mask == "given" else seen
        ds, p = seen.where(ds, 0.0), seen.where(p, 0.0)
    ds, p = ds.cast(dtype), p.cast(dtype)
    g.output("dQ", ds @ k)
    g.output("dK", ds.transpose(-2, -1) @ q)
    g.output("dV", p.transpose(-2, -1) @ d_out)
    if extra == "weights":
        g.output("p", p)
    if extra == "sum":
        g.output("sum", s.sum((2,)))
    return g


def arrays(rows: int, keys: int, mask: str, width: int = 16, dtype: Any = np.float32, heads: int = 4) -> dict[str, Any]:
    rng = np.random.default_rng(1000 * rows + keys)
    x: dict[str, Any] = {n: (rng.standard_normal((heads, rows, width)) / 2).astype(dtype) for n in ("q", "dO")}
    x |= {n: (rng.standard_normal((heads, keys, width)) / 2).astype(dtype) for n in "kv"}
    x |= {n: rng.standard_normal((heads, rows, 1)).astype(np.float32) for n in "LD"}
    return x | ({"mask": rng.random((1, rows, keys)) < 0.5} if mask == "given" else {})


def wanted(x: dict[str, Any], mask: str) -> dict[str, np.ndarray]:
    q, k, v, d_out, total, product = (x[n].astype(np.float64) for n in ("q", "k", "v", "dO", "L", "D"))
    p = np.exp(q @ k.swapaxes(1, 2) * FACTOR - total)
    if mask:
        p = np.where(x.get("mask", np.arange(k.shape[1]) <= np.arange(q.shape[1])[:, None]), p, 0)
    ds = p * (d_out @ v.swapaxes(1, 2) - product) * FACTOR
    return {"dQ": ds @ k, "dK": ds.swapaxes(1, 2) @ q, "dV": p.swapaxes(1, 2) @ d_out}


def regions(graph: tt.Graph, target: str = "cpu:avx2", **options: Any) -> list[Region]:
    body = prepare(graph, target=target, sizes=LENGTHS, **options).stages["region"].main.body
    return [r for r in body if isinstance(r, Region)]


@pytest.mark.parametrize(("target", "dtype"), [("cpu:avx2", tt.fp32), ("sm80", tt.fp16), ("sm80", tt.fp32), ("sm90", tt.bf16)])
@pytest.mark.parametrize("mask", ["", "causal", "given"])
def test_each_gradient_is_one_region_that_makes_its_own_scores(mask: str, target: str, dtype: Any) -> None:
    found = regions(gradients(mask, 64, dtype, heads=32), target)
    firsts = [shape.firsts for r in found if isinstance(shape := find_online(r), Online)]
    assert sorted(map(len, firsts)) == [1, 2, 2]
    names = [{f.acc for f in of_one} for of_one in firsts]
    assert len(set.intersection(*names)) == 1  # the scores, in each


@pytest.mark.parametrize("mask", ["", "causal", "given"])
@pytest.mark.parametrize("target", ["cpu", "cpu:generic"])
def test_numbers_on_cpus_are_float64s(mask: str, target: str) -> None:
    f = tt.compile(gradients(mask), target=target, sizes=LENGTHS)
    assert len(f.stages["region"].value.main.body) == 3
    assert [b for b in f.stages["execution"].value.main.buffers if b.kind == "arena"] == []
    for rows, keys in ((0, 7), (7, 0), (1, 1), (5, 19), (65, 130), (130, 300)):
        x = arrays(rows, keys, mask)
        got, exact = f(x), wanted(x, mask)
        for name, values in exact.items():
            np.testing.assert_allclose(got[name], values, rtol=1e-4, atol=1e-4, err_msg=f"{name} {rows} x {keys}")


@pytest.mark.parametrize(("isa", "mask"), [("sm80", "causal"), ("sm80", "given"), ("sm90", "causal")])
def test_numbers_on_emulated_gpus_are_float64s(isa: str, mask: str) -> None:
    f = tt.compile(gradients(mask, 64, tt.fp16, heads=2), target=f"emulated-{isa}", sizes=LENGTHS)
    assert len(f.stages["region"].value.main.body) == 3
    for rows, keys in ((70, 130), (1, 1), (0, 3)):
        x = arrays(rows, keys, mask, 64, np.float16, heads=2)
        got, exact = f(x), wanted(x, mask)
        for name, values in exact.items():
            np.testing.assert_allclose(got[name].astype(np.float64), values, rtol=3e-2, atol=3e-2, err_msg=name)


@pytest.mark.parametrize("extra", ["weights", "sum"])
def test_what_is_read_elsewhere_is_made_once(extra: str) -> None:
    """The weights are a result, or the scores are reduced: they are in memory anyway, and nothing is made twice."""
    sums = [let.name for r in regions(gradients(extra=extra)) for let in r.lets if isinstance(let.expr, Reduce)]
    assert len(sums) == len(set(sums)) >= 5


def test_what_pairs_read_is_made_before_all_of_them() -> None:
    """Values of a row that are read by what the pairs share belong to none of them."""
    f = tt.compile(gradients("causal", extra="statistics"), sizes=LENGTHS)
    body = f.stages["region"].value.main.body
    assert [isinstance(find_online(r), Online) for r in body] == [False, True, True, True]
    x = arrays(130, 300, "causal")
    exact = wanted(x, "causal")
    for name, values in f(x).items():
        np.testing.assert_allclose(values, exact[name], rtol=1e-4, atol=1e-4, err_msg=name)


def test_short_sequences_keep_their_weights_in_memory() -> None:
    found = prepare(gradients(), target="sm80", sizes={"R": 256, "K": 256}).stages
    assert len(found["region"].main.body) == 5
    whys = [v.why for v in found["partition"]["main"].verdicts if v.why]
    assert whys and all(re.fullmatch(r"as one kernel: \S+ bytes of weights stay in cache without it", why) for why in whys)


def test_a_given_partition_may_repeat_what_all_its_readers_make() -> None:
    """A planted fault for each rule: a group that lacks what it reads, one that makes what it does not read."""
    stages = prepare(gradients(), target="cpu:avx2", sizes=LENGTHS).stages
    made = stages["partition"]["main"]
    key = program_key(stages["tiny"].main)
    given: dict[str, Any] = {"decisions": {"partitions": {key: made}}}
    assert len(regions(gradients(), **given)) == 3
    shared = set.intersection(*(set(g.values) for g in made.groups))
    everywhere = next(v for g in made.groups for v in g.values if v in shared)
    only = next(v for v in made.groups[0].values if all(v not in g.values for g in made.groups[1:]))
    less = (*made.groups[:2], Group(tuple(v for v in made.groups[2].values if v != everywhere)))
    more = (*made.groups[:2], Group((*made.groups[2].values, only)))
    for wrong in (less, more):
        with pytest.raises(TatamiError, match="E1501"):
            regions(gradients(), decisions={"partitions": {key: msgspec.structs.replace(made, groups=wrong)}})
