"""Outputs and updated inputs lie in the memory of the caller, whose arrays live as long as a call reads them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tatami.core.module import Module
from tatami.runtime.cpu import quick_call
from tatami.runtime.cpu.native_code import NativeCode
from tatami.runtime.cpu.short_call import short_call
from tatami.runtime.function import Function
from tatami.runtime.written import overlaps_itself
from tests.execution.regions import N, program, region
from tests.runtime.compiled import compiled

F4 = np.float32
as_strided = np.lib.stride_tricks.as_strided


@pytest.fixture(scope="module")
def double() -> Function:
    g = tt.Graph("double")
    g.output("y", g.input("x", ("N", 4), tt.fp32) * 2.0)
    return tt.compile(g, threads=1)


@pytest.fixture(scope="module")
def count() -> Function:
    """a: the updated -n0; b: |n1|."""
    body = (region("r0", "neg", ("n0",), "n2", N), region("r1", "abs", ("n1",), "n3", N))
    outputs = {"a": ("n2", N), "b": ("n3", N)}
    return compiled(Module({"main": program(body, {"n0": N, "n1": N}, outputs, updates={"a": "in-n0"})}))


class Copied:
    """An array that gives a copy of itself."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.zeros((3, 4), F4)


def torch_of(name: str) -> Any:
    torch = pytest.importorskip("torch")
    made = {
        "negative": lambda: torch.complex(torch.ones(3, 4), torch.ones(3, 4)).conj().imag,
        "expanded": lambda: torch.zeros(1, 4).expand(3, 4),
    }
    return made[name]()


LOST: dict[str, tuple[Callable[[], Any], str]] = {
    "list": (lambda: [[0.0] * 4] * 3, "can only be read as a copy (list)"),
    "number": (lambda: F4(0), "rank 0"),
    "copied": (Copied, "can only be read as a copy (Copied)"),
    "negative": (lambda: torch_of("negative"), "can only be read as a copy (Tensor)"),
    "expanded": (lambda: torch_of("expanded"), "has elements that share memory"),
    "broadcast": (lambda: as_strided(np.zeros(4, F4), (3, 4), (0, 4)), "has elements that share memory"),
    "windows": (lambda: as_strided(np.zeros(9, F4), (3, 4), (4, 4)), "has elements that share memory"),
    "masked": (lambda: np.ma.array(np.zeros((3, 4), F4), mask=True), "elements without a value"),
}


@pytest.mark.parametrize("name", LOST)
def test_an_output_array_whose_writes_would_be_lost_is_refused(name: str, double: Function) -> None:
    make, why = LOST[name]
    x = np.ones((3, 4), F4)
    for call in (double, lambda **named: double.bind(**named)()):
        with pytest.raises(TatamiError) as error:
            call(x=x, out={"y": make()})
        assert error.value.diagnostics[0].code == "E1801" and why in error.value.diagnostics[0].why


@pytest.mark.parametrize("name", ["list", "copied", "windows"])
def test_an_updated_input_whose_writes_would_be_lost_is_refused(name: str, count: Function) -> None:
    class Line(Copied):
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            return np.zeros(4, F4)

    lost = {"list": [0.0] * 4, "copied": Line(), "windows": as_strided(np.zeros(4, F4), (4,), (0,))}[name]
    for call in (count, lambda given: count.bind(given)()):
        with pytest.raises(TatamiError, match="updated in place"):
            call({"in-n0": lost, "in-n1": np.zeros(4, F4)})


def test_views_without_common_elements_are_written(double: Function) -> None:
    x = np.arange(12, dtype=F4).reshape(3, 4)
    backing = np.zeros(40, F4)
    for y in (
        backing[:12].reshape(3, 4)[::-1, ::-1],
        backing[:12].reshape(4, 3).T,
        backing[:24].reshape(3, 8)[:, ::2],
        as_strided(backing, (3, 4), (8, 12)),  # places 0, 2, 4 and 3, 5, 7, …: they mesh
        np.zeros((3, 4), ">f4"),
    ):
        overlapping = y.strides == (8, 12) and len({2 * i + 3 * j for i in range(3) for j in range(4)}) < 12
        if overlapping:
            with pytest.raises(TatamiError, match="share memory"):
                double(x=x, out={"y": y})
            continue
        double(x=x, out={"y": y})
        np.testing.assert_array_equal(y, x * 2)


def test_elements_that_share_memory_are_found_by_enumeration() -> None:
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(300):
        shape = tuple(int(n) for n in rng.integers(0, 4, 2))
        steps = tuple(int(n) for n in rng.integers(0, 6, 2))
        array = as_strided(np.zeros(64, np.int16), shape, tuple(2 * s for s in steps))
        places = [i * steps[0] + j * steps[1] for i in range(shape[0]) for j in range(shape[1])]
        assert overlaps_itself(array) == (len(set(places)) < len(places)), (shape, steps)
        seen.add(overlaps_itself(array))
    assert seen == {True, False}


def test_what_is_written_is_apart_from_what_is_updated(count: Function) -> None:
    """Strided arrays too, of which the program takes copies."""
    whole = np.ones((4, 2), F4)
    for out in (whole[:, 0], whole[::-1, 0]):
        with pytest.raises(TatamiError, match="shares memory with in-n0, which is updated in place"):
            count({"in-n0": whole[:, 0], "in-n1": np.ones(4, F4)}, out={"b": out})
    p = program(
        (region("r0", "neg", ("n0",), "n2", N), region("r1", "abs", ("n1",), "n3", N)),
        {"n0": N, "n1": N},
        {"a": ("n2", N), "b": ("n3", N)},
        updates={"a": "in-n0", "b": "in-n1"},
    )
    with pytest.raises(TatamiError, match="both are updated in place"):
        compiled(Module({"main": p}))({"in-n0": whole[:, 0], "in-n1": whole[:, 0]})


def test_gradients_that_need_what_was_written_raise(double: Function) -> None:
    torch = pytest.importorskip("torch")
    x = np.ones((3, 4), F4)
    for call in (double, lambda **named: double.bind(**named)()):
        y, w = torch.ones(3, 4), torch.ones(3, 4, requires_grad=True)
        product = (y * w).sum()
        call(x=x, out={"y": y})
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()
    with torch.inference_mode():
        uncounted = torch.ones(3, 4)
    double(x=x, out={"y": uncounted})
    assert (uncounted == 2).all()


@pytest.mark.parametrize("way", ["c", "python"])
def test_arrays_live_as_long_as_a_call_reads_them(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may take them out of the dict of the call."""
    if way == "python":
        monkeypatch.setattr(quick_call, "short_call", lambda: None)
    elif short_call() is None:
        pytest.skip("the headers of Python or numpy are missing")
    given: dict[str, np.ndarray] = {}
    watched: list[weakref.ref[np.ndarray]] = []
    alive: list[bool] = []
    take, give = NativeCode.take_arena, NativeCode.give_arena

    def take_arena(self: NativeCode, size: int) -> Any:
        given.clear()  # another thread may do so once the call has begun
        return take(self, size)

    def give_arena(self: NativeCode, *arena: Any) -> None:
        alive.extend(of() is not None for of in watched)
        give(self, *arena)

    monkeypatch.setattr(NativeCode, "take_arena", take_arena)
    monkeypatch.setattr(NativeCode, "give_arena", give_arena)
    g = tt.Graph("rows")
    x, w = g.input("x", (8, 48), tt.fp32), g.input("w", (8, 48), tt.fp32)
    h = x @ w.transpose(0, 1)
    g.output("y", (h @ h) @ x)
    f = tt.compile(g, threads=1)
    for _ in range(3):
        given.update({name: np.ones((8, 48), F4) for name in "xw"})
        watched[:] = map(weakref.ref, given.values())
        np.testing.assert_allclose(f(given)["y"], 48 * 48 * 8 * 8, rtol=1e-5)
    assert f.memory["arena"] > 0 and f._recent is not None
    assert len(alive) >= 6 and all(alive)
    assert [of() for of in watched] == [None, None]


def test_what_cannot_be_read_is_one_diagnostic(double: Function) -> None:
    """Code of the caller's objects raises what it likes."""

    class Raises:
        def __init__(self, error: Exception) -> None:
            self.error = error

        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            raise self.error

    class RaisesDLPack(Raises):
        __array__ = None  # type: ignore[assignment]

        def __dlpack__(self, **named: object) -> object:
            raise self.error

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    for error in (ValueError("v"), KeyError("v"), RuntimeError("v"), AttributeError("v"), OSError("v")):
        for make in (Raises, RaisesDLPack):
            with pytest.raises(TatamiError, match="cannot be read"):
                double(x=make(error))


@pytest.mark.parametrize(
    ("dtype", "number"),
    [(tt.fp64, 2**53 + 1), (tt.fp64, -(2**53) - 1), (tt.fp32, 2**24 + 1), (tt.fp32, 1e39), (tt.fp16, 1e6), (tt.i8, 128), (tt.u8, -1), (tt.u64, -1)],
)  # fmt: skip
def test_numbers_of_python_that_a_dtype_cannot_hold_are_refused(dtype: Any, number: float) -> None:
    g = tt.Graph("same")
    g.output("y", g.input("x", (2,), dtype) + g.input("z", (2,), dtype))
    f = tt.compile(g, target="reference")
    with pytest.raises(TatamiError, match="a number does not fit"):
        f(x=[0, number], z=[0, 0])
    if dtype.is_float:
        assert f(x=[float("inf"), 1], z=[0, 0])["y"][0] == np.inf


def test_masked_arrays_are_refused_where_a_value_is_missing(double: Function) -> None:
    x = np.ones((3, 4), F4)
    assert (double(x=np.ma.array(x))["y"] == 2).all()
    with pytest.raises(TatamiError, match="masked"):
        double(x=np.ma.array(x, mask=x > 0))


def test_a_tensor_whose_storage_was_freed_is_refused(double: Function) -> None:
    torch = pytest.importorskip("torch")
    for left in (0, 16):
        t = torch.ones(3, 4)
        t.untyped_storage().resize_(left)
        with pytest.raises(TatamiError, match="freed or cut"):
            double(x=t)
    for dtype in (torch.float32, torch.bfloat16):
        for make in (lambda t: t.to_sparse(), lambda t: t.to_mkldnn()):
            with pytest.raises(TatamiError, match="cannot be read"):
                double(x=make(torch.ones(3, 4, dtype=dtype)))
