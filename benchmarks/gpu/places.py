"""Where things run: a GPU through the driver, or the emulated one. Both take a kernel's text and a model alike."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tatami.core.custom.verbatim import VerbatimCode
from tatami.core.dtype import DType
from tatami.core.target import PRESETS
from tatami.cu.ir import Unit
from tatami.runtime.cuda import cubins
from tatami.runtime.cuda.device import Device, get_device, split_name
from tatami.runtime.cuda.device_array import empty, upload
from tatami.runtime.cuda.kernels import Kernels
from tatami.runtime.cuda.steps import KernelStep, MapAt, Place
from tatami.runtime.cuda.tensor_map import Map
from tatami.runtime.emulated.machine import Im2col, LaunchShape, MapOver, Pointer, build_machine

POISON = 0xFF
"""Every byte of an output before a kernel runs: a NaN in every float."""


@dataclass(frozen=True)
class Kernel:
    """A kernel that reads `given` and writes `words` 32-bit words: ``(const tt_u32* p0, tt_u32* p1[, map])``."""

    symbol: str
    arch: str
    body: str
    given: np.ndarray
    words: int
    threads: int = 32
    shared: int = 0
    map: Map | None = None
    map_is_output: bool = False
    """True if the map describes p1; False: p0."""
    headers: str = ""
    """Text that follows the PTX header: the wgmma shapes."""
    ctas: int = 1
    """Number of CTAs, which are one cluster."""
    is_zeroed: bool = False
    """True if p1 holds zeros when the kernel begins; else it is poisoned."""

    @property
    def text(self) -> str:
        more = ", TT_GRID_CONSTANT tt_tensor_map map" if self.map else ""
        kind = f"TT_KERNEL({self.threads}, 1)" if self.ctas == 1 else f"TT_KERNEL_CLUSTER({self.threads}, {self.ctas})"
        head = f'#include "tatami_ptx.cuh"\n{kind} {self.symbol}(const tt_u32* p0, tt_u32* p1{more})'
        return f"{head} {{\n{self.body}\n}}\n"


class Where(Protocol):
    target: str

    def run(self, kernels: Sequence[Kernel], headers: Mapping[str, str]) -> dict[str, np.ndarray]:
        """The words that each kernel wrote."""

    def poisoned(self, shape: Sequence[int], dtype: DType) -> Any:
        """An output array full of `POISON` bytes."""


@dataclass
class Emulated:
    target: str

    def run(self, kernels: Sequence[Kernel], headers: Mapping[str, str]) -> dict[str, np.ndarray]:
        preset = PRESETS[self.target.removeprefix("emulated-")]
        machine = build_machine([Unit(k.symbol, k.arch, VerbatimCode(k.text)) for k in kernels], headers, preset)
        out: dict[str, np.ndarray] = {}
        for k in kernels:
            given = machine.copied("p0", k.given.view(np.uint32), DType.u32)
            made = machine.make("p1", k.words, DType.u32)
            arguments: list[Any] = [Pointer(given, given, False), Pointer(made, made, True)]
            if k.map is not None:
                m = k.map
                over = made if k.map_is_output else given
                im2col = m.corners and Im2col(*m.corners, m.steps or (1,) * len(m.corners[0]), *m.box)
                facts = (m.dtype, m.dims, m.strides, m.box, m.swizzle)
                arguments.append(MapOver(over, over, k.map_is_output, *facts, im2col, m.tf32))
            if k.is_zeroed:
                made[...] = 0
                machine.filled(made)
            shape = LaunchShape((k.ctas, 1, 1), k.threads, (k.ctas, 1, 1), k.shared, 0, k.ctas, False)
            machine.launch(k.symbol, arguments, shape)
            out[k.symbol] = made.copy()
            machine.drop(given)
            machine.drop(made)
        return out

    def poisoned(self, shape: Sequence[int], dtype: DType) -> Any:
        return poisoned_host(shape, dtype)


@dataclass
class OnDevice:
    target: str
    device: Device = field(init=False)

    def __post_init__(self) -> None:
        named = split_name(self.target)
        self.device = get_device(named[0] if named else 0)

    def run(self, kernels: Sequence[Kernel], headers: Mapping[str, str]) -> dict[str, np.ndarray]:
        """Each kernel in a module of its own header, as shapes of wgmma differ."""
        out: dict[str, np.ndarray] = {}
        name = "tatami_ptx.cuh"
        for more in dict.fromkeys(k.headers for k in kernels):
            some = [k for k in kernels if k.headers == more]
            texts = {**headers, name: headers[name] + more}
            units = [Unit(k.symbol, k.arch, VerbatimCode(k.text)) for k in some]
            loaded = Kernels(self.device, cubins.compile_units(units, texts, self.device.arch))
            for k in some:
                out[k.symbol] = self._one(loaded, k)
        return out

    def _one(self, loaded: Kernels, k: Kernel) -> np.ndarray:
        given = upload(self.device, k.given.view(np.uint32), DType.u32)
        made = (
            upload(self.device, np.zeros(k.words, np.uint32), DType.u32)
            if k.is_zeroed
            else self.poisoned((k.words,), DType.u32)
        )
        args: tuple[Any, ...] = (Place(0, 0), Place(1, 0))
        if k.map is not None:
            args = (*args, MapAt(Place(int(k.map_is_output), 0), k.map))
        cluster = (k.ctas, 1, 1) if k.ctas > 1 else None
        step = KernelStep(k.symbol, lambda: "", (k.ctas, 1, 1), (k.threads, 1, 1), cluster, k.shared, args, ())
        with self.device:
            loaded.launch(step, (given.address, made.address), self.device.current_stream())
        values: np.ndarray = made.numpy()
        return values

    def poisoned(self, shape: Sequence[int], dtype: DType) -> Any:
        made = empty(self.device, shape, dtype)
        made.write_from(poisoned_host(shape, dtype))
        return made


def poisoned_host(shape: Sequence[int], dtype: DType) -> np.ndarray:
    from tatami.core.tensor import numpy_dtype

    made = np.empty(tuple(shape), numpy_dtype(dtype))
    ctypes.memset(made.ctypes.data, POISON, made.nbytes)
    return made


def place(target: str) -> Where:
    return Emulated(target) if target.startswith("emulated") else OnDevice(target)
