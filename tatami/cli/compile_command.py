"""`tatami compile`: a program in one file, or a folder of generated code and dumps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from tatami.cli.request import Request
from tatami.cli.terminal import printable, show_diagnostics
from tatami.compilation import Compilation
from tatami.core.diagnostic import fail
from tatami.progress import shown
from tatami.runtime.machine.host import runs_here
from tatami.stages import STAGES
from tatami.storage.code_folder import print_program, printed_program
from tatami.storage.dump import make_folder, write_dump, write_pieces
from tatami.storage.tatami_file import SUFFIX, check_path, save


@dataclass(frozen=True)
class Forms:
    """The options of `tatami compile` that say what is written; "", None or False where they are not given."""

    dump: str = ""
    embed: bool = False
    library: bool = False
    static: bool = False
    wheel: str | None = None
    libc: Literal["gnu", "musl"] | None = None


def compile_command(request: Request, output: str, forms: Forms) -> None:
    """`tatami compile`: a library or a wheel if asked for, a program if `output` ends in .tatami, else a folder."""
    path = Path(output)
    if forms.library or forms.wheel is not None:
        _deploy(request, path, forms)
        return
    for given, option in ((forms.static, "--static"), (forms.libc is not None, "--libc")):
        if given:
            raise fail("InvalidAttribute", option, "it is an option of --library", "add --library")
    if path.suffix.lower() == SUFFIX:
        if forms.dump or forms.embed:
            given_option = "--dump" if forms.dump else "--embed"
            raise fail("InvalidAttribute", given_option, "a saved program holds no dumps", "write them into a folder: -o out")
        _save(request, path)
    else:
        _write_folder(request, path, forms.dump, forms.embed)


def _deploy(request: Request, folder: Path, forms: Forms) -> None:
    """Write the folder of a library, or a wheel."""
    from tatami.deploy.folder import write_library
    from tatami.deploy.linking import Form
    from tatami.deploy.wheel import read_project, write_wheel

    alone = [o for given, o in ((forms.dump, "--dump"), (forms.wheel and forms.library, "--library")) if given]
    alone += [o for given, o in ((forms.static, "--static"), (forms.embed, "--embed")) if given and forms.wheel is not None]
    if alone:
        other = "--library" if forms.wheel is None else "--wheel"
        raise fail("InvalidAttribute", alone[0], f"{other} does not go with it", "give one of them")
    project = None if forms.wheel is None else read_project(forms.wheel)
    with shown(True) as progress:
        compilation = request.prepare(request.sizes, progress)
        if project is None:
            written = write_library(compilation, folder, Form(forms.static, forms.embed, forms.libc or ""))
        else:
            written = [write_wheel(compilation, folder, project, forms.libc or "")]
    show_diagnostics(compilation.warnings)
    for file in written:
        click.echo(printable(str(file)))


def _save(request: Request, path: Path) -> None:
    """Write the file that `f.save` would write, with machine code if it can run on this machine."""
    from tatami.build import find_program

    check_path(path)
    with shown(True) as progress:
        compilation = request.prepare(request.sizes, progress)
        if compilation.target.kind == "cpu" and runs_here(compilation.target):
            find_program(compilation)
        else:
            compilation.values()
    show_diagnostics(compilation.warnings)
    click.echo(printable(str(save(path, compilation, {}))))


def _write_folder(request: Request, folder: Path, dump: str, embed: bool) -> None:
    with shown(True) as progress:
        compilation = request.prepare(request.sizes, progress)
        names = _stage_names(dump, compilation)
        make_folder(folder)
        printed = print_program(compilation, request.sizes) if names else printed_program(compilation, request.sizes)
    show_diagnostics([*compilation.observer.of_model, *printed.warnings])
    written = write_dump(folder, compilation.values(), names, compilation.target, embed=embed) if names else []
    written += [write_pieces(folder / file, data) for file, data in printed.files()]
    if printed.no_main:
        click.echo(printable(f"no stand-alone main, which would check itself: {printed.no_main}"))
    for file in written:
        click.echo(printable(str(file)))


def _stage_names(dump: str, compilation: Compilation) -> list[str]:
    if not dump:
        return []
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
