"""A picture as SVG, drawn by our own layout: nothing has to be installed to see a graph."""

from __future__ import annotations

import itertools
from html import escape
from unicodedata import east_asian_width

from tatami.core.drawing.picture import Box, Picture, printable
from tatami.core.drawing.placement import TITLE, Point, Rectangle, lay_out

LETTER, LINE = 7.0, 15.0
"""Width and height in pixels of a character of the monospaced font."""
LONGEST = 44
"""Maximum characters of a line of a box; longer ones are cut."""
_FILL = {
    "input": ("#dbeafe", "#3b82f6"),
    "constant": ("#eceef1", "#9ca3af"),
    "operation": ("#ffffff", "#64748b"),
    "contraction": ("#fef3c7", "#d97706"),
    "call": ("#ede9fe", "#7c3aed"),
    "output": ("#dcfce7", "#16a34a"),
}
_HEAD = """<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0,0 L8,4 L0,8 z" fill="#64748b"/></marker></defs>"""


def svg(picture: Picture) -> str:
    """The picture as an SVG document."""
    sizes = {b.id: _size(b) for b in picture.boxes}
    layout = lay_out(picture, sizes, {c.id: _width(printable(c.label, LONGEST)) for c in picture.clusters})
    w, h = layout.width, layout.height
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{w:.0f}" height="{h:.0f}" viewBox="0 0 {w:.0f} {h:.0f}"'
        ' font-family="ui-monospace, Menlo, Consolas, monospace" font-size="11.5">',
        _HEAD,
        f'<rect width="{w:.0f}" height="{h:.0f}" fill="white"/>',
    ]
    out += [_cluster(layout.clusters[c.id]) for c in picture.clusters]
    out += [_arrow(points) for points in layout.arrows]
    out += [_title(c.label, layout.clusters[c.id]) for c in picture.clusters]
    out += [_box(b, layout.boxes[b.id]) for b in picture.boxes]
    return "\n".join([*out, "</svg>"]) + "\n"


def _width(text: str) -> float:
    return LETTER * sum(2 if east_asian_width(c) in "WF" else 1 for c in text)


def _size(box: Box) -> Point:
    lines = [printable(line, LONGEST) for line in box.lines]
    return max(44.0, max(map(_width, lines)) + 18), LINE * len(lines) + 9


def _cluster(at: Rectangle) -> str:
    x, y, w, h = at
    return (
        f'<rect class="cluster" x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="9" fill="#0f172a"'
        ' fill-opacity="0.035" stroke="#94a3b8" stroke-dasharray="5 3"/>'
    )


def _title(label: str, at: Rectangle) -> str:
    """The label of a cluster, above the arrows that pass it."""
    place = f'x="{at[0] + 10:.1f}" y="{at[1] + TITLE - 3:.1f}"'
    ink = 'fill="#475569" stroke="#f7f7f8" stroke-width="4" paint-order="stroke"'
    return f"<text {place} {ink}>{escape(printable(label, LONGEST))}</text>"


def _arrow(points: list[Point]) -> str:
    """Curves that leave and reach every point vertically."""
    if not points:
        return ""
    path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        middle = (y0 + y1) / 2
        straight = abs(x0 - x1) < 0.5
        path += f" L{x1:.1f},{y1:.1f}" if straight else f" C{x0:.1f},{middle:.1f} {x1:.1f},{middle:.1f} {x1:.1f},{y1:.1f}"
    return f'<path class="edge" d="{path}" fill="none" stroke="#64748b" marker-end="url(#tip)"/>'


def _box(box: Box, at: Rectangle) -> str:
    x, y, w, h = at
    fill, line = _FILL[box.kind]
    round_ = h / 2 if box.kind in ("input", "constant", "output") else 4
    double = (
        f'<rect x="{x + 3:.1f}" y="{y + 3:.1f}" width="{w - 6:.1f}" height="{h - 6:.1f}" rx="3" fill="none" stroke="{line}"/>'
    )
    texts = "".join(
        f'<text x="{x + w / 2:.1f}" y="{y + 16 + LINE * k:.1f}" text-anchor="middle"'
        f' fill="{"#0f172a" if k == 0 else "#64748b"}"{" font-weight=" + chr(34) + "600" + chr(34) if k == 0 else ""}>'
        f"{escape(printable(text, LONGEST))}</text>"
        for k, text in enumerate(box.lines)
    )
    return (
        f'<g class="node"><title>{escape(printable(box.note or " ".join(box.lines)))}</title>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="{round_:.1f}" fill="{fill}" stroke="{line}"/>'
        f"{double if box.kind == 'call' else ''}{texts}</g>"
    )
