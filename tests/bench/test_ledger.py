"""The ledger and other results never follow a link to the file of another user, and a ledger is only plain lines."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tatami.bench.ledger import append_measurement
from tatami.bench.measure import Measurement, Timing
from tatami.core.diagnostic import TatamiError
from tatami.storage.dump import make_folder, write_text

FOUND = Measurement((Timing("k0", "matmul", (), 1e-3, None, None, None, None, 1.0, "cpu_rows"),), 1e-3, 5)


def append(path: Path, model: str = "m.onnx") -> None:
    append_measurement(path, model, "cpu:avx2", {"B": 1}, FOUND)


def owned_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)


def test_a_link_to_a_file_of_ours_is_followed(tmp_path: Path) -> None:
    (tmp_path / "own.csv").touch()
    (tmp_path / "link.csv").symlink_to(tmp_path / "own.csv")
    append(tmp_path / "link.csv")
    assert (tmp_path / "own.csv").read_text().count("\n") == 2


def test_a_link_to_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").write_text("x")
    (tmp_path / "link.csv").symlink_to(tmp_path / "theirs")
    owned_by_another(monkeypatch)
    with pytest.raises(TatamiError, match="FileUnwritable"):
        append(tmp_path / "link.csv")
    assert (tmp_path / "theirs").read_text() == "x"


def test_a_link_to_nothing_makes_no_file(tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to(tmp_path / "missing")
    with pytest.raises(TatamiError, match="FileUnwritable"):
        append(tmp_path / "link.csv")
    assert not (tmp_path / "missing").exists()


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    try:
        for path in (tmp_path / "fifo", Path("/dev/null"), tmp_path):
            with pytest.raises(TatamiError, match="FileUnwritable"):
                append(path)
        assert os.read(reader, 1) == b""
    finally:
        os.close(reader)


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


@pytest.mark.parametrize("name", ['zq7x",=1+1\n\rrow', "=cmd()", "@x", "a,b", "\x1b[31m"])
def test_a_name_is_one_plain_cell(tmp_path: Path, name: str) -> None:
    append(tmp_path / "l.csv", name)
    lines = (tmp_path / "l.csv").read_text().splitlines()
    assert len(lines) == 2 and lines[1].lstrip('"')[0] not in "=+-@" and lines[1].isprintable()
