"""Which CTAs of a cluster share what: number i * cn + j is the tile at row i, column j of the cluster's cm x cn tiles."""

from __future__ import annotations


def sharing(cluster: tuple[int, int], cta: int, along: str) -> list[int]:
    """The CTAs beside `cta` along the axes in `along` ("", "m", "n" or "mn") and itself: those of its column work on
    the same B, those of its row on the same A. Who loads a part for others loads it for these."""
    cm, cn = cluster
    row, column = divmod(cta, cn)
    beside = {cta}
    if "m" in along:
        beside |= {i * cn + column for i in range(cm)}
    if "n" in along:
        beside |= {row * cn + j for j in range(cn)}
    return sorted(beside)
