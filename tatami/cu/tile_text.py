"""Which tile a CTA computes: m0, n0, the batch coordinates and the part of k, from its number or its place in the grid.

A persistent CTA walks through a list of tiles; the CTAs of a cluster walk together, each with a tile of its own beside
the others' (one behind the matrix where the count is odd: TMA delivers zeros there and drops what is stored).
"""

from __future__ import annotations

from tatami.core.expr import expr
from tatami.cu.expr_text import factor_text, index_text
from tatami.cu.lines import Lines
from tatami.cu.pair_text import key_lines, place_lines, size_lines
from tatami.gpu.ir import Groups, Kernel
from tatami.plan.ir import TILE_GROUP


def tile_text(k: Kernel, persistent: bool, l: Lines) -> None:
    """Declares the coordinates; of a persistent kernel also `locate(tile)`, which sets them."""
    if k.weights is None:
        (_persistent if persistent else _of_block)(k, l)
        return
    size_lines(k, k.weights, l)
    if persistent:
        parts = [*k.batch, *((expr(k.split),) if k.split > 1 else ())]
        l.add(f"const int tiles = MT{''.join(' * (int)' + factor_text(b) for b in parts)};")
    else:
        pair_tile_text(k, "tt_block_x()", l)


def pair_tile_text(k: Kernel, tile: str, l: Lines) -> None:
    """The coordinates and the keys of one tile of two products."""
    assert k.weights is not None
    place_lines(k, tile, l)
    _split_batch(k, l)
    key_lines(k, k.weights, l)


def _persistent(k: Kernel, l: Lines) -> None:
    names = ["m0", "n0", *(f"b{i}" for i in range(len(k.batch))), *(("split", "k_first") if k.split > 1 else ())]
    _counts(k, l)
    parts = " * SPLIT" if k.split > 1 and not k.units else ""
    l.add(f"const int tiles = MT * NT{''.join(' * (int)' + factor_text(b) for b in k.batch)}{parts};")
    l.add(f"tt_i64 {', '.join(f'{n} = 0' for n in names)};")
    if k.units:
        _line(k, l)
    with l.block("auto locate = [&](int tile)", "};"):
        l.add("int t = tile % (MT * NT);")
        if k.tile_order == "row":
            m, n = ("t / NT", "t % NT") if k.grid.get("x") == "n" else ("t % MT", "t / MT")
        else:
            m, n = _grouped(k, l)
        if k.tile_rows is not None and k.tile_rows[0]:
            m = f"{k.tile_rows[0]} + {m}"
        l.add(f"m0 = {_origin(m, 'BM', k.cluster[0], 'rank_m')};", f"n0 = {_origin(n, 'BN', k.cluster[1], 'rank_n')};")
        in_parts = k.split > 1 and not k.units
        if k.batch or in_parts:
            l.add("tt_i64 z = tile / (MT * NT);")
        if in_parts:
            l.add(f"split = z / ({_matrices(k)});", "k_first = split * KB * BK;")
        if k.batch:
            if in_parts:
                l.add(f"z %= {_matrices(k)};")
            _split_batch(k, l)


def _line(k: Kernel, l: Lines) -> None:
    """The line of the blocks of all tiles and this unit's part of it; `piece(at)` sets what is computed from block `at` on."""
    l.add(f"constexpr int UNITS = {k.units};  // that share the blocks of all tiles evenly")
    l.add(f"const tt_i64 line = (tt_i64)tiles * BLOCKS, unit = tt_block_x(){' / CTAS' if k.ctas > 1 else ''};")
    l.add("const tt_i64 begin = unit * line / UNITS, end = (unit + 1) * line / UNITS;")
    l.add("int KB = 0;")
    with l.block("auto piece = [&](tt_i64 at)", "};"):
        l.add("const int tile = (int)(at / BLOCKS), skipped = (int)(at % BLOCKS);")
        l.add("KB = (int)tt_min_size(BLOCKS - skipped, end - at);")
        l.add("k_first = (tt_i64)skipped * BK;")
        l.add("split = unit - (((tt_i64)tile * BLOCKS + 1) * UNITS - 1) / line;  // after the tile's first unit")
        l.add("return tile;")


def _matrices(k: Kernel) -> str:
    return " * ".join(factor_text(b) for b in k.batch) or "1"


def _origin(tile: str, side: str, ctas: int, rank: str) -> str:
    return f"(tt_i64)({tile}) * {side}" if ctas == 1 else f"((tt_i64)({tile}) * {ctas} + {rank}) * {side}"


def _counts(k: Kernel, l: Lines) -> None:
    """Numbers of tiles, or of clusters of tiles."""
    cm, cn = k.cluster
    if k.ctas > 1:
        l.add(f"constexpr int CLUSTER_M = {cm}, CLUSTER_N = {cn}, CTAS = {k.ctas};")
        l.add("const int rank = tt_cluster_rank(), rank_m = rank / CLUSTER_N, rank_n = rank % CLUSTER_N;")
    m, n = (side if count == 1 else f"({count} * {side})" for side, count in (("BM", cm), ("BN", cn)))
    rows = f"(int)((M + {m} - 1) / {m})" if k.tile_rows is None else str(k.tile_rows[1])
    l.add(f"const int MT = {rows}, NT = (int)((N + {n} - 1) / {n});")


def _of_block(k: Kernel, l: Lines) -> None:
    names = [f"b{i}" for i in range(len(k.batch))]
    first_row = "m0" if k.groups is None else "m_first"
    at = {role: f"tt_block_{c}()" for c, role in k.grid.items()}
    if k.tile_order != "row" and {k.grid["x"], k.grid["y"]} == {"m", "n"}:
        _counts(k, l)
        l.add(f"int t = tt_block_y() * {'NT' if k.grid['x'] == 'n' else 'MT'} + tt_block_x();")
        m, n = _grouped(k, l)
        l.add(f"const tt_i64 {first_row} = (tt_i64)({m}) * BM, n0 = (tt_i64)({n}) * BN;")
    else:
        l.add(f"const tt_i64 {first_row} = (tt_i64){at['m']} * BM, n0 = (tt_i64){at['n']} * BN;")
    if k.split > 1:
        count = _matrices(k)
        l.add(f"tt_i64 z = {at['b']};", f"const tt_i64 split = z / ({count});")
        if k.batch:
            l.add(f"tt_i64 {', '.join(names)};", f"z %= {count};")
            _split_batch(k, l)
    elif k.batch:
        l.add(f"tt_i64 z = {at['b']};", f"tt_i64 {', '.join(names)};")
        _split_batch(k, l)


def part_lines(g: Groups, l: Lines) -> None:
    """The rows m0 .. M of the tile's rows m_first .. m_end, all of one group: those from m0 on before the next end."""
    l.add("tt_i64 matrix = 0, M = m_end;")
    with l.block(f"TT_ROLLED for (tt_i64 e = 0; e < {factor_text(g.count)}; ++e)"):
        l.add(f"const tt_i64 end = (tt_i64){g.ends}[{index_text(g.index)}];")
        l.add("if (end <= m0) ++matrix; else M = tt_min_size(M, end);")


def _grouped(k: Kernel, l: Lines) -> tuple[str, str]:
    """Tile row and column of number t: groups of rows, column by column; or, in groups, squares along Hilbert's curve,
    where neighbours in time are neighbours in the matrix."""
    l.add(f"const int first = t / ({TILE_GROUP} * NT) * {TILE_GROUP};")
    l.add(f"const int height = MT - first < {TILE_GROUP} ? MT - first : {TILE_GROUP};")
    l.add(f"t %= {TILE_GROUP} * NT;")
    if k.tile_order == "grouped":
        return "first + t % height", "t / height"
    l.add(f"const int left = t / (height * {TILE_GROUP}) * {TILE_GROUP}, width = NT - left;")
    l.add("t -= left * height;", "int row = t % height, column = t / height;")
    l.add(f"if (height == {TILE_GROUP} && width >= {TILE_GROUP}) tt_hilbert<{TILE_GROUP}>(t, row, column);")
    return "first + row", "left + column"


def _split_batch(k: Kernel, l: Lines) -> None:
    for i in range(len(k.batch) - 1, -1, -1):
        size = factor_text(k.batch[i])
        l.add(f"b{i} = z;" if i == 0 else f"b{i} = z % {size}; z /= {size};")
