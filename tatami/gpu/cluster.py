"""CTAs of a cluster that share an operand. CTA i * cn + j computes the tile at row i, column j of the cluster's cm x cn
tiles."""

from __future__ import annotations


def sharing(cluster: tuple[int, int], cta: int, along: str) -> list[int]:
    """Numbers, ascending, of `cta` and of the CTAs that share operands with it along the axes in `along` ("", "m", "n" or
    "mn"): CTAs of its column work on the same B, CTAs of its row on the same A. These are the CTAs that a multicast load
    reaches."""
    cm, cn = cluster
    row, column = divmod(cta, cn)
    beside = {cta}
    if "m" in along:
        beside |= {i * cn + column for i in range(cm)}
    if "n" in along:
        beside |= {row * cn + j for j in range(cn)}
    return sorted(beside)
