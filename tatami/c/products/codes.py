"""The routine of a product with codes: integers of 4 or 8 bits with a scale, perhaps a zero point, for each block of k.

    tatami_codes_<t>_<mr>x<nr>_<lanes>      buffers a, codes, c, wide, scales, zeros; sizes rows, depth, pitch of c, depth, block, kc
        c[rows][nr] = sum over k < depth of a * (codes - zeros) * scales, c with rows of its own pitch. a is ceil(rows/mr)
        balanced panels [depth][r]; codes is a sliver [depth][nr], scales and zeros are slivers [ceil(depth/block)][nr] of fp32
        and i8. `wide` has room for kc x nr floats.
    tatami_codeslie_<t>_<mr>x<nr>_<lanes>   the same for a as a matrix [rows][pitch]; the second size is its pitch

<t> is f32i8 or f32i4, then `s` if there are scales and `z` if there are zero points; pointers of what there is not are not
read. Codes of 4 bits are signed, eight of k in an element of 32 bits (nibble.c): [ceil(depth/8)][nr]; a block is then a
multiple of 8, or all of k, and kc is a multiple of the block, or of 8 where one block is all of k. Up to mr rows each code is widened in registers, and memory is read once, in its order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tatami.c.ir import Unit
from tatami.c.products.elements import element_text, routine_page
from tatami.c.products.microkernel import tile_function
from tatami.core.custom.verbatim import VerbatimCode

_NAME = re.compile(r"tatami_(codes|codeslie)_f32i([48])(s?)(z?)_(\d+)x(\d+)_(\d+)")
GROUP = 8
"""Codes of 4 bits in an element of 32 bits."""
APART = 2
"""Maximum rows whose sums of a block are kept apart: scales are then multiplied once per block and row, instead of per code."""
SETS = 2
"""Partial sums per sum of a single row, for the latency of a multiply-add."""
BYTES_AT_ONCE = 4
"""Steps of k in the body of the loop over codes of 8 bits."""
_REFUSED = 3


@dataclass(frozen=True)
class _Codes:
    """Everything that the routine's text depends on."""

    name: str
    lies: bool
    bits: int
    scales: bool
    zeros: bool
    mr: int
    nr: int
    lanes: int

    @property
    def vectors(self) -> range:
        return range(self.nr // self.lanes)

    @property
    def b_type(self) -> str:
        return "W" if self.bits == 4 else "B"


def codes_unit(name: str) -> Unit | None:
    """The unit that defines routine `name`, for every number of rows; None for other names."""
    found = _codes(name)
    return None if found is None else _unit(found, range(1, found.mr + 1), range(1, found.mr + 1))


def codes_units(name: str, rows: Iterable[int]) -> dict[str, Unit]:
    """File -> unit for calls with these `rows`: only the heights of their panels are compiled. Empty for other names."""
    found = _codes(name)
    if found is None:
        return {}
    rows = sorted(set(rows))
    low = [n for n in rows if 0 < n <= found.mr]
    high = sorted({h for n in rows if n > found.mr for p in [-(-n // found.mr)] for h in (n // p, -(-n // p))})
    return {f"{name}.c": _unit(found, low, high)}


def _codes(name: str) -> _Codes | None:
    m = _NAME.fullmatch(name)
    if m is None:
        return None
    return _Codes(name, m[1] == "codeslie", int(m[2]), bool(m[3]), bool(m[4]), int(m[5]), int(m[6]), int(m[7]))


def _unit(c: _Codes, low: Sequence[int], high: Sequence[int]) -> Unit:
    kind = "lies" if c.lies else "into"
    tile = (c.mr, c.nr, c.lanes)
    start, step, more = ("k0", "r * pitch", ", pitch") if c.lies else ("k0 * r", "r * depth", "")
    arguments = f"wide_codes, to, k0 == 0, wide_codes, 1{more}, {c.nr}, cp"
    own = f"pitch, codes + k0{f' / {GROUP}' if c.bits == 4 else ''} * {c.nr}, scales + q, zeros + q, c, cp, k1 - k0, block, k0 == 0"
    nibble = routine_page("nibble").fill(WIDE=4 * c.lanes, LOOKS_UP=c.lanes == 16) if c.bits == 4 else ""
    text = routine_page("codes").fill(
        ELEMENT=element_text("f32i8", c.lanes),
        NIBBLE=nibble,
        LOW=[_low_panel(c, rows) for rows in low],
        TILES=[f"static __attribute__((noinline)) {tile_function(f'tile_{rows}', kind, rows, tile)}" for rows in high],
        NAME=c.name,
        B=c.b_type,
        NR=c.nr,
        GROUP=GROUP,
        LANES=c.lanes,
        ZEROS=c.zeros,
        SCALES=c.scales,
        MR=c.mr,
        LESS=c.mr - 1,
        LOWS=[f"case {rows}: low_{rows}(a + {'k0' if c.lies else f'k0 * {rows}'}, {own}); break;" for rows in low],
        CASES=[f"case {rows}: tile_{rows}(k1 - k0, row + {start}, {arguments}); break;" for rows in high],
        REFUSED=_REFUSED,
        STEP=step,
    )
    return Unit(VerbatimCode(text), contract=True)


def _low_panel(c: _Codes, rows: int) -> str:
    """The function of a panel that meets codes in registers."""
    return _LowPanel(c, rows).text()


class _LowPanel:
    """The text of a panel of `rows` that meets codes in registers."""

    def __init__(self, c: _Codes, rows: int) -> None:
        self.c, self.rows = c, rows
        self.apart = c.scales and rows <= APART
        self.sets = SETS if rows == 1 else 1
        self.is_held = self.apart or self.sets > 1
        self.group = GROUP if c.bits == 4 else BYTES_AT_ONCE
        self.places = [(i, v) for i in range(rows) for v in c.vectors]
        self.pointers = [f"a{i}" for i in range(rows)] if c.lies else ["a0"]

    def text(self) -> str:
        """The C text of the function."""
        c = self.c
        step_of_b = c.nr if c.bits == 4 else self.group * c.nr
        body = [line for u in range(self.group) for line in self.step(str(u), u, u % self.sets)]
        words = [f"const E w{v} = *(const E *)(b + {v * c.lanes});" for v in c.vectors] if c.bits == 4 else []
        one = self.step(f"(int)(t % {GROUP})", 0, 0)
        zeros = [f"const V z{v} = wide(zeros + {v * c.lanes});" for v in c.vectors]
        scales = [f"const V s{v} = *(const U *)(scales + {v * c.lanes});" for v in c.vectors]
        parts = ", ".join(f"{self.part(i, v, u)} = {{0}}" for i, v in self.places for u in range(self.sets))
        return routine_page("codes_panel").fill(
            FUNCTION=f"low_{self.rows}",
            B=c.b_type,
            SUMS=", ".join(f"c{i}_{v} = {{0}}" for i, v in self.places),
            ZEROS=[*zeros, f"zeros += {c.nr};"] if c.zeros else [],
            SCALES=[*scales, f"scales += {c.nr};"] if c.scales else [],
            PARTS=[f"V {parts};"] if self.is_held else [],
            POINTERS=[f"const T *{n} = a{f' + {n[1:]} * pitch' if n != 'a0' else ''};" for n in self.pointers],
            STEPS=self.group,
            BODY=[*words, *body, f"{self.on(self.group)} b += {step_of_b};"],
            ONE=[*words, *one, f"{self.on(1)}{'' if c.bits == 4 else f' b += {c.nr};'}"],
            LAST=[f"if (steps % {GROUP}) b += {c.nr};"] if c.bits == 4 else [],
            JOINS=self.joins() if self.is_held else [],
            WRITES=[f"*(U *)(c + {i} * cp + {v * c.lanes}) = c{i}_{v};" for i, v in self.places],
            ADDS=[f"*(U *)(c + {i} * cp + {v * c.lanes}) += c{i}_{v};" for i, v in self.places],
        )

    def part(self, row: int, vector: int, which: int) -> str:
        """The sum of a block, or the sum itself if none are held apart."""
        return f"p{row}_{vector}_{which}" if self.is_held else f"c{row}_{vector}"

    def step(self, nibble: str, u: int, which: int) -> list[str]:
        """One step of k, `u` after the pointers, added to the sums `which`. `nibble`: the place of its code in an element."""
        c, out = self.c, []
        for v in c.vectors:
            code = f"nibble(w{v}, {nibble})" if c.bits == 4 else f"wide(b + {u * c.nr + v * c.lanes})"
            code += f" - z{v}" if c.zeros else ""
            out.append(f"  V x{v} = {f'({code}) * s{v}' if c.scales and not self.apart else code};")
        for i in range(self.rows):
            element = f"a{i}[{u}]" if c.lies else f"a0[{u * self.rows + i}]"
            adds = " ".join(f"{self.part(i, v, which)} += s * x{v};" for v in c.vectors)
            out.append(f"  {{ const T s = {element}; {adds} }}")
        return ["{", *out, "}"]

    def on(self, steps: int) -> str:
        """The pointers along a moved on."""
        return " ".join(f"{n} += {steps if self.c.lies else steps * self.rows};" for n in self.pointers)

    def joins(self) -> list[str]:
        """The sums of a block added up, and to the sums."""
        sets = [f"{self.part(i, v, 0)} += {self.part(i, v, u)};" for i, v in self.places for u in range(1, self.sets)]
        return [*sets, *(f"c{i}_{v} += {self.part(i, v, 0)}{f' * s{v}' if self.apart else ''};" for i, v in self.places)]
