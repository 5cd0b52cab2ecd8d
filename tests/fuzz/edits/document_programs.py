"""The documents that are edited, by program and stage, and the arguments of the calls of what is made of them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np

from tatami.api import prepare
from tatami.core.codec import to_builtins
from tatami.core.document import InputRef, content_sha256
from tatami.core.dtype import DType
from tatami.stages import STAGES
from tatami.storage.dump import to_document
from tests.fuzz.programs import PROGRAMS

TARGET = "cpu:avx2"
REFERENCE = "reference"
EDITED = tuple(name for name in PROGRAMS if name != "custom_formula")
"""The programs that seeds draw from. One more would make each seed another edit; those that found faults are named in tests."""
SIZES: dict[str, tuple[int, int]] = {"B": (3, 1), "N": (5, 1), "M": (7, 1), "H": (6, 3), "W": (5, 3), "S": (6, 1), "R": (4, 1)}
"""The values of the symbols in the two calls of each accepted document; others are 4, then 2."""


def bound(symbol: str, call: int) -> int:
    return SIZES.get(symbol, (4, 2))[call]


def array(dtype: DType, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Dyadic floats and small numbers, valid as indices of the programs here."""
    from tatami.core.tensor import numpy_dtype

    rng = np.random.default_rng(seed)
    if dtype == DType.bool:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_float:
        return (rng.integers(-16, 17, shape) / 8).astype(numpy_dtype(dtype))
    return rng.integers(0, 3, shape).astype(numpy_dtype(dtype))


def documents(name: str) -> dict[str, dict[str, Any]]:
    """Stage → the whole document, earlier stages that it needs embedded; `reference` is the plan of the unfused graph."""
    out: dict[str, dict[str, Any]] = {}
    first = prepare(PROGRAMS[name](), target=TARGET)
    refs: dict[str, InputRef] = {}
    values = first.values()
    for s in STAGES:
        if s.name not in values or s.code:
            continue
        document = to_document(s.name, values[s.name], first.target, inputs={n: refs[n] for n in s.needs if n in refs})
        plain = msgspec.to_builtins(to_builtins(document))
        refs[s.name] = InputRef(sha256=content_sha256(document), document=plain)
        out[s.name] = plain
    unfused = prepare(PROGRAMS[name](), target=REFERENCE)
    if "execution" in unfused.stages:
        out[REFERENCE] = msgspec.to_builtins(to_builtins(to_document("execution", unfused.stages["execution"], unfused.target)))
    return {stage: json.loads(json.dumps(document)) for stage, document in out.items()}
