"""CUDA text: one unit per kernel, the headers it includes, and a main that runs alone."""

from __future__ import annotations

import msgspec

from tatami.core.custom.verbatim import NO_CODE, VerbatimCode


class Unit(msgspec.Struct, frozen=True, omit_defaults=True):
    """The text of one kernel. `arch` is NVRTC's architecture: sm_80, sm_90a. `symbol` is the entry."""

    symbol: str
    arch: str
    text: VerbatimCode
    contracts: bool = True
    """True if the compiler may join a multiplication and an addition into one that rounds once. Kernels without matrix
    instructions write such joins themselves (`tt_fma`), so that their results are the emulated GPU's to the bit."""


class Source(msgspec.Struct, frozen=True, omit_defaults=True):
    """The CUDA text of a program. `headers`: file name -> text; a unit includes them by name. `main`: stand-alone host program
    (spec 5 §7.1)."""

    units: tuple[Unit, ...]
    headers: dict[str, VerbatimCode]
    main: VerbatimCode = NO_CODE
    labels: dict[str, str] = {}
    """Symbol -> what a reader calls the work of the kernel: a comment in dumps and files, no part of the compiled text."""
