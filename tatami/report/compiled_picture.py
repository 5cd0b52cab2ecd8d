"""The picture of a compilation: the model's operations, those of one kernel in one cluster."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tatami.compilation import Compilation
from tatami.core.drawing.picture import Arrow, Box, Cluster, Picture
from tatami.core.module import Module
from tatami.frontend.picture import picture as frontend_picture
from tatami.node_names import node_names
from tatami.region.ir import Region, Step
from tatami.region.views.kinds import kind_of

if TYPE_CHECKING:
    from tatami.core.layout import MemRef
    from tatami.core.signature import Input, Output
    from tatami.region.ir import Program


def compiled_picture(compilation: Compilation) -> Picture:
    """The model's operations, clustered by kernel, if the model exists; else the Regions of the given document."""
    if "region" not in compilation.stages:  # the reference target: nothing is fused
        return frontend_picture(compilation.stages["frontend"])
    regions: Module[Any] = compilation.stages["region"]
    if compilation.first != "frontend":
        return _regions(regions)
    linked = compilation.stages["filters"]
    found: dict[tuple[str, str], Counter[str]] = {}
    for program, body in regions.programs.items():
        home = "main" if program == "setup" else program
        for item in body.body:
            if isinstance(item, Step):
                continue
            label = f"{item.name} {kind_of(item)}{' (setup)' if program == 'setup' else ''}"
            for node in node_names(compilation.stages.get_made, program, item):
                found.setdefault((home, node), Counter())[label] += 1
    return frontend_picture(linked, {node: labels.most_common(1)[0][0] for node, labels in found.items()})


def _regions(regions: Module[Program]) -> Picture:
    boxes: list[Box] = []
    arrows: list[Arrow] = []
    clusters: list[Cluster] = []
    for g, (name, program) in enumerate(regions.programs.items()):
        home = f"g{g}" if len(regions.programs) > 1 else ""
        clusters += [Cluster(home, name)] if home else []
        made: dict[str, str] = {}
        for k, (id, port) in enumerate(zip(program.inputs, program.signature.inputs, strict=True)):
            made[id] = f"g{g}_in{k}"
            boxes.append(Box(made[id], (port.tensor, _type(port)), "input" if port.storage == "argument" else "constant", home))
        for k, item in enumerate(program.body):
            kind = kind_of(item) if isinstance(item, Region) else f"{item.kind} {', '.join(item.targets)}"
            lines = (f"{item.name} {kind}", *(_type(o.memref) for o in item.outputs))
            style = "call" if isinstance(item, Step) else "contraction" if kind in ("contraction", "streaming_pair") else None
            boxes.append(Box(f"g{g}_r{k}", lines, style or "operation", home))  # type: ignore[arg-type]
            inputs = [p.name for p in item.inputs] if isinstance(item, Region) else list(item.inputs)
            arrows += [Arrow(made[i], f"g{g}_r{k}") for i in dict.fromkeys(inputs) if i in made]
            made.update({o.name: f"g{g}_r{k}" for o in item.outputs})
        for k, (id, out) in enumerate(zip(program.outputs, program.signature.outputs, strict=True)):
            boxes.append(Box(f"g{g}_out{k}", (out.tensor, _type(out)), "output", home))
            arrows += [Arrow(made[id], f"g{g}_out{k}")] if id in made else []
    return Picture(tuple(boxes), tuple(arrows), tuple(clusters))


def _type(value: Input | Output | MemRef) -> str:
    return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
