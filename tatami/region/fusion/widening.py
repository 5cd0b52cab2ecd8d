"""Values that move to the kernels that read them, or are repeated there, so that the stored value is narrow.

    y = cast(acc, fp16); z = cast(y, fp32) | statistics of the rows of z   ->   y | z = cast(y, fp32); statistics of its rows
    q = cast(r, u8); x = (q - 3) * 0.1 | x + 1                             ->   q | x = (q - 3) * 0.1; x + 1

A product's epilogue only computes elementwise values, and does not reduce its rows. Without this step the cast would be stored
between the two Regions: twice the bytes, and in addition to y if y has other readers. A dequantised value has four times the
bytes of its codes, which are often stored in any case, for a product of integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from tatami.core.dtype import DType
from tatami.poly_view.ir import Edge
from tatami.region.fusion.growing_groups import GrowingGroups
from tatami.tiny.ir import CastOp, ConstOp, Elementwise, ExpandOp, Node, ReshapeOp

LONGEST_CHAIN = 6
"""Maximum operations of a dequantisation that its readers repeat."""


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
            around = [(nodes[v].src[0], v), *((v, reader) for reader in groups.uses[v])]
            plain = all(e in edges and edges[e].fusible and edges[e].rule == "pointwise" for e in around)
            homes = {graph.group_of.get(reader, -1) for _, reader in around[1:]}
            if plain and homes and homes <= rows:
                found.append((v, tuple(sorted(homes))))
    return found


def dequantising(v: str, nodes: Mapping[str, Node]) -> tuple[str, ...]:
    """The values from a cast of 8-bit integers to `v`, their numbers in 32 bits: casts, and sums and products with constants. ()
    for other values."""
    chain: list[str] = []
    at = v
    while len(chain) < LONGEST_CHAIN:
        node = nodes[at]
        chain.append(at)
        if isinstance(node.op, CastOp):
            if nodes[node.src[0]].dtype in (DType.i8, DType.u8):
                is_wide = nodes[v].dtype.is_float or nodes[v].dtype == DType.i32
                return tuple(reversed(chain)) if is_wide else ()
            at = node.src[0]
        elif isinstance(node.op, Elementwise) and node.op.fn in ("add", "sub", "mul"):
            numbers = [s for s in node.src if _is_number(s, nodes)]
            others = [s for s in node.src if s not in numbers]
            if len(others) != 1:
                return ()
            at = others[0]
        else:
            return ()
    return ()


def _is_number(v: str, nodes: Mapping[str, Node]) -> bool:
    """True if all elements of `v` are one constant."""
    while isinstance(nodes[v].op, ExpandOp | ReshapeOp):
        v = nodes[v].src[0]
    return isinstance(nodes[v].op, ConstOp)


def _are_fusible(edges: Mapping[tuple[str, str], Edge], pairs: Iterable[tuple[str, str]], rules: tuple[str, ...]) -> bool:
    return all(pair in edges and edges[pair].fusible and edges[pair].rule in rules for pair in pairs)


def repeated_by_readers(groups: GrowingGroups, products: Set[str]) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    """(values of a dequantisation, groups that read its result from memory) where each of these groups may compute it from the
    codes, element by element, or at each place of a window. Operands of `products` stay in memory: a product reads or packs
    an element several times, and its templates take operands that lie there."""
    nodes, edges, graph = groups.nodes, groups.edges, groups.graph
    found = []
    for v in nodes:
        chain = dequantising(v, nodes) if v in graph.group_of and v not in groups.resident else ()
        if not chain or not groups.uses[v]:
            continue
        codes = nodes[chain[0]].src[0]
        home = graph.group_of[v]
        away = sorted({graph.group_of.get(u, -1) for u in groups.uses[v]} - {home})
        if not away or any(graph.group_of.get(x) != home for x in (codes, *chain)) or groups.uses[v] & products:
            continue
        inner = zip((codes, *chain), chain)
        outer = [(v, u) for u in groups.uses[v] if graph.group_of.get(u) != home]
        if _are_fusible(edges, inner, ("pointwise",)) and _are_fusible(edges, outer, ("pointwise", "halo", "inline")):
            found.append((chain, tuple(away)))
    return found
