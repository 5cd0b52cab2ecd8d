"""The report of a compilation as data and as a tree says what the text says."""

from __future__ import annotations

import io
import json
from pathlib import Path

from click.testing import CliRunner, Result
from rich.console import Console

from tatami.api import prepare
from tatami.cli import main
from tatami.cli.explain_command import explained_tree
from tatami.report.explanation import ExplainedKernel, Explanation, explanation

DIGITS = str(Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx")


def cli(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_every_kernel_has_its_plan_and_every_verdict_its_place() -> None:
    compilation = prepare(DIGITS, target="cpu:generic")
    found = explanation(compilation)
    regions = {(p, r.region) for p, plan in compilation.stages["plan"].programs.items() for r in plan.regions}
    assert {(k.program, k.name) for k in found.kernels} == regions and all(k.plans for k in found.kernels)
    verdicts = {
        (p, v.producer, v.consumer, v.fused) for p, part in compilation.stages["partition"].items() for v in part.verdicts
    }
    inside = {(k.program, e.producer, e.consumer, True) for k in found.kernels for e in k.fused}
    between = [(k.program, e.producer, e.consumer, False) for k in found.kernels for e in k.borders]
    assert inside == {v for v in verdicts if v[3]} and all(e.kernel for k in found.kernels for e in k.borders)
    assert set(between) == {v for v in verdicts if not v[3]} and len(between) == 2 * len(set(between))


def test_json_and_tree(tmp_path: Path) -> None:
    done = cli("explain", DIGITS, "--json", "--target", "cpu:generic")
    report = json.loads(done.stdout)
    assert (
        done.exit_code == 0 and report["target"] == "cpu:generic" and report["kernels"][0]["plans"][0]["estimate"]["total"] > 0
    )
    tree = cli("explain", DIGITS, "--tree", "--target", "cpu:generic").stdout.splitlines()
    assert tree[0] == f"{len(report['kernels'])} kernels for cpu:generic"
    for kernel in report["kernels"]:
        assert any(f"{kernel['name']}  {kernel['kind']}  {', '.join(kernel['sources'])}" in line for line in tree)
        assert all(any(f"{r['plan']}: {r['why']}" in line for line in tree) for r in kernel.get("rejected", ()))
    assert cli("explain", DIGITS, "--tree", "--json").exit_code == 2
    assert cli("explain", DIGITS, "--tree", "--candidates").exit_code == 2


def test_names_of_a_model_are_text_in_the_tree() -> None:
    kernel = ExplainedKernel("main", "r0", "map", ("[red]y[/nothing]\x1b[31m",), ())
    console = Console(record=True, width=200, file=io.StringIO())
    console.print(explained_tree(Explanation("cpu", (kernel,), (), (), ())))
    text = console.export_text()
    assert "[red]y[/nothing]\\x1b[31m" in text and "\x1b" not in text


def test_diagnostics_as_one_list() -> None:
    done = cli("--diagnostics", "json", "run", "/nowhere/model.onnx")
    assert done.exit_code == 1
    assert [(d["code"], d["kind"], sorted(d)) for d in json.loads(done.stderr)] == [
        ("E1701", "FileUnreadable", ["at", "code", "kind", "suggestion", "why"])
    ]
    done = cli("--diagnostics", "json", "explain", DIGITS)
    assert done.exit_code == 0 and json.loads(done.stderr) == []


def test_check_as_json_says_nothing_else(tmp_path: Path) -> None:
    done = cli("check", "--json", "/nowhere/model.onnx")
    assert done.exit_code == 1 and done.stderr == "" and json.loads(done.stdout)[0]["code"] == "E1701"
