"""Random programs of Regions: compiled with a poisoned arena, compiled without reuse, and the meaning agree."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tatami.core.module import Module
from tatami.execution import arena
from tatami.region.ir import Program
from tatami.region.run import run as run_regions
from tatami.runtime import arrays
from tatami.runtime.cpu import program as cpu_program
from tests.execution.regions import N, program, region
from tests.runtime.compiled import compiled


def random_program(seed: int) -> Module[Program]:
    rng = random.Random(seed)
    values = [f"n{k}" for k in range(rng.randint(1, 3))]
    inputs = dict.fromkeys(values, N)
    body = []
    for k in range(rng.randint(0, 25)):
        fn = rng.choice(["neg", "relu", "abs", "add", "mul"])
        near = values[-4:] if rng.random() < 0.7 else values
        reads = tuple(rng.choice(near) for _ in range(2 if fn in ("add", "mul") else 1))
        body.append(region(f"r{k}", fn, reads, f"m{k}", N))
        values.append(f"m{k}")
    outputs = {f"y{k}": (rng.choice(values), N) for k in range(rng.randint(1, 4))}
    updates = {}
    for v in inputs:
        if rng.random() < 0.4:
            outputs[f"new-{v}"] = (rng.choice(values), N)
            updates[f"new-{v}"] = f"in-{v}"
    return Module({"main": program(tuple(body), inputs, outputs, updates=updates)})


@pytest.mark.parametrize("seed", range(12))
def test_compiled_plans_mean_what_their_regions_mean(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def poisoned(size: int) -> np.ndarray:
        block = arrays.empty_bytes(size)
        block[:] = 0xFF
        return block

    monkeypatch.setattr(cpu_program, "empty_bytes", poisoned)
    regions = random_program(seed)
    f = compiled(regions)
    monkeypatch.setattr(arena, "place", _apart)
    apart = compiled(regions)
    for size in (1, 17):
        made = np.random.default_rng(seed)
        inputs = {f"in-{i}": made.standard_normal(size).astype(np.float32) for i in regions.main.inputs}
        want = run_regions(regions, inputs)
        for g in (f, apart):
            given = {n: a.copy() for n, a in inputs.items()}
            got = g(given)
            for port in regions.main.signature.outputs:
                np.testing.assert_array_equal(got[port.tensor], want[port.tensor])
                if port.updates is not None:
                    assert got[port.tensor] is given[port.updates]


def _apart(intervals):
    """Every buffer at a place of its own."""
    offsets, end = [], 0
    for i in intervals:
        offsets.append(end)
        end += arena.aligned(i.size)
    return offsets, end
