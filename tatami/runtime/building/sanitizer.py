"""The sanitizer build: TATAMI_SANITIZE=1 compiles every unit with AddressSanitizer and UndefinedBehaviorSanitizer.

Their runtime has to be in the process from its start, which is what the diagnostic tells how to do. With
``halt_on_error=0`` a custom kernel that leaves its tensors becomes OutOfBounds; without, the process ends with the report.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from tatami.core.diagnostic import fail
from tatami.runtime.building.apart import apart
from tatami.runtime.building.compiler import Compiler, run_command

FLAGS = ("-Og", "-fsanitize=address,undefined", "-fsanitize-recover=address", "-g", "-DTATAMI_SANITIZE")
"""Flags of every unit and of the link."""
_LIBRARIES = {"gcc": "libasan.so", "clang": "libclang_rt.asan-x86_64.so"}


def is_asked_for() -> bool:
    """True if TATAMI_SANITIZE is set to something else than 0."""
    return os.environ.get("TATAMI_SANITIZE", "0") not in ("", "0")


def sanitizer_flags(compiler: Compiler) -> tuple[str, ...]:
    """Further flags for every unit and the link; none without the sanitizer. Raises SanitizerMissing if the runtime is not in
    this process."""
    if not is_asked_for():
        return ()
    if not hasattr(ctypes.CDLL(None), "__asan_init"):
        library = sanitizer_library(compiler)
        start = f"LD_PRELOAD={library} ASAN_OPTIONS=detect_leaks=0:halt_on_error=0 TATAMI_SANITIZE=1"
        raise fail(
            "SanitizerMissing",
            "TATAMI_SANITIZE",
            "the process was started without the sanitizer's runtime",
            f"start it as: {start} python …",
        )
    return (*FLAGS, "-shared-libasan") if compiler.kind == "clang" else FLAGS


def sanitizer_library(compiler: Compiler) -> str:
    """The file of the compiler's AddressSanitizer runtime. Raises SanitizerMissing if it does not have one."""
    name = _LIBRARIES.get(compiler.kind, "")
    found = _said(compiler, f"-print-file-name={name}") if name else ""
    if not Path(found).is_absolute() or not Path(found).exists():
        raise fail(
            "SanitizerMissing",
            "TATAMI_SANITIZE",
            f"{' '.join(compiler.argv)} brings no sanitizer runtime that a Python process can load",
            "set CC=gcc (with libasan) or CC=clang, or unset TATAMI_SANITIZE",
        )
    return found


def _said(compiler: Compiler, argument: str) -> str:
    return apart(lambda seen: run_command((*compiler.argv, argument), timeout=60.0, stop=seen.stop)).tail.strip()
