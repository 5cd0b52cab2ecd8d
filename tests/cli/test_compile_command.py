"""`tatami compile`: a program in one file, or a folder of code; the second time from the cache, byte for byte the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import helper, numpy_helper

import tatami as tt
from tatami.cli import main
from tatami.core.target import PRESETS
from tatami.storage import code_folder

DIGITS = str(Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx")
HARP = "graph<B> main(x: f32[B, 3], w: f32[3, 40]) -> (y: f32[B, 40]) {\n    return relu(x @ w)\n}\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TATAMI_PROGRAM_CACHE", "1")
    monkeypatch.setenv("TATAMI_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.harp"
    path.write_text(HARP)
    return str(path)


def tatami(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def compiled(model: str, folder: Path, *more: str) -> dict[str, bytes]:
    done = tatami("compile", model, "-o", str(folder), *more)
    assert done.exit_code == 0, done.output
    found = {p.name: p.read_bytes() for p in sorted(folder.iterdir())}
    assert sorted(Path(line).name for line in done.stdout.splitlines()) == sorted(found)
    return found


def made_again(*_: Any) -> None:
    raise AssertionError("the stages were made again")


def test_a_saved_program_runs_and_loads_without_a_stage(model: str, tmp_path: Path) -> None:
    path = str(tmp_path / "m.tatami")
    assert tatami("compile", model, "-o", path).stdout == f"{path}\n"
    assert "agrees" in tatami("run", path, "--check").stdout
    f = tt.load(path, trust=True)
    x, w = np.ones((2, 3), np.float32), np.ones((3, 40), np.float32)
    assert np.array_equal(f(x=x, w=w)["y"], x @ w) and not f.compilation.observer.seconds


def test_a_program_for_a_gpu_is_saved_as_its_documents(model: str, tmp_path: Path) -> None:
    path = str(tmp_path / "m.tatami")
    assert tatami("compile", model, "--target", "sm80", "-o", path).exit_code == 0
    assert tt.load(path, trust=True)(x=np.ones((1, 3), np.float32), w=np.ones((3, 40), np.float32))["y"][0, 0] == 3


def test_what_no_program_can_be_saved_as_is_said_before_it_is_compiled(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tatami.build.find_program", made_again)
    folder = tmp_path / "m.tatami"
    folder.mkdir()
    refused = tatami("compile", model, "-o", str(folder))
    assert refused.exit_code == 1 and "FileUnwritable" in refused.stderr and not list(folder.iterdir())
    for option in ("--dump=all", "--embed"):
        refused = tatami("compile", model, "-o", str(tmp_path / "n.tatami"), option)
        assert refused.exit_code == 1 and f"at {option[:6]}" in refused.stderr and "holds no dumps" in refused.stderr
        assert not (tmp_path / "n.tatami").exists()


@pytest.mark.parametrize("target", ["cpu:generic", "sm80"])
def test_the_second_folder_comes_from_the_cache(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compiled(DIGITS, tmp_path / "first", "--target", target)
    assert {"constants.bin", "decisions.json"} < first.keys() and any(n.startswith("main.") for n in first)
    monkeypatch.setattr(code_folder, "print_program", made_again)
    assert compiled(DIGITS, tmp_path / "second", "--target", target) == first


def test_other_sizes_and_other_settings_are_printed_anew(model: str, tmp_path: Path) -> None:
    first = compiled(model, tmp_path / "first")
    assert compiled(model, tmp_path / "sized", "-D", "B=5")["main.c"] != first["main.c"]
    assert compiled(model, tmp_path / "other", "--target", "cpu:generic") != first


def test_a_damaged_entry_is_printed_anew(cache: Path, model: str, tmp_path: Path) -> None:
    first = compiled(model, tmp_path / "first")
    for path in (p for p in cache.rglob("*") if p.is_file()):
        path.write_bytes(path.read_bytes()[:-40])
    assert compiled(model, tmp_path / "second") == first


def test_dumps_are_written_beside_what_the_cache_has(model: str, tmp_path: Path) -> None:
    plain = compiled(model, tmp_path / "plain")
    dumped = compiled(model, tmp_path / "dumped", "--dump=region")
    assert plain.items() < dumped.items() and any("region" in n for n in dumped)


def test_the_help_lists_every_target() -> None:
    text = "".join(tatami("compile", "--help").stdout.split())
    assert all(name in text for name in (*PRESETS, "cuda", "emulated-sm80", "emulated-sm90"))


NOT_FROM_THE_CACHE = (
    *("numpy", "ml_dtypes", "onnx", "google.protobuf", "torch", "islpy", "lark", "rich", "platformdirs"),
    *(f"tatami.{layer}" for layer in ("onnx", "tiny", "indexbook", "poly_view", "region", "poly_core", "plan", "loop", "gpu")),
    *("tatami.c", "tatami.cu", "tatami.api", "tatami.runtime.function"),
)
"""Modules that a program found in the cache is written without: their import takes longer than all the rest."""


def test_a_program_from_the_cache_is_written_without_the_packages_that_make_one(tmp_path: Path) -> None:
    first = compiled(DIGITS, tmp_path / "first")
    code = (
        "import sys; from tatami.cli import main; main(sys.argv[1:], standalone_mode=False);"
        f"print([m for m in {NOT_FROM_THE_CACHE!r} if m in sys.modules], file=sys.stderr)"
    )
    second = tmp_path / "second"
    command = [sys.executable, "-c", code, "compile", DIGITS, "-o", str(second)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    assert {p.name: p.read_bytes() for p in second.iterdir()} == first


def of_best(count: int, pooled: bool) -> onnx.ModelProto:
    """The `count` greatest numbers of [1, 1, N], after pooling by 8 if `pooled`."""
    nodes = [helper.make_node("TopK", ["p" if pooled else "x", "k"], ["y", "i"], axis=2)]
    if pooled:
        nodes.insert(0, helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[8], strides=[8]))
    ports = [[helper.make_tensor_value_info(n, 1, [1, 1, s])] for n, s in (("x", "N"), ("y", count))]
    graph = helper.make_graph(nodes, "g", *ports, [numpy_helper.from_array(np.array([count]), "k")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize(("count", "pooled"), [(2, False), (3, True), (7, True), (100, False)])
def test_the_main_has_sizes_that_the_model_takes(count: int, pooled: bool, tmp_path: Path) -> None:
    onnx.save(of_best(count, pooled), tmp_path / "m.onnx")
    assert "main.c" in compiled(str(tmp_path / "m.onnx"), tmp_path / "out")


def test_without_sizes_that_the_model_takes_there_is_no_main(tmp_path: Path) -> None:
    onnx.save(of_best(5000, False), tmp_path / "m.onnx")
    done = tatami("compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "out"))
    assert done.exit_code == 0 and "no stand-alone main" in done.output and "-D NAME=VALUE" in done.output
    assert not (tmp_path / "out" / "main.c").exists() and (tmp_path / "out" / "entry.c").exists()
    wrong = tatami("compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "wrong"), "-D", "N=9")
    assert wrong.exit_code and "E1304" in wrong.output
    assert (tatami("compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "more"), "-D", "N=6000")).exit_code == 0
