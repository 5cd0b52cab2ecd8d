"""Kernels loaded on a device: functions by symbol, their limits raised, their parameters packed."""

from __future__ import annotations

import ctypes
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tatami.core.diagnostic import fail
from tatami.runtime.building.nvrtc import Cubin
from tatami.runtime.cuda.device import Device
from tatami.runtime.cuda.device_array import host_bytes
from tatami.runtime.cuda.faults import Faults
from tatami.runtime.cuda.steps import KernelStep, MapAt, Place
from tatami.runtime.cuda.tensor_map import MAP_BYTES, Map, encode

FREE_SHARED_BYTES = 48 << 10
"""Bytes of dynamic shared memory that a kernel may have without a request to the driver."""
KEPT_MAPS = 4096
"""Maximum number of encoded tensor maps that are kept."""


class Kernels:
    """The functions of a program on one device."""

    def __init__(self, device: Device, cubins: Mapping[str, Cubin]) -> None:
        self.device = device
        self._functions: dict[str, object] = {}
        self._modules: list[object] = []
        faulting: dict[str, object] = {}
        self._shared: dict[str, int] = {}
        self._maps: OrderedDict[tuple[Map, int], bytes] = OrderedDict()
        with device:
            for symbol, cubin in cubins.items():
                module = device.driver.call("cuModuleLoadData", cubin.data, at=symbol)
                self._modules.append(module)
                self._functions[symbol] = device.driver.call("cuModuleGetFunction", module, symbol.encode(), at=symbol)
                if cubin.can_fault:
                    faulting[symbol] = module
        self.faults = Faults(device, faulting)
        weakref.finalize(self, _unload, device, self._modules).atexit = False

    def function(self, step: KernelStep) -> object:
        """The function of a step, allowed the shared memory that the step needs."""
        found = self._functions.get(step.symbol)
        if found is None:
            raise fail(
                "InvalidExecution",
                step.named(),
                f"kernel {step.symbol} has no CUDA text",
                "lower the plan with the same target",
            )
        if step.shared_bytes > max(FREE_SHARED_BYTES, self._shared.get(step.symbol, 0)):
            which = self.device.driver.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.device.driver.call("cuFuncSetAttribute", found, which, step.shared_bytes, at=step.named)
            self._shared[step.symbol] = step.shared_bytes
        return found

    def pack(self, step: KernelStep, bases: Sequence[int]) -> Packed:
        """The parameters of a step over these bases."""
        size = 0
        starts: list[int] = []
        for a in step.args:
            align = 64 if isinstance(a, MapAt) else 8
            size = -(-size // align) * align
            starts.append(size)
            size += MAP_BYTES if isinstance(a, MapAt) else 8
        memory = host_bytes(max(size, 1))
        begin = ctypes.addressof(memory)
        for start, a in zip(starts, step.args):
            match a:
                case Place(base=base, offset=offset):
                    ctypes.c_uint64.from_address(begin + start).value = bases[base] + offset
                case MapAt(place=place, map=map):
                    data = self._map(map, bases[place.base] + place.offset, step.named)
                    ctypes.memmove(begin + start, data, MAP_BYTES)
                case int():
                    ctypes.c_int64.from_address(begin + start).value = a
        return Packed(memory, (ctypes.c_void_p * max(1, len(starts)))(*(begin + s for s in starts)))

    def _map(self, map: Map, address: int, at: Callable[[], str]) -> bytes:
        found = self._maps.get((map, address))
        if found is None:
            found = self._maps[map, address] = encode(self.device, map, address, at)
            if len(self._maps) > KEPT_MAPS:
                self._maps.popitem(last=False)
        return found

    # -- launches --------------------------------------------------------------------------------

    def launch(self, step: KernelStep, bases: Sequence[int], stream: int) -> None:
        """Launch one kernel in a stream; the device's context is current. Raises DeviceFault."""
        api = self.device.driver.api
        config = api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = step.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = step.block
        config.sharedMemBytes = step.shared_bytes
        config.hStream = self.device.stream(stream)
        attributes = []
        if step.cluster is not None:
            attribute = api.CUlaunchAttribute()
            attribute.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            size = attribute.value.clusterDim
            size.x, size.y, size.z = step.cluster
            attributes.append(attribute)
        if step.dependent:
            attribute = api.CUlaunchAttribute()
            attribute.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            attributes.append(attribute)
        config.attrs, config.numAttrs = attributes, len(attributes)
        packed = self.pack(step, bases)
        self.device.driver.call("cuLaunchKernelEx", config, self.function(step), packed.address, 0, at=step.named)


def _unload(device: Device, modules: Sequence[object]) -> None:
    with device:
        for module in modules:
            device.driver.call("cuModuleUnload", module)


@dataclass(frozen=True)
class Packed:
    """Parameters of one launch: their bytes, and the address of each."""

    memory: ctypes.Array[ctypes.c_uint8]
    pointers: ctypes.Array[ctypes.c_void_p]

    @property
    def address(self) -> int:
        """The address of the array of pointers, as the driver takes it."""
        return ctypes.addressof(self.pointers)

    @property
    def data(self) -> bytes:
        """The bytes of all parameters, to compare with those of an earlier launch."""
        return bytes(self.memory)
