"""One file for a report of a fault: versions, target, stages, diagnostics, playback; without the weights.

about.json         versions, machine, compiler, settings
diagnostics.json   all that the compilation said
traceback.txt      if the compiler itself failed
explain.txt        the report of the compilation
playback.json      per stage, whether its results agree, on generated inputs
N_<stage>.json     documents of the stages, constants by hash and shape; N_<stage>.txt: the same for people"""

from __future__ import annotations

import io
import os
import platform
import sys
import traceback
import zipfile
from collections.abc import Callable, Mapping
from importlib import metadata

import tatami
from tatami.compilation import Compilation
from tatami.core.codec import dump_text, to_builtins
from tatami.core.diagnostic import Diagnostic, TatamiError
from tatami.core.document import document_text
from tatami.core.faults.internal_fault import internal_fault
from tatami.report.explain import explain
from tatami.report.playback import Playback
from tatami.runtime.building.compiler import find_compiler
from tatami.stages import STAGES, show
from tatami.storage.dump import to_document

PACKAGES = ("numpy", "msgspec", "islpy", "ml_dtypes", "onnx", "torch", "onnxruntime", "ziglang")
"""Packages whose versions matter."""
_DATE = (1980, 1, 1, 0, 0, 0)


class Packed:
    """The contents of a report, gathered step by step; a step that fails is a part of it."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.diagnostics: list[Diagnostic] = []

    def step(self, work: Callable[[], None]) -> bool:
        """True if the work ended; else its fault is kept."""
        try:
            work()
            return True
        except TatamiError as error:
            self.diagnostics += error.diagnostics
        except Exception as error:
            self.diagnostics.append(internal_fault("report", error))
            self.files["traceback.txt"] = traceback.format_exc()
        return False

    def zipped(self) -> bytes:
        """The report as the bytes of an archive."""
        self.files["diagnostics.json"] = dump_text(to_builtins(self.diagnostics))
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in sorted(self.files.items()):
                entry = zipfile.ZipInfo(name, _DATE)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, text)
        return buffer.getvalue()


def packed(prepared: Callable[[], Compilation], played: Callable[[Compilation], tuple[Mapping[str, int], Playback]]) -> Packed:
    """The report of a compilation that `prepared` makes. `played`: sizes, and the stages played back at them."""
    out = Packed()
    out.step(lambda: out.files.update({"about.json": dump_text(about())}))
    made: list[Compilation] = []
    if not out.step(lambda: made.append(prepared())):
        return out
    (compilation,) = made
    out.files["target.json"] = dump_text(to_builtins(compilation.target))
    out.step(lambda: _stages(compilation, out))
    out.step(lambda: out.files.update({"explain.txt": explain(compilation)}))
    out.step(lambda: _playback(*played(compilation), out))
    out.diagnostics = [*compilation.warnings, *out.diagnostics]
    return out


def about() -> dict[str, object]:
    """Versions and settings, without names of files or of a user."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    try:
        compiler = find_compiler().version
    except TatamiError as error:
        compiler = error.diagnostics[0].why
    settings = ("TATAMI_NUM_THREADS", "TATAMI_CALIBRATE", "TATAMI_PROGRAM_CACHE", "TATAMI_QUICK_BUILD", "TATAMI_SANITIZE")
    return {
        "tatami": tatami.__version__,
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "libc": " ".join(platform.libc_ver()),
        "compiler": compiler,
        "packages": versions,
        "settings": {n: os.environ[n][:100] for n in settings if n in os.environ},
    }


def _stages(compilation: Compilation, out: Packed) -> None:
    """Every stage as a document and as text; the first that fails ends them, those before it are kept."""
    order = [s.name for s in STAGES]
    for position, s in enumerate(STAGES):
        if position < order.index(compilation.first) or s.name not in compilation.stages:
            continue
        value = compilation.stages[s.name]
        stem = f"{position}_{s.file_stem}"
        out.files[f"{stem}.json"] = document_text(to_document(s.name, value, compilation.target, embed=False))
        text = show(s.name, value)
        if text:
            out.files[f"{stem}.txt"] = text


def _playback(sizes: Mapping[str, int], result: Playback, out: Packed) -> None:
    rows = [
        {
            "stage": r.stage,
            "agrees": r.ok,
            "outputs": {a.output: {"error": float(a.error), "differs": a.difference is not None} for a in r.agreements},
        }
        for r in result.results
    ]
    out.files["playback.json"] = dump_text({"sizes": dict(sizes), "stages": rows})
