"""The messages between the page, its server and the process that compiles an edit, as JSON."""

from __future__ import annotations

import msgspec

from tatami.core.diagnostic import Diagnostic
from tatami.decisions import Decisions

DECISIONS = "decisions"
"""The name under which the decisions document is edited, next to the names of stages."""


class PlanEdit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="ask", tag="plan"):
    """Compile with another plan. `key`: the kernels that have it; `plan`: a document."""

    key: str
    plan: dict[str, object]


class DocumentOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="ask", tag="document"):
    """The text of a stage's document to edit, or of the decisions: as in a dump, constants and earlier stages by their hash."""

    stage: str


class StageEdit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="ask", tag="stage"):
    """Restart from the edited `text` of a stage's document, or compile with the edited decisions."""

    stage: str
    text: str


class SaveStage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="ask", tag="save"):
    """The edited document as one that restarts alone: constants and earlier stages inside."""

    stage: str
    text: str


Asked = PlanEdit | DocumentOf | StageEdit | SaveStage
"""A request of a page to its server."""


class Edit(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A request of a page with the compilation that it is about. `model`, `target`, `sizes`, `precision`, `trust`: of the command
    that serves the page; `decisions`: those that it was given; `asked`: None before there is a request."""

    model: str
    target: str | None
    sizes: dict[str, int]
    precision: str | None
    trust: bool
    decisions: Decisions
    asked: Asked | None = None
    seconds: float = 60.0
    """Seconds after which the process ends itself, if the server that would end it is gone."""


class Place(msgspec.Struct, frozen=True):
    """A place in an edited text, both numbers from 0."""

    line: int
    column: int


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Faults that refuse a request; or `page`: the document of the new compilation, gzip in base64; or `document`: a text to edit
    or to save, and the name of its `file` in a dump."""

    faults: tuple[Diagnostic, ...] = ()
    places: tuple[Place | None, ...] = ()
    """Per fault of an edited text, its place there; None where the text has none."""
    page: str = ""
    document: str = ""
    file: str = ""
    notes: tuple[str, ...] = ()
    """Checks that were not made, with the reason."""
