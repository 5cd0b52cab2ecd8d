"""Compiled programs: chains, sizes, constants, updates, calls, branches, loops, host steps, threads, fork."""

from __future__ import annotations

import os
import threading
import time
from itertools import pairwise

import numpy as np
import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import expr, shape
from tatami.core.layout import MemRef
from tatami.core.module import Module
from tatami.core.signature import Equation, Input, Output, Signature
from tatami.core.tensor import Tensor
from tatami.region.ir import Param, Program, Step
from tatami.runtime.cpu.program import CpuProgram
from tests.execution.regions import F32, N, chain, program, region
from tests.runtime.compiled import compiled

replace = __import__("msgspec").structs.replace


def floats(*dims: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(dims).astype(np.float32)


@pytest.mark.parametrize("size", [0, 1, 7, 1000])
def test_a_chain_at_any_size(size: int) -> None:
    f = compiled(chain(5))
    x = floats(size)
    np.testing.assert_array_equal(f({"in-n0": x})["y"], -x)


def test_sizes_may_change_between_calls() -> None:
    f = compiled(chain(4))
    for size in (3, 300, 0, 3):
        x = floats(size)
        np.testing.assert_array_equal(f({"in-n0": x})["y"], x)


def test_one_arena_serves_a_long_chain() -> None:
    f = compiled(chain(10))
    f({"in-n0": floats(1000)})
    assert f.memory["arena"] == 2 * 4032 and f.memory["arena_without_reuse"] == 9 * 4032
    assert f.memory["buffers"][0] == {"id": "n1", "first_use": 0, "last_use": 1, "bytes": 4000, "offset": 0}


def test_outputs_that_are_inputs_or_stand_twice() -> None:
    p = program((region("r0", "neg", ("n0",), "n1", N),), {"n0": N}, {"a": ("n1", N), "b": ("n1", N), "c": ("n0", N)})
    f = compiled(Module({"main": p}))
    x = floats(5)
    out = f({"in-n0": x})
    np.testing.assert_array_equal(out["a"], -x)
    np.testing.assert_array_equal(out["b"], -x)
    np.testing.assert_array_equal(out["c"], x)
    assert not np.shares_memory(out["a"], out["b"]) and not np.shares_memory(out["c"], x)


def test_constants_and_setup() -> None:
    """w is negated once by `setup`; main adds it."""
    four = shape(4)
    setup = Program(
        Signature((Input("w", F32, four, storage="const_pool"),), (Output("packed", F32, four),)),
        ("n0",),
        ("n1",),
        (region("r0", "neg", ("n0",), "n1", four),),
    )
    main = Program(
        Signature((Input("x", F32, four), Input("packed", F32, four, storage="const_pool")), (Output("y", F32, four),)),
        ("n0", "n1"),
        ("n2",),
        (region("r0", "add", ("n0", "n1"), "n2", four),),
    )
    w = floats(4)
    f = compiled(Module({"main": main, "setup": setup}, {"w": Tensor(w)}))
    for _ in range(2):
        np.testing.assert_array_equal(f(x=np.ones(4, np.float32))["y"], 1 - w)
    assert list(f.program.constants) == ["packed"]  # type: ignore[attr-defined]
    assert f.program.constants["packed"].ctypes.data % 64 == 0  # type: ignore[attr-defined]


def state() -> Module[Program]:
    """new = state + x, y = -(old state)."""
    body = (region("r0", "add", ("n0", "n1"), "n2", N), region("r1", "neg", ("n0",), "n3", N))
    p = program(body, {"n0": N, "n1": N}, {"new": ("n2", N), "y": ("n3", N)}, updates={"new": "in-n0"})
    return Module({"main": p})


def test_a_state_is_updated_in_place_after_its_reads() -> None:
    f = compiled(state())
    s, x = np.zeros(6, np.float32), floats(6)
    first = f({"in-n0": s, "in-n1": x})
    np.testing.assert_array_equal(s, x)
    assert first["new"] is s
    np.testing.assert_array_equal(f({"in-n0": s, "in-n1": x})["y"], -x)
    np.testing.assert_array_equal(s, x + x)


def test_a_state_that_is_not_contiguous_is_written_back() -> None:
    f = compiled(state())
    whole = np.zeros((6, 2), np.float32)
    f({"in-n0": whole[:, 0], "in-n1": np.ones(6, np.float32)})
    np.testing.assert_array_equal(whole[:, 0], 1)
    assert whole[:, 1].sum() == 0 and f.copies == {"in-n0": 1}


def test_a_state_given_twice_is_read_before_it_is_written() -> None:
    f = compiled(state())
    s = floats(6)
    before = s.copy()
    np.testing.assert_array_equal(f({"in-n0": s, "in-n1": s})["y"], -before)
    np.testing.assert_array_equal(s, before * 2)


def test_a_region_that_updates_in_place() -> None:
    body = (region("r0", "neg", ("n0",), "n1", N, updates="n0"), region("r1", "abs", ("n0",), "n2", N))
    f = compiled(Module({"main": program(body, {"n0": N}, {"new": ("n1", N), "y": ("n2", N)}, updates={"new": "in-n0"})}))
    s = floats(6)
    before = s.copy()
    np.testing.assert_array_equal(f({"in-n0": s})["y"], abs(before))
    np.testing.assert_array_equal(s, -before)


def sub(fn: str, dims: str = "K") -> Program:
    k = shape(dims)
    body = (region("r0", "neg", ("n0",), "n1", k), region("r1", fn, ("n1",), "n2", k))
    return program(body, {"n0": k}, {"y": ("n2", k)})


def test_a_called_program_gets_its_sizes() -> None:
    step = Step("c0", "program", ("sub",), ("n0",), (Param("n5", MemRef(F32, N)),))
    again = Step("c1", "program", ("sub",), ("n5",), (Param("n6", MemRef(F32, N)),))
    main = program((step, again), {"n0": N}, {"y": ("n6", N)})
    f = compiled(Module({"main": main, "sub": sub("neg")}))
    x = floats(9)
    np.testing.assert_array_equal(f({"in-n0": x})["y"], x)


@pytest.mark.parametrize("chosen", [True, False])
def test_a_branch(chosen: bool) -> None:
    step = Step("c0", "if", ("yes", "no"), ("n9", "n0"), (Param("n5", MemRef(F32, N)),))
    main = Program(
        Signature((Input("x", F32, N), Input("c", DType.bool, ())), (Output("y", F32, N),)), ("n0", "n9"), ("n5",), (step,)
    )
    f = compiled(Module({"main": main, "yes": sub("neg", "N"), "no": sub("relu", "N")}))
    x = floats(9)
    np.testing.assert_array_equal(f(x=x, c=np.asarray(chosen))["y"], x if chosen else np.maximum(-x, 0))


def body_program(scanned: bool = False) -> Program:
    """(i, keep, state, step) -> (keep, state + step[, -state])."""
    ins = (Input("i", DType.i64, ()), Input("k", DType.bool, ()), Input("s", F32, N), Input("d", F32, N))
    outs = [Output("k", DType.bool, ()), Output("s", F32, N)] + ([Output("r", F32, N)] if scanned else [])
    body = [region("r0", "add", ("n2", "n3"), "n4", N)] + ([region("r1", "neg", ("n2",), "n5", N)] if scanned else [])
    return Program(
        Signature(ins, tuple(outs)), ("n0", "n1", "n2", "n3"), ("n1", "n4", *(["n5"] if scanned else [])), tuple(body)
    )


def loop_main(scan: str = "", new: tuple[str, ...] = ()) -> Program:
    results = [Param("n5", MemRef(F32, N))] + ([Param("n6", MemRef(F32, shape(scan, "N")))] if scan else [])
    step = Step("l0", "loop", ("body",), ("n0", "n1", "n2", "n3"), tuple(results), attrs={"carried": 1}, new_symbols=new)
    ins = (Input("trip", DType.i64, ()), Input("go", DType.bool, ()), Input("x", F32, N), Input("d", F32, N))
    outs = [Output("y", F32, N)] + ([Output("rows", F32, shape(scan, "N"))] if scan else [])
    defaults = {} if new or not scan else {scan: 3}
    return Program(
        Signature(ins, tuple(outs), defaults=defaults), ("n0", "n1", "n2", "n3"), tuple(r.name for r in results), (step,)
    )


@pytest.mark.parametrize("trip", [0, 1, 2, 5])
def test_a_loop_carries_its_state(trip: int) -> None:
    f = compiled(Module({"main": loop_main(), "body": body_program()}))
    x, d = floats(6), np.ones(6, np.float32)
    y = f(trip=trip, go=np.asarray(True), x=x, d=d)["y"]
    want = x.copy()
    for _ in range(trip):
        want = want + d
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(f(trip=trip, go=np.asarray(False), x=x, d=d)["y"], x)


def test_a_loop_stacks_what_it_scans() -> None:
    f = compiled(Module({"main": loop_main("T"), "body": body_program(True)}))
    x, d = np.zeros(4, np.float32), np.ones(4, np.float32)
    rows = f(trip=3, go=True, x=x, d=d)["rows"]
    np.testing.assert_array_equal(rows, -np.repeat(np.arange(3, dtype=np.float32)[:, None], 4, 1))
    with pytest.raises(TatamiError, match="E1805"):
        f(trip=2, go=True, x=x, d=d)
    with pytest.raises(TatamiError, match="E1805"):
        f(trip=4, go=True, x=x, d=d)


@pytest.mark.parametrize("trip", [0, 1, 4])
def test_a_loop_that_decides_a_size_runs_from_python(trip: int) -> None:
    f = compiled(Module({"main": loop_main("T", ("T",)), "body": body_program(True)}))
    x, d = np.zeros(4, np.float32), np.ones(4, np.float32)
    out = f(trip=trip, go=True, x=x, d=d)
    assert out["rows"].shape == (trip, 4) and out["y"][0] == trip


def host_main() -> Program:
    """y = -|positive elements of -x|, whose number only the data tells."""
    body = (
        region("r0", "neg", ("n0",), "n1", N),
        Step("h0", "host", ("test_positive",), ("n1",), (Param("n2", MemRef(F32, shape("P"))),), new_symbols=("P",)),
        region("r1", "abs", ("n2",), "n3", shape("P")),
        region("r2", "neg", ("n3",), "n4", shape("P")),
        region("r3", "relu", ("n1",), "n5", N),
    )
    return program(body, {"n0": N}, {"y": ("n4", shape("P")), "z": ("n5", N)})


def test_a_host_step_between_segments() -> None:
    from tatami.runtime.host_steps import host_routine

    @host_routine("test_positive")
    def positive(inputs, attrs):
        return (inputs[0][inputs[0] > 0],)

    f = compiled(Module({"main": host_main()}))
    for size in (0, 1, 50):
        x = floats(size)
        out = f({"in-n0": x})
        np.testing.assert_array_equal(out["y"], x[x < 0])
        np.testing.assert_array_equal(out["z"], np.maximum(-x, 0))


def test_buffers_of_one_segment_share_an_arena() -> None:
    """A chain of kernels before and after the host step needs the memory of two buffers, however long it is."""
    from tatami.runtime.host_steps import host_routine

    @host_routine("test_positive")
    def positive(inputs, attrs):
        return (inputs[0][inputs[0] > 0],)

    count = 8
    before = tuple(region(f"r{k}", "neg", (f"n{k}",), f"n{k + 1}", N) for k in range(count + 1))
    names = ("p", *(f"p{k}" for k in range(count)))
    after = tuple(region(f"q{k}", "neg", (a,), b, shape("P")) for k, (a, b) in enumerate(pairwise(names)))
    host = Step(
        "h0", "host", ("test_positive",), (f"n{count + 1}",), (Param("p", MemRef(F32, shape("P"))),), new_symbols=("P",)
    )
    f = compiled(Module({"main": program((*before, host, *after), {"n0": N}, {"y": (names[-1], shape("P"))})}))
    for size in (1000, 64, 1000, 0):
        x = floats(size)
        np.testing.assert_array_equal(f({"in-n0": x})["y"], -x[x < 0])
    assert isinstance(f.program, CpuProgram)
    kept = f.program.placements
    assert {sizes[2:][0]: p.bytes for sizes, p in kept.items() if sizes[1] == 0} == {
        ("N", 1000): 2 * 4032,
        ("N", 64): 512,
        ("N", 0): 0,
    }
    assert all(len(p.within) < len(p.used) for p in kept.values())  # buffers of the host step are not in the arena


def test_a_failing_host_step_is_named() -> None:
    from tatami.runtime.host_steps import host_routine

    @host_routine("test_positive")
    def positive(inputs, attrs):
        raise ValueError("no")

    f = compiled(Module({"main": host_main()}))
    with pytest.raises(TatamiError, match=r"E1805 HostFault at h0.*no"):
        f({"in-n0": floats(3)})


def test_recursion_is_cut() -> None:
    step = Step("c0", "program", ("sub",), ("n0",), (Param("n5", MemRef(F32, N)),))
    main = program((step,), {"n0": N}, {"y": ("n5", N)})
    f = compiled(Module({"main": main, "sub": main}))
    with pytest.raises(TatamiError, match="E1607"):
        f({"in-n0": floats(3)})


def test_a_kernel_fault_names_its_region() -> None:
    body = (region("r0", "neg", ("n0",), "n1", N), region("gather7", "floor", ("n1",), "n2", N))
    f = compiled(Module({"main": program(body, {"n0": N}, {"y": ("n2", N)})}))
    with pytest.raises(TatamiError, match="E1804 IndexOutOfRange at gather7"):
        f({"in-n0": floats(3)})


def test_an_assumption_is_checked_when_sizes_are_known() -> None:
    p = chain(1).main
    p = replace(p, signature=replace(p.signature, assumptions=(Equation(expr("N"), expr("4*(N//4)"), "reshape"),)))
    f = compiled(Module({"main": p}))
    f({"in-n0": floats(8)})
    with pytest.raises(TatamiError, match="E1304"):
        f({"in-n0": floats(6)})


def test_a_symbol_no_input_decides() -> None:
    p = chain(2, shape("N", "M"))
    signature = replace(p.main.signature, inputs=(replace(p.main.signature.inputs[0], shape=shape("N*M")),))
    with pytest.raises((TatamiError, AssertionError)):
        compiled(Module({"main": replace(p.main, signature=signature)}))({"in-n0": floats(6)})


def test_memory_is_checked_before_it_is_taken() -> None:
    dims = shape("N", 1 << 20, 1 << 20)
    f = compiled(Module({"main": program((region("r0", "neg", ("n0",), "n1", dims),), {"n0": dims}, {"y": ("n1", dims)})}))
    x = np.broadcast_to(np.float32(0), (1, 1 << 20, 1 << 20))
    with pytest.raises(TatamiError, match=r"E1803.*4398046511104 bytes"):
        f({"in-n0": x})


def test_a_timed_entry_tells_the_seconds_of_each_kernel() -> None:
    f = compiled(chain(2), timed=True)
    f({"in-n0": floats(1 << 20)})
    times = f.program.times()  # type: ignore[attr-defined]
    assert list(times) == [("main", "r0"), ("main", "r1")] and all(1e-6 < t < 1 for t in times.values())
    assert set(f.program.times().values()) == {0.0}  # type: ignore[attr-defined]


def test_threads_call_at_once() -> None:
    f = compiled(chain(20))
    wrong: list[int] = []

    def work(seed: int) -> None:
        for k in range(30):
            x = np.full(1000 + seed * 37 + k, seed, np.float32)
            if not np.array_equal(f({"in-n0": x})["y"], x):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_a_fork_may_call() -> None:
    f = compiled(chain(3), threads=2)
    f({"in-n0": floats(100)})
    child = os.fork()
    if child == 0:
        try:
            ok = np.array_equal(f({"in-n0": floats(100)})["y"], -floats(100))
            os._exit(0 if ok else 1)
        except BaseException:
            os._exit(2)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            assert status == 0
            return
        time.sleep(0.02)
    os.kill(child, 9)
    pytest.fail("the child hangs")


def test_a_bound_call_is_fast_and_follows_its_arrays() -> None:
    f = compiled(chain(2))
    x = floats(16)
    call = f.bind({"in-n0": x})
    out = call()["y"]
    np.testing.assert_array_equal(out, x)
    x[:] = 7
    assert call()["y"] is out and (out == 7).all()
