"""The text of every template passes NVRTC and ptxas, without spills and without a performance warning."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.dtype import DType
from tatami.core.expr import var
from tatami.core.kernel import Condition, KernelFace
from tatami.core.target import PRESETS
from tatami.cu.print import headers, print_unit
from tatami.gpu.lower import lower_region
from tatami.plan.ir import Guarded, SchedulePlan
from tatami.region.ir import Region
from tatami.runtime.building.nvrtc import Cubin, has_nvrtc
from tests.cu import machine_code as code
from tests.cu.machine_code import sass
from tests.gpu.gemm_examples import gemm, sm80, sm90, sync

pytestmark = pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
BY8 = tuple(Condition(var(s), 8) for s in "MNK")


def compiled(region: Region, plan: SchedulePlan, target: str, conditions: tuple[Condition, ...] = BY8) -> Cubin:
    kernel, binding = lower_region(region, Guarded(conditions, plan), PRESETS[target])
    kernel = msgspec.structs.replace(kernel, face=KernelFace("k0", (), len(binding.sizes), ""))
    unit = print_unit(kernel, PRESETS[target])
    cubin = code.compiled(unit, headers((kernel,)))
    assert cubin.warnings == ()
    assert cubin.spill_bytes == 0
    return cubin


def test_sm80_copies_loads_and_multiplies(tmp_path: Path) -> None:
    ops = sass(compiled(gemm(), sm80((64, 64, 32), 3, warp="32x32"), "sm80"), tmp_path)
    loaders = 3  # two blocks before the loop, one inside
    assert ops["LDGSTS"] == loaders * (64 + 64) * 32 * 2 // 16 // 128
    assert ops["LDSM"] % ((32 // 16 + 32 // 16) * 2) == 0 and ops["LDSM"] > 0
    assert ops["HMMA"] % ((32 // 16) * (32 // 8) * 2) == 0 and ops["HMMA"] > 0
    assert ops["STL"] == ops["LDL"] == 0


READS = {
    (False, False): (4, 3 * (8 + 2 * 2)),  # two steps of a row of A by one read, of B four columns of one step
    (True, False): (2, 3 * (2 + 2)),  # one step, four rows or columns
    (False, True): (4, 1 + 8 + 8 + 8),  # four steps of a row by one read; before the loop the first row of A and all of B
}
"""Steps of k in the loop, by (a_col, b_col), and reads of shared memory, those before the loop among them."""


@pytest.mark.parametrize(("a_col", "b_col"), READS)
def test_fp32_copies_by_cp_async_and_reads_the_next_part_before_the_math(a_col: bool, b_col: bool, tmp_path: Path) -> None:
    region = gemm(dtype=DType.fp32, out=DType.fp32, a_col=a_col, b_col=b_col, bias=False, relu=False)
    cubin = compiled(region, sm80((128, 128, 16), 3, warp="64x32", width=4, inst_shape="fma"), "sm80")
    order = code.instructions(cubin, tmp_path)
    ops = Counter(order)
    assert ops["LDGSTS"] == 3 * (128 + 128) * 16 * 4 // 16 // 256
    steps, reads = READS[a_col, b_col]
    assert (ops["FFMA"], ops["LDS"]) == (steps * 8 * 8, reads)
    assert ops["STG"] == 8 * 8 // 4 and ops["STL"] == ops["LDL"] == 0 and cubin.registers <= 168
    math = "".join(op[0] for op in order if op in ("LDS", "FFMA"))
    before, after = (9, 5) if b_col else (reads // 3, 0)
    assert math.lstrip("L") == math[before:], "what the loop reads is read between its multiply-adds"
    assert len(math) - len(math.rstrip("L")) <= after, "what the last row of A was the last to use, after it"
    assert after or math.endswith("F" * 16), "and some follow before it is used"


def test_sm90_loads_by_tma_and_multiplies_by_wgmma(tmp_path: Path) -> None:
    ops = sass(compiled(gemm(), sm90(), "sm90"), tmp_path)
    assert ops["HGMMA"] > 0 and ops["HGMMA"] % 4 == 0
    assert ops["UTMALDG"] >= 2 and ops["USETMAXREG"] == 2
    assert ops["HMMA"] == ops["LDGSTS"] == ops["STL"] == 0


@pytest.mark.parametrize("a_col", [False, True])
@pytest.mark.parametrize("b_col", [False, True])
def test_every_storage_order_is_one_kernel(a_col: bool, b_col: bool) -> None:
    region = gemm(a_col=a_col, b_col=b_col, dtype=DType.bf16, out=DType.fp32, residual=True)
    compiled(region, sm80((64, 64, 32), 2, warp="32x32"), "sm80")
    compiled(region, sm90((128, 64, 64), 3), "sm90")


@pytest.mark.parametrize(
    "plan",
    [
        sm80((128, 128, 32), 4),
        sm80((128, 128, 32), 3, overlap=True),
        sm80((64, 64, 64), 2, warp="32x32", width=4),
        sm80((64, 64, 32), 2, warp="32x32", depth=1),
        sm80((64, 64, 32), 2, warp="32x32", hints={"A_swizzle": False, "B_swizzle": False}),
        sync(),
    ],
    ids=lambda p: f"{type(p).__name__}-{p.tile}",
)
def test_sm80_plans(plan: SchedulePlan) -> None:
    compiled(gemm(batch="B"), plan, "sm80")


@pytest.mark.parametrize(
    "plan",
    [
        sm90((128, 256, 64), 4, persistent=True, overlap=True),
        sm90((128, 128, 64), 4, persistent=True),
        sm90((64, 176, 64), 4, consumers=1, registers=(56, 224)),
        sm90((256, 128, 64), 3, wait_depth=0),
        sm90((192, 64, 32), 6, consumers=3, registers=(32, 160)),
    ],
    ids=lambda p: str(p.tile),
)
def test_sm90_plans(plan: SchedulePlan) -> None:
    compiled(gemm(b_col=True), plan, "sm90")


@pytest.mark.parametrize("channels", [64, 63])
def test_gathered_windows_fit_in_registers(channels: int, tmp_path: Path) -> None:
    g = tt.Graph("conv")
    x, w = g.input("x", ("N", channels, 56, 56), tt.fp32), g.input("w", (64, channels, 3, 3), tt.fp32)
    g.output("y", x.conv(w, padding=((1, 1), (1, 1))).silu())
    source = prepare(g, target="sm80").stages["cu"].main
    unit = source.units[-1]
    cubin = code.compiled(unit, source.headers)
    assert cubin.warnings == () and cubin.spill_bytes == 0 and cubin.registers <= 168
    copies = {op for op in code.machine_code(cubin, tmp_path) if op.startswith("LDGSTS")}
    assert copies and all(op.endswith(".128") for op in copies) == (channels == 64), copies


def test_odd_sizes_need_no_guard() -> None:
    compiled(gemm(129, 77, 33), sm80((64, 64, 32), 3, warp="32x32"), "sm80", ())
    compiled(gemm(dtype=DType.fp32, out=DType.fp32), sync(), "sm80", ())
