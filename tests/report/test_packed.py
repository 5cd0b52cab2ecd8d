"""`tatami report`: one file with what a fault needs to be understood, without weights, also of a model that does not compile."""

from __future__ import annotations

import json
import zipfile
from base64 import b64encode
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tatami as tt
from tatami.api import prepare
from tatami.cli import main
from tatami.cli.report_command import played
from tatami.report.packed import packed
from tests.report.test_explanation import DIGITS


def files(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        return {n: archive.read(n).decode() for n in archive.namelist()}


def test_the_report_of_a_model(tmp_path: Path) -> None:
    path = tmp_path / "r.zip"
    done = CliRunner().invoke(main, ["report", DIGITS, "--target", "cpu:generic", "-D", "N=2", "-o", str(path)])
    assert done.exit_code == 0, done.output
    found = files(path)
    about = json.loads(found["about.json"])
    assert about["tatami"] == tt.__version__ and about["packages"]["numpy"] == np.__version__
    assert {"0_frontend.json", "2_tiny.txt", "12_c.json", "explain.txt", "target.json"} <= found.keys()
    playback = json.loads(found["playback.json"])
    assert playback["sizes"] == {"N": 2} and all(row["agrees"] for row in playback["stages"]) and len(playback["stages"]) > 3
    assert json.loads(found["diagnostics.json"]) == []


def test_no_weight_and_no_path_is_in_the_report() -> None:
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    g = tt.Graph()
    g.output("y", g.input("x", ("N", 64), tt.fp32) @ g.constant(weights, "w"))
    found = packed(lambda: prepare(g, target="cpu:generic"), lambda compilation: played(compilation, {"N": 3}))
    text = "".join(found.files.values())
    assert b64encode(weights.tobytes()).decode()[:60] not in text and str(Path.home()) not in text
    document = json.loads(found.files["0_frontend.json"])
    assert document["constants"] and all("data" not in c and c["sha256"] for c in document["constants"].values())


def test_a_model_that_is_refused_has_its_diagnostics_in_the_report(tmp_path: Path) -> None:
    (tmp_path / "m.harp").write_text("graph main(x: f32[4]) -> (y: f32[4]) {\n    return nothing(x)\n}\n")
    done = CliRunner().invoke(main, ["report", str(tmp_path / "m.harp"), "-o", str(tmp_path / "r.zip")])
    found = files(tmp_path / "r.zip")
    assert done.exit_code == 0 and found.keys() == {"about.json", "diagnostics.json"}
    (only,) = json.loads(found["diagnostics.json"])
    assert only["code"].startswith("E16") and only["code"] in done.stderr


def test_a_fault_of_the_compiler_is_in_the_report_with_its_traceback() -> None:
    def broken() -> tt.Compilation:
        raise KeyError("cbrt")

    found = packed(broken, lambda compilation: played(compilation, {}))
    found.zipped()
    assert "KeyError" in found.files["traceback.txt"] and "E1900" in found.files["diagnostics.json"]


def test_the_name_of_the_file_is_checked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tatami.cli.report_command.packed", lambda *_: pytest.fail("compiled"))
    done = CliRunner().invoke(main, ["report", DIGITS, "-o", str(tmp_path / "r.txt")])
    assert done.exit_code == 1 and "is not the name of a .zip file" in done.stderr
