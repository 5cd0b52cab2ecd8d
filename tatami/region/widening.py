"""Casts that leave a product's epilogue for the rows that read them, so that what crosses is narrow.

    y = cast(acc, fp16); z = cast(y, fp32) | statistics of the rows of z   ->   y | z = cast(y, fp32); statistics of its rows

A product's epilogue takes what is elementwise as it comes, forwards, and its rows are not reduced there: the cast was the
value between the two Regions, with twice the bytes, and beside y where y has readers of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tatami.poly_view.ir import Edge
from tatami.region.group_graph import GroupGraph
from tatami.tiny.ir import CastOp, Node


def is_widening(v: str, nodes: Mapping[str, Node]) -> bool:
    """A cast of a 16-bit float to a wider float: exact, and cheap enough that every reader may repeat it."""
    node = nodes[v]
    if not isinstance(node.op, CastOp):
        return False
    source = nodes[node.src[0]].dtype
    return source.is_narrow_float and node.dtype.is_float and node.dtype.itemsize > source.itemsize


def casts_for_rows(
    nodes: Mapping[str, Node],
    edges: Mapping[tuple[str, str], Edge],
    uses: Mapping[str, set[str]],
    resident: set[str],
    graph: GroupGraph,
    products: Iterable[int],
    rows: set[int],
) -> list[tuple[str, tuple[int, ...]]]:
    """Widening casts of the groups `products`, each with the groups of `rows` where all of its readers stand. What is a
    cast's source is computed beside it, element by element."""
    found = []
    for g in products:
        for v in graph.members[g]:
            if v in resident or not is_widening(v, nodes) or graph.group_of.get(nodes[v].src[0]) != g:
                continue
            around = [(nodes[v].src[0], v), *((v, reader) for reader in uses.get(v, ()))]
            plain = all(e in edges and edges[e].fusible and edges[e].rule == "pointwise" for e in around)
            homes = {graph.group_of.get(reader, -1) for _, reader in around[1:]}
            if plain and homes and homes <= rows:
                found.append((v, tuple(sorted(homes))))
    return found
