"""The search for another partition: what is measured alone, what is adopted, and what stays."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

import tatami as tt
from tatami.compilation import Compilation, decisions_of
from tatami.decisions import Decisions
from tatami.ledger.database import open_ledger
from tatami.ledger.records import Records
from tatami.prepare import prepare
from tatami.search.context import Context
from tatami.search.cut_groups import step_of
from tatami.search.results import Options
from tatami.search.suggesters.fusion import moved, moves
from tatami.storage.dump import write_dump
from tests.search.cases import called_twice
from tests.search.tuned_models import TARGET, planted, session, two_layers

pytestmark = pytest.mark.runs_on("cpu:avx2")


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tatami.search.strategy.MOST_CANDIDATES", 1)


def layers(count: int) -> Compilation:
    """Equal layers, one after another, whose kernels may be cut."""
    rng = np.random.default_rng(0)
    g = tt.Graph("layers")
    x = g.input("x", (32, 48), tt.fp32)
    for _ in range(count):
        x = (x @ g.constant(rng.standard_normal((48, 48)).astype(np.float32))).exp().softmax(axis=1)
    g.output("y", x)
    return prepare(g, target=TARGET)


def sizes_of_steps(folder: Path) -> set[str]:
    """Sizes at which steps between partitions were measured."""
    with open_ledger(folder / "ledger.sqlite") as connection:
        rows = connection.execute("SELECT DISTINCT sizes FROM candidates WHERE region LIKE 'fusion:%'").fetchall()
    return {row[0] for row in rows}


def test_a_partition_that_wins_is_adopted_and_right(tmp_path: Path) -> None:
    found = session(tmp_path, planted(tmp_path, {}))
    assert found.decisions.partitions and any("kernel" in c.old for c in found.changes) and not found.left
    tuned, plain = tt.compile(two_layers(), target=TARGET, decisions=found.decisions), tt.compile(two_layers(), target=TARGET)
    x = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32) / 8
    np.testing.assert_allclose(tuned(x=x)["y"], plain(x=x)["y"], rtol=1e-4, atol=1e-6)
    partitions = [c.stages["partition"]["main"].groups for c in (tuned.compilation, plain.compilation)]
    assert partitions[0] != partitions[1] and not tuned.compilation.warnings
    again = session(tmp_path, ("no-such-command",))
    assert again.measured == 0 and again.decisions == found.decisions and again.changes == found.changes


def test_open_sizes_are_measured_at_others_too(tmp_path: Path) -> None:
    found = session(tmp_path, planted(tmp_path, {}), "B")
    assert found.decisions.partitions and sizes_of_steps(tmp_path) == {"s0=8", "s0=32", "s0=128"}


def test_a_partition_that_loses_at_another_size_is_not_adopted(tmp_path: Path) -> None:
    found = session(tmp_path, planted(tmp_path, {"partition": "large"}), "B")
    assert not found.decisions.partitions and "s0=128" in sizes_of_steps(tmp_path)


def test_a_partition_that_is_wrong_at_another_size_is_not_adopted(tmp_path: Path) -> None:
    found = session(tmp_path, planted(tmp_path, {"partition": "large wrong"}), "B")
    assert not found.decisions.partitions and {f.verdict for f in found.faults} == {"wrong"}
    again = session(tmp_path, planted(tmp_path, {}), "B")
    assert not again.decisions.partitions and again.measured == 0


@pytest.mark.parametrize("is_keyed", [True, False])
def test_a_plan_that_the_user_decided_stays(tmp_path: Path, is_keyed: bool) -> None:
    compilation = prepare(two_layers(), target=TARGET)
    plans = decisions_of(compilation.stages).plans
    key = next(k for k, p in plans.items() if "cpu_contraction" in str(p))
    given = Decisions(plans={key if is_keyed else "": plans[key]})
    found = session(tmp_path, planted(tmp_path, {}), decisions=given)
    assert found.decisions.plans.items() >= given.plans.items() and (key in found.decisions.plans) == is_keyed
    assert not tt.compile(two_layers(), target=TARGET, decisions=found.decisions).compilation.warnings


def test_a_decision_about_all_calls_stays() -> None:
    for fixed, is_decided in ((Decisions(calls={"": "inline"}), True), (Decisions(calls={"other": "call"}), False)):
        context = Context(
            prepare(two_layers(), target=TARGET),
            Options(1.0, {}, 1, Path()),
            Records(sqlite3.connect(":memory:")),
            lambda p: None,
            fixed,
        )
        assert context.is_call_decided("graph") == is_decided


def test_a_call_is_not_inlined_if_a_decided_partition_would_be_void(tmp_path: Path) -> None:
    compilation = prepare(called_twice(tmp_path)[0], target=TARGET)
    assert compilation.stages["plan"]
    own, (verdict, *_) = decisions_of(compilation.stages), compilation.stages["calls"].values()
    other = Decisions(calls={verdict.key: "call" if verdict.inlined else "inline"})
    for fixed, is_voided in ((Decisions(partitions=own.partitions), True), (Decisions(), False)):
        context = Context(compilation, Options(1.0, {}, 1, Path()), Records(sqlite3.connect(":memory:")), lambda p: None, fixed)
        assert context.is_voided(other) == is_voided and not context.is_voided(fixed)


def test_a_partition_that_the_user_decided_stays(tmp_path: Path) -> None:
    compilation = prepare(two_layers(), target=TARGET)
    assert compilation.stages["plan"]
    own = decisions_of(compilation.stages)
    found = session(tmp_path, planted(tmp_path, {}), decisions=Decisions(partitions=own.partitions))
    assert found.decisions.partitions == own.partitions and not sizes_of_steps(tmp_path)


def test_equal_steps_of_layers_are_one_subject() -> None:
    compilation = layers(3)
    found = moves(compilation, {})
    keys = [s.key for m in found if (s := step_of(compilation, m, {})) is not None]
    assert len(set(keys)) < len(keys)
    partition, taken = moved(compilation, "main", found)
    assert 1 < len(taken) <= len(found) and partition.groups != compilation.stages["partition"]["main"].groups


def test_both_sides_of_a_step_mean_the_same(tmp_path: Path) -> None:
    compilation = layers(1)
    x = np.random.default_rng(1).standard_normal((32, 48)).astype(np.float32) / 8
    steps = [s for m in moves(compilation, {}) if (s := step_of(compilation, m, {})) is not None]
    assert steps
    for s in steps:
        folders = []
        for k, side in enumerate((s.before, s.after)):
            folders.append(tmp_path / s.key / str(k))
            module = s.module(compilation, side)
            write_dump(folders[k], {"region@explicit": module}, ["region@explicit"], compilation.target)
        given = {n: np.abs(np.resize(x, [d.as_int() or 0 for d in s.memrefs[n].shape])) + 0.5 for n in s.inputs}
        given = {n: a for n, a in given.items() if n not in s.constants}
        got = [tt.compile(folder, target=TARGET)(given) for folder in folders]
        for name in s.outputs:
            np.testing.assert_allclose(got[0][name], got[1][name], rtol=1e-4, atol=1e-5)
