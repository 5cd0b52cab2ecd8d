"""The picture of a model and of what it was compiled to: every operation once, the kernels as clusters."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner

from tatami.api import compile
from tatami.cli import main
from tatami.core.drawing.picture import Picture
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.frontend.picture import picture
from tatami.report.compiled_picture import compiled_picture

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
F = DType.fp32


def attention() -> Graph:
    g = Graph("attention")
    q, k, v = (g.input(n, ("B", "T", 16), F) for n in "qkv")
    p = (q @ k.permute(0, 2, 1) * 0.25).softmax(2)
    g.output("y", (p @ v + q).relu())
    g.output("p", p)
    return g


def members(picture: Picture) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {c.label: [] for c in picture.clusters}
    labels = {c.id: c.label for c in picture.clusters}
    for b in picture.boxes:
        if b.cluster:
            out[labels[b.cluster]].append(b.lines[0])
    return out


def test_a_graph_shows_every_input_operation_and_output() -> None:
    g = attention()
    p = picture(g.module())
    assert [b.lines for b in p.boxes if b.kind == "input"] == [(n, "fp32[B, T, 16]") for n in "qkv"]
    assert [b.lines[0] for b in p.boxes if b.kind == "contraction"] == ["matmul", "matmul"]
    assert len(p.boxes) == 3 + len(g.module().main.graph) + 2
    assert len(p.arrows) == sum(len(n.inputs) for n in g.module().main.graph) + 2
    root = ET.fromstring(g.to_svg())
    assert g._repr_svg_() == g.to_svg()
    drawn = [e for e in root.iter() if e.get("class") == "node"]
    assert len(drawn) == len(p.boxes) and g.to_svg().count('class="edge"') == len(p.arrows)


def test_kernels_are_clusters_of_what_they_compute() -> None:
    f = compile(attention())
    found = members(compiled_picture(f.compilation))
    kernels = list(f.stages["region"].value.main.body)
    assert [label.split()[0] for label in found] == [k.name for k in kernels]
    assert any({"matmul", "add", "relu"} <= set(ops) for ops in found.values())
    assert any("softmax" in ops for ops in found.values())
    assert all("permute" not in ops for ops in found.values())  # a view is in no kernel
    for label in found:
        assert label in f.to_svg() and f'label="{label}"' in f.to_dot()
    assert f._repr_svg_() == f.to_svg()


def test_subgraphs_are_clusters_and_hold_those_of_their_kernels() -> None:
    g = Graph("g")
    layer = g.subgraph("layer")
    a, w = layer.input("a", ("N", 8), F), layer.input("w", (8, 8), F)
    layer.output("h", (a @ w).relu())
    x, v = g.input("x", ("B", 8), F), g.input("v", (8, 8), F)
    g.output("y", g.call(layer, g.call(layer, x, v), v))
    labels = {c.label for c in picture(g.module()).clusters}
    assert labels == {"main", "layer"}
    p = compiled_picture(compile(g).compilation)
    parents = {c.label: next((d.label for d in p.clusters if d.id == c.parent), "") for c in p.clusters}
    assert parents["r0 contraction"] == "layer" and parents["layer"] == parents["main"] == ""
    assert [b.lines[0] for b in p.boxes if b.kind == "call"] == ["call layer", "call layer"]
    inlined = compiled_picture(compile(g, decisions={"calls": {"": "inline"}}).compilation)
    assert not any(b.kind == "call" for b in inlined.boxes)


def test_other_ways_in_have_pictures_too() -> None:
    g = attention()
    f = compile(g)
    document = compile(__import__("json").loads(f.stages["region"].json))
    boxes = [b.lines[0] for b in compiled_picture(document.compilation).boxes]
    assert "r0 contraction" in boxes and {"q", "k", "v", "y", "p"} <= set(boxes)
    assert compile(g, target="reference").to_svg() == g.to_svg()
    empty = Graph("empty")
    ET.fromstring(empty.to_svg())


@pytest.mark.parametrize("option", ["svg", "dot"])
def test_the_command_line_writes_the_picture(option: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    path = tmp_path / f"digits.{option}"
    result = CliRunner().invoke(main, ["explain", str(DIGITS), f"--{option}", str(path)])
    assert result.exit_code == 0 and f"wrote {path}" in result.output.replace("\n", "")
    text = path.read_text()
    assert all(word in text for word in ("conv", "batch_norm", "gemm", "r0 contraction", "fp32[N, 10]"))
    refused = CliRunner().invoke(main, ["explain", str(DIGITS), f"--{option}", str(path / "below a file")])
    assert refused.exit_code == 1 and "FileUnwritable" in refused.output
