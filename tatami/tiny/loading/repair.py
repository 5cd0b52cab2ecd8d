"""Repairs for operands that disagree: a CAST to the widest dtype, an EXPAND along the matching axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from tatami.core.codec import to_builtins
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, Shape, sizes_text
from tatami.tiny.ir import CastOp, ExpandOp, Op


class Typed(Protocol):
    """Any object with a dtype and a shape."""

    @property
    def dtype(self) -> DType:
        """Dtype of the value's elements."""
        ...

    @property
    def shape(self) -> Shape:
        """Sizes of the value's axes."""
        ...


class Repair(NamedTuple):
    """Per operand position, the uop to insert, as JSON and as an op."""

    changes: dict[int, tuple[dict[str, Any], Op]]
    details: Mapping[str, str]

    def suggestion(self, items: Sequence[Any]) -> str:
        """The repair as advice for a diagnostic; `items`: the operands as written."""
        parts = []
        for k, (wrapper, _) in self.changes.items():
            arg = ", ".join(f'"{name}": {value!r}'.replace("'", '"') for name, value in wrapper["arg"].items())
            parts.append(f"insert {wrapper['uop']} with {arg} on operand {k} ({_name(items[k])})")
        return "; ".join(parts)


def dtype_repair(fn: str, values: Sequence[Typed]) -> Repair | None:
    """CAST every narrower operand to the widest dtype (the condition of WHERE stays). None if no cast helps."""
    first = 1 if fn == "where" else 0
    widest = max((v.dtype for v in values[first:]), key=lambda d: (d.is_float, d.itemsize))
    changes: dict[int, tuple[dict[str, Any], Op]] = {}
    for k, v in enumerate(values):
        if k >= first and v.dtype != widest:
            changes[k] = ({"uop": "CAST", "arg": {"to": widest.value}}, CastOp(widest))
    return Repair(changes, {}) if changes else None


def broadcast_repair(fn: str, values: Sequence[Typed]) -> Repair | None:
    """EXPAND the smaller operands along the axes whose sizes match, if there is exactly one way; else None."""
    full = max((v.shape for v in values), key=len)
    changes: dict[int, tuple[dict[str, Any], Op]] = {}
    for k, v in enumerate(values):
        if v.shape == full or _is_right_aligned(v.shape, full):
            continue
        dims = unique_embedding(v.shape, full)
        if dims is None:
            return None
        arg = {"result_shape": list(to_builtins(full)), "broadcast_dimensions": list(dims)}
        changes[k] = ({"uop": "EXPAND", "arg": arg}, ExpandOp(full, dims))
    shapes = {f"shape{k}": sizes_text(v.shape) for k, v in enumerate(values)}
    return Repair(changes, shapes) if changes else None


def unique_embedding(small: Shape, full: Shape) -> tuple[int, ...] | None:
    """The increasing positions in `full` with the sizes of `small`, if there is exactly one choice; else None."""
    found = _embeddings(small, full, 0, 2)
    return found[0] if len(found) == 1 else None


def _embeddings(small: Sequence[Expr], full: Sequence[Expr], start: int, limit: int) -> list[tuple[int, ...]]:
    if not small:
        return [()]
    out: list[tuple[int, ...]] = []
    for k in range(start, len(full) - len(small) + 1):
        if small[0] in (ONE, full[k]):
            out += [(k, *rest) for rest in _embeddings(small[1:], full, k + 1, limit)]
        if len(out) >= limit:
            break
    return out


def _is_right_aligned(small: Shape, full: Shape) -> bool:
    return all(s in (ONE, f) for s, f in zip(reversed(small), reversed(full)))


def _name(item: Any) -> str:
    return item if isinstance(item, str) else "the nested expression" if isinstance(item, dict) else str(item)


REPAIRS = {"DTypeMismatch": dtype_repair, "BroadcastMismatch": broadcast_repair}
"""Kind of diagnostic → its repair."""
