"""Pairs whose weights are made of two products of the same rows and keys: the gradients of attention's queries and keys,
dS = P (dO V^T - D) with P = exp(Q K^T / 4 - L), in one pass each."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.loop.verify import verify as verify_loops
from tatami.plan.ir import CpuStreaming
from tatami.region.ir import Binary, Let, Reduce, Ref, Region
from tatami.region.views.pairs.online import Online, find_online
from tatami.region.views.pairs.pair import PairView, pair_view
from tests.loop.attention.test_streaming import RANGE, TARGETS, plan_of


def gradient(
    rows: Any, keys: Any, of: str = "q", width: int = 16, mask: str = "", dtype: Any = tt.fp32, heads: int = 4
) -> tt.Graph:
    """dQ = dS K, or dK = dS^T Q."""
    g = tt.Graph("gradient")
    q, d_out = (g.input(n, (heads, rows, width), dtype) for n in ("q", "dO"))
    k, v = (g.input(n, (heads, keys, width), dtype) for n in "kv")
    log_sum, product = (g.input(n, (heads, rows, 1), dtype) for n in "LD")
    full = (heads, rows, keys)
    p = ((q @ k.permute((0, 2, 1))) * 0.25 - log_sum.expand(full)).exp()
    ds = p * (d_out @ v.permute((0, 2, 1)) - product.expand(full)) * 0.25
    if mask == "causal":
        ds = (g.iota(full, 2) <= g.iota(full, 1)).where(ds, 0.0)
    elif mask == "given":
        ds = g.input("mask", (1, rows, keys), tt.bool).expand(full).where(ds, 0.0)
    g.output("y", ds @ k if of == "q" else ds.permute((0, 2, 1)) @ q)
    return g


def arrays(rows: int, keys: int, width: int = 16, mask: str = "", dtype: Any = np.float32, heads: int = 4) -> dict[str, Any]:
    rng = np.random.default_rng(1000 * rows + keys)
    sizes = {"q": (rows, width), "k": (keys, width), "v": (keys, width), "dO": (rows, width), "L": (rows, 1), "D": (rows, 1)}
    x: dict[str, Any] = {n: (rng.standard_normal((heads, *s)) / 2).astype(dtype) for n, s in sizes.items()}
    return x | ({"mask": rng.random((1, rows, keys)) < 0.5} if mask == "given" else {})


def wanted(x: dict[str, Any], of: str, mask: str) -> np.ndarray:
    q, k, v, d_out, log_sum, product = (x[n].astype(np.float64) for n in ("q", "k", "v", "dO", "L", "D"))
    with np.errstate(invalid="ignore"):
        ds = np.exp(q @ k.swapaxes(1, 2) / 4 - log_sum) * (d_out @ v.swapaxes(1, 2) - product) / 4
        if mask:
            seen = x.get("mask", np.arange(k.shape[1]) <= np.arange(q.shape[1])[:, None])
            ds = np.where(seen, ds, 0)
        return ds @ k if of == "q" else ds.swapaxes(1, 2) @ q


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mask", ["", "causal", "given"])
@pytest.mark.parametrize("of", ["q", "k"])
def test_the_gradients_of_queries_and_keys_stream(of: str, mask: str, target: str) -> None:
    f = tt.compile(gradient("R", "K", of, mask=mask), target=target, sizes={"R": RANGE, "K": RANGE})
    assert isinstance(plan_of(f), CpuStreaming)
    assert verify_loops(f.stages["loop"].value) == []
    for rows, keys in ((0, 7), (7, 0), (1, 1), (5, 19), (65, 130), (130, 300)):
        x = arrays(rows, keys, mask=mask)
        np.testing.assert_allclose(f(x)["y"], wanted(x, of, mask), rtol=1e-4, atol=1e-4, err_msg=f"{rows} x {keys}")


def test_depths_may_differ_and_the_sums_be_of_64_bits() -> None:
    f = tt.compile(gradient(600, 520, width=40, dtype=tt.fp64))
    assert isinstance(plan_of(f), CpuStreaming)
    x = arrays(600, 520, 40, dtype=np.float64)
    np.testing.assert_allclose(f(x)["y"], wanted(x, "q", ""), rtol=1e-12, atol=1e-12)


def test_few_rows_read_their_keys_in_place() -> None:
    f = tt.compile(gradient(48, 16384, heads=2))  # scores larger than the L2 of any machine
    assert isinstance(plan_of(f), CpuStreaming) and "lies" in f.stages["c"].text
    x = arrays(48, 16384, heads=2)
    np.testing.assert_allclose(f(x)["y"], wanted(x, "q", ""), rtol=1e-4, atol=1e-4)


def test_memory_is_linear_in_the_sequence() -> None:
    f = tt.compile(gradient("S", "S", mask="causal"), sizes={"S": RANGE})
    assert [b for b in f.stages["execution"].value.main.buffers if b.kind == "arena"] == []
    assert "s0*s0" not in f.stages["loop"].text.replace(" ", "") and "s0^2" not in f.stages["loop"].text


def test_excluded_blocks_are_passed_over_unless_a_value_there_is_not_finite() -> None:
    f = tt.compile(gradient(600, 600, mask="causal"))
    x = arrays(600, 600)
    x["k"][0, 599, 3] = np.inf
    got, exact = f(x)["y"], wanted(x, "q", "causal")
    assert np.isnan(got[0, :599, 3]).all() and np.array_equal(np.isnan(got), np.isnan(exact))


def region_of(graph: tt.Graph) -> Region:
    (region,) = (r for r in prepare(graph, target="cpu:avx2").stages["region"].main.body if isinstance(r, Region))
    return region


def test_both_first_products_are_known_and_gpus_take_them_where_it_pays() -> None:
    region = region_of(gradient(600, 600))
    found = find_online(region)
    assert isinstance(found, Online) and len(found.firsts) == 2 and not found.top
    view = pair_view(region)
    assert isinstance(view, PairView) and view.shared and [f.acc for f in view.firsts] == [f.acc for f in found.firsts]
    for length, mask, count in ((2560, "", 3), (2560, "causal", 1), (8192, "", 1)):  # the last: 2 GB of weights
        stages = prepare(gradient(length, length, width=64, mask=mask), target="sm80").stages
        assert len([r for r in stages["region"].main.body if isinstance(r, Region)]) == count


def test_a_first_product_that_needs_the_other_is_refused() -> None:
    """A planted fault: dO V^T is multiplied with what the scores give."""
    region = region_of(gradient(600, 600))
    found = find_online(region)
    assert isinstance(found, Online)
    first, other = (shape.acc for shape in found.firsts)

    def follows(let: Let) -> Let:
        assert isinstance(let.expr, Reduce) and isinstance(let.expr.body, Binary)
        body = msgspec.structs.replace(let.expr.body, x=Binary("add", let.expr.body.x, Ref(first)))
        return msgspec.structs.replace(let, expr=msgspec.structs.replace(let.expr, body=body))

    lets = tuple(follows(x) if x.name == other else x for x in region.lets)
    why = find_online(msgspec.structs.replace(region, lets=lets))
    assert isinstance(why, str) and "is made of another contraction" in why, why


def test_a_row_that_is_reduced_has_one_first_product() -> None:
    g = tt.Graph("two")
    q, k, v = (g.input(n, (600, 16), tt.fp32) for n in "qkv")
    scores = q @ k.permute((1, 0)) + q @ v.permute((1, 0))
    g.output("y", scores.softmax(axis=1) @ v)
    stages = prepare(g, target="cpu:avx2").stages
    assert len([r for r in stages["region"].main.body if isinstance(r, Region)]) > 1
    f = tt.compile(g)
    rng = np.random.default_rng(0)
    x = {n: (rng.standard_normal((600, 16)) / 2).astype(np.float32) for n in "qkv"}
    s = x["q"].astype(np.float64) @ (x["k"] + x["v"]).T
    e = np.exp(s - s.max(1, keepdims=True))
    np.testing.assert_allclose(f(x)["y"], e / e.sum(1, keepdims=True) @ x["v"], rtol=0, atol=1e-5)
