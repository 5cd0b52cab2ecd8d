"""A small model and a session over it, for tests of the search."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import tatami as tt
from tatami.compilation import Compilation
from tatami.decisions import Decisions
from tatami.ledger.database import open_ledger
from tatami.ledger.records import Records
from tatami.prepare import prepare
from tatami.search.measuring.measurer import Limits
from tatami.search.results import Options, Tell, Tuned
from tatami.search.session import Session

TARGET = "cpu:avx2"
QUICK = Limits(run=2.0, turn=2.0)
"""Limits for tests with candidates that hang."""


def two_layers(rows: int | str = 32) -> tt.Graph:
    """A product with an epilogue, and a softmax: two kernels with plans of several kinds."""
    rng = np.random.default_rng(0)
    g = tt.Graph("two")
    x = g.input("x", (rows, 64), tt.fp32)
    w = g.constant(rng.standard_normal((64, 48)).astype(np.float32))
    g.output("y", (x @ w).exp().softmax(axis=1))
    return g


def compilation(rows: int | str = 32, decisions: Decisions | None = None) -> Compilation:
    return prepare(two_layers(rows), target=TARGET, decisions=decisions)


def planted(folder: Path, faults: Mapping[str, str]) -> tuple[str, ...]:
    """The command of a worker with these faults (tests/search/planted_worker.py)."""
    file = folder / "faults.json"
    file.write_text(json.dumps({"faults": dict(faults), "log": str(folder / "log")}))
    return sys.executable, "-m", "tests.search.planted_worker", str(file)


def session(
    folder: Path,
    command: tuple[str, ...],
    rows: int | str = 32,
    decisions: Decisions | None = None,
    tell: Tell = lambda p: None,
    **more: Any,
) -> Tuned:
    """Tune the model with the ledger in `folder`. `more`: other options of the search."""
    sizes = {"B": 32} if isinstance(rows, str) else {}
    options = replace(Options(600.0, sizes, 1, folder / "faults", command=command, limits=QUICK), **more)
    with open_ledger(folder / "ledger.sqlite") as connection:
        return Session(compilation(rows, decisions), options, Records(connection), tell).run()


def timings(folder: Path) -> list[str]:
    """The log of a planted worker: a line per program and round."""
    log = folder / "log"
    return log.read_text().splitlines() if log.exists() else []
