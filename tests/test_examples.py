"""Every example runs through every stage; a planted fault is located; kernels name the model's nodes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tatami.api import Compilation, build, prepare
from tatami.bench.inputs import gather_inputs
from tatami.core.codec import parse_text
from tatami.core.diagnostic import TatamiError
from tatami.core.module import Module
from tatami.region.ir import Binary, Region
from tatami.report.explain import explain, kernel_origins
from tatami.report.playback import play_back

EXAMPLES = Path(__file__).parent.parent / "examples"
DOCUMENTS = sorted((EXAMPLES / "spec").glob("*.json"))
PRINTED = sorted(p for p in (EXAMPLES / "spec" / "as-printed").glob("*.json") if not p.name.endswith(".expected.json"))
DIGITS = EXAMPLES / "digits" / "digits.onnx"


def played(compilation: Compilation, sizes: dict[str, int], seed: int = 0) -> list[str]:
    function = build(compilation, 2, sizes)
    arrays, bound = gather_inputs(function.signature, function.arguments, [], sizes, seed)
    function.sizes.update(bound)
    result = play_back(compilation.values(), arrays, bound, function(arrays))
    assert result.first_divergence is None, result.first_divergence
    return [r.stage for r in result.results]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.stem)
def test_a_document_of_the_specification_runs(path: Path) -> None:
    for sizes in ({}, {"M": 33}, {"N": 1}):
        compilation = prepare(path)
        known = json.dumps(parse_text(path.read_bytes(), path.name))
        used = {k: v for k, v in sizes.items() if f'"{k}"' in known}
        if sizes and not used:
            continue
        try:
            stages = played(compilation, used)
        except TatamiError as error:  # the document ties this size to others
            assert error.diagnostics[0].kind == "AxisAlignmentMismatch"
            continue
        assert stages[-1] == "kernels"
        assert not [w for w in compilation.warnings if w.code == "W2201"]


@pytest.mark.parametrize("path", PRINTED, ids=lambda p: p.stem)
def test_a_document_as_printed_gives_its_diagnostic(path: Path) -> None:
    """One whose text is right as it stands has an empty list and runs."""
    wanted = json.loads(path.with_name(path.stem + ".expected.json").read_text())["diagnostics"]
    if not wanted:
        assert played(prepare(path), {})[-1] == "kernels"
        return
    with pytest.raises(TatamiError) as error:
        prepare(path).values()
    assert [(d.kind, d.at) for d in error.value.diagnostics] == [(d["kind"], d["at"]) for d in wanted]


def test_digits_reads_real_images() -> None:
    held_out = np.load(EXAMPLES / "digits" / "held_out.npz")
    function = build(prepare(DIGITS), 2)
    probability = function(image=held_out["image"])["probability"]
    assert (probability.argmax(1) == held_out["label"]).mean() >= 0.97


def test_the_demo_of_the_readme_runs(tmp_path: Path) -> None:
    """The commands of `make demo`, in a folder of its own."""
    demo = Path(__file__).parents[1] / "examples" / "digits" / "demo.py"
    done = subprocess.run([sys.executable, demo], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "agrees with the float64 reference" in done.stdout
    written = {f.name for f in (tmp_path / "dumps" / "digits").iterdir()}
    assert {"0_frontend.json", "6_region.txt", "main.c", "entry.c", "decisions.json"} <= written


@pytest.mark.parametrize("batch", [0, 1, 7])
def test_digits_runs_for_any_batch(batch: int) -> None:
    stages = played(prepare(DIGITS), {"N": batch})
    assert stages == ["frontend", "tiny@imported", "tiny", "region@explicit", "region", "kernels"]


def test_every_kernel_of_digits_names_its_onnx_nodes() -> None:
    import onnx

    names = {n.name for n in onnx.load(str(DIGITS)).graph.node}
    kernels = kernel_origins(prepare(DIGITS))
    assert len(kernels) >= 7
    for k in kernels:
        assert k.sources and set(k.sources) <= names, k


def test_explain_gives_rules_and_numbers() -> None:
    text = explain(prepare(DIGITS))
    assert "fused" in text and "Δtime" in text and "rejected" in text and "node_conv2d" in text


def test_a_fault_planted_in_one_stage_is_located_there() -> None:
    compilation = prepare(DIGITS)
    values = compilation.values()
    region: Module = values["region"]
    program = region.main
    target = next(r for r in program.body if isinstance(r, Region) and any(isinstance(x.expr, Binary) for x in r.lets))
    lets = tuple(
        msgspec.structs.replace(x, expr=msgspec.structs.replace(x.expr, fn="sub"))
        if isinstance(x.expr, Binary) and x.expr.fn == "add"
        else x
        for x in target.lets
    )
    assert lets != target.lets
    body = tuple(msgspec.structs.replace(r, lets=lets) if r is target else r for r in program.body)
    values["region"] = Module(
        {**region.programs, "main": msgspec.structs.replace(program, body=body)}, region.constants, region.origins
    )
    images = np.load(EXAMPLES / "digits" / "held_out.npz")["image"][:5]
    first = play_back(values, {"image": images}, {}).first_divergence
    assert first is not None and first.stage == "region"
    difference = next(a.difference for a in first.agreements if a.difference)
    assert len(difference.index) == 2


def test_stages_are_the_same_bytes_under_any_hash_seed(tmp_path: Path) -> None:
    import os
    import subprocess
    import sys

    texts = []
    for seed in ("0", "1"):
        folder = tmp_path / seed
        command = [sys.executable, "-m", "tatami", "compile", str(DIGITS), "-o", str(folder), "--dump=all", "--target=cpu:avx2"]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed})
        texts.append({p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()})
    assert texts[0].keys() == texts[1].keys() and len(texts[0]) > 20
    assert [n for n in texts[0] if texts[0][n] != texts[1][n]] == []
