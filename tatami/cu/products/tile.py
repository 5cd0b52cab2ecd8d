"""The tile of a CTA: m0, n0, the batch coordinates and the part of k, from its number or its place in the grid.

A persistent CTA computes a list of tiles in turn; the CTAs of a cluster have adjacent tiles at the same time (one beyond the
matrix if the count is odd: TMA delivers zeros there and drops stores).
"""

from __future__ import annotations

from tatami.core.expr import ceildiv, expr, product
from tatami.core.page import page
from tatami.cu.expr_text import block_text, factor_text, index_text
from tatami.cu.lines import Lines
from tatami.cu.products.pair import key_lines, place_lines, size_lines
from tatami.gpu.ir import Groups, Kernel
from tatami.gpu.views.folded import is_one_row
from tatami.plan.ir import TILE_GROUP


def tile_lines(k: Kernel, persistent: bool) -> list[str]:
    """Lines that declare the coordinates; for a persistent kernel also `locate(tile)`, which sets them."""
    if k.weights is None and persistent:
        return _walk(k).splitlines()
    l = Lines()
    if k.weights is None:
        _of_block(k, l)
        return l.out
    size_lines(k, k.weights, l)
    if persistent:
        parts = [*k.batch, *((expr(k.split),) if k.split > 1 else ())]
        l.add(f"const int tiles = MT{''.join(' * (int)' + factor_text(b) for b in parts)};")
    else:
        pair_tile_text(k, "tt_block_x()", l)
    return l.out


def pair_tile_text(k: Kernel, tile: str, l: Lines) -> None:
    """Print the coordinates and the keys of one tile of two products."""
    assert k.weights is not None
    place_lines(k, tile, l)
    l.add(*_batch_lines(k))
    key_lines(k, k.weights, l)


def _walk(k: Kernel) -> str:
    names = ["m0", "n0", *(f"b{i}" for i in range(len(k.batch))), *(("split", "k_first") if k.split > 1 else ())]
    in_parts = k.split > 1 and not k.units
    order: list[str] = []
    if k.tile_order == "row":
        m, n = ("t / NT", "t % NT") if k.grid.get("x", "").endswith("n") else ("t % MT", "t / MT")
    else:
        order, m, n = _grouped(k)
    if k.tile_rows is not None and k.tile_rows[0]:
        m = f"{k.tile_rows[0]} + {m}"
    return page("tatami.cu", "walk.cu").fill(
        COUNTS=_counts(k),
        BATCH="".join(" * (int)" + factor_text(b) for b in k.batch) + (" * SPLIT" if in_parts else ""),
        NAMES=", ".join(f"{n} = 0" for n in names),
        LINE=page("tatami.cu", "line.cu").fill(UNITS=k.units, CLUSTER=" / CTAS" if k.ctas > 1 else "") if k.units else "",
        ORDER=order,
        M0=_origin(m, "BM", k.cluster[0], "rank_m"),
        N0=_origin(n, "BN", k.cluster[1], "rank_n"),
        Z=bool(k.batch) or in_parts,
        IN_PARTS=in_parts,
        MATRICES=_matrices(k),
        COORDINATES=_batch_lines(k),
    )


def _matrices(k: Kernel) -> str:
    return " * ".join(factor_text(b) for b in k.batch) or "1"


def _origin(tile: str, side: str, ctas: int, rank: str) -> str:
    return f"(tt_i64)({tile}) * {side}" if ctas == 1 else f"((tt_i64)({tile}) * {ctas} + {rank}) * {side}"


def _counts(k: Kernel) -> list[str]:
    """Declarations of the numbers of tiles, or of clusters of tiles."""
    out: list[str] = []
    cm, cn = k.cluster
    if k.ctas > 1:
        out.append(f"constexpr int CLUSTER_M = {cm}, CLUSTER_N = {cn}, CTAS = {k.ctas};")
        out.append("const int rank = tt_cluster_rank(), rank_m = rank / CLUSTER_N, rank_n = rank % CLUSTER_N;")
    m, n = (side if count == 1 else f"({count} * {side})" for side, count in (("BM", cm), ("BN", cn)))
    rows = f"(int)((M + {m} - 1) / {m})" if k.tile_rows is None else str(k.tile_rows[1])
    return [*out, f"const int MT = {rows}, NT = (int)((N + {n} - 1) / {n});"]


def _of_block(k: Kernel, l: Lines) -> None:
    names = [f"b{i}" for i in range(len(k.batch))]
    first_row = "m0" if k.groups is None else "m_first"
    at = {role: f"tt_block_{c}()" for c, role in k.grid.items()}
    if k.is_folded:
        order, m, n = ([], "t / NT", "t % NT") if k.tile_order == "row" else _grouped(k)
        l.add(*_counts(k), *_folded(k), *order)
        l.add(f"const tt_i64 {first_row} = (tt_i64)({m}) * BM, n0 = (tt_i64)({n}) * BN;")
        at["b"] = "number / ((tt_i64)MT * NT)"
    elif k.tile_order != "row" and {k.grid["x"], k.grid["y"]} == {"m", "n"}:
        order, m, n = _grouped(k)
        l.add(*_counts(k), f"int t = tt_block_y() * {'NT' if k.grid['x'] == 'n' else 'MT'} + tt_block_x();", *order)
        l.add(f"const tt_i64 {first_row} = (tt_i64)({m}) * BM, n0 = (tt_i64)({n}) * BN;")
    else:
        l.add(f"const tt_i64 {first_row} = (tt_i64){at['m']} * BM, n0 = (tt_i64){at['n']} * BN;")
    if k.split > 1:
        count = _matrices(k)
        l.add(f"tt_i64 z = {at['b']};", f"const tt_i64 split = z / ({count});")
        if k.batch:
            l.add(f"tt_i64 {', '.join(names)};", f"z %= {count};")
            l.add(*_batch_lines(k))
    elif k.batch:
        l.add(f"tt_i64 z = {at['b']};", f"tt_i64 {', '.join(names)};")
        l.add(*_batch_lines(k))


def _folded(k: Kernel) -> list[str]:
    """Declarations of this block's number among the tiles of all matrices, and of `t`, its number in its matrix. Blocks beyond
    the last tile end: those of the last row of a grid whose number of blocks is open (`gpu/views/folded.py`). One matrix has
    fewer than 2^31 tiles: its results would not fit a memory."""
    count = product((ceildiv(k.m, k.tile[0]), ceildiv(k.n, k.tile[1]), *k.batch)) * k.split
    if is_one_row(count):
        return ["const tt_i64 number = tt_block_x();", "int t = (int)(number % ((tt_i64)MT * NT));"]
    matrices = "".join(f" * {factor_text(b)}" for b in (*k.batch, *((expr(k.split),) if k.split > 1 else ())))
    return [
        f"const tt_i64 number = {block_text(is_one_row=False)};",
        f"if (number >= (tt_i64)MT * NT{matrices}) return;",
        "int t = (int)(number % ((tt_i64)MT * NT));",
    ]


def part_lines(g: Groups, l: Lines) -> None:
    """Declarations of the rows m0 .. M, the part of the tile's rows m_first .. m_end in one group: those from m0 to the next
    end."""
    l.add("tt_i64 matrix = 0, M = m_end;")
    with l.block(f"TT_ROLLED for (tt_i64 e = 0; e < {factor_text(g.count)}; ++e)"):
        l.add(f"const tt_i64 end = (tt_i64){g.ends}[{index_text(g.index)}];")
        l.add("if (end <= m0) ++matrix; else M = tt_min_size(M, end);")


def _grouped(k: Kernel) -> tuple[list[str], str, str]:
    """(lines that find tile number t in groups, its tile row, its tile column)."""
    is_hilbert = k.tile_order != "grouped"
    lines = page("tatami.cu", "tile_order.cu").fill(GROUP=TILE_GROUP, HILBERT=is_hilbert).splitlines()
    return (lines, "first + row", "left + column") if is_hilbert else (lines, "first + t % height", "t / height")


def _batch_lines(k: Kernel) -> list[str]:
    """Declarations of the batch coordinates of matrix z."""
    sizes = list(map(factor_text, k.batch))
    return [f"b{i} = z;" if i == 0 else f"b{i} = z % {sizes[i]}; z /= {sizes[i]};" for i in reversed(range(len(sizes)))]
