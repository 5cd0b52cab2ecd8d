"""`main.c` builds with the other files, runs, and tells right from wrong."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import tatami as tt
from tatami.api import prepare
from tatami.c.print_entry import print_entry
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import shape
from tatami.core.module import Module
from tatami.core.signature import Input, Output, Signature
from tatami.core.tensor import Tensor
from tatami.execution.ir import ExecutionPlan
from tatami.region.ir import Program
from tatami.region.run import run as run_regions
from tatami.runtime.building.compiler import find_compiler
from tatami.runtime.building.objects import runtime_headers, runtime_text
from tatami.runtime.stand_alone import StandAlone, philox_fill, stand_alone_main
from tatami.storage.code_folder import stand_alone
from tests.execution.regions import F32, N, chain, program, region
from tests.runtime.compiled import KERNELS, plan_of


def build_and_run(folder: Path, execution: Module[ExecutionPlan], main: StandAlone) -> subprocess.CompletedProcess[str]:
    texts = {"kernels.c": KERNELS, "entry.c": print_entry(execution), "pool.c": runtime_text("pool.c"), **runtime_headers()}
    texts[main.file] = main.text
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "constants.bin").write_bytes(b"".join(execution.constants[n].data for n in main.constants))
    sources = [n for n in texts if n.endswith(".c")]
    subprocess.run([*find_compiler().argv, "-O1", "-w", *sources, "-lm", "-pthread", "-o", "a.out"], cwd=folder, check=True)
    return subprocess.run(["./a.out"], cwd=folder, capture_output=True, text=True, check=False)


def with_setup() -> Module[Program]:
    four = shape(4)
    setup = Program(
        Signature((Input("w", F32, four, storage="const_pool"),), (Output("packed", F32, four),)),
        ("n0",),
        ("n1",),
        (region("r0", "neg", ("n0",), "n1", four),),
    )
    ins = (Input("x", F32, four), Input("packed", F32, four, storage="const_pool"), Input("v", F32, four, storage="const_pool"))
    body = (region("r0", "add", ("n0", "n1"), "n3", four), region("r1", "mul", ("n3", "n2"), "n4", four))
    main = Program(Signature(ins, (Output("y", F32, four),)), ("n0", "n1", "n2"), ("n4",), body)
    weights = {n: Tensor(np.arange(4, dtype=np.float32) + k) for k, n in enumerate("wv")}
    return Module({"main": main, "setup": setup}, weights)


@pytest.mark.parametrize("regions", [chain(3), with_setup()], ids=["chain", "setup"])
def test_main_c_agrees_with_the_reference(tmp_path: Path, regions: Module[Program]) -> None:
    execution = plan_of(regions)
    main = stand_alone_main(execution, lambda inputs, sizes: run_regions(regions, inputs, sizes), [{"N": 50}])
    done = build_and_run(tmp_path, execution, main)
    assert done.returncode == 0, done.stdout + done.stderr
    name = regions.main.signature.outputs[0].tensor
    assert f"{name}: largest error 0" in done.stdout and done.stdout.endswith("ok\n")


def test_main_c_sees_a_wrong_result(tmp_path: Path) -> None:
    execution = plan_of(chain(3))
    main = stand_alone_main(execution, lambda inputs, sizes: {"y": inputs["in-n0"]}, [{"N": 50}])
    done = build_and_run(tmp_path, execution, main)
    assert done.returncode == 1 and "WRONG" in done.stdout


def test_an_update_is_compared_in_its_input(tmp_path: Path) -> None:
    body = (region("r0", "add", ("n0", "n1"), "n2", N),)
    regions = Module({"main": program(body, {"n0": N, "n1": N}, {"s": ("n2", N)}, updates={"s": "in-n0"})})
    execution = plan_of(regions)
    main = stand_alone_main(execution, lambda inputs, sizes: run_regions(regions, inputs, sizes))
    assert build_and_run(tmp_path, execution, main).returncode == 0


def test_a_program_with_host_steps_is_refused() -> None:
    from tests.runtime.cpu.test_program import host_main

    execution = plan_of(Module({"main": host_main()}))
    with pytest.raises(TatamiError, match="E1802"):
        stand_alone_main(execution, lambda i, s: {"y": np.zeros(1, np.float32), "z": np.zeros(1, np.float32)})


def test_fill_is_exact_in_every_dtype() -> None:
    x = philox_fill(DType.fp64, (1000,), 3)
    assert x.min() >= -1 and x.max() < 1 and len(np.unique(x)) > 100
    for dtype in (DType.fp16, DType.bf16, DType.fp32):
        np.testing.assert_array_equal(philox_fill(dtype, (1000,), 3).astype(np.float64), x)
    assert set(np.unique(philox_fill(DType.i32, (100,), 0))) == {0, 1}


def test_main_c_prints_the_names_of_outputs_as_text_only(tmp_path: Path) -> None:
    regions = chain(3)
    hostile = 'y"); system("touch x"); /* ??/\n#include <é>\\'
    (output,) = regions.main.signature.outputs
    signature = replace(regions.main.signature, outputs=(replace(output, tensor=hostile),))
    regions = Module({"main": replace(regions.main, signature=signature)}, regions.constants)
    execution = plan_of(regions)
    main = stand_alone_main(execution, lambda inputs, sizes: run_regions(regions, inputs, sizes), [{"N": 50}])
    assert hostile[:4] not in main.text and "#include <\\303" not in main.text
    done = build_and_run(tmp_path, execution, main)
    assert done.returncode == 0 and f"{hostile}: largest error 0" in done.stdout and not (tmp_path / "x").exists()


def test_main_c_of_a_model_without_inputs(tmp_path: Path) -> None:
    g = tt.Graph()
    g.output("y", g.iota((5,), 0, DType.i32) * 2)
    made = prepare(g, target="cpu")
    main = stand_alone(made, {})
    assert main is not None and "aligned_alloc(64, " in main.text
