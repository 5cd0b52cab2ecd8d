"""One edited document in this process: refused with a diagnostic, or run and compared with what it says.

Started by `documents`, for programs on a CPU under the sanitizers' runtime. Reads a line for each: a seed, or {"program",
"stage", "number", "way"} for one of every single edit. Answers one JSON text a line:
{"kind": refused | same | obeyed | …, "stage", "edits", "why"}.
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tatami.api import build, prepare
from tatami.core.algebra.visit import evaluate
from tatami.core.diagnostic import TatamiError
from tatami.core.signature import Input, Signature, symbols
from tatami.models import open_model
from tatami.report.playback import compare_outputs
from tatami.runtime.cpu.native_code import NativeCode
from tatami.stages import BY_NAME, encode_body
from tests.fuzz.edits.document_edits import draw, pattern
from tests.fuzz.edits.document_programs import REFERENCE, array, bound
from tests.fuzz.edits.every_edit import LABELS, changes_of, documents_of, edited
from tests.fuzz.edits.shared_work import accepted, built, is_unchanged, text_of
from tests.loop.meaning.program import Undetermined, run_program
from tests.loop.meaning.run import TooLong
from tests.loop.meaning.values import NoMeaning, Outside

MOST_ELEMENTS = 1 << 16
COMPUTES = ("frontend", "tiny@imported", "tiny", "region@explicit", "region")
"""Stages with a meaning of their own in numpy."""

UNFORESEEN = "contradict each other: "
"""Words of a refusal that no check foresaw: an error of Python that a document led to (`tatami/observer.py`)."""


def inputs_of(
    signature: Signature, arguments: Iterable[Input], call: int
) -> tuple[dict[str, np.ndarray], dict[str, int]] | None:
    """Arrays for a call, and the sizes they show; None where they would be too large or cannot be."""
    sizes = {s: bound(s, call) for s in (*symbols(signature), *signature.defaults, *signature.must_bind)}
    out: dict[str, np.ndarray] = {}
    for k, port in enumerate(arguments):
        try:
            shape = tuple(int(evaluate(s, sizes)) for s in port.shape)
        except (KeyError, ZeroDivisionError, TatamiError):
            return None
        if any(n < 0 for n in shape) or np.prod([float(n) for n in shape]) > MOST_ELEMENTS:
            return None
        out[port.tensor] = array(port.dtype, shape, 7 * k + call)
        if port.tensor == "ends":  # ends of groups ascend
            out[port.tensor].sort()
    return out, sizes


def attempt(stage: str, document: dict[str, Any], text: str, build: Callable[[Any], Any] = build) -> dict[str, Any]:
    """The outcome of one edited document. `text`: the C text of the document before the edit."""
    try:
        compilation = prepare(document)
        f = build(compilation)
    except TatamiError as error:
        return refused(error)
    signature = f.execution.main.signature
    checked = any(d.kind == "CheckedKernel" for d in compilation.warnings)
    kinds: list[str] = []
    for call in (0, 1):
        made = inputs_of(signature, f.arguments, call)
        if made is None:
            kinds.append("uncalled")
            continue
        arrays, sizes = made
        try:
            got = f({n: a.copy() for n, a in arrays.items()})
        except TatamiError as error:
            kinds.append(refused(error)["kind"])
            continue
        got = {n: np.asarray(a) for n, a in got.items()}
        if stage == REFERENCE:
            kinds.append("same")  # it is the reference
            continue
        if checked:
            outcome = as_loops_say(compilation, arrays, sizes, got)
            if outcome["kind"] == "differs":
                return {**outcome, "why": f"call {call}: {outcome['why']}"}
            kinds.append(outcome["kind"])
            continue
        try:
            expected, of = meaning(compilation, arrays, sizes)
        except TatamiError as error:
            return {"kind": "reference refuses", "why": str(error)[:300]}
        wrong = [a for a in compare_outputs(of, got, expected) if a.difference is not None]
        if wrong:  # a constant beyond its dtype is infinite there, and a number in float64
            expected, of = meaning(compilation, arrays, sizes, "declared")
            wrong = [a for a in compare_outputs(of, got, expected) if a.difference is not None]
        if wrong:
            d = wrong[0].difference
            return {"kind": "differs", "why": f"call {call}: {wrong[0].output}{d.index if d else ''}: {d}"[:300]}
        kinds.append("same")
    derived = stage not in (*COMPUTES, "execution", REFERENCE)
    if derived and set(kinds) == {"same"} and text_of(compilation) == text:
        return {"kind": "nothing changed", "why": ""}
    return {"kind": "checked" if "checked" in kinds else "obeyed" if "same" in kinds else kinds[0], "why": ""}


def as_loops_say(
    compilation: Any, arrays: dict[str, np.ndarray], sizes: dict[str, int], got: dict[str, np.ndarray]
) -> dict[str, str]:
    """`same` or `differs` from what the statements of edited kernels compute; `checked` where they say nothing for certain: they
    call a routine, threads meet, memory is read that nothing wrote, or there are too many steps."""
    stages = compilation.stages
    try:
        expected = run_program(stages["realised"], stages["loop"], arrays, sizes)
    except (NoMeaning, Undetermined, TooLong) as reason:
        return {"kind": "checked", "why": repr(reason)}
    except Outside as outside:
        return {"kind": "differs", "why": f"ran on after an access outside: {outside}"}
    wrong = [a for a in compare_outputs(stages["region"].main.signature, got, expected) if a.difference is not None]
    return (
        {"kind": "differs", "why": f"{wrong[0].output}: {wrong[0].difference}"[:280]} if wrong else {"kind": "same", "why": ""}
    )


def meaning(
    compilation: Any, arrays: dict[str, np.ndarray], sizes: dict[str, int], mode: str = "float64"
) -> tuple[dict[str, np.ndarray], Signature]:
    """The document's own numpy meaning, or the one of the stage it was derived from."""
    first = compilation.stages.get_made(compilation.first)
    return compilation.reference_run({n: a.copy() for n, a in arrays.items()}, sizes, mode), first.main.signature


def refused(error: TatamiError) -> dict[str, Any]:
    d = error.diagnostics[0]
    if not (d.code and d.kind and d.at and d.why and d.suggestion) or d.kind == "InternalError":
        return {"kind": "unclear", "why": str(error)[:300]}
    if UNFORESEEN in d.why:
        return {"kind": "unforeseen", "why": str(error)[:300]}
    return {"kind": "refused", "why": f"{d.kind}: {d.why}"[:160]}


@functools.cache
def text_before(document: str, stage: str) -> str:
    return "" if stage == REFERENCE else text_of(prepare(json.loads(document)))


@functools.cache
def text_of_program(program: str, stage: str) -> str:
    return text_of(prepare(documents_of(program)[stage]))


def encoded(document: dict[str, Any]) -> Any:
    """A document in one spelling."""
    s = BY_NAME[document["stage"]]
    given = open_model(document)[s.name]
    return [(name, without_labels(encode_body(s, program))) for name, program in given.programs.items()]


def bodies(document: dict[str, Any]) -> Any:
    """The programs of a document as the compiler reads them."""
    return open_model(document)[document["stage"]].programs


def without_labels(value: Any) -> Any:
    """A document's values without figures of estimates (`parallel`: kernels that may run at the same time, if there are
    several), and without bounds of a plan, which may be larger than its Region's."""
    if isinstance(value, dict):
        shown = {k: sorted(v) if k in SETS else v for k, v in value.items() if k not in UNSHOWN and v != {}}
        return {k: without_labels(v) for k, v in shown.items()}
    return [without_labels(v) for v in value] if isinstance(value, list | tuple) else value


SETS = ("predicate_tail",)
"""Lists whose order says nothing."""
UNSHOWN = ("estimate", "rejected", "mc", "nc", "parallel")


def is_default(edits: list[str]) -> bool:
    """True if fields were left out, and nothing else: the compiler takes what stood there."""
    return all(re.search(r"\.[^.\d][^.]*: left out$", text) for text in edits)


def is_label(path: tuple[str | int, ...]) -> bool:
    return LABELS.search(pattern(path)) is not None


def filled_arenas() -> None:
    """Memory of an arena that nothing wrote is full of NaN."""
    take = NativeCode.take_arena

    def filled(self: NativeCode, size: int) -> tuple[np.ndarray, int]:
        arena, start = take(self, size)
        arena[:] = 0xFF
        return arena, start

    NativeCode.take_arena = filled  # type: ignore[method-assign]


def answer(case: int | dict[str, Any], programs: dict[str, dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """The outcome of a seed, or of one of every single edit."""
    if not isinstance(case, int):
        words = {
            "program": case["program"],
            "stage": case["stage"],
            "edits": [changes_of(case["program"], case["stage"])[case["number"]][0]],
        }
        return guarded(words, lambda: answer_single(case))
    program, stage, document, edits = draw(case, programs)
    original = programs[program]
    told: dict[str, Any] = {"program": program, "stage": stage, "edits": list(map(str, edits))}

    def outcome_of_seed() -> dict[str, Any]:
        outcome = attempt(stage, document, text_before(json.dumps(original.get(stage)), stage))
        if outcome["kind"] == "nothing changed":
            same = encoded(document) == encoded(original[stage]) or all(is_label(e.path) for e in edits)
            outcome["kind"] = "label" if same else "default" if is_default(told["edits"]) else "ignored"
        return outcome

    return guarded(told, outcome_of_seed)


def guarded(told: dict[str, Any], outcome: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The outcome with what was edited; other errors than diagnostics are outcomes too."""
    try:
        return {**told, **outcome()}
    except (Exception, RecursionError) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).parent.name}/{Path(frame.filename).name}:{frame.lineno}"
        return {**told, "kind": "traceback", "why": f"{type(error).__name__}: {error} ({place})"[:300]}


def answer_single(case: dict[str, Any]) -> dict[str, Any]:
    """The outcome of one edit. `way`: "whole" for the way that shares nothing with other edits; "first" ends before anything
    is compiled, with the kind "again" if the edit is accepted and has to run."""
    program, stage, way = case["program"], case["stage"], case.get("way", "")
    document, text = edited(case)
    if way != "whole":
        try:
            own = accepted(program, stage, document)
        except TatamiError as error:
            return refused(error)
        if is_unchanged(program, stage, own):
            return {"kind": "label", "why": "the same document in other words"}
        if way == "first":
            return {"kind": "again", "why": ""}
    outcome = attempt(stage, document, text_of_program(program, stage), build if way == "whole" else built)
    if outcome["kind"] in ("nothing changed", "obeyed"):
        was = documents_of(program)[stage]
        if (outcome["kind"] == "nothing changed" and encoded(document) == encoded(was)) or bodies(document) == bodies(was):
            outcome["kind"] = "label"
        elif outcome["kind"] == "nothing changed":
            outcome["kind"] = "default" if is_default([text]) else "ignored"
    return outcome


def main() -> None:
    programs = json.loads(Path(os.environ["TATAMI_FUZZ_DOCUMENTS"]).read_text())
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    filled_arenas()
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line), programs)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
