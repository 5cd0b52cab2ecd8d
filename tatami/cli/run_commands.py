"""The work of the commands: `cli/__init__.py` parses arguments, this file does the work, and diagnostics travel as TatamiError."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from tatami.api import Compilation, build
from tatami.bench.inputs import gather_inputs
from tatami.cli.request import Request
from tatami.cli.terminal import printable, show_diagnostics
from tatami.core.codec import dump_text, to_builtins
from tatami.core.diagnostic import Diagnostic, TatamiError, fail
from tatami.prepare import checked, is_document
from tatami.progress import shown
from tatami.report.playback import Agreement, compare_outputs, fetch, least_precise, play_back
from tatami.stages import verify
from tatami.storage.dump import write_bytes, write_text

if TYPE_CHECKING:
    from tatami.core.module import Module

console = Console(highlight=False, soft_wrap=True)


def run_command(
    request: Request,
    inputs: tuple[str, ...],
    output: str | None,
    fetch_names: tuple[str, ...],
    check: bool,
) -> None:
    """`tatami run`: run the model once and print its outputs. With `check`, exit code 1 if an output differs from the
    reference."""
    with shown(True) as progress:
        compilation = request.compilation(progress)
        function = build(compilation, sizes=request.sizes)
    arrays, bound = gather_inputs(function.signature, function.arguments, inputs, request.sizes)
    function.sizes.update(bound)
    results = function(arrays)
    show_diagnostics(compilation.warnings)
    for name, array in results.items():
        console.print(printable(f"{name}: {array.dtype}{list(array.shape)}"))
        console.print(_preview(array), markup=False)
    if fetch_names:
        _show_fetched(compilation, fetch_names, arrays, bound)
    if output is not None:
        _save(Path(output), results)
    if check:
        reference = compilation.reference_run(arrays, bound)
        through = least_precise(compilation.stages[compilation.first])
        agreements = compare_outputs(function.signature, results, reference, through)
        _show_agreements(agreements)
        if any(a.difference for a in agreements):
            raise SystemExit(1)


def _preview(array: np.ndarray) -> str:
    with np.printoptions(precision=5, threshold=24, edgeitems=3, linewidth=100):
        return str(np.asarray(array))


def _save(path: Path, results: Mapping[str, np.ndarray]) -> None:
    import io

    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **dict(results))
    write_bytes(path, buffer.getvalue())
    console.print(f"wrote {printable(str(path))}", markup=False)


def _show_agreements(agreements: tuple[Agreement, ...]) -> None:
    for a in agreements:
        if a.difference is None:
            console.print(
                printable(f"check {a.output}: agrees with the float64 reference (relative error {a.error:.1e})"), markup=False
            )
        else:
            d = a.difference
            console.print(
                printable(
                    f"check {a.output}: DIFFERS at {list(d.index)}: {d.value} instead of {d.expected} ({d.count} elements)"
                ),
                markup=False,
            )


def _show_fetched(
    compilation: Compilation, names: tuple[str, ...], arrays: Mapping[str, np.ndarray], bound: Mapping[str, int]
) -> None:
    found = fetch(compilation, names, arrays, bound)
    for name in names:
        console.print(printable(f"{name}: {found[name].dtype}{list(found[name].shape)}"), markup=False)
        console.print(_preview(found[name]), markup=False)


def check_json_command(models: tuple[str, ...], trust: bool) -> None:
    """`tatami check --json`: the faults of every model as a list of documents. Exit code 1 if there are any."""
    faults: tuple[Diagnostic, ...] = ()
    try:
        check_command(models, trust, lambda text: None)
    except TatamiError as error:
        faults = error.diagnostics
    click.echo(dump_text(to_builtins(list(faults))), nl=False)
    if faults:
        raise SystemExit(1)


def _printed(text: str) -> None:
    console.print(printable(text), markup=False)


def check_command(models: tuple[str, ...], trust: bool, say: Callable[[str], None] = _printed) -> None:
    """`tatami check`: read and verify every model, then raise the faults of all together. `say` gets a line for each model
    and each repair."""
    from tatami.models import check_format, open_model

    faults: list[Diagnostic] = []
    for model in models:
        found: list[Diagnostic] = []
        try:
            found, repairs = check_format(Path(model))
            for r in repairs:
                say(f"{model}: an import repairs {r.at}: {r.what}")
            given = open_model(model, trust=trust)
            found += [d for name, value in given.items() for d in verify(name, value, given.get) if not d.is_warning]
            if not found and is_document(model):
                checked(given, None, trust)
        except TatamiError as error:
            found = [*found, *error.diagnostics]
        if not found:
            say(f"{model}: {_what_was_read(given)}, no faults")
        faults += found
    if faults:
        raise TatamiError(*faults)


def _what_was_read(given: Mapping[str, Module[object]]) -> str:
    graphs = given["frontend"].programs if "frontend" in given else ()
    count, what = (len(graphs), "graph") if graphs else (len(given), "stage")
    return f"{count} {what}{'s' * (count != 1)}"


def playback_command(
    request: Request,
    inputs: tuple[str, ...],
) -> None:
    """`tatami playback`: run every stage on the same inputs. Exit code 1 if one differs, which is printed."""
    compilation = replace(request, compare=True).compilation()
    function = build(compilation, sizes=request.sizes)
    arrays, bound = gather_inputs(function.signature, function.arguments, inputs, request.sizes)
    function.sizes.update(bound)
    compiled = function(arrays)
    result = play_back(compilation.values(), arrays, bound, compiled)
    table = Table(box=None, pad_edge=False)
    for column in ("stage", "agrees", "relative error"):
        table.add_column(column)
    for r in result.results:
        worst = max((a.error for a in r.agreements), default=0.0)
        table.add_row(r.stage, "yes" if r.ok else "NO", f"{worst:.1e}")
    console.print(table)
    first = result.first_divergence
    if first is None:
        console.print("no divergence")
        return
    d = next(a.difference for a in first.agreements if a.difference is not None)
    console.print(
        printable(
            f"first divergence: stage {first.stage}, output {d.output} at {list(d.index)}: {d.value} instead of {d.expected}"
        ),
        markup=False,
    )
    raise SystemExit(1)


def calibrate_command(output: str | None) -> None:
    """`tatami calibrate`: measure this CPU and print its rates; `output`: file for the target document."""
    from tatami.plan.loops.estimate import multiply_adds_per_cycle
    from tatami.runtime.machine.calibration import calibrate

    if output is not None and Path(output).suffix.lower() != ".json":
        raise fail("InvalidAttribute", "-o", f"{output[:60]!r} is not the name of a .json file", "write -o machine.json")
    t = calibrate()
    console.print(
        f"{t.name}, {t.cores} cores: {t.clock / 1e9:.1f} GHz, {multiply_adds_per_cycle(t):g} vector multiply-adds a cycle "
        f"({t.flops_fp32 / 1e9:.0f} GFLOP/s a core in fp32), {t.bandwidth / 1e9:.0f} GB/s from memory; "
        f"{t.l1_bytes >> 10} KB L1, {t.l2_bytes >> 10} KB L2, {t.l3_bytes >> 20} MB L3",
        markup=False,
    )
    if output is not None:
        console.print(printable(str(write_text(Path(output), dump_text(to_builtins(t))))), markup=False)


@dataclass(frozen=True)
class Benching:
    """Options of `tatami bench`, None where they are not given. `seconds`: how long to measure; `ledger`: the database to add to;
    `svg`: file for the roofline; `trace`: file for the waves."""

    inputs: tuple[str, ...]
    threads: int | None
    seconds: float | None
    ledger: str | None
    svg: str | None
    trace: str | None

    @property
    def timed(self) -> list[str]:
        """The given options that only a measurement of time has."""
        files = {"--ledger": self.ledger, "--svg": self.svg, "--trace": self.trace}
        given = {"--threads": self.threads, "--seconds": self.seconds, **files}
        return [name for name, value in given.items() if value is not None]


def bench_command(request: Request, options: Benching) -> None:
    """`tatami bench`: time each kernel, print the table, add to the ledger. On an emulated GPU count instead."""
    from tatami.bench.measure import ledger_rows, measure
    from tatami.bench.roofline import roofline_svg
    from tatami.ledger.database import default_path, open_ledger
    from tatami.ledger.records import Records
    from tatami.report.timings import estimate_sizes
    from tatami.runtime.cores import thread_count
    from tatami.runtime.machine.peak import measured_peaks

    compilation = request.compilation()
    if compilation.target.emulated:
        _count(request, compilation, options)
        return
    peaks = measured_peaks(compilation.target, thread_count(options.threads))
    planned = estimate_sizes(compilation)
    function = build(compilation, options.threads, request.sizes)
    arrays, bound = gather_inputs(function.signature, function.arguments, options.inputs, request.sizes, otherwise=planned)
    seconds = 1.0 if options.seconds is None else options.seconds
    found = measure(compilation, arrays, bound, options.threads, seconds, peaks)
    rows: list[tuple[str, ...]] = [
        ("kernel", "kind", "ms", "share", "estimate ms", "GFLOP/s", "GB/s", "of roofline", "flops", "bytes", "computes")
    ]
    total = sum(t.seconds for t in found.timings) or 1.0
    for t in found.timings:
        estimate = f"{t.estimate * 1e3:.4f}" if t.estimate is not None else ""
        roof = f"{t.bound / t.seconds:.0%}" if t.bound is not None and t.seconds > 0 else ""
        names = printable(", ".join(t.sources))[:80]
        rate = (f"{n / t.seconds / 1e9:.1f}" if n and t.seconds > 0 else "" for n in (t.flops, t.bytes))
        work = ("" if n is None else f"{n:.0f}" for n in (t.flops, t.bytes))
        share = f"{t.seconds / total:.0%}"
        rows.append((t.kernel, t.kind, f"{t.seconds * 1e3:.4f}", share, estimate, *rate, roof, *work, names))
    print_columns(rows, 2)
    at = ", ".join(f"{n}={v}" for n, v in bound.items())
    line = f"whole program {found.whole * 1e3:.4f} ms, kernels {total * 1e3:.4f} ms, least of {found.runs} runs"
    console.print(printable(f"{line}{' at ' + at if at else ''}"), markup=False)
    console.print(
        f"peaks of this machine: {peaks.flops / 1e9:.0f} GFLOP/s, {peaks.memory / 1e9:.0f} GB/s from memory,"
        f" {peaks.cache / 1e9:.0f} GB/s from cache",
        markup=False,
    )
    if options.svg is not None:
        write_text(Path(options.svg), roofline_svg(found.timings, peaks, Path(request.model).name))
        console.print(printable(f"wrote {options.svg}"), markup=False)
    if options.trace is not None:
        from tatami.explorer.times import trace

        events = trace(compilation.stages["execution"], found, Path(request.model).name)
        write_text(Path(options.trace), json.dumps(events))
        console.print(printable(f"wrote {options.trace}"), markup=False)
    path = Path(options.ledger) if options.ledger else default_path()
    with open_ledger(path) as connection:
        rows_of = ledger_rows(Path(request.model).name, compilation.target.name, bound, found)
        Records(connection).keep_kernels(rows_of)
    console.print(printable(f"added to {path}"), markup=False)


def _count(request: Request, compilation: Compilation, options: Benching) -> None:
    """Print the counts of a run on an emulated GPU. Raises TatamiError for options of a measurement of time."""
    from tatami.bench.counted import comparison, count, table

    if given := options.timed:
        why = f"{compilation.target.name} counts, and takes no time"
        raise fail("InvalidAttribute", given[0], why, f"leave {' and '.join(given)} out, or use target cpu")
    function = build(compilation, sizes=request.sizes)
    arrays, bound = gather_inputs(function.signature, function.arguments, options.inputs, request.sizes)
    function.sizes.update(bound)
    counted = count(function, arrays)
    print_columns([tuple(map(printable, row)) for row in table(counted)], 3)
    compared = list(comparison(counted))
    if len(compared) > 1:
        console.print()
        print_columns([tuple(map(printable, row)) for row in compared], 2)


def print_columns(rows: Sequence[tuple[str, ...]], left: int) -> None:
    """Print a table. `left`: number of columns that are aligned to the left; the last column is not filled up."""
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]) - 1)]
    for row in rows:
        cells = [cell.ljust(w) if c < left else cell.rjust(w) for c, (cell, w) in enumerate(zip(row, widths))]
        console.print("  ".join([*cells, row[-1]]).rstrip(), markup=False)
