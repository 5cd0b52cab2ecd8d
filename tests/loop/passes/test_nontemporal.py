"""Stores past the caches: which they are, that they mean the same, and that nothing else is taken for one."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.codec import to_builtins
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import expr, floordiv, var
from tatami.core.target import PRESETS
from tatami.decisions import Decisions
from tatami.loop.ir import Assign, Const, Declare, For, IndexOf, Reg, Splat, Store, type_of
from tatami.loop.passes.nontemporal import is_multiple
from tatami.loop.verify import verify_kernel
from tatami.loop.walk import nodes

AVX512 = PRESETS["cpu:avx512"]


def rows(shape: tuple[int, int], step: Any) -> tt.Graph:
    g = tt.Graph("rows")
    g.output("y", step(g.input("x", shape, tt.fp32)))
    return g


def past(graph: tt.Graph, target: Any = "cpu") -> Decisions:
    """The plan that the compiler chose, with its result past the caches."""
    (chosen,) = prepare(graph, target=target).stages["plan"].main.regions
    (region,) = prepare(graph, target=target).stages["region"].main.body
    plan = msgspec.structs.replace(chosen.choices[0].plan, nontemporal=(region.outputs[0].name,))
    return Decisions(plans={chosen.key: to_builtins(plan)})


def kernel(graph: tt.Graph, target: Any = AVX512) -> Any:
    (found,) = prepare(graph, target=target, decisions=past(graph, target)).stages["loop"].main.kernels.values()
    return found


def stored(k: Any) -> set[tuple[str, bool]]:
    return {(s.buffer, s.nontemporal) for s in nodes(k.body) if isinstance(s, Store)}


STEPS = {
    "softmax": lambda x: x.softmax(axis=1),
    "relu": lambda x: x.relu(),
    "exp": lambda x: x.exp(),
    "cumsum": lambda x: x.cumsum(axis=1),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("shape", [(40, 1024), (33, 1008), (3, 48)])
def test_results_have_the_same_bits_wherever_they_lie(name: str, shape: tuple[int, int], threads: int) -> None:
    graph = rows(shape, STEPS[name])
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    wanted = tt.compile(graph, threads=threads)({"x": x})["y"]
    f = tt.compile(graph, threads=threads, decisions=past(graph))
    np.testing.assert_array_equal(f({"x": x})["y"], wanted)
    memory = np.zeros(x.nbytes + 128, np.uint8)
    for byte in (0, 4, 16, 60):  # from the first line on: where no vector has its place the stores are others
        start = -memory.ctypes.data % 64 + byte
        out = memory[start : start + x.nbytes].view(np.float32).reshape(shape)
        out[...] = 0
        f({"x": x}, out={"y": out})
        np.testing.assert_array_equal(out, wanted)


def test_whole_vectors_at_their_places_go_past_the_caches() -> None:
    k = kernel(rows((40, 1024), STEPS["softmax"]))
    assert ("p1", True) in stored(k) and ("p1", False) not in stored(k)
    assert {n for _, n in stored(k)} == {True, False}  # a kernel's own scratch stays in cache


def test_rows_that_begin_between_places_are_refused() -> None:
    with pytest.raises(TatamiError, match="past the caches, which no loop that threads share stores by whole vectors"):
        kernel(rows((40, 1023), STEPS["softmax"]))


def test_a_result_beyond_l3_is_chosen_to() -> None:
    def chosen(count: int) -> str:
        return str(prepare(rows((count, 1024), STEPS["relu"]), target=AVX512).stages["plan"].main.regions[0].choices[0].plan)

    most = AVX512.l3_bytes // 4096
    assert "nontemporal=()" in chosen(most - 1) and "nontemporal=('" in chosen(most + 1)


def test_vectors_in_fours_begin_where_a_thread_s_share_does() -> None:
    k = kernel(rows((48, 96), lambda x: x.tanh()))
    whole = {n for n in nodes(k.body) if isinstance(n, Store) and n.buffer == "p1" and type_of(n.value).lanes > 1}
    assert len(whole) >= 4 and all(n.nontemporal for n in whole)


def test_a_plan_that_names_no_output_is_refused() -> None:
    graph = rows((40, 1024), STEPS["relu"])
    ((key, plan),) = past(graph).plans.items()
    with pytest.raises(TatamiError, match="past the caches, which is not an output"):
        prepare(graph, target="cpu", decisions=Decisions(plans={key: {**plan, "nontemporal": ["x7"]}})).stages["loop"]


def test_a_store_that_could_fault_is_found() -> None:
    k = kernel(rows((40, 1024), STEPS["relu"]))
    assert verify_kernel(k) == []

    def moved(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(moved(v) for v in value)
        if isinstance(value, Store):
            return msgspec.structs.replace(value, index=value.index + 4)
        if isinstance(value, msgspec.Struct) and hasattr(value, "body"):
            return msgspec.structs.replace(value, body=moved(value.body))
        return value

    (d,) = verify_kernel(moved(k))
    assert "a nontemporal store to p1" in d.why


def test_a_store_at_a_place_that_changes_is_found() -> None:
    k = kernel(rows((40, 1024), STEPS["relu"]))
    (shared,) = k.body
    q = Reg("q1", DType.i64)
    value = next(s.value for s in nodes(k.body) if isinstance(s, Store))
    none = Splat(Const(0.0, DType.fp32), type_of(value).lanes)
    for body in (
        (Declare(q, IndexOf(expr(0), DType.i64), integer=True), Assign(q, IndexOf(var("q1") + 1, DType.i64))),
        (For("q1", expr(0), expr(33), (), 16, down=True),),
    ):
        store = Store("p1", var("q1"), none, nontemporal=True)
        faulty = (*body, store) if len(body) > 1 else (msgspec.structs.replace(body[0], body=(store,)),)
        (d,) = verify_kernel(
            msgspec.structs.replace(k, body=(msgspec.structs.replace(shared, body=faulty),), face=free(k.face))
        )
        assert "a nontemporal store to p1" in d.why


def free(face: Any) -> Any:
    """A face that says nothing of what may take another's place."""
    return msgspec.structs.replace(face, in_place=())


def test_multiples() -> None:
    x, y = var("x"), var("y")
    known = {"x": 16, "y": 4}
    assert is_multiple(x + 4 * y + 32, 16, known) and is_multiple(floordiv(y, expr(3)) * 8, 8, known)
    assert not is_multiple(x + y, 16, known) and not is_multiple(x * y, 4, known) and not is_multiple(var("z"), 4, known)
