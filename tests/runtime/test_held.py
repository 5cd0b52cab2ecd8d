"""Held inputs: what is computed of them alone is work of `setup`, on every target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.core.expr import shape
from tatami.core.module import Module
from tatami.core.signature import Input, Output, Signature
from tatami.execution.ir import ExecutionPlan
from tatami.execution.verify import verify
from tatami.region.ir import Program
from tatami.region.run import run as run_regions
from tatami.runtime.cpu.program import CpuProgram
from tatami.runtime.stand_alone import stand_alone_main
from tests.cuda.emulated_gpu import emulated_gpu
from tests.cuda.programs import on_gpu, same_as_reference
from tests.execution.regions import F32, region
from tests.runtime.compiled import plan_of
from tests.runtime.test_stand_alone import build_and_run

FOUR = shape(4)


def graph(storage: Any = "held") -> tt.Graph:
    g = tt.Graph("held")
    x = g.input("x", ("B", 64), tt.fp32)
    w = g.input("w", (96, 64), tt.fp32, role="param", storage=storage)
    s = g.input("s", (96,), tt.fp32, role="param", storage=storage)
    scaled = w * s.sigmoid().reshape((96, 1)).expand((96, 64))
    g.output("y", (x @ scaled.permute((1, 0))).relu() + w.sum(1).reshape((1, 96)).expand(("B", 96)))
    return g


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    shapes = {"x": (32, 64), "w": (96, 64), "s": (96,)}
    return {n: draw.standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}


def meaning(x: np.ndarray, w: np.ndarray, s: np.ndarray) -> np.ndarray:
    return np.maximum(x @ (w / (1 + np.exp(-s[:, None]))).T, 0) + w.sum(1)


@pytest.mark.parametrize("target", ["cpu", "reference", "emulated-sm80"])
def test_every_call_is_of_what_it_gets(target: str) -> None:
    f = tt.compile(graph(), target=target)
    for seed in (0, 1, 0):
        given = arrays(seed)
        np.testing.assert_allclose(f(**given)["y"], meaning(**given), rtol=1e-4, atol=1e-4)


def test_the_cuda_runtime_runs_setup_for_each_call() -> None:
    with emulated_gpu() as gpu:
        f = on_gpu(gpu, graph())
        for seed in (0, 1):
            given: dict[str, Any] = arrays(seed)
            same_as_reference(f, graph(), **given)


def test_a_bound_call_reads_held_inputs_once_and_others_again() -> None:
    f = tt.compile(graph())
    given = arrays()
    call = f.bind(**given)
    before = {n: a.copy() for n, a in given.items()}
    given["x"][:] = arrays(1)["x"]
    np.testing.assert_allclose(call()["y"], meaning(given["x"], before["w"], before["s"]), rtol=1e-4, atol=1e-4)


def test_main_reads_the_packed_product_and_plain_arguments_keep_it_there() -> None:
    held, plain = tt.compile(graph()), tt.compile(graph("argument"))
    assert "setup" in held.execution.programs and "setup" not in plain.execution.programs
    program = held.program
    assert isinstance(program, CpuProgram) and program.layouts.held == ("w", "s") and not program.is_prepared
    kernels = [len(f.execution.main.instructions) for f in (held, plain)]
    assert kernels[0] < kernels[1]


def test_prepared_programs_stand_side_by_side() -> None:
    f = tt.compile(graph())
    program = f.program
    assert isinstance(program, CpuProgram)
    sets = [arrays(k) for k in range(3)]
    ready = [program.prepared([a[n] for n in program.layouts.held]) for a in sets]
    sizes = program.bind("main", {n: a.shape for n, a in sets[0].items()})
    for given, prepared in [*zip(sets, ready), *zip(sets, ready)]:
        (y,) = prepared.run("main", [given[p.tensor] for p in f.arguments], sizes)
        np.testing.assert_allclose(y, meaning(**given), rtol=1e-4, atol=1e-4)


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    f = tt.load(tt.compile(graph()).save(tmp_path / "held.tatami"), trust=True)
    np.testing.assert_allclose(f(**arrays())["y"], meaning(**arrays()), rtol=1e-4, atol=1e-4)


def regions() -> Module[Program]:
    """main: y = -w + x, where setup makes -w of the held w."""
    held = Input("w", F32, FOUR, storage="held")
    made = (Output("negative", F32, FOUR),)
    setup = Program(Signature((held,), made), ("n0",), ("n1",), (region("r0", "neg", ("n0",), "n1", FOUR),))
    ins = (Input("x", F32, FOUR), held, Input("negative", F32, FOUR, storage="const_pool"))
    body = (region("r0", "add", ("n0", "n2"), "n3", FOUR),)
    main = Program(Signature(ins, (Output("y", F32, FOUR),)), ("n0", "n1", "n2"), ("n3",), body)
    return Module({"main": main, "setup": setup})


def test_main_c_fills_held_inputs_once_for_both_programs(tmp_path: Path) -> None:
    module = regions()
    execution = plan_of(module)
    main_c = stand_alone_main(execution, lambda inputs, sizes: run_regions(module, inputs, sizes))
    done = build_and_run(tmp_path, execution, main_c)
    assert done.returncode == 0 and done.stdout.endswith("ok\n"), done.stdout + done.stderr


@pytest.mark.parametrize("changed", [{"storage": "argument"}, {"mutability": "mutable"}, {"tensor": "v"}])
def test_setup_reads_constants_and_held_inputs_only(changed: dict[str, Any]) -> None:
    execution = plan_of(regions())
    main = execution.main
    ports = tuple(msgspec.structs.replace(p, **changed) if p.tensor == "w" else p for p in main.signature.inputs)
    broken = msgspec.structs.replace(main, signature=msgspec.structs.replace(main.signature, inputs=ports))
    module: Module[ExecutionPlan] = Module({**execution.programs, "main": broken})
    (found,) = verify(module)
    assert found.kind == "InvalidExecution" and "an input of setup" in found.why
