"""The machine code of streaming kernels: 16-byte accesses where they are promised, nothing in local memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.runtime.building.nvrtc import has_nvrtc
from tests.cu.machine_code import compiled, machine_code
from tests.cu.streaming.test_stream_numbers import columns, softmax, stages_of

pytestmark = pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")


def chain(g: Graph) -> None:
    x = g.input("x", ("M", "K"), DType.fp16)
    g.output("y", (x * x + x).relu())


def lookup(g: Graph) -> None:
    g.output("y", g.input("table", ("V", 64), DType.fp16).take(g.input("index", ("M",), DType.i32), 0))


def turn(g: Graph) -> None:
    g.output("y", g.input("x", (512, 768), DType.fp16).transpose(0, 1))


def long_line(g: Graph) -> None:
    g.output("y", g.input("x", (1 << 20,), DType.fp32).sum(0))


def scan(g: Graph) -> None:
    g.output("y", g.input("x", ("M", 512), DType.fp16).cumsum(-1))


def long_columns(g: Graph) -> None:
    g.output("y", g.input("x", (1 << 16, 16), DType.fp16).sum(0))


@pytest.mark.parametrize(
    ("make", "loads", "stores"),
    [
        (chain, 1, 1),
        (softmax, 3, 1),
        (columns, 1, 1),
        (lookup, 1, 1),
        (turn, 1, 1),
        (long_line, 1, 0),
        (long_columns, 1, 1),
        (scan, 1, 1),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_accesses_take_16_bytes(make: Callable[[Graph], None], loads: int, stores: int, tmp_path: Path) -> None:
    source = stages_of(make)["cu"].main
    unit = source.units[0]
    cubin = compiled(unit, source.headers)
    assert cubin.spill_bytes == 0 and cubin.warnings == ()
    found = machine_code(cubin, tmp_path)
    assert sum(n for op, n in found.items() if op.startswith("LDG.E.128")) >= loads
    assert sum(n for op, n in found.items() if op.startswith("STG.E.128")) >= stores
    assert not any(op.startswith(("LDL", "STL")) for op in found)


def test_a_tile_is_turned_without_other_accesses_than_wide_ones(tmp_path: Path) -> None:
    """Nothing of one element goes to or from global memory; shared memory is written 16 bytes at a time."""
    source = stages_of(turn)["cu"].main
    (unit,) = source.units
    found = machine_code(compiled(unit, source.headers), tmp_path)
    memory = {op for op in found if op.startswith(("LDG", "STG", "STS"))}
    assert memory and all(".128" in op for op in memory)


def test_chunks_of_a_turned_tile_meet_no_bank_twice() -> None:
    """A quarter warp writes 16 bytes each of one row; a warp reads one element each down the rows."""
    for size, chunk in ((128, 16), (64, 8), (32, 4), (16, 2)):
        width = 128 // size

        def place(row: int, column: int, size: int = size, chunk: int = chunk) -> int:
            return row * size + (column // chunk ^ row // chunk % (size // chunk)) * chunk + column % chunk

        assert len({place(r, c) for r in range(size) for c in range(size)}) == size * size
        for row in range(size):
            assert len({place(row, c * chunk) * width // 16 % 8 for c in range(8)}) == 8
        for lane in range(chunk):  # eight bytes are read by half warps
            words = {place(t % 8 * chunk + lane, t // 8) * width // 4 for t in range(32 if width < 8 else 16)}
            assert len({w % 32 for w in words}) == len(words)
