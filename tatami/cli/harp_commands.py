"""The commands that write `.harp` texts: `tatami fmt`, `tatami decompile` and `tatami gradient`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tatami.cli.terminal import printable
from tatami.core.diagnostic import fail
from tatami.core.document import document_text
from tatami.core.module import Module
from tatami.frontend.ir import Graph
from tatami.harp.decompile import decompiled
from tatami.harp.fmt import format_source
from tatami.harp.load import read_text
from tatami.models import open_model
from tatami.storage.dump import to_document, write_bytes, write_text
from tatami.targets import resolve_target


def fmt_command(files: tuple[str, ...], check: bool, output: str | None) -> None:
    """`tatami fmt`: write each file in its place, or to `output`; `-` goes from standard input to standard output."""
    if output is not None and len(files) > 1:
        raise fail("InvalidAttribute", "-o", f"one output for {len(files)} files", "format them one by one, or leave -o out")
    changed = [file for file in files if _format(file, check, output)]
    if check and changed:
        raise SystemExit(1)


def _format(file: str, check: bool, output: str | None) -> bool:
    """Lay out one file; True if that changed it."""
    name = "standard input" if file == "-" else Path(file).name
    text = sys.stdin.read() if file == "-" else read_text(Path(file))
    laid_out = format_source(text, name)
    if check:
        if laid_out != text:
            click.echo(printable(f"{name}: would be formatted"))
    elif output == "-" or (file == "-" and output is None):
        click.echo(laid_out, nl=False)
    elif laid_out != text or output is not None:
        write_text(Path(output or file), laid_out)
        click.echo(printable(f"formatted {output or file}"))
    return laid_out != text


def decompile_command(model: str, output: str | None, trust: bool) -> None:
    """`tatami decompile`: write the text and its named constants, each file whole or not at all; the constants first, so that
    the text finds them."""
    given = open_model(model, trust=trust)
    if "frontend" not in given:
        why = f"the model is given from stage {next(iter(given))} on; its graph is not there"
        raise fail("InvalidDocument", model[:200], why, "give the model itself, or its frontend document")
    path = output if output is not None else Path(model).with_suffix(".harp").name
    write_harp(given["frontend"], path, model)


def gradient_command(model: str, of: str | None, wrt: tuple[str, ...], output: str | None, trust: bool) -> None:
    """`tatami gradient`: write the model with its derivatives, as a document if `output` ends in .json, else as a text."""
    from tatami.derivative.api import gradient

    module = gradient(model, of=of, wrt=list(wrt), trust=trust)
    path = output if output is not None else f"{Path(model).stem}.gradient.harp"
    if Path(path).suffix.lower() == ".json":
        _refuse_model(Path(path), model)
        write_text(Path(path), document_text(to_document("frontend", module, resolve_target("reference"))))
        click.echo(printable(f"wrote {path}"))
    else:
        write_harp(module, path, model)


def write_harp(module: Module[Graph], output: str, model: str) -> None:
    """Write a module as a .harp text with its constants in an .npz; `-`: the text alone, to standard output. `model`: the file
    it was read from, which is not overwritten."""
    found = decompiled(module)
    path = Path(output)
    if output == "-":
        click.echo(found.text, nl=False)
        return
    _refuse_model(path, model)
    if path.suffix.lower() != ".harp":
        raise fail("FileUnwritable", str(path)[:200], "its suffix is not .harp", f"write -o {path.stem or 'model'}.harp")
    if found.constants:
        write_bytes(path.with_suffix(".npz"), found.archive())
        click.echo(printable(f"wrote {path.with_suffix('.npz')} ({len(found.constants)} constants)"))
    write_text(path, found.text)
    click.echo(printable(f"wrote {path}"))


def _refuse_model(path: Path, model: str) -> None:
    if path.exists() and path.resolve() == Path(model).resolve():
        raise fail("FileUnwritable", str(path)[:200], "it is the model itself", f"name another file: -o other{path.suffix}")
