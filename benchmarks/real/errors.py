"""How far results of a model are from reference results, with numbers, strings, sequences and maps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def distance(result: Any, reference: Any) -> float:
    """The largest of: Frobenius norm of the difference over that of the reference, for floats; share of elements that differ,
    for everything else. Infinite for another shape, dtype or kind of value."""
    if isinstance(reference, Mapping):
        if not isinstance(result, Mapping) or list(result) != list(reference):
            return math.inf
        return distance(list(result.values()), list(reference.values()))
    if isinstance(reference, Sequence) and not isinstance(reference, str | bytes):
        if not isinstance(result, Sequence) or len(result) != len(reference):
            return math.inf
        if all(isinstance(r, float) for r in reference):
            return distance(np.asarray(result), np.asarray(reference))
        return max((distance(a, b) for a, b in zip(result, reference, strict=True)), default=0.0)
    ours, theirs = np.asarray(result), np.asarray(reference)
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return math.inf
    if theirs.size == 0:
        return 0.0
    if theirs.dtype.kind != "f":
        return float(np.mean(ours != theirs))
    return _of_floats(ours.astype(np.float64), theirs.astype(np.float64))


def _of_floats(ours: np.ndarray, theirs: np.ndarray) -> float:
    special = ~np.isfinite(theirs)
    if not np.array_equal(ours[special], theirs[special], equal_nan=True):
        return math.inf
    difference = np.linalg.norm(ours[~special] - theirs[~special])
    size = np.linalg.norm(theirs[~special])
    if math.isnan(difference):
        return math.inf
    return float(difference / size) if size else (0.0 if difference == 0 else math.inf)
