"""Edited C and CUDA, read by their compilers. Nothing of it is linked, loaded or run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tatami.c.ir import Source as CSource
from tatami.compilation import Compilation
from tatami.core.diagnostic import Diagnostic, TatamiError, diagnostic
from tatami.core.target import Target
from tatami.cu.ir import Source as CudaSource
from tatami.explorer.places import Path as DocumentPath
from tatami.runtime.building.compiler import compile_flags, find_compiler, run_command
from tatami.runtime.building.nvrtc import compile_cubin, has_nvrtc
from tatami.runtime.building.objects import runtime_headers
from tatami.runtime.building.temporary import build_folder

LIMIT = 20.0
"""Seconds for one unit: the compiler reads it and makes no code."""
_C_ERROR = re.compile(r"unit\.c:(?P<line>\d+):(?:.|\n)*?error: (?P<message>.*)")
"""The line of a unit, or of its #include, and the first message."""
_CUDA_ERROR = re.compile(r"(?P<file>[\w.]+)\((?P<line>\d+)\)(?::| ).*?error:? (?P<message>.*)")
"""The file, a unit or one that it includes, its line, and a message."""
_REPAIR = "repair the text at that line"

Found = tuple[Diagnostic, DocumentPath]
"""A fault of a unit, and the path of its line in the document."""


def code_faults(edited: Compilation, was: Compilation, name: str) -> tuple[list[Found], tuple[str, ...]]:
    """(the first fault of each unit of C or CUDA that an edit changed, checks that cannot be made here, with the reason). `name`:
    the stage, c or cu. Raises CompilerMissing."""
    if name == "c":
        return list(_c_faults(edited.stages["c"].main, was.stages["c"].main, edited.target)), ()
    if not has_nvrtc():
        return [], ("the text is not compiled: NVRTC is not installed (pip install nvidia-cuda-nvrtc)",)
    return list(_cuda_faults(edited.stages["cu"].main, was.stages["cu"].main)), ()


def _c_faults(now: CSource, was: CSource, target: Target) -> Iterator[Found]:
    compiler = find_compiler()
    only_first = "-fmax-errors=1" if compiler.kind == "gcc" else "-ferror-limit=1"
    texts: dict[str, tuple[str, bool, DocumentPath]]
    texts = {f: (u.text, u.contract, ("units", f, "text")) for f, u in now.units.items() if was.units.get(f) != u}
    if now.entry != was.entry:
        texts["entry.c"] = (now.entry, False, ("entry",))
    with build_folder() as folder:
        for header, text in runtime_headers().items():
            (folder / header).write_text(text, encoding="utf-8")
        for file, (text, contract, path) in texts.items():
            (folder / "unit.c").write_text(text, encoding="utf-8")
            flags = (*compile_flags(compiler, target, contract=contract), only_first, "-fsyntax-only", "unit.c")
            done = run_command((*compiler.argv, *flags), cwd=folder, timeout=LIMIT, environment=_places(folder))
            if done.returncode != 0:
                yield _fault(file, done.tail, _C_ERROR.search(done.tail), ("programs", "main", *path), text)


def _places(folder: Path) -> dict[str, str]:
    """Environment of a compiler whose own files stay in its folder."""
    return {"TMPDIR": str(folder), "ZIG_LOCAL_CACHE_DIR": str(folder / "zig")}


def _cuda_faults(now: CudaSource, was: CudaSource) -> Iterator[Found]:
    given = {u.symbol: u for u in was.units}
    for k, unit in enumerate(now.units):
        if given.get(unit.symbol) == unit and now.headers == was.headers:
            continue
        try:
            compile_cubin(unit.text, unit.arch, now.headers, f"{unit.symbol}.cu")
        except TatamiError as error:
            said = error.diagnostics[0].why
            texts = {f"{unit.symbol}.cu": unit.text}
            texts |= {name: text for name, text in now.headers.items() if was.headers.get(name) != text}
            found = next((m for m in _CUDA_ERROR.finditer(said) if m["file"] in texts), None)
            if found is not None and found["file"] in now.headers:
                yield _fault(found["file"], said, found, ("programs", "main", "headers", found["file"]), texts[found["file"]])
                return  # all units include it
            yield _fault(unit.symbol, said, found, ("programs", "main", "units", k, "text"), unit.text)


def _fault(file: str, said: str, found: re.Match[str] | None, path: DocumentPath, text: str) -> Found:
    if found is None:
        last = (said.strip().splitlines() or ["it did not end in time"])[-1]
        return diagnostic("CompilerFailed", file, f"the compiler said: {last[:300]}", "undo the last edit"), path
    line = int(found["line"])
    where: DocumentPath = (*path, line - 1) if "\n" in text else path  # a text of several lines is a list of them
    return diagnostic("CompilerFailed", f"{file}, line {line}", found["message"][:300], _REPAIR), where
