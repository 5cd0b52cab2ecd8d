"""One compiled model as a Python package: arrays of numpy in, arrays of numpy out.

    import NAME
    model = NAME.Model()                 # threads=4; by default all processors
    outputs = model(image=x)             # {output: array}; inputs by name or in order
    print(model.inputs, model.outputs)   # name, dtype, shape; -1: open

A model may be called by several threads at the same time. Arrays that are dense and of the input's dtype are used in place,
others are copied; a dtype is never changed."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

_ABI = 1
_OUT_OF_MEMORY = 5
_DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn"),
    *("int4", "uint4", "int2", "uint2"),
)


class ModelError(ValueError):
    """A call that the library refused; the text says why."""


class Port(NamedTuple):
    """An input or an output. `shape`: its sizes, -1 for one that each call decides. `updates`: the number of the input that an
    output is, updated in place; -1 for an output of its own."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    updates: int
    alignment: int


class _PortC(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        *((field, ctypes.c_int32) for field in ("rank", "dtype", "element_bytes", "alignment", "updates")),
    ]


class _Buffer(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("shape", ctypes.POINTER(ctypes.c_int64)), ("bytes", ctypes.c_int64)]


def _load() -> ctypes.CDLL:
    library = ctypes.CDLL(str(Path(__file__).with_name("libmodel.so")))
    library.tatami_model_message.restype = ctypes.c_char_p
    if library.tatami_model_abi() != _ABI:
        raise ImportError(f"libmodel.so has interface {library.tatami_model_abi()}, this package is for {_ABI}")
    for name in ("tatami_model_input", "tatami_model_output"):
        getattr(library, name).restype = ctypes.POINTER(_PortC)
    library.tatami_model_create.argtypes = [ctypes.c_char_p, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)]
    library.tatami_model_destroy.argtypes = [ctypes.c_void_p]
    library.tatami_model_run.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Buffer), ctypes.POINTER(_Buffer)]
    library.tatami_model_shapes.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Buffer), ctypes.c_void_p]
    return library


_library = _load()


def _dtype(code: int) -> np.dtype:
    name = _DTYPES[code]
    if hasattr(np, name):
        return np.dtype(name)
    import ml_dtypes  # only models whose inputs or outputs have such elements

    return np.dtype(getattr(ml_dtypes, name))


def _ports(kind: str) -> tuple[Port, ...]:
    count: int = getattr(_library, f"tatami_model_{kind}_count")()
    found = [getattr(_library, f"tatami_model_{kind}")(k).contents for k in range(count)]
    return tuple(Port(p.name.decode(), _dtype(p.dtype), tuple(p.shape[: p.rank]), p.updates, p.alignment) for p in found)


def _check(status: int) -> None:
    if status:
        said = _library.tatami_model_message().decode(errors="replace")
        raise MemoryError(said) if status == _OUT_OF_MEMORY else ModelError(said)


class Model:
    """The model. `threads`: that share the work of a call; 0: the processors that this process may use."""

    inputs: tuple[Port, ...] = _ports("input")
    outputs: tuple[Port, ...] = _ports("output")

    def __init__(self, threads: int = 0) -> None:
        self._handle = ctypes.c_void_p()
        if isinstance(threads, bool) or not isinstance(threads, int) or not 0 <= threads <= 1024:
            raise ModelError(f"threads is {threads!r}, not a number from 0 to 1024")
        constants = os.fsencode(Path(__file__).with_name("constants.bin"))
        _check(_library.tatami_model_create(constants, threads, ctypes.byref(self._handle)))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            _library.tatami_model_destroy(self._handle)

    def __call__(self, *arrays: object, **named: object) -> dict[str, np.ndarray]:
        """One run: output -> array. Inputs in order, or by name; a name that is not an identifier goes by `run`."""
        names = [p.name for p in self.inputs]
        if len(arrays) > len(names):
            raise ModelError(f"{len(arrays)} inputs are given, the model has {len(names)}: {', '.join(names)}")
        twice = named.keys() & set(names[: len(arrays)])
        if twice:
            raise ModelError(f"the input {min(twice)} is given twice")
        return self.run({**dict(zip(names, arrays)), **named})

    def run(self, inputs: Mapping[str, object], out: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """One run for `inputs`, name -> array. `out`: output -> array to write, dense and of its dtype and shape; others are
        made. An output that updates an input is that input's array. Raises ModelError."""
        names = {p.name for p in self.inputs}
        if inputs.keys() != names:
            missing, unknown = sorted(names - inputs.keys()), sorted(inputs.keys() - names)
            raise ModelError(f"inputs missing: {missing}, unknown: {unknown}; the model has {sorted(names)}")
        arrays = [self._taken(p, inputs[p.name], k) for k, p in enumerate(self.inputs)]
        given = [self._buffer(a, a.shape) for a in arrays]
        buffers = (_Buffer * max(1, len(given)))(*given)
        results = self._results(arrays, self._shapes(buffers), out or {})
        written = [_Buffer() if p.updates >= 0 else self._buffer(a, ()) for p, a in zip(self.outputs, results)]
        _check(_library.tatami_model_run(self._handle, buffers, (_Buffer * max(1, len(written)))(*written)))
        return {p.name: self._given_back(p, inputs, arrays) if p.updates >= 0 else a for p, a in zip(self.outputs, results)}

    def _given_back(self, port: Port, inputs: Mapping[str, object], arrays: Sequence[np.ndarray]) -> np.ndarray:
        """The caller's array of an input that is updated, with its new values."""
        own = inputs[self.inputs[port.updates].name]
        assert isinstance(own, np.ndarray)
        if own is not arrays[port.updates]:
            np.copyto(own, arrays[port.updates])
        return own

    def _is_updated(self, k: int) -> bool:
        return any(p.updates == k for p in self.outputs)

    def _taken(self, port: Port, value: object, k: int) -> np.ndarray:
        array = np.asarray(value)
        if array.dtype != port.dtype:
            raise ModelError(f"the input {port.name} has dtype {array.dtype}, the model takes {port.dtype}")
        if array.ndim != len(port.shape):
            raise ModelError(f"the input {port.name} has rank {array.ndim}, the model takes {len(port.shape)}")
        if self._is_updated(k) and not (isinstance(value, np.ndarray) and value.flags.writeable):
            raise ModelError(f"the input {port.name} is updated in place: give an array that may be written")
        if not array.dtype.isnative or not array.flags.c_contiguous or array.ctypes.data % port.alignment:
            copied = _empty(array.shape, port)
            np.copyto(copied, array)
            return copied
        return array

    def _buffer(self, array: np.ndarray, shape: Sequence[int]) -> _Buffer:
        sizes = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        return _Buffer(array.ctypes.data, sizes, array.nbytes)

    def _shapes(self, inputs: ctypes.Array[_Buffer]) -> list[tuple[int, ...]]:
        room = [(ctypes.c_int64 * max(1, len(p.shape)))() for p in self.outputs]
        rows = (ctypes.c_void_p * max(1, len(room)))(*(ctypes.addressof(r) for r in room))
        _check(_library.tatami_model_shapes(self._handle, inputs, rows))
        return [tuple(r[: len(p.shape)]) for r, p in zip(room, self.outputs)]

    def _results(
        self, arrays: Sequence[np.ndarray], shapes: Sequence[tuple[int, ...]], out: Mapping[str, np.ndarray]
    ) -> list[np.ndarray]:
        unknown = sorted(out.keys() - {p.name for p in self.outputs if p.updates < 0})
        if unknown:
            raise ModelError(f"out= has {unknown}, which the model does not write")
        results = []
        for port, shape in zip(self.outputs, shapes):
            array = out.get(port.name)
            if port.updates >= 0:
                array = arrays[port.updates]
            elif array is None:
                array = _empty(shape, port)
            elif array.shape != shape or array.dtype != port.dtype or not (array.flags.c_contiguous and array.flags.writeable):
                raise ModelError(f"out= of {port.name} has to be a dense, writable array {port.dtype}{list(shape)}")
            results.append(array)
        return results


def _empty(shape: Sequence[int], port: Port) -> np.ndarray:
    """An array whose address is a multiple of the port's alignment, at least of a cache line."""
    step = max(64, port.alignment)
    size = int(np.prod(shape, dtype=np.int64)) * port.dtype.itemsize
    memory = np.empty(size + step, np.uint8)
    start = -memory.ctypes.data % step
    return memory[start : start + size].view(port.dtype).reshape(shape)
