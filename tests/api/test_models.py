"""Opening models: what is recognised, and what bad files give."""

from __future__ import annotations

from pathlib import Path

import pytest

from tatami.core.diagnostic import TatamiError
from tatami.models import open_model


def kinds(error: pytest.ExceptionInfo[TatamiError]) -> list[str]:
    return [d.kind for d in error.value.diagnostics]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("{", "ParseError"),
        ('{"a": 1, "a": 2}', "ParseError"),
        ('{"a": NaN}', "ParseError"),
        ('{"a": 1e400}', "ParseError"),
        ("[" * 100_000, "InputTooLarge"),
        ("{}", "InvalidDocument"),
        ("[]", "InvalidDocument"),
        ('{"tatami": 99, "stage": "tiny", "programs": {}}', "InvalidDocument"),
        ('{"tatami": 1, "stage": "nonsense", "programs": {}}', "UnknownName"),
        ('{"tatami": 1, "stage": "c", "programs": {"main": {"units": {}, "entry": "int x;"}}}', "Untrusted"),
        ('{"tile": [64, 64, 32]}', "InvalidDocument"),
        ('{"analysis": {}}', "InvalidDocument"),
    ],
)
def test_a_bad_document_gives_one_diagnostic(tmp_path: Path, text: str, kind: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(TatamiError) as error:
        open_model(path)
    assert kinds(error) == [kind]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TatamiError) as error:
        open_model(tmp_path / "nothing.json")
    assert kinds(error) == ["FileUnreadable"]


def test_an_unknown_suffix_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(TatamiError) as error:
        open_model(tmp_path / "model.pt")
    assert kinds(error) == ["UnknownFormat"]
    assert ".onnx" in error.value.diagnostics[0].suggestion


def test_a_constant_may_not_leave_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(
        '{"tatami": 1, "stage": "frontend", "programs": {}, '
        '"constants": {"w": {"dtype": "fp32", "shape": [1], "sha256": "", "file": "../secret"}}}'
    )
    with pytest.raises(TatamiError) as error:
        open_model(path)
    assert kinds(error) == ["FileUnreadable"]


def test_a_dump_folder_is_compared_stage_by_stage(tmp_path: Path) -> None:
    from tatami.api import prepare
    from tatami.bench.inputs import gather_inputs
    from tatami.report.playback import play_back
    from tatami.storage.dump import write_dump
    from tests.golden.programs import row_softmax

    compilation = prepare(row_softmax())
    values = compilation.values()
    write_dump(tmp_path, values, values, compilation.target)
    edited = next(tmp_path.glob("*_tiny.json"))
    text = edited.read_text()
    assert '"EXP"' in text
    edited.write_text(text.replace('"EXP"', '"EXP2"'))
    with pytest.raises(TatamiError, match="is not the file that this document was made from"):
        prepare(tmp_path)  # the stages below would run, and not what was edited
    again = prepare(tmp_path, compare=True)
    signature = again.values()["frontend"].main.signature
    arrays, sizes = gather_inputs(signature, signature.inputs, [], {})
    first = play_back(again.values(), arrays, sizes).first_divergence
    assert first is not None and first.stage == "tiny"
