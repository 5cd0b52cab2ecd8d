"""Constant tensors of a text: numbers written in it, or arrays by name, from the caller or from an .npz next to the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from tatami.core.dtype import DType
from tatami.core.files.array_file import UNREADABLE, ArrayArchive, reason
from tatami.core.tensor import Tensor as Payload
from tatami.core.tensor import dtype_of, numpy_dtype
from tatami.harp import ir
from tatami.harp.elaboration.scope import Scope, near
from tatami.harp.elaboration.values import Value, describe, dtype_name
from tatami.harp.source import Span


class Constants:
    """Arrays by name: the caller's first, then those of `archive`."""

    def __init__(self, arrays: Mapping[str, object] | None = None, archive: Path | None = None) -> None:
        self.arrays = dict(arrays or {})
        self.archive = archive

    def named(self, scope: Scope, name: str, dtype: DType, shape: tuple[int, ...], at: Span) -> Payload:
        """The array `name` as dtype and shape declare it. Raises TatamiError if it is missing or has another type."""
        array = np.asarray(self.arrays[name]) if name in self.arrays else None
        if array is not None:
            _check(scope, name, (array.dtype, array.shape), (dtype, shape), at)
        else:
            array = self._unpacked(scope, name, dtype, shape, at)
        return Payload(array.view(numpy_dtype(dtype)) if _holds_bytes_of(array.dtype, dtype) else array)

    def _unpacked(self, scope: Scope, name: str, dtype: DType, shape: tuple[int, ...], at: Span) -> np.ndarray:
        """The array in the archive. Its header is compared first, since a small file may unpack to any size."""
        known = list(self.arrays)
        if self.archive is not None and self.archive.exists():
            try:
                with ArrayArchive(self.archive) as archive:
                    if name in archive.names:
                        found = archive.header(name)
                        _check(scope, name, (found.dtype, found.shape), (dtype, shape), at)
                        return archive.read(name)
                    known += archive.names
            except (*UNREADABLE, MemoryError) as error:
                raise self._unreadable(scope, at, error) from None
        hint = f"; {self.archive.name} in the folder of the text would be read" if self.archive is not None else ""
        raise scope.refuse(
            "UnknownName",
            at,
            f"no array is called {name[:80]!r}",
            near(name, known) or f'pass it: tt.parse(text, constants={{"{name[:40]}": array}}){hint}',
        )

    def _unreadable(self, scope: Scope, at: Span, error: Exception) -> Exception:
        assert self.archive is not None
        why = f"{self.archive.name} cannot be read: {reason(error)}"
        return scope.refuse("FileUnreadable", at, why, "write it with numpy.savez, without objects")


def _check(
    scope: Scope, name: str, array: tuple[np.dtype, tuple[int, ...]], wanted: tuple[DType, tuple[int, ...]], at: Span
) -> None:
    """Raise TatamiError for an array of another type than the text declares."""
    (found, found_shape), (dtype, shape) = array, wanted
    ours = dtype if _holds_bytes_of(found, dtype) else dtype_of(np.empty(0, found))
    if ours != dtype or found_shape != shape:
        why = f"{name[:80]!r} is {dtype_name(ours) if ours else found}{list(found_shape)}"
        raise scope.refuse("InputMismatch", at, f"{why}, not {dtype_name(dtype)}{list(shape)}", "declare the type it has")


def _holds_bytes_of(found: np.dtype, dtype: DType) -> bool:
    """True if arrays of the numpy type `found` are the bytes of `dtype`: an .npz has only numpy's own types."""
    wanted = numpy_dtype(dtype)
    return wanted.isbuiltin != 1 and found in (np.dtype((np.void, wanted.itemsize)), np.dtype(f"u{wanted.itemsize}"))


def literal(scope: Scope, value: Value, dtype: DType, shape: tuple[int, ...], e: ir.Expression) -> Payload:
    """The array of numbers written in the text, one nested list per axis. Raises TatamiError for another shape."""
    numbers = list(_numbers(scope, value, dtype, shape, e))
    try:
        wide = np.dtype(np.float64) if _is_real(dtype) else np.dtype(np.int64) if dtype.is_small_int else numpy_dtype(dtype)
        array = np.array(numbers, dtype=wide).reshape(shape).astype(numpy_dtype(dtype))
    except (OverflowError, ValueError, TypeError) as error:
        raise scope.refuse("InputMismatch", e.at, str(error), f"give numbers of {dtype_name(dtype)}") from None
    return Payload(array)


def _numbers(
    scope: Scope, value: Value, dtype: DType, shape: tuple[int, ...], e: ir.Expression
) -> Iterator[bool | int | float]:
    if shape:
        items = e.items if isinstance(e, ir.Array | ir.Tuple) else ()
        if not isinstance(value, list) or len(value) != shape[0]:
            found = f"{len(value)} items" if isinstance(value, list) else describe(value)
            raise scope.refuse("InputMismatch", e.at, f"{found} where the type has {shape[0]}", "write one item per element")
        for k, item in enumerate(value):
            yield from _numbers(scope, item, dtype, shape[1:], items[k] if k < len(items) else e)
        return
    if not isinstance(value, bool | int | float) or not _fits(value, dtype):
        why = f"an element of {dtype_name(dtype)} is not {describe(value)}"
        raise scope.refuse("InputMismatch", e.at, why, f"write a number of {dtype_name(dtype)}")
    yield value


def _fits(value: bool | int | float, dtype: DType) -> bool:
    if dtype == DType.bool or isinstance(value, bool):
        return dtype == DType.bool and isinstance(value, bool)
    if _is_real(dtype):
        return True
    low = -(1 << dtype.bits - 1) if dtype.is_signed else 0
    return isinstance(value, int) and low <= value < low + (1 << dtype.bits)


def _is_real(dtype: DType) -> bool:
    return not (dtype == DType.bool or dtype.is_int or dtype.is_small_int)
