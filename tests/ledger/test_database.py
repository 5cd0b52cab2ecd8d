"""The ledger's file: never a link or another user's, only Tatami's schema, whole rows with concurrent writers."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from tatami.core.diagnostic import TatamiError
from tatami.core.target import PRESETS
from tatami.ledger.database import open_ledger
from tatami.ledger.records import Measured, Records, Subject, target_hash
from tatami.runtime.building.compiler import find_compiler
from tatami.storage.dump import make_folder, write_text

SUBJECT = Subject("k@cpu:avx2", "t", "s0=4", 2, "warm", "r")


def add(path: Path, candidate: str = "c", round_: int = 0) -> None:
    with open_ledger(path) as connection:
        Records(connection).keep(SUBJECT, Measured(candidate, round_, "line", "{}", "right"))


def rows(path: Path) -> int:
    with open_ledger(path) as connection:
        return int(connection.execute("SELECT count(*) FROM candidates").fetchone()[0])


def owned_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)


def test_a_ledger_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    add(tmp_path / "data" / "l.sqlite")
    assert rows(tmp_path / "data" / "l.sqlite") == 1
    assert stat.S_IMODE((tmp_path / "data" / "l.sqlite").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


def test_a_row_is_kept_once(tmp_path: Path) -> None:
    for _ in range(2):
        add(tmp_path / "l.sqlite")
    assert rows(tmp_path / "l.sqlite") == 1


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
def test_a_link_is_refused_also_next_to_the_ledger(tmp_path: Path, suffix: str) -> None:
    if suffix:
        add(tmp_path / "l.sqlite")
    (tmp_path / "own").write_text("x")
    (tmp_path / f"l.sqlite{suffix}").symlink_to(tmp_path / "own")
    with pytest.raises(TatamiError, match="FileUnwritable"):
        add(tmp_path / "l.sqlite")
    assert (tmp_path / "own").read_text() == "x"


def test_a_link_to_nothing_makes_no_file(tmp_path: Path) -> None:
    (tmp_path / "l.sqlite").symlink_to(tmp_path / "missing")
    with pytest.raises(TatamiError, match="FileUnwritable"):
        add(tmp_path / "l.sqlite")
    assert not (tmp_path / "missing").exists()


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(tmp_path / "l.sqlite")
    owned_by_another(monkeypatch)
    with pytest.raises(TatamiError, match="belongs to another user"):
        add(tmp_path / "l.sqlite")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/null"), tmp_path):
        with pytest.raises(TatamiError, match="FileUnwritable"):
            add(path)


def test_what_is_no_ledger_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("model,target\n" * 1000)
    other = sqlite3.connect(tmp_path / "other")
    other.execute("CREATE TABLE candidates (x)")
    other.close()
    for name in ("text", "other"):
        with pytest.raises(TatamiError, match="FileUnreadable"):
            add(tmp_path / name)
    assert (tmp_path / "text").read_text().startswith("model,target")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER t AFTER INSERT ON candidates BEGIN DELETE FROM candidates; END",
        "CREATE VIEW v AS SELECT * FROM candidates",
        "ALTER TABLE candidates ADD COLUMN more TEXT",
        "DROP TABLE searches",
        "PRAGMA user_version = 2",
        "PRAGMA application_id = 7",
    ],
)
def test_another_schema_is_refused(tmp_path: Path, statement: str) -> None:
    add(tmp_path / "l.sqlite")
    connection = sqlite3.connect(tmp_path / "l.sqlite")
    connection.execute(statement)
    connection.commit()
    connection.close()
    with pytest.raises(TatamiError, match="FileUnreadable"):
        add(tmp_path / "l.sqlite")


def test_damaged_bytes_are_one_diagnostic(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    for k in range(200):
        add(path, f"c{k}")
    whole = path.read_bytes()
    path.write_bytes(whole[:5000] + b"\xff" * 20000 + whole[25000:])
    with pytest.raises(TatamiError, match="FileUnreadable"), open_ledger(path) as connection:
        Records(connection).rounds(SUBJECT)
        list(connection.execute("SELECT * FROM candidates ORDER BY line"))


def test_rows_that_tatami_does_not_write_are_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    with open_ledger(path) as connection:
        records = Records(connection)
        for name, ratio in (("negative", -1.0), ("infinite", float("inf")), ("good", 0.5)):
            records.keep(SUBJECT, Measured(name, 1, "line", "{}", "timed", ratio=ratio))
        records.keep(SUBJECT, Measured("long", 1, "line", " " * (2 << 20), "timed"))
        records.keep_program(SUBJECT, "times", {"main/r0": "fast"})
        assert {c for c, _ in records.rounds(SUBJECT)} == {"good"}
        assert records.program(SUBJECT, "times", dict[str, float]) is None
        row = (*SUBJECT.key[:4], SUBJECT.revision, "deep", '{"more": ' + "[" * 500_000, 0.0)
        connection.execute("INSERT INTO programs VALUES (?,?,?,?,?,?,?,?)", row)
        assert records.program(SUBJECT, "deep", Measured) is None


def test_measurements_of_another_compiler_or_other_flags_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    target = PRESETS["cpu:avx2"]
    found = set()
    for quick in ("0", "1"):
        monkeypatch.setenv("TATAMI_QUICK_BUILD", quick)
        found.add(target_hash(target))
    monkeypatch.setattr("tatami.ledger.records.find_compiler", lambda: replace(find_compiler(), fingerprint="another"))
    found.add(target_hash(target))
    assert len(found) == 3 and target_hash(replace(target, clock=1.0)) in found


def test_writers_in_many_processes_lose_nothing(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom tests.ledger.test_database import add\n"
        "for k in range(20): add(Path(sys.argv[1]), f'{sys.argv[2]}.{k}')"
    )
    path = tmp_path / "l.sqlite"
    started = [subprocess.Popen([sys.executable, "-c", code, str(path), str(n)]) for n in range(3)]
    assert [p.wait() for p in started] == [0, 0, 0]
    assert rows(path) == 60


def test_results_take_the_place_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("x")
    (tmp_path / "out.json").symlink_to(tmp_path / "theirs")
    write_text(tmp_path / "out.json", "y")
    assert (tmp_path / "theirs").read_text() == "x" and not (tmp_path / "out.json").is_symlink()
    assert stat.S_IMODE((tmp_path / "out.json").stat().st_mode) == 0o644


def test_a_folder_that_is_a_link_to_another_users_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "theirs")
    make_folder(tmp_path / "out")
    owned_by_another(monkeypatch)
    with pytest.raises(TatamiError, match="link to a folder of another user"):
        write_text(tmp_path / "out" / "a.json", "x")
    assert not list((tmp_path / "theirs").iterdir())
