"""A picture as DOT text, the language of graphviz."""

from __future__ import annotations

from tatami.core.drawing.picture import Box, Picture, printable

_STYLE = {
    "input": 'shape=ellipse, fillcolor="#dbeafe"',
    "constant": 'shape=ellipse, fillcolor="#e5e7eb"',
    "operation": 'shape=box, fillcolor="#ffffff"',
    "contraction": 'shape=box, fillcolor="#fef3c7"',
    "call": 'shape=box, peripheries=2, fillcolor="#ede9fe"',
    "output": 'shape=ellipse, fillcolor="#dcfce7"',
}


def dot(picture: Picture) -> str:
    """The picture as DOT text, the same for equal pictures."""
    lines = ["digraph tatami {", '  node [fontname="monospace", fontsize=11, style=filled];', '  edge [color="#64748b"];']
    lines += _inside("", picture, "  ")
    lines += [f"  {a.source} -> {a.to};" for a in picture.arrows]
    return "\n".join([*lines, "}"]) + "\n"


def _inside(cluster: str, picture: Picture, indent: str) -> list[str]:
    out: list[str] = []
    for c in picture.clusters:
        if c.parent == cluster:
            out += [f"{indent}subgraph cluster_{c.id} {{", f'{indent}  label={_quoted(c.label)}; style="rounded,dashed";']
            out += [*_inside(c.id, picture, indent + "  "), f"{indent}}}"]
    return out + [f"{indent}{_box(b)}" for b in picture.boxes if b.cluster == cluster]


def _box(box: Box) -> str:
    note = f", tooltip={_quoted(box.note)}" if box.note else ""
    return f"{box.id} [label={_quoted(chr(10).join(map(printable, box.lines)))}, {_STYLE[box.kind]}{note}];"


def _quoted(label: str) -> str:
    """A DOT string, in which only line breaks are escape sequences of graphviz."""
    text = "\n".join(map(printable, label.split("\n")))
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
