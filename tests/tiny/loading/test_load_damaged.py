"""Damaged documents give diagnostics, never anything else."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.module import Module
from tatami.tiny.json_form import decode, encode
from tatami.tiny.load import load
from tatami.tiny.normalize import normalize
from tatami.tiny.verify import verify

SPEC = Path(__file__).parents[3] / "examples" / "spec"
DOCUMENTS = {p.stem: json.loads(p.read_text()) for p in sorted(SPEC.glob("*.json")) if '"uops"' in p.read_text()}
JUNK: list[Any] = [
    None,
    3,
    -1,
    0,
    2.5,
    "",
    "zz",
    "i0 %",
    "M*",
    [],
    [1],
    ["x"],
    {},
    {"a": 1},
    True,
    "n0",
    10**30,
    "INF",
    [[0, 0]],
    {"mul": ["x"]},
]


def damaged(value: Any, rng: random.Random) -> Any:
    """A copy with one place deleted, doubled or replaced by junk."""
    value = copy.deepcopy(value)
    where = value
    while True:
        keys = list(where) if isinstance(where, dict) else list(range(len(where)))
        if not keys:
            return value
        key = rng.choice(keys)
        inner = where[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.8:
            where = inner
            continue
        action = rng.random()
        if action < 0.2:
            del where[key]
        elif action < 0.3 and isinstance(where, list):
            where.insert(key, copy.deepcopy(inner))
        else:
            where[key] = rng.choice(JUNK)
        return value


@pytest.mark.parametrize("name", DOCUMENTS)
def test_damaged_spec_documents(name: str) -> None:
    rng = random.Random(name)
    for _ in range(200):
        document = damaged(DOCUMENTS[name], rng)
        try:
            module = load(document)
            if verify(module, "tiny@imported") == []:
                assert verify(normalize(module)) == []
        except TatamiError as error:
            assert all(d.why and d.suggestion and d.at for d in error.diagnostics)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_damaged_stage_documents(name: str) -> None:
    rng = random.Random(name)
    body = json.loads(json.dumps(encode(normalize(load(DOCUMENTS[name])).main)))
    for _ in range(200):
        try:
            program = decode(damaged(body, rng))
        except TatamiError as error:
            assert all(d.why and d.suggestion and d.at for d in error.diagnostics)
            continue
        verify(Module({"main": program}))
