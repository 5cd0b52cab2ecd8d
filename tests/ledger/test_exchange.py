"""CSV of the ledger, rows of another machine, and what is removed."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from msgspec.structs import replace

from tatami.bench.measure import ledger_rows
from tatami.core.diagnostic import TatamiError
from tatami.ledger.database import open_ledger
from tatami.ledger.exchange import KERNEL_COLUMNS, csv_text, merge, prune, summary
from tatami.ledger.records import Measured, Records, Subject
from tatami.report.timings import Measurement, Timing

FOUND = Measurement((Timing("k0", "matmul", (), 1e-3, None, None, None, None, 1.0, "cpu_rows"),), 1e-3, 5)
SUBJECT = Subject("k@cpu:avx2", "t", "s0=4", 2, "warm", "r")
GOOD = Measured("c", 0, "line", '{"plans":{}}', "right")


def bench(path: Path, model: str) -> None:
    with open_ledger(path) as connection:
        Records(connection).keep_kernels(ledger_rows(model, "cpu:avx2", {"B": 1}, FOUND))


@pytest.mark.parametrize("name", ['zq7x",=1+1\n\rrow', "=cmd()", "@x", "a,b", "\x1b[31m"])
def test_a_name_is_one_plain_cell(tmp_path: Path, name: str) -> None:
    bench(tmp_path / "l.sqlite", name)
    with open_ledger(tmp_path / "l.sqlite") as connection:
        text = csv_text(connection, "kernels")
    heading, row = csv.reader(io.StringIO(text))
    assert tuple(heading) == KERNEL_COLUMNS and len(row) == len(heading)
    assert row[0][:1] not in "=+-@" and row[0].isprintable() and len(text.splitlines()) == 2


def test_rows_of_another_machine_are_taken_once(tmp_path: Path) -> None:
    with open_ledger(tmp_path / "other.sqlite") as connection:
        Records(connection).keep(SUBJECT, GOOD)
    bench(tmp_path / "other.sqlite", "m.onnx")
    with open_ledger(tmp_path / "own.sqlite") as connection:
        assert merge(connection, tmp_path / "other.sqlite") == (2, 0)
        assert merge(connection, tmp_path / "other.sqlite") == (0, 0)
        assert Records(connection).rounds(SUBJECT) == {}  # not measured here
        assert Records(connection).rounds(replace(SUBJECT, target="t merged")) == {("c", 0): GOOD}


def test_a_row_that_two_ledgers_hand_on_is_one(tmp_path: Path) -> None:
    with open_ledger(tmp_path / "first.sqlite") as connection:
        Records(connection).finish(SUBJECT, "p", "c", 0.5)
    with open_ledger(tmp_path / "second.sqlite") as connection:
        assert merge(connection, tmp_path / "first.sqlite") == (1, 0)
    with open_ledger(tmp_path / "own.sqlite") as connection:
        assert merge(connection, tmp_path / "second.sqlite") == (1, 0)
        assert merge(connection, tmp_path / "first.sqlite") == (0, 0)
        records = Records(connection)
        assert records.winner(SUBJECT, "p") is None and records.merged_winner(SUBJECT, "p") == "c"
        for other in (replace(SUBJECT, target="u"), replace(SUBJECT, revision="s"), replace(SUBJECT, threads=1)):
            assert records.merged_winner(other, "p") is None


def test_hostile_rows_of_another_machine_are_refused(tmp_path: Path) -> None:
    with open_ledger(tmp_path / "other.sqlite") as connection:
        records = Records(connection)
        for k, decision in enumerate(["not json", '{"plan": 1}', "[" * 100_000, " " * (2 << 20)]):
            records.keep(SUBJECT, Measured(f"d{k}", 0, "line", decision, "right"))
        records.keep(SUBJECT, Measured("f", 0, "line", "{}", "right", ratio=float("inf")))
        records.keep(SUBJECT, GOOD)
    with open_ledger(tmp_path / "own.sqlite") as connection:
        assert merge(connection, tmp_path / "other.sqlite") == (1, 5)


def test_merging_what_is_not_there_makes_no_file(tmp_path: Path) -> None:
    with open_ledger(tmp_path / "own.sqlite") as connection, pytest.raises(TatamiError, match="FileUnreadable"):
        merge(connection, tmp_path / "missing.sqlite")
    assert not (tmp_path / "missing.sqlite").exists()


def test_measurements_of_other_versions_are_removed(tmp_path: Path) -> None:
    with open_ledger(tmp_path / "l.sqlite") as connection:
        records = Records(connection)
        records.keep(SUBJECT, GOOD)
        records.finish(SUBJECT, "p", "", None)
        assert prune(connection, keep_revision="r", before=None) == 0
        assert prune(connection, keep_revision="s", before=None) == 2
        assert records.rounds(SUBJECT) == {} and records.winner(SUBJECT, "p") is None


def test_the_summary_keeps_machines_and_versions_apart(tmp_path: Path) -> None:
    with open_ledger(tmp_path / "l.sqlite") as connection:
        for target, revision, line in (("t", "r", "one"), ("u", "r", "two"), ("t", "s", "three")):
            faster = Measured("c", 99, line, "{}", "faster", seconds=1e-6, own_seconds=2e-6, ratio=0.5, turns=24)
            Records(connection).keep(replace(SUBJECT, target=target, revision=revision), faster)
        _, *rows = summary(connection)
    assert sorted(row[-1] for row in rows) == ["one", "three", "two"]


def test_the_summary_names_the_best(tmp_path: Path) -> None:
    with open_ledger(tmp_path / "l.sqlite") as connection:
        records = Records(connection)
        records.keep(SUBJECT, GOOD)
        records.keep(SUBJECT, Measured("d", 0, "bad", "{}", "wrong"))
        faster = Measured("c", 99, "line", "{}", "faster", seconds=1e-6, own_seconds=2e-6, ratio=0.5, turns=24)
        records.keep(SUBJECT, faster)
        _, row = summary(connection)
    assert row == ("k@cpu:avx2", "s0=4", "2", "warm", "2", "1", "2.0", "1.0", "0.500", "line")
