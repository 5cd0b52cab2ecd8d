"""The work of `tatami tune` and `tatami ledger`."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console

from tatami.cli.request import Request
from tatami.cli.run_commands import console, print_columns
from tatami.cli.terminal import printable, show_diagnostics
from tatami.core.diagnostic import fail
from tatami.decisions import decisions_text
from tatami.ledger.database import default_path, open_ledger
from tatami.ledger.exchange import csv_text, merge, prune, summary
from tatami.ledger.records import Records, revision
from tatami.runtime.cores import thread_count
from tatami.search.results import Options, Progress, Tell, Tuned
from tatami.search.session import Session, fault_folder
from tatami.storage.dump import write_text

UNITS = {"s": 1, "m": 60, "h": 3600}
"""Unit of a budget -> seconds."""


def tune_command(request: Request, budget: str, threads: int | None, output: Path, ledger: str | None) -> None:
    """`tatami tune`: search, print the table, write the decisions document."""
    seconds = read_budget(budget)
    if output.suffix.lower() != ".json":
        raise fail("InvalidAttribute", "-o", f"{str(output)[:60]!r} is not the name of a .json file", "write -o tuned.json")
    compilation = request.compilation()
    path = Path(ledger) if ledger else default_path()
    with open_ledger(path) as connection, _bar() as tell:
        options = Options(seconds, request.sizes, thread_count(threads), fault_folder(path))
        session = Session(compilation, options, Records(connection), tell)
        found = session.run()
    show_diagnostics(compilation.warnings)
    show(found)
    write_text(output, decisions_text(found.decisions))
    console.print(printable(f"wrote {output}; measurements are in {path}"), markup=False)
    if found.is_interrupted:
        console.print("interrupted: the same command goes on from here", markup=False)
        sys.exit(130)


def read_budget(text: str) -> float:
    """Seconds of a text such as 90s, 10m, 1.5h. Raises InvalidAttribute."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smh]?)", text.strip(), re.ASCII)
    seconds = float(found[1]) * UNITS[found[2] or "s"] if found else 0.0
    if seconds <= 0:
        raise fail("InvalidAttribute", "--budget", f"{text[:40]!r} is not a time", "write 90s, 10m or 2h")
    return seconds


def show(found: Tuned) -> None:
    """Print the table of the kernels whose plans changed, the whole program, and what was noticed."""
    rows = [("kernel", "before us", "after us", "of before", "was", "is")]
    for c in found.changes:
        kernels = ", ".join(c.kernels[:4]) + (f" and {len(c.kernels) - 4} more" if len(c.kernels) > 4 else "")
        ratio = f"{c.after / c.before:.2f}" if c.before else ""
        rows.append((kernels, f"{c.before * 1e6:.1f}", f"{c.after * 1e6:.1f}", ratio, c.old, c.new))
    if found.changes:
        print_columns([tuple(map(printable, row)) for row in rows], 1)
    if found.whole is not None:
        w = found.whole
        console.print(
            f"whole program {w.before * 1e3:.4f} ms before, {w.after * 1e3:.4f} ms after: {w.ratio:.3f} of the time,"
            f" median of {w.turns} turns",
            markup=False,
        )
    else:
        console.print("nothing faster was found: the decisions are the compiler's own", markup=False)
    console.print(f"{found.regions} kernels worth tuning, {found.measured} candidates compiled in this run", markup=False)
    if found.left:
        console.print(f"{found.left} kernels not finished: the same command goes on with them", markup=False)
    for line in found.dropped:
        console.print(printable(f"dropped, since it does not show in the whole program: {line}"), markup=False)
    if found.waited:
        console.print(f"waited {found.waited:.0f} s for a busy machine", markup=False)
    for f in found.faults:
        text = f"FAULT of Tatami: {f.line}: {f.verdict}: {f.why}; documents in {f.folder}"
        click.echo(printable(text), err=True)


@contextmanager
def _bar() -> Iterator[Tell]:
    """A context with the function that shows progress: a bar on stderr, or nothing where that is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda p: None
        return
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (BarColumn(), TextColumn("{task.fields[left]} left, saved {task.fields[gain]}  {task.description}"))
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=1.0, left="", gain="0%")

        def tell(p: Progress) -> None:
            left = f"{int(p.left) // 60}:{int(p.left) % 60:02}"
            bars.update(task, completed=p.share, description=printable(p.what)[:80], left=left, gain=f"{p.gain:.0%}")

        yield tell


def list_command(path: str | None) -> None:
    """`tatami ledger list`: print a line per Region."""
    with open_ledger(_path(path)) as connection:
        rows = list(summary(connection))
    print_columns([tuple(map(printable, row)) for row in rows], 2)


def export_command(path: str | None, table: str, output: str | None) -> None:
    """`tatami ledger export`: print or write a table as CSV."""
    with open_ledger(_path(path)) as connection:
        text = csv_text(connection, table)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(Path(output), text)
        console.print(printable(f"wrote {output}"), markup=False)


def merge_command(path: str | None, files: tuple[str, ...]) -> None:
    """`tatami ledger merge`: take over rows of other files."""
    with open_ledger(_path(path)) as connection:
        for file in files:
            taken, refused = merge(connection, Path(file))
            more = f", {refused} refused" if refused else ""
            console.print(printable(f"{file}: {taken} rows taken{more}"), markup=False)


def prune_command(path: str | None, older: int | None) -> None:
    """`tatami ledger prune`: remove rows that no search uses."""
    before = time.time() - 86400 * older if older is not None else None
    with open_ledger(_path(path)) as connection:
        gone = prune(connection, keep_revision=revision(), before=before)
    console.print(f"{gone} rows removed", markup=False)


def _path(path: str | None) -> Path:
    return Path(path) if path else default_path()
