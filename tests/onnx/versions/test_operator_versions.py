"""Every version of every operator, as the version's text says it."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

import tatami as tt
from tests.onnx.versions.operator_versions import ELSEWHERE, RECIPES, versions
from tests.onnx.versions.version_case import Array, Case, model_of
from tests.onnx.versions.version_control import control

NO_MEANING = ("consumed_inputs", "output_sequence")
"""Attributes of old versions that ONNX Runtime's kernels do not take, and that change no result."""
NEWEST = 24
"""Opset up to which ONNX Runtime is asked."""


def expected(op: str, version: int, case: Case) -> list[Array]:
    """The recipe's own result, else that of ONNX Runtime at the first opset from this version on at which it runs, else
    at the last one before it (of a node that both take)."""
    if case.want is not None:
        return case.want
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for opset in (*range(version, NEWEST + 1), *range(min(version, NEWEST), 0, -1)):
        attrs = {k: int(v) if k == "p" else v for k, v in case.attrs.items() if k not in NO_MEANING}
        plain = replace(case, attrs=attrs)
        made, feed = model_of(op, opset, plain)
        try:
            session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception:  # no kernel of that version
            continue
        return [np.asarray(r) for r in session.run(None, feed)]
    pytest.skip("ONNX Runtime has no kernel, and the recipe no result")


def test_every_operator_with_versions_has_a_recipe() -> None:
    counts = Counter(op for op, _ in versions())
    assert {op for op, n in counts.items() if n > 1} <= {*RECIPES, *ELSEWHERE}


@pytest.mark.parametrize(("op", "version"), [v for v in versions() if v[0] in RECIPES])
def test_a_version_gives_what_its_text_says(op: str, version: int) -> None:
    cases = list(RECIPES[op](op, version))
    assert cases or op == "Upsample"
    for case in cases:
        want = expected(op, version, case)
        made, feed = model_of(op, version, case)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            f = tt.compile(made, target="reference")
            got = list(f(feed).values())
        assert not f.compilation.warnings
        for a, b in zip(got, want, strict=True):
            assert (a.dtype, a.shape) == (np.asarray(b).dtype, np.shape(b)), case.attrs
            if not case.is_random:
                np.testing.assert_allclose(a.astype("f8"), np.asarray(b, "f8"), rtol=2e-5, atol=2e-5, err_msg=str(case.attrs))


@pytest.mark.parametrize(("op", "version"), [v for v in versions() if ELSEWHERE.get(v[0]) == "control"])
def test_control_flow_of_every_version(op: str, version: int) -> None:
    made, feed, want = control(op, version)
    got = list(tt.compile(made, target="reference")(feed).values())
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
