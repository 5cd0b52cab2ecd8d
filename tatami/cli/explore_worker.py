"""The process in which an edited plan is compiled: `python -m tatami.cli.explore_worker`.

It reads one `Edit` from standard input, compiles, and writes one `Answer` to standard output: the document of the new
compilation, or the faults that refuse it. Nothing is built or run; the server (explorer/serve.py) ends it after a time."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import msgspec

from tatami.core.diagnostic import TatamiError
from tatami.decisions import Decisions
from tatami.explorer.messages import Answer, Edit


def answer(edit: Edit) -> Answer:
    """Compile with the edited plan up to the code. A fault of the plan, of the model or of Tatami is part of the answer."""
    from tatami.cli.request import Request
    from tatami.explorer.document import explored, source_text
    from tatami.explorer.html import packed

    decisions = Decisions(edit.decisions.partitions, {**edit.decisions.plans, edit.key: edit.plan}, edit.decisions.calls)
    try:
        request = Request(edit.model, edit.target, edit.sizes, edit.precision, decisions, edit.trust)
        compilation = request.compilation()
        page = explored(compilation, Path(edit.model).name, source_text(edit.model), edit.sizes)
    except TatamiError as error:
        return Answer(faults=error.diagnostics)
    return Answer(page=packed(page))


def main() -> None:
    """Answer the edit on standard input."""
    edit = msgspec.json.decode(sys.stdin.buffer.read(), type=Edit)
    signal.setitimer(signal.ITIMER_REAL, edit.seconds)
    sys.stdout.buffer.write(msgspec.json.encode(answer(edit)))


if __name__ == "__main__":
    main()
