"""The work of `tatami tune` and `tatami ledger`."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console

from tatami.cli.explore_command import page_path
from tatami.cli.request import Request
from tatami.cli.run_commands import console, print_columns
from tatami.cli.terminal import printable, show_diagnostics
from tatami.compilation import Compilation
from tatami.core.diagnostic import fail
from tatami.core.faults.arguments import cluster_argument
from tatami.core.signature import symbols
from tatami.decisions import decisions_text
from tatami.ledger.database import default_path, open_ledger
from tatami.ledger.exchange import csv_text, merge, prune, summary
from tatami.ledger.records import Records, revision, target_hash
from tatami.runtime.cores import thread_count
from tatami.search.clusters import tune_sizes
from tatami.search.learned import Learned
from tatami.search.proposal import with_decisions
from tatami.search.results import Options, Progress, Tell, Tuned
from tatami.search.session import fault_folder
from tatami.storage.dump import make_folder, write_text
from tatami.targets import resolve_target

UNITS = {"s": 1, "m": 60, "h": 3600}
"""Unit of a budget -> seconds."""


@dataclass(frozen=True)
class Tuning:
    """The options of the command. `budget`: a time such as 10m; `sizes`: texts such as B=1,16; `report`: a page to write
    about the search; `learned`: order candidates by
    estimates that the ledger corrects; `ray`: address of the cluster that measures."""

    budget: str
    sizes: tuple[str, ...]
    threads: int | None
    output: str
    ledger: str | None
    report: str | None = None
    learned: bool = False
    ray: str | None = None


def tune_command(request: Request, options: Tuning) -> None:
    """`tatami tune`: search, print a table for each tuple of sizes, write the decisions document."""
    seconds = read_budget(options.budget)
    cluster = cluster_argument(options.ray, is_tuned=True)
    output = Path(options.output)
    if output.suffix.lower() != ".json":
        raise fail("InvalidAttribute", "-o", f"{str(output)[:60]!r} is not the name of a .json file", "write -o tuned.json")
    if output.is_dir():
        raise fail("FileUnwritable", str(output)[:200], "it is a folder", "name a file: -o tuned.json")
    report = page_path(request.model, options.report, "--report") if options.report is not None else None
    if report is not None and report.is_dir():
        raise fail("FileUnwritable", str(report)[:200], "it is a folder", "name a file: --report tuning.html")
    for file in (output, report):
        if file is not None:
            make_folder(file.parent)  # known before the search, not after it
    clusters = read_clusters(options.sizes, request.sizes)
    compilation = replace(request, sizes={**request.sizes, **clusters[0]}).compilation()
    _check_open(compilation, clusters[0])
    path = Path(options.ledger) if options.ledger else default_path()
    results: list[tuple[Mapping[str, int], Tuned]] = []
    is_interrupted = False
    with open_ledger(path) as connection, _bar() as tell:
        threads, learned = thread_count(options.threads), options.learned
        asked = Options(seconds, request.sizes, threads, fault_folder(path), learned=learned, ray=cluster)
        try:
            for result in tune_sizes(compilation, asked, clusters, Records(connection), tell):
                results.append(result)
                is_interrupted = result[1].is_interrupted
        except KeyboardInterrupt:  # between the searches for two tuples of sizes
            if not results:
                raise
            is_interrupted = True
    show_diagnostics(compilation.warnings)
    for sizes, found in results:
        if sizes:
            console.print(f"at {', '.join(f'{n}={v}' for n, v in sizes.items())}", markup=False)
        show(found)
    last = results[-1][1]
    write_text(output, decisions_text(last.decisions))
    console.print(printable(f"wrote {output}; measurements are in {path}"), markup=False)
    if report is not None:
        write_report(report, Path(request.model), with_decisions(compilation, last.decisions), [r for _, r in results], path)
        console.print(printable(f"wrote {report}"), markup=False)
    if is_interrupted:
        console.print("interrupted: the same command goes on from here", markup=False)
        sys.exit(130)


def write_report(file: Path, model: Path, tuned: Compilation, results: Sequence[Tuned], ledger: Path) -> None:
    """Write the page of searches: the explorer's page of the tuned program, which begins with them."""
    from tatami.explorer.document import explored, source_text
    from tatami.explorer.html import html
    from tatami.search.report import with_searches

    journals = [r.journal for r in results if r.journal is not None]
    page = explored(tuned, model.name, source_text(str(model)), journals[-1].sizes)
    with open_ledger(ledger) as connection:
        write_text(file, html(with_searches(page, journals, Records(connection))))


def read_clusters(texts: Sequence[str], given: Mapping[str, int]) -> list[dict[str, int]]:
    """The tuples of sizes in texts such as B=1,16: the first values of all symbols, then the second ones. One empty tuple without
    texts. Raises InvalidAttribute.

    >>> read_clusters(["B=1,16", "L=128,32"], {})
    [{'B': 1, 'L': 128}, {'B': 16, 'L': 32}]
    """
    found: dict[str, list[int]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        parts = values.split(",")
        if not name or not all(re.fullmatch(r"\d{1,12}", p, re.ASCII) for p in parts):
            raise fail("InvalidAttribute", "--sizes", f"{text[:60]!r} is not a list of sizes", "write --sizes B=1,16,512")
        if name in found or name in given:
            raise fail(
                "InvalidAttribute", "--sizes", f"{name[:60]!r} is given twice", "give each size once, by -D or by --sizes"
            )
        found[name] = [int(p) for p in parts]
    lengths = {len(v) for v in found.values()}
    if len(lengths) > 1:
        how = "give equally many: the first values are one tuple, the second ones another"
        raise fail("InvalidAttribute", "--sizes", "the sizes have different numbers of values", how)
    return [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)] or [{}]


def _check_open(compilation: Compilation, sizes: Mapping[str, int]) -> None:
    """Raise InvalidAttribute for sizes that the program does not leave open: their value decides its code."""
    left = symbols(compilation.stages["region"].main.signature)
    for name in sizes:
        if name not in left:
            why = f"the code of the model depends on the value of {name!r}, so that it can have one"
            raise fail("InvalidAttribute", "--sizes", why, f"give it by -D {name}=…, and tune each value by itself")


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


def learn_command(path: str | None, target: str) -> None:
    """`tatami ledger learn`: print the rank correlations of plain and of corrected estimates."""
    with open_ledger(_path(path)) as connection:
        found = Learned(Records(connection), target_hash(resolve_target(target))).quality()
    console.print(f"{found.timings} timed candidates, {found.subjects} subjects with three or more", markup=False)
    console.print(
        "rank correlation of estimates and times within a subject, mean over Regions that were left out:", markup=False
    )
    console.print(f"  plain {found.plain:.2f}, corrected {found.corrected:.2f}", markup=False)


def machine_command(target: str) -> None:
    """`tatami ledger machine`: print the resource of Ray nodes that are machines like this one."""
    from tatami.search.measuring.ray_crew import resource_name

    resolved = resolve_target(target)
    if resolved.kind != "cpu":
        raise fail(
            "InvalidAttribute", "--target", f"plans of {resolved.name} are not measured", "give a CPU target, or leave it out"
        )
    click.echo(json.dumps({resource_name(target_hash(resolved)): 1}))


def prune_command(path: str | None, older: int | None) -> None:
    """`tatami ledger prune`: remove rows that no search uses."""
    before = time.time() - 86400 * older if older is not None else None
    with open_ledger(_path(path)) as connection:
        gone = prune(connection, keep_revision=revision(), before=before)
    console.print(f"{gone} rows removed", markup=False)


def _path(path: str | None) -> Path:
    return Path(path) if path else default_path()
