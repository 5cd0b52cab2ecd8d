"""`tatami report`: one file to attach to a report of a fault."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from tatami.bench.inputs import gather_inputs
from tatami.build import build
from tatami.cli.request import Request
from tatami.cli.terminal import printable, show_diagnostics
from tatami.compilation import Compilation
from tatami.core.diagnostic import fail
from tatami.progress import shown
from tatami.report.packed import packed
from tatami.report.playback import Playback, play_back
from tatami.storage.dump import write_bytes


def report_command(request: Request, output: Path) -> None:
    """Write the file, also if the model cannot be compiled: its faults are in it then."""
    if output.suffix.lower() != ".zip":
        raise fail("InvalidAttribute", "-o", f"{str(output)[:60]!r} is not the name of a .zip file", "write -o report.zip")
    with shown(True) as progress:
        found = packed(lambda: request.compilation(progress), lambda compilation: played(compilation, request.sizes))
    write_bytes(output, found.zipped())
    show_diagnostics(found.diagnostics)
    click.echo(printable(f"{output}: {len(found.files)} files, no weights; names and shapes of the model are in it"))


def played(compilation: Compilation, sizes: Mapping[str, int]) -> tuple[dict[str, int], Playback]:
    """(all sizes, every stage run on generated inputs of these sizes)."""
    function = build(compilation, sizes=sizes)
    arrays, bound = gather_inputs(function.signature, function.arguments, (), sizes)
    function.sizes.update(bound)
    return bound, play_back(compilation.values(), arrays, bound, function(arrays))
