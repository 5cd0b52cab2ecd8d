"""Casts that move from a product's epilogue into the rows that read them, so that the stored value is narrow.

    y = cast(acc, fp16); z = cast(y, fp32) | statistics of the rows of z   ->   y | z = cast(y, fp32); statistics of its rows

A product's epilogue only computes elementwise values, and does not reduce its rows. Without this step the cast would be stored
between the two Regions: twice the bytes, and in addition to y if y has other readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tatami.region.fusion.growing_groups import GrowingGroups
from tatami.tiny.ir import CastOp, Node


def is_widening(v: str, nodes: Mapping[str, Node]) -> bool:
    """True if `v` casts a 16-bit float to a wider float: exact, and cheap enough for every reader to repeat."""
    node = nodes[v]
    if not isinstance(node.op, CastOp):
        return False
    source = nodes[node.src[0]].dtype
    return source.is_narrow_float and node.dtype.is_float and node.dtype.itemsize > source.itemsize


def casts_for_rows(
    groups: GrowingGroups,
    products: Iterable[int],
    rows: set[int],
) -> list[tuple[str, tuple[int, ...]]]:
    """(cast, groups of its readers) for each widening cast in the groups `products` whose readers are all in groups of `rows`,
    and whose source is computed in the same group, element by element."""
    nodes, edges, graph = groups.nodes, groups.edges, groups.graph
    found = []
    for g in products:
        for v in graph.members[g]:
            if v in groups.resident or not is_widening(v, nodes) or graph.group_of.get(nodes[v].src[0]) != g:
                continue
            around = [(nodes[v].src[0], v), *((v, reader) for reader in groups.uses.get(v, ()))]
            plain = all(e in edges and edges[e].fusible and edges[e].rule == "pointwise" for e in around)
            homes = {graph.group_of.get(reader, -1) for _, reader in around[1:]}
            if plain and homes and homes <= rows:
                found.append((v, tuple(sorted(homes))))
    return found
