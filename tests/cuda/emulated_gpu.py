"""The fake driver with the emulated machine behind it: what the CUDA runtime hands to a driver really runs, with every
check of the emulator.

Kernels reach the driver as their text (`cubins_of` stands in for NVRTC), are compiled with the machine when the first
memory is asked for, and from then on the machine's buffers are the device's memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from tatami.core.custom.verbatim import VerbatimCode
from tatami.core.dtype import DType
from tatami.core.target import PRESETS
from tatami.cu.ir import Unit
from tatami.execution.ir import Choose, ExecutionPlan, Launch, Ptr, SizeArg
from tatami.runtime.building.nvrtc import Cubin
from tatami.runtime.cuda import cubins, device, driver
from tatami.runtime.emulated.machine import EmulatedMachine, Im2col, LaunchShape, MapOver, Pointer, build_machine
from tests.cuda import fake_driver
from tests.cuda.fake_driver import FakeDriver

_DTYPES = {
    "FLOAT16": DType.fp16, "BFLOAT16": DType.bf16, "FLOAT32": DType.fp32, "UINT8": DType.u8, "UINT16": DType.u16,
    "UINT32": DType.u32, "INT32": DType.i32, "FLOAT64": DType.fp64, "INT64": DType.i64, "UINT64": DType.u64,
    "TFLOAT32": DType.fp32,
}  # fmt: skip
_SWIZZLES = {"NONE": 0, "32B": 32, "64B": 64, "128B": 128}


def kinds_of(plans: Mapping[str, ExecutionPlan]) -> dict[str, list[str]]:
    """Kernel -> p, s or m for each parameter: pointer, size, tensor map."""
    out: dict[str, list[str]] = {}
    for plan in plans.values():
        for ins in plan.instructions:
            launches = [ins.op] if isinstance(ins.op, Launch) else []
            if isinstance(ins.op, Choose):
                launches = [x for c in ins.op.cases for x in c.launches]
            for launch in launches:
                kinds = ["p" if isinstance(a, Ptr) else "s" if isinstance(a, SizeArg) else "m" for a in launch.args]
                out[launch.kernel] = kinds
    return out


def kinds_in(text: str, symbol: str) -> list[str]:
    """p, s or m for each parameter of a kernel, as its text declares them."""
    found = re.search(rf"\b{symbol}\(([^)]*)\)", text)
    assert found is not None, f"the text has no kernel {symbol}"
    declared = filter(None, map(str.strip, found[1].split(",")))
    return ["m" if "tt_tensor_map" in p else "p" if "*" in p else "s" for p in declared]


class EmulatedGpu(FakeDriver):
    def __init__(self, isa: str = "sm90", **options: Any) -> None:
        preset = PRESETS[isa]
        numbers = {
            "COMPUTE_CAPABILITY_MAJOR": 9 if isa == "sm90" else 8,
            "MULTIPROCESSOR_COUNT": preset.sms,
            "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": preset.smem_per_sm,
            "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": preset.smem_per_block,
        }
        super().__init__(attributes=numbers, **options)
        self.isa = isa
        self.texts: dict[str, Unit] = {}
        self.headers: dict[str, str] = {}
        self.kinds: dict[str, list[str]] = {}
        self.machine: EmulatedMachine | None = None
        self.wholes: dict[int, np.ndarray] = {}

    def describe(self, plans: Mapping[str, ExecutionPlan]) -> None:
        self.kinds |= kinds_of(plans)
        self.layouts |= {name: [128 if k == "m" else 8 for k in kinds] for name, kinds in self.kinds.items()}

    def cuModuleLoadData(self, image: bytes) -> tuple[Any, Any]:
        assert self.machine is None, "kernels of a second program: one EmulatedGpu runs one"
        said = json.loads(image)
        self.texts[said["symbol"]] = Unit(said["symbol"], said["arch"], VerbatimCode(said["text"]))
        self.headers = said["headers"]
        if said["symbol"] not in self.kinds:
            self.kinds[said["symbol"]] = kinds_in(said["text"], said["symbol"])
            self.layouts[said["symbol"]] = [128 if k == "m" else 8 for k in self.kinds[said["symbol"]]]
        return super().cuModuleLoadData(image)

    def allocate(self, size: int) -> int:
        if self.machine is None:
            self.machine = build_machine(list(self.texts.values()), self.headers, PRESETS[self.isa])
        whole = self.machine.make("an allocation", size, DType.u8)
        place = whole.ctypes.data
        self.wholes[place] = whole
        self.blocks[place] = fake_driver.Block(whole, place, size)
        return place

    def guards(self, block: fake_driver.Block) -> bytes:
        return b""  # the machine reports who writes outside

    def free(self, name: str, pointer: Any) -> tuple[Any]:
        (status,) = super().free(name, pointer)
        if status == fake_driver.OK:
            assert self.machine is not None
            self.machine.drop(self.wholes.pop(int(pointer)))
            del self.blocks[int(pointer)]  # the machine gives the address again
        return (status,)

    def cuMemcpyHtoDAsync(self, target: Any, source: int, size: int, stream: Any) -> tuple[Any]:
        out = super().cuMemcpyHtoDAsync(target, source, size, stream)
        self.filled(int(target), size)
        return out

    def copy(self, target: int, source: int, size: int) -> None:
        super().copy(target, source, size)
        self.filled(target, size)

    def filled(self, address: int, size: int) -> None:
        assert self.machine is not None
        whole, part = self.span(address, size)
        self.machine.filled(whole, part)

    def span(self, address: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        start = self.block_of(address, size).address
        whole = self.wholes[start]
        return whole, whole[address - start : address - start + size]

    def execute(self, launch: fake_driver.Launch) -> None:
        self.launches.append(launch)
        assert self.machine is not None
        arguments: list[Any] = []
        for kind, value in zip(self.kinds[launch.symbol], launch.args):
            if kind == "s":
                arguments.append(value)
            elif kind == "p":
                whole, part = self.span(value, 1)
                rest = whole[part.ctypes.data - whole.ctypes.data :]
                arguments.append(Pointer(rest, whole, written=True))
            else:
                dtype, address, dims, strides, box, swizzle, window = self.maps[int.from_bytes(value[:8], "little") - 1]
                element = _DTYPES[dtype.name.removeprefix("CU_TENSOR_MAP_DATA_TYPE_")]
                mode = _SWIZZLES[swizzle.name.removeprefix("CU_TENSOR_MAP_SWIZZLE_")]
                whole, _ = self.span(address, 1)
                rest = whole[address - whole.ctypes.data :]
                walk, rounds = Im2col.of(window, box), dtype.name.endswith("_TFLOAT32")
                arguments.append(MapOver(rest, whole, True, element, dims, strides, box, mode, walk, rounds))
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        shape = LaunchShape(
            launch.grid, threads, launch.cluster or (1, 1, 1), launch.shared, overlaps_previous=launch.dependent
        )
        self.machine.launch(launch.symbol, arguments, shape, launch.symbol)


def cubins_of(units: Sequence[Unit], headers: Mapping[str, str], arch: str) -> dict[str, Cubin]:
    """The texts themselves, as what a driver loads."""
    said = [(u.symbol, {"symbol": u.symbol, "arch": u.arch, "text": u.text, "headers": dict(headers)}) for u in units]
    return {symbol: Cubin(json.dumps(s).encode(), "", 0, 0, (), "tt_fault(" in s["text"]) for symbol, s in said}


@contextmanager
def gpu(fake: FakeDriver) -> Iterator[FakeDriver]:
    """`fake` is this machine's only driver."""
    driver.get_driver.cache_clear()
    device.get_device.cache_clear()
    try:
        with mock.patch.object(driver, "bindings", lambda: fake):
            yield fake
    finally:
        driver.get_driver.cache_clear()
        device.get_device.cache_clear()


@contextmanager
def emulated_gpu(isa: str = "sm90", **options: Any) -> Iterator[EmulatedGpu]:
    """A GPU for one program: kernels are not compiled by NVRTC but run by the machine."""
    fake = EmulatedGpu(isa, **options)

    def compiled(units: Sequence[Unit], headers: Mapping[str, str], arch: str) -> dict[str, Cubin]:
        return cubins_of(units, headers, arch)

    with gpu(fake), mock.patch.object(cubins, "compile_units", compiled):
        yield fake
