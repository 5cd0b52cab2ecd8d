"""`.tatami`: a compiled program in one file, which loads without the model and, if it is trusted, without a C compiler.

    manifest        version, target, decisions, sizes, and the machine and version that the machine code is for
    <stage>.json    the documents the program was compiled from (the frontend's, normally), constants by name
    constants/…     their bytes, once each
    program.json    the record of the compiled program (`program_record`)
    program.so      its machine code
    runtime.so      the part of its process that it uses: the thread pool, if there is none yet

Documents are data: they are checked like any other and compiled again, by way of the caches. Machine code runs only
with `trust=True`, on a machine it was made for, by the version of Tatami that made it; else the documents are used.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec

from tatami.compilation import Compilation, StoredProgram
from tatami.core.codec import encode_record, from_builtins, parse_text, to_builtins
from tatami.core.diagnostic import fail
from tatami.core.document import MAX_CONSTANT_BYTES, ConstantRef, constant_of, file_constant, parse_document, read_bytes
from tatami.core.faults.target_check import check_target
from tatami.core.files.container import Container, contained
from tatami.core.files.own_files import package_digest
from tatami.core.module import Module
from tatami.core.target import Target
from tatami.core.tensor import Tensor
from tatami.decisions import Decisions
from tatami.runtime.cpu.pool import runtime_body
from tatami.stages import BY_NAME, STAGES
from tatami.storage.dump import own_stage, to_document, write_pieces
from tatami.storage.program_record import execution_of, program_record, read_record

SUFFIX = ".tatami"
"""Suffix of files with a saved program."""


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The description of a file. `code`: the machine and the version of Tatami that `program.so` is for; empty if there is
    none."""

    target: Target
    stages: tuple[str, ...]
    decisions: Decisions
    hints: dict[str, int]
    sizes: dict[str, int]
    code: str = ""


@dataclass(frozen=True)
class Saved:
    """A file in memory: its stages, and its machine code if that may run here."""

    manifest: Manifest
    given: dict[str, Module[object]]
    program: StoredProgram | None


def save(path: Path, compilation: Compilation, sizes: Mapping[str, int]) -> Path:
    """Write `path`, whole or not at all, and return it. Raises FileUnwritable."""
    check_path(path)
    program = compilation.program
    blocks: dict[str, bytes | memoryview] = {}
    given = compilation.stages.given
    for name, module in given.items():
        document = to_document(name, module, compilation.target, embed=False)
        blocks[f"{BY_NAME[name].file_stem}.json"] = encode_record(to_builtins(document))
        for tensor in module.constants.values():
            blocks[file_constant(tensor).file] = tensor.data
    code = ""
    if program is not None:
        text = program_record(program, [t for m in given.values() for t in m.constants.values()])
        if text is not None:
            code = code_stamp()
            blocks |= {"program.json": text, "program.so": program.library, "runtime.so": program.runtime or runtime_body()}
    manifest = Manifest(compilation.target, tuple(given), compilation.decisions, dict(compilation.hints), dict(sizes), code)
    return write_pieces(path, contained(to_builtins(manifest), blocks))


def check_path(path: Path) -> None:
    """Raise FileUnwritable for a name under which no program can be saved."""
    if path.suffix.lower() != SUFFIX:
        raise fail("FileUnwritable", str(path)[:200], "the suffix tells what the file is", f"name it {path.stem}{SUFFIX}")
    if path.is_dir():
        raise fail("FileUnwritable", str(path)[:200], "a folder is in its place", "name a file, or remove the folder")


def open_saved(path: Path, *, trust: bool = False) -> Saved:
    """The content of a file, which `save` or anybody else wrote. Raises TatamiError."""
    container = Container(read_bytes(path, MAX_CONSTANT_BYTES), path.name)
    manifest = from_builtins(container.manifest, Manifest, path.name)
    check_target(manifest.target)
    tensors: dict[str, Tensor] = {}

    def read(name: str, ref: ConstantRef) -> Tensor:
        if ref.file not in tensors:
            tensors[ref.file] = constant_of(name, ref, container[ref.file])
        found = tensors[ref.file]
        if (found.dtype, found.shape, found.sha256) != (ref.dtype, ref.shape, ref.sha256):
            raise fail("InvalidDocument", path.name, f"the constant {name[:80]} is another than its block", "save it again")
        return found

    given: dict[str, Module[object]] = {}
    for s in STAGES:
        if s.name in manifest.stages:
            at = f"{path.name}:{s.file_stem}.json"
            document = parse_document(parse_text(bytes(container[f"{s.file_stem}.json"]), at), at)
            if document.stage != s.name:
                raise fail("InvalidDocument", at, f"it is a document of the stage {document.stage[:40]}", "save it again")
            given[s.name] = own_stage(document, None, at, read, trust=trust)
    if not given:
        raise fail("InvalidDocument", path.name, "it holds no document of any stage", "save the program again")
    if not trust or manifest.code != code_stamp():
        return Saved(manifest, given, None)
    by_content = {t.sha256: t for m in given.values() for t in m.constants.values()}
    try:
        record = read_record(bytes(container["program.json"]))
    except ValueError:
        raise fail("InvalidDocument", path.name, "program.json is not a record of a program", "save it again") from None
    execution = execution_of(record, by_content)
    if execution is None:
        raise fail("InvalidDocument", path.name, "the program reads constants that are not there", "save it again")
    library, runtime = bytes(container["program.so"]), bytes(container["runtime.so"])
    return Saved(manifest, given, StoredProgram(execution, library, record.library, record.warnings, runtime))


@lru_cache(maxsize=1)
def code_stamp() -> str:
    """The stamp that machine code has to agree with, in addition to the instructions of its target: the system, and the files
    of Tatami that call it and that it was written against."""
    seed = (platform.machine(), sys.platform, platform.libc_ver()[0], package_digest(("core", "execution", "c", "runtime")))
    return hashlib.sha256(repr(seed).encode()).hexdigest()
