"""Kernel text computes the right numbers, on the emulated machine, which finds nothing to report."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest

from tatami.core.algebra.visit import evaluate
from tatami.core.dtype import DType
from tatami.core.expr import expr
from tatami.core.layout import MemRef
from tatami.gpu.products.split_k import split_region
from tatami.region.ir import Binary, Read, Reduce, Region
from tatami.region.walk import nodes
from tests.cu.test_compile import BY8
from tests.emulated.kernels import NUMPY, Built, Change, changed
from tests.gpu.gemm_examples import gemm, sm80, sm90, sync


def compare(
    region: Region,
    plan: Any,
    target: str,
    env: dict[str, int],
    conditions: Any = BY8,
    change: Change = lambda t: t,
    sms: int = 0,
    schedule: int = 0,
) -> None:
    rng = np.random.default_rng(1)
    arrays = {}
    for p in region.inputs:
        shape = tuple(int(evaluate(s, env)) for s in p.memref.shape)
        values = rng.integers(-8, 9, shape) / 8
        arrays[p.name] = np.ascontiguousarray(values.astype(NUMPY[p.memref.dtype]))
    got = Built(region, plan, target, conditions, change, sms=sms).run(arrays, env, schedule).astype(np.float64)
    a, b = (arrays[n].astype(np.float64) for n in "AB")
    maps = {p.name: r.map for p, r in zip(region.inputs, _reads(region), strict=False)}
    if str(maps["A"][-1]) != "k":
        a = np.swapaxes(a, -1, -2)
    if str(maps["B"][-1]) == "k":
        b = np.swapaxes(b, -1, -2)
    want = a @ b
    if "bias" in arrays:
        want = want + arrays["bias"].astype(np.float64)
    if "R" in arrays:
        want = want + arrays["R"].astype(np.float64)
    if any("relu" in str(x.expr) for x in region.lets):
        want = np.maximum(want, 0)
    tolerance = {np.float16: 2e-3, ml_dtypes.bfloat16: 1e-2, np.float32: 1e-5}[NUMPY[region.outputs[0].memref.dtype]]
    assert not np.isnan(got).any(), f"{np.isnan(got).sum()} elements were not written"
    error = np.abs(got - want) - tolerance * (np.abs(want) + 1)
    assert error.max() <= 0, f"worst at {np.unravel_index(error.argmax(), error.shape)}"


def _reads(region: Region) -> list[Any]:
    made = region.lets[0].expr
    assert isinstance(made, Reduce) and isinstance(made.body, Binary)
    body = made.body
    return [next(n for n in nodes(side) if isinstance(n, Read)) for side in (body.x, body.y)]


TAILS = {"M": 100, "N": 88, "K": 72, "B": 2}
SMALL80 = sm80((64, 64, 32), 3, warp="32x32")


@pytest.mark.parametrize("a_col", [False, True])
@pytest.mark.parametrize("b_col", [False, True])
@pytest.mark.parametrize("target", ["sm80", "sm90"])
def test_every_storage_order_with_tails(a_col: bool, b_col: bool, target: str) -> None:
    plan = SMALL80 if target == "sm80" else sm90((128, 64, 64), 3)
    by4 = TAILS | {"M": 104}
    compare(gemm(a_col=a_col, b_col=b_col), plan, target, by4)


@pytest.mark.parametrize(
    "plan",
    [
        sm80((128, 64, 64), 2),
        sm80((64, 64, 16), 4, warp="32x32"),
        sm80((64, 64, 32), 3, warp="32x32", overlap=True),
        sm80((64, 64, 32), 2, warp="32x32", depth=1),
        sm80((64, 64, 32), 2, warp="32x16", width=4),
        sm80((64, 64, 32), 2, warp="32x32", hints={"A_swizzle": False, "B_swizzle": False}),
        sm80((64, 64, 32), 2, warp="32x32", bind={"m.o": "block.x", "n.o": "block.y"}),
        sm80((64, 64, 32), 2, enable=False),
        sync(),
        sync((32, 64, 16)),
    ],
    ids=lambda p: f"{type(p).__name__}-{p.tile}",
)
def test_sm80_plans_agree_with_numpy(plan: Any) -> None:
    compare(gemm(residual=True, out=DType.fp32), plan, "sm80", TAILS)


@pytest.mark.parametrize(
    "plan",
    [
        sm90((128, 128, 64), 2, wait_depth=0),
        sm90((64, 96, 64), 4, consumers=1, registers=(56, 224)),
        sm90((128, 64, 32), 3),
        sm90((64, 64, 64), 2, consumers=1, registers=(56, 224), persistent=True),
        sm90((64, 64, 64), 3, consumers=1, registers=(56, 224), persistent=True, overlap=True, tile_order="row"),
        sm90((256, 64, 64), 2),
    ],
    ids=lambda p: str(p.tile),
)
def test_sm90_plans_agree_with_numpy(plan: Any) -> None:
    compare(gemm(b_col=True, dtype=DType.bf16, out=DType.bf16), plan, "sm90", TAILS)


@pytest.mark.parametrize("target", ["sm80", "sm90"])
def test_batches(target: str) -> None:
    plan = SMALL80 if target == "sm80" else sm90((128, 64, 64), 3, persistent=True, overlap=True)
    compare(gemm(batch="B"), plan, target, TAILS)


@pytest.mark.parametrize("size", [1, 31, 33, 65])
def test_odd_sizes(size: int) -> None:
    env = {"M": size, "N": size, "K": size}
    compare(gemm(), sm80((64, 64, 32), 2, warp="32x32"), "sm80", env, ())


@pytest.mark.parametrize("a_col", [False, True])
@pytest.mark.parametrize("b_col", [False, True])
def test_fp32_in_every_storage_order(a_col: bool, b_col: bool) -> None:
    region = gemm(a_col=a_col, b_col=b_col, dtype=DType.fp32, out=DType.fp32, residual=True)
    plan = sm80((64, 64, 16), 3, warp="32x32", inst_shape="fma", overlap=a_col)
    compare(region, plan, "sm80", {"M": 100, "N": 67, "K": 33}, ())


@pytest.mark.parametrize(
    "plan",
    [
        sm80((128, 128, 16), 2, warp="64x32", inst_shape="fma"),
        sm80((64, 32, 8), 4, warp="32x16", inst_shape="fma", width=2),
        sm80((32, 64, 32), 2, warp="32x16", inst_shape="fma", hints={"A_swizzle": False, "B_swizzle": False}),
    ],
    ids=lambda p: str(p.tile),
)
def test_fp32_plans_agree_with_numpy(plan: Any) -> None:
    compare(gemm(dtype=DType.fp32, out=DType.fp16, batch="B"), plan, "sm80", TAILS)


SPLIT80 = sm80((64, 64, 16), 3, warp="32x32", inst_shape="fma", width=4, tile_order="grouped")
SPLIT90 = sm90((64, 64, 32), 2, consumers=1, registers=(56, 224))


@pytest.mark.parametrize("split", [2, 5])
@pytest.mark.parametrize(("plan", "dtype"), [(SPLIT80, DType.fp32), (SPLIT90, DType.fp16)], ids=["sm80", "sm90"])
def test_the_parts_of_split_k_cover_k(plan: Any, dtype: DType, split: int) -> None:
    """One kernel's partial sums, in order, are the product; parts behind the end of k are 0."""
    compare_parts(msgspec.structs.replace(plan, split_k=split), dtype, 104)


STREAMED90 = {
    "after the epilogue": sm90((64, 64, 32), 2, consumers=1, registers=(56, 224), persistent=True, split_k=3),
    "overlapped": sm90((64, 64, 32), 2, consumers=1, registers=(56, 224), persistent=True, overlap=True, split_k=3),
    "in turns": sm90((64, 64, 32), 2, registers=(40, 232), persistent=True, overlap=True, schedule="pingpong", split_k=3),
    "cluster": sm90(
        (64, 128, 32),
        2,
        consumers=1,
        registers=(56, 224),
        persistent=True,
        overlap=True,
        cluster=(2, 1),
        multicast="b",
        split_k=3,
    ),
}


@pytest.mark.parametrize("k", [8, 104, 128, 200])
@pytest.mark.parametrize("how", STREAMED90)
def test_persistent_ctas_walk_through_the_parts_of_k(how: str, k: int) -> None:
    """Equal parts of 1, 2 and 3 blocks, some of which begin or end behind k, on fewer CTAs than there are parts."""
    compare_parts(STREAMED90[how], DType.fp16, k, sms=6)


def test_persistent_parts_that_begin_at_the_wrong_block_are_noticed() -> None:
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        compare_parts(
            STREAMED90["overlapped"], DType.fp16, 200, 6, changed("k_first = split * KB * BK", "k_first = split * BK")
        )


def compare_parts(plan: Any, dtype: DType, k: int, sms: int = 0, change: Change = lambda t: t) -> None:
    region = gemm(dtype=dtype, out=DType.fp32, batch="B", bias=False, relu=False)
    first = split_region(region, plan, "acc").product
    target = first.outputs[0]
    out = msgspec.structs.replace(target, memref=MemRef(DType.fp32, (expr(plan.split_k), *target.memref.shape)))
    built = Built(first, plan, plan.arch, BY8 if dtype == DType.fp16 else (), change, sms=sms)
    built.region = msgspec.structs.replace(first, outputs=(out,))
    rng = np.random.default_rng(1)
    a, b = ((rng.integers(-8, 9, s) / 8).astype(NUMPY[dtype]) for s in ((2, 70, k), (2, k, 72)))
    parts = built.run({"A": a, "B": b}, {"M": 70, "N": 72, "K": k, "B": 2})
    assert parts.shape == (plan.split_k, 2, 70, 72)
    np.testing.assert_allclose(parts.sum(0), a.astype(np.float64) @ b.astype(np.float64), rtol=1e-5, atol=1e-5)


def test_fp32_can_be_synchronous() -> None:
    compare(gemm(dtype=DType.fp32, out=DType.fp32), sync(), "sm80", {"M": 65, "N": 33, "K": 31}, ())


@pytest.mark.parametrize(
    ("plan", "right", "wrong"),
    [
        (SMALL80, "tt_ldmatrix_x4_trans(to_b[j]", "tt_ldmatrix_x4(to_b[j]"),
        (SMALL80, "+ 8 * h + lane / 4", "+ 8 * h + lane / 8"),
        (sm90((128, 64, 64), 3), "kk * 2048", "kk * 32"),
        (sm90((128, 64, 64), 3), "1024, 128)", "2048, 128)"),
    ],
    ids=["trans", "row", "k step", "stride"],
)
def test_a_wrong_text_is_noticed(plan: Any, right: str, wrong: str) -> None:
    with pytest.raises(AssertionError, match=r"worst|not written|layout|race"):
        compare(gemm(), plan, "sm90", TAILS, change=changed(right, wrong))
