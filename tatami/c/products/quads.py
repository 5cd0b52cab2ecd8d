"""The routine of a window whose numbers of 8 bits are taken four columns at once.

    tatami_quads_<t>_<h>x<q>_<s>x<r>_<d>_<lanes>   buffers a, w, c; sizes rows, columns, pitch
        c[y][x] = sum over i < h, j < q of dot(a[(s*y + d*i) * pitch + r*x + 4*j …], w[i][j])

a holds bytes, w and c elements of 32 bits; `columns` results of a row follow each other in c, and so do rows. The last vector of a
row begins as many columns before its end as it has lanes; if there are fewer, it runs into the next row, which is stored after it, and
past the last row. So c has room for `lanes` more, and a for 128 bytes. <t> is a kind of groups of c/products/dots.py.
"""

from __future__ import annotations

import re

from tatami.c.ir import Unit
from tatami.c.products.dots import DOTS, FLOATS
from tatami.c.products.elements import element_text, routine_page
from tatami.core.custom.verbatim import VerbatimCode

_NAME = re.compile(r"tatami_quads_([a-z]\d+(?:x\d[a-z]*))_(\d+)x(\d+)_(\d+)x([12])_(\d+)_(4|8|16)")
ROWS = 4
"""Rows of results that share the quads of an operand row."""


def quads_unit(name: str) -> Unit | None:
    """The unit that defines routine `name`; None for other names."""
    found = _NAME.fullmatch(name)
    if found is None or found[1] not in DOTS or found[1] == FLOATS:
        return None
    element = found[1]
    high, wide, down, step, apart, lanes = map(int, found.groups()[1:])
    text = routine_page("images/quads").fill(
        ELEMENT=element_text(element, lanes),
        QUAD=_quad(step, lanes),
        NAME=name,
        WEIGHTS=[f"const V w{i}_{j} = same(w + {i * wide + j});" for i in range(high) for j in range(wide)],
        LANES=lanes,
        STEP=step,
        ROWS=ROWS,
        DOWN=down,
        SEVERAL=_rows(ROWS, high, wide, down, apart),
        ONE=_rows(1, high, wide, down, apart),
    )
    return Unit(VerbatimCode(text), contract=True)


def _rows(count: int, high: int, wide: int, down: int, apart: int) -> list[str]:
    """`count` rows of a vector: each operand row's quads are made once and used by all rows whose windows have it."""
    lines = [f"V {', '.join(f'c{y} = {{0}}' for y in range(count))};"]
    users: dict[int, list[tuple[int, int]]] = {}
    for y in range(count):
        for i in range(high):
            users.setdefault(y * down + i * apart, []).append((y, i))
    for row, of in sorted(users.items()):
        for j in range(wide):
            adds = " ".join(f"c{y} = dot(c{y}, s, w{i}_{j});" for y, i in of)
            lines.append(f"{{ const V s = quad(p + {row} * pitch + {4 * j}); {adds} }}")
    return [*lines, *(f"*(U *)(to + {y} * columns) = c{y};" for y in range(count))]


def _quad(step: int, lanes: int) -> str:
    """C text of ``quad(p)``: the four bytes from ``p + step * lane`` on in each lane. For neighbours
    by a shuffle of bytes in each 128 bits, which first get the bytes that they need; else by loads that are widened and joined."""
    vector = 4 * lanes
    head = "static inline __attribute__((always_inline)) V quad(const B *p) {\n"
    shuffle = ""
    if step == 1 and lanes in (8, 16):
        part = vector // 2
        near = ", ".join(str(lane % 4 + t + (0 if lanes == 16 else lane // 4 * 4)) for lane in range(lanes) for t in range(4))
        pairs = ", ".join(str(lane // 4 + t % 2) for lane in range(0, lanes, 4) for t in range(4))
        load = (
            '  __asm__("vpermd %g1, %2, %0" : "=v"(out) : "v"(from), "v"(pairs));\n'
            if lanes == 16
            else '  __asm__("vbroadcasti128 %1, %0" : "=x"(out) : "m"(*(const W *)p));\n'
        )
        shuffle = (
            f"#if defined({'__AVX512BW__' if lanes == 16 else '__AVX2__'})\n"
            f"  typedef B W __attribute__((vector_size({part}), aligned(1), may_alias));\n"
            f"  typedef B X __attribute__((vector_size({vector})));\n  const X near = {{{near}}};\n"
            + (f"  const V pairs = {{{pairs}}};\n  const W from = *(const W *)p;\n" if lanes == 16 else "")
            + f"  V out;\n{load}"
            '  __asm__("vpshufb %1, %0, %0" : "+v"(out) : "v"(near));\n  return out;\n#else\n'
        )
    unit, count = ("uint8_t", 4) if step == 1 else ("uint16_t", 2)
    size = 1 if step == 1 else 2
    joined = " | ".join(
        f"__builtin_convertvector(*(const N *)(p + {size * t}), V)" + (f" << {8 * size * t}" if t else "") for t in range(count)
    )
    plain = f"  typedef {unit} N __attribute__((vector_size({size * lanes}), aligned(1), may_alias));\n  return {joined};\n"
    return f"{head}{shuffle}{plain}" + ("#endif\n}" if shuffle else "}")
