"""main.cu builds alone with the kernels of its folder, for both architectures."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.module import Module
from tatami.core.numbers.compared import Expected
from tatami.core.signature import Input, Output, Signature
from tatami.core.target import PRESETS
from tatami.cu.files import source_files
from tatami.cu.ir import Source
from tatami.cu.print import print_cu
from tatami.cu.print_main import print_main
from tatami.execution.ir import ExecutionPlan, Host, Instruction
from tatami.execution.lower import lower as lower_to_execution
from tatami.gpu.lower import lower
from tatami.plan.choose_gpu import choose_gpu
from tatami.plan.ir import ProgramPlan, RegionPlan
from tatami.region.ir import Program, Region
from tests.cu.products.test_im2col import Conv
from tests.gpu.gemm_examples import gemm

SIZES = {"M": 200, "N": 136, "K": 328}


WANTED = Expected((0, 5), (0.5, 1.5), 2.0, 2.0, relative=2e-2, absolute=1e-3)


def program(target: str, region: Region | None = None) -> tuple[dict[str, str], Module[ExecutionPlan]]:
    region = region or gemm()
    signature = Signature(
        tuple(Input(p.name, p.memref.dtype, p.memref.shape) for p in region.inputs),
        tuple(Output(p.name, p.memref.dtype, p.memref.shape) for p in region.outputs),
    )
    regions = Module({"main": Program(signature, tuple(p.name for p in region.inputs), ("C",), (region,))})
    choices, rejected = choose_gpu(region, None, PRESETS[target], SIZES)  # type: ignore[arg-type]
    plan = Module({"main": ProgramPlan((RegionPlan(region.name, "", choices, rejected),), {})})
    gpu = lower(regions, plan, PRESETS[target])
    execution = lower_to_execution(regions, plan, gpu)
    source = print_cu(gpu, execution, PRESETS[target]).main
    source = msgspec.structs.replace(source, main=print_main(source, execution, SIZES, (WANTED,)))
    return source_files(source), execution


def test_the_fixed_sizes_decide_the_plan() -> None:
    text = program("sm90")[0]["main.cu"]
    assert "k0<<<" in text and "k1<<<" not in text
    assert text.count("= tensor_map(") == 3 and "{328, 200}" in text and "{656}" in text
    assert "cudaFuncSetAttribute(k0, cudaFuncAttributeMaxDynamicSharedMemorySize" in text
    assert "check(0, b[" in text


def test_a_walk_over_pixels_says_its_corners() -> None:
    text = program("sm90", Conv(stride=(2, 1)).region())[0]["main.cu"]
    assert "{64, 11, 9, 2}" in text and "Walk{{-1, -1, -1, -1}, {1, 2}}" in text


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize(
    ("target", "arch", "region"),
    [("sm80", "80", gemm()), ("sm90", "90a", gemm()), ("sm90", "90a", Conv(stride=(2, 1)).region())],
    ids=["sm80", "sm90", "an image's pixels"],
)
def test_it_builds_alone(target: str, arch: str, region: Region, tmp_path: Path) -> None:
    for name, text in program(target, region)[0].items():
        (tmp_path / name).write_text(text)
    command = [
        "nvcc",
        "-std=c++17",
        "-gencode",
        f"arch=compute_{arch},code=sm_{arch}",
        "-O1",
        "-o",
        str(tmp_path / "main"),
        str(tmp_path / "main.cu"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_what_it_cannot_run_is_refused() -> None:
    _, execution = program("sm80")
    hosted = msgspec.structs.replace(execution.main, instructions=(Instruction(Host("nonzero"), (), ()),))
    with pytest.raises(TatamiError, match="Host"):
        print_main(Source((), {}), Module({"main": hosted}), SIZES)
