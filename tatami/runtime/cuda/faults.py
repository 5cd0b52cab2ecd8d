"""Faults that data cause inside kernels (an index outside its tensor): read without waiting, reported at the next chance.

A kernel's module has the variable `tt_fault_code`. After a call it is copied, in the stream's order, to host memory that the
GPU can write; it is looked at by everything that waits for the stream anyway, and by the next call."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from tatami.core.diagnostic import fail
from tatami.runtime.cuda.device import Device
from tatami.runtime.cuda.steps import KernelStep, Steps

VARIABLE = b"tt_fault_code"
"""Name of the variable in a kernel's module that holds the code of its fault."""
CODES = {1: ("IndexOutOfRange", "an index points outside its data", "check the values of the index tensor")}
"""Code -> (kind, why, suggestion) of the diagnostic."""


class Faults:
    """The faults of one program. `modules`: symbol -> module, for kernels that can fail this way."""

    def __init__(self, device: Device, modules: Mapping[str, object]) -> None:
        self.device = device
        self._variables: dict[str, Any] = {}
        self._places: dict[str, int] = {}
        self._named: dict[str, Callable[[], str]] = {}
        if not modules:
            return
        with device:
            memory = int(device.driver.call("cuMemHostAlloc", 4 * len(modules), 0, at="memory"))
            weakref.finalize(self, _free, device, memory).atexit = False
            ctypes.memset(memory, 0, 4 * len(modules))
            for k, (symbol, module) in enumerate(modules.items()):
                variable, size = device.driver.call("cuModuleGetGlobal", module, VARIABLE, at=symbol)
                assert int(size) == 4
                self._variables[symbol] = variable
                self._places[symbol] = memory + 4 * k

    def follow(self, steps: Steps, stream: int) -> None:
        """Request the codes of the kernels among `steps`, which are in the stream. The context is current."""
        for step in steps.steps:
            if isinstance(step, KernelStep) and step.symbol in self._variables:
                self._named[step.symbol] = step.named
                variable, place = self._variables[step.symbol], self._places[step.symbol]
                self.device.driver.call("cuMemcpyDtoHAsync", place, variable, 4, self.device.stream(stream), at=step.named)

    def check(self) -> None:
        """Raise IndexOutOfRange for a fault that the GPU has reported; the program can be called again."""
        for symbol, place in self._places.items():
            code = ctypes.c_int32.from_address(place).value
            if code:
                ctypes.memset(place, 0, 4)
                with self.device:
                    stream = self.device.stream(self.device.current_stream())
                    self.device.driver.call("cuMemsetD8Async", self._variables[symbol], 0, 4, stream, at=symbol)
                kind, why, suggestion = CODES.get(code, ("InvalidExecution", f"fault {code}", "report the program"))
                raise fail(kind, self._named[symbol](), why, suggestion)


def _free(device: Device, memory: int) -> None:
    with device:
        device.driver.call("cuMemFreeHost", memory)
