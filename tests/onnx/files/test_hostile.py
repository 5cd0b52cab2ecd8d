"""A part of the hostile corpus; all of it is `python -m tests.onnx.files.hostile_corpus`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.onnx.files import hostile_corpus
from tests.onnx.files.hostile_corpus import corpus, judge, run


def faults(verdicts: dict[str, str]) -> dict[str, str]:
    return {n: v for n, v in verdicts.items() if v != "program" and not v.startswith("refused ")}


def test_a_part_of_every_kind_of_hostile_file_ends_in_a_diagnostic_or_a_program() -> None:
    verdicts = run(every=12)
    assert len(verdicts) > 20
    assert not faults(verdicts)


def test_files_outside_the_folder_are_never_read() -> None:
    verdicts = run(prefix="external-")
    assert verdicts.pop("external-good") == "program"
    assert len(verdicts) >= 17
    assert all(v.startswith("refused ") for v in verdicts.values()), verdicts


def test_the_limits_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that takes too long, and one that takes too much memory, are faults: the corpus could fail."""
    _, path = next((n, p) for n, p in corpus(tmp_path) if n == "external-good")
    monkeypatch.setattr("tatami.api.prepare", lambda *a, **k: bytearray(2 << 30))
    assert judge(path) == "fault: MemoryError: "
    monkeypatch.setattr(hostile_corpus, "SECONDS", 1)
    monkeypatch.setattr("tatami.api.prepare", lambda *a, **k: [0 for _ in iter(int, 1)])
    assert judge(path) == "fault: more than 1 s"
