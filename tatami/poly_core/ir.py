"""Facts about one Region, and dependences between Regions that share a buffer (spec 3 §7)."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from tatami.core.expr import Expr
from tatami.core.renaming import Mark

VALUE = Mark("value")
"""The mark of names of lets and tensors."""
ValueName: TypeAlias = Annotated[str, VALUE]
"""Name of a let or a tensor of the Region."""


class MinBuffer(msgspec.Struct, frozen=True):
    """The least storage a let or an operand needs."""

    name: ValueName
    buffer: Literal["reg", "smem_ring", "gmem"]
    depth: int


class ComputeAt(msgspec.Struct, frozen=True):
    """The possibility (`ok`) of computing let `name` inside its consumers' tile, and the halo per axis and in bytes."""

    name: ValueName
    ok: bool
    halo: dict[str, int]
    halo_bytes: Expr


class BankHint(msgspec.Struct, frozen=True):
    """Degree of shared-memory bank conflict when rows of the operand's tile are read, and the swizzle that removes it."""

    tensor: ValueName
    conflict_ways: int
    swizzle: str


class Contraction(msgspec.Struct, frozen=True, omit_defaults=True):
    """The contraction of a Region: let `acc` is a sum over `k` of a product of `lhs` and `rhs` (by roles of axes)."""

    acc: ValueName
    batch: tuple[str, ...]
    m: tuple[str, ...]
    n: tuple[str, ...]
    k: tuple[str, ...]
    lhs: ValueName
    rhs: ValueName
    """Tensors read by the operands ("" for a computed operand)."""
    epilogue: tuple[ValueName, ...]
    """Lets after acc that can be computed where the accumulator is held."""


class RegionFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """All facts about one Region."""

    region: str
    kind: str
    """Kind in region/views/kinds.py: map, stencil, rows, contraction, streaming_pair, scan, scatter, opaque."""
    parallel_axes: tuple[str, ...]
    reduce_axes: tuple[str, ...]
    tail_axes: tuple[str, ...]
    affine_closed: bool
    compute_at: tuple[ComputeAt, ...]
    min_buffer: tuple[MinBuffer, ...]
    barrier: dict[str, str]
    """Architecture → barrier of its copies: sm80 cp_async_group, sm90 mbarrier, cpu none."""
    bank_hints: tuple[BankHint, ...]
    contractions: tuple[Contraction, ...]
    flops: Expr
    bytes_read: Expr
    bytes_written: Expr


class PairDependence(msgspec.Struct, frozen=True):
    """A dependence between two items of a program through a shared buffer."""

    kind: Literal["true", "anti", "output"]
    source: str
    target: str
    buffer: str


class PolyCore(msgspec.Struct, frozen=True):
    """Facts of all Regions of a program, and dependences between its items."""

    regions: tuple[RegionFacts, ...]
    dependences: tuple[PairDependence, ...]
