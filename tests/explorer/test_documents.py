"""Documents edited in a served page: every stage as in a dump, refusals with their place, what goes on from them, what is saved."""

from __future__ import annotations

import base64
import gzip
import json
import re
from functools import cache
from pathlib import Path

import msgspec
import pytest

from tatami.cli.explore_worker import answer
from tatami.core.codec import parse_text
from tatami.explorer.edits import MOST_TEXT, document_of, whole_document
from tatami.explorer.ir import Explored
from tatami.explorer.messages import Answer, Asked, DocumentOf, SaveStage, StageEdit
from tatami.prepare import prepare
from tatami.runtime.building.nvrtc import has_nvrtc
from tatami.storage.dump import write_dump
from tests.explorer.pages import DIGITS

pytest.importorskip("starlette", reason="the extra explorer is not installed")
from tests.explorer.serving import EDIT


def asked(request: Asked, model: str = str(DIGITS), target: str = "cpu:avx2", *, trust: bool = False) -> Answer:
    return answer(msgspec.structs.replace(EDIT, model=model, target=target, asked=request, trust=trust))


@cache
def text_of(stage: str, *, trust: bool = False) -> str:
    found = asked(DocumentOf(stage), trust=trust)
    assert found.faults == () and found.document
    return found.document


def page_in(found: Answer) -> Explored:
    assert [str(d) for d in found.faults] == []
    return msgspec.json.decode(gzip.decompress(base64.b64decode(found.page)), type=Explored)


def code_of(page: Explored) -> tuple[str, ...]:
    return next(s for s in page.stages if s.name == "c").lines


def refusal(stage: str, text: str, *, trust: bool = False) -> tuple[str, str]:
    """(the only fault, the marked line)"""
    found = asked(StageEdit(stage, text), trust=trust)
    assert len(found.faults) == len(found.places) == 1 and not found.page
    place = found.places[0]
    return str(found.faults[0]), "" if place is None else text.split("\n")[place.line].strip()


def test_a_document_is_the_file_of_a_dump(tmp_path: Path) -> None:
    compilation = prepare(DIGITS, target="cpu:avx2")
    values = compilation.values()
    write_dump(tmp_path, values, values, compilation.target)
    for name in values:
        text, file = document_of(compilation, name, trust=True)
        assert text == (tmp_path / file).read_text(encoding="utf-8"), name


def test_an_edit_of_each_stage_goes_on_from_it() -> None:
    """Decisions and stages that are obeyed change the code; stages that are facts or checked are accepted as they came."""
    for stage, old, new in (
        ("frontend", '"relu"', '"tanh"'),
        ("region", '"relu"', '"tanh"'),
        ("plan", '"mr": 6', '"mr": 4'),
        ("decisions", '"mr":6' if '"mr":6' in text_of("decisions") else '"mr": 6', '"mr": 4'),
    ):
        text = text_of(stage)
        assert old in text, stage
        page = page_in(asked(StageEdit(stage, text.replace(old, new, 1))))
        assert code_of(page) != code_of(page_in(asked(StageEdit("execution", text_of("execution"))))), stage
        assert stage == "decisions" or stage in [s.name for s in page.stages]
    for stage in ("tiny@imported", "tiny", "indexbook", "poly_view", "region@explicit", "poly_core", "loop"):
        assert page_in(asked(StageEdit(stage, text_of(stage)))).kernels, stage


def test_a_refusal_marks_the_line() -> None:
    plan, loop = text_of("plan"), text_of("loop")
    said, line = refusal("plan", plan.replace('"mr": 6', '"mr": 7', 1))
    assert said.startswith("E1502") and line == '"region": "r0",'
    said, line = refusal("plan", plan.replace('"mr": 6', '"mr": "x"', 1))
    assert said.startswith("E1605") and line == '"mr": "x",'
    said, line = refusal("plan", plan.replace('"mr": 6', '"mr": 6, "import": "os"', 1))
    assert "nothing reads" in said and "import" in line
    said, line = refusal("plan", plan.replace('"regions": [', '"regions": [,', 1))
    assert said.startswith("E1609") and line == '"regions": [,'
    said, line = refusal("frontend", text_of("frontend").replace('"relu"', '"rulu"', 1))
    assert "did you mean 'relu'" in said and '"rulu"' in line
    said, line = refusal("poly_core", text_of("poly_core").replace('"flops": "', '"flops": "1 + ', 1))
    assert "the Region has" in said and '"r0"' in line
    said, line = refusal("loop", re.sub(r'"index": "[^"]*"', '"index": "1000000"', loop, count=1))
    assert said.startswith("E1610") and "the kernel was edited" in said and "tatami_" in line


def test_a_loop_that_never_ends_is_not_run() -> None:
    loop = text_of("loop")
    endless = re.sub(r'"stop": \d+', f'"stop": {1 << 62}', loop, count=1)
    assert endless != loop
    found = asked(StageEdit("loop", endless))
    assert found.faults or found.page


@pytest.mark.parametrize(
    ("stage", "text", "code"),
    [
        ("plan", "", "E1609"),
        ("plan", "[]", "E1605"),
        ("plan", "[" * 9999, "E1706"),
        ("plan", " " * (MOST_TEXT + 1), "E1706"),
        ("plan", '{"tatami": 1, "stage": "frontend", "programs": {"main": {}}}', "E1605"),
        ("plan", '{"tatami": 1, "stage": "plan", "programs": {"main": {}}}', "E1605"),
        ("../../etc/passwd", "{}", "E1611"),
        ("gpu", "{}", "E1611"),
        ("c", "{}", "E1610"),
        ("decisions", '{"plan": {}}', "E1605"),
        ("decisions", '{"plans": {"x": {}}}', "E1605"),
    ],
)
def test_hostile_texts_get_one_diagnostic(stage: str, text: str, code: str) -> None:
    assert refusal(stage, text)[0].startswith(code)
    saved = asked(SaveStage(stage, text))
    assert saved.document == "" if stage != "decisions" or "plans" not in text else saved.document


def test_a_document_names_no_file() -> None:
    text = text_of("frontend")
    constant = re.search(r'"sha256": "(\w+)",\s*"file": "([^"]+)"', text)
    assert constant is not None
    assert page_in(asked(StageEdit("frontend", text.replace(constant[2], "/etc/passwd", 1)))).kernels  # known by its hash alone
    said, line = refusal("frontend", text.replace(constant[1], "0" * 64))
    assert said.startswith("E1701") and "reads no files" in said and "constant" in said and line
    plan = text_of("plan")
    assert "not that of the page" in refusal("plan", plan.replace('"path": "', '"path": "../', 1))[0]


def test_a_saved_document_restarts_alone(tmp_path: Path) -> None:
    text = text_of("plan").replace('"mr": 6', '"mr": 4', 1)
    found = asked(SaveStage("plan", text))
    assert found.faults == () and found.file == "8_plan-edited.json"
    path = tmp_path / found.file
    path.write_text(found.document, encoding="utf-8")
    again, was = prepare(path, target="cpu:avx2"), page_in(asked(StageEdit("plan", text)))
    code = next(s for s in was.stages if s.name == "c").lines
    assert sum(len(u.text) for u in again.stages["c"].main.units.values()) > 0
    assert any("4x16" in line for line in code) and any("4x16" in u.text for u in again.stages["c"].main.units.values())
    assert asked(SaveStage("plan", text.replace('"mr": 4', '"mr": 7', 1))).faults[0].code == "E1502"


def test_large_constants_are_not_saved_in_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tatami.explorer.edits.MOST_SAVED", 1000)
    compilation = prepare(DIGITS, target="cpu:avx2")
    with pytest.raises(Exception, match="E1706") as error:
        whole_document(compilation, "plan", document_of(compilation, "plan", trust=False)[0], trust=False)
    assert "save the text alone" in str(error.value)


def test_code_is_edited_with_trust_and_read_by_its_compiler() -> None:
    refused = asked(DocumentOf("c"))
    assert refused.faults[0].kind == "Untrusted" and "--serve --trust" in refused.faults[0].suggestion
    text = text_of("c", trust=True)
    said, line = refusal("c", text.replace('"#include <stdint.h>",', '"#include <stdint.h>", "int x = y;",', 1), trust=True)
    assert said.startswith("E1704") and "undeclared" in said and "int x = y" in line
    said, line = refusal("c", text.replace('"#include <stdint.h>",', '"#include \\"/etc/passwd\\"",', 1), trust=True)
    assert said.startswith("E1704") and "passwd" in line
    page = page_in(asked(StageEdit("c", text.replace("/* planes", "/* edited planes", 1)), trust=True))
    assert any("edited planes" in line for s in page.stages if s.name == "c" for line in s.lines)


def test_gpu_documents_are_edited(tmp_path: Path) -> None:
    model = tmp_path / "m.harp"
    model.write_text("graph main(x: f32[64, 64], w: f32[64, 64]) -> (y: f32[64, 64]) {\n    return x @ w\n}\n")
    for stage in ("plan", "gpu", "execution"):
        found = asked(DocumentOf(stage), str(model), "sm80")
        assert found.document, found.faults
        assert page_in(asked(StageEdit(stage, found.document), str(model), "sm80")).kernels
    gpu = json.loads(asked(DocumentOf("gpu"), str(model), "sm80").document)
    assert parse_text(json.dumps(gpu), "gpu") == gpu
    kernels = gpu["programs"]["main"]["kernels"]
    first = kernels[next(iter(kernels))] if isinstance(kernels, dict) else kernels[0]
    first["import"] = 1
    found = asked(StageEdit("gpu", json.dumps(gpu, indent=1)), str(model), "sm80")
    assert len(found.faults) == 1 and found.places[0] is not None


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
def test_cuda_text_is_edited_with_trust_and_read_by_nvrtc(tmp_path: Path) -> None:
    model = tmp_path / "m.harp"
    model.write_text("graph main(x: f32[64, 64], w: f32[64, 64]) -> (y: f32[64, 64]) {\n    return x @ w\n}\n")
    for target in ("sm80", "sm90"):
        assert asked(DocumentOf("cu"), str(model), target).faults[0].kind == "Untrusted"
        text = asked(DocumentOf("cu"), str(model), target, trust=True).document
        for before in (r'"TT_KERNEL[^"]*"', r'"#define TT_DEV '):  # in a unit, in a header of all units
            wrong = re.sub(rf"( *)({before})", r'\1"int unknown = y;",\n\1\2', text, count=1)
            assert wrong != text
            found = asked(StageEdit("cu", wrong), str(model), target, trust=True)
            (fault,), (place,) = found.faults, found.places
            assert fault.kind == "CompilerFailed" and "undefined" in fault.why and place is not None
            assert "int unknown = y" in wrong.split("\n")[place.line]
        page = page_in(asked(StageEdit("cu", wrong.replace("int unknown = y;", "// edited")), str(model), target, trust=True))
        assert any("// edited" in line for s in page.stages if s.name == "cu" for line in s.lines)


def test_the_process_takes_half_of_the_memory_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> object:
        raise MemoryError

    monkeypatch.setattr("tatami.cli.explore_worker._compilation", full)
    found = asked(StageEdit("plan", "{}"))
    assert [d.kind for d in found.faults] == ["OutOfMemory"] and found.places == (None,)


@pytest.mark.parametrize(("stage", "text"), [("decisions", "null"), ("decisions", "[]"), ("plan", '{"a": NaN, "b\n": 1}')])
def test_a_text_that_is_no_document_is_refused(stage: str, text: str) -> None:
    found = asked(StageEdit(stage, text))
    assert len(found.faults) == 1 and found.faults[0].kind in ("InvalidDocument", "ParseError")
