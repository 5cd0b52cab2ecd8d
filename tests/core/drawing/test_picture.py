"""Drawings: nothing overlaps, arrows keep clear of boxes, any name is escaped, and large graphs are quick."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET
from itertools import combinations

import pytest

from tatami.core.drawing.dot import dot
from tatami.core.drawing.picture import Arrow, Box, Cluster, Picture, printable
from tatami.core.drawing.placement import Layout, Rectangle, lay_out
from tatami.core.drawing.svg import svg

HOSTILE = ['a"b', "back\\slash", "\\N\\l", "two\nlines", "<script>alert(1)</script>", "&amp;]]>", "-->", "\x00\x1b[31m\x7f\ud800\ufffe",
           "{a|b}", "名前の長いテンソル", "x" * 300, "", "%s{0}", "'; drop"]  # fmt: skip


def random_picture(seed: int, count: int = 40) -> Picture:
    """A directed acyclic graph; its boxes lie in nested clusters that may feed each other."""
    r = random.Random(seed)
    clusters = [Cluster(f"c{k}", f"cluster {k}", r.choice(["", *(f"c{j}" for j in range(k))])) for k in range(r.randint(0, 6))]
    homes = ["", *(c.id for c in clusters)]
    boxes = [Box(f"n{k}", (f"name {k}", "fp32[B, 64]")[: r.randint(1, 2)], "operation", r.choice(homes)) for k in range(count)]
    arrows = [Arrow(f"n{r.randrange(max(0, k - 12), k)}", f"n{k}") for k in range(1, count) for _ in range(r.randint(0, 2))]
    return Picture(tuple(boxes), tuple(arrows), tuple(clusters))


def drawn(picture: Picture) -> Layout:
    return lay_out(
        picture, {b.id: (90.0, 24.0 + 15 * len(b.lines)) for b in picture.boxes}, {c.id: 70.0 for c in picture.clusters}
    )


def meet(a: Rectangle, b: Rectangle) -> bool:
    return a[0] < b[0] + b[2] and b[0] < a[0] + a[2] and a[1] < b[1] + b[3] and b[1] < a[1] + a[3]


def inside(a: Rectangle, b: Rectangle) -> bool:
    return b[0] <= a[0] and b[1] <= a[1] and a[0] + a[2] <= b[0] + b[2] and a[1] + a[3] <= b[1] + b[3]


@pytest.mark.parametrize("seed", range(40))
def test_boxes_and_clusters_do_not_overlap(seed: int) -> None:
    picture = random_picture(seed)
    layout = drawn(picture)
    parents = {c.id: c.parent for c in picture.clusters} | {b.id: b.cluster for b in picture.boxes}
    places = layout.clusters | layout.boxes
    whole = (0.0, 0.0, layout.width, layout.height)
    for id, place in places.items():
        assert inside(place, places.get(parents[id], whole)), id
    for a, b in combinations(places, 2):
        if parents[a] == parents[b]:
            assert not meet(places[a], places[b]), (a, b)


@pytest.mark.parametrize("seed", range(40))
def test_arrows_join_their_boxes_and_cross_no_other(seed: int) -> None:
    """Each piece stays in a gap between layers or passes a layer upright: no point of it lies inside another box."""
    picture = random_picture(seed)
    layout = drawn(picture)
    for arrow, points in zip(picture.arrows, layout.arrows, strict=True):
        (x0, y0, w0, h0), (x1, y1, w1, h1) = layout.boxes[arrow.source], layout.boxes[arrow.to]
        ends = {(x0 + w0 / 2, y0 + h0), (x0 + w0 / 2, y0)}, {(x1 + w1 / 2, y1), (x1 + w1 / 2, y1 + h1)}
        assert any(abs(points[0][0] - x) < 0.01 and abs(points[0][1] - y) < 0.01 for x, y in ends[0])
        assert any(abs(points[-1][0] - x) < 0.01 and abs(points[-1][1] - y) < 0.01 for x, y in ends[1])
        for id, (x, y, w, h) in layout.boxes.items():
            if id not in (arrow.source, arrow.to):
                assert not any(x < px < x + w and y < py < y + h for px, py in points), (arrow, id)


def test_a_chain_is_straight_and_an_input_stands_above_its_reader() -> None:
    boxes = (*tuple(Box(f"n{k}", ("n",), "operation") for k in range(6)), Box("w", ("w",), "constant"))
    arrows = (*(Arrow(f"n{k}", f"n{k + 1}") for k in range(5)), Arrow("w", "n5"))
    layout = drawn(Picture(boxes, arrows))
    assert len({round(layout.boxes[f"n{k}"][0]) for k in range(6)}) == 1
    assert layout.boxes["w"][1] == layout.boxes["n4"][1]


def test_circles_between_clusters_and_self_loops_are_drawn() -> None:
    boxes = tuple(Box(f"n{k}", ("n",), "operation", f"c{k % 2}") for k in range(6))
    arrows = (*(Arrow(f"n{k}", f"n{k + 1}") for k in range(5)), Arrow("n5", "n0"), Arrow("n1", "n1"))
    picture = Picture(boxes, arrows, (Cluster("c0", "even"), Cluster("c1", "odd")))
    layout = drawn(picture)
    assert not meet(layout.clusters["c0"], layout.clusters["c1"])
    ET.fromstring(svg(picture))


def test_any_name_is_escaped() -> None:
    boxes = tuple(Box(f"n{k}", (name, name), "input", "c", name) for k, name in enumerate(HOSTILE))
    picture = Picture(boxes, (Arrow("n0", "n1"),), (Cluster("c", HOSTILE[4]),))
    text = svg(picture)
    root = ET.fromstring(text)
    assert {e.tag.rsplit("}", 1)[1] for e in root.iter()} == {"svg", "defs", "marker", "path", "rect", "g", "title", "text"}
    titles = [e.text or "" for e in root.iter() if e.tag.endswith("title")]
    assert titles[4] == HOSTILE[4] and titles[0] == HOSTILE[0] and titles[9] == HOSTILE[9]
    assert text.encode() and "\x00" not in text and "\x1b" not in text
    lines = dot(picture).splitlines()
    strings = re.compile(r'"(?:[^"\\]|\\.)*"')
    for line in lines:
        assert '"' not in strings.sub("", line), line
    labels = [line for line in lines if "[label=" in line]
    assert len(labels) == len(HOSTILE) and r"\"b" in labels[0] and r"\\N\\l" in labels[2] and "\x1b" not in dot(picture)
    assert printable("\x00a\ud800") == "\N{REPLACEMENT CHARACTER}a\N{REPLACEMENT CHARACTER}"
    assert printable("abcdef", 4) == "abc…"


def test_the_drawing_is_the_same_every_time_and_a_thousand_boxes_are_fine() -> None:
    large = random_picture(7, 1000)
    assert svg(large) == svg(large)
    assert svg(large).count('class="node"') == 1000
