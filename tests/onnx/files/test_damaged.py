"""A damaged model is a module or one diagnostic: no Python error leaves the importer or the compiler."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import tatami as tt
from tests.onnx.files.damaged_models import damaged, originals, trials


def test_damaged_models_end_in_a_module_or_a_diagnostic() -> None:
    verdicts = Counter(v.split()[0] for _, v in trials(4000, 11))
    assert verdicts["fault"] == 0
    assert verdicts["module"] > 1000 and verdicts["refused"] > 1000, verdicts  # damage of both kinds is tried
    assert verdicts["unforeseen"] < 40, verdicts


def test_a_fault_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tatami.onnx.load.repaired", lambda model: 1 / 0)
    assert all(v.startswith(("fault ZeroDivisionError", "refused ParseError")) for _, v in trials(20, 11))


def test_damaged_models_compile_or_are_refused() -> None:
    rng = random.Random(12)
    models = originals()
    for _ in range(600):
        try:
            tt.compile(damaged(rng.choice(models), rng), target="reference")
        except tt.TatamiError as error:
            assert all(d.kind != "InternalError" and d.at and d.why and d.suggestion for d in error.diagnostics)
