"""The sanitizer build: bodies that leave their tensors, by one element, where the arena has another tensor beside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tatami.core.diagnostic import TatamiError
from tatami.runtime.compiler import find_compiler
from tatami.runtime.sanitizer import sanitizer_library

SCRIPT = """
import sys
import numpy as np, tatami as tt
g = tt.Graph("g")
x = g.input("x", ("N",), tt.fp32)
y = g.kernel_body(sys.argv[1], x.exp(), outputs=[(tt.fp32, ("N",))], meaning=None)
g.output("y", y.tanh() + x.exp())
f = tt.compile(g)
for n in (4, 0, 64):
    for _ in range(2):
        try:
            f(x=np.zeros(n, np.float32))
            print("fine", n)
        except tt.TatamiError as error:
            print(error.diagnostics[0].kind, n)
"""
LOOP = "for (ridx0 = 0; ridx0 < shape0; ++ridx0)\n  "


def run(body: str, halt: bool = False) -> subprocess.CompletedProcess[str]:
    try:
        library = sanitizer_library(find_compiler())
    except TatamiError:
        pytest.skip("the C compiler has no AddressSanitizer")
    options = f"detect_leaks=0:halt_on_error={int(halt)}"
    environment = {**os.environ, "LD_PRELOAD": library, "TATAMI_SANITIZE": "1", "ASAN_OPTIONS": options}
    command = [sys.executable, "-c", SCRIPT, body]
    root = Path(__file__).parents[2]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, cwd=root)


def test_a_body_within_its_tensors_is_fine() -> None:
    done = run(LOOP + "output[ridx0] = input0[ridx0];")
    assert done.stdout.split("\n")[:6] == ["fine 4", "fine 4", "fine 0", "fine 0", "fine 64", "fine 64"], done.stderr
    assert "AddressSanitizer" not in done.stderr


@pytest.mark.parametrize("wrong", ["output[ridx0] = input0[ridx0 + 1];", "output[ridx0 - 1] = 0;"])
def test_one_element_too_far_is_a_diagnostic_at_every_call(wrong: str) -> None:
    done = run(LOOP + wrong)
    assert done.stdout.split("\n")[:2] == ["OutOfBounds 4", "OutOfBounds 4"], done.stderr
    assert "body:2" in done.stderr


def test_without_recovery_the_process_ends_with_the_report() -> None:
    done = run(LOOP + "output[ridx0 + 1] = 0;", halt=True)
    assert done.returncode != 0 and done.stdout == ""
    assert "heap-buffer-overflow" in done.stderr and "body:2" in done.stderr
