"""Kernel text computes the right numbers: compiled as C++ against host functions under the PTX header's names."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest

from tatami.core.dtype import DType
from tatami.core.expr import evaluate
from tatami.core.kernel import Binding, Condition, KernelFace, TensorMapSpec
from tatami.core.target import PRESETS
from tatami.cu.expr_text import STORED_TYPE
from tatami.cu.print import headers, print_unit
from tatami.gpu.ir import Kernel
from tatami.gpu.lower import lower_region
from tatami.plan.ir import Guarded
from tatami.region.ir import Region
from tests.cu.test_compile import BY8
from tests.gpu.gemm_examples import gemm, sm80, sm90, sync

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
NUMPY = {DType.fp16: np.float16, DType.bf16: ml_dtypes.bfloat16, DType.fp32: np.float32}


def driver(kernel: Kernel) -> str:
    params = [f"({STORED_TYPE[p.dtype]}*)args[{i}]" for i, p in enumerate(kernel.params)]
    params += [f"sizes[{i}]" for i in range(kernel.face.sizes)]
    params += [f"maps[{i}]" for i in range(len(kernel.maps))]
    return f"""
static void** args; static const long long* sizes; static tt_tensor_map maps[2]; static HostMap described[2];
static void body() {{ {kernel.face.symbol}({", ".join(params)}); }}
extern "C" void describe(int i, void* base, int rank, const long long* d, const long long* s, const int* box, int swizzle) {{
  HostMap& m = described[i];
  m.base = (const tt_u8*)base, m.rank = rank, m.swizzle = swizzle;
  for (int j = 0; j < rank; ++j) m.dim[j] = d[j], m.stride[j] = j ? s[j - 1] : 0, m.box[j] = box[j];
  maps[i].words[0] = (tt_u64)(uintptr_t)&m;
}}
extern "C" int run(void** a, const long long* s, int gx, int gy, int gz, int threads) {{
  args = a, sizes = s;
  host::grid[0] = gx, host::grid[1] = gy, host::grid[2] = gz;
  for (int z = 0; z < gz; ++z) for (int y = 0; y < gy; ++y) for (int x = 0; x < gx; ++x) {{
    host::block[0] = x, host::block[1] = y, host::block[2] = z;
    if (host::run_block(threads, body)) return 1;
  }}
  return 0;
}}
"""


class Built:
    def __init__(self, region: Region, plan: Any, target: str, conditions: tuple[Condition, ...], folder: Path) -> None:
        self.region = region
        kernel, self.binding = lower_region(region, Guarded(conditions, plan), PRESETS[target])
        self.kernel = msgspec.structs.replace(kernel, face=KernelFace("k0", (), len(self.binding.sizes), ""))
        (folder / "tatami_math.cuh").write_text(headers(())["tatami_math.cuh"])
        (folder / "tatami_ptx.cuh").write_text((Path(__file__).parent / "host" / "tatami_ptx.cuh").read_text())
        (folder / "k.cpp").write_text(print_unit(self.kernel, PRESETS[target]).text + driver(self.kernel))
        library = folder / "k.so"
        command = [
            "g++",
            "-std=c++17",
            "-O1",
            "-w",
            "-shared",
            "-fPIC",
            f"-I{folder}",
            str(folder / "k.cpp"),
            "-o",
            str(library),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr[:3000]
        self.library = ctypes.CDLL(str(library))

    def run(self, arrays: dict[str, np.ndarray], env: dict[str, int]) -> np.ndarray:
        out = self.region.outputs[0]
        shape = tuple(int(evaluate(s, env)) for s in out.memref.shape)
        buffers = {**arrays, out.name: np.full(shape, np.nan, NUMPY[out.memref.dtype])}
        b: Binding = self.binding
        pointers = (ctypes.c_void_p * len(b.buffers))(*(buffers[n].ctypes.data for n in b.buffers))
        sizes = (ctypes.c_longlong * len(b.sizes))(*(int(evaluate(s, env)) for s in b.sizes))
        for i, m in enumerate(b.tensor_maps):
            self.describe(i, m, buffers[m.buffer], env)
        grid = [int(evaluate(g, env)) for g in b.grid]
        assert self.library.run(pointers, sizes, *grid, self.kernel.threads) == 0, "the block did not end"
        return buffers[out.name]

    def describe(self, i: int, m: TensorMapSpec, array: np.ndarray, env: dict[str, int]) -> None:
        rank = len(m.dims)
        dims = (ctypes.c_longlong * rank)(*(int(evaluate(d, env)) for d in m.dims))
        strides = (ctypes.c_longlong * max(1, rank - 1))(*(int(evaluate(s, env)) for s in m.strides))
        box = (ctypes.c_int * rank)(*m.box)
        self.library.describe(i, ctypes.c_void_p(array.ctypes.data), rank, dims, strides, box, m.swizzle)


def compare(region: Region, plan: Any, target: str, env: dict[str, int], folder: Path, conditions: Any = BY8) -> None:
    rng = np.random.default_rng(1)
    arrays = {}
    for p in region.inputs:
        shape = tuple(int(evaluate(s, env)) for s in p.memref.shape)
        values = rng.integers(-8, 9, shape) / 8
        arrays[p.name] = np.ascontiguousarray(values.astype(NUMPY[p.memref.dtype]))
    got = Built(region, plan, target, conditions, folder).run(arrays, env).astype(np.float64)
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
    body = region.lets[0].expr.body  # type: ignore[union-attr]
    return [body.x, body.y]


TAILS = {"M": 100, "N": 88, "K": 72, "B": 2}
SMALL80 = sm80((64, 64, 32), 3, warp="32x32")


@pytest.mark.parametrize("a_col", [False, True])
@pytest.mark.parametrize("b_col", [False, True])
@pytest.mark.parametrize("target", ["sm80", "sm90"])
def test_every_storage_order_with_tails(a_col: bool, b_col: bool, target: str, tmp_path: Path) -> None:
    plan = SMALL80 if target == "sm80" else sm90((128, 64, 64), 3)
    by4 = TAILS | {"M": 104}
    compare(gemm(a_col=a_col, b_col=b_col), plan, target, by4, tmp_path)


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
        sm80((64, 64, 32), 2, warp="32x32", enable=False),
        sync(),
        sync((32, 64, 16)),
    ],
    ids=lambda p: f"{type(p).__name__}-{p.tile}",
)
def test_sm80_plans_agree_with_numpy(plan: Any, tmp_path: Path) -> None:
    compare(gemm(residual=True, out=DType.fp32), plan, "sm80", TAILS, tmp_path)


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
def test_sm90_plans_agree_with_numpy(plan: Any, tmp_path: Path) -> None:
    compare(gemm(b_col=True, dtype=DType.bf16, out=DType.bf16), plan, "sm90", TAILS, tmp_path)


@pytest.mark.parametrize("target", ["sm80", "sm90"])
def test_batches(target: str, tmp_path: Path) -> None:
    plan = SMALL80 if target == "sm80" else sm90((128, 64, 64), 3, persistent=True, overlap=True)
    compare(gemm(batch="B"), plan, target, TAILS, tmp_path)


@pytest.mark.parametrize("size", [1, 31, 33, 65])
def test_odd_sizes(size: int, tmp_path: Path) -> None:
    env = {"M": size, "N": size, "K": size}
    compare(gemm(), sm80((64, 64, 32), 2, warp="32x32"), "sm80", env, tmp_path, ())


def test_fp32_is_synchronous(tmp_path: Path) -> None:
    compare(gemm(dtype=DType.fp32, out=DType.fp32), sync(), "sm80", {"M": 65, "N": 33, "K": 31}, tmp_path, ())


@pytest.mark.parametrize(
    ("plan", "right", "wrong"),
    [
        (SMALL80, "tt_ldmatrix_x4_trans(b[j]", "tt_ldmatrix_x4(b[j]"),
        (SMALL80, "+ 8 * h + lane / 4", "+ 8 * h + lane / 8"),
        (sm90((128, 64, 64), 3), "kk * 2048", "kk * 32"),
        (sm90((128, 64, 64), 3), "1024, 128)", "2048, 128)"),
    ],
    ids=["trans", "row", "k step", "stride"],
)
def test_a_wrong_text_is_noticed(plan: Any, right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = print_unit

    def broken(kernel: Kernel, target: Any) -> Any:
        unit = printed(kernel, target)
        assert right in unit.text
        return msgspec.structs.replace(unit, text=unit.text.replace(right, wrong))

    monkeypatch.setitem(Built.__init__.__globals__, "print_unit", broken)
    with pytest.raises(AssertionError, match=r"worst|not written"):
        compare(gemm(), plan, "sm90", TAILS, tmp_path)
