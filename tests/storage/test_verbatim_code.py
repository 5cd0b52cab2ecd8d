"""No document becomes code without trust (D2.20): the type that printers print, who makes it, and what refuses the rest."""

from __future__ import annotations

import ast
import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.c.user_routine import user_unit
from tatami.core.codec import from_builtins, to_builtins
from tatami.core.custom.verbatim import KernelCode, VerbatimCode, as_code, rewritten
from tatami.core.diagnostic import TatamiError
from tatami.loop.ir import UserRoutine
from tatami.storage.dump import write_dump
from tatami.storage.tatami_file import save

ROOT = Path(__file__).parents[2]
BODY = "for (ridx0 = 0; ridx0 < shape0; ++ridx0) output[ridx0] = input0[ridx0] * 2;"


def twice() -> tt.Graph:
    g = tt.Graph("g")
    x = g.input("x", (4,), tt.fp32)
    g.output("y", g.kernel_body(BODY, x, cuda="output[ridx0] = input0[ridx0] * 2;", outputs=[(tt.fp32, (4,))], meaning=None))
    return g


def tiny_document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(tt.compile(twice()).stages["tiny"].json)
    return document


def call_of(document: dict[str, Any]) -> dict[str, Any]:
    (arg,) = (n["arg"] for n in document["programs"]["main"]["uops"] if n["uop"] == "CALL")
    assert isinstance(arg, dict)
    return arg


def marked(folder: Path) -> str:
    return f'FILE* f = fopen("{folder}/PWNED", "w"); if (f) fclose(f); {BODY}'


def edits(folder: Path) -> list[dict[str, Any]]:
    """Documents that hold a body in one way or another, among them those that once passed as something else."""
    out = []
    for targets in (["custom"], ["custom", "x"], ["x", "custom"], ["sort"], ["custom", "custom"], []):
        for kind in ("routine", "host", "program"):
            for place in ("code", "attrs", "both", "none"):
                document = copy.deepcopy(tiny_document())
                arg = call_of(document)
                code = {"c": marked(folder), "cuda": "x", "preamble": "#include <stdio.h>"}
                arg |= {"targets": targets, "kind": kind, "code": code if place in ("code", "both") else None}
                if place in ("attrs", "both"):
                    arg["attrs"] |= code
                out.append(document)
    return out


def test_no_edit_of_a_document_runs_its_body(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TATAMI_PROGRAM_CACHE", "0")
    x = np.arange(4, dtype=np.float32)
    kinds = set()
    for document in edits(tmp_path):
        with pytest.raises(TatamiError) as error:
            tt.compile(document)(x=x)
        kinds.add(error.value.diagnostics[0].kind)
        assert "InternalError" not in kinds and not (tmp_path / "PWNED").exists()
    assert "Untrusted" in kinds


def test_a_trusted_document_runs_its_body(tmp_path: Path) -> None:
    document = tiny_document()
    call_of(document)["code"] = {"c": marked(tmp_path), "preamble": "#include <stdio.h>"}
    np.testing.assert_array_equal(tt.compile(document, trust=True)(x=np.ones(4, np.float32))["y"], np.full(4, 2, np.float32))
    assert (tmp_path / "PWNED").exists()


def test_the_refusal_names_the_field_and_what_to_do() -> None:
    with pytest.raises(TatamiError) as error:
        tt.compile(tiny_document())
    (d,) = error.value.diagnostics
    assert (d.kind, "$.code.c" in d.why, "--trust" in d.suggestion) == ("Untrusted", True, True), d


def test_a_saved_program_that_holds_a_body_needs_trust(tmp_path: Path) -> None:
    document = tiny_document()
    call_of(document)["targets"] = ["custom"]
    compilation = tt.api.prepare(document, trust=True)
    path = save(tmp_path / "p.tatami", compilation, {})
    with pytest.raises(TatamiError) as error:
        tt.load(path)
    assert error.value.diagnostics[0].kind == "Untrusted"
    np.testing.assert_array_equal(tt.load(path, trust=True)(x=np.ones(4, np.float32))["y"], np.full(4, 2, np.float32))


def test_a_folder_of_one_stage_with_a_body_needs_trust(tmp_path: Path) -> None:
    f = tt.compile(twice())
    values = {n: f.stages[n].value for n in ("frontend", "tiny", "region", "plan", "loop")}
    write_dump(tmp_path, values, values, f.compilation.target)
    for kept in ("frontend", "tiny", "region", "loop"):
        folder = tmp_path / kept
        folder.mkdir()
        for path in tmp_path.glob(f"*_{kept}.json"):
            (folder / path.name).write_bytes(path.read_bytes())
        with pytest.raises(TatamiError) as error:
            tt.compile(folder)
        assert error.value.diagnostics[0].kind == "Untrusted", kept


def test_the_codec_makes_code_only_with_trust() -> None:
    plain = {"c": BODY, "preamble": "int x;"}
    with pytest.raises(TatamiError, match="Untrusted") as error:
        from_builtins(plain, KernelCode)
    assert "$.c is code" in error.value.diagnostics[0].why
    made = from_builtins(plain, KernelCode, trust=True)
    assert isinstance(made.c, VerbatimCode) and isinstance(made.preamble, VerbatimCode)
    assert from_builtins({"c": made.c}, KernelCode) == KernelCode(c=made.c)
    assert type(to_builtins(made)["c"]) is str


def test_what_is_computed_of_code_is_text_again() -> None:
    code = VerbatimCode("a")
    for text in (code + "b", code.replace("a", "b"), f"{code}", code.strip() + "", "".join([code, "b"]), str(code)):
        with pytest.raises(TypeError, match="nobody answers for it"):
            as_code(text)
    assert rewritten(code, str.upper) == "A" and isinstance(rewritten(code, str.upper), VerbatimCode)


def test_a_printer_refuses_text_that_nobody_answers_for() -> None:
    with pytest.raises(TypeError, match="nobody answers for it"):
        user_unit(UserRoutine("tatami_user_0", (), (), (), (), "system(0);"))  # type: ignore[arg-type]


MAKERS = {
    "core/custom/verbatim.py": "what is rewritten is as trusted as it was",
    "core/codec.py": "documents that are trusted",
    "frontend/graph_api/kernels.py": "the caller's own Python text",
    "frontend/operation.py": "attributes for a loader that was given trust",
    "gpu/streaming/custom_body.py": "our own text of trees",
    **dict.fromkeys(
        (
            "c/print.py",
            "c/kernels/print_kernel.py",
            "c/routines.py",
            "c/products/microkernel.py",
            "c/products/amx_tiles.py",
            "c/products/codes.py",
            "c/products/block_dots.py",
            "c/products/along.py",
            "c/products/places.py",
            "c/products/quads.py",
        ),
        "C that we print",
    ),
    "c/user_routine.py": "the unit around a body, which it asks to be code",
    "cu/print.py": "CUDA that we print",
}
"""Function that makes a VerbatimCode → the source of the code that it trusts."""


def test_only_these_files_make_code() -> None:
    found = set()
    for path in sorted((ROOT / "tatami").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "VerbatimCode":
                found.add(str(path.relative_to(ROOT / "tatami")))
    assert found == set(MAKERS)


def test_trusted_attributes_are_asked_for_under_trust_alone() -> None:
    """Every call of the function that makes a loader's attributes code stands below an `if` that asks for trust."""
    for path in sorted((ROOT / "tatami").rglob("*.py")):
        tree = ast.parse(path.read_text())
        asked = {
            call
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and "trust" in ast.unparse(node.test)
            for statement in node.body
            for call in ast.walk(statement)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "trusted_attributes":
                assert node in asked, (path, node.lineno)


def test_the_command_line_refuses_the_document_of_the_report(tmp_path: Path) -> None:
    document = tiny_document()
    arg = call_of(document)
    arg |= {"targets": ["custom", "x"]}
    arg["attrs"] |= {"c": f'output[0] = 0; system("touch {tmp_path}/PWNED");'}
    path = tmp_path / "evil.json"
    for code in (None, {"c": arg["attrs"]["c"]}):
        arg["code"] = code
        path.write_text(json.dumps(document))
        done = subprocess.run([sys.executable, "-m", "tatami", "run", str(path)], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 1 and not (tmp_path / "PWNED").exists()
        assert done.stderr.count("suggestion:") == 1 and "Traceback" not in done.stderr
