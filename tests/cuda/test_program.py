"""Whole programs through the CUDA runtime, on the emulated GPU behind a fake driver."""

from __future__ import annotations

import ctypes
import gc

import cuda.bindings.driver as real
import numpy as np
import pytest

import tatami as tt
from tatami.api import CompiledFunction
from tatami.core.diagnostic import TatamiError
from tatami.decisions import Decisions
from tatami.execution.ir import Call
from tatami.runtime.cuda.device_array import DeviceArray
from tatami.runtime.cuda.program import CudaProgram
from tatami.runtime.cuda.steps import KernelStep
from tests.cuda.emulated_gpu import EmulatedGpu, emulated_gpu
from tests.cuda.programs import doubled, eighths, on_gpu, same_as_reference, two_layers


def program_of(f: CompiledFunction) -> CudaProgram:
    assert isinstance(f.program, CudaProgram)
    return f.program


@pytest.mark.parametrize("isa", ["sm80", "sm90"])
def test_layers_of_any_batch_replay_one_graph(isa: str) -> None:
    with emulated_gpu(isa) as gpu:
        g = two_layers()
        f = on_gpu(gpu, g)
        for batch in (9, 5):
            same_as_reference(f, g, 4e-3, x=eighths(batch, 24, dtype=np.float16, seed=batch))
        assert program_of(f).captures == 1 and gpu.counts["cuGraphLaunch"] == 2
        assert ("cuTensorMapEncodeTiled" in gpu.counts) == (isa == "sm90")
        assert gpu.contexts == []


def test_images_are_walked_over_by_maps_that_round() -> None:
    """im2col maps and maps of tf32 reach the driver with their corners and steps; eighths are tf32 as they are."""
    with emulated_gpu("sm90") as gpu:
        g = tt.Graph("image")
        x = g.input("x", ("B", 32, 9, 10), tt.fp32)
        g.output("y", x.conv(g.constant(eighths(16, 32, 3, 3)), stride=2, padding=1))
        f = on_gpu(gpu, g, precision="tf32")
        for batch in (2, 1):
            same_as_reference(f, g, x=eighths(batch, 32, 9, 10, seed=batch))
        assert gpu.counts["cuTensorMapEncodeIm2col"] == 2
        assert {what[0].name.rsplit("_", 1)[1] for what in gpu.maps if what[-1] is not None} == {"TFLOAT32"}


def test_a_sum_of_nothing_needs_no_tensor_map() -> None:
    """No dimension of a map is 0: the plan's second choice computes it."""
    with emulated_gpu("sm90") as gpu:
        g = tt.Graph("sums")
        x, w = g.input("x", ("M", "K"), tt.fp16), g.input("w", ("K", "N"), tt.fp16)
        g.output("y", x @ w + g.input("bias", ("N",), tt.fp16).expand(("M", "N")))
        f = on_gpu(gpu, g)
        for m, n, k in ((9, 16, 0), (0, 16, 8), (9, 0, 8), (9, 16, 8)):
            assert "cuTensorMapEncodeTiled" not in gpu.counts, "only the last has elements to load"
            same_as_reference(
                f, g, x=eighths(m, k, dtype=np.float16), w=eighths(k, n, dtype=np.float16), bias=np.ones(n, np.float16)
            )


def test_an_empty_batch_launches_nothing() -> None:
    with emulated_gpu() as gpu:
        f = on_gpu(gpu, doubled())
        assert f(x=np.zeros((0, 8), np.float32))["y"].shape == (0, 8)
        assert gpu.launches == []


def test_the_same_arrays_change_no_node() -> None:
    with emulated_gpu() as gpu:
        f = on_gpu(gpu, doubled())
        x, y = f.arrays.empty((4, 8), tt.fp32), f.arrays.empty((4, 8), tt.fp32)
        x.write_from(eighths(4, 8))
        for _ in range(3):
            f(x=x, out={"y": y})
        assert gpu.counts["cuGraphExecKernelNodeSetParams"] == 0
        np.testing.assert_array_equal(y.numpy(), eighths(4, 8) * 2)
        copies = gpu.counts["cuMemcpyHtoDAsync"]
        other = f.arrays.aligned_copy(x, tt.fp32)
        f(x=other, out={"y": y})
        assert gpu.counts["cuGraphExecKernelNodeSetParams"] == 1 and gpu.counts["cuMemcpyHtoDAsync"] == copies


def test_a_call_with_other_addresses_changes_only_the_nodes_that_use_them() -> None:
    with emulated_gpu("sm80") as gpu:
        g = two_layers()
        f = on_gpu(gpu, g)
        x = eighths(9, 24, dtype=np.float16)
        first = f.arrays.take(x, f.arguments[0]).array
        second = f.arrays.take(x, f.arguments[0]).array
        results = [f.arrays.empty((9, 16), tt.fp16)]
        f.program.run("main", [first], {"B": 9}, results)
        f.program.run("main", [second], {"B": 9}, results)
        assert gpu.counts["cuGraphExecKernelNodeSetParams"] == 1


def test_a_state_is_updated_in_place_on_the_host_and_on_the_device() -> None:
    with emulated_gpu() as gpu:
        g = tt.Graph("state")
        s = g.input("s", (5,), tt.fp32, mutability="mutable")
        g.update(s, s + g.input("x", (5,), tt.fp32))
        f = on_gpu(gpu, g)
        state, ones = np.arange(5, dtype=np.float32), np.ones(5, np.float32)
        f(s=state, x=ones)
        assert state.tolist() == [1, 2, 3, 4, 5]
        there = f.arrays.empty((5,), tt.fp32)
        there.write_from(state)
        f(s=there, x=ones)
        assert there.numpy().tolist() == [2, 3, 4, 5, 6] and state.tolist() == [1, 2, 3, 4, 5]


def test_a_bound_call_reads_new_values_of_its_host_arrays() -> None:
    with emulated_gpu() as gpu:
        f = on_gpu(gpu, doubled())
        x = np.ones((2, 8), np.float32)
        call = f.bind(x=x)
        assert call()["y"].sum() == 32
        x[:] = 3
        assert call()["y"].sum() == 96


def test_a_kept_call_runs_in_the_callers_graph() -> None:
    with emulated_gpu() as gpu:
        g = tt.Graph("outer")
        inner = g.subgraph("inner")
        a = inner.input("a", ("N",), tt.fp32)
        inner.output("b", a.exp().sum(0).expand(("N",)) + a)
        x = g.input("x", ("N",), tt.fp32)
        g.output("y", g.call("inner", g.call("inner", x) * 0.125) + x)
        f = on_gpu(gpu, g, decisions=Decisions(calls={"": "call"}))
        assert any(isinstance(i.op, Call) for i in f.execution.main.instructions)
        same_as_reference(f, g, 1e-4, x=eighths(33))
        assert gpu.counts["cuGraphCreate"] == 1 and gpu.counts["cuGraphLaunch"] == 1


def test_constants_that_setup_makes_are_made_on_the_device() -> None:
    with emulated_gpu("sm80") as gpu:
        g = tt.Graph("setup")
        x = g.input("x", (7, 16), tt.fp16)
        g.output("y", x @ g.constant(eighths(24, 16, dtype=np.float16)).transpose(1, 0))
        f = on_gpu(gpu, g)
        same_as_reference(f, g, 4e-3, x=eighths(7, 16, dtype=np.float16))


def test_steps_that_depend_on_data_run_between_kernels() -> None:
    with emulated_gpu() as gpu:
        g = tt.Graph("found")
        x = g.input("x", ("N",), tt.fp32)
        g.output("where", (x * 2.0).op("nonzero", size="K"))
        f = on_gpu(gpu, g)
        assert "main" in program_of(f).layouts.hosted
        same_as_reference(f, g, x=np.array([0, 1, 0, -2, 5], np.float32))


def test_waiting_kernel_by_kernel_makes_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TATAMI_CUDA_SYNC", "1")
    with emulated_gpu("sm80") as gpu:
        g = two_layers()
        f = on_gpu(gpu, g)
        same_as_reference(f, g, 4e-3, x=eighths(9, 24, dtype=np.float16))
        assert gpu.counts["cuGraphCreate"] == 0 and gpu.counts["cuLaunchKernelEx"] == len(gpu.launches) > 0


def test_nothing_is_left_when_a_function_goes() -> None:
    with emulated_gpu("sm80") as gpu:
        f = on_gpu(gpu, two_layers())
        y = f(x=eighths(9, 24, dtype=np.float16))["y"]
        assert gpu.alive > 0 and gpu.graphs and gpu.modules
        del f
        gc.collect()
        assert gpu.alive == 0 and not gpu.graphs and not gpu.executables and not gpu.modules
        assert isinstance(y, np.ndarray)


def test_a_result_outlives_its_function() -> None:
    with emulated_gpu() as gpu:
        f = on_gpu(gpu, doubled())
        x = f.arrays.empty((3, 8), tt.fp32)
        x.write_from(eighths(3, 8))
        y = f(x=x)["y"]
        assert isinstance(y, DeviceArray)
        del f, x
        gc.collect()
        assert gpu.alive == 1
        np.testing.assert_array_equal(y.numpy(), eighths(3, 8) * 2)


FAULTS = [
    ("cuGraphAddKernelNode", "DeviceFault", "k0"),
    ("cuGraphLaunch", "DeviceFault", "graph"),
    ("cuMemAllocAsync", "DeviceFault", "memory"),
]


@pytest.mark.parametrize("function, kind, at", FAULTS)
def test_what_the_driver_refuses_says_who_asked(function: str, kind: str, at: str) -> None:
    with emulated_gpu() as gpu:
        f = on_gpu(gpu, doubled())
        gpu.fail_next[function] = real.CUresult.CUDA_ERROR_LAUNCH_FAILED
        with pytest.raises(TatamiError) as caught:
            f(x=eighths(3, 8))
        (d,) = caught.value.diagnostics
        assert d.kind == kind and at in d.at and "CUDA_ERROR_LAUNCH_FAILED" in d.why
        assert "TATAMI_CUDA_SYNC" in d.suggestion
        assert gpu.contexts == []


def test_a_fault_names_the_operation_behind_a_kernel() -> None:
    with emulated_gpu() as gpu:
        f = on_gpu(gpu, doubled())
        gpu.fail_next["cuGraphAddKernelNode"] = real.CUresult.CUDA_ERROR_INVALID_VALUE
        with pytest.raises(TatamiError) as caught:
            f(x=eighths(3, 8))
        assert "y" in caught.value.diagnostics[0].at or "mul" in caught.value.diagnostics[0].at


def test_a_full_gpu_is_out_of_memory() -> None:
    with emulated_gpu() as gpu:
        f = on_gpu(gpu, doubled())
        gpu.fail_next["cuMemAllocAsync"] = real.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        with pytest.raises(TatamiError) as caught:
            f(x=eighths(3, 8))
        assert caught.value.diagnostics[0].kind == "OutOfMemory"


def test_an_index_outside_its_data_is_told_when_numbers_are_read() -> None:
    with emulated_gpu("sm80") as gpu:
        g = tt.Graph("rows")
        x, i = g.input("x", (4, 3), tt.fp32), g.input("i", ("N",), tt.i64)
        g.output("y", x.op("take", i, axis=0) * 2.0)
        f = on_gpu(gpu, g)
        same_as_reference(f, g, x=eighths(4, 3), i=np.array([0, 3, 1]))
        (variable,) = gpu.variables.values()
        where = [s.symbol for s in program_of(f).sized("main", {"N": 3}).steps.steps if isinstance(s, KernelStep)]
        ctypes.c_int32.from_address(variable).value = 1  # as the kernel would say it
        with pytest.raises(TatamiError) as caught:
            f(x=eighths(4, 3), i=np.array([0, 3, 1]))
        (d,) = caught.value.diagnostics
        assert d.kind == "IndexOutOfRange" and any(s in d.at for s in where)
        same_as_reference(f, g, x=eighths(4, 3), i=np.array([2, 2, 2]))
        del f, caught
        gc.collect()
        assert not gpu.pinned and gpu.alive == 0


def test_memory_is_told() -> None:
    with emulated_gpu("sm80") as gpu:
        f = on_gpu(gpu, two_layers())
        f(x=eighths(9, 24, dtype=np.float16))
        assert f.memory["constants"] >= (24 * 40 + 40 * 16) * 2 and f.memory["arena"] > 0


def test_a_device_of_another_number_is_another_device() -> None:
    with emulated_gpu(devices=2) as gpu:
        f = on_gpu(gpu, doubled(), target="cuda:1")
        assert program_of(f).device.ordinal == 1 and f(x=eighths(3, 8))["y"].shape == (3, 8)
    assert isinstance(gpu, EmulatedGpu)
