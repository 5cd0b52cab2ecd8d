"""Collectives in execution plans: their order, when they begin, when they are waited for. The other processes are a
communicator of the test, which answers as if every process had the same arrays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tatami as tt
from tatami.core.numbers.collectives import Collective, CommunicationError, Pending, use_communicator
from tatami.execution.ir import Host, is_collective
from tatami.runtime.python_runs import PythonRun


class Answer:
    """A result that tells when it is waited for."""

    def __init__(self, what: Collective, result: np.ndarray, told: list[str]) -> None:
        self.what, self.result, self.told = what, result, told

    def wait(self) -> np.ndarray:
        self.told.append(f"wait {self.what.name}")
        return self.result


class Twins:
    """A communicator of processes that all have the same arrays. `fault`: what `wait` raises."""

    def __init__(self, fault: str = "") -> None:
        self.told: list[str] = []
        self.fault = fault

    def begin(self, what: Collective, x: np.ndarray) -> Pending:
        self.told.append(f"begin {what.name}")
        if self.fault:
            raise CommunicationError(self.fault)
        part = (len(x) // what.ranks) if x.ndim else 0
        results = {
            "all_reduce": lambda: {"sum": x * what.ranks, "prod": x**what.ranks}.get(what.op, x),
            "all_gather": lambda: np.concatenate([x] * what.ranks),
            "reduce_scatter": lambda: (x * what.ranks)[:part],
            "all_to_all": lambda: np.concatenate([x[:part]] * what.ranks),
            "broadcast": lambda: x,
        }
        return Answer(what, results[what.name](), self.told)


@pytest.fixture
def twins() -> Iterator[Twins]:
    made = Twins()
    use_communicator(made)
    yield made
    use_communicator(None)


def two_paths() -> tt.Graph:
    """An exchange whose result is needed at once in the model, and work that does not need it."""
    g = tt.Graph("two")
    x, w = g.input("x", (8, 16), tt.fp32), g.input("w", (16, 16), tt.fp32)
    a = (x @ w).all_reduce(2)
    g.output("a", (a @ w).relu())
    g.output("b", ((x * 2.0) @ w).softmax(1) @ w)
    return g


ARRAYS = {"x": np.linspace(-1, 1, 128, dtype=np.float32).reshape(8, 16), "w": np.eye(16, dtype=np.float32) * 0.5}


def test_what_needs_no_exchange_runs_while_it_is_under_way(twins: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    f = tt.compile(two_paths())
    run = PythonRun.segment

    def segment(self: PythonRun, number: int, begin: int, end: int) -> None:
        twins.told.append(f"kernels {end - begin}")
        run(self, number, begin, end)

    monkeypatch.setattr(PythonRun, "segment", segment)
    got = f(ARRAYS)
    before, after = twins.told.index("begin all_reduce"), twins.told.index("wait all_reduce")
    assert [t.split()[0] for t in twins.told[before:after]] == ["begin", "kernels"], twins.told
    x, w = ARRAYS["x"], ARRAYS["w"]
    np.testing.assert_allclose(got["a"], np.maximum(2 * x @ w @ w, 0), rtol=1e-5)


def test_kernels_and_the_reference_agree(twins: Twins) -> None:
    g = tt.Graph("all")
    x = g.input("x", (8, 16), tt.fp32)
    shared = x.exp().all_gather(2)
    g.output("y", shared.reduce_scatter(2) + x.all_to_all(2).broadcast(2, root=1))
    g.output("s", x.sum().all_reduce(2, op="prod"))
    want = tt.compile(g, target="reference")(x=ARRAYS["x"])
    for name, value in tt.compile(g)(x=ARRAYS["x"]).items():
        np.testing.assert_allclose(value, want[name], rtol=1e-5)


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_collectives_begin_in_the_order_of_the_model(twins: Twins, target: str) -> None:
    g = tt.Graph("order")
    x = g.input("x", (8, 16), tt.fp32)
    late = (x @ g.input("w", (16, 16), tt.fp32)).softmax(1)
    g.output("a", late.all_reduce(2))  # first in the model, though its operand is ready last
    g.output("b", x.all_gather(2))
    tt.compile(g, target=target)(ARRAYS)
    assert [t for t in twins.told if t.startswith("begin")] == ["begin all_reduce", "begin all_gather"]


@pytest.mark.parametrize("is_sent_first", [True, False])
def test_a_kernel_does_not_hold_what_is_sent_first_and_what_is_received_last(twins: Twins, is_sent_first: bool) -> None:
    g = tt.Graph("held")
    x = g.input("x", (8, 16), tt.fp32)
    sent = x.tanh()
    first = sent.all_reduce(2) if is_sent_first else None
    received = x.all_gather(2).reduce_scatter(2)
    last = sent.all_reduce(2) if first is None else first
    g.output("z", sent + received)  # as one kernel with tanh it would wait for an exchange that begins after it
    g.output("y", last)
    got = tt.compile(g)(x=ARRAYS["x"])
    np.testing.assert_allclose(got["y"], 2 * np.tanh(ARRAYS["x"]), rtol=1e-5)
    np.testing.assert_allclose(got["z"], np.tanh(ARRAYS["x"]) + 2 * ARRAYS["x"], rtol=1e-5)
    begun = [t for t in twins.told if t.startswith("begin")]
    assert begun.index("begin all_reduce") == (0 if is_sent_first else 2)


@pytest.mark.parametrize("seed", range(6))
def test_random_models_agree_with_the_reference(twins: Twins, seed: int) -> None:
    draw = np.random.default_rng(seed)
    g = tt.Graph("random")
    values = [g.input("x", (4, 4), tt.fp32), g.input("w", (4, 4), tt.fp32)]
    for _ in range(14):
        a, b = (values[draw.integers(len(values))] for _ in range(2))
        made = [
            lambda a, b: (a @ b) * 0.1,
            lambda a, b: a + b,
            lambda a, b: a.softmax(1),
            lambda a, b: a.tanh(),
            lambda a, b: a.all_reduce(2) * 0.25,
            lambda a, b: a.all_gather(2).reduce_scatter(2) * 0.3,
            lambda a, b: a.all_to_all(2),
        ][draw.integers(7)]
        values.append(made(a, b))
    for k, value in enumerate(values[-5:]):
        g.output(f"y{k}", value)
    arrays = {n: draw.standard_normal((4, 4)).astype(np.float32) for n in "xw"}
    want = tt.compile(g, target="reference")(arrays)
    f = tt.compile(g)
    for name, value in f(arrays).items():
        np.testing.assert_allclose(value, want[name], rtol=1e-4, atol=1e-5)
    numbers = [
        i.op.attrs.get("number", 0) for i in f.execution.main.instructions if isinstance(i.op, Host) and is_collective(i.op)
    ]
    assert numbers == sorted(numbers)


def test_equal_collectives_stay_two(twins: Twins) -> None:
    g = tt.Graph("same")
    x = g.input("x", (8, 16), tt.fp32)
    g.output("y", x.all_reduce(2) + x.all_reduce(2))
    f = tt.compile(g)
    assert sum(is_collective(i.op) for i in f.execution.main.instructions) == 2
    np.testing.assert_array_equal(f(x=ARRAYS["x"])["y"], 4 * ARRAYS["x"])


def test_an_operand_may_be_overwritten_while_it_is_exchanged(twins: Twins) -> None:
    g = tt.Graph("update")
    s = g.input("s", (8,), tt.fp32, role="state", mutability="mutable")
    g.output("y", s.all_reduce(2))
    g.update(s, s + 1.0)
    state = np.arange(8, dtype=np.float32)
    got = tt.compile(g)(s=state)["y"]
    np.testing.assert_array_equal(got, 2 * np.arange(8))
    np.testing.assert_array_equal(state, np.arange(8) + 1)


def test_a_fault_of_the_exchange_is_one_diagnostic(twins: Twins) -> None:
    twins.fault = "connection closed by peer"
    with pytest.raises(tt.TatamiError) as info:
        tt.compile(two_paths())(ARRAYS)
    (found,) = info.value.diagnostics
    assert found.kind == "CollectiveFailed" and twins.fault in found.why and "all_reduce" in found.why


def test_a_saved_program_exchanges_too(twins: Twins, tmp_path: Path) -> None:
    tt.compile(two_paths()).save(tmp_path / "two.tatami")
    f = tt.load(tmp_path / "two.tatami")
    f(ARRAYS)
    assert "begin all_reduce" in twins.told


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda x: x.reduce_scatter(3), "in 3 equal parts"),
        (lambda x: x.all_to_all(2, [4, 5], [4, 4]), "rows sent"),
        (lambda x: x.all_to_all(2, [8], [4, 4]), "among 2 processes"),
        (lambda x: x.broadcast(2, root=2), "root 2 of 2"),
        (lambda x: x.all_reduce(0), "a group of 0 processes"),
        (lambda x: x.all_reduce(2, group=""), "without a name"),
        (lambda x: (x > 0.0).all_reduce(2), "sum of bool"),
        (lambda x: x.sum().all_gather(2), "rank 0"),
    ],
)
def test_wrong_collectives_are_refused(build: object, why: str) -> None:
    g = tt.Graph("wrong")
    x = g.input("x", (8, 16), tt.fp32)
    with pytest.raises(tt.TatamiError) as info:
        build(x)  # type: ignore[operator]
    assert why in info.value.diagnostics[0].why


def test_a_library_without_python_refuses_them(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from tatami.cli import main

    model = tmp_path / "m.harp"
    model.write_text('graph main(x: f32[4]) -> (y: f32[4]) {\n    return all_reduce(x, group="world", ranks=2)\n}\n')
    done = CliRunner().invoke(main, ["compile", str(model), "--library", "-o", str(tmp_path / "out")])
    assert done.exit_code == 1 and "all_reduce" in done.output and "Traceback" not in done.output
