"""The report of a search: its journal in the ledger, and the part of the page that is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tatami.cli import main
from tatami.explorer import ir
from tatami.ledger.database import open_ledger
from tatami.ledger.records import Records, Subject
from tatami.search.context import program_name
from tatami.search.journal import Compared, Diary, End, Journal, Visit, Whole, journals
from tatami.search.report import PAUSE, moments, tuning
from tatami.search.results import Tuned
from tests.explorer.pages import DIGITS
from tests.explorer.test_html import document_in
from tests.search.tuned_models import compilation, planted, session

PROGRAM = Subject("program:p", "t", "B=4", 2, "warm", "r")


def visit(name: str, winner: str = "", gain: float = 0.0) -> Visit:
    about = Subject(name, "t", "s0=4", 2, "warm", "r")
    return Visit("plans", "", (f"main/{name}",), f"{name}@cpu", 0.5, "cpu_rows", 1e-3, about, winner, gain)


def shown(folder: Path, found: Tuned) -> ir.Tuning:
    assert found.journal is not None
    with open_ledger(folder / "ledger.sqlite") as connection:
        return tuning(found.journal, Records(connection))


@pytest.mark.runs_on("cpu:avx2")
def test_a_report_tells_each_candidate_and_what_became_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tatami.search.strategy.MOST_CANDIDATES", 3)
    found = session(tmp_path, planted(tmp_path, {'"kind":"cpu_contraction"': "wrong"}))
    page = shown(tmp_path, found)
    assert {s.stage for s in page.searches} == {"structure", "plans"} and page.left == 0
    tried = [t for s in page.searches for t in s.tried]
    won = [t for t in tried if t.is_winner]
    assert won and all(t.is_tested and t.verdict == "faster" and t.ratios[-1] < 0.98 for t in won)
    assert all(s.tried[0].is_winner for s in page.searches if any(t.is_winner for t in s.tried))
    wrong = [t for t in tried if t.verdict == "wrong"]
    assert wrong and all("differs" in t.why and not t.ratios and t.seconds is None for t in wrong)
    timed = [s for s in page.searches if any(t.ratios for t in s.tried)]
    assert all(t.estimate and t.seconds for t in won) and all(s.own_estimate and s.own_seconds for s in timed)
    assert page.moments[0].at == 0 and [m.at for m in page.moments] == sorted(m.at for m in page.moments)
    assert min(m.seconds for m in page.moments) < page.moments[0].seconds
    assert len(page.changes) == len(found.changes)
    again = shown(tmp_path, session(tmp_path, ("no-such-command",)))
    assert again == page  # a second search measures nothing, and its report has all that the first one measured


@pytest.mark.runs_on("cpu:avx2")
def test_the_journal_is_of_the_program_before_and_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tatami.search.strategy.MOST_CANDIDATES", 1)
    found = session(tmp_path, planted(tmp_path, {}))
    with open_ledger(tmp_path / "ledger.sqlite") as connection:
        for program in (compilation(), compilation(decisions=found.decisions)):
            target = connection.execute("SELECT target FROM programs").fetchone()[0]
            (kept,) = journals(Records(connection), program_name(program), target)
            assert kept == found.journal


def test_a_search_that_goes_on_keeps_times_and_visits(tmp_path: Path) -> None:
    clock = iter(range(100, 200))
    with open_ledger(tmp_path / "l.sqlite") as connection:
        records = Records(connection)
        begun = Journal({"B": 4}, 2, 90.0, 1e-3)
        first = Diary(records, PROGRAM, begun, lambda: next(clock))
        first.visit(visit("a", "c", 0.1))
        first.visit(visit("b"))
        second = Diary(records, PROGRAM, Journal({"B": 4}, 2, 150.0, 1e-3), lambda: next(clock))
        second.visit(visit("a", "c", 0.1))
        kept = records.program(PROGRAM, "journal", Journal)
        assert kept is not None and [(v.kernels[0], v.at) for v in kept.visits] == [("main/a", 100), ("main/b", 101)]
        assert kept.began == 90.0
        second.step(Compared("cut", 0.9, True, 0.1))
        second.visit(visit("b", "d", 0.2))  # another winner than before: found now
        second.end(End((), Whole(1e-3, 8e-4, 0.8, 24), (), 0), PROGRAM)
        kept = records.program(PROGRAM, "journal", Journal)
    assert kept is not None and kept == second.journal
    assert [v.at for v in kept.visits] == [100, 103] and kept.steps[0].at == 102 and kept.end is not None


def test_pauses_between_runs_are_left_out_of_the_time_line() -> None:
    import msgspec

    visits = [
        msgspec.structs.replace(visit(n, "c", g), at=at) for n, g, at in (("a", 0.1, 110.0), ("b", 0.3, 120.0 + PAUSE * 9))
    ]
    end = End((), Whole(1e-3, 5e-4, 0.5, 24), (), 0, at=visits[-1].at + 5)
    found = [*moments(Journal({}, 2, 100.0, 1e-3, tuple(visits), (), end))]
    assert [m.at for m in found] == [0.0, 10.0, 10.0, 15.0]
    assert [m.seconds for m in found] == pytest.approx([1e-3, 9e-4, 7e-4, 5e-4])


def test_the_commands_write_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TATAMI_LEDGER", str(tmp_path / "ledger.sqlite"))
    monkeypatch.setattr("tatami.search.strategy.MOST_CANDIDATES", 1)
    report, out = tmp_path / "new" / "tuning.html", tmp_path / "tuned.json"
    tune = ["tune", str(DIGITS), "-D", "N=16", "--budget", "10m", "-o", str(out), "--report"]
    done = CliRunner().invoke(main, [*tune, str(report)])
    assert done.exit_code == 0 and str(report) in done.output, done.output
    (found,) = document_in(report.read_text()).tunings
    assert found.sizes["N"] == 16 and found.searches and found.left == 0
    ledger = str(tmp_path / "ledger.sqlite")
    for decisions in ([], ["--decisions", str(out)]):
        page = tmp_path / "page.html"
        explore = ["explore", str(DIGITS), "-D", "N=16", "--tune", ledger, "-o", str(page), *decisions]
        done = CliRunner().invoke(main, explore)
        assert done.exit_code == 0, done.output
        assert found in document_in(page.read_text()).tunings
    for bad in ("page.txt", str(tmp_path)):
        refused = CliRunner().invoke(main, [*tune, bad])
        assert refused.exit_code == 1 and "InvalidAttribute" in refused.output and "--report page.html" in refused.output
    other = CliRunner().invoke(
        main, ["explore", str(DIGITS), "--target", "h100", "--tune", ledger, "-o", str(tmp_path / "p.html")]
    )
    assert other.exit_code == 1 and "not measured" in other.output
    none = CliRunner().invoke(main, ["explore", "examples/harp/softmax.harp", "--tune", ledger, "-o", str(tmp_path / "p.html")])
    assert none.exit_code == 1 and "no search for this model" in none.output
