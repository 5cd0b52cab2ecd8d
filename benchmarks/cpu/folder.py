"""The folder of a run while it goes on: the models of the cases, and every measured case as a line of JSON."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks.cpu.blocks import Block
from benchmarks.cpu.case import Case
from benchmarks.cpu.cases import all_cases

Key = tuple[int, int, float, tuple[str, ...]]
"""(round, threads, seconds, contestants of the process)"""


class Found(msgspec.Struct, frozen=True):
    """The figures of one case that one process measured."""

    case: str
    blocks: dict[str, list[Block]]
    errors: dict[str, str]
    difference: dict[str, float]
    parked: bool | None = None
    others: float | None = None
    """Processors that others used while the blocks were timed."""


class _Line(msgspec.Struct, frozen=True):
    code: str
    key: Key
    found: Found


class Folder:
    """`<number of the case>/<contestant or model>.onnx`, and `found.jsonl`. Lines that other code wrote are not read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self._lines = path / "found.jsonl"
        self._code = _code()
        if self._lines.exists():  # a run that was killed may have left half a line
            whole, end, _ = self._lines.read_bytes().rpartition(b"\n")
            self._lines.write_bytes(whole + end)

    def write_models(self, cases: Sequence[Case]) -> None:
        order = list(all_cases())
        for case in cases:
            place = self.path / f"{order.index(case.name)}"
            whole = place / "whole"
            if whole.exists() and whole.read_text() == self._code + case.name:
                continue
            print(f"writing {case.name}", file=sys.stderr)
            place.mkdir(exist_ok=True)
            case.onnx(str(place / "model.onnx"))
            for name, write in case.peers.items():
                write(str(place / f"{name}.onnx"))
            whole.write_text(self._code + case.name)

    def found(self, key: Key) -> Iterator[Found]:
        if not self._lines.exists():
            return
        for text in self._lines.read_bytes().splitlines():
            line = msgspec.json.decode(text, type=_Line)
            if line.code == self._code and line.key == key:
                yield line.found

    def add(self, key: Key, found: Found) -> None:
        with self._lines.open("ab") as file:
            file.write(msgspec.json.encode(_Line(self._code, key, found)) + b"\n")


def _code() -> str:
    """Digest of the commit and of what differs from it, records and pages apart: those a run itself writes. A run goes on
    only with the code it began with."""
    here = Path(__file__).parents[2]
    said = [
        subprocess.run(["git", *words], capture_output=True, cwd=here, check=True).stdout
        for words in (("rev-parse", "HEAD"), ("diff", "HEAD", "--", ".", ":!benchmarks/results", ":!docs"))
    ]
    return hashlib.sha256(b"".join(said)).hexdigest()
