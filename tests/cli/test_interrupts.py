"""Ctrl-C and SIGTERM end a command soon, wherever it is."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

MINUTES = 2**44
"""Additions that keep a kernel busy for many minutes."""
COMMAND = """
import sys
from tatami.cli import main
from tatami.runtime.cpu.program import CpuProgram
enter = CpuProgram.enter
def told(self, symbol, *rest):
    print(symbol, flush=True)
    return enter(self, symbol, *rest)
CpuProgram.enter = told
main(sys.argv[1:], prog_name="tatami")
"""
"""The command, which says when it enters native code."""
BLOCK = """
import os, signal, sys, time
import tatami.cli.interrupts as module
module.GRACE = 0.3
with module.ended_by_signals(lambda: print("said", file=sys.stderr, flush=True)):
    for _ in range(3):
        try:
            for _ in range(int(sys.argv[1])):
                os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)
        except KeyboardInterrupt:
            time.sleep(0.8)
print("went on")
"""


def python(code: str, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a background job begins with it ignored
    )


def model_of_minutes(path: Path, is_constant: bool) -> Path:
    """x + Σ exp(a) of an `a` that is expanded: an initialiser, whose sum is computed at load, or the input."""
    source = "a" if is_constant else "x"
    nodes = [
        helper.make_node("Expand", [source, "p"], ["c"]),
        helper.make_node("Exp", ["c"], ["e"]),
        helper.make_node("ReduceSum", ["e"], ["s"]),
        helper.make_node("Add", ["x", "s"], ["y"]),
    ]
    held = [numpy_helper.from_array(np.array([MINUTES]), "p"), numpy_helper.from_array(np.ones(1, np.float32), "a")]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], held if is_constant else held[:1])
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    return path


@pytest.mark.parametrize(
    ("is_constant", "number", "code"),
    [(False, signal.SIGINT, 130), (True, signal.SIGINT, 130), (False, signal.SIGTERM, 143)],
    ids=["call", "load", "terminated"],
)
def test_a_kernel_of_minutes_is_ended(tmp_path: Path, is_constant: bool, number: signal.Signals, code: int) -> None:
    """Files of the process in the temporary folder are removed too: here its cache, since the configured one is not a folder."""
    (tmp_path / "file").touch()
    (tmp_path / "temporary").mkdir()
    model = model_of_minutes(tmp_path / "m.onnx", is_constant)
    places = {"TATAMI_CACHE_DIR": str(tmp_path / "file"), "TMPDIR": str(tmp_path / "temporary"), "TATAMI_CALIBRATE": "0"}
    process = python(COMMAND, "run", str(model), **places)
    try:
        assert process.stdout is not None
        wanted = "tatami_setup_0" if is_constant else "tatami_entry"
        while (line := process.stdout.readline().strip()) != wanted:
            assert line, process.communicate()[1]
        time.sleep(0.5)
        process.send_signal(number)
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    assert ("E1806" in errors) == (number == signal.SIGINT)
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.parametrize("times", [1, 3])
def test_a_signal_that_python_takes_is_left_to_it(times: int) -> None:
    process = python(BLOCK, str(times))
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out, errors) == (0, "went on\n", "")
