"""Checks of stream-K: every block of every tile is multiplied once, every piece has a slot of its own, all rows of tiles have a
kernel.

The blocks that each unit computes, and the places of its pieces, are enumerated and compared with the tiles.
"""

from __future__ import annotations

from collections.abc import Iterator

from tatami.core.algebra.visit import step_of
from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.expr import ceildiv, expr, product
from tatami.gpu.ir import AnyKernel, Kernel, Program
from tatami.gpu.proof.program import all_statements
from tatami.gpu.statement_ir import Role, StGlobalVec
from tatami.plan.views.stream_k_cut import Cut


def check_units(kernel: Kernel) -> list[Diagnostic]:
    """Faults of a stream-K kernel; a kernel without units has none."""
    return [_fault(kernel, why) for why in _faults(kernel)] if kernel.units else []


def _fault(kernel: Kernel, why: str) -> Diagnostic:
    return diagnostic("TokenHazard", f"{kernel.face.symbol or 'kernel'}: units", why, "let the plan's stream_k make it anew")


def _faults(kernel: Kernel) -> Iterator[str]:
    if not kernel.has_roles or kernel.groups is not None or kernel.weights is not None:
        yield "only persistent tiles of one product are cut into pieces"
        return
    if not kernel.uneven:
        yield "pieces differ in their number of blocks, which `uneven` does not say"
    if any(s.turns for s in all_statements(kernel.body) if isinstance(s, Role)):
        yield "warpgroups take tiles in turns and would have to know how many blocks the others' pieces have"
    if kernel.tile_order != "row" or kernel.grid.get("x") != "n":
        yield "tiles are not numbered row by row, as those that join the pieces count them"
    cut = cut_of_kernel(kernel)
    if cut is None:
        yield "the line of blocks has no known length"
        return
    yield from _uncovered(cut, kernel.split)
    slot = product((*kernel.batch, kernel.n)) * rows_of_tail(kernel)
    for s in all_statements(kernel.body):
        if isinstance(s, StGlobalVec) and step_of(s.index, "split") != slot:
            yield f"{s.ptr}: pieces lie {step_of(s.index, 'split')} elements apart, a slot has {slot}"


def cut_of_kernel(kernel: Kernel) -> Cut | None:
    """The cut that the kernel's own sizes give; None if they are not known."""
    bm, bn, bk = kernel.tile
    rows = ceildiv(kernel.m, kernel.cluster[0] * bm).as_int()
    columns, blocks = ceildiv(kernel.n, kernel.cluster[1] * bn).as_int(), ceildiv(kernel.k, bk).as_int()
    batch = product(kernel.batch).as_int()
    if rows is None or columns is None or blocks is None or batch is None:
        return None
    first, count = kernel.tile_rows or (0, rows)
    return Cut(first, count, batch * count * columns, blocks, kernel.units)


def rows_of_tail(kernel: Kernel) -> int:
    """Number of rows from the first row of tiles of this kernel on."""
    first = 0 if kernel.tile_rows is None else kernel.tile_rows[0]
    return (kernel.m - expr(first * kernel.cluster[0] * kernel.tile[0])).as_int() or 0


def _uncovered(cut: Cut, slots: int) -> Iterator[str]:
    """Pieces in the order of the units are those of tile 0, of tile 1, …, each from block 0 to the last without a gap."""
    if cut.units > cut.line:
        yield f"{cut.units} units share {cut.line} blocks: some have none"
        return
    tile, block, number = 0, 0, 0
    for unit in range(cut.units):
        for own, first, end, slot in cut.pieces(unit):
            if (own, first) != (tile, block):
                yield f"unit {unit} begins at block {first} of tile {own}, the blocks before it end at {block} of tile {tile}"
                return
            if slot != number:
                yield f"piece {number} of tile {own} is stored as piece {slot}"
                return
            if slot >= slots:
                yield f"piece {slot} of tile {own} has no slot: there are {slots}"
                return
            whole = end == cut.blocks
            tile, block, number = (tile + 1, 0, 0) if whole else (tile, end, number + 1)
    if tile != cut.tiles:
        yield f"{tile} of {cut.tiles} tiles are whole"


def check_rows(program: Program) -> list[Diagnostic]:
    """Faults of kernels that each compute some rows of tiles of one Region: together they compute every row once."""
    kernels: dict[str, AnyKernel] = {k.face.symbol: k for k in program.kernels}
    parts: dict[tuple[str, int], list[tuple[tuple[int, int], Kernel]]] = {}
    for b in program.bindings:
        k = kernels.get(b.kernel)
        if isinstance(k, Kernel) and k.tile_rows is not None:
            parts.setdefault((b.region, b.choice), []).append((k.tile_rows, k))
    out = []
    for (region, _), those in parts.items():
        at = 0
        for (first, count), k in sorted(those, key=lambda part: part[0]):
            if first != at:
                out.append(_rows_fault(region, f"rows of tiles {first} .. are computed behind {at}"))
            at = first + count
            rows = ceildiv(k.m, k.cluster[0] * k.tile[0])
        if rows != expr(at):
            out.append(_rows_fault(region, f"{at} of {rows} rows of tiles are computed"))
    return out


def _rows_fault(region: str, why: str) -> Diagnostic:
    return diagnostic("InvalidDocument", region, why, "let each row of tiles have one kernel")
