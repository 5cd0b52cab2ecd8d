"""Rows M of the checklist (spec 5) that no other test states as a fact."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tatami.api import prepare
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import var
from tatami.core.kernel import Condition
from tatami.core.module import Module
from tatami.core.target import PRESETS
from tatami.frontend.graph import Graph
from tatami.gpu.lower import lower_region
from tatami.gpu.statement_ir import Loop
from tatami.plan.ir import GpuSync, Guarded
from tatami.plan.views.product_limits import smem_of
from tests.frontend.test_load import SPEC
from tests.gpu.gemm_examples import gemm as gemm_region
from tests.gpu.gemm_examples import sm80, sm90, sync
from tests.rows.models import check, f32, gemm, regions, text

BY8 = tuple(Condition(var(s), 8) for s in "MNK")


def test_bias_relu_and_cast_come_in_that_order() -> None:
    g = Graph("g")
    x, w, b = g.input("x", ("M", "K"), DType.fp32), g.input("w", ("K", "N"), DType.fp32), g.input("b", ("N",), DType.fp32)
    g.output("y", (x @ w + b.expand(("M", "N"))).relu().cast(DType.fp16))
    lines = text(g, "tiny@imported").splitlines()
    found = [line.split()[1] for line in lines if re.match(r"n\d", line)]
    assert found[-3:] == ["ADD", "RELU", "CAST"]
    shaped = [line for line in lines if re.search(r"RESHAPE .*\[1, N\]|EXPAND .*\[M, N\]", line)]
    assert shaped


@pytest.mark.parametrize(("left", "right"), [(("K",), ("K", "N")), (("M", "K"), ("K",)), (("K",), ("K",))])
def test_vectors_are_multiplied_in_one_kernel(left: tuple[str, ...], right: tuple[str, ...]) -> None:
    g = Graph("g")
    g.output("y", g.input("x", left, DType.fp32) @ g.input("w", right, DType.fp32))
    sizes = {"M": 7, "K": 33, "N": 5}
    x, w = (f32(*(sizes[s] for s in shape)) for shape in (left, right))
    compilation = check(g, {"x": x, "w": w})
    assert len(regions(compilation)) == 1


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda r: r["lets"][1]["expr"]["add"][1]["BroadcastInDim"].update(result_shape=["M", "K"]), "BroadcastMismatch"),
        (lambda r: r["lets"][0]["expr"]["reduce"].update(axes=["q"]), "UnboundSymbol"),
        (lambda r: r["lets"][0]["expr"]["reduce"].pop("dtype"), "AccDtypeMissing"),
    ],
)
def test_a_broken_region_document_is_diagnosed(change: object, kind: str) -> None:
    path = Path(__file__).parents[2] / "examples" / "spec" / "3-6.8.1-gemm-bias-relu.json"
    document = json.loads(path.read_text())
    change(document["region"])  # type: ignore[operator]
    with pytest.raises(TatamiError) as error:
        prepare(document).values()
    assert {d.kind for d in error.value.diagnostics} == {kind}


def test_the_estimate_of_shared_memory_is_what_the_kernel_takes() -> None:
    for plan, target in ((sm80((64, 64, 32), 3, warp="32x32"), "sm80"), (sm90(), "sm90"), (sync(), "sm80")):
        dtype = DType.fp32 if isinstance(plan, GpuSync) else DType.fp16
        region = gemm_region(dtype=dtype, out=dtype)
        kernel, binding = lower_region(region, Guarded(BY8, plan), PRESETS[target])
        assert abs(smem_of(plan, dtype) - kernel.shared_bytes) <= 1024 and binding.shared_bytes == kernel.shared_bytes
    bm, bn, bk = 64, 64, 32
    assert smem_of(sm80((bm, bn, bk), 3, warp="32x32"), DType.fp16) == 3 * (bm * bk + bk * bn) * 2


def test_candidates_of_the_synchronous_product() -> None:
    plan = prepare(gemm(1024, 1024, 1024, DType.fp64), target="sm80").stages["plan"].main.regions[0]
    seen = {tuple(plan.choices[0].plan.tile)}
    seen |= {tuple(map(int, r.plan.split()[1].split("x"))) for r in plan.rejected if r.plan.startswith("gpu_sync")}
    assert seen == {(m, n, k) for m in (64, 128) for n in (64, 128) for k in (16, 32, 64)}
    lines = [r.plan.split() for r in plan.rejected if r.plan.startswith("gpu_sync")]
    assert {line[-1] for line in lines} == {"2", "3"} and 10 <= len(lines) + 1 <= 20
    assert all(re.search(r"\d", r.why) for r in plan.rejected)
    assert plan.choices[0].estimate["ctas_per_sm"] >= 2
    forced = sm80((64, 64, 32), 2, enable=False)
    kernel, _ = lower_region(gemm_region(), Guarded(BY8, forced), PRESETS["sm80"])
    assert (kernel.template, kernel.tile, kernel.stages) == ("sync", (64, 64, 32), 2)


def test_a_thread_computes_a_micro_tile() -> None:
    plan = prepare(gemm(100, 75, 130, DType.fp64), target="sm80").stages["plan"].main.regions[0].choices[0].plan
    assert isinstance(plan, GpuSync) and plan.block == (16, 16)
    kernel, _ = lower_region(gemm_region(dtype=DType.fp32, out=DType.fp32), Guarded((), sync()), PRESETS["sm80"])
    assert (kernel.rows, kernel.cols) == (16, 16) and kernel.tile[0] // 16 == kernel.tile[1] // 16 == 4


def code(g: Graph, target: str = "sm80") -> str:
    return prepare(g, target=target).stages["cu"].main.units[0].text


def test_the_synchronous_kernel_follows_the_skeleton() -> None:
    dump = text(gemm(100, 75, 130, DType.fp64), "gpu", "sm80")  # two stages: one barrier per block
    order = [dump.index(w) for w in ("LoadTile smA", "LoadTile smB", "SyncThreads", "Fma acc", "Epilogue", "StGlobalVec")]
    one, _ = lower_region(gemm_region(), Guarded((), sync()), PRESETS["sm80"])
    (loop,) = (s for s in one.body if isinstance(s, Loop))
    assert [type(s).__name__ for s in loop.body] == ["LoadTile", "LoadTile", "SyncThreads", "Fma", "SyncThreads"]
    assert order == sorted(order) and "if m, k inside" in dump and "if m, n inside" in dump


def test_an_element_of_a_tile_is_loaded_once_and_no_broadcast_is_stored() -> None:
    compilation = prepare(gemm(100, 75, 130, DType.fp64), target="sm80")
    assert text(compilation, "gpu").count("LoadTile smA") == text(compilation, "gpu").count("LoadTile smB") == 1
    assert "arena" not in text(compilation, "execution")


def test_loads_are_cooperative_and_coalesced() -> None:
    kernel = code(gemm(100, 75, 130, DType.fp64))
    assert kernel.count("for (int idx = tid; idx < 64 * BK; idx += THREADS)") == 2
    for fastest, address in (("k_i = idx % BK", "kg + 75 * m"), ("n_i = idx % 64", "130 * kg + n")):
        assert fastest in kernel and address in kernel  # neighbouring threads read neighbouring addresses
    assert "M = 100, N = 130, K = 75" in kernel and "const tt_i64 M" in code(gemm(dtype=DType.fp64))


def test_the_epilogue_is_in_fp32_until_the_last_cast() -> None:
    compilation = prepare(SPEC, target="sm80")  # the bias is added in FP32, C2 is fp16
    epilogue = re.search(r"Epilogue.*", text(compilation, "gpu"))
    assert epilogue is not None
    words = epilogue[0]
    assert words.index("add(acc") < words.index("relu(") and ", fp16)" not in words  # rounded once, by the store
    assert "float acc" in compilation.stages["cu"].main.units[0].text


def test_a_fault_is_found_where_it_is_made_and_again_later() -> None:
    from tatami.region.verify import verify

    document = {
        "signature": {
            "inputs": [
                {"tensor": "a", "dtype": "fp32", "shape": ["M", "K"]},
                {"tensor": "b", "dtype": "fp32", "shape": ["M", "N"]},
            ],
            "outputs": [{"tensor": "c"}],
        },
        "uops": [
            {"id": "n0", "uop": "INPUT", "dtype": "fp32", "arg": {"tensor_id": "a", "dtype": "fp32", "shape": ["M", "K"]}},
            {"id": "n1", "uop": "INPUT", "dtype": "fp32", "arg": {"tensor_id": "b", "dtype": "fp32", "shape": ["M", "N"]}},
            {"id": "n2", "uop": "ADD", "dtype": "fp32", "src": ["n0", "n1"]},
        ],
    }
    with pytest.raises(TatamiError) as error:
        prepare(document)
    assert [(d.code, "n2" in d.at) for d in error.value.diagnostics] == [("E1001", True)]
    module = prepare(gemm()).stages["region"]
    (region,) = module.main.body
    lets = (msgspec.structs.replace(region.lets[0], axes=("m",)), *region.lets[1:])
    broken = msgspec.structs.replace(module.main, body=(msgspec.structs.replace(region, lets=lets),))
    assert verify(Module({"main": broken}))


def test_tiles_that_tensor_cores_cannot_take_are_refused() -> None:
    with pytest.raises(TatamiError, match="BK = 24"):
        lower_region(gemm_region(), Guarded(BY8, sm80((64, 64, 24))), PRESETS["sm80"])
    kernel, _ = lower_region(
        gemm_region(), Guarded(BY8, sm90((64, 128, 64), consumers=1, registers=(56, 224))), PRESETS["sm90"]
    )
    assert kernel.tile == (64, 128, 64)
    assert "sync" in text(gemm(dtype=DType.fp64), "gpu", "sm80")


def test_dumps_need_neither_gpu_nor_compiler(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PATH": "", "CC": "", "PYTHONPATH": str(root)}
    model = str(root / "examples" / "spec" / "2-5.1-gemm.json")
    command = [sys.executable, "-m", "tatami", "compile", model, "-o", str(tmp_path), "--dump=tiny,indexbook,region"]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    assert {p.stem.split("_", 1)[1] for p in tmp_path.glob("*_*.txt")} >= {"tiny", "indexbook", "region"}


@pytest.mark.parametrize("size", [1, 31, 33, 65])
def test_products_with_tails_agree(size: int) -> None:
    a, b, bias = (f32(*s).astype(np.float16) for s in ((size, size), (size, size), (size,)))
    check(gemm(), {"A": a, "B": b, "bias": bias})
