"""A row of the table of operations: name, attributes, operands and type rule; and the rules many operations share.

Shapes are strict (D2.1): operands of an elementwise operation have one shape, only rank 0 spreads. Dtypes are never
cast (D2.17): two known, different dtypes are an error; `unknown` yields to the other operand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias, get_args, get_type_hints

import msgspec

from tatami.core.codec import from_builtins, to_builtins
from tatami.core.custom.verbatim import VerbatimCode
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, Shape, shape_text
from tatami.frontend.ir import Graph, Node, TensorType

Operands: TypeAlias = Sequence[TensorType | None]


@dataclass(frozen=True)
class Site:
    """The place where a type rule runs: the node's name, and the graphs and constants that a call may refer to."""

    at: str
    graphs: Mapping[str, Graph] = field(default_factory=dict)
    constants: Collection[str] = ()


class Operation(msgspec.Struct, frozen=True):
    """One row of the table. `most` is -1 when any number of operands is allowed; operands from `least` on are optional.

    `infer(attrs, operands, site)` gives the result types or raises TatamiError naming `site.at`.
    """

    name: str
    attrs: type
    least: int
    most: int
    infer: Callable[[Any, Operands, Site], tuple[TensorType, ...]]
    doc: str
    is_contraction: bool = False


class NoAttrs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The attributes of an operation without attributes."""


_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_']*\Z")
_TAKEN = re.compile(r"([ir]\d+|min|max|floor)\Z")


def is_legal_symbol(name: str) -> bool:
    """True if `name` can be a size symbol: letters, digits, _ and ', and neither an axis (i0, r1) nor a function of index
    expressions."""
    return bool(_SYMBOL.match(name)) and not _TAKEN.match(name)


def attributes(operation: Operation, node: Node, at: str = "") -> Any:
    """The node's attributes as the operation's struct. Raises E1009 at `at`, or at the node's name if that is empty."""
    try:
        return from_builtins(node.attrs, operation.attrs, node.name)
    except TatamiError as error:
        if error.diagnostics[0].kind == "Untrusted":
            raise
        names = ", ".join(f.name for f in msgspec.structs.fields(operation.attrs)) or "none"
        raise fail(
            "InvalidAttribute", at or node.name, error.diagnostics[0].why, f"the attributes of {operation.name} are: {names}"
        ) from None


def attribute_values(attrs: msgspec.Struct) -> dict[str, Any]:
    """The attributes in the form of a node: JSON values, without absent ones; code stays VerbatimCode."""
    plain = {k: v for k, v in to_builtins(attrs).items() if v is not None}
    return plain | {k: code for k in plain if isinstance(code := getattr(attrs, k), VerbatimCode)}


@lru_cache(maxsize=256)
def code_fields(attrs: type) -> frozenset[str]:
    """Names of the attributes of an operation that are code."""
    return frozenset(k for k, kind in get_type_hints(attrs).items() if VerbatimCode in (kind, *get_args(kind)))


def trusted_attributes(operation: Operation, attrs: Mapping[str, object]) -> dict[str, Any]:
    """A node's attributes for a loader that was given trust: texts in fields of code become code."""
    code = code_fields(operation.attrs)
    return {k: VerbatimCode(v) if k in code and isinstance(v, str) else v for k, v in attrs.items()}


def need(operands: Operands) -> list[TensorType]:
    """The operands that are present, in order."""
    return [t for t in operands if t is not None]


def axis_of(axis: int, rank: int, site: Site) -> int:
    """A position from 0 on for an axis that may count from the end. Raises E1008."""
    if not -rank <= axis < rank:
        raise fail("AxisOutOfRange", site.at, f"axis {axis} of a tensor of rank {rank}", f"give an axis in 0..{rank - 1}")
    return axis % rank


def axes_of(axes: Sequence[int] | None, rank: int, site: Site) -> tuple[int, ...]:
    """Sorted positions from 0 on; None means every axis. Raises E1008."""
    if axes is None:
        return tuple(range(rank))
    out = sorted(axis_of(a, rank, site) for a in axes)
    if len(set(out)) != len(out):
        raise fail("AxisOutOfRange", site.at, f"axes {list(axes)} name one axis twice", "name each axis once")
    return tuple(out)


def same_dtype(types: Sequence[TensorType], site: Site) -> DType:
    """The common dtype of `types`; unknown yields to the others. Raises E1006."""
    known = list(dict.fromkeys(t.dtype for t in types if t.dtype != DType.unknown))
    if len(known) > 1:
        widest = max(known, key=lambda d: (d.is_float, d.itemsize))
        narrow = next(i for i, t in enumerate(types) if t.dtype not in (DType.unknown, widest))
        raise fail(
            "DTypeMismatch",
            site.at,
            f"operands have dtypes {' and '.join(map(str, known))}",
            f"cast operand {narrow}: cast(to={widest})",
        )
    return known[0] if known else DType.unknown


class UnequalSizes(TatamiError):
    """The refusal of two sizes, `lhs` and `rhs`, that have to be equal and are different expressions: an importer may assume
    that they are equal (D2.6)."""

    def __init__(self, lhs: Expr, rhs: Expr, refusal: TatamiError) -> None:
        super().__init__(*refusal.diagnostics)
        self.lhs, self.rhs = lhs, rhs


def same_size(a: Expr, b: Expr, what: str, site: Site) -> None:
    """Raises E1304, as UnequalSizes, unless the sizes are equal."""
    if a != b:
        why, how = f"{what}: {a} and {b} have to be equal", f"use one size, or reshape to make {b} be {a}"
        raise UnequalSizes(a, b, fail("AxisAlignmentMismatch", site.at, why, how))


def want_shape(have: Shape, wanted: Shape, why: str, suggestion: str, site: Site, kind: str = "BroadcastMismatch") -> None:
    """Raise `kind` unless the shapes are equal; if the ranks agree, as UnequalSizes of the first axis that differs."""
    if have == wanted:
        return
    refusal = fail(kind, site.at, why, suggestion)
    if len(have) != len(wanted):
        raise refusal
    raise next(UnequalSizes(a, b, refusal) for a, b in zip(have, wanted, strict=True) if a != b)


def want_broadcast(have: Shape, wanted: Shape, why: str, suggestion: str, site: Site) -> None:
    """Raise E1001 unless `have` broadcasts to `wanted` from the right; as UnequalSizes of the first axis that does not."""
    if len(have) > len(wanted):
        raise fail("BroadcastMismatch", site.at, why, suggestion)
    aligned = wanted[len(wanted) - len(have) :]
    want_shape(tuple(b if a == ONE else a for a, b in zip(have, aligned, strict=True)), aligned, why, suggestion, site)


def joined(types: Sequence[TensorType], site: Site) -> Shape:
    """The common shape of elementwise operands; rank 0 meets any. Raises E1001 with the expand to write, or E1304."""
    best: Shape = ()
    for t in types:
        if not t.shape or t.shape == best:
            continue
        if best:
            raise shape_mismatch(best, t.shape, site)
        best = t.shape
    return best


def shape_mismatch(a: Shape, b: Shape, site: Site) -> TatamiError:
    """E1304 for two bare symbols on one axis, else E1001 whose suggestion is the op to insert."""
    if len(a) == len(b):
        differ = [(x, y) for x, y in zip(a, b, strict=True) if x != y]
        if all(x.as_name() and y.as_name() for x, y in differ):
            x, y = differ[0]
            return fail(
                "AxisAlignmentMismatch",
                site.at,
                f"operands of shapes {shape_text(a)} and {shape_text(b)} need {x} = {y}",
                f"use one size symbol for {x} and {y}",
            )
    to = right_aligned([a, b])
    if to is None:
        wide, narrow = (a, b) if len(a) >= len(b) else (b, a)
        place = _placement(narrow, wide)
        how = (
            f"insert expand(shape={shape_text(wide)}, dims={place}) on the operand of shape {shape_text(narrow)}"
            if place is not None
            else "give the operands one shape (reshape, permute or expand one of them)"
        )
    else:
        how = "; ".join(
            f"insert expand(shape={shape_text(to)}) on the operand of shape {shape_text(s)}" for s in (a, b) if s != to
        )
    return fail(
        "BroadcastMismatch", site.at, f"operands have shapes {shape_text(a)} and {shape_text(b)}; only rank 0 spreads", how
    )


def _placement(narrow: Shape, wide: Shape) -> list[int] | None:
    """Increasing positions of `wide` that hold the sizes of `narrow`, where a size of 1 takes any; None if there are none."""
    out: list[int] = []
    at = 0
    for size in narrow:
        while at < len(wide) and wide[at] != size and size != ONE:
            at += 1
        if at == len(wide):
            return None
        out.append(at)
        at += 1
    return out


def simplicity(size: Expr) -> tuple[bool, int, str]:
    """A sort key that puts numbers first, then short expressions: the first of two equal sizes is kept."""
    return size.as_int() is None, len(str(size)), str(size)


def right_aligned(shapes: Sequence[Shape], *, assume: bool = False) -> Shape | None:
    """The right-aligned broadcast of `shapes`, or None.

    assume: sizes that could be equal are assumed to be, ``[N] with [min(512, N)]`` gives ``[N]``; the caller reshapes the
    operands that differ, which records the equation to be checked when sizes are bound. None if two numbers differ."""
    rank = max(map(len, shapes), default=0)
    out = [ONE] * rank
    for s in shapes:
        for j, size in enumerate(s, rank - len(s)):
            if size == ONE or size == out[j]:
                continue
            if out[j] != ONE and (not assume or None not in (size.as_int(), out[j].as_int())):
                return None
            out[j] = size if out[j] == ONE else min(out[j], size, key=simplicity)
    return tuple(out)


def broadcast(shapes: Sequence[Shape], what: str, site: Site) -> Shape:
    """The right-aligned broadcast, for operations whose definition has one (batches of matmul, masks). Raises E1001."""
    rank = max(map(len, shapes), default=0)
    out: list[Expr] = [ONE] * rank
    for shape in shapes:
        for j, size in enumerate(shape, rank - len(shape)):
            if out[j] == ONE:
                out[j] = size
            elif size not in (ONE, out[j]):
                why = f"{what}: shapes {' and '.join(map(shape_text, shapes))} do not broadcast"
                how = "expand the smaller operand to the larger one's sizes"
                raise UnequalSizes(out[j], size, fail("BroadcastMismatch", site.at, why, how))
    return tuple(out)


def want(condition: bool, why: str, suggestion: str, site: Site, kind: str = "InvalidAttribute") -> None:
    """Raise `kind` unless the condition holds."""
    if not condition:
        raise fail(kind, site.at, why, suggestion)


def want_float(t: TensorType, op: str, site: Site) -> None:
    """Raise E1007 unless `t` has a float dtype or an unknown one."""
    want(
        t.dtype.is_float or t.dtype == DType.unknown,
        f"{op} of {t.dtype}",
        "cast the operand to a float dtype",
        site,
        "UnsupportedDType",
    )


def want_rank(t: TensorType, ranks: Collection[int], op: str, site: Site) -> None:
    """Raise E1001 unless the rank of `t` is one of `ranks`."""
    want(
        len(t.shape) in ranks,
        f"{op} of an operand of shape {shape_text(t.shape)}",
        f"give an operand of rank {' or '.join(map(str, sorted(ranks)))}",
        site,
        "BroadcastMismatch",
    )


def accumulation(dtype: DType, acc: DType | None = None) -> DType:
    """The dtype a contraction or reduce of `dtype` accumulates in: fp32 for 16-bit floats."""
    return acc or (DType.fp32 if dtype.is_narrow_float else dtype)
