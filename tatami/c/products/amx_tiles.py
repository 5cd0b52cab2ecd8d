"""Products of narrow integers by tiles of AMX: 16 rows of 64 bytes, multiplied and added to 16 x 16 sums by one instruction.

    tatami_tiles_<a><b>    buffers a, b, c; sizes rows, pitch of a, k0, k1, depth of b, pitch of c, columns
        c[rows][columns] += a * b over k0 <= k < k1 (k0 = 0: c is overwritten), where k counts groups of four numbers of 8
        bits, an element of 32 bits: u8 or i8 in a, u8 or i8 in b. a is a matrix [rows][pitch], its pitch in bytes. b is slivers
        [depth][32], of which k1-k0 rows are read; c has a pitch in elements, and whole slivers are written.

Four tiles hold the sums of 32 x 32, two of a and two of b are multiplied each with each; a panel of rows goes along all
slivers, so that what it writes is few pages, fetched under the products before. The last groups of k, fewer than 16, are
copied and filled up with zeros. Panels of rows are balanced; both tiles of one have the same number of rows, so that one
configuration serves all: they overlap in a row or two, whose sums are then made twice and are the same.

Tiles are state that Linux gives a process on demand: the unit asks when it is loaded, so that programs of their own have them.
`runtime/machine/host.py` has asked before a plan wants them. The instructions are written as such, as in c/products/dots.py.
"""

from __future__ import annotations

import re

from tatami.c.ir import Unit
from tatami.core.custom.verbatim import VerbatimCode
from tatami.core.page import page

_NAME = re.compile(r"tatami_tiles_([iu]8)([iu]8)")


def tile_unit(name: str) -> Unit | None:
    """The unit that defines routine `name`, or None when the name is not of this file."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    dot = "tdpb" + "".join("s" if t == "i8" else "u" for t in found.groups()) + "d"
    return Unit(VerbatimCode(page("tatami.c", "tiles.c").fill(DOT=dot, NAME=name)))
