"""Facts of the computation graph that `docs/design/graph.md` cites: compiled for the CPU, on the reference, against numpy."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tatami.api import CompiledFunction, compile, prepare
from tatami.core import view
from tatami.core.codec import to_builtins
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import expr
from tatami.core.module import Module
from tatami.core.ops import OPS as SCALAR_OPS
from tatami.core.tensor import numpy_dtype
from tatami.decisions import Decisions
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.node_view import node_view
from tatami.frontend.run import run as run_frontend
from tatami.plan.views.form_passes import Wish
from tatami.plan.views.wished_plans import rows_plan, scalar_plan
from tatami.report.explain import trace
from tatami.report.playback import compare_outputs, play_back
from tatami.runtime.machine.host import detect_host
from tatami.stages import show

RNG = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def agrees(g: Graph, **inputs: np.ndarray) -> tuple[dict[str, np.ndarray], CompiledFunction]:
    """Results of the compiled kernels, after a check that the reference target gives the same."""
    f = compile(g, target="cpu", threads=2)
    kept = {n: a.copy() for n, a in inputs.items()}
    got = f(inputs)
    assert all(np.array_equal(kept[n], a) for n, a in inputs.items())
    reference = compile(g, target="reference")(kept)
    assert [a.difference for a in compare_outputs(f.signature, got, reference)] == [None] * len(got)
    return got, f


def launches(f: CompiledFunction) -> list:
    return list(f.stages["execution"].value.main.instructions)


def arena(f: CompiledFunction) -> list[str]:
    return [b.id for b in f.stages["execution"].value.main.buffers if b.kind == "arena"]


def kind_of(action: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(TatamiError) as error:
        action()
    (d,) = error.value.diagnostics
    assert d.why and d.suggestion and d.at
    return d.code, d.kind


# -- the graph as a whole ------------------------------------------------------------------------


def test_a_value_used_twice_and_two_calls_agree() -> None:
    g = Graph("g")
    x = g.input("x", (3, 4), DType.fp32)
    h = x.exp()
    g.output("y", h * h + h)
    a = f32(3, 4)
    got, f = agrees(g, x=a)
    assert np.allclose(got["y"], np.exp(a) ** 2 + np.exp(a), rtol=1e-5)
    assert np.array_equal(f(x=a)["y"], got["y"])


def test_a_cycle_in_a_document_is_one_diagnostic() -> None:
    g = Graph("g")
    x = g.input("x", (3,), DType.fp32)
    g.output("y", (x.exp() + x).relu())
    document = json.loads(compile(g, target="reference").stages["frontend"].json)
    document["programs"]["main"]["graph"][0]["inputs"] = ["y"]
    assert kind_of(lambda: compile(document))[1] in ("UnknownValue", "CyclicGraph")


FIVE = {"h = x @ w", "h = h.relu()", "h = h * 2.0", "h = h.softmax(1)", "h = h.sum(0)"}


def test_five_operations_end_in_one_program_traced_to_the_graph() -> None:
    g = Graph("g")
    x, w = g.input("x", ("M", 16), DType.fp32), g.input("w", (16, 8), DType.fp32)
    h = x @ w
    h = h.relu()
    h = h * 2.0
    h = h.softmax(1)
    h = h.sum(0)
    g.output("y", h)
    _, f = agrees(g, x=f32(5, 16), w=f32(16, 8))
    execution = f.stages["execution"].value
    assert list(execution.programs) == ["main"]
    assert all(i.op.__class__.__name__ in ("Launch", "Choose") for i in launches(f))
    named = set()
    for region in f.stages["region"].value.main.body:
        sources = trace(f.compilation, "main", region)
        assert sources
        named |= {s.rsplit(":", 1)[1] for s in sources}
    here = Path(__file__).read_text().splitlines()
    assert {here[int(line) - 1].strip() for line in named} == FIVE


def test_each_kernel_has_its_outputs_among_its_arguments() -> None:
    g = Graph("g")
    x, w = g.input("x", ("M", 16), DType.fp32), g.input("w", (16, 8), DType.fp32)
    h = (x @ w).relu()
    g.output("y", h)
    g.output("z", h.softmax(1) @ w.transpose())
    _, f = agrees(g, x=f32(5, 16), w=f32(16, 8))
    waves = [i.wave for i in launches(f)]
    assert waves == sorted(waves) and waves[0] == 0
    for i in launches(f):
        passed = {a.buffer for a in i.op.args if hasattr(a, "buffer")}
        assert i.op.kernel and i.inputs and i.outputs and {*i.inputs, *i.outputs} == passed


def test_an_order_that_is_not_given_is_inferred() -> None:
    g = Graph("g")
    x, w = g.input("x", ("M", 16), DType.fp32), g.input("w", (16, 8), DType.fp32)
    g.output("y", ((x @ w).relu().softmax(1) @ w.transpose()).sum(1))
    inputs = {"x": f32(5, 16), "w": f32(16, 8)}
    got, f = agrees(g, **inputs)
    execution = f.stages["execution"].value
    import msgspec

    from tatami.execution.waves import order

    main = execution.main
    unordered = tuple(msgspec.structs.replace(i, wave=-1) for i in reversed(main.instructions))
    again = order(msgspec.structs.replace(main, instructions=unordered))
    assert [(i.wave, i.debug_name) for i in again.instructions] == [(i.wave, i.debug_name) for i in main.instructions]
    assert got["y"].shape == (5,)


def test_an_execution_document_without_waves_runs(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from tatami.cli import main

    g = Graph("g")
    x, w = g.input("x", ("M", 16), DType.fp32), g.input("w", (16, 8), DType.fp32)
    g.output("y", (x @ w).relu().softmax(1) @ w.transpose())
    model = tmp_path / "m.json"
    model.write_text(compile(g).stages["frontend"].json)
    run = CliRunner().invoke
    assert run(main, ["compile", str(model), "-o", str(tmp_path / "out"), "--dump=all"]).exit_code == 0
    (path,) = (tmp_path / "out").glob("*_execution.json")
    before = run(main, ["run", str(path), "-D", "M=5"]).output
    document = json.loads(path.read_text())
    for i in document["programs"]["main"]["instructions"]:
        del i["wave"]
    path.write_text(json.dumps(document))
    after = run(main, ["run", str(path), "-D", "M=5"])
    assert after.exit_code == 0 and after.output == before and "y: float32[5, 16]" in before


def test_compositions_are_primitives_in_tiny() -> None:
    g = Graph("g")
    a, b = g.input("a", (3, 4), DType.fp32), g.input("b", (3, 4), DType.fp32)
    g.output("d", a - b)
    g.output("m", a.mean(1))
    g.output("s", a.softmax(1))
    g.output("v", a.variance(1))
    g.output("n", a.one("layer_norm"))
    image = g.input("i", (1, 2, 8, 8), DType.fp32)
    g.output("p", image.one("avg_pool", kernel=(2, 2)))
    _, f = agrees(g, a=f32(3, 4), b=f32(3, 4), i=f32(1, 2, 8, 8))
    for node in f.stages["tiny"].value.main.nodes:
        op = node.op
        assert type(op).__name__ != "CallOp"
        scalar = getattr(op, "op", None)
        assert scalar is None or scalar in SCALAR_OPS or scalar in ("sum", "max", "min", "prod", "add")


# -- cumulative ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 5), (1, 5), (3, 1), (0, 5), (3, 0)])
@pytest.mark.parametrize("axis", [0, 1])
def test_cumulative_operations_equal_numpy(shape: tuple[int, int], axis: int) -> None:
    g = Graph("g")
    x = g.input("x", shape, DType.fp32)
    g.output("s", x.cumsum(axis))
    g.output("p", x.one("cumprod", axis=axis))
    a = f32(*shape)
    got, _ = agrees(g, x=a)
    assert got["s"].shape == shape
    assert np.allclose(got["s"], np.cumsum(a, axis), rtol=1e-5, atol=1e-6)
    assert np.allclose(got["p"], np.cumprod(a, axis), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("shape", "axis"), [((10**6,), 0), ((3, 10**5), 1), ((10**5, 7), 0), ((40, 3000, 20), 1)])
def test_a_long_prefix_sum_is_a_scan_by_blocks(shape: tuple[int, ...], axis: int) -> None:
    """Totals of blocks, their carries, the results: the same bits for any number of threads, no less exact than numpy."""
    a = f32(*shape)
    results = []
    for threads in (1, 2, 5):
        g = Graph("g")
        g.output("y", g.input("x", shape, DType.fp32).cumsum(axis))
        f = compile(g, target=msgspec.structs.replace(detect_host(), cores=threads), threads=threads)
        assert len(launches(f)) == 1
        results.append(f(x=a)["y"])
        texts = [f.stages["plan"].text, f.stages["c"].text]
        assert "in blocks of" in texts[0] or shape[axis] < 4096
        if threads == 5 and len(shape) < 3:
            assert "at a time" in texts[0]
            assert texts[1].count("tatami_parallel_for(pool") == 2
    assert all(np.array_equal(r, results[0]) for r in results)
    exact = np.cumsum(a.astype(np.float64), axis)
    assert np.abs(results[0] - exact).max() <= np.abs(np.cumsum(a, axis) - exact).max()


# -- views ---------------------------------------------------------------------------------------


def test_movement_costs_nothing() -> None:
    g = Graph("g")
    g.output("y", g.input("x", (3, 4, 5), DType.fp32).permute(2, 0, 1).flip(0).unsqueeze(1).exp())
    a = f32(3, 4, 5)
    got, f = agrees(g, x=a)
    assert np.allclose(got["y"], np.exp(a.transpose(2, 0, 1)[::-1][:, None]), rtol=1e-5)
    assert len(launches(f)) == 1 and arena(f) == []


def test_linear_movement_equals_numpy() -> None:
    g = Graph("g")
    x = g.input("x", (2, 3, 4), DType.fp32)
    g.output("permute", x.permute(2, 0, 1))
    g.output("unsqueeze", x.unsqueeze(0, 3))
    g.output("squeeze", x[:1].squeeze(0))
    g.output("repeat", x[:, :1].repeat(1, 5))
    g.output("flip", x.flip(0))
    g.output("tile", x.tile(1, 3))
    a = f32(2, 3, 4)
    got, _ = agrees(g, x=a)
    assert np.array_equal(got["permute"], a.transpose(2, 0, 1))
    assert np.array_equal(got["unsqueeze"], a[None, :, :, None])
    assert np.array_equal(got["squeeze"], a[0])
    assert np.array_equal(got["repeat"], np.repeat(a[:, :1], 5, 1))
    assert np.array_equal(got["flip"], a[::-1])
    assert np.array_equal(got["tile"], np.tile(a, (1, 3, 1)))
    assert kind_of(lambda: x.squeeze(0))[0]
    assert kind_of(lambda: x.repeat(0, 3))[0]


def test_a_view_by_an_expression_rolls() -> None:
    g = Graph("g")
    g.output("y", g.input("x", (10,), DType.fp32).view((10,), linear="(i0 + 3) % 10"))
    a = f32(10)
    got, _ = agrees(g, x=a)
    assert np.array_equal(got["y"], np.roll(a, -3))


def test_reshape_through_a_size_one_axis() -> None:
    g = Graph("g")
    x = g.input("x", (4, 6), DType.fp32)
    g.output("y", x.reshape(3, 8))
    g.output("z", x.unsqueeze(1).permute(0, 2, 1).reshape(3, 8))
    a = f32(4, 6)
    got, _ = agrees(g, x=a)
    assert np.array_equal(got["y"], a.reshape(3, 8)) and np.array_equal(got["z"], a.reshape(3, 8))
    assert kind_of(lambda: x.reshape(5, 5)) == ("E1002", "AxisSizeMismatch")


def test_unfold_equals_torch_and_fold_is_its_sum() -> None:
    torch = pytest.importorskip("torch")
    g = Graph("g")
    x = g.input("x", (1, 10), DType.fp32)
    u = x.unfold((3,), (2,))
    assert tuple(map(str, u.shape)) == ("1", "3", "4")
    g.output("one", u)
    image = g.input("i", (6, 16, 16), DType.fp32)
    grouped = image.unfold((3, 3), groups=2)
    assert tuple(map(str, grouped.shape)) == ("2", "3", "3", "3", "14", "14")
    g.output("grouped", grouped)
    wide = image.unfold((3, 2), (2, 1), (1, 2))
    g.output("folded", wide.fold((6, 16, 16), (3, 2), (2, 1), (1, 2)))
    a, b = f32(1, 10), f32(6, 16, 16)
    got, _ = agrees(g, x=a, i=b)
    assert np.array_equal(got["one"][0].T, torch.from_numpy(a[0]).unfold(0, 3, 2).numpy())
    t = torch.from_numpy(b)[None]
    assert np.array_equal(got["grouped"].reshape(54, 196), torch.nn.functional.unfold(t, 3)[0].numpy())
    how = {"kernel_size": (3, 2), "stride": (2, 1), "dilation": (1, 2)}
    want = torch.nn.functional.fold(torch.nn.functional.unfold(t, **how), (16, 16), **how)[0].numpy()
    assert np.allclose(got["folded"], want, rtol=1e-5, atol=1e-5)


def test_unfold_in_three_dimensions_equals_torch() -> None:
    torch = pytest.importorskip("torch")
    g = Graph("g")
    g.output("y", g.input("x", (2, 5, 6, 7), DType.fp32).unfold((2, 3, 2), (1, 2, 3)))
    a = f32(2, 5, 6, 7)
    got, _ = agrees(g, x=a)
    want = torch.from_numpy(a).unfold(1, 2, 1).unfold(2, 3, 2).unfold(3, 2, 3).permute(0, 4, 5, 6, 1, 2, 3).numpy()
    assert np.array_equal(got["y"], want)


def test_strided_inputs_and_transposed_outputs() -> None:
    g = Graph("g")
    x = g.input("x", (4, 3), DType.fp32)
    g.output("y", x.permute(1, 0))
    a = f32(3, 4).T
    got = compile(g)(x=a)["y"]
    assert got.flags.c_contiguous and np.array_equal(got, a.T)


def test_reshape_and_unfold_of_an_index_expression_go_through_contiguous() -> None:
    g = Graph("g")
    x = g.input("x", (4, 6), DType.fp32)
    g.output("y", x.tile(1, 2).reshape(3, 16))
    g.output("z", x.tile(1, 2).permute(1, 0).unfold((3,)).exp())
    g.output("plain", x.permute(1, 0).reshape(3, 8))
    a = f32(4, 6)
    got, f = agrees(g, x=a)
    assert np.array_equal(got["y"], np.tile(a, (1, 2)).reshape(3, 16))
    assert np.array_equal(got["plain"], a.T.reshape(3, 8))
    assert f.stages["frontend"].text.count("= contiguous(tile") == 1
    assert f.stages["frontend"].text.count("contiguous(") == 2
    assert arena(f) == []  # no kernel copies for it
    tiled = view.tile(view.contiguous((4, 6)), 0, 2)
    assert kind_of(lambda: view.reshape(tiled, (6, 8)))[1] == "InvalidAttribute"


def test_every_movement_node_has_the_view_it_computes() -> None:
    g = Graph("g")
    x, i = g.input("x", (2, 3, 4), DType.fp32), g.input("i", (2, 2, 4), DType.i64)
    made = [x.permute(2, 0, 1), x.unsqueeze(1), x[:, :1].squeeze(1), x.flip(0, 2), x.tile(1, 2), x.reshape(4, 6),
            x[:, :1].repeat(1, 3), x.unfold((2,), (1,), (2,)), x.view((5,), linear="i0*7 % 24"), x.gather(1, i),
            x.view((3, 2), map=("i1", "i0", "2*i1 + 1")), x[:, 1:, ::2], x.roll(1, 2), x[:, :, :3].one("diagonal"),
            x.pad([(0, 0), (-1, 0), (0, -2)]), x.pad([(0, 0), (4, 5), (1, -1)], mode="reflect")]  # fmt: skip
    for k, t in enumerate(made):
        g.output(f"y{k}", t)
    module = g.module()
    a, n = f32(2, 3, 4), RNG.integers(0, 3, (2, 2, 4))
    values: dict[str, np.ndarray] = {"x": a, "i": n}
    values |= observed(module, {"x": a, "i": n})
    seen = set()
    for node in module.main.graph:
        found = node_view(node, module.main.tensors)
        if found is None:
            continue
        seen.add(node.op)
        flat = values[node.inputs[0]].reshape(-1)
        sources = [[], *(values[s].reshape(-1).tolist() for s in node.inputs[1:])]
        want = values[node.outputs[0]]
        got = [flat[view.element(found, at, sources)] for at in np.ndindex(want.shape)]
        assert np.array_equal(np.reshape(got, want.shape), want), node
    assert seen == {
        "permute",
        "unsqueeze",
        "squeeze",
        "flip",
        "tile",
        "reshape",
        "repeat",
        "unfold",
        "view",
        "gather",
        "slice",
        "roll",
        "diagonal",
        "pad",
    }


def observed(module: Module, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    values: dict[str, np.ndarray] = {}
    run_frontend(module, inputs, {}, observe=lambda _program, name, array: values.__setitem__(name, array))
    return values


def test_a_gather_of_a_gather_of_a_permute_is_one_kernel() -> None:
    g = Graph("g")
    x, i, j = g.input("x", (4, 6), DType.fp32), g.input("i", (6, 3), DType.i64), g.input("j", (2, 3), DType.i64)
    g.output("y", x.permute(1, 0).gather(1, i).gather(0, j))
    a, m, n = f32(4, 6), RNG.integers(-4, 4, (6, 3)), RNG.integers(0, 3, (2, 3))
    got, f = agrees(g, x=a, i=m, j=n)
    assert np.array_equal(got["y"], np.take_along_axis(np.take_along_axis(a.T, m, 1), n, 0))
    (launch,) = launches(f)
    assert len(launch.inputs) == 3 and arena(f) == []
    with pytest.raises(TatamiError):
        compile(g)(x=a, i=m, j=n + 6)
    with pytest.raises(TatamiError):
        compile(g)(x=a, i=np.full_like(m, 4), j=n)


@pytest.mark.parametrize("target", ["cpu", "emulated-sm80"])
@pytest.mark.parametrize("count", [2, 3])
def test_gathers_along_one_axis_are_one_kernel(target: str, count: int) -> None:
    g = Graph("g")
    t, want = g.input("x", (7, 4), DType.fp32), (a := f32(7, 4))
    inputs = {"x": a}
    for k in range(count):
        inputs[f"i{k}"] = RNG.integers(-want.shape[0], want.shape[0], (6 - k, 4))
        t = t.gather(0, g.input(f"i{k}", (6 - k, 4), DType.i64))
        want = np.take_along_axis(want, inputs[f"i{k}"], 0)
    g.output("y", t.exp())
    f = compile(g, target=target)
    assert np.allclose(f(inputs)["y"], np.exp(want), rtol=1e-4)
    (region,) = f.stages["region"].value.main.body
    assert len(region.inputs) == count + 1
    for k in range(count):
        with pytest.raises(TatamiError, match="IndexOutOfRange"):
            f(inputs | {f"i{k}": np.full((6 - k, 4), 7)})


MOVED = {
    "flip": (lambda t: t.flip(0), lambda a: a[::-1]),
    "tile": (lambda t: t.tile(0, 3), lambda a: np.tile(a, (3, 1))),
    "roll": (lambda t: t.roll(2, 0), lambda a: np.roll(a, 2, 0)),
    "roll back": (lambda t: t.roll(-1, 0), lambda a: np.roll(a, -1, 0)),
    "view": (lambda t: t.view((6, 4), ["(i0 + 3) % 6", "i1"]), lambda a: np.roll(a, -3, 0)),
    "all": (lambda t: t.flip(0).roll(1, 0).tile(0, 2), lambda a: np.tile(np.roll(a[::-1], 1, 0), (2, 1))),
}


@pytest.mark.parametrize("target", ["cpu", "emulated-sm80"])
@pytest.mark.parametrize("name", MOVED)
def test_a_gather_reads_below_a_view_that_moved_its_axis(name: str, target: str) -> None:
    """Gather, view, gather along one axis: one kernel, with the faults of the view's own size."""
    moved, oracle = MOVED[name]
    g = Graph("g")
    x, i = g.input("x", (7, 4), DType.fp32), g.input("i", (6, 4), DType.i64)
    t = moved(x.gather(0, i))
    size = t.shape[0].as_int()
    assert size is not None
    g.output("y", t.gather(0, g.input("j", (9, 4), DType.i32)))
    f = compile(g, target=target)
    (region,) = f.stages["region"].value.main.body
    assert len(region.inputs) == 3
    a, m, n = f32(7, 4), RNG.integers(-7, 7, (6, 4)), RNG.integers(-size, size, (9, 4)).astype(np.int32)
    assert np.array_equal(f(x=a, i=m, j=n)["y"], np.take_along_axis(oracle(np.take_along_axis(a, m, 0)), n, 0))
    for wrong in (size, -size - 1, 2**31 - 1, -(2**31)):
        with pytest.raises(TatamiError, match="IndexOutOfRange"):
            f(x=a, i=m, j=np.where(np.arange(36).reshape(9, 4) == 17, wrong, n).astype(np.int32))


@pytest.mark.parametrize("dtype", [DType.u8, DType.i8, DType.i64])
def test_a_narrow_index_goes_through_a_view_of_any_size(dtype: DType) -> None:
    g = Graph("g")
    x = g.input("x", ("N",), DType.fp32)
    j = g.input("j", ("M",), dtype)
    g.output("flipped", x.flip(0).gather(0, j))
    g.output("tiled", x.tile(0, 3).gather(0, j))
    g.output("rolled", x.roll(5, 0).gather(0, j))
    f = compile(g)
    for size in (1, 100, 200, 300):
        a = f32(size)
        lo, hi = max(-size, np.iinfo(numpy_dtype(dtype)).min), min(size, np.iinfo(numpy_dtype(dtype)).max)
        n = RNG.integers(lo, hi, 50).astype(numpy_dtype(dtype))
        made, k = f(x=a, j=n), n.astype(np.int64)
        assert np.array_equal(made["flipped"], a[::-1][k]) and np.array_equal(made["rolled"], np.roll(a, 5)[k])
        assert np.array_equal(made["tiled"], np.tile(a, 3)[k])
    assert f(x=np.zeros(0, np.float32), j=np.zeros(0, numpy_dtype(dtype)))["tiled"].shape == (0,)
    with pytest.raises(TatamiError, match="IndexOutOfRange"):
        f(x=np.zeros(0, np.float32), j=np.zeros(1, numpy_dtype(dtype)))


def test_an_index_from_the_end_counts_in_the_gathered_tensor() -> None:
    g = Graph("g")
    x, i, j = g.input("x", (5, 4), DType.fp32), g.input("i", (3, 4), DType.i64), g.input("j", (2, 4), DType.i64)
    g.output("y", x.gather(1, i).gather(0, j))
    g.output("z", x[:3].gather(0, j))
    a, m, n = f32(5, 4), RNG.integers(-4, 4, (3, 4)), RNG.integers(-3, 3, (2, 4))
    got, f = agrees(g, x=a, i=m, j=n)
    assert np.array_equal(got["z"], np.take_along_axis(a[:3], n, 0))
    with pytest.raises(TatamiError, match="IndexOutOfRange"):
        f(x=a, i=m, j=np.full_like(n, 3))
    assert np.array_equal(got["y"], np.take_along_axis(np.take_along_axis(a[:3], m, 1), n, 0))


def test_a_gather_shows_its_index_load_and_has_two_sources() -> None:
    g = Graph("g")
    g.output("y", g.input("x", (4, 6), DType.fp32).gather(1, g.input("i", (4, 3), DType.i64)))
    text = compile(g).stages["frontend"].text
    assert "= gather(x, i) axis=1 reads 6*i0 + l0, l0 = LoadIndex(1, 3*i0 + i1)" in text


# -- gather and scatter --------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_gather_equals_torch(rank: int) -> None:
    torch = pytest.importorskip("torch")
    shape, taken = (4, 3, 5, 2)[:rank], (2, 3, 4, 2)[:rank]
    g = Graph("g")
    x = g.input("x", shape, DType.fp32)
    inputs = {"x": f32(*shape)}
    for axis in range(rank):
        i = g.input(f"i{axis}_", taken, DType.i64)
        inputs[f"i{axis}_"] = RNG.integers(0, shape[axis], taken)
        g.output(f"y{axis}", x.gather(axis, i))
    got, _ = agrees(g, **inputs)
    for axis in range(rank):
        want = torch.gather(torch.from_numpy(inputs["x"]), axis, torch.from_numpy(inputs[f"i{axis}_"]))
        assert np.array_equal(got[f"y{axis}"], want.numpy())
    assert kind_of(lambda: x.gather(0, g.input("j", (2,) * (rank + 1), DType.i64)))[0]


def test_an_index_outside_is_a_diagnostic() -> None:
    g = Graph("g")
    x, i = g.input("x", (4, 6), DType.fp32), g.input("i", (4, 3), DType.i64)
    g.output("y", x.gather(1, i))
    f = compile(g)
    assert kind_of(lambda: f(x=f32(4, 6), i=np.full((4, 3), 6)))[1] == "IndexOutOfRange"


def test_a_gather_is_an_index_load_in_its_consumers_kernel() -> None:
    g = Graph("g")
    x, i = g.input("x", (4, 6), DType.fp32), g.input("i", (4, 3), DType.i64)
    g.output("y", x.gather(1, i).exp())
    g.output("z", x.gather(0, i).one("contiguous"))
    a, k = f32(4, 6), RNG.integers(0, 4, (4, 3))
    got, f = agrees(g, x=a, i=k)
    assert np.allclose(got["y"], np.exp(np.take_along_axis(a, k, 1)), rtol=1e-5)
    assert np.array_equal(got["z"], np.take_along_axis(a[:, :3], k, 0))
    for launch in launches(f):
        assert set(launch.inputs) == {"n0", "n1"}
    assert arena(f) == []


@pytest.mark.parametrize("op", ["set", "add", "max"])
def test_scatter_with_duplicate_indices_equals_torch(op: str) -> None:
    torch = pytest.importorskip("torch")
    g = Graph("g")
    x, i, u = g.input("x", (4, 6), DType.fp32), g.input("i", (4, 5), DType.i64), g.input("u", (4, 5), DType.fp32)
    g.output("y", x.scatter(1, i, u, op))
    a, k, v = f32(4, 6), RNG.integers(0, 3, (4, 5)), f32(4, 5)
    got, _ = agrees(g, x=a, i=k, u=v)
    if op == "set":
        want = a.copy()
        for row in range(4):
            for column in range(5):
                want[row, k[row, column]] = v[row, column]
    else:
        how = {"add": "sum", "max": "amax"}[op]
        want = torch.from_numpy(a).scatter_reduce(1, torch.from_numpy(k), torch.from_numpy(v), how).numpy()
    assert np.allclose(got["y"], want, rtol=1e-5, atol=1e-6)


# -- shapes and dtypes ---------------------------------------------------------------------------


def test_shapes_are_equal_or_rank_0() -> None:
    g = Graph("g")
    a, b = g.input("a", (2, 3), DType.fp32), g.input("b", (1, 3), DType.fp32)
    assert kind_of(lambda: a + b)[0] == "E1001"
    x, y = g.input("x", (expr("N") * 4,), DType.fp32), g.input("y", (4 * expr("N"),), DType.fp32)
    assert str((x + y).shape[0]) == "4*N"
    assert (a * 2.0).shape == a.shape


def test_dtypes_are_inferred() -> None:
    g = Graph("g")
    x, n = g.input("x", (3,), DType.fp16), g.input("n", (3,), DType.i32)
    b = g.input("b", (3,), DType.bf16)
    assert (x + x).dtype == x.exp().dtype == DType.fp16 and (b * 2.0).dtype == DType.bf16
    assert (n * n).dtype == DType.i32 and (x < 1.0).dtype == DType.bool
    assert x.argmax(0).dtype == DType.i64
    with pytest.raises(TatamiError):
        g.number(1.0)
        g.module()
    h = Graph("h")
    h.output("y", h.input("x", (3,), DType.fp16) < 1.0)
    result = compile(h)(x=np.array([0, 1, 2], "f2"))["y"]
    assert result.dtype == np.bool_ and result.itemsize == 1 and result.tolist() == [True, False, False]


def test_related_sizes_run_without_recompiling() -> None:
    g = Graph("g")
    assert expr("N") * 4 == 4 * expr("N")
    a, b, c = g.input("a", ("N",), DType.fp32), g.input("b", ("N+1",), DType.fp32), g.input("c", ("N*M",), DType.fp32)
    g.output("y", g.concat([a, b]).sum() + c.reshape("N", "M").sum())
    f = compile(g)
    for n, m in ((3, 2), (7, 5)):
        x, y, z = f32(n), f32(n + 1), f32(n * m)
        assert np.allclose(f({"a": x, "b": y, "c": z})["y"], x.sum() + y.sum() + z.sum(), atol=1e-4)


# -- fusion and vectors --------------------------------------------------------------------------


def six(x: Tensor) -> Tensor:
    return x.exp().sqrt().log().square().tanh().abs()


def test_elementwise_chains_are_one_kernel() -> None:
    g = Graph("g")
    x, y = g.input("x", (10, 130), DType.fp32), g.input("y", (10, 130), DType.fp32)
    g.output("s", (x * y + 1.0).sum(1))
    _, f = agrees(g, x=f32(10, 130), y=f32(10, 130))
    assert len(launches(f)) == 1 and arena(f) == []
    g = Graph("g")
    g.output("y", six(g.input("x", (10, 130), DType.fp32)))
    _, f = agrees(g, x=f32(10, 130))
    assert len(launches(f)) == 1 and arena(f) == []


def of_width(g: Graph, *widths: int) -> CompiledFunction:
    """Number of floats per vector → the same kernels, by decision, Region by Region; 1 is scalar."""
    plans = {}
    stages = compile(g).stages
    regions = {r.name: r for r in stages["region"].value.main.body}
    for i, chosen in enumerate(stages["plan"].value.main.regions):
        width, region = widths[i % len(widths)], regions[chosen.region]
        plan = scalar_plan(region, Wish()) if width == 1 else rows_plan(region, Wish(), width)
        plans[chosen.key] = to_builtins(plan)
    return compile(g, decisions=Decisions(plans=plans))


def elementwise(columns: int) -> Graph:
    """Rows too short to be turned in registers of any width."""
    g = Graph("g")
    x, y = g.input("x", (columns, 3), DType.fp32), g.input("y", (3, columns), DType.fp32)
    g.output("add", (x.transpose() + y).transpose())
    g.output("six", six(x))
    g.output("sum", (x.transpose() * y + 1.0).sum(0))
    return g


@pytest.mark.parametrize("columns", [128, 130])
def test_vector_widths_are_chosen_by_the_plan(columns: int) -> None:
    a, b = f32(columns, 3), f32(3, columns)
    texts = []
    widths = [w for w in (1, 4, 8, 16) if w <= detect_host().vector_bytes // 4]
    for width in widths:
        f = of_width(elementwise(columns), width)
        got = f(x=a, y=b)
        assert np.array_equal(got["add"], a + b.T)
        assert np.allclose(got["six"], np.abs(np.tanh(np.log(np.sqrt(np.exp(a))) ** 2)), rtol=1e-3, atol=1e-4)
        assert np.allclose(got["sum"], (a.T * b + 1).sum(0), rtol=1e-4)
        texts.append(f.stages["c"].text)
        assert ("/* simd */" in texts[-1]) == (width > 1)
        assert width == 1 or f"f32x{width}_u*)" in texts[-1]
    assert len(set(texts)) == len(widths)


@pytest.mark.skipif(detect_host().vector_bytes < 32, reason="vectors of 4 floats at most")
def test_each_region_has_a_width_of_its_own_and_explain_lists_the_candidates() -> None:
    g = elementwise(130)
    f = of_width(g, 4, 8)
    assert len(f.stages["plan"].value.main.regions) > 1
    assert all(f"f32x{w}_u*)" in f.stages["c"].text for w in (4, 8))
    a, b = f32(130, 3), f32(3, 130)
    assert np.allclose(f(x=a, y=b)["sum"], (a.T * b + 1).sum(0), rtol=1e-4)
    text = compile(g).explain()
    for width in (4, 8, 16):
        if width <= detect_host().vector_bytes // 4:
            assert f"cpu_rows x{width}, " in text or f"cpu_rows width {width}" in text
    assert "rejected scalar: slower" in text


def test_a_width_that_is_no_power_of_two_is_refused() -> None:
    assert kind_of(lambda: of_width(elementwise(130), 3)) == ("E1501", "InvalidPlan")


def test_a_vector_loop_has_a_scalar_tail_where_the_size_asks_for_one() -> None:
    def row(columns: int) -> str:
        g = Graph("g")
        x, y = g.input("x", (10, columns), DType.fp32), g.input("y", (10,), DType.fp32)
        g.output("z", x * y.unsqueeze(1).expand(10, columns))
        a, b = f32(10, columns), f32(10)
        f = of_width(g, 4)
        assert np.array_equal(f(x=a, y=b)["z"], a * b[:, None])
        return f.stages["c"].text

    with_tail, without = row(130), row(128)
    assert "< 128; " in with_tail and "= 128; " in with_tail and "< 130; ++" in with_tail
    assert "< 128; " in without and "= 128; " not in without


def test_short_axes_are_scalar_and_long_ones_end_in_a_horizontal_sum() -> None:
    def total(*shape: int) -> str:
        g = Graph("g")
        g.output("s", g.input("x", shape, DType.fp32).sum(-1))
        a = f32(*shape)
        got, f = agrees(g, x=a)
        assert np.allclose(got["s"], a.sum(-1), rtol=1e-4, atol=1e-5)
        return f.stages["c"].text

    assert "/* simd */" not in total(3)
    assert "t_h_sum_fp32" not in total(10, 3)  # vectors run across rows, if at all
    text = total(10, 130)
    assert "/* simd */" in text and "t_h_sum_fp32" in text


# -- contractions --------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "k", "n"), [(17, 33, 19), (1, 1, 1), (5, 0, 3), (0, 4, 3), (100, 75, 130)])
def test_matmul_and_batches_equal_numpy(m: int, k: int, n: int) -> None:
    g = Graph("g")
    a, b = g.input("a", ("M", "K"), DType.fp32), g.input("b", ("K", "N"), DType.fp32)
    c, d = g.input("c", ("B", "M", "K"), DType.fp32), g.input("d", ("B", "K", "N"), DType.fp32)
    g.output("y", a @ b)
    g.output("z", c @ d)
    inputs = {"a": f32(m, k), "b": f32(k, n), "c": f32(3, m, k), "d": f32(3, k, n)}
    got, _ = agrees(g, **inputs)
    assert np.allclose(got["y"], inputs["a"] @ inputs["b"], rtol=1e-4, atol=1e-4)
    assert np.allclose(got["z"], inputs["c"] @ inputs["d"], rtol=1e-4, atol=1e-4)


def test_high_level_operations_equal_torch() -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn.functional
    g = Graph("g")
    x = g.input("x", (2, 4, 9, 8), DType.fp32)
    g.output("mean", x.mean((2, 3)))
    g.output("var", x.variance((1,)))
    g.output("softmax", x.softmax(1))
    g.output("layer", x.one("layer_norm", axis=2))
    g.output("group", x.one("group_norm", groups=2))
    g.output("max", x.one("max_pool", kernel=(3, 2), stride=(2, 2)))
    g.output("avg", x.one("avg_pool", kernel=(3, 2), stride=(2, 1)))
    a = f32(2, 4, 9, 8)
    got, _ = agrees(g, x=a)
    t = torch.from_numpy(a)
    want = {
        "mean": t.mean((2, 3)), "var": t.var(1, unbiased=False), "softmax": t.softmax(1), "layer": nn.layer_norm(t, (9, 8)),
        "group": nn.group_norm(t, 2), "max": nn.max_pool2d(t, (3, 2), 2), "avg": nn.avg_pool2d(t, (3, 2), (2, 1)),
    }  # fmt: skip
    for name, value in want.items():
        assert np.allclose(got[name], value.numpy(), rtol=1e-4, atol=1e-5), name


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(("stride", "dilation", "groups"), [(1, 1, 1), (2, 1, 2), (1, 2, 1), (2, 2, 2)])
def test_convolutions_of_any_rank_equal_torch(rank: int, stride: int, dilation: int, groups: int) -> None:
    torch = pytest.importorskip("torch")
    g = Graph("g")
    size = (7, 6, 5)[:rank]
    x, w = g.input("x", (2, 4, *size), DType.fp32), g.input("w", (6, 4 // groups, *(3, 2, 2)[:rank]), DType.fp32)
    v = g.input("v", (4, 6 // groups, *(3, 2, 2)[:rank]), DType.fp32)
    how = {"stride": (stride,) * rank, "dilation": (dilation,) * rank, "groups": groups}
    g.output("y", x.one("conv", w, **how, padding=((1, 1),) * rank))
    out = (1,) * rank if stride == 2 or dilation == 2 else (0,) * rank
    g.output("z", x.one("conv_transpose", v, **how, padding=((1, 1),) * rank, output_padding=out))
    inputs = {"x": f32(2, 4, *size), "w": f32(*(int(str(s)) for s in w.shape)), "v": f32(*(int(str(s)) for s in v.shape))}
    got, _ = agrees(g, **inputs)
    t = {n: torch.from_numpy(a) for n, a in inputs.items()}
    nn = torch.nn.functional
    conv, transposed = getattr(nn, f"conv{rank}d"), getattr(nn, f"conv_transpose{rank}d")
    settings = {"stride": stride, "dilation": dilation, "groups": groups, "padding": 1}
    assert np.allclose(got["y"], conv(t["x"], t["w"], **settings).numpy(), rtol=1e-4, atol=1e-4)
    want = transposed(t["x"], t["v"], **settings, output_padding=out)
    assert np.allclose(got["z"], want.numpy(), rtol=1e-4, atol=1e-4)


# -- subgraphs -----------------------------------------------------------------------------------


def two_results(g: Graph) -> Graph:
    f = g.subgraph("two")
    a = f.input("a", ("N",), DType.fp32)
    f.output("plus", a + 1.0)
    f.output("double", a * 2.0)
    return f


def test_a_call_with_two_results_is_one_node() -> None:
    g = Graph("g")
    x = g.input("x", (10,), DType.fp32)
    plus, double = g.call(two_results(g), x)
    g.output("p", plus)
    g.output("d", double)
    a = f32(10)
    got, f = agrees(g, x=a)
    assert np.array_equal(got["p"], a + 1) and np.array_equal(got["d"], a * 2)
    module: Module = f.stages["frontend"].value
    assert list(module.programs) == ["main", "two"]
    assert [(n.op, len(n.outputs)) for n in module.main.graph] == [("call", 2)]
    kept = prepare(g, decisions={"calls": {"": "call"}})
    ops = [type(n.op).__name__ for n in kept.stages["tiny"].main.nodes]
    assert ops.count("CallOp") == 1 and ops.count("ResultOp") == 2


def test_a_subgraph_called_twice_is_one_function_with_two_calls() -> None:
    g = Graph("g")
    x = g.input("x", (10,), DType.fp32)
    f = two_results(g)
    plus, _ = g.call(f, x)
    _, double = g.call(f, plus)
    g.output("y", double)
    a = f32(10)
    got, compiled = agrees(g, x=a)
    assert np.allclose(got["y"], (a + 1) * 2)
    assert sum(i.op.__class__.__name__ == "Call" for i in launches(compiled)) == 2
    assert compiled.stages["c"].text.count("static int64_t program_1(") == 2  # declared, defined
    assert compiled.stages["c"].text.count("= program_1(") == 2


def test_elementwise_work_is_divided_over_threads_and_blocks() -> None:
    g = Graph("g")
    g.output("y", g.input("x", ("N", 512), DType.fp32).exp() * 2.0)
    f = compile(g)
    assert "tatami_parallel_for(pool" in f.stages["c"].text
    cuda = show("cu", prepare(g, target="sm80").stages["cu"])
    assert "blockIdx" in cuda and "threadIdx" in cuda


def test_dot_shows_every_node_and_edge() -> None:
    g = Graph("g")
    a, b, c = (g.input(n, s, DType.fp32) for n, s in (("a", (4, 5)), ("b", (5, 6)), ("c", (6,))))
    g.output("y", (a @ b + c.expand(4, 6)).relu())
    text = g.to_dot()
    nodes = [line for line in text.splitlines() if "[label=" in line]
    edges = [line for line in text.splitlines() if "->" in line]
    assert len(nodes) == 3 + 4 + 1 and len(edges) == 2 + 1 + 2 + 1 + 1
    if shutil.which("dot") is not None:
        svg = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, check=True).stdout
        assert svg.count('class="node"') == len(nodes) and svg.count('class="edge"') == len(edges)
    for name in ("a", "b", "c", "matmul", "expand", "add", "relu", "y"):
        assert any(f'"{name}\\n' in line or f'"{name}"' in line for line in nodes), name


def test_explain_names_the_steps_in_their_order_and_each_keeps_the_meaning() -> None:
    g = Graph("t")
    x = g.input("x", (6, 8), DType.fp32)
    g.output("y", (x.permute((1, 0)).exp() * 2.0 + 1.0).sum(axis=0))
    g.output("z", x.tile((0, 2)).sort(axis=1)[0])
    function = compile(g)
    lines = function.explain().split("course of main\n")[1].splitlines()[:4]
    assert [line[2:15].strip() for line in lines] == ["views merged", "fused", "lowered", "one program"]
    kernels = len(function.stages["region"].value.main.body)
    assert f"kernels: {kernels} " in lines[2] and kernels > 1
    array = f32(6, 8)
    played = play_back(function.compilation.values(), {"x": array}, {}, function(x=array))
    assert played.first_divergence is None
    assert {"frontend", "tiny", "region", "kernels"} <= {r.stage for r in played.results}
