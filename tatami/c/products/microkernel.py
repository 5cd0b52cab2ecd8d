"""The routines that contractions call: a register-tiled micro-kernel and a transposing pack (notes: cpu §1).

They depend only on element type, tile and vector width, so each is one unit, compiled once per machine; sizes
are arguments. The name says which: ``tatami_gemm_f32_12x32_16`` is fp32, 12 rows by 32 columns, 16 lanes;
``tatami_pack_f32_16`` transposes fp32 in blocks of 16. ``tatami_gemm_i16x2_12x32_16`` processes two steps of k at once as
one element of 32 bits, and k counts such elements (c/products/dots.py). C form: ``int name(void* const* buffers, const int64_t* sizes)``.

    tatami_gemm_<t>_<mr>x<nr>_<lanes>    buffers a, b, c; sizes rows, depth, k0, k1
        c[rows][nr] += a * b over k0 <= k < k1 (k0 = 0: c is overwritten). a is ceil(rows/mr) balanced panels
        [depth][r], panel p from row rows*p/np on; b is [k1-k0][nr]. Each block of k is summed from zero in order of k
        and then added, whatever the threads do.
    tatami_rows_<t>_<mr>x<nr>_<lanes>    buffers a, b, c; sizes rows, pitch, k0, k1
        The same for a as [depth][pitch] instead of panels: its first `rows` columns are the rows of c.
    tatami_into_<t>_<mr>x<nr>_<lanes>    buffers a, b, c; sizes rows, depth, k0, k1, pitch of b, pitch of c
        tatami_gemm for b and c that are nr columns of matrices with longer rows.
    tatami_lies_<t>_<mr>x<nr>_<lanes>    buffers a, b, c; sizes rows, pitch of a, k0, k1, pitch of b, pitch of c
        tatami_into for a as a matrix [rows][pitch] instead of panels: all three are used in place.
    tatami_table_<t>_<mr>x<nr>_<lanes>   buffers a, b, c, table; sizes rows, depth, k0, k1
        tatami_gemm for b whose row k begins at b[table[k]]; k counts from 0, not from k0.
    tatami_wide_<t>_<mr>x<nr>_<lanes>    buffers a, b, c; sizes rows, depth, k0, k1, pitch of b, pitch of c, columns
        tatami_into for at most mr rows and any number of columns: memory is read row by row of b, in its order.
    tatami_slivers_<t>_<mr>x<nr>_<lanes> buffers to, from; sizes rows, columns, pitch, each
        Copies columns of a matrix as slivers, which begin `each` elements apart: to[s*each + k*nr + j] =
        from[k*pitch + s*nr + j] for k < rows; the last sliver is filled up with zeros. mr rows at a time go along all slivers.
    tatami_pack_<t>_<lanes>              buffers to, from; sizes columns, pitch, stride, count
        to[k*pitch + j] = from[j*stride + k] for j < columns, k < count; nothing else is written. Elements of `from` that are narrower
        (`f32b16` and the like) are widened.

Each height of a panel is a function of its own. If the calls of a program state their possible rows, few heights occur,
and only those are compiled (`panel_units`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tatami.c.ir import Unit
from tatami.c.products.dots import DOTS
from tatami.c.products.elements import C_TYPES, NARROW, element_text, routine_page
from tatami.c.products.packs import pack_text, slivers_text
from tatami.core.custom.verbatim import VerbatimCode

_NAME = re.compile(
    r"tatami_(gemm|rows|into|lies|table|wide|slivers|pack)_([a-z]\d+(?:x\d[a-z]*|[iu]8|[hb]16)?)_(?:(\d+)x(\d+)_)?(\d+)"
)
K_UNROLL = 4
"""Maximum number of steps of k per iteration."""
_FULL = 16
"""FMAs per iteration above which loop overhead is hidden; more unrolling only costs compile time. For a matrix operand, this
many for every two row pointers, whose increments are overhead too."""
PARTS = 4
"""Steps of k per row of the next block that a panel prefetches, so that this many panels share the block; if there are fewer
panels, each prefetches several rows at once."""
GROUP = 8
"""Rows of b that the wide kernel reads in parallel: as many streams as a prefetcher follows, and ways of L1."""
FEW = 3
"""A panel of at most mr / FEW rows, a low one, does not prefetch the next block: it waits for loads, and these prefetches would
delay them. Measured: 1.2 to 3 times the rate from L2, the same or better from L3."""
AHEAD = 16
"""Prefetch distance in rows of b."""
STREAM_AHEAD = 8 << 10
"""Prefetch distance in bytes of a low panel along a sliver: one line per iteration, into L2. Its loads are one stream in the
order of memory, which processors prefetch themselves up to the end of a page, and a prefetch of each line takes the buffers of
loads. Measured with one row: from L3 92 GB/s, with a prefetch of each line 73, without any 94; from memory 22, 18 and 21."""
_REFUSED = 3
"""Fault code of a call with arguments that the routine does not support, TATAMI_ARGUMENT of tatami.h."""
_CHAIN = 8
"""Minimum number of independent sums in flight: the latency of a multiply-add times its ports."""


@lru_cache(maxsize=64)
def routine_unit(name: str) -> Unit | None:
    """The unit that defines routine `name`; None for other names."""
    found = _parts_of(name)
    if found is None:
        return None
    kind, element, lanes = found[1], found[2], int(found[5])
    if kind == "pack":
        return Unit(VerbatimCode(pack_text(name, element, lanes)))
    t = _tile_of(found)
    if kind == "slivers":
        return Unit(VerbatimCode(slivers_text(name, element, t.mr, t.nr, t.lanes)))
    text = _wide_text if kind == "wide" else _gemm_text
    return Unit(VerbatimCode(text(name, element, t, range(1, t.mr + 1))), contract=True)


def panel_units(name: str, rows: Iterable[int]) -> dict[str, Unit]:
    """File -> unit of a micro-kernel for calls with these `rows`: each height of their panels is a unit, which programs share,
    and the routine refuses others. Empty for other names, and if no call has rows."""
    found = _parts_of(name)
    if found is None or found[1] in ("pack", "slivers"):
        return {}
    t, element = _tile_of(found), found[2]
    heights = sorted({h for n in rows if n for p in [-(-n // t.mr)] for h in (n // p, -(-n // p))})
    if not heights:
        return {}
    if t.kind == "wide":
        return {f"{name}.c": Unit(VerbatimCode(_wide_text(name, element, t, heights)), contract=True)}
    head = element_text(element, t.lanes)
    tiles = {f"{name}_{h}": f"{head}\n{_tile_text(f'{name}_{h}', h, t)}" for h in heights}
    texts = {name: _gemm_text(name, element, t, heights, apart=True), **tiles}
    return {f"{file}.c": Unit(VerbatimCode(text), contract=True) for file, text in texts.items()}


def _parts_of(name: str) -> re.Match[str] | None:
    """Kind, element, mr, nr and lanes in the name of a routine of this file, or None; groups of k have the kinds of a plan's
    dot."""
    found = _NAME.fullmatch(name)
    kinds = {**dict.fromkeys(DOTS, ("gemm", "into")), **dict.fromkeys(NARROW, ("gemm", "into", "lies", "pack"))}
    is_known = found is not None and found[2] in C_TYPES and found[1] in kinds.get(found[2], (found[1],))
    return found if is_known else None


def _tile_of(found: re.Match[str]) -> _KernelTile:
    return _KernelTile(
        found[1], int(found[3]), int(found[4]), int(found[5]), C_TYPES[found[2]][1], found[2] in DOTS, NARROW.get(found[2], 0)
    )


@dataclass(frozen=True)
class _KernelTile:
    """Everything that a micro-kernel's text depends on. kind: the layout of its operands, the second word of its name."""

    kind: str
    mr: int
    nr: int
    lanes: int
    itemsize: int
    dots: bool
    """True if an element is a group of k, multiplied with another by `dot`."""
    narrow: int = 0
    """Bytes of an element of b that is widened when it is read; 0: b has the type of a and c."""

    @property
    def vectors(self) -> int:
        return self.nr // self.lanes

    @property
    def is_pitched(self) -> bool:
        """True if b and c are columns of matrices with their own row lengths."""
        return self.kind in ("into", "lies")

    @property
    def fetches(self) -> bool:
        """True if rows of b are equidistant, so that a tile can prefetch later ones."""
        return self.kind != "table"

    @property
    def lines(self) -> range:
        """The elements of a row of b at which cache lines begin."""
        return range(0, self.nr, max(1, 64 // (self.narrow or self.itemsize)))

    @property
    def b_type(self) -> str:
        return "B" if self.narrow else "T"

    @property
    def ahead(self) -> int:
        """Prefetch distance in rows of b, the same number of bytes for each type."""
        return AHEAD * 4 // self.narrow if self.narrow else AHEAD

    @property
    def parameters(self) -> str:
        """C parameters of the function of one panel."""
        sizes = {"gemm": "", "table": "", "into": "bp, cp", "rows": "pitch", "lies": "pitch, bp, cp"}[self.kind]
        more = f", const {self.b_type} *next, int64_t some" if self.fetches else ", const int64_t *at"
        more += "".join(f", int64_t {p}" for p in sizes.split(", ") if p)
        return f"int64_t kc, const T *a, const {self.b_type} *b, T *c, int64_t first{more}"

    def folds(self, row: int) -> bool:
        """True if the multiply-adds of a row broadcast their element themselves. In AVX-512 one instruction does both: fewer
        instructions, but a load for each vector. Half of the rows balances the two."""
        return self.itemsize * self.lanes == 64 and self.vectors > 1 and row % 2 == 1 and self.kind != "lies" and not self.dots


def _gemm_text(name: str, element: str, t: _KernelTile, heights: Sequence[int], apart: bool = False) -> str:
    """The routine for panels of these heights, whose tiles are in its text, or `apart` in units of their own."""
    if t.nr % t.lanes or not 1 <= t.mr <= 64:
        raise ValueError(f"{name}: {t.nr} columns are not whole vectors of {t.lanes}")
    tile = name if apart else "tile"
    if apart:
        tiles = [f"void {tile}_{rows}({t.parameters});" for rows in heights]
    else:
        tiles = [f"static __attribute__((noinline)) {_tile_text(f'{tile}_{rows}', rows, t)}" for rows in heights]
    start, step, more = {
        "gemm": ("k0 * r", "r * depth", ", next, some"),
        "table": ("k0 * r", "r * depth", ", (const int64_t *)buffers[3] + k0"),
        "into": ("k0 * r", "r * depth", ", next, some, sizes[4], sizes[5]"),
        "rows": ("k0 * depth", "r", ", next, some, depth"),
        "lies": ("k0", "r * depth", ", next, some, depth, sizes[4], sizes[5]"),
    }[t.kind]
    return routine_page("micro_kernel").fill(
        ELEMENT=element_text(element, t.lanes),
        TILES=tiles,
        NAME=name,
        B=t.b_type,
        MR=t.mr,
        LESS=t.mr - 1,
        FETCHES=t.fetches,
        PARTS=PARTS,
        NEXT="sizes[4]" if t.is_pitched else t.nr,
        CASES=[f"case {rows}: {tile}_{rows}(k1 - k0, a + {start}, b, c, k0 == 0{more}); break;" for rows in heights],
        REFUSED=_REFUSED,
        STEP=step,
        C_PITCH="sizes[5]" if t.is_pitched else t.nr,
    )


def _tile_text(function: str, rows: int, t: _KernelTile) -> str:
    """The function of one panel of `rows`. Two prefetches: rows of b `ahead` of those in use, into L1; and, if the panel is not
    low, `some` rows of `next` every few steps, which the next call uses, into L2. A low panel along a sliver has one prefetch
    instead (`STREAM_AHEAD`), unless elements of b are widened, which takes longer than its loads. If it has several rows, an
    empty asm statement keeps each vector of b in a register, since gcc would load it once for each row: measured 1.3 to 1.5
    times the rate with 2 and 3 rows."""
    nr, lanes, vectors = t.nr, t.lanes, t.vectors
    b_pitch, c_pitch = ("bp", "cp") if t.is_pitched else (str(nr), str(nr))

    def element(step: int, row: int, vector: int) -> str:
        match t.kind:
            case "rows":
                return f"a{vector}[{step} * pitch + {row}]"
            case "lies":
                return f"r{row // 3 * 3}[{row % 3} * pitch + {step}]"
            case _:
                return f"a{vector}[{step * rows + row}]"

    walks = {"rows": "{} * pitch", "lies": "{}"}.get(t.kind, f"{{}} * {rows}")
    names_a = [f"r{i}" for i in range(0, rows, 3)] if t.kind == "lies" else ["a0"]
    is_low = rows * FEW <= t.mr
    streams = t.kind in ("gemm", "rows") and is_low and not t.narrow
    if any(t.folds(i) for i in range(rows)):
        names_a += [f"a{v}" for v in range(1, vectors)]
    sets = min(K_UNROLL, -(-_CHAIN // (rows * vectors)))
    sets = {3: 2}.get(sets, sets)
    full = _FULL * max(1, len(names_a) // 2 if t.kind == "lies" else 1)
    steps = next(s for s in (1, 2, K_UNROLL) if s * rows * vectors >= full or s == K_UNROLL)
    names = [[[f"c{i}_{v}" if s == 0 else f"c{i}_{v}_{s}" for s in range(sets)] for v in range(vectors)] for i in range(rows)]
    flat = [n for row in names for vector in row for n in vector]
    pointers: list[str] = []
    for n in names_a:
        pointers.append(f"const T *{n} = a{f' + {n[1:]} * pitch' if n[0] == 'r' else ''};")
        if n[0] == "a" and n != "a0":
            pointers.append(f'__asm__("" : "+r"({n}));  /* the compiler is not to know that it is a0: one broadcast a use */')

    def step(u: int) -> list[str]:
        begin = f"at[{u}]" if t.kind == "table" else f"{u} * {b_pitch}"
        read = "wide({})" if t.narrow else "*(const U *)({})"
        lines = [f"  V b{v} = {read.format(f'b + {begin} + {v * lanes}')};" for v in range(vectors)]
        if rows > 1 and is_low and not t.narrow and t.itemsize * lanes in (32, 64):
            lines.append("  " + " ".join(f'__asm__("" : "+v"(b{v}));' for v in range(vectors)))
        for i in range(rows):
            sums = [names[i][v][u % sets] for v in range(vectors)]
            if t.folds(i):
                lines.append("  " + " ".join(f"{n} += {element(u, i, v)} * b{v};" for v, n in enumerate(sums)))
                continue
            kind, one = ("V", f"same(&{element(u, i, 0)})") if t.dots else ("T", element(u, i, 0))
            adds = " ".join(f"{n} = dot({n}, s, b{v});" if t.dots else f"{n} += s * b{v};" for v, n in enumerate(sums))
            lines.append(f"  {{ {kind} s = {one}; {adds} }}")
        return ["{", *lines, "}"]

    def fetched(u: int) -> list[str]:
        """The prefetches of step u: its row of b `ahead`, and for step 0 its rows of `next`."""
        if not t.fetches:
            return []
        if streams:
            return ["__builtin_prefetch(ahead, 0, 2);"] if u == 0 else []
        out = [" ".join(f"__builtin_prefetch(ahead + {u} * {b_pitch} + {x});" for x in t.lines)]
        if u == 0 and not is_low:
            fetch = " ".join(f"__builtin_prefetch(next + {x}, 0, 2);" for x in t.lines) + f" next += {b_pitch};"
            fetch = f"int64_t x = some; do {{ {fetch} }} while (--x);"
            out.append(f"{{ {fetch} }}" if steps == PARTS else f"if (k % {PARTS} == 0) {{ {fetch} }}")
        return out

    def onward(steps: int) -> str:
        b = f"at += {steps}" if t.kind == "table" else f"b += {steps} * {b_pitch}"
        return " ".join(f"{n} += {walks.format(steps)};" for n in names_a) + f" {b};"

    places = [(names[i][v][0], f"{i} * {c_pitch} + {v * lanes}") for i in range(rows) for v in range(vectors)]
    return routine_page("panel").fill(
        FUNCTION=function,
        PARAMETERS=t.parameters,
        SUMS=", ".join(f"{n} = {{0}}" for n in flat),
        FETCHES=t.fetches,
        B=t.b_type,
        AHEAD=STREAM_AHEAD // (t.nr * t.itemsize) if streams else t.ahead,
        B_PITCH=b_pitch,
        POINTERS=pointers,
        STEPS=steps,
        BODY=[line for u in range(steps) for line in (*fetched(u), *step(u))],
        ON=onward(steps),
        REST=steps > 1,
        ONE=step(0),
        ON_ONE=onward(1),
        JOINS=[f"{n[0]} += {other};" for row in names for n in row for other in n[1:]],
        WRITES=[f"*(U *)(c + {at}) = {n};" for n, at in places],
        ADDS=[f"*(U *)(c + {at}) += {n};" for n, at in places],
    )


def tile_function(function: str, kind: str, rows: int, tile: tuple[int, int, int]) -> str:
    """The function of one panel of `rows` of fp32, for a routine with another frame. `tile`: mr, nr and lanes."""
    return _tile_text(function, rows, _KernelTile(kind, *tile, itemsize=4, dots=False))


def _wide_text(name: str, element: str, t: _KernelTile, heights: Sequence[int]) -> str:
    cases = [f"case {rows}: band_{rows}(steps, columns, a + k * {rows}, b, c, k == 0, bp, cp); break;" for rows in heights]
    return routine_page("wide").fill(
        ELEMENT=element_text(element, t.lanes),
        BANDS=[_band_text(rows, t) for rows in heights],
        NAME=name,
        GROUP=GROUP,
        CASES=cases,
        REFUSED=_REFUSED,
    )


def _band_text(rows: int, t: _KernelTile) -> str:
    """The function of a few rows: registers hold the sums of twice a tile's vectors, since memory is read at a higher rate if
    more lines of a row are read together."""
    vectors = t.vectors * 2 if 2 * rows < t.mr else t.vectors
    some, more = ([v * t.lanes for v in range(n)] for n in (t.vectors, vectors))

    def columns(at: list[int], width: int, steps: str) -> str:
        kind, of = ("T", "T") if width == 1 else ("V", "U")

        def stores(how: str) -> str:
            return " ".join(f"*({of} *)(c + {i} * cp + j + {x}) {how} c{i}_{x};" for i in range(rows) for x in at)

        adds = (f"T s = a[k * {rows} + {i}]; {' '.join(f'c{i}_{x} += s * b{x};' for x in at)}" for i in range(rows))
        return routine_page("band_columns").fill(
            WIDTH=width,
            TYPE=kind,
            SUMS=", ".join(f"c{i}_{x} = {{0}}" for i in range(rows) for x in at),
            GROUP=GROUP,
            STEPS=steps,
            LOADS=[f"{kind} b{x} = *(const {of} *)(b + k * bp + j + {x});" for x in at],
            ADDS=[f"{{ {add} }}" for add in adds],
            WRITES=stores("="),
            INTO=stores("+="),
        )

    return routine_page("band").fill(
        ROWS=rows,
        GROUP=GROUP,
        GROUPS=columns(more, t.lanes * vectors, str(GROUP)),
        TILES=columns(some, t.nr, "steps"),
        SINGLES=columns([0], 1, "steps"),
    )
