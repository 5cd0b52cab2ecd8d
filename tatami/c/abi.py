"""The agreement between generated C and the runtime that calls it, as one word."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib.resources import files

from tatami.c.print_entry import ENTRY_ARGUMENTS, PROGRAM_ARGUMENTS


@lru_cache(maxsize=1)
def abi() -> str:
    """A hash of the header that kernels include and of the arguments of entries: text made for another version would read its
    arguments wrongly."""
    header = (files("tatami.c") / "runtime_text" / "tatami.h").read_text(encoding="utf-8")
    return hashlib.sha256("\n".join((header, ENTRY_ARGUMENTS, PROGRAM_ARGUMENTS)).encode()).hexdigest()[:16]
