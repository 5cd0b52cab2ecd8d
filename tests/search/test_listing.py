"""`tatami explain --candidates`: every plan that a Region may have, with its estimate or refusal, as text and as JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tatami as tt
from tatami.cli import main
from tatami.prepare import prepare

HARP = "graph<B=64> main(x: f32[B, 96], w: f32[96, 40]) -> (y: f32[B, 40]) {\n    return relu(x @ w).softmax(axis=1)\n}\n"


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "m.harp"
    path.write_text(HARP)
    return str(path)


def explained(*arguments: str) -> str:
    done = CliRunner().invoke(main, ["explain", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_text_has_the_own_plan_first_and_the_others_by_estimate(model: str) -> None:
    block = explained(model, "--candidates", "--target", "cpu:avx2").split("\n\n")[0].splitlines()
    assert block[0].startswith("main r0  key ") and block[1].startswith("  has      cpu_contraction")
    estimates = [float(found[1]) for line in block if (found := re.match(r" +(\S+) us  \w", line))]
    assert len(estimates) >= 10 and estimates == sorted(estimates)
    refused = [line for line in block if line.startswith("  refused")]
    assert refused and all(": " in line for line in refused)


def test_candidates_are_estimated_at_the_sizes_that_are_given(model: str) -> None:
    found = {b: explained(model, "--candidates", "--target", "cpu:avx2", "-D", f"B={b}") for b in (8, 4096)}
    least = {}
    for b, text in found.items():
        assert text.startswith(f"estimates of candidates at B={b}\n")
        least[b] = next(float(m[1]) for line in text.splitlines() if (m := re.match(r" +(\S+) us  \w", line)))
    assert least[4096] > 20 * least[8]


def test_a_decision_of_the_json_is_obeyed(model: str, tmp_path: Path) -> None:
    found = json.loads(explained(model, "--candidates", "--json", "--target", "cpu:avx2"))
    assert {f["suggester"] for f in found} == {"tiling", "fusion", "calls"}
    first = next(f for f in found if f["suggester"] == "tiling" and len(f["candidates"]) > 2)
    chosen = first["candidates"][-1]
    decided = prepare(model, target="cpu:avx2", decisions=chosen["decision"])
    (plan,) = [r for r in decided.stages["plan"].main.regions if r.key == first["key"]]
    assert f"{plan.choices[-1].estimate['total']:.6g}" == f"{chosen['estimate']['total']:.6g}"
    assert not decided.warnings
    x, w = np.ones((3, 96), np.float32), np.linspace(-1, 1, 96 * 40, dtype=np.float32).reshape(96, 40)
    f = tt.compile(model, target="cpu:generic")
    np.testing.assert_allclose(f(x=x, w=w)["y"].sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--json", "--tree"], "give one of them"),
        (["--candidates", "--svg", "x.svg"], "leave --candidates out"),
        (["--candidates", "--target", "reference"], "the target reference has no plans"),
    ],
)
def test_options_without_a_meaning_are_refused(model: str, options: list[str], why: str) -> None:
    done = CliRunner().invoke(main, ["explain", model, *options])
    assert done.exit_code != 0 and why in " ".join(done.output.split())
