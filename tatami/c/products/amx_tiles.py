"""Products of narrow integers by AMX's tile registers: 16 rows of 64 bytes, multiplied and added to 16 x 16 sums by one instruction.

    tatami_tiles_<a><b>    buffers a, b, c; sizes rows, pitch of a, k0, k1, depth of b, pitch of c, columns
        c[rows][columns] += a * b over k0 <= k < k1 (k0 = 0: c is overwritten); k counts groups of four numbers of 8
        bits, an element of 32 bits: u8 or i8 in a, u8 or i8 in b. a is a matrix [rows][pitch], its pitch in bytes. b is slivers
        [depth][32], from which k1-k0 rows are read; c has a pitch in elements, and whole slivers are written.

Four tiles hold the sums of 32 x 32; two of a and two of b are multiplied, each with each. A panel of rows is multiplied with
all slivers in turn, so that it writes few pages, which are prefetched during the previous products. The last groups of k, fewer than 16, are
copied and filled up with zeros. Panels of rows are balanced; both tiles of one have the same number of rows, so that one
configuration serves all: they overlap in a row or two, whose sums are then computed twice with the same result.

Tile registers are state that Linux grants a process on request: the unit requests it when it is loaded, for stand-alone programs.
`runtime/machine/host.py` requests it before a plan uses them. The instructions are written as assembly, as in c/products/dots.py.
"""

from __future__ import annotations

import re

from tatami.c.ir import Unit
from tatami.core.custom.verbatim import VerbatimCode
from tatami.core.page import page

_NAME = re.compile(r"tatami_tiles_([iu]8)([iu]8)")


def tile_unit(name: str) -> Unit | None:
    """The unit that defines routine `name`; None for other names."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    dot = "tdpb" + "".join("s" if t == "i8" else "u" for t in found.groups()) + "d"
    return Unit(VerbatimCode(page("tatami.c", "products/tiles.c").fill(DOT=dot, NAME=name)))
