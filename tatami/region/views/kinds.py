"""The closed list of shapes a Region can have, recognised in the Region itself (design §3 region).

opaque          a named routine
scatter         a yield goes to computed positions, or combines
scan            some let is a running reduce
streaming_pair  two contractions, the second over the first one's result (attention)
contraction     one contraction with prologue and epilogue
stencil         windowed reduces of constant extent, or lets read at shifted positions
rows            other reduces
map             no reduce at all
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from tatami.core.expr import var
from tatami.region.ir import At, Reduce, Region, Scan
from tatami.region.views.contraction import (
    ContractionShape,
    depends_on,
    epilogue_of,
    find_contractions,
    find_streaming_pair,
    is_window,
    operand_tensor,
)
from tatami.region.walk import all_axes, lets_by_name, nodes

Kind: TypeAlias = Literal["map", "stencil", "rows", "contraction", "streaming_pair", "scan", "scatter", "opaque"]

__all__ = [
    "ContractionShape",
    "Kind",
    "contractions",
    "depends_on",
    "epilogue_of",
    "kind_of",
    "operand_tensor",
    "streaming_pair",
]

contractions = find_contractions
streaming_pair = find_streaming_pair


def kind_of(region: Region) -> Kind:
    """The kind of `region`. A Region with several contractions that do not stream is `rows`."""
    if region.opaque is not None:
        return "opaque"
    if any(y.indices or y.combine != "set" for y in region.yields):
        return "scatter"
    inner = [n for let in region.lets for n in nodes(let.expr)]
    if any(isinstance(n, Scan) for n in inner):
        return "scan"
    found = find_contractions(region)
    extents = all_axes(region)
    if len(found) >= 2 and find_streaming_pair(region) is not None:
        return "streaming_pair"
    if len(found) == 1 and found[0].m and found[0].n:
        return "contraction"
    reduces = [(let, let.expr) for let in region.lets if isinstance(let.expr, Reduce)]
    if any(isinstance(n, Reduce) for n in inner) and len(reduces) == 0:
        return "rows"
    if not reduces:
        return "stencil" if _reads_shifted(region) else "map"
    spatial = [is_window(e, let, extents) or any(c.acc == let.name for c in found) for let, e in reduces]
    windowed = any(is_window(e, let, extents) for let, e in reduces)
    return "stencil" if windowed and all(spatial) else "rows"


def _reads_shifted(region: Region) -> bool:
    """True if some let is read through a map other than its own axes."""
    lets = lets_by_name(region)
    return any(
        isinstance(n, At) and n.let in lets and n.map != tuple(var(a) for a in lets[n.let].axes)
        for let in region.lets
        for n in nodes(let.expr)
    )
