"""The programs whose documents are edited everywhere, one field at a time, and the edits by number.

Small programs of every kind of GPU kernel on both architectures, and the same kinds of work on a CPU with open sizes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import msgspec

import tatami as tt
from tatami.api import prepare
from tatami.core.codec import to_builtins
from tatami.core.document import InputRef, content_sha256
from tatami.decisions import Decisions
from tatami.stages import STAGES
from tatami.storage.dump import to_document
from tests.fuzz.edits.document_programs import documents
from tests.gpu.editing.programs import PROGRAMS, decided_plans
from tests.gpu.editing.single_edits import Change, single_changes

STAGES_EDITED = ("indexbook", "poly_view", "region", "plan", "execution")
"""Stages of which every field is edited; gpu documents have a campaign of their own (`python -m tests.gpu.edits`)."""
ON_CPU = {"gemm": "gemm_bias_relu", "conv": "conv3x3_silu", "attention": "causal_attention", "sort": "gather_scan_sort"}
"""Name of a campaign's program on a CPU -> its name among the programs of seeds."""


def groups() -> tt.Graph:
    """Rows in three groups, each times a matrix of its own."""
    g = tt.Graph("groups")
    x, w = g.input("x", (40, 32), tt.fp16), g.input("w", (3, 32, 24), tt.fp16)
    g.output("y", x.grouped_matmul(w, g.input("ends", (3,), tt.i64)).relu())
    return g


ON_GPU = {**PROGRAMS, "groups80": ("sm80", groups, {}), "groups90": ("sm90", groups, {})}
"""Name of a program on an emulated GPU -> target, graph, and the fields of the planner's plan that are replaced."""
LABELS = re.compile(r"origins|estimate|rejected|debug_name|about|passes\.([^.]*)\.lets|memref\.alignment")
"""Fields that people read: where things came from, what was weighed. They are shown as they stand."""
EVERY = (*ON_CPU, *ON_GPU)


@cache
def documents_of(name: str) -> dict[str, dict[str, Any]]:
    """Stage -> the whole document, the earlier documents that it was made from embedded."""
    if name in ON_CPU:
        return {s: d for s, d in documents(ON_CPU[name]).items() if s in STAGES_EDITED}
    target, make, fields = ON_GPU[name]
    first = prepare(make(), target=f"emulated-{target}", check=False)
    if fields:
        first = prepare(
            make(), target=f"emulated-{target}", decisions=Decisions(plans=decided_plans(first, fields)), check=False
        )
    refs: dict[str, InputRef] = {}
    out: dict[str, dict[str, Any]] = {}
    for s in STAGES:
        if s.name not in (values := first.values()) or s.code:
            continue
        document = to_document(s.name, values[s.name], first.target, inputs={n: refs[n] for n in s.needs if n in refs})
        out[s.name] = msgspec.to_builtins(to_builtins(document))
        refs[s.name] = InputRef(sha256=content_sha256(document), document=out[s.name])
    return {s: json.loads(json.dumps(d)) for s, d in out.items() if s in STAGES_EDITED}


@cache
def changes_of(name: str, stage: str) -> list[tuple[str, Change]]:
    """Every single edit of the programs of a document, but of labels: figures of estimates, plans that were rejected, names that
    people read."""
    found = single_changes(documents_of(name)[stage]["programs"])
    return [(text, change) for text, change in found if not LABELS.search(text.partition(": ")[0])]


def edited(case: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """(the document after the edit, the edit in words) of {program, stage, number}."""
    text, change = changes_of(case["program"], case["stage"])[case["number"]]
    return {**documents_of(case["program"])[case["stage"]], "programs": change()}, text


def cases(names: Iterable[str], stages: Iterable[str], part: tuple[int, int]) -> list[dict[str, Any]]:
    """Every `part[1]`-th edit of these documents, from number `part[0]` on."""
    return [
        {"program": name, "stage": stage, "number": number}
        for stage in stages
        for name in names
        if stage in documents_of(name)
        for number in range(part[0], len(changes_of(name, stage)), part[1])
    ]
