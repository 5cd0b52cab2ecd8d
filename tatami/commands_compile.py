"""What `tatami compile` writes: the generated code, a main that checks it, decisions, dumps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tatami.compilation import Compilation, decisions_of
from tatami.core.diagnostic import TatamiError, fail
from tatami.decisions import decisions_text
from tatami.dump import make_folder, write_bytes, write_dump, write_text
from tatami.progress import shown
from tatami.request import Request
from tatami.stages import STAGES
from tatami.terminal import printable, show_diagnostics


def compile_command(
    request: Request,
    output: str,
    dump: str,
    embed: bool,
) -> None:
    folder = Path(output)
    with shown(True) as progress:
        compilation = request.prepare(request.sizes, progress)
        names = _stage_names(dump, compilation)
        make_folder(folder)
        values = compilation.values()
    show_diagnostics(compilation.warnings)
    written = write_dump(folder, values, names, compilation.target, embed=embed)
    for file, text in code_files(values).items():
        written.append(write_text(folder / file, text))
    try:
        for file, data in stand_alone(compilation, request.sizes).items():
            written.append(write_bytes(folder / file, data))
    except TatamiError as error:
        if error.diagnostics[0].kind != "MeaningMissing":
            raise
        click.echo(printable(f"no stand-alone main, which would check itself: {error.diagnostics[0].why}"))
    written.append(write_text(folder / "decisions.json", decisions_text(decisions_of(compilation.stages))))
    for path in written:
        click.echo(printable(str(path)))


def stand_alone(compilation: Compilation, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """`main.c` or `main.cu` and its data, for code that needs no Python between kernels."""
    if "c" not in compilation.stages and "cu" not in compilation.stages:
        return {}
    execution = compilation.stages["execution"]
    from tatami.execution.frames import Layouts
    from tatami.runtime.stand_alone import stand_alone_cuda_files, stand_alone_files

    if Layouts(execution).hosted:
        return {}
    if "cu" in compilation.stages:
        return stand_alone_cuda_files(compilation.stages["cu"].main, execution, compilation.reference_run, sizes)
    return stand_alone_files(execution, compilation.reference_run, sizes)


def code_files(values: Mapping[str, Any]) -> dict[str, str]:
    """The generated code as files, of whichever code stage there is."""
    if "c" in values:
        from tatami.c.files import source_files

        return source_files(values["c"].main)
    if "cu" in values:
        from tatami.cu.files import source_files as cuda_files

        return cuda_files(values["cu"].main)
    return {}


def _stage_names(dump: str, compilation: Compilation) -> list[str]:
    available = [s.name for s in STAGES if s.name in compilation.stages]
    if dump == "all":
        return available
    wanted = [n for n in dump.split(",") if n]
    for name in wanted:
        if name not in available:
            raise fail(
                "UnknownName", f"--dump={name}", "this program has no such stage", f"write one of {', '.join(available)}, all"
            )
    return wanted
