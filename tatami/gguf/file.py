"""Header of a GGUF file: metadata, and the place of each tensor. Every length is compared with what is left of the file
before anything of that size is made, so that a hostile file costs no more than its own bytes."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

from tatami.core.diagnostic import TatamiError, fail
from tatami.core.files.plain_file import open_plain
from tatami.gguf.formats import FORMATS, Format

Scalar: TypeAlias = "bool | int | float | str"
Metadata: TypeAlias = "Scalar | tuple[Scalar, ...]"

MAX_ENTRIES = 1 << 16
"""Maximum number of metadata entries, and of tensors."""
MAX_TEXT = 1 << 24
"""Maximum bytes of one text; chat templates have some thousand."""
MAX_ARRAY = 1 << 22
"""Maximum elements of an array; vocabularies have some hundred thousand."""
MAX_HEADER = 1 << 28
"""Maximum bytes of the header."""
MAX_RANK = 4
"""Maximum number of axes of a tensor: the format's own limit."""
_NUMBERS: dict[int, str] = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
"""Code of a metadata type -> format of `struct`."""
_BOOL, _TEXT, _ARRAY = 7, 8, 9


class StoredTensor(NamedTuple):
    """A tensor of the file: its shape with the contiguous axis last, its format, and its first byte."""

    shape: tuple[int, ...]
    format: Format
    first: int

    @property
    def nbytes(self) -> int:
        """Number of bytes in the file."""
        return prod(self.shape) // self.format.weights * self.format.bytes


class GgufFile(NamedTuple):
    """The metadata of a file, and the places of its tensors. They are read in pieces, since weights are larger than memory should
    hold twice."""

    path: Path
    metadata: Mapping[str, Metadata]
    tensors: Mapping[str, StoredTensor]

    def read_rows(self, name: str, first: int, count: int) -> bytes:
        """The bytes of some rows of a tensor, whose leading axes are joined. Raises FileUnreadable, ParseError."""
        stored = self.tensors[name]
        size = stored.nbytes // prod(stored.shape[:-1])
        try:
            with open_plain(self.path) as file:
                file.seek(stored.first + first * size)
                data: bytes = file.read(count * size)
        except OSError as error:
            why = error.strerror or "it cannot be read"
            raise fail("FileUnreadable", self.path.name, why, "check the path and its permissions") from None
        if len(data) != count * size:
            raise _broken(self.path, "it ends within a tensor")
        return data


def read_header(path: Path) -> GgufFile:
    """The header of a GGUF file. Raises FileUnreadable, ParseError, UnsupportedModel."""
    try:
        with open_plain(path) as file:
            return _Reader(path, file).header()
    except (OSError, ValueError) as error:  # a name with a null in it is a ValueError
        why = getattr(error, "strerror", None) or "it cannot be read"
        raise fail("FileUnreadable", path.name, why, "check the path and its permissions") from None


def _broken(path: Path, why: str) -> TatamiError:
    return fail("ParseError", path.name, f"not a GGUF model: {why}", "copy or convert the file again")


class _Reader:
    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self.file = path, file
        self.size = os.fstat(file.fileno()).st_size
        self.at = 0

    def take(self, count: int) -> bytes:
        """The next bytes, which the file must have."""
        if count > self.size - self.at or self.at + count > MAX_HEADER:
            raise self.broken(f"{count} bytes are named at {self.at}, past its end or past a header's {MAX_HEADER}")
        self.at += count
        data = self.file.read(count)
        if len(data) != count:
            raise self.broken("it became shorter while it was read")
        return data

    def broken(self, why: str) -> TatamiError:
        return _broken(self.path, why)

    def number(self, code: int) -> int | float:
        form = f"<{_NUMBERS[code]}"
        (value,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return value

    def count(self, most: int, what: str) -> int:
        value = int(self.number(10))
        if value > most:
            raise self.broken(f"{value} {what}; {most} is the most")
        return value

    def text(self) -> str:
        data = self.take(self.count(MAX_TEXT, "bytes of a text"))
        return data.decode("utf-8", errors="replace")

    def value(self, code: int) -> Metadata:
        if code == _TEXT:
            return self.text()
        if code == _ARRAY:
            return self.array()
        if code not in _NUMBERS:
            raise self.broken(f"metadata of the unknown type {code}")
        return bool(self.number(code)) if code == _BOOL else self.number(code)

    def array(self) -> tuple[Scalar, ...]:
        code = int(self.number(4))
        count = self.count(MAX_ARRAY, "elements of an array")
        if code == _TEXT:
            self.reserve(8 * count)
            return tuple(self.text() for _ in range(count))
        if code not in _NUMBERS:
            raise self.broken(f"an array of the type {code}")
        found = struct.unpack(f"<{count}{_NUMBERS[code]}", self.take(count * struct.calcsize(_NUMBERS[code])))
        return tuple(map(bool, found)) if code == _BOOL else found

    def reserve(self, count: int) -> None:
        """Refuse a count of elements that the rest of the file cannot hold."""
        if count > self.size - self.at:
            raise self.broken(f"{count} bytes are named at {self.at}, past its end")

    def header(self) -> GgufFile:
        if self.size < 24 or self.take(4) != b"GGUF":
            raise self.broken("it does not begin with GGUF")
        version = int(self.number(4))
        if version not in (2, 3):
            raise fail(
                "UnsupportedModel",
                self.path.name,
                f"version {version & 0xFFFFFFFF} of GGUF",
                "give a little-endian file of version 2 or 3",
            )
        tensors = self.count(MAX_ENTRIES, "tensors")
        entries = self.count(MAX_ENTRIES, "metadata entries")
        metadata: dict[str, Metadata] = {}
        for _ in range(entries):
            key = self.text()
            if key in metadata:
                raise self.broken(f"{_shown(key)} stands twice in its metadata")
            metadata[key] = self.value(int(self.number(4)))
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1) or alignment > 1 << 20:
            raise self.broken(f"an alignment of {_shown(alignment)}")
        found = self.entries(tensors, self.tensor)
        start = -(-self.at // alignment) * alignment
        placed = {name: t._replace(first=start + t.first) for name, t in found.items()}
        end = start
        for name, t in sorted(placed.items(), key=lambda item: item[1].first):
            if t.first + t.nbytes > self.size:
                raise self.broken(f"{_shown(name)} lies past its end")
            if t.first < end:  # bytes that many tensors share would be many times the file in memory
                raise self.broken(f"{_shown(name)} overlaps another tensor")
            if t.first % alignment:
                raise self.broken(f"{_shown(name)} is not aligned to {alignment} bytes")
            end = t.first + t.nbytes
        return GgufFile(self.path, metadata, placed)

    def entries(self, count: int, read: Callable[[], StoredTensor]) -> dict[str, StoredTensor]:
        out: dict[str, StoredTensor] = {}
        for _ in range(count):
            name = self.text()
            if name in out:
                raise self.broken(f"two tensors are called {_shown(name)}")
            out[name] = read()
        return out

    def tensor(self) -> StoredTensor:
        rank = int(self.number(4))
        if rank > MAX_RANK:
            raise self.broken(f"a tensor of rank {rank}")
        shape = tuple(self.count(1 << 40, "elements along an axis") for _ in range(rank))[::-1]
        code, first = int(self.number(4)), int(self.number(10))
        if code not in FORMATS:
            raise fail(
                "UnsupportedModel",
                self.path.name,
                f"a tensor of type {code} of GGUF",
                f"quantise it as one of {', '.join(f.name for f in FORMATS.values())}",
            )
        form = FORMATS[code]
        if not shape or not all(shape) or shape[-1] % form.weights:
            raise self.broken(f"a tensor of shape {list(shape)} in blocks of {form.weights}")
        return StoredTensor(shape, form, first)


def _shown(value: object) -> str:
    """A text of the file as a diagnostic may print it."""
    return ascii(value)[:60]
