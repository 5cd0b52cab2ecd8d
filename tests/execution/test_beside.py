"""Independent kernels and loops of a wave run side by side where that pays: the decision, the C text, the same bits, the faults."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

import tatami.execution.lower
from tatami.api import CompiledFunction, compile, prepare
from tatami.c.print_entry import TURNS_BESIDE
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.module import Module
from tatami.execution.beside import may_run_beside
from tatami.execution.ir import Copy, Loop
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
    """Launches that run at the same time as others, by wave."""
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
    assert d.kind == "InvalidExecution" and "at the same time" in d.why


def halves(turns: int | str = "S", back: int = 32, checks: bool = False) -> Graph:
    """Two loops over the same input, forth and back, as a bidirectional layer has. `back`: the size of the second's state.
    `checks`: bodies index by what they are given."""
    g = Graph("halves")
    x = g.input("x", (turns, "B", 16), DType.fp32)
    rng = np.random.default_rng(3)
    for k, size in enumerate((32, back)):
        body = g.subgraph(f"turn{k}")
        i = body.input("i", (), DType.i64)
        go = body.input("go", (), DType.bool)
        h, rows = body.input("h", ("B", size), DType.fp32), body.input("rows", (turns, "B", 16), DType.fp32)
        w, r = (body.constant(rng.standard_normal((n, size)).astype(np.float32) / 6) for n in (16, size))
        row = rows.take(i + 1 if checks else i, axis=0)
        h_next = (row @ w + h @ r).tanh()
        body.output("again", go)
        body.output("h_next", h_next)
        body.output("y", h_next)
        given = x if k == 0 else x.flip(0)
        last, ys = g.loop(body, [g.constant(np.zeros((1, size), np.float32)).expand("B", size)], [given], trip=x.shape[0])
        g.output(f"last{k}", last)
        g.output(f"y{k}", ys)
    return g


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_loops_that_are_alike_run_beside_each_other(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    f = compile(halves(), threads=threads)
    assert list(beside(f).values()) == [2]
    assert verify(f.stages["execution"].value) == []
    monkeypatch.setattr(tatami.execution.lower, "run_loops_beside", lambda programs: programs)
    alone = compile(halves(), threads=threads)
    assert beside(alone) == {}
    for turns in (0, 1, TURNS_BESIDE, 40):
        x = np.random.default_rng(turns).standard_normal((turns, 3, 16)).astype(np.float32)
        want = alone(x=x)
        for _ in range(10):
            got = f(x=x)
            assert all(np.array_equal(got[n], want[n]) for n in want)


def test_loops_of_other_shapes_run_one_after_the_other() -> None:
    assert beside(compile(halves(back=48))) == {}


def test_a_fault_in_a_loop_beside_another_is_reported() -> None:
    f = compile(halves(checks=True), threads=2)
    assert list(beside(f).values()) == [2]
    with pytest.raises(TatamiError) as error:
        f(x=np.ones((20, 3, 16), np.float32))
    assert error.value.diagnostics[0].kind == "IndexOutOfRange"


def test_a_loop_of_loops_does_not_run_beside_another() -> None:
    """A document may not say so: frames of calls that a thread makes by itself are those of kernels alone."""
    f = compile(halves(), threads=2)
    module = f.stages["execution"].value
    body = next(i.op.body for i in module.main.instructions if isinstance(i.op, Loop))
    inner = module.programs[body]
    loop = next(i for i in module.main.instructions if isinstance(i.op, Loop))
    nested = msgspec.structs.replace(inner, instructions=(*inner.instructions, loop))
    assert may_run_beside(loop, module.programs)
    assert not may_run_beside(loop, {**module.programs, body: nested})


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
