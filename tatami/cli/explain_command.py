"""`tatami explain`: the report as text, as a tree, or as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from tatami.cli.request import Request
from tatami.cli.run_commands import console
from tatami.cli.terminal import printable
from tatami.core.codec import dump_text, to_builtins
from tatami.core.diagnostic import fail
from tatami.storage.dump import write_text

if TYPE_CHECKING:
    from tatami.report.explanation import ExplainedEdge, ExplainedKernel, ExplainedPlan, Explanation

WIDTH = 4096
"""Columns of a tree that goes to a file or a pipe, where no line is wrapped."""


@dataclass(frozen=True)
class Views:
    """The options of `tatami explain`: files for pictures, and what is printed."""

    svg: str | None = None
    dot: str | None = None
    candidates: bool = False
    tree: bool = False
    as_json: bool = False


def explain_command(request: Request, views: Views) -> None:
    """Print the report, or draw it. Raises click.UsageError for options that do not go together."""
    if views.candidates:
        if views.svg or views.dot or views.tree:
            given = "--tree shows" if views.tree else "--svg and --dot draw"
            raise click.UsageError(f"{given} the compilation as it is: leave --candidates out")
        _candidates(request, views.as_json)
        return
    if views.tree and views.as_json:
        raise click.UsageError("--tree and --json print the same: give one of them")
    compilation = request.compilation()
    if views.tree or views.as_json:
        from tatami.report.explanation import explanation

        found = explanation(compilation)
        if views.as_json:
            click.echo(dump_text(to_builtins(found)), nl=False)
        else:
            width = None if sys.stdout.isatty() else WIDTH
            Console(highlight=False, width=width).print(explained_tree(found))
    else:
        from tatami.report.explain import explain

        console.print(printable(explain(compilation)), markup=False)
    if views.svg is None and views.dot is None:
        return
    from tatami.core.drawing import dot as dot_text
    from tatami.core.drawing import svg as svg_text
    from tatami.report.compiled_picture import compiled_picture

    for file, draw in ((views.svg, svg_text.svg), (views.dot, dot_text.dot)):
        if file is not None:
            write_text(Path(file), draw(compiled_picture(compilation)))
            click.echo(printable(f"wrote {file}"), err=views.as_json)


def _candidates(request: Request, as_json: bool) -> None:
    """Print every plan that each Region may have, with its estimate or refusal."""
    from tatami.search.listing import candidates_json, candidates_text

    compilation = request.compilation()
    if compilation.target.kind == "reference":
        raise fail("InvalidAttribute", "--candidates", "the target reference has no plans", "give another --target")
    sizes = {**compilation.hints, **request.sizes}
    if as_json:
        click.echo(json.dumps(candidates_json(compilation, sizes), indent=1))
    else:
        console.print(printable(candidates_text(compilation, sizes)), markup=False)


def explained_tree(found: Explanation) -> Tree:
    """The report as a tree: programs, their kernels, and of each its plans and edges."""
    root = Tree(_line(f"{len(found.kernels)} kernels for {found.target}", "bold"))
    for program in dict.fromkeys(k.program for k in found.kernels):
        kernels = [k for k in found.kernels if k.program == program]
        branch = root.add(_line(f"{program}: {len(kernels)} kernels", "bold"))
        for kernel in kernels:
            _add_kernel(branch, kernel)
    if found.steps:
        branch = root.add(_line("steps that are not kernels", "bold"))
        for s in found.steps:
            finds = f", finds {', '.join(s.finds)}" if s.finds else ""
            branch.add(_line(f"{s.name} ({s.program}): {s.kind} {', '.join(s.targets)}{finds}"))
    if found.copies:
        branch = root.add(_line("copies", "bold"))
        for c in found.copies:
            branch.add(_line(f"{c.name} ({c.program}): {c.bytes:.0f} bytes, {c.why}"))
    if found.warnings:
        branch = root.add(_line("warnings", "bold"))
        for w in found.warnings:
            branch.add(_line(str(w), "yellow"))
    return root


def _add_kernel(branch: Tree, kernel: ExplainedKernel) -> None:
    named = ", ".join(kernel.sources or kernel.nodes)
    item = branch.add(_line(f"{kernel.name}  {kernel.kind}  {named}", "cyan"))
    for plan in kernel.plans:
        guard = f" when {' and '.join(plan.conditions)}" if plan.conditions else ""
        item.add(_line(f"plan {plan.plan}{guard}{_time(plan)}", "green"))
    if kernel.rejected:
        refused = item.add(_line(f"{len(kernel.rejected)} rejected plans", "dim"))
        for plan in kernel.rejected:
            refused.add(_line(f"{plan.plan}: {plan.why}", "dim"))
    _add_edges(item, "fused edges", kernel.fused)
    _add_edges(item, "edges to other kernels", kernel.borders)


def _add_edges(item: Tree, title: str, edges: tuple[ExplainedEdge, ...]) -> None:
    if not edges:
        return
    branch = item.add(_line(f"{len(edges)} {title}"))
    for e in edges:
        to = f" ({e.kernel})" if e.kernel else ""
        branch.add(_line(f"{e.producer} -> {e.consumer}{to}  {e.rule}  {e.why or f'{e.delta_seconds * 1e6:+.2f} µs if fused'}"))


def _time(plan: ExplainedPlan) -> str:
    total = plan.estimate.get("total")
    return "" if total is None else f"  {total * 1e6:.3g} µs"


def _line(text: str, style: str = "") -> Text:
    """A line of the tree: text, never markup."""
    return Text(printable(text), style=style)
