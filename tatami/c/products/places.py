"""The routine of a convolution whose rows are places of an image, read where they lie.

    tatami_places<m>_<t>_<mr>x<nr>_<lanes>   buffers a, b, c, table; sizes columns, pitch, k0, k1
        c[m][columns][nr] (+)= sum over k0 <= k < k1 of a[row * pitch + column + table[k]] * b[k - k0]: k0 = 0 overwrites c. a
        has neighbouring places of m rows of an image, `pitch` elements apart; the table counts k from 0. b is [k1-k0][nr].

Columns are taken in balanced panels whose places, of all m rows, are at most mr. With m above 1 all columns are one panel, so
that rows of c follow each other. Elements are those of c/products/microkernel.py; a is the operand that is broadcast.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tatami.c.ir import Unit
from tatami.c.products.dots import DOTS
from tatami.c.products.elements import C_TYPES, element_text, routine_page
from tatami.core.custom.verbatim import VerbatimCode

_NAME = re.compile(r"tatami_places([1-9])_([a-z]\d+(?:x\d[a-z]*)?)_(\d+)x(\d+)_(\d+)")
AHEAD = 64
"""Prefetch distance in rows of b, into L1."""
_CHAIN = 8
"""Minimum number of independent sums in flight: the latency of a multiply-add times its ports."""
C_BYTES = 4
"""Bytes of an element, whose lines are prefetched."""
_REFUSED = 3
"""Fault code of a call with arguments that the routine does not support, TATAMI_ARGUMENT of tatami.h."""


def places_unit(name: str, columns: Iterable[int] | None = None) -> Unit | None:
    """The unit that defines routine `name`, with the panels that calls with these numbers of columns need (None: all of them);
    None for other names."""
    found = _NAME.fullmatch(name)
    if found is None or found[2] not in C_TYPES:
        return None
    runs, element, mr, nr, lanes = int(found[1]), found[2], *map(int, found.groups()[2:])
    most = mr // runs
    if most < 1 or nr % lanes:
        return None
    needed = set(range(1, most + 1))
    if columns is not None:
        needed = {w for n in columns if n for p in [-(-n // most)] for w in (n // p, -(-n // p))}
    text = routine_page("images/places").fill(
        ELEMENT=element_text(element, lanes),
        TILES=[_tile(width, runs, nr, lanes, element in DOTS) for width in sorted(needed)],
        NAME=name,
        MOST=most,
        LESS=most - 1,
        ONE_PANEL=runs > 1,
        CASES=[f"case {w}: tile_{w}(k1 - k0, a, table, b, c, k0 == 0, pitch); break;" for w in sorted(needed)],
        REFUSED=_REFUSED,
        NEXT=nr,
    )
    return Unit(VerbatimCode(text), contract=True)


def _tile(width: int, runs: int, nr: int, lanes: int, dots: bool) -> str:
    """The function of one panel: `width` columns of `runs` rows. Few sums are kept in several parts each, which take turns."""
    vectors, rows = range(nr // lanes), range(width * runs)
    sets = min(4, -(-_CHAIN // (len(rows) * len(vectors))))

    def sums(part: int) -> list[str]:
        return [f"c{i}_{v}" if part == 0 else f"c{i}_{v}_{part}" for i in rows for v in vectors]

    def step(part: int) -> list[str]:
        lines = [f"const T *p0 = a + table[k + {part}];", *(f"const T *p{r} = p{r - 1} + pitch;" for r in range(1, runs))]
        lines += [f"const V b{v} = *(const U *)(b + {part * nr + v * lanes});" for v in vectors]
        for i in rows:
            own = sums(part)[i * len(vectors) : (i + 1) * len(vectors)]
            element = f"p{i // width}[{i % width}]"
            if dots:
                adds = " ".join(f"{n} = dot({n}, s, b{v});" for v, n in enumerate(own))
                lines.append(f"{{ const V s = (V){{0}} + {element}; {adds} }}")
            else:
                lines.append(f"{{ const T s = {element}; {' '.join(f'{n} += s * b{v};' for v, n in enumerate(own))} }}")
        return ["{", *(f"  {line}" for line in lines), "}"]

    every = [n for part in range(sets) for n in sums(part)]
    line = 64 // C_BYTES
    return routine_page("images/places_panel").fill(
        FUNCTION=f"tile_{width}",
        SUMS=", ".join(f"{n} = {{0}}" for n in every),
        STEPS=sets,
        LESS=sets - 1,
        BODY=[x for part in range(sets) for x in step(part)],
        AHEAD=[f"__builtin_prefetch(b + {AHEAD * nr + at});" for at in range(0, sets * nr, line)],
        NEXT=sets * nr,
        REST=sets > 1,
        ONE=step(0),
        NR=nr,
        JOINS=[f"{n} += {m};" for part in range(1, sets) for n, m in zip(sums(0), sums(part))],
        WRITES=[f"*(U *)(c + {i * nr + v * lanes}) = c{i}_{v};" for i in rows for v in vectors],
        ADDS=[f"*(U *)(c + {i * nr + v * lanes}) += c{i}_{v};" for i in rows for v in vectors],
    )
