"""`tatami explore`: write the page of a compilation, or serve it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tatami.build import build
from tatami.cli.request import Request
from tatami.cli.terminal import printable
from tatami.core.diagnostic import fail
from tatami.decisions import load_decisions
from tatami.storage.dump import write_text

if TYPE_CHECKING:
    from tatami.compilation import Compilation
    from tatami.explorer.ir import Explored
    from tatami.explorer.messages import Edit
    from tatami.explorer.times import Measured
    from tatami.report.playback import Playback


@dataclass(frozen=True)
class Exploring:
    """Options of `tatami explore`. `output`: the file to write, None for the model's name with .html; `bench`: kernels are timed;
    `playback`: stages are run and compared; `tune`: a ledger whose searches for the model are shown; `serve`: the page is served instead of written, at `port`, None for a free one."""

    output: str | None
    bench: bool
    playback: bool = False
    tune: str | None = None
    serve: bool = False
    port: int | None = None


def explore_command(request: Request, options: Exploring) -> None:
    """Compile, and write the page or serve it. Raises TatamiError."""
    from tatami.explorer.document import explored, source_text, with_checks
    from tatami.explorer.html import html
    from tatami.explorer.serve import Server, serve

    if options.serve and options.output is not None:
        raise fail("InvalidAttribute", "-o", "--serve writes no file", "leave -o or --serve out")
    if options.port is not None and not options.serve:
        raise fail("InvalidAttribute", "--port", "a file needs no port", "add --serve, or leave --port out")
    path = page_path(request.model, options.output, "-o")
    compilation = replace(request, compare=options.playback).compilation()
    if compilation.target.kind == "reference":
        raise fail("InvalidAttribute", "--target", "the target reference has no stages to show", "give another --target")
    found = measured(compilation, request.sizes) if options.bench else None
    sizes = found.sizes if found is not None else request.sizes
    page = explored(compilation, Path(request.model).name, source_text(request.model), sizes, found)
    if options.playback:
        page = with_checks(page, played(compilation, sizes))
    if options.tune is not None:
        page = with_ledger(page, compilation, Path(options.tune))
    if not options.serve:
        click.echo(printable(str(write_text(path, html(page)))))
    else:
        serve(
            Server(page, edit_of(request), "tatami.cli.explore_worker"),
            options.port or 0,
            lambda address: click.echo(f"{address}  (Ctrl-C ends it)"),
        )


def with_ledger(page: Explored, compilation: Compilation, ledger: Path) -> Explored:
    """The page with the searches for a program that a ledger has. Raises TatamiError if it has none."""
    from tatami.ledger.database import open_ledger
    from tatami.ledger.records import Records, target_hash
    from tatami.search.context import program_name
    from tatami.search.journal import journals
    from tatami.search.report import with_searches

    if compilation.target.kind != "cpu":
        why = f"plans of {compilation.target.name} are not measured"
        raise fail("InvalidAttribute", "--tune", why, "leave it out, or explore for this CPU")
    with open_ledger(ledger, read_only=True) as connection:
        records = Records(connection)
        found = journals(records, program_name(compilation), target_hash(compilation.target))
        if not found:
            why = "the ledger has no search for this model with these options on this machine, by this state of Tatami"
            raise fail("InvalidAttribute", "--tune", why, "run tatami tune MODEL with the same -D and --decisions first")
        return with_searches(page, found, records)


def edit_of(request: Request) -> Edit:
    """The compilation that edits start from; nothing is edited yet."""
    from tatami.explorer.messages import Edit

    decided = load_decisions(request.decisions)
    return Edit(request.model, request.target, dict(request.sizes), request.precision, request.trust, decided)


def page_path(model: str, output: str | None, option: str) -> Path:
    """The file of the page. `option`: the one that names it. Raises TatamiError if `output` is not the name of an .html file."""
    if output is None:
        return Path(Path(model).stem or "model").with_suffix(".html")
    if Path(output).suffix.lower() != ".html":
        raise fail("InvalidAttribute", option, f"{output[:60]!r} is not the name of an .html file", f"write {option} page.html")
    return Path(output)


def played(compilation: Compilation, sizes: Mapping[str, int]) -> Playback:
    """All stages that compute and the compiled program, run on the same generated inputs. Raises TatamiError where the program does
    not run."""
    from tatami.bench.inputs import gather_inputs
    from tatami.report.playback import play_back

    function = build(compilation, sizes=sizes)
    arrays, bound = gather_inputs(function.signature, function.arguments, (), sizes)
    function.sizes.update(bound)
    return play_back(compilation.values(), arrays, bound, function(arrays))


def measured(compilation: Compilation, sizes: Mapping[str, int], seconds: float = 1.0) -> Measured:
    """The times of all kernels on generated inputs. Raises TatamiError where kernels cannot be timed."""
    from tatami.bench.inputs import gather_inputs
    from tatami.bench.measure import measure
    from tatami.explorer.times import Measured
    from tatami.report.timings import estimate_sizes
    from tatami.runtime.cores import thread_count
    from tatami.runtime.machine.peak import check_measurable, measured_peaks

    check_measurable(compilation.target)
    peaks = measured_peaks(compilation.target, thread_count(None))
    function = build(compilation, None, sizes)
    arrays, bound = gather_inputs(function.signature, function.arguments, (), sizes, otherwise=estimate_sizes(compilation))
    return Measured(measure(compilation, arrays, bound, None, seconds, peaks), peaks, bound)
