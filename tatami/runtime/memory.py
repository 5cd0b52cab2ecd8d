"""The record of the memory that a program takes."""

from __future__ import annotations

from typing import TypedDict


class BufferUse(TypedDict):
    """One buffer of the arena: its place in bytes, and the first and last instruction that uses it."""

    id: str
    first_use: int
    last_use: int
    bytes: int
    offset: int


class Memory(TypedDict, total=False):
    """Bytes by purpose, at the sizes of one call; a program leaves out what it does not have."""

    constants: int
    arena: int
    arena_without_reuse: int
    """Bytes of the arena's buffers if none shared a place with another."""
    buffers: list[BufferUse]
    copies: dict[str, int]
    """Input or output name -> how often it had to be copied so far."""
    specialisations: int
    """Number of programs for sizes or values of their own."""
    specialisation_seconds: float
