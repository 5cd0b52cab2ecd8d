"""Correct kernels: the right numbers, and nothing reported under twenty schedules."""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from tatami.cu.print import headers
from tatami.cu.products.wgmma import wgmma_function
from tatami.emulated.sources import kernel_headers
from tatami.runtime.building.nvrtc import compile_cubin, has_nvrtc
from tatami.runtime.emulated.machine import EmulatedMachine
from tests.emulated.texts import CASES, machine_of, run, text_of

SCHEDULES = range(21)
pytestmark = pytest.mark.xdist_group("emulated texts")  # one machine for all of them


@pytest.fixture(scope="module")
def machine() -> EmulatedMachine:
    return machine_of({k: text_of(k) for k in CASES})


@pytest.mark.parametrize("kernel", CASES)
def test_a_correct_kernel_computes_and_is_never_reported(kernel: str, machine: EmulatedMachine) -> None:
    case = CASES[kernel]
    wanted = case.wanted(case.arrays)
    for schedule in SCHEDULES:
        report, made = run(machine, case, kernel, replace(case.shape, schedule=schedule))
        assert report is None, (schedule, report)
        for name, value in wanted.items():
            np.testing.assert_array_equal(made[name].reshape(value.shape), value, err_msg=f"{name}, schedule {schedule}")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="counts the mappings of this process")
def test_nothing_of_a_launch_stays_mapped_after_it(machine: EmulatedMachine) -> None:
    kernel, case = next(iter(CASES.items()))
    assert case.shape.threads >= 128
    run(machine, case, kernel, case.shape)
    before = len(Path("/proc/self/maps").read_text().splitlines())
    again = machine_of({kernel: text_of(kernel) + "// another machine\n"})
    run(again, case, kernel, case.shape)
    run(machine, case, kernel, case.shape)
    assert len(Path("/proc/self/maps").read_text().splitlines()) < before + 64


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="asks the C library for what was freed last")
def test_what_was_dropped_is_written_no_more(machine: EmulatedMachine) -> None:
    kernel, case = next(iter(CASES.items()))
    run(machine, case, kernel, case.shape)
    malloc, free = ctypes.CDLL(None).malloc, ctypes.CDLL(None).free
    malloc.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    taken = {malloc(size): size for size in range(64, 512, 16) for _ in range(16)}
    try:
        for place, size in taken.items():
            ctypes.memset(place, 0xFF, size)
        run(machine, case, kernel, case.shape)
        assert all(ctypes.string_at(place, size) == b"\xff" * size for place, size in taken.items())
    finally:
        for place in taken:
            free(place)


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize("kernel", CASES)
def test_the_texts_compile_for_the_hardware(kernel: str) -> None:
    texts: dict[str, str] = {**headers(())}
    extra = wgmma_function("f16", 64, "registers") + wgmma_function("tf32", 32, "narrow") + wgmma_function("e4m3", 16, "narrow")
    texts["tatami_ptx.cuh"] += f"\n#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900\n{extra}#endif\n"
    compile_cubin(text_of(kernel), "sm_90a", texts)


def test_both_headers_have_the_same_functions() -> None:
    real = (files("tatami.cu") / "header" / "tatami_ptx.cuh").read_text()
    emulated = kernel_headers({})["tatami_ptx.cuh"]
    pattern = re.compile(r"\b(?:TT_DEV [\w ]+?|struct )(tt_\w+)(?=\(|<| \{|;)")
    macro = re.compile(r"#define (TT_\w+)")
    assert set(pattern.findall(real)) <= set(pattern.findall(emulated))
    assert set(macro.findall(real)) - {"TT_PRAGMA"} <= set(macro.findall(emulated))
