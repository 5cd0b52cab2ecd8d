"""`make gpu` without a GPU: its steps on the emulated one, its table, and what it does on a device, call by call."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tatami as tt
from benchmarks.gpu import __main__ as command
from benchmarks.gpu import cubin_cache, lanes, lanes_sm90, machine, speed, standin, steps
from benchmarks.gpu.cases import checked, gemm, timed
from benchmarks.gpu.first import models
from benchmarks.gpu.isolated import Isolated
from benchmarks.gpu.places import Emulated, Kernel, OnDevice
from benchmarks.gpu.report import as_planted, table_text, tuned_plans
from benchmarks.gpu.speed import Contest
from benchmarks.gpu.steps import PLANTED as STEPS_OF_A_DRY_RUN
from benchmarks.gpu.steps import STEPS
from benchmarks.gpu.worker import guarded
from tatami.api import prepare
from tatami.cu.print import headers
from tatami.runtime.building.cache import Cache
from tatami.runtime.building.nvrtc import compile_cubin, has_nvrtc
from tatami.runtime.cuda import cubins
from tests.cuda.emulated_gpu import EmulatedGpu, emulated_gpu, gpu
from tests.cuda.fake_driver import FakeDriver

ROOT = Path(__file__).parents[2]


def test_the_whole_command_runs_dry(tmp_path: Path) -> None:
    options = [
        "--dry-run",
        "--target",
        "emulated-sm80",
        "--only",
        "limits,lanes,memory,plans,memcheck,planted",
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
    assert [s["ended"] for s in record["steps"]] == ["done"] * 6
    assert len(steps["lanes"]["rows"]) >= 16 and all(
        r["ok"] for name, s in steps.items() for r in s["rows"] if "ok" in r and name != "planted"
    )
    assert steps["memory"]["rows"][0]["samples"]["Tatami"] and record["machine"]["python"]
    plans = json.loads((tmp_path / "plans-emulated-sm80.json").read_text())["plans"]
    (key,) = plans
    assert key.endswith("@cuda:sm80") and plans[key]["kind"] == "sm80_mma"
    assert "lanes: done" in done.stdout and "0 wrong" in done.stdout
    found = {r["name"]: r for r in steps["planted"]["rows"]}
    assert len(found) == len(steps["planted"]["rows"]) == 10 and all(map(as_planted, found.values()))
    assert [r["ok"] for r in found.values()].count(False) == 5, "five faults cost five rows"
    assert "signal SIGSEGV" in found["planted: the process ends"]["why"]
    assert found["planted: the process hangs"]["why"] == "no answer for 6 s"
    assert "64 of 64 words differ" in found["planted: a wrong result"]["why"]


def test_all_steps_together_are_under_nine_minutes() -> None:
    assert sum(step.seconds for step in STEPS.values()) <= command.SECONDS <= 535


def test_a_run_resumes_rows_of_its_own_target_alone_and_keeps_them_without_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record(*more: str) -> command.Record:
        monkeypatch.setattr(sys, "argv", ["gpu", "--only", "first,limits", "--results", str(tmp_path), *more])
        return command.Record(command.arguments())

    monkeypatch.setattr(command, "sample_clocks", lambda to: None)
    (tmp_path / command.ROWS).mkdir()
    (tmp_path / command.ROWS / "first.jsonl").write_text(
        '{"begin": 0, "name": "a"}\n{"k": 0, "name": "a", "ok": true}\n{"end": 1}\n'
    )
    again = record("--dry-run", "--resume", "--seconds", "1")
    again.run()
    assert [(s["ended"], len(s["rows"])) for s in again.value["steps"]] == [("done", 1), ("no time left", 0)]
    with pytest.raises(SystemExit, match="are those of"):
        record("--resume", "--seconds", "1").run()


def test_the_record_is_whole_after_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys, "argv", ["gpu", "--dry-run", "--only", "first", "--results", str(tmp_path), "--target", "emulated-sm80"]
    )
    record = command.Record(command.arguments())
    found: list[int] = []

    def run(self: Isolated, seconds: float, env: dict[str, str], folder: Path) -> str:
        for k in range(3):
            self.add({"k": k, "name": f"case {k}", "ok": True})
            made = json.loads(record.path.read_text())
            found.append(len(made["steps"][0]["rows"]))
            assert made["steps"][0]["ended"] == "running" and record.path.with_suffix(".txt").exists()
        return "done"

    monkeypatch.setattr(Isolated, "run", run)
    record.run()
    assert found == [1, 2, 3] and record.is_well() and not list(tmp_path.glob("*.part"))


def test_time_given_is_shared_and_results_go_where_they_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    monkeypatch.setattr(sys, "argv", ["gpu", "--only", "lanes,gemm", "--seconds", "220"])
    args = command.arguments()
    assert args.results == tmp_path / "out" and args.seconds == 220
    limits: list[float] = []

    def step(self: command.Record, name: str, each: float, limit: float, folder: Path) -> None:
        limits.append(limit)
        self.value["steps"].append({"step": name, "ended": "done", "seconds": 0.0, "rows": []})

    monkeypatch.setattr(command.Record, "step", step)
    monkeypatch.setattr(command, "sample_clocks", lambda to: None)
    command.Record(args).run()
    share = STEPS["lanes"].seconds / (STEPS["lanes"].seconds + STEPS["gemm"].seconds)
    assert limits == pytest.approx([220 * share, 220], abs=1.0)


def test_facts_of_the_machine_are_never_fatal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: Any, **__: Any) -> Any:
        raise subprocess.TimeoutExpired("nvidia-smi", 20)

    monkeypatch.setattr("benchmarks.gpu.machine.shutil.which", lambda name: name)
    monkeypatch.setattr("benchmarks.gpu.machine.subprocess.run", slow)
    assert machine.describe("cuda")["device"] == "cuda" and machine.commit() == ""
    (tmp_path / "clocks.csv").write_text("t, 1700, 2600, 400.5, 60\nt, 1500, 2600, 500.5, 61\nt, 1600, 2600, [N/A], 61\n")
    assert machine.median_clocks(tmp_path / "clocks.csv", 0) == {}
    (tmp_path / "clocks.csv").write_text("t, 1, 1, 1, 1\nt, 1700, 2600, 400.5, 60\nt, 1500, 2600, 500.5, 61\nt, 16")
    assert machine.median_clocks(tmp_path / "clocks.csv", 1) == {"sm_mhz": 1600, "watts": 450.5}
    assert machine.median_clocks(tmp_path / "none.csv", 0) == {}


def test_every_function_of_the_header_is_asked() -> None:
    kernels = lanes.all_kernels("sm90")
    left = lanes.unasked(kernels)
    assert left == set()
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
        "cluster_words",
        "cluster_arrivals",
        "multicast_3",
        "wgmma_tf32",
        "wgmma_e4m3",
        "wgmma_f16_registers_mn",
        "wgmma_mn_128_sw128",
        "wgmma_mn_64_sw32",
        "tma_tf32_ties",
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


def test_products_of_other_kinds_are_numpys() -> None:
    """tf32, fp8, and B along n in two, in two narrower and in four boxes; A and B are halves of one tensor."""
    kernels = {k.symbol: k for k in lanes_sm90.more_kernels() if k.symbol.startswith("wgmma") and "registers" not in k.symbol}
    found = Emulated("emulated-sm90").run(list(kernels.values()), headers(()))
    thread = np.arange(128)[:, None]
    for symbol, k in kernels.items():
        n = k.words // 64
        i = np.arange(n // 2)[None, :]
        row, column = 16 * (thread // 32) + thread % 32 // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * (thread % 4) + i % 2
        if "mn" in symbol:
            both = k.given.reshape(128, 128).astype(np.float64)
            wanted = both[:64, :64].T @ both[64:, :n]
        else:
            kind = {"tf32": "float32", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}[symbol.removeprefix("wgmma_")]
            both = k.given.view(np.dtype(kind)).reshape(128, -1).astype(np.float64)
            wanted = both[:64] @ both[64:].T
        np.testing.assert_array_equal(found[symbol].view(np.float32).reshape(128, n // 2), wanted[row, column], err_msg=symbol)


def test_clusters_and_ties_are_what_the_manual_says() -> None:
    kernels = {k.symbol: k for k in (*lanes_sm90.clusters(), lanes_sm90.ties())}
    found = Emulated("emulated-sm90").run(list(kernels.values()), headers(()))
    words = kernels["cluster_words"].given.view(np.uint32)
    got = found["cluster_words"].reshape(2, 3, 32)
    np.testing.assert_array_equal(got[:, 0], words[:64].reshape(2, 32)[::-1])
    np.testing.assert_array_equal(got[:, 1], np.arange(32) + np.array([[1000], [0]]))
    np.testing.assert_array_equal(got[:, 2], np.array([[0], [3]]) + np.zeros((2, 32), int))
    np.testing.assert_array_equal(found["cluster_arrivals"].reshape(2, 32), np.array([[1], [7]]) + np.zeros((2, 32), int))
    for mask in (1, 2, 3):
        both = found[f"multicast_{mask}"].reshape(2, 512)
        for rank in (0, 1):
            np.testing.assert_array_equal(
                both[rank], found["multicast_1"][:512] if mask >> rank & 1 else np.full(512, 0xFFFFFFFF)
            )
    given = kernels["tma_tf32_ties"].given.astype(np.int64)
    low, up = given & 0x1FFF, (given >> 13 << 13) + 0x2000
    rounded = np.where((low > 0x1000) | ((low == 0x1000) & (given >> 13 & 1 == 1)), up, given >> 13 << 13)
    np.testing.assert_array_equal(found["tma_tf32_ties"], rounded)


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
        tables = lanes.Tables(where, "sm80", keep=False)
        assert [tables.row(k)["ok"] for k in some] == [True, True]
        first["shuffles"][17] ^= 1
        (wrong,) = [r for k in some if not (r := tables.row(k))["ok"]]
        assert wrong["name"] == "shuffles" and "word 17 (thread 1)" in str(wrong["why"])


def test_a_device_without_pytorch_times_ours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
def test_machine_code_made_beforehand_is_what_a_device_looks_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cubin_cache.fill("h100", tmp_path, ("models",)) >= len(models())
    kept = Cache(tmp_path)
    monkeypatch.setattr(cubins, "_compile_all", lambda units, *_: {} if not units else pytest.fail("a kernel was missing"))
    fake = FakeDriver(attributes={"MULTIPROCESSOR_COUNT": 132, "L2_CACHE_SIZE": 50 << 20})
    fake.device_name = "NVIDIA H100 80GB HBM3"
    with gpu(fake):
        for make, options in models().values():
            compilation = prepare(make(False), target="cuda", **options)
            source = compilation.stages["cu"].main
            assert cubins.compile_units(source.units, source.headers, compilation.target.arch, cache=kept)


def test_every_case_can_be_made_and_has_a_name_of_its_own() -> None:
    for some in (checked(False), checked(True), *(timed(g) for g in ("gemm", "attention", "gradient", "conv", "memory"))):
        assert len({c.name for c in some}) == len(some)
        assert all(c.make().module().main.signature.outputs for c in some)


def test_a_case_is_checked_on_a_device_with_poisoned_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.cuda.programs import on_gpu

    with emulated_gpu("sm80") as gpu:
        made: list[Any] = []

        def compiled(g: Any, target: str) -> Any:
            made.append(on_gpu(gpu, g, target))
            return made[-1]

        monkeypatch.setattr(tt, "compile", compiled)
        run = steps.Run("cuda", dry=False)
        assert run.arch == "sm80"
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


def test_a_dry_run_asks_the_device_class() -> None:
    """Launches, the check on poisoned outputs and the driver's own timing, on the stand-in for the driver."""
    cases = {c.name: c for c in STEPS_OF_A_DRY_RUN["device"].cases(steps.Run("emulated-sm80", dry=True))}
    names = ["device: a launch", *(n for n in cases if n.endswith(("checked", "alone")))]
    assert len(names) == 3 and len({c.name for c in cases.values()}) == len(cases) == 8
    for name in names:
        row = cases[name].make()
        assert row["ok"] and row.get("name", name) == name


def test_a_dry_run_times_peers_as_a_device_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that computes something else has no time, and its remark says so; a fault in the timing code is a row that is wrong."""
    torch = pytest.importorskip("torch")
    # PyTorch's own testing module, which other tests import, forbids to set flags for the rest of the process.
    monkeypatch.setitem(torch.backends.flags_frozen.__globals__, "__allow_nonbracketed_mutation_flag", True)
    case = gemm(16, 16, 16, tt.fp16)
    peers = {**case.peers, "wrong": lambda torch, a, b: torch.mm(a, b) * 1.5}
    row = standin.contest("sm80", dataclasses.replace(case, peers=peers), torch=True)
    assert row["ok"] and row["error"] < 1e-3 and {"Tatami", "cuBLAS"} <= row["median"].keys()
    assert "wrong" not in row["median"] and "differs from the first peer's by 0.5" in row["remarks"]["wrong"]
    assert ("Triton" in row["median"]) == (importlib.util.find_spec("triton") is not None)
    calls = speed.CALLS * (1 + standin.ROUNDS + 3)  # replays: one at the capture, three to warm up, then the rounds
    assert row["launches"] >= calls

    def broken(*_: Any) -> None:
        raise AttributeError("no such event")

    monkeypatch.setattr(standin.Moment, "elapsed_time", broken)
    assert "no such event" in guarded(lambda: standin.contest("sm80", case, torch=True))["why"]
    assert not command.Record.is_well(_RecordOf([{"step": "device", "ended": "done", "rows": [{"ok": False}]}]))  # type: ignore[arg-type]
    assert command.Record.is_well(_RecordOf([{"step": "device", "ended": "done", "rows": [{"ok": True}]}]))  # type: ignore[arg-type]


class _RecordOf:
    def __init__(self, steps: list[dict[str, Any]]) -> None:
        self.value = {"steps": steps}
