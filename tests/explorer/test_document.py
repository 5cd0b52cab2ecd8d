"""The document of a page: lines and what they come from, kernels, graph, memory."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tatami as tt
from tatami.core.dtype import DType
from tatami.explorer.document import explored
from tatami.explorer.graph import common
from tatami.explorer.ir import NOTHING, Explored
from tatami.explorer.kernels import REASONS
from tatami.frontend.graph import Graph
from tatami.prepare import prepare
from tatami.region.fusion import edge_rules
from tatami.stages import show
from tests.explorer.pages import ATTENTION, DIGITS, hostile, origins, page_of, thing_of


@cache
def digits(target: str = "cpu:avx2") -> Explored:
    return page_of(DIGITS, target)


@cache
def attention() -> Explored:
    return page_of(ATTENTION)


def stage(page: Explored, name: str) -> Any:
    return next(s for s in page.stages if s.name == name)


@pytest.mark.parametrize("target", ["cpu:avx2", "sm80", "sm90"])
def test_a_page_has_the_text_of_every_stage(target: str) -> None:
    page, values = digits(target), prepare(DIGITS, target=target).values()
    assert [s.name for s in page.stages] == ["source", *values]
    for name, value in values.items():
        assert "\n".join(stage(page, name).lines) == show(name, value).rstrip("\n")


def test_each_line_has_a_thing_of_its_stage_or_none() -> None:
    page = digits()
    for number, s in enumerate(page.stages):
        assert len(s.lines) == len(s.things)
        assert {page.things.stage[t] for t in s.things if t != NOTHING} == {number}


def test_origins_are_of_earlier_stages_or_of_the_enclosing_thing() -> None:
    page = digits()
    for thing, found in enumerate(page.things.origins):
        assert thing not in found
        assert all(page.things.stage[o] <= page.things.stage[thing] for o in found)


@pytest.mark.parametrize("target", ["cpu:avx2", "sm80", "sm90"])
def test_every_value_of_the_model_leads_back_to_its_nodes(target: str) -> None:
    page = digits(target)
    imported = next(s for s in page.stages if s.name == "tiny")
    numbers = {t for line, t in zip(imported.lines, imported.things, strict=True) if "CONST" in line}  # shared by nodes
    for name in ("tiny", "region", "plan"):
        at = [s.name for s in page.stages].index(name)
        for thing in range(len(page.things.label)):
            if page.things.stage[thing] == at and thing not in numbers:
                assert "frontend" in origins(page, thing), (name, page.things.label[thing])


def test_a_line_of_c_leads_back_to_the_register_the_region_and_the_node() -> None:
    page = digits()
    kernel = next(k for k in page.kernels if k.name == "r0" and k.program == "main")
    lines = stage(page, "c")
    start = next(k for k, line in enumerate(lines.lines) if line.startswith(f"/* ==== {kernel.symbols[0]}."))
    line = next(k for k in range(start, len(lines.lines)) if "for (int64_t x_" in lines.lines[k])
    found = origins(page, lines.things[line])
    assert {"conv_0", "batch_norm_1", "relu_2"} <= found["frontend"]
    assert {"node_conv2d", "node_relu"} <= found["source"]
    assert "r0" in found["region"] and kernel.symbols[0] in found["loop"]
    assert any(label.startswith("x_") for label in found["loop"])
    assert "conv_4" not in found["frontend"]


def test_a_line_of_cuda_leads_back_to_the_node() -> None:
    page = digits("sm80")
    found = origins(page, thing_of(page, "cu", "/* ==== k1.cu"))
    assert found["frontend"] == {"max_pool_3"} and found["gpu"] == {"k1", "r1"}


def test_a_line_of_harp_is_where_its_nodes_come_from() -> None:
    page = attention()
    text = stage(page, "source")
    assert "\n".join(text.lines) == ATTENTION.read_text().rstrip("\n")
    matmul = thing_of(page, "frontend", "matmul")
    (line,) = (text.lines[text.things.index(o)] for o in page.things.origins[matmul])
    assert "w_qkv" in line


def test_packing_leads_back_to_the_constants_that_it_packs() -> None:
    page = digits()
    packs = [k for k in page.kernels if k.name.startswith("pack_") and k.program == "setup"]
    assert packs and all(origins(page, thing_of(page, "loop", f"{k.name} calls"))["frontend"] for k in packs)


def test_kernels_have_their_plans_figures_and_neighbours() -> None:
    page = digits()
    assert page.sizes == {"N": 128}
    rows = [k for k in page.kernels if k.program == "main"]
    assert [k.wave for k in rows] == list(range(len(rows)))
    first = rows[0]
    assert (first.kind, first.flops, first.by) == ("contraction", 29696 * 128, "planner")
    assert first.rejected and all(r.why for r in first.rejected)
    assert first.estimate is not None and first.choices[0].fields["kind"]
    assert {page.things.label[n] for n in first.nodes} == {"conv_0", "batch_norm_1", "relu_2"}
    assert [(s.other, s.rule) for s in first.separate] == [("r1", "epilogue_reduce")]


def test_every_rule_that_keeps_kernels_apart_is_explained() -> None:
    source = Path(edge_rules.__file__).read_text()
    refusals = source[source.index("def refusal") :]
    rules = set(re.findall(r'(?:return|else|None if [^\n]*? else) "(\w+)"', refusals)) - {"pointwise"}
    assert {"scan", "shape", "fan_out", "epilogue_reduce", "region_size"} <= rules <= REASONS.keys()
    page = digits()
    assert all(s.why for k in page.kernels for s in k.separate)


def test_a_plan_that_a_user_fixed_is_said_to_be() -> None:
    page = digits()
    compilation = prepare(DIGITS, target="cpu:avx2", decisions=page.decisions)
    assert {k.by for k in explored(compilation, "digits").kernels if k.choices} == {"user"}


def test_the_decisions_of_a_page_repeat_its_compilation() -> None:
    page = digits()
    again = explored(prepare(DIGITS, target="cpu:avx2", decisions=page.decisions), "digits.onnx")
    assert stage(again, "c").lines == stage(page, "c").lines


def test_blocks_of_memory_never_overlap_while_both_live() -> None:
    for m in digits().memory:
        assert m.blocks == () or max(b.offset + b.bytes for b in m.blocks) <= m.peak <= m.without_reuse
        for i, one in enumerate(m.blocks):
            for two in m.blocks[:i]:
                together = one.first <= two.last and two.first <= one.last
                assert not together or one.offset + one.bytes <= two.offset or two.offset + two.bytes <= one.offset


def test_the_graph_has_the_nodes_with_their_kernels_and_shapes() -> None:
    nodes = digits().graphs["main"]
    assert [n.op for n in nodes][:4] == ["input", "conv", "batch_norm", "relu"]
    assert nodes[1].inputs == (0,) and nodes[1].edges == ("fp32[N, 1, 8, 8]",)
    assert len({n.kernel for n in nodes[1:4]}) == 1 and nodes[4].kernel != nodes[3].kernel
    assert nodes[-1].kind == "output"


def test_modules_come_from_names_with_slashes_and_from_parameters() -> None:
    g = Graph("g")
    x = g.input("x", (16, 16), DType.fp32)
    w = g.input("layers.0.w", (16, 16), DType.fp32, role="param", storage="const_pool")
    h = g.op("matmul", x, w)
    h = g.op("relu", h)
    g.output("y", g.op("exp", h, node="/head/act/Exp"))
    nodes = explored(prepare(g, target="cpu:avx2"), "g").graphs["main"]
    assert {n.op: n.path for n in nodes} == {
        "input": (), "matmul": ("layers", "0"), "relu": (), "exp": ("head", "act"), "output": (),
    }  # fmt: skip
    attention = page_of(ATTENTION).graphs["main"]
    assert {n.path for n in attention} == {()}
    assert common(("a", "b"), ("a", "c")) == ("a",)


def test_nodes_from_one_place_stand_in_one_module() -> None:
    g = Graph("g")
    x = g.input("x", (16, 16), DType.fp32)
    w = g.input("layers.0.w", (16,), DType.fp32, role="param", storage="const_pool")
    mean = g.op("exp", x, node="first")
    g.output("y", g.op("mul", mean, w.expand((16, 16)), node="second"))
    for name in ("first", "expand", "second"):
        g.origins[name] = ("norm (norm.py:1)",)
    nodes = explored(prepare(g, target="cpu:avx2"), "g").graphs["main"]
    assert {n.op: n.path for n in nodes if n.kind == "operation"} == dict.fromkeys(("exp", "expand", "mul"), ("layers", "0"))


def test_a_restart_from_a_later_stage_shows_what_there_is() -> None:
    compilation = prepare(DIGITS, target="cpu:avx2")
    document = tt.compile(DIGITS, target="cpu:avx2").stages["region"].json
    page = explored(prepare(msgspec.json.decode(document), target="cpu:avx2"), "region")
    assert [s.name for s in page.stages][:2] == ["source", "region"]
    assert page.graphs == {} and len(page.kernels) == len(explored(compilation, "").kernels)


def test_names_with_line_breaks_do_not_move_lines() -> None:
    page = explored(prepare(hostile("two\nlines"), target="cpu:avx2"), "x")
    for s in page.stages:
        assert not any("\n" in line for line in s.lines) and len(s.lines) == len(s.things)


def test_a_long_line_is_cut_and_says_so() -> None:
    g = Graph("g")
    x = g.input("x", (2,), DType.fp32)
    g.output("y", g.op("relu", x, node="n" * 3000))
    lines = [line for s in explored(prepare(g, target="cpu:avx2"), "x").stages for line in s.lines]
    assert max(map(len, lines)) < 2050 and any(line.endswith(" more") for line in lines)
