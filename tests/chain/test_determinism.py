"""The same model, target document and decisions give the same bytes: in any process, folder, locale, cache, hash seed; and a
restart goes on for the machine of the dump."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.core.codec import dump_text, to_builtins
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.target import PRESETS, Target
from tatami.frontend.graph import Graph

MACHINE = msgspec.structs.replace(PRESETS["cpu:generic"], clock=1.7e9, flops_fp32=3.4e9, bandwidth=9e11, l2_bytes=1 << 18)
"""No machine at all: its rates make other plans than those of any preset."""


def written(target: Target, path: Path) -> Path:
    path.write_text(dump_text(to_builtins(target)))
    return path


def model() -> Graph:
    g = Graph("t")
    x, w, v = g.input("x", ("B", 48), DType.fp32), g.input("w", (48, 300), DType.fp32), g.input("v", (300,), DType.fp32)
    y = (x @ w + v.expand("B", 300)).op("relu")
    g.output("y", y.op("softmax", axis=1))
    g.output("s", y.sum(0))
    return g


def dumped(source: Path, out: Path, seed: int, target: Path | None) -> dict[str, bytes]:
    """The files of a dump that a process with a cache, folder, locale and hash seed of its own writes."""
    here = out.with_name(f"here-{seed}")
    here.mkdir()
    env = {**os.environ, "PYTHONHASHSEED": str(seed), "TATAMI_CACHE_DIR": str(here / "cache"), "TATAMI_NUM_THREADS": str(seed)}
    env |= {"LC_ALL": "C" if seed % 2 else "C.UTF-8", "PYTHONPATH": str(Path(tt.__file__).parents[1])}
    command = [sys.executable, "-m", "tatami", "compile", str(source), "-o", str(out), "--dump=all"]
    subprocess.run(
        [*command, *(["--target", str(target)] if target else [])], check=True, capture_output=True, env=env, cwd=here
    )
    return {str(f.relative_to(out)): f.read_bytes() for f in sorted(out.rglob("*")) if f.is_file()}


def test_the_bytes_of_a_dump_depend_on_model_and_target_only(tmp_path: Path) -> None:
    source, machine = tmp_path / "model.json", written(MACHINE, tmp_path / "machine.json")
    f = tt.compile(model(), target="reference")
    source.write_text(f.stages["frontend"].json)
    one = dumped(source, tmp_path / "one", 1, machine)
    two = dumped(source, tmp_path / "two", 2, machine)
    assert {n.partition("_")[0] for n in one if n.endswith(".json")} >= {"0", "3", "8", "9", "11"}
    assert one == two
    named = next(n for n in one if n.endswith("_region.json"))
    again = dumped(tmp_path / "one" / named, tmp_path / "again", 3, None)  # for the machine of the dump, not of this process
    late = [n for n in again if n[0].isdigit() or (n.endswith(".c") and n != "main.c")]  # main.c holds values of a reference
    assert len(late) > 10
    assert {n: without_names(n, again[n]) for n in late} == {n: without_names(n, one[n]) for n in late}
    assert b"computes add, matmul, relu" in one["8_plan.txt"], "names of nodes stand where the model is known"


def without_names(file: str, body: bytes) -> bytes:
    """The file without names of the model's nodes, which a restart from a Region does not know, and without digests of files that
    have them."""
    if file.endswith(".json"):
        return json.dumps({k: v for k, v in json.loads(body).items() if k not in ("origins", "inputs")}).encode()
    return re.sub(rb"(?m)^    computes .*\n|(?<=# r\d) \(.*\)$", b"", body)


def test_a_file_of_a_target_is_a_target(tmp_path: Path) -> None:
    machine = written(MACHINE, tmp_path / "machine.json")
    for given in (machine, str(machine), to_builtins(MACHINE), MACHINE):
        f = tt.compile(model(), target=given)
        assert f.stages._compilation.target == MACHINE
    x, w, v = (np.random.default_rng(k).standard_normal(s).astype("f4") for k, s in enumerate([(3, 48), (48, 300), (300,)]))
    y = np.maximum(x.astype("f8") @ w + v, 0)
    assert np.allclose(f(x=x, w=w, v=v)["s"], y.sum(0), rtol=1e-5, atol=1e-4)
    with pytest.raises(TatamiError, match=r"machine\.json"):
        (tmp_path / "machine.json").write_text('{"name": 3}')
        tt.compile(model(), target=machine)
    with pytest.raises(TatamiError, match="no such file"):
        tt.compile(model(), target=tmp_path / "missing.json")


def test_a_document_names_its_machine() -> None:
    f = tt.compile(model(), target=MACHINE)
    plan, frontend = (msgspec.json.decode(f.stages[s].json) for s in ("plan", "frontend"))
    assert msgspec.convert(plan["target"], Target) == MACHINE
    assert "target" not in frontend  # a model is of no machine
    region = msgspec.json.decode(f.stages["region"].json)
    assert tt.compile(region).stages._compilation.target == MACHINE
    assert tt.compile(region, target="cpu:generic").stages._compilation.target.clock == 0
    region["target"] = "cpu:generic"
    assert tt.compile(region).stages._compilation.target.clock == 0


def test_documents_of_two_machines_ask_for_one(tmp_path: Path) -> None:
    source, machine = tmp_path / "model.json", written(MACHINE, tmp_path / "machine.json")
    source.write_text(tt.compile(model(), target="reference").stages["frontend"].json)
    dumped(source, tmp_path / "out", 4, machine)
    path = next((tmp_path / "out").glob("*_execution.json"))  # the last one, whose hash no other document holds
    document = msgspec.json.decode(path.read_bytes())
    document["target"]["clock"] = 2e9
    path.write_text(dump_text(document))
    with pytest.raises(TatamiError, match="different machines"):
        tt.compile(tmp_path / "out")
    assert tt.compile(tmp_path / "out", target="cpu")
