"""Single edits of gpu documents: each is refused, or obeyed with right numbers.

    python -m tests.gpu.edits [--programs gemm80,gemm90] [--part 0/10] [--untrusted] [--all]

Every edit of a program's gpu stage is taken as a trusted document (`--untrusted`: as one from outside), verified, printed and, if
the text is another one, compiled for the emulated GPU and run on arrays full of NaN; the results are compared with float64.
Outcomes: `refused` (a diagnostic), `right` (another text and right numbers), `equal` (the same document, spelled otherwise),
`same` (another document of the same text), and the findings `wrong`, `crash` (an error other than a diagnostic, or a process that
ends) and `hang`.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import select
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tatami.api import build, prepare
from tatami.core.diagnostic import TatamiError
from tatami.core.module import Module
from tatami.decisions import Decisions
from tatami.pipeline import compile_stages
from tatami.stages import decode_body, show, stage, verify
from tatami.storage.derived import check_derived
from tests.gpu.editing.programs import PROGRAMS, arguments, document_of
from tests.gpu.editing.single_edits import single_edits

FINDINGS = ("wrong", "crash", "hang")
SECONDS = 60.0
"""Time of one compilation and run."""
TOLERANCE = 2e-3
"""Largest difference from float64, relative to the largest result."""


class Outcome(NamedTuple):
    """The outcome of one edit: its kind, and the reason for it."""

    program: str
    edit: str
    kind: str
    why: str


class Edited:
    """A program of the campaign and its documents after an edit."""

    def __init__(self, name: str, trust: bool) -> None:
        self.name = name
        self.trust = trust
        self.document = document_of(name)
        self.first = prepare(self.document, trust=True)
        self.given = {n: self.first.stages[n] for n in ("region", "plan", "gpu")}
        self.body = self.document["programs"]["main"]
        self.text = self._text(self.given["gpu"])

    def _text(self, gpu: Module[Any]) -> str:
        given = {**self.given, "gpu": gpu}
        stages = compile_stages(given, self.first.target, Decisions(), lambda _, make: make())
        return plain(show("cu", stages["cu"]) + show("execution", stages["execution"]))

    def edits(self) -> Iterator[tuple[str, Any]]:
        """Every single edit of the program's kernels and bindings."""
        yield from single_edits(self.body)

    def outcome(self, edit: str, body: Any) -> Outcome:
        """Refused, the same text, or the numbers of the emulated GPU."""
        try:
            gpu = self.taken(body)
            text = self._text(gpu)
        except TatamiError as error:
            clear = all(d.why and d.kind != "InternalError" for d in error.diagnostics)
            return Outcome(self.name, edit, "refused" if clear else "crash", str(error)[:200])
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{os.path.basename(frame.filename)}:{frame.lineno}"
            return Outcome(self.name, edit, "crash", f"{type(error).__name__}: {error} ({place})"[:200])
        if text == self.text:
            return Outcome(self.name, edit, "equal" if gpu.programs == self.given["gpu"].programs else "same", "")
        return Outcome(self.name, edit, *run_of(self.name, body))

    def taken(self, body: Any) -> Module[Any]:
        """The module of an edited body. Raises TatamiError if it is refused."""
        was = self.given["gpu"]
        main = decode_body(stage("gpu"), body, "gpu", trust=self.trust)
        gpu = Module({"main": main}, was.constants, was.origins, target=was.target)
        given = {**self.given, "gpu": gpu}
        if found := [d for d in verify("gpu", gpu, given.get) if not d.is_warning]:
            raise TatamiError(*found)
        taken: Module[Any] = check_derived(given, self.first.target, trust=self.trust)["gpu"]
        return taken


def plain(text: str) -> str:
    """The text less its comments and the names that are made of contents."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
    return re.sub(r"tatami_[0-9a-f]{20}|\b[0-9a-f]{64}\b", "kernel", text)


def run_of(name: str, body: Any) -> tuple[str, str]:
    """(kind, why) of the run of an edited program, in a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        os.write(writer, json.dumps(_numbers(name, body)).encode()[:4000])
        os._exit(0)
    os.close(writer)
    told = b""
    if select.select([reader], [], [], SECONDS)[0]:
        told = os.read(reader, 4096)
        _, status = os.waitpid(child, 0)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        return "hang", f"no result in {SECONDS} s"
    os.close(reader)
    if not told:
        return "crash", f"the process ended with {status}"
    kind, why = json.loads(told)
    return kind, why


def _numbers(name: str, body: Any) -> tuple[str, str]:
    try:
        edited = {**document_of(name), "programs": {"main": body}}
        f = build(prepare(edited, trust=True))
        inputs, want = _expected(name, f)
        out = {x.tensor: np.full(w.shape, np.nan, w.dtype) for x, w in zip(f.signature.outputs, want, strict=True)}
        f({n: x.copy() for n, x in inputs.items()}, out=out)
        for got, w in zip(out.values(), want, strict=True):
            difference = np.abs(got.astype(np.float64) - w.astype(np.float64))
            if not (difference <= TOLERANCE * max(1.0, float(np.abs(w.astype(np.float64)).max()))).all():
                return "wrong", f"{int((~(difference <= TOLERANCE)).sum())} of {w.size} results differ"
    except TatamiError as error:
        return "refused", f"at its run: {error}"[:200]
    except Exception as error:
        return "crash", f"{type(error).__name__}: {error}"[:200]
    return "right", ""


@functools.cache
def _reference(name: str) -> Any:
    return prepare(document_of(name), trust=True)


def _expected(name: str, f: Any) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    inputs = arguments(f, 1)
    made = _reference(name).reference_run({n: x.astype(np.float64) for n, x in inputs.items()}, {})
    dtypes = [np.dtype(x.dtype.name.replace("fp", "float")) for x in f.signature.outputs]
    return inputs, [np.asarray(w).astype(t) for w, t in zip(made.values(), dtypes, strict=True)]


def campaign(names: list[str], part: tuple[int, int] = (0, 1), *, trust: bool = True) -> Iterator[Outcome]:
    """Outcomes of every `part[1]`-th edit of the programs, from number `part[0]` on."""
    for name in names:
        program = Edited(name, trust)
        for number, (edit, body) in enumerate(program.edits()):
            if number % part[1] == part[0]:
                yield program.outcome(edit, body)


def table(outcomes: list[Outcome]) -> str:
    """Numbers of outcomes by program and kind."""
    counts = Counter((o.program, o.kind) for o in outcomes)
    kinds = ("refused", "right", "equal", "same", *FINDINGS)
    lines = [f"{'program':14}" + "".join(f"{k:>9}" for k in kinds)]
    for name in [*dict.fromkeys(o.program for o in outcomes), "all"]:
        row = (sum(n for (p, k), n in counts.items() if k == kind and name in (p, "all")) for kind in kinds)
        lines.append(f"{name:14}" + "".join(f"{n:9}" for n in row))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.edits", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="names, comma separated")
    parser.add_argument("--part", default="0/1", help="which edits: number/parts")
    parser.add_argument("--untrusted", action="store_true", help="documents from outside")
    parser.add_argument("--all", action="store_true", help="print accepted edits too")
    given = parser.parse_args()
    number, _, parts = given.part.partition("/")
    outcomes: list[Outcome] = []
    for o in campaign(given.programs.split(","), (int(number), int(parts)), trust=not given.untrusted):
        outcomes.append(o)
        if o.kind in FINDINGS or (given.all and o.kind in ("right", "same")):
            print(f"{o.kind:8} {o.program} {o.edit}  {o.why}", flush=True)
    print(table(outcomes))
    return int(any(o.kind in FINDINGS for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
