"""The messages between the server of a page and the process that compiles an edited plan, as JSON."""

from __future__ import annotations

import msgspec

from tatami.core.diagnostic import Diagnostic
from tatami.decisions import Decisions


class Edit(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A plan to try. `model`, `target`, `sizes`, `precision`, `trust`: of the command that serves the page; `decisions`: those that
    it was given; `key`: the kernels whose plan is `plan`, a document."""

    model: str
    target: str | None
    sizes: dict[str, int]
    precision: str | None
    trust: bool
    decisions: Decisions
    key: str
    plan: dict[str, object]
    seconds: float = 60.0
    """Seconds after which the process ends itself, if the server that would end it is gone."""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Faults that refuse an edit, or `page`: the document of the new compilation, gzip in base64."""

    faults: tuple[Diagnostic, ...] = ()
    page: str = ""
