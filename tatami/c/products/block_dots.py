"""The routine of a product of integers of 8 bits with integers of 4 or 8 bits, both with a scale for each block of k.

    tatami_blockdots_<t>_<mr>x<nr>_<lanes>   buffers q, codes, c, row scales, scales, zeros; sizes rows, pitch of c, depth, block
        c[rows][nr] = sum over k of (q * row scale) * ((codes - zero) * scale). q is [rows][depth] of i8, -127 to 127, row scales
        are [rows][ceil(depth/block)]; the others are slivers as in c/products/codes.py. depth and block are multiples of 8.

<t> is f32i4, then `z` if there are zero points. Codes plus 8 are unsigned, so that one instruction multiplies bytes and adds
pairs; the sum of 8 * q leaves again. Sums of a block are exact; they are made floats and scaled once.

f32i4v, f32i4zv and f32i8v use an instruction that multiplies four bytes and adds them to 32 bits (VNNI): codes are made bytes
once for all rows. A block is then at most KC steps.
"""

from __future__ import annotations

import re

from tatami.c.ir import Unit
from tatami.c.products.elements import element_text, routine_page
from tatami.core.custom.verbatim import VerbatimCode
from tatami.core.numbers.codes import MOST_BLOCK

_NAME = re.compile(r"tatami_blockdots_f32(i4z?v?|i8v)_(\d+)x(\d+)_(\d+)")
KC = MOST_BLOCK
"""Steps of k of codes that are made bytes together: with 32 columns half of L1."""
FLUSH = 32
"""Steps of k whose sums fit 16 bits: 8 pairs of at most 2 * 15 * 127 in each lane."""
ROWS = {16: 4}
"""Rows that are multiplied together, by lanes: as many as registers hold; 2 for others."""
REFUSED = 3
"""Result of a routine for operands that it does not take."""
QUAD_ROWS = {16: 6}
"""The same for bytes in fours."""


def block_dots_unit(name: str) -> Unit | None:
    """The unit that defines routine `name`; None for other names."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    kind, nr, lanes = found[1], int(found[3]), int(found[4])
    make = _quads if kind.endswith("v") else _pairs
    return Unit(VerbatimCode(make(name, kind, nr, lanes)), contract=True)


def _types(lanes: int) -> str:
    has = {16: "__AVX512BW__", 8: "__AVX2__"}.get(lanes, "")
    return routine_page("blocks/block_dots_types").fill(ELEMENT=element_text("f32i8", lanes), HAS=has, WIDE=4 * lanes)


def _pairs(name: str, kind: str, nr: int, lanes: int) -> str:
    """Bytes multiplied in pairs, sums of 16 bits."""
    most = ROWS.get(lanes, 2)
    heights = range(1, most + 1)
    return routine_page("blocks/block_dots").fill(
        TYPES=_types(lanes),
        PANELS=[_panel(h, nr, lanes, "z" in kind) for h in heights],
        NAME=name,
        MOST=most,
        CASES=[f"case {h}: rows_{h}({_ARGUMENTS}); break;" for h in heights],
    )


_ARGUMENTS = "q, b, row_scales, scales, zeros, c, cp, depth, block, blocks"


def _quads(name: str, kind: str, nr: int, lanes: int) -> str:
    """Bytes multiplied in fours, sums of 32 bits."""
    most, is_low = QUAD_ROWS.get(lanes, 2), kind != "i8v"
    few = range(1, ROWS.get(lanes, 2) + 1)
    own = "own, depth, bytes, less, f, blocks, s, to, cp, steps, block, k == 0"
    return routine_page("blocks/quad_dots").fill(
        TYPES=_types(lanes),
        LOW=[_panel(h, nr, lanes, "z" in kind) if is_low else _byte_panel(h, nr, lanes) for h in few],
        PANELS=[_quad_panel(h, nr, lanes) for h in range(1, most + 1)],
        CODE="W" if is_low else "int8_t",
        GROUP=8 if is_low else 1,
        KC=KC,
        NR=nr,
        LANES=lanes,
        VECTORS=nr // lanes,
        NIBBLES=is_low,
        BYTES=not is_low,
        ZEROS="z" in kind,
        NAME=name,
        REFUSED=REFUSED,
        FEW=len(few),
        FEWS=[f"case {h}: rows_{h}({_ARGUMENTS}); break;" for h in few],
        MOST=most,
        CASES=[f"case {h}: quads_{h}({own}); break;" for h in range(1, most + 1)],
    )


STEPS = 4
"""Steps of k in the body of the loop over codes of 8 bits that meet few rows; their sums are two for each sum of a single row, for
the latency of a multiply-add."""


def _byte_panel(rows: int, nr: int, lanes: int) -> str:
    vectors, sets = range(nr // lanes), 2 if rows == 1 else 1
    places = [(i, v) for i in range(rows) for v in vectors]
    adds, scaled = [], []
    for u in range(STEPS):
        wide = " ".join(f"const V x{v} = wide(b + {u * nr + v * lanes});" for v in vectors)
        products = " ".join(
            f"{{ const T s = q{i}[here + {u}]; {' '.join(f'p{i}_{v}_{u % sets} += s * x{v};' for v in vectors)} }}"
            for i in range(rows)
        )
        adds.append(f"{{ {wide} {products} }}")
    for i, v in places:
        whole = " + ".join(f"p{i}_{v}_{u}" for u in range(sets))
        scaled.append(f"c{i}_{v} += ({whole}) * (*(const U *)(scales + {v * lanes}) * row_scales[{i} * blocks + at]);")
    return routine_page("blocks/byte_dots_panel").fill(
        FUNCTION=f"rows_{rows}",
        NR=nr,
        SUMS=", ".join(f"c{i}_{v} = {{0}}" for i, v in places),
        PARTS=", ".join(f"p{i}_{v}_{u} = {{0}}" for i, v in places for u in range(sets)),
        POINTERS=[f"const int8_t *q{i} = q + {i} * depth;" for i in range(rows)],
        STEPS=STEPS,
        ADDS=adds,
        SCALED=scaled,
        WRITES=[f"*(U *)(c + {i} * cp + {v * lanes}) = c{i}_{v};" for i, v in places],
    )


def _quad_panel(rows: int, nr: int, lanes: int) -> str:
    vectors = range(nr // lanes)
    places = [(i, v) for i in range(rows) for v in vectors]
    adds, scaled = [], []
    for i in range(rows):
        products = " ".join(f"p{i}_{v} = dot4(p{i}_{v}, u, w{v});" for v in vectors)
        adds.append(f"{{ const E u = signs ^ *(const Q *)(q{i} + k + t); {products} }}")
        products = " ".join(
            f"c{i}_{v} += __builtin_convertvector(p{i}_{v}, V) * (*(const U *)(scales + {v * lanes}) * g);" for v in vectors
        )
        scaled.append(f"{{ const T g = f[{i} * blocks]; {products} }}")
    return routine_page("blocks/quad_dots_panel").fill(
        FUNCTION=f"quads_{rows}",
        NR=nr,
        VECTORS=len(vectors),
        SUMS=", ".join(f"c{i}_{v} = {{0}}" for i, v in places),
        READS=[f"c{i}_{v} = *(const U *)(c + {i} * cp + {v * lanes});" for i, v in places],
        POINTERS=[f"const int8_t *q{i} = q + {i} * depth;" for i in range(rows)],
        PARTS=[f"E p{i}_{v} = less[{v}];" for i, v in places],
        CODES=[f"const E w{v} = w[{v}];" for v in vectors],
        ADDS=adds,
        SCALED=scaled,
        WRITES=[f"*(U *)(c + {i} * cp + {v * lanes}) = c{i}_{v};" for i, v in places],
    )


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
    return routine_page("blocks/block_dots_panel").fill(
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
