"""Rows in groups whose sizes are data, by the rings of both architectures: numbers, what is refused, machine code."""

from __future__ import annotations

import re

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import var
from tatami.core.kernel import Condition
from tatami.core.target import PRESETS
from tatami.gpu.lower import lower_region, lower_split
from tatami.gpu.statement_ir import Loop, SyncThreads
from tatami.gpu.verify import verify_kernel
from tatami.plan.ir import GpuStream, Guarded, SchedulePlan, Sm80Mma, Sm90Mma
from tatami.report.explain import explain
from tatami.runtime.building.nvrtc import has_nvrtc
from tests.cu import machine_code
from tests.cu.test_compile import compiled
from tests.emulated.kernels import NUMPY, Built
from tests.gpu.gemm_examples import rows_in_groups, sm80, sm90, sync

RING = sm80((64, 64, 32), 3, warp="32x32")
WGMMA = sm90((128, 64, 64), 3)
CASES: dict[str, tuple[str, SchedulePlan, DType, str, bool]] = {
    "fp16": ("sm80", RING, DType.fp16, "nn", False),
    "bf16": ("sm80", sm80((64, 64, 32), 2, warp="32x32", width=2), DType.bf16, "tt", False),
    "fp32": ("sm80", sm80((64, 32, 32), 2, warp="32x16", width=4, inst_shape="fma"), DType.fp32, "tn", False),
    "tf32": ("sm80", sm80((64, 64, 16), 3, warp="32x32", width=4, inst_shape="m16n8k8"), DType.fp32, "nt", True),
    "wgmma": ("sm90", WGMMA, DType.fp16, "nn", False),
    "wgmma tf32": ("sm90", sm90((64, 64, 32), 2, depth=8, consumers=1, registers=(56, 224)), DType.fp32, "nt", True),
}
ENDS = (
    [3, 3, 70, 71, 128],  # an empty group, groups that end within a tile, rows behind the last
    [64, 128, 128, 130, 136],  # at the edges of tiles
    [200, -5, 9, 2, 70],  # in no order and outside
    [0, 0, 0, 0, 0],
)


def promised(dtype: DType) -> tuple[Condition, ...]:
    return tuple(Condition(var(s), 16 // dtype.itemsize) for s in "MNK")


def multiplied(ends: list[int], a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Each row with the matrix whose number is how many ends are at most the row; with zeros behind the last."""
    number = (np.array(ends)[:, None] <= np.arange(len(a))).sum(0)
    matrices = np.concatenate([b, np.zeros_like(b, shape=(1, *b.shape[1:]))]).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return np.maximum(np.einsum("mk,mkn->mn", a.astype(np.float64), matrices[number]), 0)


@pytest.mark.parametrize("case", CASES)
def test_every_row_is_multiplied_with_the_matrix_of_its_group(case: str) -> None:
    target, plan, dtype, order, tf32 = CASES[case]
    built = Built(rows_in_groups(dtype, order, tf32=tf32), plan, target, promised(dtype))
    assert verify_kernel(built.kernel) == []
    rng = np.random.default_rng(3)
    large = (136, 72, 40)
    runs = [*((e, large) for e in ENDS), *((ENDS[0], s) for s in ((8, 8, 8), (0, 8, 8), (8, 0, 8))), ([7], large)]
    empty = [(ENDS[0], (8, 8, 0)), ([], large)] if target == "sm80" else []  # no tensor map has a size of 0
    for number, (ends, (m, n, k)) in enumerate([*runs, *empty]):
        a, b = (rng.integers(1, 9, s).astype(NUMPY[dtype]) for s in ((m, k), (len(ends), k, n)))
        if number == 0:  # infinity and NaN stay in their group; behind the last group, infinity is multiplied by 0
            b[2, 5], a[-1, 3] = np.inf, np.inf
        stored = {"A": a.T if order[0] == "t" else a, "B": b.transpose(0, 2, 1) if order[1] == "t" else b}
        arrays = {name: np.ascontiguousarray(x) for name, x in stored.items()} | {"ends": np.array(ends, np.int32)}
        c = built.run(arrays, {"M": m, "N": n, "K": k, "G": len(ends)}, schedule=number)
        np.testing.assert_allclose(c.astype(np.float64), multiplied(ends, a, b), rtol=1e-2)


def choices(dtype: DType, target: str, precision: str = "fp32", groups: object = 8) -> list[tuple[str, tuple[Condition, ...]]]:
    g = tt.Graph("groups")
    x, w = g.input("x", ("T", 64), dtype), g.input("w", (groups, 128, 64), dtype)
    g.output("y", x.grouped_matmul(w.transpose(1, 2), g.input("ends", (groups,), tt.i64)).cast(tt.fp32))
    regions = prepare(g, target=target, precision=precision).stages["plan"].main.regions
    return [(type(c.plan).__name__, c.conditions) for c in regions[-1].choices]


def test_who_gets_a_plan_by_groups() -> None:
    for target, plan in (("sm80", Sm80Mma), ("sm90", Sm90Mma)):
        for dtype, precision in ((tt.fp16, "fp32"), (tt.bf16, "fp32"), (tt.fp32, "tf32")):
            assert choices(dtype, target, precision)[0][0] == plan.__name__
        assert choices(tt.fp32, target)[0][0] == Sm80Mma.__name__
        assert {name for name, _ in choices(tt.fp64, target)} == {GpuStream.__name__}
    (_, some), (second, always) = choices(tt.fp16, "sm90", groups="G")
    assert some == (Condition(var("G"), low=1),) and (second, always) == (Sm80Mma.__name__, ()), "no map has a size of 0"


def test_explain_says_that_rows_are_in_groups() -> None:
    g = tt.Graph("groups")
    g.output(
        "y", g.input("x", ("T", 64), tt.fp16).grouped_matmul(g.input("w", (8, 64, 128), tt.fp16), g.input("ends", (8,), tt.i64))
    )
    said = explain(prepare(g, target="a100"))
    assert re.search(r"Sm80Mma tile \d+x\d+x\d+, rows in groups", said), said


def refusal(plan: SchedulePlan, target: str = "sm90") -> str:
    region, choice = rows_in_groups(), Guarded(promised(DType.fp16), plan)
    lower = lower_split if getattr(plan, "split_k", 1) > 1 else lower_region
    with pytest.raises(TatamiError) as error:
        lower(region, choice, PRESETS[target])
    return str(error.value)


def test_fields_that_a_tile_in_parts_cannot_have_are_refused() -> None:
    assert "split_k" in refusal(sm80((64, 64, 32), 3, warp="32x32", split_k=4))
    assert "async.epilogue_overlap" in refusal(sm80((64, 64, 32), 3, warp="32x32", overlap=True))
    assert "async.enable" in refusal(sm80((64, 64, 32), 3, enable=False))
    assert "gpu_sync" in refusal(sync())
    assert "persistent" in refusal(sm90(persistent=True))
    assert "stmatrix_tma" in refusal(sm90(epilogue_store="stmatrix_tma"))
    assert "swap_ab" in refusal(sm90((128, 32, 64), swap_ab=True))
    assert "axis m of size" in refusal(sm80((64, 64, 32), 3, warp="32x32", tail=("n.i.i", "k.i.i")))


def test_the_next_group_is_copied_after_all_have_read_the_last() -> None:
    kernel = lower_region(rows_in_groups(), Guarded(promised(DType.fp16), RING), PRESETS["sm80"])[0]
    (loop,) = kernel.body
    assert isinstance(loop, Loop)
    early = msgspec.structs.replace(loop, body=tuple(s for s in loop.body if not isinstance(s, SyncThreads)))
    found = verify_kernel(msgspec.structs.replace(kernel, body=(early,)))
    assert "is refilled by" in str(found[0]) and "before its TokFree" in str(found[0])


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize("target", ["sm80", "sm90"])
def test_what_is_chosen_for_many_rows_compiles_without_spills(target: str) -> None:
    """The largest tiles have no registers for what is kept from one group to the next."""
    g = tt.Graph("groups")
    x, w = g.input("x", ("T", 2048), tt.fp16), g.input("w", (8, 2048, 2048), tt.fp16)
    g.output("y", x.grouped_matmul(w, g.input("ends", (8,), tt.i32)).relu())
    source = prepare(g, target=target, sizes={"T": (0, 4096, 1 << 20)}).stages["cu"].main
    cubin = machine_code.compiled(source.units[0], source.headers)
    assert cubin.warnings == () and cubin.spill_bytes == 0


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
def test_multiply_adds_compile_without_spills() -> None:
    target, plan, dtype, order, tf32 = CASES["fp32"]
    compiled(rows_in_groups(dtype, order, tf32=tf32), plan, target, promised(dtype))
