"""Subgraphs: one function per signature, inlined where that is cheaper or decided, the same bits either way."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tatami.api import CompiledFunction, compile, prepare
from tatami.compilation import decisions_of
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.decisions import Decisions
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor

CALL, INLINE = Decisions(calls={"": "call"}), Decisions(calls={"": "inline"})
F = DType.fp32


def mlp_layer(g: Graph, name: str = "layer") -> Graph:
    """Two outputs; sizes of the callee's own."""
    f = g.subgraph(name)
    x, w = f.input("x", ("R", "K"), F), f.input("w", ("K", "C"), F)
    h = x @ w
    f.output("h", h.relu())
    f.output("total", h.sum(1))
    return f


def arrays(f: CompiledFunction, **sizes: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {
        i.tensor: [int(str(s)) if str(s).isdigit() else sizes[str(s)] for s in i.shape]
        for i in f.signature.inputs
        if i.storage == "argument"
    }
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def both_ways(build: Callable[[Graph], Any], **sizes: int) -> tuple[CompiledFunction, CompiledFunction]:
    """Called and inlined give the same bits, and what the reference gives."""
    graphs = [Graph("g"), Graph("g"), Graph("g")]
    for g in graphs:
        for name, t in build(g).items():
            g.output(name, t)
    called, inlined = compile(graphs[0], decisions=CALL), compile(graphs[1], decisions=INLINE)
    inputs = arrays(called, **sizes)
    a, b = called(inputs), inlined(inputs)
    want = compile(graphs[2], target="reference")(inputs)
    for name in want:
        assert np.array_equal(a[name], b[name]), name
        assert np.allclose(a[name], want[name], rtol=1e-4, atol=1e-5), name
    return called, inlined


def programs(f: CompiledFunction) -> list[str]:
    return [p for p in f.stages["tiny"].value.programs if p not in ("main", "setup")]


def calls_in_c(f: CompiledFunction) -> tuple[int, int]:
    """Functions of the Program besides main, and calls of them, in the C text."""
    text = f.stages["c"].text
    names = set(re.findall(r"static int64_t (program_[1-9]\d*)\(", text))
    return len(names), sum(len(re.findall(rf"= {n}\(", text)) for n in names)


def test_one_signature_is_one_function_with_two_calls() -> None:
    def build(g: Graph) -> dict[str, Tensor]:
        f = mlp_layer(g)
        x, w = g.input("x", ("B", 8), F), g.input("w", (8, 8), F)
        h, a = g.call(f, x, w)
        y, b = g.call(f, h, w)
        return {"y": y, "t": a + b}

    called, inlined = both_ways(build, B=5)
    assert programs(called) == ["layer"] and calls_in_c(called) == (1, 2)
    assert programs(inlined) == [] and calls_in_c(inlined) == (0, 0)
    assert "layer(\n    x: fp32[R, 8],\n    w: fp32[8, 8]" in shown(called)


def shown(f: CompiledFunction) -> str:
    from tatami.frontend.show import show

    return show(f.compilation.stages["linked"])


def test_two_signatures_are_two_functions() -> None:
    def build(g: Graph) -> dict[str, Tensor]:
        f = mlp_layer(g)
        x, w, v = g.input("x", ("B", 8), F), g.input("w", (8, 8), F), g.input("v", (8, 3), F)
        h, _ = g.call(f, x, w)
        y, _ = g.call(f, h, v)
        z, _ = g.call(f, x, w)
        return {"y": y, "z": z}

    called, _ = both_ways(build, B=5)
    assert programs(called) == ["layer.1", "layer.2"] and calls_in_c(called) == (2, 3)


def test_calls_inside_calls_and_inside_loops() -> None:
    def build(g: Graph) -> dict[str, Tensor]:
        leaf = g.subgraph("leaf")
        a = leaf.input("a", ("N",), F)
        leaf.output("r", (a * 0.5).tanh())
        middle = g.subgraph("middle")
        b = middle.input("b", ("M",), F)
        middle.output("s", middle.call(leaf, middle.call(leaf, b) + 1.0))
        body = g.subgraph("body")
        body.input("i", (), DType.i64)
        go, state = body.input("go", (), DType.bool), body.input("state", ("P",), F)
        body.output("go_on", go)
        body.output("next", body.call(middle, state) + body.call(leaf, state))
        x = g.input("x", ("B",), F)
        return {"y": g.loop(body, [x], trip=3), "z": g.call(middle, g.call(leaf, x))}

    called, inlined = both_ways(build, B=7)
    assert sorted(programs(called)) == ["body", "leaf", "middle"]
    assert programs(inlined) == ["body"]


def test_results_that_are_operands_or_stand_twice() -> None:
    def build(g: Graph) -> dict[str, Tensor]:
        f = g.subgraph("f")
        a = f.input("a", ("N",), F)
        e = a.exp()
        f.output("same", a)
        f.output("first", e)
        f.output("second", e)
        x = g.input("x", ("B",), F)
        out = g.call(f, x * 2.0)
        return {f"y{k}": t for k, t in enumerate(out)}

    both_ways(build, B=4)


def test_constants_of_a_callee_come_along() -> None:
    def build(g: Graph) -> dict[str, Tensor]:
        f = g.subgraph("f")
        a = f.input("a", ("N", 3), F)
        w = f.constant(np.arange(6, dtype=np.float32).reshape(3, 2), "w")
        f.output("r", a @ w)
        x = g.input("x", ("B", 3), F)
        return {"y": g.call(f, x) + g.call(f, x * 2.0)}

    both_ways(build, B=4)


def test_sizes_of_a_callee_are_solved() -> None:
    """2*N + 1 = 7 gives N = 3; 2*N = B gives N = B//2 and an equation that odd B break at run time."""

    def build(g: Graph) -> dict[str, Tensor]:
        f = g.subgraph("f")
        a = f.input("a", ("2*N",), F)
        f.output("r", a.reshape("N", 2).sum(1))
        odd = g.subgraph("odd")
        b = odd.input("b", ("2*N + 1",), F)
        odd.output("r", b[:"N"])
        return {"y": g.call(f, g.input("x", ("B",), F)), "z": g.call(odd, g.input("w", (7,), F))}

    for f in both_ways(build, B=6):
        with pytest.raises(TatamiError) as error:
            f(arrays(f, B=5))
        assert error.value.diagnostics[0].code == "E1304" and "B" in error.value.diagnostics[0].why


def refusal(action: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(TatamiError) as error:
        action()
    (d,) = error.value.diagnostics
    return d.code, d.why


def test_a_conflict_of_sizes_names_both_sides() -> None:
    g = Graph("g")
    f = mlp_layer(g)
    x, w = g.input("x", ("B", 8), F), g.input("w", (7, 3), F)
    code, why = refusal(lambda: g.call(f, x, w))
    assert code == "E1304"
    assert "axis 0 of w is K = 8 (K = 8 by axis 1 of x), the operand there has 7" in why
    even = g.subgraph("even")
    even.output("r", even.input("a", ("2*N",), F))
    assert (
        "axis 0 of a is 2*N = 6 (N = 3 by axis 0 of a), the operand there has 7"
        in refusal(lambda: g.call(even, g.input("v", (7,), F)))[1]
    )
    assert refusal(lambda: g.call(even, g.input("i", (6,), DType.i32)))[0] == "E1006"


def test_an_equation_of_the_callee_that_a_call_breaks_is_refused() -> None:
    g = Graph("g")
    f = g.subgraph("f")
    a = f.input("a", ("N",), F)
    f.assume("N", "4*M")
    f.size("M", 2)
    f.output("r", a.exp())
    g.output("y", g.call(f, g.input("x", (8,), F)))
    compile(g)
    h = Graph("h")
    f = h.subgraph("f")
    a = f.input("a", ("N",), F)
    f.assume("N", "4*M")
    f.size("M", 2)
    f.output("r", a.exp())
    h.output("y", h.call(f, h.input("x", (9,), F)))
    code, why = refusal(lambda: compile(h))
    assert code == "E1304" and "M = 2, N = 9" in why and "9 = 8" in why


def test_recursion_shows_the_chain_of_calls() -> None:
    from tatami.core.module import Module
    from tatami.frontend.ir import Node
    from tatami.frontend.verify import verify

    g = Graph("g")
    f = g.subgraph("f")
    f.output("r", f.input("a", ("N",), F).exp())
    g.output("y", g.call(f, g.input("x", (8,), F)))
    module = g.module()
    again = Node("call", "again", ("a",), ("r",), {"graph": "f"})
    import msgspec

    looping = msgspec.structs.replace(module.programs["f"], graph=(again,))
    (d,) = [d for d in verify(Module({"main": module.main, "f": looping})) if d.kind == "RecursionDepth"]
    assert d.why == "graphs call each other more than 10 deep: main -> f -> f -> …"


# -- the decision ----------------------------------------------------------------------------------


def chain(size: int | str, calls: int) -> Graph:
    g = Graph("g")
    f = g.subgraph("f")
    a = f.input("a", ("N",), F)
    f.output("r", a.exp() * 0.5)
    x = g.input("x", (size,), F) + 1.0
    for _ in range(calls):
        x = g.call(f, x)
    g.output("y", x)
    return g


@pytest.mark.parametrize(
    ("graph", "inlined", "why"),
    [
        (chain(10, 1), True, "it is called once: nothing is compiled twice"),
        (chain(10, 2), False, "2 calls save"),
        (chain(4_000_000, 2), True, "2 calls save"),
    ],
)
def test_the_cost_model_decides_and_explain_says_so(graph: Graph, inlined: bool, why: str) -> None:
    f = compile(graph)
    assert programs(f) == ([] if inlined else ["f"])
    (line,) = [line for line in f.explain().splitlines() if "decisions key" in line]
    assert line.split()[:2] == ["f", "inlined" if inlined else "called"] and why in line
    kept = decisions_of(f.compilation.stages)
    (key,) = kept.calls
    assert key in line and kept.calls[key] == ("inline" if inlined else "call")
    turned = prepare(graph, decisions={"calls": {key: "call" if inlined else "inline"}})
    assert ("f" in turned.stages["tiny"].programs) == inlined
    assert "as the decisions say" in " ".join(v.why for v in turned.stages["calls"].values())
    assert turned.warnings == []


def test_a_decision_about_nothing_warns_and_a_wrong_word_is_refused() -> None:
    c = prepare(chain(10, 2), decisions={"calls": {"0" * 64: "call"}})
    assert c.stages["tiny"] and [d.kind for d in c.warnings] == ["UnknownDecision"]
    with pytest.raises(TatamiError):
        prepare(chain(10, 2), decisions={"calls": {"": "perhaps"}})


def test_what_cannot_be_inlined_says_why() -> None:
    g = Graph("g")
    f = g.subgraph("f")
    f.output("r", f.input("a", ("N",), F).op("nonzero", size="K"))
    g.output("y", g.call(f, g.input("x", (8,), F)))
    c = prepare(g, decisions=INLINE)
    (verdict,) = c.stages["calls"].values()
    assert not verdict.inlined and verdict.why == "its size K is known only when it runs"
    assert "f" in c.stages["tiny"].programs


def test_an_inlined_operation_is_traced_to_its_line_and_to_the_call() -> None:
    g = Graph("g")
    f = g.subgraph("f")
    f.output("r", f.input("a", ("N",), F).exp())
    g.output("y", g.call(f, g.input("x", (8,), F)))
    first = compile(g).explain().splitlines()[1]
    assert first.count("test_calls.py:") == 2
