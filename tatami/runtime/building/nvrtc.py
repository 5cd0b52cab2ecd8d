"""NVRTC through ctypes: CUDA text -> cubin, with no driver, GPU or toolkit (notes: libraries §2).

The log of ptxas has registers and spills; a C75xx warning means that ptxas dropped something that a template relies on
(setmaxnreg ignored, wgmma serialised), so it is a failure here.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import re
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from tatami.core.diagnostic import fail


class Cubin(msgspec.Struct, frozen=True):
    """Machine code of one unit. `warnings` are the lines of ptxas that name a code C75xx."""

    data: bytes
    log: str
    registers: int
    spill_bytes: int
    warnings: tuple[str, ...]
    can_fault: bool = False
    """True if the kernel reports faults of its data (`tt_fault`)."""


def compile_cubin(text: str, arch: str, headers: Mapping[str, str], name: str = "kernel.cu", more: Sequence[str] = ()) -> Cubin:
    """The machine code of one unit. `arch` is sm_80, sm_90a, …; `headers` are the files that it may include; `more`: further
    options of NVRTC. Raises CompilerFailed with the first lines of the log, MissingPackage without NVRTC."""
    lib = _library()
    program = ctypes.c_void_p()
    names = [n.encode() for n in headers]
    texts = [t.encode() for t in headers.values()]
    array = ctypes.c_char_p * len(names)
    status = lib.nvrtcCreateProgram(
        ctypes.byref(program), text.encode(), name.encode(), len(names), array(*texts), array(*names)
    )
    _check(lib, status, name)
    try:
        options = [f"--gpu-architecture={arch}", "-std=c++17", "--ptxas-options=-v", "-default-device", *more]
        status = lib.nvrtcCompileProgram(
            program, len(options), (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        )
        log = _read(lib, program, "ProgramLog").decode(errors="replace").rstrip("\0")
        if status:
            first = "\n".join(log.strip().splitlines()[:12])
            raise fail("CompilerFailed", name, f"NVRTC for {arch}: {first}", "report the kernel's text; it is generated")
        data = _read(lib, program, "CUBIN")
    finally:
        lib.nvrtcDestroyProgram(ctypes.byref(program))
    return Cubin(data, log, *_resources(log))


def _resources(log: str) -> tuple[int, int, tuple[str, ...]]:
    registers = max((int(n) for n in re.findall(r"Used (\d+) registers", log)), default=0)
    spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill", log))
    warnings = tuple(line.strip() for line in log.splitlines() if re.search(r"\(?C75\d\d\)?", line))
    return registers, spills, warnings


def _read(lib: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(lib, getattr(lib, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), what)
    buffer = ctypes.create_string_buffer(size.value)
    _check(lib, getattr(lib, f"nvrtcGet{what}")(program, buffer), what)
    return buffer.raw


def _check(lib: ctypes.CDLL, status: int, at: str) -> None:
    if status:
        lib.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise fail("CompilerFailed", at, f"NVRTC: {lib.nvrtcGetErrorString(status).decode()}", "check the NVRTC installation")


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    sites = dict.fromkeys([*sys.path, sysconfig.get_paths()["platlib"]])
    found = sorted((p for s in sites if s for p in Path(s).glob("nvidia/*/lib/libnvrtc.so.*")), key=_version, reverse=True)
    system = ctypes.util.find_library("nvrtc")
    for path in [*found, *([Path(system)] if system else [])]:
        try:
            if path in found:  # NVRTC loads its builtins by their name alone, which the system finds next to its own
                for builtins in path.parent.glob("libnvrtc-builtins.so.*"):
                    ctypes.CDLL(str(builtins))
            return ctypes.CDLL(str(path))
        except OSError:
            continue
    raise fail("MissingPackage", "cuda", "NVRTC is not installed", "pip install nvidia-cuda-nvrtc")


def _version(path: Path) -> tuple[int, ...]:
    """The numbers at the end of a library's name, by which the highest is taken: libnvrtc.so.13 before libnvrtc.so.12."""
    return tuple(int(n) for n in path.name.partition(".so.")[2].split(".") if n.isdigit())


def nvrtc_version() -> str:
    """The version that the library reports, for example 13.0. Raises MissingPackage."""
    lib = _library()
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(lib, lib.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "NVRTC")
    return f"{major.value}.{minor.value}"


def has_nvrtc() -> bool:
    """True if the library can be loaded."""
    from tatami.core.diagnostic import TatamiError

    try:
        _library()
    except TatamiError:
        return False
    return True
