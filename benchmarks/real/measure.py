"""Rows of a table: each model measured in processes of its own, with a program cache of its own."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx

from benchmarks.cpu.environment import environment
from benchmarks.real.contestants import Answer, Request
from benchmarks.real.record import Row

ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 600.0
"""The longest that one process may take; the largest model of the list compiles in a minute."""


class Ended(Exception):
    """A process that gave no answer."""


def measure(
    row: Row,
    path: Path,
    feeds: Sequence[Sequence[Mapping[str, Any]]],
    sizes: Sequence[Mapping[str, int]],
    rounds: int,
    mode: str = "cold",
) -> Row:
    """The row with all that can be known; a refusal or a crash is part of it. `feeds` has one or more of equal shapes for each
    size: results of the first are compared, and timed calls take all in turn."""
    row.opset, row.nodes = read(path)
    row.load = round(os.getloadavg()[1] / (os.cpu_count() or 1), 1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        files = tuple(_written(draws, folder / f"feeds{k}.npz") for k, draws in enumerate(feeds))
        request = Request(str(path), files, tuple(sizes), rounds, _tiny(folder / "tiny.onnx"))
        variables = environment(1) | with_bytecode() | {"TATAMI_CACHE_DIR": str(folder / "cache")}
        try:
            answer = ask(mode, request, variables)
        except Ended as ended:
            row.crashed, row.refused = True, str(ended)
            return row
        row.refused, row.sizes, row.cold = answer.refused, answer.sizes, answer.seconds
        row.compilations = answer.compilations
        if row.verdict == "refused":
            return row
        try:
            cached = ask("cached", request, variables)
            row.cached, row.resident = cached.seconds, cached.resident
            row.resident_theirs = ask("theirs", request, variables).resident
        except Ended as ended:
            row.crashed, row.refused = True, f"loading from the cache: {ended}"
    return row


@cache
def with_bytecode() -> dict[str, str]:
    """Variables with which a process finds Python's bytecode of every module, as after an installation: the interpreter would
    compile Tatami's modules again in each process, a second that no user of an installed package waits for."""
    folder = tempfile.mkdtemp(prefix="bytecode-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    kept = {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
    with tempfile.TemporaryDirectory() as cache_folder:
        variables = environment(1) | kept | {"TATAMI_CACHE_DIR": cache_folder}
        subprocess.run([sys.executable, "-m", "benchmarks.compile_time.process", "--warm"], cwd=ROOT, env=variables, check=True)
    return kept


def ask(mode: str, request: Request, variables: Mapping[str, str]) -> Answer:
    command = [sys.executable, "-m", "benchmarks.real.process", mode]
    data = msgspec.json.encode(request)
    try:
        done = subprocess.run(
            command, input=data, capture_output=True, cwd=ROOT, env=dict(variables), timeout=LIMIT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Ended(f"no end after {LIMIT_SECONDS:.0f} s") from None
    if done.returncode or not done.stdout.strip():
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise Ended(f"ended with {done.returncode}: {said[-1] if said else 'no word'}")
    return msgspec.json.decode(done.stdout.strip().splitlines()[-1], type=Answer)


def read(path: Path) -> tuple[int, int]:
    """Opset and number of nodes."""
    model = onnx.load(str(path), load_external_data=False)
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    return opset, len(model.graph.node)


def _written(feeds: Sequence[Mapping[str, Any]], file: Path) -> str:
    np.savez(file, allow_pickle=False, **{name: np.stack([f[name] for f in feeds]) for name in feeds[0]})
    return str(file)


def _tiny(file: Path) -> str:
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["n"]) for n in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Tanh", ["x"], ["y"])], "tiny", [x], [y])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), str(file))
    return str(file)
