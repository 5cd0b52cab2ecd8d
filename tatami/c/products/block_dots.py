"""The routine of a product of integers of 8 and 4 bits, both with a scale for each block of k.

    tatami_blockdots_<t>_<mr>x<nr>_<lanes>   buffers q, codes, c, row scales, scales, zeros; sizes rows, pitch of c, depth, block
        c[rows][nr] = sum over k of (q * row scale) * ((codes - zero) * scale). q is [rows][depth] of i8, -127 to 127, row scales
        are [rows][ceil(depth/block)]; the others are slivers as in c/products/codes.py. depth and block are multiples of 8.

<t> is f32i4, then `z` if there are zero points. Codes plus 8 are unsigned, so that one instruction multiplies bytes and adds
pairs; the sum of 8 * q leaves again. Sums of a block are exact; they are made floats and scaled once.
"""

from __future__ import annotations

import re

from tatami.c.ir import Unit
from tatami.c.products.elements import element_text, routine_page
from tatami.core.custom.verbatim import VerbatimCode

_NAME = re.compile(r"tatami_blockdots_f32i4(z?)_(\d+)x(\d+)_(\d+)")
FLUSH = 32
"""Steps of k whose sums fit 16 bits: 8 pairs of at most 2 * 15 * 127 in each lane."""
ROWS = {16: 4}
"""Rows that are multiplied together, by lanes: as many as registers hold; 2 for others."""


def block_dots_unit(name: str) -> Unit | None:
    """The unit that defines routine `name`; None for other names."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    has_zeros, nr, lanes = bool(found[1]), int(found[3]), int(found[4])
    most = ROWS.get(lanes, 2)
    heights = range(1, most + 1)
    arguments = "q, b, row_scales, scales, zeros, c, cp, depth, block, blocks"
    text = routine_page("block_dots").fill(
        ELEMENT=element_text("f32i8", lanes),
        HAS={16: "__AVX512BW__", 8: "__AVX2__"}.get(lanes, ""),
        WIDE=4 * lanes,
        PANELS=[_panel(h, nr, lanes, has_zeros) for h in heights],
        NAME=name,
        MOST=most,
        CASES=[f"case {h}: rows_{h}({arguments}); break;" for h in heights],
    )
    return Unit(VerbatimCode(text), contract=True)


def _panel(rows: int, nr: int, lanes: int, has_zeros: bool) -> str:
    vectors = range(nr // lanes)
    places = [(i, v) for i in range(rows) for v in vectors]

    def zeroed(*names: str) -> str:
        return ", ".join(f"{n} = {{0}}" for n in names)

    codes, adds, scaled = [], [], []
    for v in vectors:
        codes.append(f"const E w{v} = *(const EU *)(b + {v * lanes}) ^ signs;")
        codes.append(f"const E lo{v} = w{v} & low, hi{v} = w{v} >> 4 & low;")
    for i in range(rows):
        steps = f"const E s = (E){{0}} + *(const Q *)q{i}, t = (E){{0}} + *(const Q *)(q{i} + 4);"
        products = " ".join(f"h{i}_{v} += madd8(lo{v}, s) + madd8(hi{v}, t);" for v in vectors)
        adds.append(f"{{ {steps} {products} g{i} += madd8(eights, s) + madd8(eights, t); q{i} += 8; }}")
        scaled.append(f"{{ const T f = row_scales[{i} * blocks + at];")
        if has_zeros:
            scaled.append(f"  const V sum = __builtin_convertvector(e{i}, V) * 0.125f;")
        for v in vectors:
            value = f"__builtin_convertvector(p{i}_{v}, V)"
            value = f"({value} - wide(zeros + {v * lanes}) * sum)" if has_zeros else value
            scaled.append(f"  c{i}_{v} += {value} * (*(const U *)(scales + {v * lanes}) * f);")
        scaled.append("}")
    added = [f"p{i}_{v} += madd16(h{i}_{v} - g{i});" for i, v in places]
    sums = [f"e{i}" for i in range(rows)] if has_zeros else []
    return routine_page("block_dots_panel").fill(
        FUNCTION=f"rows_{rows}",
        NR=nr,
        FLUSH=FLUSH,
        SUMS=zeroed(*(f"c{i}_{v}" for i, v in places)),
        PARTS=zeroed(*(f"p{i}_{v}" for i, v in places), *sums),
        HALVES=zeroed(*(f"h{i}_{v}" for i, v in places), *(f"g{i}" for i in range(rows))),
        POINTERS=[f"const int8_t *q{i} = q + {i} * depth;" for i in range(rows)],
        CODES=codes,
        ADDS=adds,
        ADDED=[*added, *(f"e{i} += madd16(g{i});" for i in range(rows) if has_zeros)],
        SCALED=scaled,
        WRITES=[f"*(U *)(c + {i} * cp + {v * lanes}) = c{i}_{v};" for i, v in places],
    )
