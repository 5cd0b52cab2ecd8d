"""The process that answers one request of a served page: `python -m tatami.cli.explore_worker`.

It reads one `Edit` from standard input and writes one `Answer` to standard output: the document of the new compilation, the text of
a document, or the faults that refuse the request. Nothing is linked or run; code that is edited with --trust is read by its compiler.
The server (explorer/serve.py) ends the process after a time; half of the machine's memory is the most that it takes."""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

import msgspec

from tatami.core.codec import parse_text
from tatami.core.diagnostic import Diagnostic, TatamiError, diagnostic, fail
from tatami.decisions import Decisions, decisions_text, load_decisions
from tatami.explorer.messages import DECISIONS, Answer, DocumentOf, Edit, PlanEdit, SaveStage, StageEdit

if TYPE_CHECKING:
    from tatami.compilation import Compilation


def answer(edit: Edit) -> Answer:
    """The answer to a request. A fault of the edit, of the model or of Tatami is part of the answer."""
    text = edit.asked.text if isinstance(edit.asked, StageEdit | SaveStage) else None
    try:
        return _answered(edit)
    except TatamiError as error:
        return _refused(error.diagnostics, text)
    except MemoryError:
        why = f"it takes more than half of this machine's memory ({_most_memory() >> 30} GiB)"
        return _refused((diagnostic("OutOfMemory", "edit", why, "undo the last edit, or use smaller sizes (-D)"),), text)


def _answered(edit: Edit) -> Answer:
    from tatami.explorer.edits import document_of, whole_document

    match edit.asked:
        case PlanEdit(key, plan):
            was = edit.decisions
            decided = Decisions(was.partitions, {**was.plans, key: plan}, was.calls)
            return _shown(edit, _compilation(edit, decided))
        case StageEdit(stage, text) if stage == DECISIONS:
            return _shown(edit, _compilation(edit, _decisions(text)))
        case StageEdit(stage, text):
            return _restarted(edit, stage, text)
        case DocumentOf(stage) if stage == DECISIONS:
            from tatami.compilation import decisions_of

            return Answer(
                document=decisions_text(decisions_of(_compilation(edit, edit.decisions).stages)), file="decisions.json"
            )
        case DocumentOf(stage):
            document, file = document_of(_compilation(edit, edit.decisions), stage, trust=edit.trust)
            return Answer(document=document, file=file)
        case SaveStage(stage, text) if stage == DECISIONS:
            return Answer(document=decisions_text(_decisions(text)), file="decisions.json")
        case SaveStage(stage, text):
            document, file = whole_document(_compilation(edit, edit.decisions), stage, text, trust=edit.trust)
            return Answer(document=document, file=file)
        case None:
            raise ValueError("an edit without a request")
        case _:
            assert_never(edit.asked)


def _decisions(text: str) -> Decisions:
    """The decisions in the text of their document. Raises TatamiError."""
    value = parse_text(text, DECISIONS)
    if not isinstance(value, dict):
        why = f"a {type(value).__name__} is not a decisions document"
        raise fail("InvalidDocument", DECISIONS, why, "write an object with partitions, plans or calls")
    return load_decisions(value)


def _compilation(edit: Edit, decisions: Decisions) -> Compilation:
    from tatami.cli.request import Request

    return Request(edit.model, edit.target, edit.sizes, edit.precision, decisions, edit.trust).compilation()


def _restarted(edit: Edit, stage: str, text: str) -> Answer:
    from tatami.explorer.code_check import code_faults
    from tatami.explorer.edits import restarted
    from tatami.explorer.places import place_at
    from tatami.stages import stage as stage_of

    was = _compilation(edit, edit.decisions)
    made = restarted(was, stage, text, trust=edit.trust)
    notes: tuple[str, ...] = ()
    if stage_of(stage).code:
        found, notes = code_faults(made, was, stage)
        if found:
            return Answer(tuple(d for d, _ in found), tuple(place_at(text, path) for _, path in found))
    return msgspec.structs.replace(_shown(edit, made), notes=notes)


def _shown(edit: Edit, compilation: Compilation) -> Answer:
    from tatami.explorer.document import explored, source_text
    from tatami.explorer.html import packed

    source = source_text(edit.model) if compilation.first == "frontend" else ""
    return Answer(page=packed(explored(compilation, Path(edit.model).name, source, edit.sizes)))


def _refused(faults: tuple[Diagnostic, ...], text: str | None) -> Answer:
    from tatami.explorer.places import place_of

    return Answer(faults, tuple(place_of(text, d) for d in faults) if text is not None else ())


def _most_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def main() -> None:
    """Answer the request on standard input."""
    edit = msgspec.json.decode(sys.stdin.buffer.read(), type=Edit)
    signal.setitimer(signal.ITIMER_REAL, edit.seconds)
    resource.setrlimit(resource.RLIMIT_DATA, (_most_memory(),) * 2)
    sys.stdout.buffer.write(msgspec.json.encode(answer(edit)))


if __name__ == "__main__":
    main()
