"""load(dump(x)) == x: every stage of programs of every shape goes through its document unchanged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tatami.api import prepare
from tatami.core.codec import parse_text
from tatami.core.document import document_text, parse_document
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.storage.dump import from_document, to_document, write_dump
from tests.golden.programs import PROGRAMS


def gather_scan_sort() -> Graph:
    g = Graph("g")
    w, i = g.input("w", (11, 8), DType.fp32), g.input("i", ("B",), DType.i64)
    values, positions = w.take(i).cumsum(0).op("sort", axis=1)
    g.output("v", values)
    g.output("p", positions)
    return g


def branches_loops_calls() -> Graph:
    g = Graph("g")
    body, then, otherwise = g.subgraph("body"), g.subgraph("then"), g.subgraph("otherwise")
    body.input("i", (), DType.i64)
    c, s = body.input("c", (), DType.bool), body.input("s", ("N",), DType.fp32)
    body.output("c_out", c)
    body.output("s_out", s * 0.5)
    then.output("r", then.input("a", ("N",), DType.fp32) * 2.0)
    otherwise.output("r", -otherwise.input("a", ("N",), DType.fp32))
    p, x = g.input("p", (), DType.bool), g.input("x", ("N",), DType.fp32)
    g.output("y", g.cond(p, then, otherwise, g.loop(body, [x], trip=3)))
    return g


def host_and_state() -> Graph:
    g = Graph("g")
    cache = g.input("cache", ("N", 4), DType.fp32, mutability="mutable")
    x = g.input("x", ("N", 4), DType.fp32)
    g.update(cache, cache + x)
    g.output("where", x.op("nonzero", size="Z"))
    return g


def constants_and_setup() -> Graph:
    g = Graph("g")
    x, w = g.input("x", ("B", 64), DType.fp32), g.constant(np.arange(64 * 48, dtype=np.float32).reshape(64, 48))
    g.output("y", (x @ (w * 2.0)).pad([(0, 0), (1, 1)], value=float("-inf")).max(1))
    return g


MODELS: dict[str, Callable[[], Graph | Path]] = {
    **PROGRAMS,
    **{f.__name__: f for f in (gather_scan_sort, branches_loops_calls, host_and_state, constants_and_setup)},
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("target", ["cpu:avx2", "sm90"])
def test_every_stage_survives_its_document(name: str, target: str) -> None:
    if target == "sm90" and name not in ("gemm_bias_relu", "row_softmax"):
        pytest.skip("the GPU stages have no template for all of it")
    compilation = prepare(MODELS[name](), target=target)
    for stage, value in compilation.values().items():
        text = document_text(to_document(stage, value, compilation.target))
        again = from_document(parse_document(parse_text(text)), None, trust=True)[stage]
        assert again.programs == value.programs, stage
        assert dict(again.constants) == dict(value.constants), stage
        assert document_text(to_document(stage, again, compilation.target)) == text, stage


@pytest.mark.parametrize("embed", [False, True])
def test_any_file_of_a_dump_restarts(tmp_path: Path, embed: bool) -> None:
    first = prepare(constants_and_setup(), target="cpu:avx2")
    values = first.values()
    write_dump(tmp_path, values, values, first.target, embed=embed)
    for path in sorted(tmp_path.glob("*.json")):
        again = prepare(path, target="cpu:avx2", trust=True)
        assert again.stages["c"].main == values["c"].main, path.name
