"""Independent kernels of a wave run side by side where that pays: the decision, the C text, the same bits, the faults."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

import tatami.execution.lower
from tatami.api import CompiledFunction, compile, prepare
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.module import Module
from tatami.execution.ir import Copy
from tatami.execution.verify import verify
from tatami.frontend.graph import Graph


def towers(count: int, depth: int, size: int, stages: int = 1) -> Graph:
    """`count` independent columns of work that no plan divides over threads: reductions to one number. With two stages,
    the second wave reads what the first left in the arena."""
    g = Graph("g")
    for k in range(count):
        x = g.input(f"x{k}", (size,), DType.fp32)
        for _ in range(stages):
            y = x
            for _ in range(depth):
                y = (y * 0.5).tanh()
            total = y.sum()
            x = x + total.expand(size)
        g.output(f"y{k}", total)
    return g


def inputs(g: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        i.tensor: rng.standard_normal([int(str(s)) for s in i.shape]).astype(np.float32)
        for i in g.module().main.signature.inputs
    }


def beside(f: CompiledFunction) -> dict[int, int]:
    """Launches that run beside others, by wave."""
    out: dict[int, int] = {}
    for ins in f.stages["execution"].value.main.instructions:
        if ins.beside:
            out[ins.wave] = out.get(ins.wave, 0) + 1
    return out


TWO_CORES = pytest.mark.parametrize("threads", [1, 2, 4])


@TWO_CORES
def test_long_serial_kernels_of_a_wave_run_beside_each_other(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    g = towers(6, 6, 4000, stages=2)
    f = compile(g, threads=threads)
    assert beside(f) and all(n > 1 for n in beside(f).values())
    assert "tatami_parallel_for(pool, 6, 1, beside_" in f.stages["c"].text
    monkeypatch.setattr(tatami.execution.lower, "run_beside", lambda plan, schedule: plan)
    alone = compile(g, threads=threads)
    assert not beside(alone) and "beside_0" not in alone.stages["c"].text
    want = alone(inputs(g))
    for _ in range(40):
        got = f(inputs(g))
        assert all(np.array_equal(got[n], want[n]) for n in want)


def test_short_kernels_and_divided_ones_run_one_after_the_other() -> None:
    assert beside(compile(towers(6, 1, 64))) == {}
    assert beside(compile(towers(1, 6, 4000))) == {}
    g = Graph("g")
    for k in range(3):
        g.output(f"y{k}", g.input(f"x{k}", (512, 4096), DType.fp32).tanh())
    assert beside(compile(g)) == {}  # each is divided over all threads by itself


def test_a_fault_of_a_kernel_beside_others_is_reported() -> None:
    g = Graph("g")
    for k in range(4):
        x, i = g.input(f"x{k}", (4000,), DType.fp32), g.input(f"i{k}", (4000,), DType.i64)
        y = x.take(i)
        for _ in range(6):
            y = (y * 0.5).tanh()
        g.output(f"y{k}", y.sum())
    f = compile(g, threads=2)
    assert beside(f) == {0: 4}
    given = {f"x{k}": np.ones(4000, np.float32) for k in range(4)} | {f"i{k}": np.zeros(4000, np.int64) for k in range(4)}
    f(given)
    given["i2"] = np.full(4000, 4000)
    with pytest.raises(TatamiError) as error:
        f(given)
    (d,) = error.value.diagnostics
    assert d.kind == "IndexOutOfRange" and "r2" in d.at


def test_only_launches_run_beside_each_other() -> None:
    g = Graph("g")
    x = g.input("x", (3,), DType.fp32)
    g.output("y", x)
    module = prepare(g).stages["execution"]
    main = module.main
    assert isinstance(main.instructions[0].op, Copy)
    marked = msgspec.structs.replace(
        main, instructions=tuple(msgspec.structs.replace(i, beside=True) for i in main.instructions)
    )
    (d,) = verify(Module({"main": marked}, module.constants, module.origins))
    assert d.kind == "InvalidExecution" and "beside" in d.why


def test_the_dump_lists_the_order_with_wave_ids() -> None:
    g = Graph("g")
    x, w = g.input("x", ("M", 16), DType.fp32), g.input("w", (16, 16), DType.fp32)
    h = x @ w
    g.output("y", h.softmax(1))
    g.output("z", (x @ w.transpose()).relu())
    text = compile(g).stages["execution"].text
    (line,) = [line for line in text.splitlines() if "execution_order" in line]
    plan = compile(g).stages["execution"].value.main
    assert line.strip() == "execution_order " + ", ".join(f"{i.debug_name} @{i.wave}" for i in plan.instructions)
    assert line.count("@0") == 2 and line.count("@1") == 1
