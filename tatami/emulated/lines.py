"""The line table of a shared object (DWARF 4): which line of which file an instruction belongs to.

The compiler's hooks know only the address they return to. Reading the table here needs no binutils, which a machine
with another compiler may lack.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Row:
    """One row of the line table: from `address` on, instructions belong to `line` of `file`. `end`: from there on, to none."""

    address: int
    file: str
    line: int
    end: bool


class _Bytes:
    """A reader of the little-endian numbers that DWARF is made of."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def number(self, size: int) -> int:
        """The next `size` bytes as an unsigned little-endian number."""
        self.at += size
        return int.from_bytes(self.data[self.at - size : self.at], "little")

    def signed_byte(self) -> int:
        value = self.number(1)
        return value - 256 if value > 127 else value

    def leb(self, signed: bool = False) -> int:
        """A number in groups of seven bits, the lowest first; the eighth bit says that another group follows."""
        value = shift = 0
        while True:
            byte = self.number(1)
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value - (1 << shift) if signed and byte & 64 else value

    def text(self) -> str:
        """The next bytes as text, up to a zero byte."""
        end = self.data.index(b"\0", self.at)
        value = self.data[self.at : end]
        self.at = end + 1
        return value.decode("utf-8", "replace")


class LineTable:
    """The line table of one shared object, decoded when `find` is first called."""

    def __init__(self, shared_object: bytes) -> None:
        self._object = shared_object

    @cached_property
    def _rows(self) -> list[Row]:
        """Rows in the order of their addresses; at equal addresses a row that ends a sequence comes first."""
        table = section(self._object, ".debug_line")
        reader = _Bytes(table)
        rows: list[Row] = []
        while reader.at < len(table):
            rows += _unit(reader)
        return sorted(rows, key=lambda r: (r.address, not r.end))

    def find(self, address: int) -> tuple[str, int] | None:
        """(file, line) of the instruction at an address, counted from where the object is loaded. None if no row covers it."""
        after = bisect_right(self._rows, address, key=lambda r: r.address)
        if after == 0 or self._rows[after - 1].end:
            return None
        row = self._rows[after - 1]
        return row.file, row.line


def section(elf: bytes, name: str) -> bytes:
    """A section of a 64-bit ELF file, empty where it is missing."""
    if elf[:5] != b"\x7fELF\x02":
        return b""
    (start,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, start + i * size) for i in range(count)]
    text_at = headers[names][4]
    for name_at, _, _, _, offset, length in headers:
        end = elf.index(b"\0", text_at + name_at)
        if elf[text_at + name_at : end].decode() == name:
            return elf[offset : offset + length]
    return b""


def _unit(r: _Bytes) -> list[Row]:
    """The rows of one line-number program; none for other versions than DWARF 2 to 4. `r` then stands behind the program."""
    length = r.number(4)
    end = r.at + length
    version = r.number(2)
    if version not in (2, 3, 4):
        r.at = end
        return []
    program = r.number(4)
    program += r.at
    least = r.number(1)
    if version == 4:
        r.number(1)
    r.number(1)
    line_base, line_range, first_special = r.signed_byte(), r.number(1), r.number(1)
    operands = [r.number(1) for _ in range(first_special - 1)]
    while r.text():
        pass
    files = [""]
    while name := r.text():
        files.append(name)
        r.leb(), r.leb(), r.leb()
    r.at = program
    rows: list[Row] = []
    address, file, line = 0, 1, 1

    def emit(ends: bool = False) -> None:
        rows.append(Row(address, files[file] if file < len(files) else "", line, ends))

    while r.at < end:
        code = r.number(1)
        if code >= first_special:
            code -= first_special
            address += code // line_range * least
            line += line_base + code % line_range
            emit()
        elif code == 0:
            size = r.leb()
            following = r.at + size
            extended = r.number(1)
            if extended == 1:
                emit(True)
                address, file, line = 0, 1, 1
            elif extended == 2:
                address = r.number(size - 1)
            r.at = following
        elif code == 1:
            emit()
        elif code == 2:
            address += r.leb() * least
        elif code == 3:
            line += r.leb(signed=True)
        elif code == 4:
            file = r.leb()
        elif code == 8:
            address += (255 - first_special) // line_range * least
        elif code == 9:
            address += r.number(2)
        else:
            for _ in range(operands[code - 1]):
                r.leb()
    r.at = end
    return rows
