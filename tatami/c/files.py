"""The files of a generated C program, as they are written to a folder and built by hand."""

from __future__ import annotations

from importlib.resources import files

from tatami.c.ir import Source
from tatami.execution.views.kernel_labels import comment


def source_files(source: Source) -> dict[str, str]:
    """File name -> text: the kernels, the entry, and the headers and runtime that they include."""
    out: dict[str, str] = {name: comment(source.labels.get(name, "")) + unit.text for name, unit in source.units.items()}
    out["entry.c"] = source.entry
    for item in sorted((files("tatami.c") / "runtime_text").iterdir(), key=lambda p: p.name):
        if item.name.endswith((".h", ".c")):
            out[item.name] = item.read_text()
    return out
