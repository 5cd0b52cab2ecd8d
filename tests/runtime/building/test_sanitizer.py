"""The sanitizer build: bodies that leave their tensors, by one element, where the arena has another tensor next to it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tatami.core.diagnostic import TatamiError
from tatami.runtime.building.compiler import find_compiler
from tatami.runtime.building.sanitizer import sanitizer_library

SCRIPT = """
import sys
import numpy as np, tatami as tt
for body in sys.argv[1:]:
    g = tt.Graph("g")
    x = g.input("x", ("N",), tt.fp32)
    y = g.kernel_body(body, x.exp(), outputs=[(tt.fp32, ("N",))], meaning=None)
    g.output("y", y.tanh() + x.exp())
    f = tt.compile(g)
    for n in (4, 0, 64):
        for _ in range(2):
            try:
                f(x=np.zeros(n, np.float32))
                print("fine", n)
            except tt.TatamiError as error:
                print(error.diagnostics[0].kind, n)
    for stream in (sys.stdout, sys.stderr):
        print("----", file=stream, flush=True)
"""
LOOP = "for (ridx0 = 0; ridx0 < shape0; ++ridx0)\n  "
WITHIN = "output[ridx0] = input0[ridx0];"
TOO_FAR = ("output[ridx0] = input0[ridx0 + 1];", "output[ridx0 - 1] = 0;")


def run(*bodies: str, halt: bool = False) -> subprocess.CompletedProcess[str]:
    try:
        library = sanitizer_library(find_compiler())
    except TatamiError:
        pytest.skip("the C compiler has no AddressSanitizer")
    options = f"detect_leaks=0:halt_on_error={int(halt)}"
    environment = {**os.environ, "LD_PRELOAD": library, "TATAMI_SANITIZE": "1", "ASAN_OPTIONS": options}
    command = [sys.executable, "-c", SCRIPT, *(LOOP + b for b in bodies)]
    root = Path(__file__).parents[3]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, cwd=root)


def test_one_element_too_far_is_a_diagnostic_at_every_call() -> None:
    done = run(*TOO_FAR, WITHIN)
    said, reports = (text.split("----\n") for text in (done.stdout, done.stderr))
    for of_one, report in zip(said[:2], reports[:2], strict=True):
        assert of_one.split("\n")[:2] == ["OutOfBounds 4", "OutOfBounds 4"], report
        assert "heap-buffer-overflow" in report
    assert "body:2" in reports[0]
    assert said[2].split("\n") == ["fine 4", "fine 4", "fine 0", "fine 0", "fine 64", "fine 64", ""], done.stderr
    assert "AddressSanitizer" not in reports[2]


def test_without_recovery_the_process_ends_with_the_report() -> None:
    done = run("output[ridx0 + 1] = 0;", halt=True)
    assert done.returncode != 0 and done.stdout == ""
    assert "heap-buffer-overflow" in done.stderr and "body:2" in done.stderr
