"""A shared object with the emulated GPU and some kernels: its memory as arrays, and launches.

The machine knows each buffer's name and bounds, and which bytes are initialised. A launch runs to its end or to the first
fault, which is a diagnostic. One launch at a time."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.kernel import Window
from tatami.core.target import Target
from tatami.core.tensor import numpy_dtype
from tatami.cu.ir import Unit as CudaUnit
from tatami.emulated.lines import LineTable
from tatami.emulated.report import Explain, Report, read_report, to_diagnostic
from tatami.emulated.sources import (
    CLOSED_WHEN_DROPPED,
    KERNEL_FLAGS,
    MACHINE_FLAGS,
    NO_ENTRY_HOOKS,
    kernel_headers,
    kernel_text,
    machine_files,
    machine_text,
)
from tatami.emulated.tallies import Counts, read_tallies
from tatami.runtime.arrays import address, out_of_memory
from tatami.runtime.building.compiler import find_cxx_compiler
from tatami.runtime.building.library import Library
from tatami.runtime.building.objects import Unit, build, load
from tatami.runtime.machine.host import detect_host

Array: TypeAlias = np.ndarray
SLICE_SECONDS = 0.2
"""Seconds that the machine runs before Python handles signals."""
MAP_MAGIC = 0x7461746D61700001
"""Value by which the machine recognises a tensor map; `TENSOR_MAP` of its header."""
ELEMENT_TYPES = {DType.fp16: 1, DType.bf16: 2, DType.fp32: 3, DType.i32: 4, DType.u32: 5}
"""Type -> the machine's number of it (`TensorMap::type`)."""
TF32 = 6
"""The machine's number of tf32: of fp32 that a TMA load rounds (`TensorMap::type`)."""


@dataclass(frozen=True)
class Pointer:
    """A parameter: the address of `array`, which is all or part of the buffer `whole`."""

    array: Array
    whole: Array
    written: bool


@dataclass(frozen=True)
class Im2col:
    """The window of a map [C, W, H, (D,) N]: the box that a filter's first tap moves in (corners counted from the image's
    first and last pixel), its steps, and the size of one copy: channels of a pixel, pixels."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    steps: tuple[int, ...]
    channels: int
    pixels: int

    @classmethod
    def of(cls, window: Window | None, box: tuple[int, ...]) -> Im2col | None:
        """The window of an im2col map with this box; None for other maps."""
        return None if window is None else cls(window.lower, window.upper, window.steps, *box)


@dataclass(frozen=True)
class MapOver:
    """A parameter: a tensor map over an array. Dims innermost first, strides in bytes from dimension 1. `tf32`: fp32 is
    rounded by loads."""

    array: Array
    whole: Array
    written: bool
    dtype: DType
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    im2col: Im2col | None = None
    tf32: bool = False


Argument: TypeAlias = Pointer | MapOver | int


@dataclass(frozen=True)
class LaunchShape:
    """The shape and options of a launch. `schedule` 0: asynchronous operations complete as late as allowed; else the seed of a
    random schedule. `resident`: blocks that the machine holds at the same time if some wait for others. `check_layout`:
    operands of tensor cores have to be an affine tile of one tensor. `counts`: count for `tallies`."""

    grid: tuple[int, int, int]
    threads: int
    cluster: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0
    schedule: int = 0
    resident: int = 1
    check_layout: bool = True
    overlaps_previous: bool = False
    counts: bool = False


def build_machine(
    units: Sequence[CudaUnit], headers: Mapping[str, str], target: Target, *, stays: bool = False
) -> EmulatedMachine:
    """Compile kernel texts with the machine, and load them. `headers`: the CUDA headers that the texts share. `stays`: as in
    `Unit`. If this processor has a fused multiply-add, `fmaf` is inlined."""
    compiler = find_cxx_compiler()
    own, seen = machine_files(), kernel_headers(headers)
    closed = CLOSED_WHEN_DROPPED.get(compiler.kind, ())
    parts = [Unit(machine_text(), flags=(*MACHINE_FLAGS, *closed), headers=tuple(own), stays=stays)]
    has_fma = compiler.kind in ("gcc", "clang") and detect_host().isa in ("avx2", "avx512")
    flags = (*KERNEL_FLAGS, *closed, *NO_ENTRY_HOOKS[compiler.kind], *(("-mfma",) if has_fma else ()))
    parts += [Unit(kernel_text(u), flags=flags, headers=tuple(seen)) for u in units]
    body = build(parts, target, headers={**own, **seen}, compiler=compiler)
    return EmulatedMachine(load(body), body)


class EmulatedMachine:
    """The loaded machine. `body` is the library's file, which has the line table for reports."""

    def __init__(self, library: Library, body: bytes) -> None:
        self._library = library
        self._lines = LineTable(body)
        self._ids: dict[int, int] = {}
        self.lock = threading.RLock()
        library.emu_buffer_make.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        library.emu_buffer_memory.restype = ctypes.c_void_p
        library.emu_buffer_filled.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t]
        library.emu_use_buffers.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
        library.emu_run.argtypes = [ctypes.c_double]
        library.emu_start.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        library.emu_report.restype = ctypes.c_char_p
        library.emu_count.restype = ctypes.c_uint64
        library.emu_tallies.restype = ctypes.c_char_p
        library.emu_tensor_map_make.restype = ctypes.c_void_p
        library.emu_tensor_map_drop.argtypes = [ctypes.c_void_p]
        library.emu_tensor_map_im2col.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int] * 2
        library.emu_tensor_map_set.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int] * 4 + [ctypes.c_void_p] * 3

    # -- memory ----------------------------------------------------------------------------------

    def make(self, name: str, count: int, dtype: DType) -> Array:
        """`count` uninitialised elements: a read before a write is reported. Valid until dropped; a buffer that is not dropped
        holds the library, which frees it when it is closed."""
        size = count * dtype.itemsize
        id = self._library.emu_buffer_make(name.encode(), size)
        if id < 0:
            raise out_of_memory(size)
        start = self._library.emu_buffer_memory(id)
        self._ids[start] = id
        room: Any = (ctypes.c_uint8 * max(size, dtype.itemsize)).from_address(start)
        room.opened = self._library.opened
        return np.ndarray((count,), numpy_dtype(dtype), memoryview(room))

    def copied(self, name: str, array: Array, dtype: DType) -> Array:
        """A buffer with the values of an array."""
        made = self.make(name, array.size, dtype)
        made[...] = array.reshape(-1)
        self.filled(made)
        return made.reshape(array.shape)

    def filled(self, whole: Array, part: Array | None = None) -> None:
        """Mark `part` of a buffer, or all of it, as initialised."""
        part = whole if part is None else part
        self._library.emu_buffer_filled(self._ids[address(whole)], address(part) - address(whole), part.nbytes)

    def drop(self, whole: Array) -> None:
        """Free a buffer; later accesses to it are faults."""
        self._library.emu_buffer_drop(self._ids.pop(address(whole)))

    # -- launches --------------------------------------------------------------------------------

    def launch(
        self, kernel: str, arguments: Sequence[Argument], shape: LaunchShape, at: str = "", explain: Explain | None = None
    ) -> None:
        """Run a kernel to its end. Raises KernelRace, OutOfBounds, KernelDeadlock or KernelMisuse at `at`."""
        report = self.run(kernel, arguments, shape)
        if report is not None:
            raise TatamiError(to_diagnostic(report, at or kernel, kernel, explain))

    def run(self, kernel: str, arguments: Sequence[Argument], shape: LaunchShape) -> Report | None:
        """Run a kernel to its end; the report of its fault, or None."""
        if 0 in shape.grid:
            return None
        maps: list[int] = []
        with self.lock:
            try:
                values = [self._bytes_of(a, maps) for a in arguments]
                self._use([a for a in arguments if not isinstance(a, int)])
                pointers = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(v) for v in values))
                entry = self._library.address(f"emu_enter_{kernel}")
                how = (
                    shape.schedule,
                    int(shape.check_layout),
                    int(shape.overlaps_previous),
                    shape.resident,
                    int(shape.counts),
                )
                numbers = (*shape.grid, shape.threads, *shape.cluster, shape.shared_bytes, *how)
                self._library.emu_start(entry, pointers, (ctypes.c_int * len(numbers))(*numbers))
                ended = 0
                while ended == 0:
                    ended = self._library.emu_run(SLICE_SECONDS)
                if ended == 1:
                    return None
                return read_report(self._library.emu_report().decode("utf-8", "replace"), self._lines)
            except BaseException:
                self._library.emu_abandon()
                raise
            finally:
                for made in maps:
                    self._library.emu_tensor_map_drop(made)

    def tallies(self) -> Counts:
        """Counts of the last launch, if it counted and had no fault."""
        return read_tallies(self._library.emu_tallies().decode())

    def _use(self, arguments: Sequence[Pointer | MapOver]) -> None:
        used: dict[int, bool] = {}
        for a in arguments:
            id = self._ids[address(a.whole)]
            used[id] = used.get(id, False) or a.written
        ids = (ctypes.c_int * max(1, len(used)))(*used)
        written = (ctypes.c_int * max(1, len(used)))(*(int(w) for w in used.values()))
        self._library.emu_use_buffers(ids, written, len(used))

    def _bytes_of(self, a: Argument, maps: list[int]) -> ctypes.Array[ctypes.c_char]:
        match a:
            case int():
                return _aligned(bytes(ctypes.c_int64(a)), 8)
            case Pointer():
                return _aligned(bytes(ctypes.c_uint64(address(a.array))), 8)
            case MapOver():
                made = self._library.emu_tensor_map_make()
                maps.append(made)
                dims, strides, box = (ctypes.c_int64 * 5)(*a.dims), (ctypes.c_int64 * 5)(*a.strides), (ctypes.c_int * 5)(*a.box)
                kind = TF32 if a.tf32 else ELEMENT_TYPES.get(a.dtype, 0)
                self._library.emu_tensor_map_set(
                    made, address(a.array), a.dtype.itemsize, len(a.dims), a.swizzle, kind, dims, strides, box
                )
                if a.im2col is not None:
                    corners = [(ctypes.c_int * 3)(*x) for x in (a.im2col.lower, a.im2col.upper, a.im2col.steps)]
                    self._library.emu_tensor_map_im2col(made, *corners, a.im2col.channels, a.im2col.pixels)
                return _aligned(bytes((ctypes.c_uint64 * 16)(made, MAP_MAGIC)), 64)


def _aligned(data: bytes, alignment: int) -> ctypes.Array[ctypes.c_char]:
    """The bytes, copied to an address that is a multiple of `alignment`."""
    room = (ctypes.c_char * (len(data) + alignment))()
    made = (ctypes.c_char * len(data)).from_buffer(room, -ctypes.addressof(room) % alignment)
    made.raw = data
    return made
