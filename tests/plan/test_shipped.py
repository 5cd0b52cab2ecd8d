"""The tables of measured CPU plans: what is taken, where, and what a stale entry does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from benchmarks.real.packages import Absent
from benchmarks.shipped import DIGITS, FOLDER, added, entries, model_file, read_table, stale, target_of
from tatami.compilation import Compilation
from tatami.core.codec import to_builtins
from tatami.core.target import Target
from tatami.decisions import Decisions
from tatami.ledger.database import open_ledger
from tatami.ledger.records import Records
from tatami.plan import shipped as tables
from tatami.plan.ir import CpuSplit, RegionPlan
from tatami.plan.shipped import Machine, Shipped, machine_of, table_name
from tatami.prepare import prepare
from tatami.report.explain import explain
from tatami.report.explanation import explanation
from tatami.search.cut import places
from tatami.search.journal import End
from tatami.search.suggesters.tiling import tiling
from tests.search.tuned_models import TARGET, planted, session, two_layers

Found = dict[str, tuple[Shipped, ...]]


def put(monkeypatch: pytest.MonkeyPatch, table: Mapping[str, tuple[Shipped, ...]]) -> None:
    monkeypatch.setattr(tables, "shipped_table", lambda name: table)


def found_for(model: object, target: str | Target = TARGET, **sizes: int) -> tuple[Found, Compilation]:
    """A table with the second-best plan of each Region of a model by estimate, as if it had been measured."""
    compilation = prepare(model, target=target)
    best: dict[str, Any] = {}
    for p in tiling(compilation, sizes):
        best.setdefault(p.subject, p.decision.plans[p.subject])
    machine = machine_of(compilation.target)
    out: Found = {}
    for place in places(compilation, sizes):
        if place.key in best:
            entry = Shipped("two", "2026-11-27", machine, dict(place.sizes), 2e-5, 1e-5, 24, "planted", best[place.key])
            out[place.measured_key] = (entry,)
    assert out
    return out, compilation


def plans(compilation: Compilation) -> dict[str, RegionPlan]:
    return {r.key: r for p in compilation.stages["plan"].programs.values() for r in p.regions}


def test_a_plan_of_the_table_is_taken_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    table, own = found_for(two_layers())
    put(monkeypatch, table)
    again = prepare(two_layers(), target=TARGET)
    for key, (entry,) in table.items():
        r, before = plans(again)[key.split()[0]], plans(own)[key.split()[0]]
        assert r.choices[0].plan != before.choices[0].plan and r.choices[0].estimate and len(r.choices) == 1
        assert type(r.choices[0].plan).__struct_config__.tag == entry.document["kind"]
        assert r.tuned == ("2026-11-27: 10 us instead of 20 (two)",)
    assert "    tuned 2026-11-27: 10 us instead of 20 (two)\n" in explain(again)
    assert any(k.tuned for k in explanation(again).kernels)


def test_without_an_entry_plans_are_what_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    table, own = found_for(two_layers())
    other_machine = {k: (msgspec.structs.replace(e, machine=Machine(1, 2, 3)),) for k, (e,) in table.items()}
    for found in ({}, other_machine, {f"0{k}": e for k, e in table.items()}):
        put(monkeypatch, found)
        again = prepare(two_layers(), target=TARGET)
        assert to_builtins(again.stages["plan"].main) == to_builtins(own.stages["plan"].main)
        assert again.stages["c"].main == own.stages["c"].main


def test_a_decision_comes_before_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    table, own = found_for(two_layers())
    key = next(iter(table)).split()[0]
    put(monkeypatch, table)
    again = prepare(two_layers(), target=TARGET, decisions=Decisions(plans={key: to_builtins(plans(own)[key].choices[0].plan)}))
    assert plans(again)[key].choices[0].plan == plans(own)[key].choices[0].plan and not plans(again)[key].tuned


@pytest.mark.runs_on("cpu:avx2")
def test_open_sizes_have_the_plan_behind_a_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    table, own = found_for(two_layers("B"), B=16)
    put(monkeypatch, table)
    f = tt.compile(two_layers("B"), target=TARGET)
    for key in table:
        r, before = plans(f.compilation)[key.split()[0]], plans(own)[key.split()[0]]
        (condition,) = r.choices[0].conditions
        assert (condition.low, condition.high) == (16, 16) and len(r.tuned) == 1
        assert [c.plan for c in r.choices[1:]] == [c.plan for c in before.choices]
    plain = tt.compile(two_layers("B"), target=TARGET, decisions=Decisions(plans=own_plans(own)))
    for rows in (16, 5):
        x = np.random.default_rng(rows).standard_normal((rows, 64)).astype(np.float32) / 8
        np.testing.assert_allclose(f(x=x)["y"], plain(x=x)["y"], rtol=1e-4, atol=1e-6)


def test_a_plan_that_can_have_no_guard_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    table, own = found_for(two_layers("B"), B=16)
    put(monkeypatch, table)
    monkeypatch.setattr(tables, "_obeyed", lambda n, entry, target: CpuSplit(()))
    again = prepare(two_layers("B"), target=TARGET)
    for key in table:
        r, before = plans(again)[key.split()[0]], plans(own)[key.split()[0]]
        assert r.choices == before.choices and not r.tuned
        assert r.rejected[0].why.endswith("a plan that splits a Region has no guard")


def own_plans(compilation: Compilation) -> dict[str, object]:
    return {p.key: p.decision() for p in places(compilation, {"B": 16})}


def test_a_stale_entry_is_told_and_found(monkeypatch: pytest.MonkeyPatch) -> None:
    table, own = found_for(two_layers())
    assert stale(table, "two", own)  # taken by nobody, since the compilation was made without the table
    unknown = {k: (msgspec.structs.replace(e, document={"kind": "cpu_gone"}),) for k, (e,) in table.items()}
    moved = {f"{'0' * 32}@{k.split('@')[1]}": e for k, e in table.items()}
    for found, why in ((table, ""), (unknown, "not known"), (moved, "no such Region any more")):
        put(monkeypatch, found)
        again = prepare(two_layers(), target=TARGET)
        told = stale(found, "two", again)
        assert [why in line for line in told] == [True] * len(found) if why else told == []
        if "known" in why:
            assert all("not obeyed" in plans(again)[k.split()[0]].rejected[0].why for k in found)
            assert [r.choices for r in plans(again).values()] == [r.choices for r in plans(own).values()]


@pytest.mark.runs_on("cpu:avx2")
def test_what_a_search_finds_becomes_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tatami.search.strategy.MOST_CANDIDATES", 2)
    found = session(tmp_path, planted(tmp_path, {}), "B", cuts=False)
    journal, compilation = found.journal, prepare(two_layers("B"), target=TARGET)
    assert journal is not None and not dict(_entries(tmp_path, msgspec.structs.replace(journal, end=None), compilation))
    won = [v for v in journal.visits if v.winner]
    changes = tuple(tt_change(v.key) for v in won)
    ended = msgspec.structs.replace(journal, end=End(changes, None, (), 0, at=1_800_000_000.0))
    table = added({}, dict(_entries(tmp_path, ended, compilation)))
    assert len(table) == len(won) > 0
    (entry,) = next(iter(table.values()))
    assert (entry.date, entry.sizes, entry.turns) == ("2027-01-15", {"s0": 32}, 24) and entry.after < entry.before
    machine = msgspec.structs.replace(compilation.target, cores=1)
    put(monkeypatch, table)
    again = prepare(two_layers("B"), target=machine)
    assert not stale(table, "two", again) and any(r.tuned for r in plans(again).values())
    assert added(table, {k: e for k, (e,) in table.items()}) == table


def _entries(folder: Path, journal: Any, compilation: Compilation) -> list[tuple[str, Shipped]]:
    with open_ledger(folder / "ledger.sqlite") as connection:
        return [*entries("two", journal, Records(connection), compilation)]


def tt_change(key: str) -> Any:
    from tatami.search.journal import Change

    return Change((), key, 2e-5, 1e-5, "", "")


def shipped_cases() -> list[tuple[str, str, Machine]]:
    """(file, case, machine) of all entries that ship."""
    files = sorted(FOLDER.glob("cpu-*.json"))
    found = {(f.name, e.case, e.machine) for f in files for group in read_table(f).values() for e in group}
    return sorted(found, key=str)


@pytest.mark.parametrize(("name", "case", "machine"), shipped_cases())
def test_no_entry_that_ships_is_stale(name: str, case: str, machine: Machine, tmp_path: Path) -> None:
    target = target_of(name, machine)
    assert table_name(target) == name
    from platformdirs import user_cache_path

    try:
        path = model_file(case.partition(":")[0], tmp_path, user_cache_path("tatami") / "real-models")
    except Absent as absent:
        pytest.skip(str(absent))
    assert stale(read_table(FOLDER / name), case, prepare(path, target=target)) == []


def test_a_machine_of_a_table_is_read_back() -> None:
    target = prepare(DIGITS, target=TARGET).target
    assert target_of(table_name(target), machine_of(target)).isa == "avx2"
