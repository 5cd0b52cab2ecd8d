"""`--target reference` takes the document of every stage: it runs the last one that computes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tatami as tt
from tatami.cli import main
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph


def model() -> Graph:
    g = Graph("g")
    x, w = g.input("x", ("M", 16), DType.fp32), g.constant(np.linspace(-1, 1, 128, dtype=np.float32).reshape(16, 8))
    g.output("y", (x @ w).relu().softmax(1))
    return g


def state() -> Graph:
    g = Graph("g")
    x = g.input("x", ("M", 16), DType.fp32)
    total = g.input("total", (16,), DType.fp32, role="state", mutability="mutable")
    g.update(total, total + x.sum(0))
    g.output("y", x.exp())
    return g


def found() -> Graph:
    g = Graph("g")
    g.output("y", g.input("x", ("M", 16), DType.fp32).op("nonzero", size="Z"))
    return g


def arrays(g: Graph) -> dict[str, np.ndarray]:
    made = {"x": np.random.default_rng(0).standard_normal((5, 16)).astype(np.float32)}
    return made | ({"total": np.ones(16, np.float32)} if g.module().main.signature.input("total") else {})


@pytest.mark.parametrize("target", ["cpu:avx2", "sm80"])
@pytest.mark.parametrize("make", [model, state, found])
def test_a_document_of_every_stage_runs_on_the_reference(make: Callable[[], Graph], target: str, tmp_path: Path) -> None:
    f = tt.compile(make(), target="reference")
    inputs = arrays(make())
    want = f({n: a.copy() for n, a in inputs.items()})
    source = tmp_path / "m.json"
    source.write_text(f.stages["frontend"].json)
    folder = tmp_path / "dump"
    from tatami.api import prepare
    from tatami.stages import STAGES
    from tatami.storage.dump import write_dump

    compilation = prepare(make(), target=target)
    values = {s.name: compilation.stages[s.name] for s in STAGES if s.name in compilation.stages}
    write_dump(folder, values, values, compilation.target)
    documents = sorted(folder.glob("*.json"))
    assert len(documents) >= 12
    for path in documents:
        given = {n: a.copy() for n, a in inputs.items()}
        got = tt.compile(path, target="reference", trust=True)(given)
        assert got.keys() == want.keys()
        for name in want:
            assert np.allclose(got[name], want[name], rtol=1e-5, atol=1e-6), (path.name, name)


def test_an_execution_document_of_the_reference_runs_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "m.json").write_text(tt.compile(model(), target="reference").stages["frontend"].json)
    arguments = ["compile", str(tmp_path / "m.json"), "-o", str(out), "--target", "reference", "--dump=execution", "--embed"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    (path,) = out.glob("*execution.json")
    alone = tmp_path / "alone.json"
    shutil.copy(path, alone)
    x = arrays(model())
    for target in ("reference", None):
        got = tt.compile(alone, **({} if target is None else {"target": target}))(x)["y"]
        assert np.allclose(got, tt.compile(model(), target="cpu")(x)["y"], rtol=1e-4, atol=1e-6)


def test_a_region_edited_by_hand_is_what_the_reference_runs(tmp_path: Path) -> None:
    document = json.loads(tt.compile(model(), target="cpu:avx2").stages["region"].json)
    text = json.dumps(document).replace('"relu"', '"abs"')
    x = arrays(model())
    got = tt.compile(json.loads(text), target="reference")(x)["y"]
    assert not np.allclose(got, tt.compile(model(), target="reference")(x)["y"])
    assert np.allclose(got, tt.compile(json.loads(text), target="cpu")(x)["y"], rtol=1e-4, atol=1e-6)


def test_an_execution_document_of_kernels_needs_their_regions(tmp_path: Path) -> None:
    document = json.loads(tt.compile(model(), target="cpu:avx2").stages["execution"].json)
    document.pop("inputs", None)
    with pytest.raises(TatamiError, match="no meaning here without its Region"):
        tt.compile(document, target="reference")(arrays(model()))


def test_a_document_without_those_that_it_was_made_from_says_which(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(tt.compile(model(), target="reference").stages["frontend"].json)
    run = CliRunner().invoke
    assert run(main, ["compile", str(tmp_path / "m.json"), "-o", str(tmp_path / "out"), "--dump=all"]).exit_code == 0
    (path,) = (tmp_path / "out").glob("*_execution.json")
    alone = tmp_path / "alone.json"
    shutil.copy(path, alone)
    said = run(main, ["run", str(alone), "--target", "reference"]).output
    assert "was made from 9_loop.json, which is not in its folder" in said and "--embed" in said
