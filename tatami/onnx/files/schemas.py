"""ONNX's own description of an operator at the version that a model uses (`onnx.defs`), and those of ONNX Runtime's own
operators in the same form."""

from __future__ import annotations

from collections import defaultdict
from functools import cache, lru_cache

import onnx

from tatami.onnx.microsoft.signatures import signature

DEFAULT = ("", "ai.onnx")
"""The two spellings of ONNX's own domain."""

BEFORE_THE_FIRST: dict[str, tuple[str, ...]] = {"MeanVarianceNormalization": ("across_channels", "normalize_variance")}
"""Attributes of operators that were experimental before the version that ONNX lists as their first."""


@lru_cache(maxsize=4096)
def schema_at(domain: str, op: str, version: int) -> onnx.defs.OpSchema | None:
    """The operator at `version` of its domain: the newest one that is not deprecated, or the first if the operator is newer
    than the model's version. None if ONNX has no operator of that name."""
    every = versions_of(domain, op)
    until = [s for s in every if s.since_version <= version]
    alive = [s for s in until if not s.deprecated]
    return next(iter([*alive[-1:], *until[-1:], *every[:1]]), None)


def versions_of(domain: str, op: str) -> tuple[onnx.defs.OpSchema, ...]:
    """All versions of the operator, oldest first. ONNX Runtime's own operators have one."""
    domain = "" if domain in DEFAULT else domain
    found = _history().get((domain, op), ())
    own = None if found else signature(domain, op)
    return found if own is None else (own,)


@cache
def _history() -> dict[tuple[str, str], tuple[onnx.defs.OpSchema, ...]]:
    found: dict[tuple[str, str], list[onnx.defs.OpSchema]] = defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        found[schema.domain, schema.name].append(schema)
    return {key: tuple(sorted(each, key=lambda s: s.since_version)) for key, each in found.items()}


def opset_of_ir(ir_version: int) -> int:
    """The newest opset of the release that introduced an IR version: the opset of a model that names none. Before IR
    version 3 a model could name none, and had opset 1 (onnx/docs/IR.md)."""
    if ir_version < 3:
        return 1
    rows = [(row[1], row[2]) for row in onnx.helper.VERSION_TABLE]
    return max((opset for ir, opset in rows if ir <= ir_version), default=1)
