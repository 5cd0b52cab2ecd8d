"""The layer of every item of a drawing, counted from the top, and the direction of each arrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

PORT = (" entered", " leaves")
"""Ends of the names of ports: the points at which arrows pass the upper and the lower side of a cluster."""


def from_the_top(layer: Mapping[str, int], below: Mapping[str, Sequence[str]]) -> list[str]:
    """The items in the order of a depth-first walk down the arrows, so that connected items start next to each other."""
    out: dict[str, None] = {}
    for start in sorted(layer, key=lambda i: layer[i]):
        work = [start]
        while work:
            id = work.pop()
            if id not in out:
                out[id] = None
                work += reversed(below.get(id, ()))
    return list(out)


def without_circles(items: Sequence[str], pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The same arrows, reversed where they would close a circle (two clusters may feed each other)."""
    after: dict[str, list[str]] = {}
    for a, b in pairs:
        after.setdefault(a, []).append(b)
    done: dict[str, int] = {}
    for start in items:
        work = [start] if start not in done else []
        while work:  # depth first; a place is final when everything below has one
            if work[-1] in done or all(n in done or n in work for n in after.get(work[-1], ())):
                done.setdefault(work.pop(), len(done))
            else:
                work.append(next(n for n in after[work[-1]] if n not in done and n not in work))
    return list(dict.fromkeys((a, b) if done[a] > done[b] else (b, a) for a, b in pairs))


def layers(items: Sequence[str], pairs: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Item -> layer: the longest chain of arrows above it; an item without predecessors stands just above its first reader.
    Ports have the first and the last layer to themselves."""
    after: dict[str, list[str]] = {i: [] for i in items}
    waiting = dict.fromkeys(items, 0)
    for a, b in pairs:
        after[a].append(b)
        waiting[b] += 1
    free = {i for i in items if not waiting[i]}
    layer: dict[str, int] = {}
    ready = [i for i in items if not waiting[i]]
    first = int(any(i.endswith(" entered") for i in items))  # ports above all boxes
    for i in ready:
        layer.setdefault(i, 0 if i.endswith(" entered") else first)
        for n in after[i]:
            layer[n] = max(layer.get(n, 0), layer[i] + 1)
            waiting[n] -= 1
            if not waiting[n]:
                ready.append(n)
    for i in free:
        if after[i] and not i.endswith(" entered"):
            layer[i] = min(layer[n] for n in after[i]) - 1
    last = max(layer.values(), default=0)
    inside = [layer[i] for i in items if not i.endswith(PORT)]
    return {i: max([last, *(k + 1 for k in inside)]) if i.endswith(" leaves") else layer[i] for i in items}
