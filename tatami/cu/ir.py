"""CUDA text: one unit per kernel, the headers it includes, and a main that runs alone."""

from __future__ import annotations

import msgspec

from tatami.core.custom.verbatim import NO_CODE, VerbatimCode


class Unit(msgspec.Struct, frozen=True):
    """The text of one kernel. `arch` is NVRTC's architecture: sm_80, sm_90a. `symbol` is the entry."""

    symbol: str
    arch: str
    text: VerbatimCode


class Source(msgspec.Struct, frozen=True, omit_defaults=True):
    """The CUDA text of a program. `headers`: file name -> text; a unit includes them by name. `main`: stand-alone host program
    (spec 5 §7.1)."""

    units: tuple[Unit, ...]
    headers: dict[str, VerbatimCode]
    main: VerbatimCode = NO_CODE
    labels: dict[str, str] = {}
    """Symbol -> what a reader calls the work of the kernel: a comment in dumps and files, no part of the compiled text."""
