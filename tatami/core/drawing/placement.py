"""Where the boxes of a picture stand: layers from top to bottom, clusters as boxes that hold a layout of their own.

    1. layer = longest chain of arrows above a box; what nothing precedes moves down to the first that reads it
    2. an arrow over several layers passes each through a gap of its own, so that no arrow crosses a box
    3. order within a layer: means of the neighbours, down and up again, the best seen by number of crossings (Sugiyama)
    4. place within a layer: nearest to the neighbours' mean that keeps order and distance, which is isotonic
       regression: pool adjacent violators gives the exact least squares

Clusters are laid out from the inside out. An arrow that leaves or enters one passes a port on its lower or upper side,
which is laid out like a box without extent.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right, insort
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from tatami.core.drawing.layers import PORT, from_the_top, layers, without_circles
from tatami.core.drawing.picture import Picture

GAP, LAYER_GAP, PORT_GAP, MARGIN, TITLE = 20.0, 36.0, 10.0, 10.0, 18.0
SWEEPS = 12
"""Passes over the layers, down and up in turn, in which order and places improve."""
MOST_COUNTED = 4000
"""Number of arrow pieces beyond which crossings are not counted, so that a large picture is drawn in time: the last order is
taken."""
Point = tuple[float, float]
Rectangle = tuple[float, float, float, float]
"""(x, y) of the upper left corner, width, height."""


@dataclass
class Layout:
    """Places of everything in a picture, in pixels from its upper left corner; `boxes` and `clusters` by id."""

    width: float = 0.0
    height: float = 0.0
    boxes: dict[str, Rectangle] = field(default_factory=dict)
    clusters: dict[str, Rectangle] = field(default_factory=dict)
    arrows: list[list[Point]] = field(default_factory=list)
    """For each arrow of the picture, the points from its source to its end."""


def lay_out(picture: Picture, sizes: Mapping[str, Point], titles: Mapping[str, float]) -> Layout:
    """The layout of a picture. `sizes`: width and height of every box; `titles`: width of every cluster's label."""
    parent = {c.id: c.parent for c in picture.clusters} | {b.id: b.cluster for b in picture.boxes}
    holds: dict[str, list[str]] = {"": [], **{c.id: [] for c in picture.clusters}}
    for id, cluster in parent.items():
        holds[cluster].append(id)

    def path(id: str) -> list[str]:
        out = [id]
        while out[-1]:
            out.append(parent[out[-1]])
        return out[::-1]

    pieces: list[list[tuple[str, str, str]]] = []
    """Per arrow its way (cluster, from, to): out of the clusters around its source, across, into those of its target."""
    for arrow in picture.arrows:
        one, two = path(arrow.source), path(arrow.to)
        shared = next((i for i, (p, q) in enumerate(zip(one, two)) if p != q), 0)
        out_of = [(c, inner, f"{arrow.source} leaves") for c, inner in zip(one[shared:], one[shared + 1 :])]
        into = [(c, f"{arrow.to} entered", inner) for c, inner in zip(two[shared:], two[shared + 1 :])]
        pieces.append([*out_of[::-1], (one[shared - 1], one[shared], two[shared]), *into] if shared else [])
    edges: dict[str, list[tuple[str, str]]] = {c: [] for c in holds}
    for c, a, b in (piece for way in pieces for piece in way):
        edges[c].append((a, b))

    levels: dict[str, _Level] = {}

    def arrange(cluster: str) -> _Level:
        extents: dict[str, Point] = {}
        for id in holds[cluster]:
            if id in holds:
                inner = arrange(id)
                extents[id] = (max(inner.width, titles[id]) + 2 * MARGIN, inner.height + TITLE + 2 * MARGIN)
            else:
                extents[id] = sizes[id]
        levels[cluster] = _Level(extents, edges[cluster])
        return levels[cluster]

    whole = arrange("")
    out = Layout(whole.width + 2 * MARGIN, whole.height + 2 * MARGIN)
    corners: dict[str, Point] = {}

    def place(cluster: str, x: float, y: float) -> None:
        corners[cluster] = (x, y)
        level = levels[cluster]
        for id in holds[cluster]:
            (w, h), (cx, cy) = level.extents[id], level.at[id]
            rectangle = (x + cx - w / 2, y + cy - h / 2, w, h)
            if id in holds:
                out.clusters[id] = rectangle
                place(id, x + cx - levels[id].width / 2, rectangle[1] + TITLE + MARGIN)
            else:
                out.boxes[id] = rectangle

    place("", MARGIN, MARGIN)
    for way in pieces:
        points: list[Point] = []
        for c, a, b in way:
            x, y = corners[c]
            points += [(x + px, y + py) for px, py in levels[c].passed(a, b, holds.keys())]
        out.arrows.append(points)
    return out


class _Level:
    """One level: the items of a cluster in layers. `at`: the centres of the items."""

    def __init__(self, extents: Mapping[str, Point], edges: Sequence[tuple[str, str]]) -> None:
        self.extents = dict(extents)
        for a, b in edges:
            self.extents.setdefault(a, (0.0, 0.0))
            self.extents.setdefault(b, (0.0, 0.0))
        pairs = without_circles(list(self.extents), list(dict.fromkeys((a, b) for a, b in edges if a != b)))
        layer = layers(list(self.extents), pairs)
        self.chains: dict[tuple[str, str], list[str]] = {}
        self.below: dict[str, list[str]] = {}
        self.above: dict[str, list[str]] = {}
        for a, b in pairs:
            chain = [a, *(f"{a} {b} {k}" for k in range(layer[a] + 1, layer[b])), b]
            self.chains[a, b] = chain
            for k, dummy in enumerate(chain[1:-1], layer[a] + 1):
                layer[dummy] = k
                self.extents[dummy] = (0.0, 0.0)
            for p, q in itertools.pairwise(chain):
                self.below.setdefault(p, []).append(q)
                self.above.setdefault(q, []).append(p)
        self.layers: list[list[str]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
        for id in from_the_top(layer, self.below):
            self.layers[layer[id]].append(id)
        self.order()
        self.x: dict[str, float] = {}
        self.spread()
        self.at: dict[str, Point] = {}
        y, ports = 0.0, False
        self.tops: dict[str, float] = {}
        self.bottoms: dict[str, float] = {}
        for items in self.layers:
            high = max(self.extents[i][1] for i in items)
            for i in items:
                self.at[i] = (self.x[i], y + high / 2)
                own = self.extents[i][1] if " " not in i else high
                self.tops[i], self.bottoms[i] = y + (high - own) / 2, y + (high + own) / 2
            ports = all(i.endswith(PORT) for i in items)
            y += high + (PORT_GAP if ports else LAYER_GAP)
        self.height = max(0.0, y - (LAYER_GAP if self.layers and not ports else PORT_GAP))

    def passed(self, a: str, b: str, clusters: Container[str]) -> list[Point]:
        """The points of an arrow from a to b; at a cluster, the port inside it is the point."""
        down = (a, b) in self.chains
        chain = self.chains[a, b] if down else self.chains[b, a][::-1]
        out: list[Point] = []
        for k, id in enumerate(chain):
            near, far = (self.tops[id], self.bottoms[id]) if down else (self.bottoms[id], self.tops[id])
            if id not in clusters:
                out += [(self.x[id], near)] if k > 0 else []
                out += [(self.x[id], far)] if k < len(chain) - 1 else []
        return out

    def order(self) -> None:
        """Reorder each layer so that few arrows cross."""
        pieces = sum(map(len, self.below.values()))
        best, least = [list(row) for row in self.layers], self.crossings() if pieces <= MOST_COUNTED else 0
        for sweep in range(SWEEPS if pieces <= MOST_COUNTED else 2):
            rows = self.layers if sweep % 2 == 0 else self.layers[::-1]
            neighbours = self.above if sweep % 2 == 0 else self.below
            for fixed, row in itertools.pairwise(rows):
                place = {id: k for k, id in enumerate(fixed)}
                means = {i: sum(place[n] for n in neighbours[i]) / len(neighbours[i]) for i in row if i in neighbours}
                known = iter(sorted(means, key=means.__getitem__))
                row[:] = [next(known) if i in means else i for i in row]
            if pieces > MOST_COUNTED:
                best = self.layers
            elif (now := self.crossings()) < least:
                best, least = [list(row) for row in self.layers], now
        self.layers = best

    def crossings(self) -> int:
        """Number of pairs of arrows that cross."""
        total = 0
        for upper, lower in zip(self.layers, self.layers[1:]):
            place = {id: k for k, id in enumerate(lower)}
            seen: list[int] = []
            for id in upper:
                ends = sorted(place[n] for n in self.below.get(id, ()))
                total += sum(len(seen) - bisect_right(seen, e) for e in ends)
                for e in ends:
                    insort(seen, e)
        return total

    def spread(self) -> None:
        """Set x of every centre: near the neighbours' mean, in order, at least GAP apart."""
        for row in self.layers:
            x = 0.0
            for id in row:
                self.x[id] = x + self.extents[id][0] / 2
                x += self.extents[id][0] + GAP
        for sweep in range(SWEEPS):
            neighbours = self.above if sweep % 2 == 0 else self.below
            for row in self.layers if sweep % 2 == 0 else self.layers[::-1]:
                wanted = [self.mean(neighbours[i]) if neighbours.get(i) else self.x[i] for i in row]
                weights = [(8.0 if " " in i else self.weight(i)) if neighbours.get(i) else 0.01 for i in row]
                self.x.update(zip(row, _apart(wanted, weights, [self.extents[i][0] for i in row])))
        self.close_up()
        self.width = max((self.x[i] + self.extents[i][0] / 2 for i in self.x), default=0.0)

    def close_up(self) -> None:
        """Move parts that no arrow joins to the left, as far as the parts before them allow."""
        part: dict[str, int] = {}
        for start in self.x:
            work = [start] if start not in part else []
            while work:
                id = work.pop()
                part[id] = part[start] if id in part else part.setdefault(start, len(part))
                work += [n for n in (*self.below.get(id, ()), *self.above.get(id, ())) if n not in part]
                part.update(dict.fromkeys(work, part[start]))
        parts: dict[int, list[str]] = {}
        for id in sorted(self.x, key=lambda i: self.x[i] - self.extents[i][0] / 2):
            parts.setdefault(part[id], []).append(id)
        row_of = {id: k for k, row in enumerate(self.layers) for id in row}
        free = [0.0] * len(self.layers)
        for members in parts.values():
            edges = {i: self.x[i] - self.extents[i][0] / 2 for i in members}
            room = min(edges[i] - free[row_of[i]] for i in members)
            for i in members:
                self.x[i] -= room
                free[row_of[i]] = max(free[row_of[i]], self.x[i] + self.extents[i][0] / 2 + GAP)

    def weight(self, id: str) -> float:
        """Weight of an item in the mean of its neighbours; near 0 for an item that only feeds one other (a constant), so that
        the main line stays straight."""
        return 1.0 if id in self.above or len(self.below.get(id, ())) > 1 else 0.001

    def mean(self, neighbours: Sequence[str]) -> float:
        """The weighted mean of the neighbours' x, at which an item would have the straightest arrows."""
        return sum(self.x[n] * self.weight(n) for n in neighbours) / sum(map(self.weight, neighbours))


def _apart(wanted: Sequence[float], weights: Sequence[float], widths: Sequence[float]) -> list[float]:
    """The places nearest to `wanted` (weighted squares) at which neighbours keep their order and a distance of GAP."""
    shifts = [0.0]
    for one, two in itertools.pairwise(widths):
        shifts.append(shifts[-1] + (one + two) / 2 + GAP)
    blocks: list[tuple[float, float, int]] = []  # mean, weight, members
    for w, weight, shift in zip(wanted, weights, shifts):
        blocks.append((w - shift, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, u, m), (b, v, n) = blocks[-2:]
            blocks[-2:] = [((a * u + b * v) / (u + v), u + v, m + n)]
    flat = [mean for mean, _, members in blocks for _ in range(members)]
    return [x + shift for x, shift in zip(flat, shifts)]
