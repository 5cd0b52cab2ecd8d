"""The device class, the timing code and the peers of a dry run: stand-ins for the driver and for PyTorch's part of a GPU.

The driver's stand-in hands kernels to the emulated GPU (`tests/cuda/emulated_gpu.py`). PyTorch's is PyTorch on the host, with tensors
in that driver's memory, and with streams, events and graphs of its own. The code is that of a GPU: `runtime/cuda`, tensors in
place, launches captured into a graph, events, peers and the comparison with them. Seconds are the host's, and say nothing.
"""

from __future__ import annotations

import functools
import importlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock

from benchmarks.gpu import speed
from benchmarks.gpu.cases import Case, tiny
from benchmarks.gpu.first import maps_and_launches
from benchmarks.gpu.places import OnDevice
from benchmarks.gpu.worker import OneCase, Row
from tatami.runtime.cuda.device import Device, get_device
from tatami.runtime.cuda.device_array import empty
from tatami.torch.dtypes import TO_TORCH

GROUPS = ("gemm", "attention", "conv", "memory", "gradient")
"""Groups of timed cases, each of which has a tiny one."""
DLPACK_HOST = 1
"""DLPack's number of the host, which PyTorch without CUDA takes the stand-in's memory for."""
ROUNDS = 2
"""Rounds of each contestant."""


@dataclass
class Recorded:
    """A CUDA graph: the launches that were queued while it was captured."""

    driver: Any = None
    launches: list[Any] = field(default_factory=list)

    def replay(self) -> None:
        """Run what was captured."""
        for launch in self.launches:
            self.driver.execute(launch)


class Moment:
    """An event of a stream that has nothing to wait for."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: Moment) -> float:
        """Milliseconds up to `end`."""
        return (end.at - self.at) * 1e3


class Cuda:
    """`torch.cuda`."""

    Event = Moment
    CUDAGraph = Recorded

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def synchronize(self) -> None:
        pass

    @contextmanager
    def graph(self, made: Recorded) -> Iterator[None]:
        """Launches go into the graph in place of the GPU."""
        made.driver = self.driver
        with mock.patch.object(self.driver, "execute", made.launches.append):
            yield


class Torch:
    """PyTorch's module. Everything but devices and memory is PyTorch's own, on the host."""

    def __init__(self, torch: Any, driver: Any) -> None:
        self.torch = torch
        self.cuda = Cuda(driver)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.torch, name)

    def device(self, kind: str, ordinal: int = 0) -> Any:
        """The host, whatever the kind."""
        return self.torch.device("cpu")

    def randn(self, *shape: Any, device: Any, dtype: Any) -> Any:
        """Normal numbers in memory of the driver."""
        values = self.torch.randn(*shape, dtype=dtype)
        made = empty(get_device(0), tuple(values.shape), next(d for d, t in TO_TORCH.items() if t == dtype))
        tensor = self.torch.from_dlpack(made).copy_(values)
        self.cuda.driver.filled(made.address, made.nbytes)
        return tensor.as_subclass(_tensors(self.torch))


@functools.cache
def _tensors(torch: Any) -> type:
    """The class of tensors that say that they lie on GPU 0."""
    said = {"is_cuda": True, "device": property(lambda self: torch.device("cpu", 0)), "__module__": "torch"}
    return type("Tensor", (torch.Tensor,), said)


@contextmanager
def stand_ins(isa: str, torch: bool) -> Iterator[Any]:
    """The driver's stand-in as this process's GPU, with PyTorch's if `torch`. Raises ImportError without PyTorch."""
    from tests.cuda.emulated_gpu import emulated_gpu

    with emulated_gpu(isa) as gpu:
        found = Torch(importlib.import_module("torch"), gpu) if torch else None
        with (
            mock.patch.object(Device, "dlpack_type", DLPACK_HOST if torch else Device.dlpack_type),
            mock.patch.object(speed, "load_torch", lambda: found),
            mock.patch.object(speed, "ROUNDS", ROUNDS),
            mock.patch.object(speed, "ROTATED_BYTES", 1),
        ):
            yield gpu


def name_of(case: Case, torch: bool) -> str:
    """The name of a case's row."""
    return f"device: {case.name}{'' if torch else ', alone'}"


def contest(isa: str, case: Case, torch: bool) -> Row:
    """The row of a case as on a device, its graph's replays counted."""
    try:
        with stand_ins(isa, torch) as gpu:
            row = speed.Contest("cuda", case).measure()
            by = "stand-ins for the driver and PyTorch: seconds of the host"
            return {**row, "name": name_of(case, torch), "launches": len(gpu.launches), "by": by}
    except ImportError as error:
        return {"skipped": f"{type(error).__name__}: {error}"}


def checked_on_device(isa: str, case: Case, check: Callable[[Case], Row]) -> Row:
    """A case against float64, its outputs poisoned before it runs."""
    with stand_ins(isa, torch=False):
        return {**check(case), "name": f"device: {case.name}, checked"}


def first_on_device(isa: str, number: int) -> Row:
    """One of the first cases: a launch, a tensor map."""
    with stand_ins(isa, torch=False):
        made: Callable[[], Row] = maps_and_launches(OnDevice("cuda"), isa)[number].make
        return made()


def device_cases(isa: str, check: Callable[[Case], Row]) -> Sequence[OneCase]:
    """Cases of the device class, the timing code and the peers. `check`: the row of a case on target cuda against float64."""
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is imported: its kernels run on the host
    with stand_ins(isa, torch=False):
        names = [c.name for c in maps_and_launches(OnDevice("cuda"), isa)]
    out = [OneCase(f"device: {name}", partial(first_on_device, isa, k)) for k, name in enumerate(names)]
    cases = [c for group in GROUPS for c in tiny(group)]
    out.append(OneCase(f"device: {cases[0].name}, checked", partial(checked_on_device, isa, cases[0], check)))
    out.append(OneCase(name_of(cases[0], False), partial(contest, isa, cases[0], False)))
    return [*out, *(OneCase(name_of(c, True), partial(contest, isa, c, True)) for c in cases)]
