"""`tatami report`: one file to attach to a report of a fault."""

from __future__ import annotations

from pathlib import Path

import click

from tatami.cli.request import Request
from tatami.cli.terminal import printable, show_diagnostics
from tatami.core.diagnostic import fail
from tatami.progress import shown
from tatami.report.packed import packed
from tatami.storage.dump import write_bytes


def report_command(request: Request, output: Path) -> None:
    """Write the file, also if the model cannot be compiled: its faults are in it then."""
    if output.suffix.lower() != ".zip":
        raise fail("InvalidAttribute", "-o", f"{str(output)[:60]!r} is not the name of a .zip file", "write -o report.zip")
    with shown(True) as progress:
        found = packed(lambda: request.compilation(progress), dict(request.sizes))
    write_bytes(output, found.zipped())
    show_diagnostics(found.diagnostics)
    click.echo(printable(f"{output}: {len(found.files)} files, no weights; names and shapes of the model are in it"))
