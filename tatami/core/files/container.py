"""Named blocks of bytes in one file, each at a multiple of 64 bytes and under a checksum.

    tatami file 1\n | sha256 of the table, in hexadecimal | its length in 8 bytes | the table | blocks

The table is JSON: {"manifest": what the file is, "blocks": {name: [first byte, bytes, sha256]}}. Every byte that is read
is under a checksum; a file that was cut or changed is refused as a whole or block by block, never read wrongly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from tatami.core.codec import encode_record, parse_text
from tatami.core.diagnostic import TatamiError, fail

MAGIC = b"tatami file 1\n"
"""First bytes of a file, with the version of its form."""
_HEAD = len(MAGIC) + 64 + 8
_ALIGNMENT = 64


def contained(manifest: Mapping[str, Any], blocks: Mapping[str, bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """The bytes of the file, in pieces: head, table, then each block after its padding."""
    places: dict[str, tuple[int, int, str]] = {}
    end = 0
    for name, block in blocks.items():
        end = -(-end // _ALIGNMENT) * _ALIGNMENT
        places[name] = (end, len(block), hashlib.sha256(block).hexdigest())
        end += len(block)
    table = encode_record({"manifest": manifest, "blocks": places})
    table += b" " * (-(_HEAD + len(table)) % _ALIGNMENT)
    yield MAGIC + hashlib.sha256(table).hexdigest().encode() + len(table).to_bytes(8, "little")
    yield table
    written = 0
    for name, block in blocks.items():
        yield bytes(places[name][0] - written)
        yield block
        written = places[name][0] + len(block)


class Container:
    """A file in memory, its table checked. Raises TatamiError ParseError for other data, InvalidDocument for a damaged file."""

    def __init__(self, data: bytes, at: str) -> None:
        self._at = at
        if not data.startswith(MAGIC):
            raise fail("ParseError", at, "it is not a saved program", "give a file that f.save wrote")
        length = int.from_bytes(data[len(MAGIC) + 64 : _HEAD], "little")
        table = data[_HEAD : _HEAD + length]
        if hashlib.sha256(table).hexdigest().encode() != data[len(MAGIC) : len(MAGIC) + 64]:
            raise self._damaged("its table")
        self._blocks = memoryview(data)[_HEAD + length :]
        try:
            read = parse_text(table, at)
            self.manifest: dict[str, Any] = dict(read["manifest"])
            self._places = {str(n): (int(first), int(size), str(sha)) for n, (first, size, sha) in read["blocks"].items()}
        except (TypeError, KeyError, ValueError, AttributeError):
            raise self._damaged("its table") from None

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __getitem__(self, name: str) -> memoryview:
        """The block `name`, its checksum verified. Raises TatamiError InvalidDocument if it is missing or damaged."""
        if name not in self._places:
            raise fail("InvalidDocument", self._at, f"there is no block {name[:80]}", "save the program again")
        first, size, sha256 = self._places[name]
        block = self._blocks[first : first + size] if first >= 0 and size >= 0 else self._blocks[:0]
        if len(block) != size or hashlib.sha256(block).hexdigest() != sha256:
            raise self._damaged(f"the block {name[:80]}")
        return block

    def _damaged(self, what: str) -> TatamiError:
        return fail("InvalidDocument", self._at, f"{what} is damaged: its checksum differs", "save the program again")
