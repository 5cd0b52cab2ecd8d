"""The record of one model: sizes, errors, times, memory; and the verdict that follows from them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

LIMIT = 3.0
"""Errors of ONNX Runtime itself that a right result may be off by: the bound that `tests/models` has for PyTorch."""
LEAST_ERROR = 1e-5
"""Relative error of float32 results that counts as none, where ONNX Runtime's own is smaller: sums of some thousand products in
another order."""


FAR = 1e300
"""Error of a result that cannot be compared, of another shape or dtype: JSON has no infinity."""


class Size(msgspec.Struct, frozen=True):
    """One run. `error`: Frobenius norm of the difference from ONNX Runtime without optimisations, at most FAR; `own`: that of
    ONNX Runtime itself (`contestants.own_error`)."""

    sizes: Mapping[str, int]
    error: float = FAR
    own: float = 0.0
    first_call: float = 0.0
    """Seconds of the first call at these sizes."""
    seconds: float = 0.0
    theirs: float = 0.0
    refused: str = ""
    """The diagnostic, where the call was refused."""

    def __post_init__(self) -> None:
        if self.error > FAR:
            msgspec.structs.force_setattr(self, "error", FAR)

    @property
    def ratio(self) -> float:
        """Seconds of ONNX Runtime's default session over ours."""
        return self.theirs / self.seconds if self.seconds else 0.0


class Row(msgspec.Struct):
    """One model of a table."""

    name: str
    kind: str
    origin: str
    """Package and version, or the tool that wrote the file."""
    opset: int = 0
    nodes: int = 0
    refused: str = ""
    """The diagnostic of the compilation, or how its process ended."""
    crashed: bool = False
    sizes: list[Size] = []
    cold: float = 0.0
    """Seconds of `tt.compile` with an empty cache."""
    cached: float = 0.0
    """Seconds of `tt.compile` in a fresh process that finds the program in the cache."""
    resident: int = 0
    """Bytes that loading from the cache and the first call add to the resident memory of a process."""
    resident_theirs: int = 0
    compilations: int = 0
    """Compilations beyond the first that calls at other sizes needed."""
    load: float = 0.0
    """Load average per core of the minutes before the measurement; 0 where it was not noted."""

    @property
    def verdict(self) -> str:
        if self.crashed:
            return "crashed"
        if self.refused or any(s.refused for s in self.sizes):
            return "refused"
        return "right" if all(s.error <= max(LIMIT * self.own, LEAST_ERROR) for s in self.sizes) else "wrong"

    @property
    def own(self) -> float:
        """ONNX Runtime's own error on this model: the greatest of its sizes, since a few runs sample it."""
        return max((s.own for s in self.sizes if not s.refused), default=0.0)

    @property
    def ratio(self) -> float:
        """Geometric mean over the sizes."""
        known = [s.ratio for s in self.sizes if s.ratio > 0]
        return math.exp(sum(map(math.log, known)) / len(known)) if known else 0.0

    @property
    def memory_ratio(self) -> float:
        return self.resident / self.resident_theirs if self.resident_theirs else 0.0


class Record(msgspec.Struct):
    machine: dict[str, str]
    rows: list[Row]
