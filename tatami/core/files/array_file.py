"""Arrays in .npy files and .npz archives. A header is read, and can be refused, before any data that it announces.

The format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html"""

from __future__ import annotations

import io
import lzma
import os
import zipfile
import zlib
from math import prod
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple

import numpy as np

from tatami.core.files.plain_file import open_plain

UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    SyntaxError,
    EOFError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)
"""Errors that reading a damaged or foreign file raises."""
MAX_HEADER = 10_000
"""Maximum bytes of the text with dtype and shape. It is numpy's own limit, which numpy tests after reading them all."""
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Ways in which numpy writes the entries of an archive."""


class Header(NamedTuple):
    """An array as its file announces it. `start`: offset of its data in bytes."""

    dtype: np.dtype
    shape: tuple[int, ...]
    start: int

    @property
    def data_bytes(self) -> int:
        """Bytes of the array's elements."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def end(self) -> int:
        """Bytes of the file up to the end of the data."""
        return self.start + self.data_bytes


def read_header(file: IO[bytes]) -> Header:
    """The header at the beginning of `file`. Raises one of UNREADABLE."""
    major, minor = np.lib.format.read_magic(file)
    size = {1: 2, 2: 4, 3: 4}.get(major)
    if size is None or minor:
        raise ValueError(f"version {major}.{minor} of the .npy format is not known")
    prefix = file.read(size)
    length = int.from_bytes(prefix, "little")
    if len(prefix) < size or length > MAX_HEADER:
        raise ValueError(f"its header is of {length} bytes; the limit is {MAX_HEADER}")
    text = io.BytesIO(prefix + file.read(length))
    read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    try:
        shape, _, dtype = read(text, max_header_size=MAX_HEADER)
    except Exception as error:  # any kind: the text goes through Python's parser
        raise ValueError(f"its header cannot be read: {reason(error)}") from None
    if dtype.hasobject:
        raise ValueError("it holds objects, which would be code")
    if any(s < 0 for s in shape):
        raise ValueError(f"its shape is {shape}")
    return Header(dtype, tuple(shape), np.lib.format.MAGIC_LEN + size + length)


def read_array_file(path: Path) -> np.ndarray:
    """The array of a .npy file. Raises MemoryError or one of UNREADABLE."""
    with open_plain(path) as file:
        header = read_header(file)
        file.seek(0)
        return _read(file, header, os.fstat(file.fileno()).st_size)


def header_of(path: Path) -> Header:
    """The header of a .npy file. Raises one of UNREADABLE."""
    with open_plain(path) as file:
        header = read_header(file)
        _check_size(header, os.fstat(file.fileno()).st_size)
        return header


def reason(error: Exception) -> str:
    """The message of one of UNREADABLE, its first line."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return text.splitlines()[0] if text else type(error).__name__


class ArrayArchive:
    """An .npz archive, to be used as a context: `names` of its arrays, each read on demand. Raises one of UNREADABLE."""

    def __init__(self, path: Path) -> None:
        self._file = open_plain(path)
        try:
            self._zip = zipfile.ZipFile(self._file)
            entries = {e.filename: e for e in self._zip.infolist() if e.filename.endswith(".npy")}
        except BaseException:
            self._file.close()
            raise
        self._entries = {name.removesuffix(".npy"): entry for name, entry in entries.items()}
        self.names = tuple(self._entries)

    def header(self, name: str) -> Header:
        """The header of the array `name`. Raises one of UNREADABLE, also if its data end too early."""
        entry = self._entries[name]
        if entry.compress_type not in _METHODS:
            raise ValueError(f"{entry.filename} is packed in a way that numpy does not use")
        with self._zip.open(entry) as file:
            header = read_header(file)
        _check_size(header, entry.file_size)
        return header

    def read(self, name: str) -> np.ndarray:
        """The array `name`, unpacked into memory of the size that its `header` announces. Raises one of UNREADABLE."""
        header, entry = self.header(name), self._entries[name]
        with self._zip.open(entry) as file:
            return _read(file, header, entry.file_size)

    def __enter__(self) -> ArrayArchive:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._zip.close()
        self._file.close()


def _check_size(header: Header, size: int) -> None:
    if header.end > size:
        raise ValueError(f"it ends after {size} bytes; its header speaks of {header.end}")


def _read(file: IO[bytes], header: Header, size: int) -> np.ndarray:
    _check_size(header, size)
    array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False, max_header_size=MAX_HEADER)
    if (array.dtype, array.shape) != (header.dtype, header.shape):
        raise ValueError("it changed while it was read")
    return array
