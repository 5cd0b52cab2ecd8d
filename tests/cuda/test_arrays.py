"""Arrays of other libraries, in and out of a program on a GPU, without copies.

The fake GPU's memory is this process's, and it says so (`dlpack_type` 1), so that numpy and PyTorch read it through
the same capsules by which they read a GPU's.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import cuda.bindings.driver as real
import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import var
from tatami.core.signature import Input
from tatami.core.tensor import numpy_dtype
from tatami.runtime.cuda.arrays import CudaArrays
from tatami.runtime.cuda.device import Device, get_device
from tatami.runtime.cuda.device_array import DeviceArray, upload
from tatami.runtime.cuda.exchange import find
from tests.cuda.emulated_gpu import gpu
from tests.cuda.fake_driver import FakeDriver

torch = pytest.importorskip("torch")


@pytest.fixture
def fake() -> Iterator[FakeDriver]:
    with gpu(FakeDriver()) as made:
        yield made


@pytest.fixture
def device(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> Device:
    monkeypatch.setattr(Device, "dlpack_type", 1)
    return get_device(0)


def port(dtype: DType = tt.fp32, rank: int = 2, **more: Any) -> Input:
    return Input("x", dtype, tuple(var(f"n{i}") for i in range(rank)), **more)


class Interface:
    """Somebody's array that speaks the CUDA array interface; its values are a slice of the device's memory."""

    def __init__(self, array: DeviceArray, view: np.ndarray, base: np.ndarray, stream: int | None = None) -> None:
        start = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": view.shape,
            "typestr": view.dtype.str,
            "data": (array.address + start, False),
            "strides": view.strides,
            "version": 3,
            "stream": stream,
        }


def test_dlpack_gives_the_same_memory_and_keeps_it(fake: FakeDriver, device: Device) -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    made = upload(device, values, tt.fp32)
    given: Any = made
    by_numpy, by_torch = np.from_dlpack(given), torch.from_dlpack(given)
    assert by_numpy.__array_interface__["data"][0] == by_torch.data_ptr() == made.address
    np.testing.assert_array_equal(by_numpy, values)
    del made, given, by_numpy
    gc.collect()
    assert fake.alive == 1 and by_torch.tolist() == values.tolist()
    del by_torch
    gc.collect()
    assert fake.alive == 0


def test_memory_of_a_stream_that_its_owner_destroyed_is_freed(fake: FakeDriver, device: Device) -> None:
    made = upload(device, np.zeros(4, np.float32), tt.fp32)
    fake.fail_next["cuMemFreeAsync"] = real.CUresult.CUDA_ERROR_INVALID_HANDLE
    del made
    gc.collect()
    assert fake.alive == 0 and fake.log[-3:] == ["cuMemFreeAsync", "cuCtxSynchronize", "cuMemFree"]


def test_a_capsule_nobody_takes_lets_go(fake: FakeDriver, device: Device) -> None:
    made = upload(device, np.zeros(4, np.float32), tt.fp32)
    capsule = made.__dlpack__()
    del made, capsule
    gc.collect()
    assert fake.alive == 0


@pytest.mark.parametrize("dtype", [tt.fp16, tt.bf16, tt.fp32, tt.fp64, tt.i64, tt.u8, tt.bool])
def test_every_dtype_goes_and_comes_by_dlpack(fake: FakeDriver, device: Device, dtype: DType) -> None:
    made = upload(device, np.array([[0, 1], [1, 0]]).astype(numpy_dtype(dtype)), dtype)
    tensor = torch.from_dlpack(made)
    found = find(_Borrowed(tensor), device, "x")
    assert found is not None and found.dtype == dtype and found.address == made.address and found.shape == (2, 2)


class _Borrowed:
    """A tensor of which only DLPack can be seen."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack_device__(self) -> tuple[int, int]:
        return tuple(map(int, self.tensor.__dlpack_device__()))  # type: ignore[return-value]

    def __dlpack__(self, stream: int | None = None) -> Any:
        assert stream == 1  # the default stream, as DLPack calls it
        return self.tensor.__dlpack__()


def test_a_tensor_taken_by_dlpack_lives_as_long_as_it_is_used(fake: FakeDriver, device: Device) -> None:
    made = upload(device, np.arange(6, dtype=np.float32).reshape(2, 3), tt.fp32)
    taken = CudaArrays(device).take(_Borrowed(torch.from_dlpack(made)), port())
    assert not taken.copied and taken.array.address == made.address
    del made
    gc.collect()
    assert fake.alive == 1 and taken.array.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    del taken
    gc.collect()
    assert fake.alive == 0


def test_the_array_interface_is_read_in_place(fake: FakeDriver, device: Device) -> None:
    base = np.arange(12, dtype=np.float32).reshape(3, 4)
    made = upload(device, base, tt.fp32)
    taken = CudaArrays(device).take(Interface(made, base, base), port())
    assert not taken.copied and taken.array.address == made.address


def test_work_of_another_stream_is_waited_for(fake: FakeDriver, device: Device) -> None:
    base = np.zeros((2, 4), np.float32)
    made = upload(device, base, tt.fp32)
    CudaArrays(device).take(Interface(made, base, base, stream=77), port())
    assert fake.log[-4:] == ["cuEventCreate", "cuEventRecord", "cuStreamWaitEvent", "cuEventDestroy"]


def test_strided_arrays_are_copied_once_and_right(fake: FakeDriver, device: Device) -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    made = upload(device, base, tt.fp32)
    for view in (base.T, base[::2, 1::2], base[::-1], base[1:, ::-1]):
        taken = CudaArrays(device).take(Interface(made, view, base), port())
        assert taken.copied
        np.testing.assert_array_equal(taken.array.numpy(), view)


def test_an_address_between_16_bytes_is_copied(fake: FakeDriver, device: Device) -> None:
    base = np.arange(12, dtype=np.float32)
    made = upload(device, base, tt.fp32)
    taken = CudaArrays(device).take(Interface(made, base[1:9], base), port(rank=1))
    assert taken.copied and taken.array.address % 16 == 0
    np.testing.assert_array_equal(taken.array.numpy(), base[1:9])


def test_a_state_that_cannot_be_updated_in_place_is_refused(fake: FakeDriver, device: Device) -> None:
    base = np.arange(12, dtype=np.float32)
    made = upload(device, base, tt.fp32)
    with pytest.raises(TatamiError, match="updated in place"):
        CudaArrays(device).take(Interface(made, base[1:9], base), port(rank=1, mutability="mutable"))


def test_wrong_dtypes_and_ranks_are_named(fake: FakeDriver, device: Device) -> None:
    made = upload(device, np.zeros((2, 3), np.float32), tt.fp32)
    with pytest.raises(TatamiError, match="the input is fp64"):
        CudaArrays(device).take(made, port(tt.fp64))
    with pytest.raises(TatamiError, match="rank 2"):
        CudaArrays(device).take(made, port(rank=3))


def test_an_array_of_another_gpu_is_refused() -> None:
    with gpu(FakeDriver(devices=2)):
        there = upload(get_device(1), np.zeros((2, 3), np.float32), tt.fp32)
        with pytest.raises(TatamiError, match="compile for cuda:1"):
            CudaArrays(get_device(0)).take(there, port())


def test_the_array_interface_of_ours_is_version_3(fake: FakeDriver, device: Device) -> None:
    made = upload(device, np.zeros((2, 3), np.float16), tt.fp16)
    said = made.__cuda_array_interface__
    assert (said["shape"], said["typestr"], said["version"], said["stream"]) == ((2, 3), "<f2", 3, 1)
    assert said["data"] == (made.address, False)
    with pytest.raises(AttributeError):
        _ = upload(device, np.zeros(2, np.float32).astype(numpy_dtype(tt.bf16)), tt.bf16).__cuda_array_interface__
