"""The cache of compiled programs, by their inputs: a second `tt.compile` of a model goes straight to loading.

The key is the content of the given stages with their constants, the target, the decisions, the usual sizes, the C
compiler with its flags, and Tatami's own files. The entry is a record (`program_record`) that names the shared object's entry.
An entry that is missing, damaged or does not fit is a miss: the chain runs as if there were no cache. The stages of a
program that was found are made when they are looked up. TATAMI_PROGRAM_CACHE=0 turns it off.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache

from tatami.compilation import Compilation, StoredProgram
from tatami.core.codec import encode_record
from tatami.core.files.own_files import package_digest, package_version
from tatami.core.module import Module
from tatami.core.tensor import Tensor
from tatami.runtime.building.cache import content_key, default_cache
from tatami.runtime.building.compiler import compile_flags, find_compiler
from tatami.runtime.building.once_per_host import one_maker
from tatami.runtime.building.sanitizer import sanitizer_flags
from tatami.stages import encode_body, stage
from tatami.storage.program_record import execution_of, program_record, read_record

_RESULTS_DEPEND_ON = ("islpy", "numpy", "onnx")


def find(compilation: Compilation) -> StoredProgram | None:
    """The program of an earlier compilation with the same inputs; None for a miss."""
    if not is_on():
        return None
    cache = default_cache()
    text = cache.get(program_key(compilation))
    if text is None:
        return None
    try:
        record = read_record(text)
    except ValueError:  # another form than this version writes
        return None
    execution = execution_of(record, constants_of(compilation))
    library = cache.get(record.library)
    if execution is None or library is None:
        return None
    return StoredProgram(execution, library, record.library, record.warnings)


def keep(compilation: Compilation, program: StoredProgram) -> None:
    """Add the program to the cache."""
    if not is_on():
        return
    text = program_record(program, constants_of(compilation).values())
    if text is not None:
        default_cache().put(program_key(compilation), text)


def one_maker_of(compilation: Compilation) -> AbstractContextManager[None]:
    """A block in which no other process compiles this program; without a cache they compile at once."""
    return one_maker(default_cache().root, program_key(compilation)) if is_on() else nullcontext()


def is_on() -> bool:
    """True if programs are cached: TATAMI_PROGRAM_CACHE is not 0."""
    return os.environ.get("TATAMI_PROGRAM_CACHE", "1") not in ("", "0")


def constants_of(compilation: Compilation) -> dict[str, Tensor]:
    """sha256 -> constant, for the constants of the given stages."""
    return {t.sha256: t for module in compilation.stages.given.values() for t in module.constants.values()}


def program_key(compilation: Compilation) -> str:
    """The key of this compilation's program in the cache."""
    compiler = find_compiler()
    flags = (*compile_flags(compiler, compilation.target), *sanitizer_flags(compiler))
    return content_key(["program", compiler.fingerprint, *flags, *chain_parts(compilation)])


def chain_parts(compilation: Compilation) -> Iterator[str | bytes]:
    """Everything that the stages depend on, in pieces to be hashed."""
    yield from (own_files(), platform.machine(), "settings")
    yield from map(encode_record, (compilation.target, compilation.decisions, compilation.hints))
    yield "given"
    for name, module in compilation.stages.given.items():
        yield name
        yield from _content(name, module)


def _content(name: str, module: Module[object]) -> Iterator[str | bytes]:
    for program, body in module.programs.items():
        yield program
        yield encode_record(encode_body(stage(name), body))
    yield encode_record({n: t.sha256 for n, t in module.constants.items()})


@lru_cache(maxsize=1)
def own_files() -> str:
    """A stamp that changes with the content of Tatami's files, and with the packages whose results enter the code."""
    seed = [platform.python_version(), package_digest(), *map(package_version, _RESULTS_DEPEND_ON)]
    return hashlib.sha256(repr(seed).encode()).hexdigest()
