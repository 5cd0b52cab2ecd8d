"""The files of a generated CUDA program, as they are written to a folder and built by hand."""

from __future__ import annotations

from tatami.cu.ir import Source
from tatami.execution.views.kernel_labels import comment


def source_files(source: Source) -> dict[str, str]:
    """File name -> text: one file per kernel, the headers that they include, and `main.cu` if there is one."""
    out: dict[str, str] = {f"{u.symbol}.cu": comment(source.labels.get(u.symbol, "")) + u.text for u in source.units}
    out |= source.headers
    if source.main:
        out["main.cu"] = source.main
    return out
