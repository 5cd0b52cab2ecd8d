"""Attention in one pass over its keys, against float64: masks, tails, sizes 0 and 1, rows of which nothing is seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.core.target import PRESETS
from tatami.loop.verify import verify as verify_loops
from tatami.plan.ir import CpuStreaming
from tatami.plan.verify_plan import verify_plan

TARGETS = ("cpu", "cpu:avx2", "cpu:generic")
RANGE = (0, 512, 4096)


def graph(heads: int, rows: Any, keys: Any, width: int = 16, out: int = 16, mask: str = "", dtype: Any = tt.fp32) -> tt.Graph:
    """softmax(q k^T / 4 + mask) v for [1, heads, rows or keys, width]."""
    g = tt.Graph("attention")
    q = g.input("q", (1, heads, rows, width), dtype)
    k, v = g.input("k", (1, heads, keys, width), dtype), g.input("v", (1, heads, keys, out), dtype)
    shape = (1, heads, rows, keys)
    scores = (q @ k.permute((0, 1, 3, 2))) * 0.25
    if mask == "causal":
        scores = (g.iota(shape, 3) <= g.iota(shape, 2)).where(scores, -np.inf)
    elif mask == "given":
        scores = g.input("mask", (1, 1, rows, keys), tt.bool).expand(shape).where(scores, -np.inf)
    elif mask in ("added", "safe"):
        scores = scores + g.input("mask", (1, 1, rows, keys), dtype).expand(shape)
    p = scores.softmax(axis=3)
    if mask == "safe":
        p = p.isnan().where(g.full(shape, 0.0, dtype), p)
    g.output("y", p @ v)
    return g


def reference(x: dict[str, np.ndarray], mask: str) -> np.ndarray:
    q, k, v = (x[n].astype(np.float64) for n in "qkv")
    with np.errstate(invalid="ignore"):
        scores = q @ k.swapaxes(-1, -2) * 0.25
    if mask == "causal":
        scores = np.where(np.arange(k.shape[2]) <= np.arange(q.shape[2])[:, None], scores, -np.inf)
    elif mask == "given":
        scores = np.where(x["mask"], scores, -np.inf)
    elif mask:
        scores = scores + x["mask"]
    with np.errstate(invalid="ignore"):
        e = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
        p = e / e.sum(-1, keepdims=True)
        if mask == "safe":
            p = np.where(np.isnan(p), 0.0, p)
        return p @ v


def arrays(heads: int, rows: int, keys: int, width: int = 16, out: int = 16, mask: str = "", dtype: Any = np.float32) -> Any:
    rng = np.random.default_rng(rows * 1000 + keys)
    shapes = {"q": (1, heads, rows, width), "k": (1, heads, keys, width), "v": (1, heads, keys, out)}
    x = {n: rng.standard_normal(s).astype(dtype) for n, s in shapes.items()}
    if mask in ("given", "added", "safe"):
        seen = rng.random((1, 1, rows, keys)) < 0.6
        seen[..., : min(1, rows), :] = False  # a row that sees nothing
        x["mask"] = seen if mask == "given" else np.where(seen, rng.standard_normal(seen.shape), -np.inf).astype(dtype)
    return x


def plan_of(f: Any) -> Any:
    (region,) = f.stages["plan"].value.main.regions
    return region.choices[-1].plan


def check(f: Any, x: dict[str, np.ndarray], mask: str, tolerance: float = 2e-6, given: Any = None) -> None:
    """Compare a program with the reference. `given`: arguments of the program, if the reference takes more than these."""
    assert isinstance(plan_of(f), CpuStreaming)
    assert verify_loops(f.stages["loop"].value) == []
    got, wanted = f(x if given is None else given)["y"], reference(x, mask)
    assert np.array_equal(np.isnan(got), np.isnan(wanted))
    assert np.nanmax(np.abs(got - wanted), initial=0.0) <= tolerance


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mask", ["", "causal", "given", "added", "safe"])
def test_attention_with_symbolic_sizes_agrees_at_every_size(mask: str, target: str) -> None:
    f = tt.compile(graph(2, "M", "N", mask=mask), target=target, sizes={"M": RANGE, "N": RANGE})
    sizes = [(1, 1), (37, 150), (150, 37), (64, 300), (5, 129)] if target == "cpu" else [(37, 150)]
    for rows, keys in sizes:
        check(f, arrays(2, rows, keys, mask=mask), mask)


@pytest.mark.parametrize(("rows", "keys"), [(0, 7), (7, 0)])
def test_no_rows_or_no_keys(rows: int, keys: int) -> None:
    f = tt.compile(graph(2, "M", "N", mask="causal"), sizes={"M": RANGE, "N": RANGE})
    got = f(arrays(2, rows, keys))["y"]
    assert np.array_equal(got, np.zeros((1, 2, rows, 16)))


@pytest.mark.parametrize("mask", ["", "causal", "safe"])
def test_constant_sizes_and_other_widths(mask: str) -> None:
    f = tt.compile(graph(3, 197, 197, 24, 40, mask))
    check(f, arrays(3, 197, 197, 24, 40, mask), mask)


@pytest.mark.parametrize(("more", "columns"), [(3, 16), (0, 128)])
def test_blocks_of_keys_where_only_the_rest_is_known(more: int, columns: int) -> None:
    """64 N + 3 keys: how many a whole block has is unknown where N may be 0, and each micro-kernel has to take both."""
    g = tt.Graph("attention")
    x = g.input("q", (1, 2, 37, 16), tt.fp32)

    def stacked(name: str, width: int) -> tt.Tensor:
        whole = g.input(name, (1, 2, "N", 64, width), tt.fp32).reshape(1, 2, -1, width)
        return g.concat([whole, g.input(f"{name}_end", (1, 2, more, width), tt.fp32)], 2) if more else whole

    k, v = stacked("k", 16), stacked("v", columns)
    g.output("y", ((x @ k.permute((0, 1, 3, 2))) * 0.25).softmax(axis=3) @ v)
    f = tt.compile(g, sizes={"N": (0, 8, 64)})
    for blocks in (0, 1, 2):
        if blocks + more:
            whole = arrays(2, 37, 64 * blocks + more, out=columns)
            given = {"q": whole["q"]}
            for name in "kv":
                given[name] = whole[name][:, :, : 64 * blocks].reshape(1, 2, blocks, 64, whole[name].shape[3])
                if more:
                    given[f"{name}_end"] = whole[name][:, :, 64 * blocks :]
            np.testing.assert_allclose(f(given)["y"], reference(whole, ""), atol=2e-6)


def test_fp64() -> None:
    f = tt.compile(graph(2, 70, 200, mask="causal", dtype=tt.fp64))
    check(f, arrays(2, 70, 200, dtype=np.float64), "causal", 1e-13)


def test_16_bit_operands_and_heads_that_share_their_keys() -> None:
    g = tt.Graph("attention")
    q, k = g.input("q", ("B", 4, "S", 16), tt.fp16), g.input("k", ("B", 1, "S", 16), tt.fp16)
    g.output("y", q.attention(k, g.input("v", ("B", 1, "S", 16), tt.fp16), causal=True))
    function = tt.compile(g)
    assert "cpu_streaming" in function.stages["plan"].text
    rng = np.random.default_rng(0)
    x = {n: rng.standard_normal((2, h, 70, 16)).astype(np.float16) for n, h in (("q", 4), ("k", 1), ("v", 1))}
    wanted = reference({n: a.astype(np.float64) for n, a in x.items()}, "causal")
    np.testing.assert_allclose(function(**x)["y"].astype(np.float64), wanted, rtol=0, atol=2e-3)


def test_bounds_by_index_are_compared_and_only_what_else_a_mask_says_is_looked_at() -> None:
    """Row m sees the keys from m - 90 to m that are given, of 300: of the given ones it is found once, for both heads, in
    which blocks they are."""
    rows, keys, shape = 130, 300, (1, 2, 130, 300)
    g = tt.Graph("window")
    q, k, v = (g.input(n, (1, 2, size, 16), tt.fp32) for n, size in zip("qkv", (rows, keys, keys)))
    m, n = g.iota(shape, 2), g.iota(shape, 3)
    seen = ((n <= m) & (m < n + 91)) & g.input("mask", (1, 1, 1, keys), tt.bool).expand(shape)
    g.output("y", seen.where((q @ k.permute((0, 1, 3, 2))) * 0.25, -np.inf).softmax(axis=3) @ v)
    f = tt.compile(g)
    x = arrays(2, rows, keys)
    at, row = np.arange(keys), np.arange(rows)[:, None]
    x["mask"] = ((at % 7 != 3) & ((at < 10) | (at > 75))).reshape(1, 1, 1, keys)
    x["v"][0, 1, 290, 3] = np.nan
    check(f, x | {"mask": x["mask"] & (at <= row) & (row < at + 91)}, "given", given=x)
    x["mask"][:] = True
    check(f, x | {"mask": x["mask"] & (at <= row) & (row < at + 91)}, "given", given=x)


def test_the_answer_does_not_depend_on_the_number_of_threads() -> None:
    x = arrays(2, 200, 300, mask="safe")
    one, three = (tt.compile(graph(2, 200, 300, mask="safe"), threads=t)(x)["y"] for t in (1, 3))
    assert np.array_equal(one, three)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_value_that_is_not_finite_is_seen_even_where_its_weight_is_zero(value: float) -> None:
    """0 times it is NaN: the block is not passed over."""
    f = tt.compile(graph(1, 32, 300, mask="causal"))
    x = arrays(1, 32, 300)
    x["v"][0, 0, 290, 3] = value
    check(f, x, "causal")
    assert np.isnan(f(x)["y"][..., 3]).all()


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_score_that_is_not_finite_makes_its_row_nan(value: float) -> None:
    f = tt.compile(graph(1, 40, 300))
    x = arrays(1, 40, 300)
    x["k"][0, 0, 7, :] = value
    check(f, x, "")


def test_memory_is_linear_in_the_sequence() -> None:
    """No array of rows x keys: nothing crosses from kernel to kernel, and scratch grows with rows + keys."""
    f = tt.compile(graph(4, "S", "S", mask="causal"), sizes={"S": RANGE})
    assert isinstance(plan_of(f), CpuStreaming)
    execution = f.stages["execution"].value.main
    assert [b for b in execution.buffers if b.kind == "arena"] == []
    (kernel,) = f.stages["loop"].value.main.kernels.values()
    text = f.stages["loop"].text
    assert kernel.face.sizes == 1 and "s0*s0" not in text.replace(" ", "") and "s0^2" not in text


@pytest.mark.parametrize("mask", ["", "causal"])
@pytest.mark.parametrize(("width", "in_place"), [(16, True), (80, False)])
def test_keys_and_values_are_read_in_place_unless_one_key_is_far_from_the_next(width: int, in_place: bool, mask: str) -> None:
    """Keys in the layout of transformers, [keys, heads, width]: neighbouring keys are 4 * width elements apart."""
    g = tt.Graph("heads_inside")
    shape = (1, 4, 64, 150)
    q, k, v = (g.input(n, (1, size, 4, width), tt.fp32).permute((0, 2, 1, 3)) for n, size in zip("qkv", (64, 150, 150)))
    scores = (q @ k.permute((0, 1, 3, 2))) * 0.25
    if mask:
        scores = (g.iota(shape, 3) <= g.iota(shape, 2)).where(scores, -np.inf)
    g.output("y", scores.softmax(axis=3) @ v)
    f = tt.compile(g)
    assert isinstance(plan_of(f), CpuStreaming)
    x = arrays(4, 64, 150, width, width)
    x["v"][0, 0, 149, 3] = np.inf if mask else 1.0
    got = f({n: np.ascontiguousarray(a.transpose(0, 2, 1, 3)) for n, a in x.items()})["y"]
    wanted = reference(x, mask)
    assert np.array_equal(np.isnan(got), np.isnan(wanted))
    assert np.nanmax(np.abs(got - wanted)) <= 5e-6
    assert ("tatami_rows" in f.stages["loop"].text) == in_place
    assert ("tatami_lies" in f.stages["loop"].text) == in_place


def test_grouped_heads() -> None:
    """Four heads read the keys and values of two."""
    g = tt.Graph("grouped")
    q = g.input("q", (1, 4, 50, 16), tt.fp32)
    k, v = (g.input(n, (1, 2, 70, 16), tt.fp32) for n in "kv")
    wide = [t.reshape((1, 2, 1, 70, 16)).expand((1, 2, 2, 70, 16)).reshape((1, 4, 70, 16)) for t in (k, v)]
    g.output("y", ((q @ wide[0].permute((0, 1, 3, 2))) * 0.25).softmax(axis=3) @ wide[1])
    f = tt.compile(g)
    x = arrays(4, 50, 70)
    x["k"], x["v"] = x["k"][:, :2], x["v"][:, :2]
    whole = {n: a if n == "q" else np.repeat(a, 2, axis=1) for n, a in x.items()}
    assert isinstance(plan_of(f), CpuStreaming)
    assert np.abs(f(x)["y"] - reference(whole, "")).max() < 2e-6


@pytest.mark.parametrize(("rows", "keys", "value"), [(5, 0, 0.0), (19, 70, 0.0), (19, 70, np.inf), (19, 70, np.nan)])
def test_what_is_made_of_a_rows_sum_is_written_beside_the_result(rows: int, keys: int, value: float) -> None:
    """Rows without a key, with a mask that excludes all, with scores that are infinite or NaN give the values of formulas over whole rows."""
    g = tt.Graph("sums")
    q, k, v = (g.input(n, (2, s, 16), tt.fp32) for n, s in zip("qkv", ("S", "T", "T")))
    full = (2, "S", "T")
    scores = (g.iota(full, 2) < g.iota(full, 1)).where(q @ k.permute((0, 2, 1)), -np.inf)
    top = scores.max(2, keepdims=True)
    g.output("y", scores.softmax(2) @ v)
    g.output("l", scores.logsumexp(2))
    g.output("z", (scores - top.expand(full)).exp().sum(2) * 2.0)
    g.output("m", top)
    f = tt.compile(g)
    (plan,) = f.stages["plan"].value.main.regions
    assert isinstance(plan.choices[-1].plan, CpuStreaming)
    rng = np.random.default_rng(keys)
    x = {n: rng.standard_normal((2, s, 16)).astype(np.float32) for n, s in zip("qkv", (rows, keys, keys))}
    if value:
        x["k"][0, 3] = 0
        x["k"][0, 3, 0] = value
    with np.errstate(invalid="ignore"):
        want = tt.compile(g, target="reference")(**x)
    made = f(**x)
    for name in want:
        np.testing.assert_allclose(made[name], want[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_weights_without_a_maximum_stream_too() -> None:
    """The rule is about sums of products: here relu(scores) over their sum."""
    g = tt.Graph("relu_attention")
    q, k, v = (g.input(n, (2, 64, 16), tt.fp32) for n in "qkv")
    a = (q @ k.permute((0, 2, 1))).relu()
    total = a.sum(axis=2, keepdims=True) + 1.0
    g.output("y", (a / total.expand((2, 64, 64))) @ v)
    f = tt.compile(g)
    assert isinstance(plan_of(f), CpuStreaming)
    x = {n: np.random.default_rng(i).standard_normal((2, 64, 16)).astype(np.float32) for i, n in enumerate("qkv")}
    r = np.maximum(x["q"].astype(np.float64) @ x["k"].swapaxes(1, 2), 0)
    assert np.abs(f(x)["y"] - (r / (r.sum(-1, keepdims=True) + 1)) @ x["v"]).max() < 1e-5


def pointwise(heads: int, rows: Any, keys: Any, width: int = 16, mask: str = "", act: str = "sigmoid") -> tt.Graph:
    """act(q k^T / 4) v: no weight needs another one."""
    g = tt.Graph("pointwise_attention")
    q = g.input("q", (1, heads, rows, width), tt.fp32)
    k, v = (g.input(n, (1, heads, keys, width), tt.fp32) for n in "kv")
    shape = (1, heads, rows, keys)
    scores = (q @ k.permute((0, 1, 3, 2))) * 0.25
    if mask == "added":
        scores = scores + g.input("mask", (1, 1, rows, keys), tt.fp32).expand(shape)
    weights = getattr(scores, act)()
    if mask == "causal":
        weights = (g.iota(shape, 3) <= g.iota(shape, 2)).where(weights, 0.0)
    elif mask == "given":
        weights = g.input("mask", (1, 1, rows, keys), tt.bool).expand(shape).where(weights, 0.0)
    g.output("y", weights @ v)
    return g


def of_weights(x: dict[str, np.ndarray], mask: str) -> np.ndarray:
    q, k, v = (x[n].astype(np.float64) for n in "qkv")
    with np.errstate(invalid="ignore"):
        scores = q @ k.swapaxes(-1, -2) * 0.25 + (x["mask"] if mask == "added" else 0)
        weights = 1 / (1 + np.exp(-scores))
        if mask == "causal":
            weights = np.where(np.arange(k.shape[2]) <= np.arange(q.shape[2])[:, None], weights, 0)
        elif mask == "given":
            weights = np.where(x["mask"], weights, 0)
        return weights @ v


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mask", ["", "causal", "given", "added"])
def test_weights_that_are_pointwise_in_the_scores_stream(mask: str, target: str) -> None:
    f = tt.compile(pointwise(4, "R", "K", mask=mask), target=target, sizes={"R": RANGE, "K": RANGE})
    assert isinstance(plan_of(f), CpuStreaming)
    assert verify_loops(f.stages["loop"].value) == []
    for rows, keys in ((0, 7), (7, 0), (1, 1), (5, 19), (65, 130), (130, 300)):
        x = arrays(4, rows, keys, mask=mask)
        np.testing.assert_allclose(f(x)["y"], of_weights(x, mask), rtol=0, atol=1e-4, err_msg=f"{rows} x {keys}")


def test_pointwise_weights_pass_over_what_is_excluded_but_not_over_values_that_are_not_finite() -> None:
    f = tt.compile(pointwise(4, 600, 600, mask="causal"))
    assert isinstance(plan_of(f), CpuStreaming)
    x = arrays(4, 600, 600)
    np.testing.assert_allclose(f(x)["y"], of_weights(x, "causal"), rtol=0, atol=1e-4)
    x["v"][0, 0, 599, 3] = np.inf  # 0 times that is NaN in all rows but the last
    got, wanted = f(x)["y"], of_weights(x, "causal")
    assert np.isnan(got[0, 0, :599, 3]).all() and got[0, 0, 599, 3] == np.inf
    assert np.array_equal(np.isnan(got), np.isnan(wanted))


def test_memory_of_pointwise_weights_is_linear_in_the_sequence() -> None:
    f = tt.compile(pointwise(4, "S", "S", mask="causal"), sizes={"S": RANGE})
    assert [b for b in f.stages["execution"].value.main.buffers if b.kind == "arena"] == []
    assert "s0*s0" not in f.stages["loop"].text.replace(" ", "") and "s0^2" not in f.stages["loop"].text


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("rows", "keys"), [(256, 384), (387, 259)])
def test_weights_made_again_of_a_rows_log_sum_stream_to_the_gradient_of_the_values(rows: int, keys: int, causal: bool) -> None:
    """dV = P^T dO, with P = exp(S - L) and L of the forward pass: what streams there are the rows, along which L moves."""
    g = tt.Graph("gradient_of_values")
    q, k = g.input("q", (8, rows, 16), tt.fp32), g.input("k", (8, keys, 16), tt.fp32)
    log_sum, d_out = g.input("L", (8, rows, 1), tt.fp32), g.input("dO", (8, rows, 16), tt.fp32)
    shape = (8, rows, keys)
    p = ((q @ k.permute((0, 2, 1))) * 0.25 - log_sum.expand(shape)).exp()
    if causal:
        p = (g.iota(shape, 2) <= g.iota(shape, 1)).where(p, 0.0)
    g.output("dV", p.permute((0, 2, 1)) @ d_out)
    f = tt.compile(g)
    assert isinstance(plan_of(f), CpuStreaming)
    rng = np.random.default_rng(rows)
    x = {n: rng.standard_normal((8, s, 16)).astype(np.float32) for n, s in (("q", rows), ("k", keys), ("dO", rows))}
    scores = x["q"].astype(np.float64) @ x["k"].swapaxes(1, 2) * 0.25
    scores = np.where(np.arange(keys) <= np.arange(rows)[:, None], scores, -np.inf) if causal else scores
    total = np.log(np.exp(scores).sum(2, keepdims=True))
    x["L"] = total.astype(np.float32)
    np.testing.assert_allclose(f(x)["dV"], np.exp(scores - total).swapaxes(1, 2) @ x["dO"], rtol=0, atol=1e-5)


def test_a_wrong_plan_is_refused_with_the_reason() -> None:
    f = tt.compile(graph(1, 64, 64))
    (region,) = f.stages["region"].value.main.body
    plan = plan_of(f)
    good = PRESETS["cpu:avx512"]
    assert verify_plan(CpuStreaming(plan.first, plan.second, 12, 32, 128, 16), region, good) == []
    wrong = [
        CpuStreaming(plan.second, plan.first, 12, 32, 128, 16),
        CpuStreaming(plan.first, plan.second, 12, 32, 0, 16),
        CpuStreaming(plan.first, plan.second, 12, 40, 128, 16),
        CpuStreaming(plan.first, plan.second, 30, 32, 128, 16),
    ]
    assert [bool(verify_plan(p, region, good)) for p in wrong] == [True] * 4
    assert verify_plan(wrong[0], region, PRESETS["sm80"])[0].kind == "InvalidPlan"
