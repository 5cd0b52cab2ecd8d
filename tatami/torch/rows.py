"""Arguments that are slices of wider rows, read where they lie.

A tensor with one gap in memory, such as the queries among the columns of queries, keys and values, is a slice of an array
without gaps. The program reads that array and slices it, so that no call copies the tensor.

    [4, 4, 128, 64] with strides 98304, 64, 768, 1  ->  [4, 128, 768], columns 0 to 255 of it, as [4, 128, 4, 64], permuted
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch

LEAST_BYTES = 64
"""Minimum number of bytes between two gaps: a cache line. Shorter pieces read in place move more memory than they hold."""


@dataclass(frozen=True)
class Rows:
    """The array around a tensor. `shape`: its size per axis, the last one a whole row; `begin`, `count`: the tensor's elements
    in a row; `order`: the tensor's axes in memory, those of size 1 first; `pieces`: their sizes; `strides`: the tensor's own."""

    shape: tuple[int, ...]
    begin: int
    count: int
    order: tuple[int, ...]
    pieces: tuple[int, ...]
    strides: tuple[int, ...]

    def around(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The array in the tensor's own memory; None if the tensor lies otherwise or its memory does not hold all rows."""
        start = tensor.storage_offset() - self.begin
        room = tensor.untyped_storage().nbytes() // tensor.element_size()
        if start < 0 or start + prod(self.shape) > room or tensor.stride() != self.strides:
            return None
        if tensor.is_neg() or tensor.is_conj():
            return None
        return torch.as_strided(tensor, self.shape, _row_major(self.shape), start)

    def copied(self, tensor: torch.Tensor) -> torch.Tensor:
        """New memory for the array, with the tensor's elements at their places; the program reads no others."""
        made = torch.empty(self.shape, dtype=tensor.dtype, device=tensor.device)
        lies = tensor.permute(self.order).reshape(*self.shape[:-1], self.count)
        made.narrow(-1, self.begin, self.count).copy_(lies)
        return made


def rows_around(tensor: torch.Tensor) -> Rows | None:
    """The array around a tensor with exactly one gap; None for tensors without, with several, with open sizes, or whose memory
    does not hold the array."""
    shape, strides, offset = tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()
    bytes_held = tensor.untyped_storage().nbytes()
    if not all(type(n) is int for n in (*shape, *strides, offset, bytes_held)) or 0 in shape:
        return None
    ones = [a for a, size in enumerate(shape) if size == 1]
    order = sorted((a for a, size in enumerate(shape) if size > 1), key=lambda a: -strides[a])
    outer: list[int] = []
    inner, row, expected = 1, 0, 1
    for axis in reversed(order):  # from the fastest axis on
        if strides[axis] > expected and not row:
            row = strides[axis]
        elif strides[axis] != expected:
            return None
        expected = strides[axis] * shape[axis]
        if row:
            outer.insert(0, shape[axis])
        else:
            inner = expected
    if not row or inner * tensor.element_size() < LEAST_BYTES:
        return None
    begin = offset % row
    whole = (*outer, row)
    if begin + inner > row or (offset - begin + prod(whole)) * tensor.element_size() > bytes_held:
        return None
    axes = (*ones, *order)
    return Rows(whole, begin, inner, axes, tuple(shape[a] for a in axes), strides)


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[k + 1 :]) for k in range(len(shape)))
