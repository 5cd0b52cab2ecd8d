"""Constant tensors of a text: numbers written in it, or arrays that the caller or an .npz beside the file names."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tatami.core.dtype import DType
from tatami.core.tensor import Tensor as Payload
from tatami.core.tensor import dtype_of, numpy_dtype
from tatami.harp import ir
from tatami.harp.scope import Scope, near
from tatami.harp.source import Span
from tatami.harp.values import Value, describe, dtype_name


class Constants:
    """Arrays by name: the caller's, then those of `archive`."""

    def __init__(self, arrays: Mapping[str, Any] | None = None, archive: Path | None = None) -> None:
        self.arrays = dict(arrays or {})
        self.archive = archive

    def named(self, scope: Scope, name: str, dtype: DType, shape: tuple[int, ...], at: Span) -> Payload:
        array = self._find(scope, name, at)
        wanted = numpy_dtype(dtype)
        bytes_of_one = (np.dtype((np.void, wanted.itemsize)), np.dtype(f"u{wanted.itemsize}"))
        if wanted.isbuiltin != 1 and array.dtype in bytes_of_one:  # an .npz has only numpy's own types: these are bytes
            array = array.view(wanted)
        if dtype_of(array) != dtype or array.shape != shape:
            found = dtype_of(array)
            why = f"{name[:80]!r} is {dtype_name(found) if found else array.dtype}{list(array.shape)}"
            raise scope.refuse("InputMismatch", at, f"{why}, not {dtype_name(dtype)}{list(shape)}", "declare the type it has")
        return Payload(array)

    def _find(self, scope: Scope, name: str, at: Span) -> np.ndarray:
        if name in self.arrays:
            return np.asarray(self.arrays[name])
        known = list(self.arrays)
        if self.archive is not None and self.archive.exists():
            array, others = self._read(scope, name, at)
            if array is not None:
                return array
            known += others
        beside = f"; {self.archive.name} beside the text would be read" if self.archive is not None else ""
        raise scope.refuse(
            "UnknownName",
            at,
            f"no array is called {name[:80]!r}",
            near(name, known) or f'pass it: tt.parse(text, constants={{"{name[:40]}": array}}){beside}',
        )

    def _read(self, scope: Scope, name: str, at: Span) -> tuple[np.ndarray | None, list[str]]:
        """The array, if the archive has it, and the names that it has."""
        assert self.archive is not None
        try:
            archive = np.load(self.archive, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it holds one array, not several by name")
            with archive:
                return (archive[name] if name in archive.files else None), list(archive.files)
        except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
            raise self._unreadable(scope, at, error) from None

    def _unreadable(self, scope: Scope, at: Span, error: Exception) -> Exception:
        assert self.archive is not None
        why = f"{self.archive.name} cannot be read: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        return scope.refuse("FileUnreadable", at, why, "write it with numpy.savez, without objects")


def literal(scope: Scope, value: Value, dtype: DType, shape: tuple[int, ...], e: ir.Expression) -> Payload:
    """Numbers written in the text, one array in another per axis."""
    numbers: list[Any] = []
    _gather(scope, value, dtype, shape, e, numbers)
    try:
        wide = np.dtype(np.float64) if _is_real(dtype) else np.dtype(np.int64) if dtype.is_small_int else numpy_dtype(dtype)
        array = np.array(numbers, dtype=wide).reshape(shape).astype(numpy_dtype(dtype))
    except (OverflowError, ValueError, TypeError) as error:
        raise scope.refuse("InputMismatch", e.at, str(error), f"give numbers of {dtype_name(dtype)}") from None
    return Payload(array)


def _gather(scope: Scope, value: Value, dtype: DType, shape: tuple[int, ...], e: ir.Expression, out: list[Any]) -> None:
    if shape:
        items = e.items if isinstance(e, ir.Array | ir.Tuple) else ()
        if not isinstance(value, list) or len(value) != shape[0]:
            found = f"{len(value)} items" if isinstance(value, list) else describe(value)
            raise scope.refuse("InputMismatch", e.at, f"{found} where the type has {shape[0]}", "write one item per element")
        for k, item in enumerate(value):
            _gather(scope, item, dtype, shape[1:], items[k] if k < len(items) else e, out)
        return
    if not isinstance(value, bool | int | float) or not _fits(value, dtype):
        why = f"an element of {dtype_name(dtype)} is not {describe(value)}"
        raise scope.refuse("InputMismatch", e.at, why, f"write a number of {dtype_name(dtype)}")
    out.append(value)


def _fits(value: bool | int | float, dtype: DType) -> bool:
    if dtype == DType.bool or isinstance(value, bool):
        return dtype == DType.bool and isinstance(value, bool)
    if _is_real(dtype):
        return True
    low = -(1 << dtype.bits - 1) if dtype.is_signed else 0
    return isinstance(value, int) and low <= value < low + (1 << dtype.bits)


def _is_real(dtype: DType) -> bool:
    return not (dtype == DType.bool or dtype.is_int or dtype.is_small_int)
