"""Arrays of the caller: what is taken as it is, what is copied, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import shape
from tatami.core.module import Module
from tatami.core.signature import Input, Output
from tatami.runtime.arrays import LARGE_BYTES, PAGE, address, available_bytes, empty, empty_pages, give, take, take_output
from tatami.runtime.function import Function
from tests.execution.regions import N, chain, program, region
from tests.runtime.compiled import compiled

X = Input("x", DType.fp32, shape("N", "M"))


def array() -> np.ndarray:
    return np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def negate() -> Function:
    return compiled(Module({"main": program((region("r0", "neg", ("n0",), "n1", N),), {"n0": N}, {"y": ("n1", N)})}))


def test_a_contiguous_array_is_taken_as_it_is() -> None:
    x = array()
    assert take(x, X).array is x


@pytest.mark.parametrize(
    "x",
    [
        array().T.copy().T,
        array()[::-1],
        np.zeros((3, 8), np.float32)[:, ::2],
        array().astype(">f4"),
        np.broadcast_to(np.float32(2), (3, 4)),
        np.frombuffer(b"\0" + array().tobytes(), np.float32, offset=1).reshape(3, 4),
    ],
    ids=["fortran", "negative stride", "strided", "byte-swapped", "broadcast", "misaligned"],
)
def test_other_arrays_are_copied_once(x: np.ndarray) -> None:
    t = take(x, X)
    assert t.copied and t.array.flags.c_contiguous and t.array.dtype == np.float32
    np.testing.assert_array_equal(t.array, x)


def test_a_read_only_array_is_fine_unless_it_is_updated() -> None:
    x = array()
    x.flags.writeable = False
    assert take(x, X).array is x
    with pytest.raises(TatamiError, match="read-only"):
        take(x, Input("x", DType.fp32, X.shape, mutability="mutable"))


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (array().astype(np.float64), "astype"),
        (array()[0], "rank 2"),
        ("text", "not an array"),
        (array().astype(object), "E1801"),
        (np.array(["a"]), "E1801"),
        ([[1, 2], [3]], "rows of equal length"),
    ],
    ids=["dtype", "rank", "string", "object", "text array", "ragged"],
)
def test_wrong_arrays_are_refused_with_a_suggestion(x: object, words: str) -> None:
    with pytest.raises(TatamiError, match="E1801") as error:
        take(x, X)
    assert words in str(error.value)


def test_numbers_and_lists_take_the_dtype() -> None:
    assert take([[1, 2], [3, 4]], X).array.dtype == np.float32
    assert take(3, Input("n", DType.i64, ())).array.dtype == np.int64
    with pytest.raises(TatamiError, match="does not fit"):
        take(300, Input("n", DType.u8, ()))
    with pytest.raises(TatamiError, match="E1801"):
        take(1.5, Input("n", DType.i64, ()))


def test_torch_tensors_share_memory_both_ways(negate: Function) -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(4, dtype=torch.float32)
    t = take(x, Input("x", DType.fp32, shape("N")))
    assert t.array.ctypes.data == x.data_ptr()
    y = negate({"in-n0": x})["y"]
    assert isinstance(y, torch.Tensor) and torch.equal(y, -x)


def test_bfloat16_goes_through_torch_without_loss() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([1.5, -2.25], dtype=torch.bfloat16)
    t = take(x, Input("x", DType.bf16, shape("N")))
    assert t.array.dtype == ml_dtypes.bfloat16 and t.array.ctypes.data == x.data_ptr()
    assert torch.equal(give(t.array, "torch"), x)


def test_gradients_and_views_of_torch_are_read(negate: Function) -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(8, dtype=torch.float32, requires_grad=True)
    assert torch.equal(negate({"in-n0": x[::2]})["y"], -x[::2].detach())


class Exporter:
    """Something that only has `__dlpack__`."""

    def __init__(self, x: np.ndarray) -> None:
        self.x = x

    def __dlpack__(self, **options: Any) -> object:
        return self.x.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.x.__dlpack_device__()


def test_anything_with_dlpack_is_read_without_a_copy(negate: Function) -> None:
    x = np.arange(4, dtype=np.float32)
    t = take(Exporter(x), Input("x", DType.fp32, shape("N")))
    assert t.array.ctypes.data == x.ctypes.data and not t.copied
    np.testing.assert_array_equal(negate({"in-n0": Exporter(x)})["y"], -x)


def test_names(negate: Function) -> None:
    x = np.zeros(2, np.float32)
    with pytest.raises(TatamiError, match="did you mean 'in-n0'"):
        negate({"in-n": x})
    with pytest.raises(TatamiError, match="missing"):
        negate()
    twice: dict[str, Any] = {"in-n0": x}
    with pytest.raises(TatamiError, match="given twice"):
        negate({"in-n0": x}, **twice)
    with pytest.raises(TatamiError, match="2 are given, the program takes 1"):
        negate(x, x)
    np.testing.assert_array_equal(negate(x)["y"], negate({"in-n0": x})["y"])
    np.testing.assert_array_equal(negate.bind(x)()["y"], -x)


def test_out_is_written_in_place(negate: Function) -> None:
    torch = pytest.importorskip("torch")
    x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    assert negate({"in-n0": x}, out={"y": y})["y"] is y
    np.testing.assert_array_equal(y, -x)
    z = torch.zeros(4)
    assert negate({"in-n0": x}, out={"y": z})["y"] is z and z[1] == -1


def test_out_may_be_strided_or_the_input_itself(negate: Function) -> None:
    x, y = np.arange(4, dtype=np.float32), np.zeros((4, 2), np.float32)
    negate({"in-n0": x}, out={"y": y[:, 1]})
    np.testing.assert_array_equal(y[:, 1], -x)
    negate({"in-n0": x}, out={"y": x})
    np.testing.assert_array_equal(x, [0, -1, -2, -3])
    whole = np.arange(5, dtype=np.float32)
    negate({"in-n0": whole[:4]}, out={"y": whole[1:]})
    np.testing.assert_array_equal(whole, [0, 0, -1, -2, -3])


@pytest.mark.parametrize("y", [np.zeros(5, np.float32), np.zeros(4), np.zeros((4, 1), np.float32)])
def test_a_wrong_out_is_refused(negate: Function, y: np.ndarray) -> None:
    with pytest.raises(TatamiError, match="E1801"):
        negate({"in-n0": np.zeros(4, np.float32)}, out={"y": y})
    with pytest.raises(TatamiError, match="there is no output"):
        negate({"in-n0": np.zeros(4, np.float32)}, out={"q": y})


def test_a_bound_call_copies_what_it_has_to_each_time(negate: Function) -> None:
    base = np.zeros((4, 2), np.float32)
    call = negate.bind({"in-n0": base[:, 0]})
    base[:, 0] = 3
    np.testing.assert_array_equal(call()["y"], [-3] * 4)


def test_two_states_that_share_memory_are_refused() -> None:
    body = (region("r0", "neg", ("n0",), "n2", N), region("r1", "abs", ("n1",), "n3", N))
    p = program(body, {"n0": N, "n1": N}, {"a": ("n2", N), "b": ("n3", N)}, updates={"a": "in-n0", "b": "in-n1"})
    f = compiled(Module({"main": p}))
    s = np.zeros(4, np.float32)
    with pytest.raises(TatamiError, match="shares memory"):
        f({"in-n0": s, "in-n1": s})


def test_strided_inputs_are_counted_and_outputs_contiguous() -> None:
    f = compiled(chain(1, shape("N", "M")))
    x = array().T
    y = f({"in-n0": x})["y"]
    assert y.flags.c_contiguous and f.memory["copies"] == {"in-n0": 1}
    np.testing.assert_array_equal(y, -x)


def test_large_arrays_are_aligned() -> None:
    assert all(address(empty((n,), DType.bf16)) % 64 == 0 for n in (5000, 7777))
    assert available_bytes() > 1 << 20


@pytest.mark.parametrize("wrong", [np.zeros(2, np.float64), np.zeros((1, 2), np.float32)])
def test_a_wrong_array_for_an_output_is_called_an_output(wrong: np.ndarray) -> None:
    with pytest.raises(TatamiError) as error:
        take_output(wrong, Output("y", DType.fp32, shape(2)))
    found = error.value.diagnostics[0]
    assert found.at == "y" and "the output" in found.why and "input" not in found.why + found.suggestion


def test_pages_of_their_own_are_aligned_and_go_back_to_the_system() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE

    assert address(empty_pages(LARGE_BYTES)) % PAGE == PAGE // 2
    assert empty_pages(100).nbytes == 100
    size = 64 << 20
    pages = empty_pages(size)
    pages[:] = 1
    before = resident()
    del pages
    assert before - resident() > size // 2
    with pytest.raises(TatamiError):
        empty_pages(1 << 62)
