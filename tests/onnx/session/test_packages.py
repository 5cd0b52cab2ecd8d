"""Packages that call ONNX Runtime give the same answers with `tatami.onnx` in its place (the extra `real`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SCRIPT = Path(__file__).with_name("package_answers.py")
ROOT = SCRIPT.parents[2]
NEEDS = {"magika": (), "nudenet": ("cv2",), "rapidocr_onnxruntime": ("cv2",), "silero_vad": ("torch",)}
"""Package → other packages that its answers need."""


def answers(package: str, runtime: str) -> dict[str, Any]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, str(SCRIPT), package, runtime]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("package", NEEDS)
def test_a_package_gives_the_same_answers(package: str) -> None:
    for name in (package, *NEEDS[package]):
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed; the extra `real` has it")
    expected, found = answers(package, "onnxruntime"), answers(package, "tatami")
    assert list(found) == list(expected)
    for name, value in expected.items():
        if isinstance(value, list) and value and all(isinstance(v, float) for v in value):
            assert np.allclose(found[name], value, rtol=2e-3, atol=2e-3), name
        else:
            assert found[name] == value, name
