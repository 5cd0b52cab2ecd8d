"""Objects to a shared library or an archive, by the compiler that makes code for the target's machine."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from tatami.core.diagnostic import fail
from tatami.core.target import PRESETS, Target
from tatami.deploy.library import Library
from tatami.runtime.building.apart import Apart, apart
from tatami.runtime.building.compiler import (
    Compiler,
    compiler_failed,
    find_compiler,
    probe,
    run_command,
    run_compiler,
    time_limit,
)
from tatami.runtime.building.objects import build_objects
from tatami.runtime.building.temporary import build_folder

Libc = Literal["", "gnu", "musl"]
"""The C library that the code is linked for; "": that of the compiler."""
MOST_LINKED = 1 << 30
"""Maximum bytes of constants inside a library: addresses in its code reach 2 GiB."""
_EXPORTS = "{ global: tatami_model_*; local: *; };\n"
_SHARED = ("-shared", "-fPIC", "-s", "-Wl,-z,nodelete", "-Wl,-z,noexecstack", "-Wl,--version-script=exports.map")
"""Flags of a shared library: it stays in the process, since threads that end free memory by its code."""
_CONSTANTS = """\
__asm__(".pushsection .rodata\\n.balign 64\\n.global tatami_linked_constants\\n.hidden tatami_linked_constants\\n"
        "tatami_linked_constants:\\n.incbin \\"constants.bin\\", 64\\n.popsection\\n");
"""
"""C text of the constants inside a library: the file without its header."""


@dataclass(frozen=True)
class Form:
    """The form of a library. `static`: an archive. `linked`: its constants are inside."""

    static: bool = False
    linked: bool = False
    libc: Libc = ""

    @property
    def file(self) -> str:
        """The file name of the library."""
        return "libmodel.a" if self.static else "libmodel.so"


def machine_of(target: Target) -> str:
    """The machine that a CPU target's code is for, as `uname -m` names it."""
    if target.isa == "neon":
        return "aarch64"
    return platform.machine() if target.isa == "generic" else "x86_64"


def compiler_for(target: Target, libc: Libc) -> Compiler:
    """A compiler for the machine of `target`: that of this environment if it makes code for it, else zig. Raises
    CompilerMissing."""
    machine = machine_of(target)
    if not libc:
        found = find_compiler()
        if found.kind != "zig" and _said(found, "-dumpmachine").startswith(machine):
            return found
    if importlib.util.find_spec("ziglang") is None:
        raise fail(
            "CompilerMissing",
            target.name,
            f"the C compiler of this environment makes no code for {machine}{f' with {libc}' if libc else ''}",
            "pip install tatami[zig], or set CC to a compiler for that machine",
        )
    triple = f"{machine}-linux-{libc or 'gnu'}"
    zig = probe((sys.executable, "-m", "ziglang", "cc"))
    return msgspec.structs.replace(zig, argv=(*zig.argv, "-target", triple), fingerprint=f"{zig.fingerprint} {triple}")


def link(library: Library, target: Target, form: Form) -> bytes:
    """The library as a file. Raises CompilerMissing, CompilerFailed, InvalidAttribute."""
    if form.linked and library.constant_bytes > MOST_LINKED:
        why = f"the constants have more than {MOST_LINKED >> 30} GiB, which the addresses of a library do not reach"
        raise fail("InvalidAttribute", "--embed", why, "leave --embed out: constants.bin lies next to the library")
    compiler = compiler_for(target, form.libc)
    plain = msgspec.structs.replace(PRESETS["cpu:generic"], name=target.name)
    objects = build_objects(library.units, target, compiler, library.headers)
    objects += build_objects(library.runtime, plain, compiler, library.headers)

    def made(seen: Apart) -> bytes:
        with build_folder() as folder:
            names = [f"o{k}.o" for k in range(len(objects))]
            for name, body in zip(names, objects, strict=True):
                (folder / name).write_bytes(body)
            if form.linked and library.constants:
                (folder / "constants.bin").write_bytes(b"".join(library.constants))
                (folder / "constants.c").write_text(_CONSTANTS)
                run_compiler(
                    compiler, ("-c", "constants.c", "-o", "constants.o"), cwd=folder, timeout=time_limit(), stop=seen.stop
                )
                names.append("constants.o")
            if form.static:
                _archive(compiler, folder, names)
            else:
                (folder / "exports.map").write_text(_EXPORTS)
                arguments = (*_SHARED, f"-Wl,-soname,{form.file}", "-o", form.file, *names, "-lm", "-pthread")
                run_compiler(compiler, arguments, cwd=folder, timeout=time_limit(), stop=seen.stop)
            return (folder / form.file).read_bytes()

    return apart(made)


def _archive(compiler: Compiler, folder: Path, names: Sequence[str]) -> None:
    if compiler.kind == "zig":
        ar: tuple[str, ...] = (sys.executable, "-m", "ziglang", "ar")
    else:
        found = shutil.which(os.environ.get("AR", "") or "ar")
        if found is None:
            raise fail("CompilerMissing", "ar", "there is no program `ar`, which makes archives", "install binutils, or set AR")
        ar = (found,)
    command = (*ar, "rcs", "libmodel.a", *names)
    environment = {"ZIG_LOCAL_CACHE_DIR": str(folder / "zig"), "ZIG_GLOBAL_CACHE_DIR": str(folder / "zig")}
    done = run_command(command, cwd=folder, timeout=time_limit(), environment=environment)
    if done.returncode != 0:
        raise compiler_failed(command, done, time_limit())


def _said(compiler: Compiler, argument: str) -> str:
    return apart(lambda seen: run_command((*compiler.argv, argument), timeout=60.0, stop=seen.stop)).tail.strip()
