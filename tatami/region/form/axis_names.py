"""Names of a Region's axes: b, m, n, k by role around a contraction, i0, i1, … elsewhere.

A role with several axes is numbered (m0, m1); axes that only a second contraction has end in _2 (n_2). No name is a size
symbol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tatami.core.expr import ONE
from tatami.poly_view.ir import ContractionPattern, Statement
from tatami.region.form.axis_classes import AxisClasses, Slot


def name_axes(
    classes: AxisClasses,
    statements: Mapping[str, Statement],
    values: Sequence[str],
    outputs: Sequence[str],
    anchors: Sequence[ContractionPattern],
    symbols: frozenset[str],
) -> dict[Slot, str]:
    """A name for every axis class: roles of the contractions `anchors` first, then the axes of outputs, then the others.

    No name is one of `symbols`; a name that is taken gets underscores.
    """
    names: dict[Slot, str] = {}
    used = set(symbols)

    def give(root: Slot, name: str) -> None:
        while name in used:
            name += "_"
        used.add(name)
        names[root] = name

    for position, pattern in enumerate(anchors):
        if not all((pattern.value, a) in classes.parent for a in (*pattern.batch, *pattern.m, *pattern.n, *pattern.k)):
            continue
        tag = "" if position == 0 else f"_{position + 1}"
        for role in ("batch", "m", "n", "k"):
            letter = role[0] + tag
            roots = [classes.find((pattern.value, a)) for a in getattr(pattern, role)]
            fresh = [r for r in roots if r not in names]
            for k, root in enumerate(fresh):
                separator = "_" if tag else ""
                give(root, letter if len(fresh) == 1 and (role != "batch" or tag) else f"{letter}{separator}{k}")
    counter = 0
    for v in (*reversed(outputs), *values):
        s = statements.get(v)
        if s is None:
            continue
        for axis in (*s.axes, *s.reduced):
            if axis.size == ONE or (v, axis.name) not in classes.parent:
                continue
            root = classes.find((v, axis.name))
            if root not in names:
                give(root, f"i{counter}")
                counter += 1
    return names
