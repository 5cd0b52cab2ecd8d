"""Generated C: the translation units of one Program and its entry (design §3 c)."""

from __future__ import annotations

import msgspec

from tatami.core.custom.verbatim import VerbatimCode


class Unit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file, compiled alone. `contract`: multiply-adds may be fused (-ffp-contract=fast), else it is off."""

    text: VerbatimCode
    contract: bool = False
    light: bool = False
    """True if its work is done by the routines that it calls, or it makes constants once: it is compiled with less
    optimisation."""
    user: bool = False
    """True if it has text that a user wrote: compiled with warnings that C programmers want as errors."""


class Source(msgspec.Struct, frozen=True):
    """The C text of a program. `units`: file name -> unit; the same key always has the same text, so objects are cached by
    content. `entry`: text of the entry file."""

    units: dict[str, Unit]
    entry: VerbatimCode
    abi: str = ""
    """The agreement with the runtime that calls the text (`c/abi.py`)."""
    labels: dict[str, str] = {}
    """File name -> what a reader calls the work of its kernel: a comment in dumps and files, no part of the compiled text."""
