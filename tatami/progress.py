"""The progress of a compilation: a bar on stderr if that is a terminal, or a function of the caller's.

    tt.compile(model, progress=True)
    tt.compile(model, progress=lambda what, done, total: ...)      "region", 9, 17 … "kernels", 3, 20

Stages first, as they are made, then the kernels as the C compiler finishes them. A program that is found in the cache reports
nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tatami.core.faults.arguments import bool_argument
from tatami.observer import Progress

ProgressRequest = bool | Progress | None


@contextmanager
def shown(progress: ProgressRequest) -> Iterator[Progress | None]:
    """A context with the function to report to. True: a bar, which is removed at the end; None if stderr is not a terminal."""
    if not callable(progress) and progress is not None:
        bool_argument(progress, "progress")
    if callable(progress):
        yield progress
        return
    if not progress or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=None)

        def report(what: str, done: int, total: int) -> None:
            bars.update(task, description=f"{what:16}", completed=done, total=total)

        yield report
