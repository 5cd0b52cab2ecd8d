"""Conditions of a called graph on its sizes are checked at the call, on every way a program is called."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest

from tatami.api import compile, prepare
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.decisions import Decisions
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.runtime.building.compiler import find_compiler
from tatami.runtime.building.sanitizer import sanitizer_library
from tatami.stages import runner

F = DType.fp32
CALL = Decisions(calls={"": "call"})
Need: TypeAlias = Callable[[Tensor], Tensor]
Way: TypeAlias = Callable[[Graph, Tensor, Tensor, Need], Tensor]
NEEDS: dict[str, tuple[Need, str]] = {
    "the first of none": (lambda x: x[0], "N = 0 where at least 1"),
    "the last of none": (lambda x: x[-1], "N - 1 = -1 where at least 0"),
    "a border of nothing": (lambda x: x.pad([(1, 0), (0, 0)], mode="edge")[0], "N = 0 where at least 1"),
}


def inner(g: Graph, need: Need) -> Graph:
    f = g.subgraph("inner")
    f.output("y", f.input("z", (2,), F) + need(f.input("x", ("N", 2), F)))
    return f


def called(g: Graph, z: Tensor, x: Tensor, need: Need) -> Tensor:
    y: Tensor = g.call(inner(g, need), z, x)
    return y


def branch(g: Graph, z: Tensor, x: Tensor, need: Need) -> Tensor:
    other = g.subgraph("other")
    other.output("y", other.input("z", (2,), F) + other.input("x", ("N", 2), F).sum(0))
    y: Tensor = g.cond(g.input("count", (), DType.i64) > 0, inner(g, need), other, z, x)
    return y


def loop(g: Graph, z: Tensor, x: Tensor, need: Need) -> Tensor:
    f = g.subgraph("inner")
    f.input("i", (), DType.i64)
    go = f.input("go", (), DType.bool)
    state = f.input("z", (2,), F)
    f.output("again", go)
    f.output("y", state + need(f.input("x", ("N", 2), F)))
    y: Tensor = g.loop(f, [z], [x], trip=g.input("count", (), DType.i64))
    return y


def nested(g: Graph, z: Tensor, x: Tensor, need: Need) -> Tensor:
    f = inner(g, need)
    outer = g.subgraph("outer")
    outer.output("y", outer.call(f, outer.input("z", (2,), F), outer.input("x", ("M", 2), F).exp()))
    y: Tensor = g.call(outer, z, x)
    return y


def beside_a_host_step(g: Graph, z: Tensor, x: Tensor, need: Need) -> Tensor:
    g.output("where", x.nonzero())
    return called(g, z, x, need)


def graph(way: Way, need: Need) -> Graph:
    g = Graph("g")
    g.output("y", way(g, g.input("z", (2,), F), g.input("x", ("D", 2), F), need))
    return g


def arrays(g: Graph, rows: int, count: int = 2) -> dict[str, np.ndarray]:
    given = {"z": np.zeros(2, np.float32), "x": np.ones((rows, 2), np.float32), "count": np.array(count)}
    return {p.tensor: given[p.tensor] for p in g.module().main.signature.inputs}


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("need", NEEDS)
@pytest.mark.parametrize("way", [called, branch, loop, nested, beside_a_host_step])
def test_what_a_callee_needs_of_its_sizes_is_checked(way: Way, need: str, target: str) -> None:
    g = graph(way, NEEDS[need][0])
    f = compile(g, target=target, decisions=CALL)
    assert np.all(f(arrays(g, 3))["y"] > 0)
    with pytest.raises(TatamiError) as error:
        f(arrays(g, 0))
    (found,) = error.value.diagnostics
    assert found.code == "E1304", found
    if target == "cpu":  # the reference says what the operation itself found
        assert NEEDS[need][1] in found.why and "of inner" in found.at, found


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("way", [branch, loop])
def test_what_does_not_run_needs_nothing(way: Way, target: str) -> None:
    g = graph(way, lambda x: x[0])
    assert np.all(compile(g, target=target, decisions=CALL)(arrays(g, 0, count=0))["y"] == 0)


def data_decided(inside: bool) -> Graph:
    g = Graph("g")
    x = g.input("x", ("D",), F)
    if not inside:
        g.output("y", x.compress(x > 0, axis=0)[0])
        return g
    f = g.subgraph("inner")
    kept = f.input("x", ("N",), F)
    f.output("y", kept.compress(kept > 0, axis=0)[0])
    g.output("y", g.call(f, x))
    return g


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_size_that_data_decides_is_checked_when_it_is_known(target: str, inside: bool) -> None:
    f = compile(data_decided(inside), target=target, decisions=CALL)
    assert f(x=np.array([-1, 5, 3], np.float32))["y"] == 5
    with pytest.raises(TatamiError) as error:
        f(x=np.array([-1, -5], np.float32))
    (found,) = error.value.diagnostics
    assert found.code == "E1304" and (target == "reference" or "= 0 where at least 1" in found.why), found


@pytest.mark.parametrize("inside", [False, True])
def test_every_stage_that_computes_checks_it(inside: bool) -> None:
    compilation = prepare(data_decided(inside), decisions=CALL)
    compilation.stages["execution"]
    for stage, module in compilation.values().items():
        run = runner(stage)
        if run is not None and stage != "execution":
            assert run(module, {"x": np.array([-1, 5, 3], np.float32)}, {}, mode="declared")["y"] == 5, stage
            with pytest.raises(TatamiError) as error:
                run(module, {"x": np.array([-1, -5], np.float32)}, {}, mode="declared")
            assert [d.code for d in error.value.diagnostics] == ["E1304"], stage


SCRIPT = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from test_called_sizes import *
for way in (called, branch, loop, nested, beside_a_host_step):
    g = graph(way, NEEDS["the first of none"][0])
    f = compile(g, target="cpu", decisions=CALL)
    for rows in (3, 0):
        try:
            f(arrays(g, rows))
            print("fine", rows)
        except TatamiError as error:
            print(error.diagnostics[0].code, rows)
"""


def test_the_sanitizer_sees_no_read_outside() -> None:
    try:
        library = sanitizer_library(find_compiler())
    except TatamiError:
        pytest.skip("the C compiler has no AddressSanitizer")
    here = Path(__file__).parent
    options = "detect_leaks=0:halt_on_error=0"
    environment = {**os.environ, "LD_PRELOAD": library, "TATAMI_SANITIZE": "1", "ASAN_OPTIONS": options}
    command = [sys.executable, "-c", SCRIPT, str(here)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, cwd=here.parents[1])
    assert "AddressSanitizer" not in done.stderr, done.stderr
    assert done.stdout.split("\n") == [*(["fine 3", "E1304 0"] * 5), ""], done.stdout
