"""The routine of products whose lanes run along the sum: both operands lie contiguously along k, and nothing is transposed.

    tatami_along_<t>_<mr>x<nr>_<lanes>    buffers a, b, c, table; sizes rows, pitch, columns, pitch of c, first,
                                          images, a and b from image to image, lines, a and b from line to line, length
        c[i][j] += sum of a[i*pitch + …] * b[table[j] + …] over images, lines, and places of a line; first = 1: c is
        overwritten. `columns` is a multiple of nr.

A tile of mr rows by nr columns keeps a vector of partial sums for each of its results. For each vector of k it loads mr + nr
vectors and makes mr * nr multiply-adds. At the end the lanes of all sums are added up together: two vectors become one with
half as many partial sums of each, until a vector holds the totals of as many results as it has lanes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from tatami.c.ir import Unit
from tatami.c.products.elements import C_TYPES, element_text, routine_page
from tatami.core.custom.verbatim import VerbatimCode

_NAME = re.compile(r"tatami_along_(f32|f64)_(\d+)x(\d+)_(\d+)")
_REFUSED = 3
"""Fault code of a call with arguments that the routine does not support, TATAMI_ARGUMENT of tatami.h."""


@lru_cache(maxsize=64)
def along_unit(name: str) -> Unit | None:
    """The unit that defines routine `name`; None for other names."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    element, mr, nr, lanes = found[1], *map(int, found.groups()[1:])
    is_kept = C_TYPES[element][1] * lanes in (32, 64)
    arguments = "a, b, to, at + j, pitch, c_pitch, first, &run"
    text = routine_page("images/along").fill(
        ELEMENT=element_text(element, lanes),
        MASK=f"int{8 * C_TYPES[element][1]}_t",
        VECTOR=C_TYPES[element][1] * lanes,
        TILES=[_panel(rows, nr, lanes, is_kept) for rows in range(1, mr + 1)],
        NAME=name,
        MR=mr,
        LESS=mr - 1,
        NR=nr,
        CASES=[f"case {rows}: panel_{rows}({arguments}); break;" for rows in range(1, mr + 1)],
        REFUSED=_REFUSED,
    )
    return Unit(VerbatimCode(text), contract=True)


def _panel(rows: int, nr: int, lanes: int, is_kept: bool) -> str:
    """The function of a panel of that many rows. `is_kept`: an empty asm statement keeps each vector of b in a register, since gcc
    would load it once for each row: measured 1.9 times the rate with 3 rows and 7 columns."""
    sums = [f"s{i}_{j}" for i in range(rows) for j in range(nr)]

    def products(read: str) -> list[str]:
        columns = [f"V b{j} = {read.format(f'b{j}p + y')};" for j in range(nr)]
        adds = [" ".join(f"s{i}_{j} += v * b{j};" for j in range(nr)) for i in range(rows)]
        if is_kept and rows > 1:
            columns.append(" ".join(f'__asm__("" : "+v"(b{j}));' for j in range(nr)))
        return [*columns, *(f"{{ V v = {read.format(f'a{i}p + x')}; {add} }}" for i, add in enumerate(adds))]

    tree, totals = _totals(sums, lanes)
    places = [f"c[{i} * c_pitch + {j}]" for i in range(rows) for j in range(nr)]
    return routine_page("images/along_panel").fill(
        FUNCTION=f"panel_{rows}",
        SUMS=", ".join(f"{s} = {{0}}" for s in sums),
        ROWS=[f"const T *a{i}p = a + {i} * pitch;" for i in range(rows)],
        COLUMNS=[f"const T *b{j}p = b + at[{j}];" for j in range(nr)],
        BODY=products("*(const U *)({})"),
        REST=products("part({}, live)"),
        LANES=lanes,
        NUMBERS=", ".join(map(str, range(lanes))),
        TREE=tree,
        STORED=[f"*(U *)(total + {k * lanes}) = {t};" for k, t in enumerate(totals)],
        TOTALS=len(totals) * lanes,
        WRITES=[f"{place} = total[{k}];" for k, place in enumerate(places)],
        ADDS=[f"{place} += total[{k}];" for k, place in enumerate(places)],
    )


def _totals(sums: list[str], lanes: int) -> tuple[list[str], list[str]]:
    """(statements that add up the lanes of each of these vectors, vectors of totals in their order)."""
    lines: list[str] = []
    totals = []
    for first in range(0, len(sums), lanes):
        group = sums[first : first + lanes]
        level = 0
        segment = lanes  # lanes that belong to one sum
        while segment > 1:
            half, joined = segment // 2, []
            for k in range(0, len(group), 2):
                x, y = group[k], group[k + 1] if k + 1 < len(group) else group[k]
                low = list(_halves(lanes, segment, 0))
                name = f"t{first}_{level}_{k // 2}"
                high = [i + half for i in low]
                low_half, high_half = (", ".join(map(str, half_of)) for half_of in (low, high))
                lines.append(
                    f"V {name} = __builtin_shufflevector({x}, {y}, {low_half}) + __builtin_shufflevector({x}, {y}, {high_half});"
                )
                joined.append(name)
            group, level, segment = joined, level + 1, half
        totals.append(group[0])
    return lines, totals


def _halves(lanes: int, segment: int, start: int) -> Iterator[int]:
    """Numbers of the lanes in the first halves of all segments of two vectors, one vector after the other."""
    for first in range(0, 2 * lanes, segment):
        yield from range(first + start, first + start + segment // 2)
