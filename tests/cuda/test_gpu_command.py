"""`make gpu` without a GPU: its steps on the emulated one, its table, and what it does on a device, call by call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import lanes
from benchmarks.gpu.cases import checked, gemm, timed
from benchmarks.gpu.places import Emulated, Kernel, OnDevice
from benchmarks.gpu.report import table_text, tuned_plans
from benchmarks.gpu.speed import Contest
from benchmarks.gpu.steps import STEPS
from tatami.cu.print import headers
from tatami.runtime.building.nvrtc import compile_cubin, has_nvrtc
from tests.cuda.emulated_gpu import EmulatedGpu, emulated_gpu

ROOT = Path(__file__).parents[2]


def test_the_whole_command_runs_dry(tmp_path: Path) -> None:
    options = [
        "--dry-run",
        "--target",
        "emulated-sm80",
        "--only",
        "limits,lanes,memory,plans,memcheck",
        "--results",
        str(tmp_path),
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", *options], cwd=ROOT, env=env, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.glob("emulated-sm80-*.json")
    record = json.loads(path.read_text())
    steps = {s["step"]: s for s in record["steps"]}
    assert [s["ended"] for s in record["steps"]] == ["done"] * 5
    assert len(steps["lanes"]["rows"]) >= 16 and all(r["ok"] for s in steps.values() for r in s["rows"] if "ok" in r)
    assert steps["memory"]["rows"][0]["samples"]["Tatami"] and record["machine"]["python"]
    plans = json.loads((tmp_path / "plans-emulated-sm80.json").read_text())["plans"]
    (key,) = plans
    assert key.endswith("@cuda:sm80") and plans[key]["kind"] == "sm80_mma"
    assert "lanes: done" in done.stdout and "0 wrong" in done.stdout


def test_all_steps_together_are_under_nine_minutes() -> None:
    assert sum(limit for _, limit in STEPS.values()) <= command.SECONDS <= 535


def test_a_step_that_is_stopped_keeps_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "rows.jsonl"
    out.write_text('{"name": "a", "ok": true}\n{"name": "b", "o')
    monkeypatch.setattr(command, "run_process", lambda *_: ("stopped after 3 s", "last words"))
    args: Any = type("Args", (), {"target": "cuda", "dry_run": False})
    step = command.one_step("lanes", args, 3.0, out)
    assert step["rows"] == [{"name": "a", "ok": True}] and step["ended"].startswith("stopped") and step["said"] == "last words"


def test_a_process_that_does_not_end_is_ended() -> None:
    assert command.run_process([sys.executable, "-c", "import time; time.sleep(60)"], 0.5)[0].startswith("stopped")
    ended, said = command.run_process([sys.executable, "-c", "print('why'); raise SystemExit(3)"], 60)
    assert ended == "failed (3)" and "why" in said


def test_every_function_of_the_header_is_asked() -> None:
    """Functions that the step does not test are named; they are those that need a cluster of blocks."""
    kernels = lanes.all_kernels("sm90")
    left = lanes.unasked(kernels)
    assert all("cluster" in name or name == "tt_map_shared" for name in left), left
    without = [k for k in kernels if "ldmatrix" not in k.symbol]
    assert lanes.unasked(without) - left == {"tt_ldmatrix_x4", "tt_ldmatrix_x4_trans"}


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize(
    "symbol",
    [
        "mma_bf16",
        "exp2_approx",
        "to_tf32",
        "load_shared_v1",
        "load_shared_v2",
        "shuffles",
        "tma_4d_multicast",
        "im2col_0",
        "tma_store_3d",
        "tma_add_2d",
        "cp_async_arrive",
        "mma_e4m3",
        "wgmma_f16_mnmn_sw128",
    ],
)
def test_lane_kernels_are_cuda(symbol: str) -> None:
    (k,) = [k for k in lanes.all_kernels("sm90") if k.symbol == symbol]
    own = headers(())
    cubin = compile_cubin(k.text, "sm_90a", {**own, "tatami_ptx.cuh": own["tatami_ptx.cuh"] + k.headers})
    assert cubin.warnings == () and cubin.spill_bytes == 0


def test_products_of_every_order_are_numpys() -> None:
    """The machine's wgmma against a matrix product: A and B are halves of one tensor, each read along k or along mn."""
    kernels = [k for k in lanes.products() if k.symbol.startswith("wgmma_f16") and k.symbol.endswith("128")]
    found = Emulated("emulated-sm90").run(kernels, headers(()))
    both = kernels[0].given.reshape(128, 64).astype(np.float64)
    thread, i = np.arange(128)[:, None], np.arange(32)[None, :]
    row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (i // 2 % 2)
    column = 8 * (i // 4) + 2 * (thread % 4) + i % 2
    for order, a, b in (("kk", 0, 0), ("kmn", 0, 1), ("mnk", 1, 0), ("mnmn", 1, 1)):
        wanted = (both[:64].T if a else both[:64]) @ (both[64:] if b else both[64:].T)
        np.testing.assert_array_equal(found[f"wgmma_f16_{order}_sw128"].view(np.float32).reshape(128, 32), wanted[row, column])


def on(gpu: EmulatedGpu, kernels: list[Kernel]) -> None:
    gpu.kinds |= {k.symbol: ["p", "p", *(["m"] if k.map else [])] for k in kernels}
    gpu.layouts |= {k.symbol: [128 if x == "m" else 8 for x in gpu.kinds[k.symbol]] for k in kernels}


def test_lanes_on_a_device_are_compared_with_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    with emulated_gpu("sm80") as gpu:
        some = [k for k in lanes.sm80_kernels() if k.symbol in ("mma_f16", "shuffles")]
        monkeypatch.setattr(lanes, "all_kernels", lambda arch: some)
        on(gpu, some)
        where = OnDevice("cuda")
        first = where.run(some, headers(()))
        monkeypatch.setattr(where, "run", lambda ks, hs: first)  # an emulated GPU runs one program
        assert [r["ok"] for r in lanes.compare(where, "sm80", keep=False) if "ok" in r] == [True, True]
        first["shuffles"][17] ^= 1
        (wrong,) = [r for r in lanes.compare(where, "sm80", keep=False) if r.get("ok") is False]
        assert wrong["name"] == "shuffles" and "word 17 (thread 1)" in str(wrong["why"])


def test_a_device_without_pytorch_times_ours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import tatami as tt
    from benchmarks.gpu import speed
    from tests.cuda.programs import on_gpu

    monkeypatch.setattr(speed, "load_torch", lambda: None)
    monkeypatch.setattr(speed, "ROUNDS", 2)
    monkeypatch.setattr(speed, "ROTATED_BYTES", 1)
    with emulated_gpu("sm80") as gpu:
        monkeypatch.setattr(tt, "compile", lambda g, target, decisions: on_gpu(gpu, g, target))
        row = Contest("cuda", gemm(8, 8, 8, tt.fp16)).measure()
    assert row["samples"] == {"Tatami": [0.5e-3 / speed.CALLS] * 2} and row["ratio"] is None
    assert gpu.counts["cuGraphCreate"] == 1


def test_the_table_says_what_was_wrong_and_what_was_reached() -> None:
    timing = {
        "name": "gemm", "ok": True, "median": {"Tatami": 2e-4, "cuBLAS": 1e-4}, "tflops": 400.0, "gbytes": 1.0, "best_peer": "cuBLAS",
        "ratio": 0.5,
    }  # fmt: skip
    record = {
        "machine": {"device": "A GPU", "commit": ""},
        "date": "2026-01-01",
        "steps": [
            {"step": "limits", "ended": "done", "rows": [{"name": "cuBLAS bf16 8192", "tflops": 800.0}]},
            {"step": "gemm", "ended": "stopped after 80 s", "rows": [timing, {"name": "x", "ok": False, "why": "IndexError"}]},
            {"step": "plans", "ended": "done", "rows": [{**timing, "plan": "p", "key": "k", "document": {"kind": "sm90_mma"}}]},
        ],
    }
    text = table_text(record)
    assert "gemm: stopped after 80 s, 2 rows, 1 wrong" in text and "x: IndexError" in text
    assert "50% of cuBLAS at 8192" in text and " 0.50 " in text
    assert tuned_plans(record) == {"plans": {"k": {"kind": "sm90_mma"}}}


def test_every_case_can_be_made_and_has_a_name_of_its_own() -> None:
    for some in (checked(False), checked(True), *(timed(g) for g in ("gemm", "attention", "gradient", "conv", "memory"))):
        assert len({c.name for c in some}) == len(some)
        assert all(c.make().module().main.signature.outputs for c in some)


def test_a_case_is_checked_on_a_device_with_poisoned_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    import tatami as tt
    from benchmarks.gpu import steps
    from tests.cuda.programs import on_gpu

    with emulated_gpu("sm80") as gpu:
        made: list[Any] = []

        def compiled(g: Any, target: str) -> Any:
            made.append(on_gpu(gpu, g, target))
            return made[-1]

        monkeypatch.setattr(tt, "compile", compiled)
        run = steps.Run("cuda", 60.0, dry=False)
        assert run.arch == "sm80" and not run.is_late
        row = steps.check(run, gemm(8, 8, 8, tt.fp16))
        assert row["ok"] and 0 <= row["error"] <= row["tolerance"]
        monkeypatch.setattr(gpu, "execute", lambda launch: None)  # a kernel that writes nothing leaves the poison
        monkeypatch.setattr(tt, "compile", lambda g, target, f=made[0]: f)
        assert steps.check(run, gemm(8, 8, 8, tt.fp16))["error"] == float("inf")


def test_boxes_are_stored_and_fetched_as_numpy_slices() -> None:
    """The machine's stores keep away from what is outside; a multicast to one block is a load; pixels outside are 0."""
    kernels = {k.symbol: k for k in (*lanes.loads(), *lanes.stores())}
    names = ("tma_store_2d", "tma_add_2d", "tma_3d", "tma_3d_multicast", "im2col_1")
    found = Emulated("emulated-sm90").run([kernels[n] for n in names], headers(()))
    wanted = np.zeros((24, 64), np.uint16)
    wanted[:15, 40:] = kernels["tma_store_2d"].given[: 16 * 32].reshape(16, 32)[1:, :24]
    np.testing.assert_array_equal(found["tma_store_2d"].view(np.uint16).reshape(24, 64), wanted)
    sums = np.zeros((12, 32), np.float32)
    sums[:7, 8:24] = kernels["tma_add_2d"].given[: 8 * 16].reshape(8, 16)[1:]
    np.testing.assert_array_equal(found["tma_add_2d"].view(np.float32).reshape(12, 32), sums)
    np.testing.assert_array_equal(found["tma_3d"], found["tma_3d_multicast"])
    image = np.pad(kernels["im2col_1"].given.view(np.uint32).reshape(5, 5, 4), ((1, 1), (1, 1), (0, 0)))
    taps = image[0:6, 1:7].reshape(-1, 4)[:16]
    np.testing.assert_array_equal(found["im2col_1"].reshape(16, 4), taps)
