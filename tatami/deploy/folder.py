"""The folder of `tatami compile --library`: the library, its header, constants, a CMake file, and two examples."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from tatami.compilation import Compilation
from tatami.deploy.library import make_library, public_header
from tatami.deploy.linking import Form, link
from tatami.storage.dump import make_folder, write_pieces


def write_library(compilation: Compilation, folder: Path, form: Form) -> list[Path]:
    """Write the folder; returns its files. Raises TatamiError."""
    library = make_library(compilation, linked=form.linked)
    body = link(library, compilation.target, form)
    make_folder(folder)
    written = [write_pieces(folder / form.file, (body,))]
    if library.constants and not form.linked:
        written.append(write_pieces(folder / "constants.bin", library.constants))
    written += [write_pieces(folder / name, (text.encode(),)) for name, text in _texts(form)]
    return written


def _texts(form: Form) -> Iterator[tuple[str, str]]:
    yield "model.h", public_header()
    for item in sorted((files("tatami.deploy") / "text").iterdir(), key=lambda f: f.name):
        text = item.read_text(encoding="utf-8")
        if item.name == "CMakeLists.txt":
            text = text.replace("@KIND@", "STATIC" if form.static else "SHARED").replace("@FILE@", form.file)
        yield item.name, text
