"""TMA descriptors: the rules of the hardware checked with numbers, then the driver's encoder (notes: gpu §7).

A map is 128 bytes that a kernel takes by value. The driver writes it to memory of ours at a multiple of 128 bytes: it asks for
64, which objects of its Python bindings do not keep. Drivers up to 13.1 set a bit of its second word wrongly for tensors
that span less than 128 KiB; it is cleared here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.cu.map_types import FAULTY_DRIVER, MAP_TYPES, SMALL_BIT, SMALL_SPAN
from tatami.runtime.cuda.device import Device
from tatami.runtime.cuda.device_array import aligned_bytes
from tatami.runtime.cuda.driver import At

_Number = TypeVar("_Number", ctypes.c_uint64, ctypes.c_uint32, ctypes.c_int)

MAP_BYTES = 128
"""Bytes of a tensor map, which a kernel takes by value."""
_SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}


@dataclass(frozen=True)
class Map:
    """A tensor map in numbers. Sizes innermost first; `strides` in bytes, from dimension 1 on; `box` in elements. With
    `corners` (lower, upper) an im2col map, whose box is (channels per pixel, pixels per column)."""

    dtype: DType
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    steps: tuple[int, ...] = ()
    """Distance in elements between elements that are read, per dimension; empty: 1."""
    corners: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    tf32: bool = False
    """True if fp32 is rounded to tf32 by the load."""

    @property
    def span(self) -> int:
        """Bytes from the first element to the end of the last."""
        reach = sum((d - 1) * s for d, s in zip(self.dims[1:], self.strides))
        return reach + self.dims[0] * self.dtype.itemsize


def encode(device: Device, map: Map, address: int, at: At) -> bytes:
    """The 128 bytes of a map. Raises InvalidExecution for numbers that the hardware does not allow, DeviceFault if the driver
    refuses it."""
    check(map, address, at)
    api = device.driver.api
    kind = getattr(api.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{'TFLOAT32' if map.tf32 else MAP_TYPES[map.dtype]}")
    swizzle = getattr(api.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[map.swizzle]}")
    rank = len(map.dims)
    head = (int(kind), rank, ctypes.c_void_p(address), _array(ctypes.c_uint64, map.dims), _array(ctypes.c_uint64, map.strides))
    steps = _array(ctypes.c_uint32, map.steps or (1,) * rank)
    modes = (
        int(api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE),
        int(swizzle),
        int(api.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B),
        int(api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
    )
    made = aligned_bytes(MAP_BYTES, MAP_BYTES)
    to = ctypes.c_void_p(ctypes.addressof(made))
    if map.corners is None:
        device.driver.call_library("cuTensorMapEncodeTiled", to, *head, _array(ctypes.c_uint32, map.box), steps, *modes, at=at)
    else:
        lower, upper = (_array(ctypes.c_int, c) for c in map.corners)
        device.driver.call_library("cuTensorMapEncodeIm2col", to, *head, lower, upper, *map.box, steps, *modes, at=at)
    words = list((ctypes.c_uint64 * 16).from_buffer(made))
    if device.driver_version <= FAULTY_DRIVER and map.span < SMALL_SPAN:
        words[1] &= ~(1 << SMALL_BIT)
    return bytes((ctypes.c_uint64 * 16)(*words))


def _array(kind: type[_Number], values: Sequence[int]) -> ctypes.Array[_Number]:
    return (kind * len(values))(*values)


def check(map: Map, address: int, at: At) -> None:
    """Raise InvalidExecution with the broken rule and both numbers."""
    size = map.dtype.itemsize
    rank = len(map.dims)
    rules: list[tuple[bool, str]] = [
        (1 <= rank <= 5, f"a tensor map has 1 to 5 dimensions, not {rank}"),
        (map.dtype in MAP_TYPES, f"no tensor map holds {map.dtype}"),
        (address % 16 == 0, f"the tensor starts at {address:#x}, which is not a multiple of 16"),
        (len(map.strides) == rank - 1, f"{len(map.strides)} strides for {rank} dimensions"),
    ]
    rules += [(1 <= d <= 1 << 32, f"dimension {i} has {d} elements") for i, d in enumerate(map.dims)]
    rules += [(s % 16 == 0 and 0 <= s < 1 << 40, f"the stride of {s} bytes is not a multiple of 16") for s in map.strides]
    rules += [(1 <= e <= 8, f"an element step of {e} is not within 1 to 8") for e in map.steps]
    inner = map.box[0] * size if map.box else 0
    if map.corners is None:
        rules.append((len(map.box) == rank, f"a box of {len(map.box)} dimensions over {rank}"))
        rules += [(1 <= b <= 256, f"a box of {b} elements in dimension {i}") for i, b in enumerate(map.box)]
    else:
        bound = {3: 1 << 15, 4: 1 << 7, 5: 1 << 4}.get(rank, 0)
        rules += [
            (rank >= 3, f"an im2col map has 3 to 5 dimensions, not {rank}"),
            (len(map.box) == 2 and 1 <= map.box[0] <= 256, f"{map.box[:1]} channels per pixel, which are 1 to 256"),
            (len(map.box) == 2 and 1 <= map.box[1] <= 1024, f"{map.box[1:]} pixels per column, which are 1 to 1024"),
            (
                all(len(c) == rank - 2 and all(-bound <= x < bound for x in c) for c in map.corners),
                f"corners {map.corners} that are not {rank - 2} numbers within {-bound} to {bound - 1}",
            ),
        ]
    rules.append((inner % 16 == 0, f"the box's inner side of {inner} bytes is not a multiple of 16"))
    if map.swizzle:
        rules.append((map.swizzle in _SWIZZLES, f"a swizzle of {map.swizzle} bytes"))
        rules.append((inner <= map.swizzle, f"the box's inner side of {inner} bytes is more than its swizzle, {map.swizzle}"))
    broken = [why for holds, why in rules if not holds]
    if broken:
        raise fail(
            "InvalidExecution",
            at if isinstance(at, str) else at(),
            f"its tensor map breaks a rule of the hardware: {'; '.join(broken)}",
            _MEND,
        )


_MEND = "choose a plan without TMA for this size (async: off), or pad the row pitch to a multiple of 16 bytes"
