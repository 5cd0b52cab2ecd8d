"""`tatami diff`: two dumps, compared by node."""

from __future__ import annotations

from pathlib import Path

import click

from tatami.cli.terminal import printable
from tatami.core.codec import dump_text, parse_text, to_builtins
from tatami.core.diagnostic import fail
from tatami.core.document import Document, parse_document, read_bytes
from tatami.report.difference import Change, Comparison
from tatami.stages import STAGES


def diff_command(before: Path, after: Path, as_json: bool) -> None:
    """Print what differs in the stages that both dumps have. Exit code 1 if anything does."""
    a, b = read_dump(before), read_dump(after)
    common = [s.name for s in STAGES if s.name in a and s.name in b]
    if not common:
        raise fail(
            "InvalidDocument",
            str(after)[:200],
            f"it has {', '.join(b)}, and {str(before)[:200]} has {', '.join(a)}: no stage is in both",
            "dump the same stages: tatami compile MODEL -o out --dump=all",
        )
    comparison = Comparison()
    last = common[-1]
    targets = [_target(d[last]) for d in (a, b)]
    found = [Change(last, "document", "changed", "target", *targets)] if targets[0] != targets[1] else []
    found += [c for stage in common for c in _stage_changes(comparison, stage, a[stage], b[stage])]
    if as_json:
        click.echo(dump_text(to_builtins(found)), nl=False)
    else:
        _show(found, common, [n for n in (*a, *b) if n not in common])
    if found:
        raise SystemExit(1)


def read_dump(path: Path) -> dict[str, Document]:
    """Stage -> document, of a folder or of one file. Nothing of it is run, and its constants are not read. Raises TatamiError."""
    files = [path]
    if path.is_dir():
        stems = tuple(f"{k}_{s.file_stem}.json" for k, s in enumerate(STAGES))
        files = [path / name for name in stems if (path / name).is_file()]
        if not files:
            why = "the folder has no document of a stage"
            raise fail("FileUnreadable", str(path)[:200], why, "write one: tatami compile MODEL -o out --dump=all")
    out: dict[str, Document] = {}
    for file in files:
        document = parse_document(parse_text(read_bytes(file), file.name), file.name)
        out[document.stage] = document
    return out


def _stage_changes(comparison: Comparison, stage: str, a: Document, b: Document) -> list[Change]:
    found = comparison.changes(stage, to_builtins(a.programs), to_builtins(b.programs))
    has = [{n: f"{r.dtype}{list(r.shape)} {r.sha256[:12]}" for n, r in d.constants.items()} for d in (a, b)]
    for name in dict.fromkeys((*has[0], *has[1])):
        if has[0].get(name) != has[1].get(name):
            found.append(Change(stage, "constants", "changed", name, *(h.get(name, "none") for h in has)))
    return found


def _target(document: Document) -> str:
    return document.target if isinstance(document.target, str) else document.target.name


def _show(found: list[Change], common: list[str], alone: list[str]) -> None:
    for stage in common:
        of_stage = [c for c in found if c.stage == stage]
        click.echo(f"{stage}: {len(of_stage) or 'no'} difference{'s' * (len(of_stage) != 1)}")
        for c in of_stage:
            click.echo(printable(f"  {c}"))
    if alone:
        click.echo(f"in one dump only: {', '.join(dict.fromkeys(alone))}")
