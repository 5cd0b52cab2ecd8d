"""A marker in each string of each document: none becomes code, the name of a file, or a word of a command line.

    python -m tests.fuzz.markers [--programs gemm_bias_relu,…] [--only tiny,saved,…] [--every] [--part 3/8]

Without trust, a document with the marker is read, checked, lowered, printed, and built as far as it goes. Outcomes:
`refused` (a diagnostic), `same` (the text of the program is as before, byte for byte), `changed` (another text, without
the marker). Findings, for which the exit code is 1: `printed` (the marker stands in generated text), `file`, `command`,
`ran` (a file that the marker's code makes), `fault` (an error that is not a diagnostic). `--every` plants in each string,
else in the first of each sort over all programs (`marker_places`).
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from tatami.api import prepare
from tatami.compilation import Compilation
from tatami.core.diagnostic import TatamiError, fail
from tatami.storage.code_folder import code_texts, print_program
from tatami.storage.dump import write_dump
from tests.fuzz.marking.marker_forms import Form, forms, with_marker
from tests.fuzz.marking.marker_places import Place, places
from tests.fuzz.programs import PROGRAMS

MARK = "zq7x"
HOSTILE = f'{MARK}"\';*/ system("touch {MARK}"); /*\n#include "{MARK}"\n\\'
"""Ends a string, a comment and a line of C; calls; includes."""
PATH = f"../../{MARK}"
FLAG = f"-fplugin={MARK} -include {MARK}"
WORD = f"{MARK}_system"
"""A name that C takes. Names that loop and gpu documents give registers and the like are printed, as what they are."""
MARKS = {"hostile": HOSTILE, "path": PATH, "flag": FLAG, "word": WORD}
LATE = ("plan", "gpu", "loop", "execution", "c", "cu")
"""Stages that differ from target to target."""
NAMED = ("loop", "gpu")
"""Stages whose documents name registers, buffers and functions of the text."""
TARGETS = ("cpu:avx2", "sm90")
WITHOUT_NAMES = re.compile(
    r"(?m)^/\* kernel of [A-Za-z0-9_.:, ]* \*/$|static const char\* const output_names\[\] = \{(\"([A-Za-z0-9_./:-]|\\[0-7]{3})*\"(, )?)+\};"
)
"""Names that a main prints, in letters, digits and escapes that cannot end a string; comments above kernels, of such characters."""
FINDINGS = ("printed", "file", "command", "ran", "fault")


class Probe:
    """The outcome of one document with a marker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commands: list[str] = []

    def compiled(self, compiler: Any, arguments: Any, *, cwd: Path, **_: Any) -> None:
        self.commands += [*compiler.argv, *arguments, *(p.name for p in Path(cwd).iterdir())]
        raise fail("CompilerFailed", "cc", "nothing is compiled here", "look at the command only")

    def texts(self, compilation: Compilation) -> dict[str, str]:
        """The generated text; with a main that checks it where there are sizes for one."""
        try:
            return dict(print_program(compilation, {}).texts)
        except TatamiError:
            return code_texts(compilation)

    def outcome(self, form: Form, place: Place, mark: str, before: Mapping[str, str], word: bool) -> tuple[str, str]:
        """(Kind of the outcome, evidence)."""
        out = self.folder / "out"
        out.mkdir()
        (self.folder / "in").mkdir()
        os.chdir(out)
        try:
            given = with_marker(form, place, mark, self.folder / "in")
            made = prepare(given.model, target=given.target, decisions=given.decisions)
            texts = self.texts(made)
            files = [str(p) for p in write_dump(out / "a" / "b" / "c", made.values(), made.values(), made.target)]
            self.build(made)
        except TatamiError as error:
            if any(d.kind == "InternalError" for d in error.diagnostics):
                return "fault", str(error)[:400]
            return self.ran() or ("refused", error.diagnostics[0].kind)
        except Exception as error:
            return "fault", f"{type(error).__name__}: {error}"[:400]
        code = {n: t for n, t in texts.items() if n != "decisions.json"}
        for name, whole in code.items():
            text = WITHOUT_NAMES.sub("", whole)
            if MARK in text and not (word and _is_name(text)):
                at = text.index(MARK)
                return "printed", f"{name}: {text[max(0, at - 60) : at + 60]!r}"
        for name in (*texts, *files):
            if MARK in name and not word:
                return "file", name
        if any(MARK in c for c in self.commands):
            return "command", " ".join(c for c in self.commands if MARK in c)
        return self.ran() or ("same" if code == before else "changed", "")

    def build(self, made: Compilation) -> None:
        """Build the program up to the commands that would run, without running them."""
        if made.target.kind != "cpu":
            return
        from tatami.build import make_program

        os.environ["TATAMI_PROGRAM_CACHE"] = "0"
        with (
            mock.patch("tatami.runtime.building.objects.run_compiler", self.compiled),
            mock.patch("tatami.runtime.building.objects.default_cache", _no_cache),
        ):
            try:
                make_program(made)
            except TatamiError as error:
                if error.diagnostics[0].kind != "CompilerFailed":
                    raise

    def ran(self) -> tuple[str, str] | None:
        found = [p.name for where in (self.folder, self.folder / "out") for p in where.iterdir() if MARK in p.name]
        return ("ran", found[0]) if found else None


def _no_cache() -> Any:
    from tatami.runtime.building.cache import Cache

    return Cache(None)


def _is_name(text: str) -> bool:
    """True if every place of the marker is a whole name that is not called, or is a function of the text itself."""
    own = set(re.findall(rf"\b(?:static|int|void)\b[^;{{}}=]*?\b(\w*{MARK}\w*)\(", text))
    called = set(re.findall(rf"\b(\w*{MARK}\w*)\(", text))
    return called <= own


def cases(programs: list[str], wanted: list[str], every: bool) -> Iterator[tuple[str, str, Form, Place]]:
    """(program, target, form, place) of each string; without `every` of the first of each sort over all programs."""
    seen: set[tuple[str, str]] = set()
    for program in programs:
        for target in TARGETS:
            try:
                made = prepare(PROGRAMS[program](), target=target)
                made.values()
            except TatamiError:
                continue  # no code for this target
            for form in forms(made, PROGRAMS[program], target):
                if wanted and form.name not in wanted and form.stage not in wanted:
                    continue
                for place in places(form.value):
                    if form.name == "saved" and not place.path:
                        continue  # the names of the two parts are ours
                    key = (f"{form.name} {form.stage} {target if form.stage in LATE else ''}", place.sort)
                    if every or key not in seen:
                        seen.add(key)
                        yield program, target, form, place


def baseline(program: str, target: str) -> dict[str, str]:
    made = prepare(PROGRAMS[program](), target=target)
    with tempfile.TemporaryDirectory() as folder:
        return {n: t for n, t in Probe(Path(folder)).texts(made).items() if n != "decisions.json"}


def campaign(
    programs: list[str], wanted: list[str], *, every: bool = False, part: tuple[int, int] = (0, 1), marks: Iterable[str] = MARKS
) -> Counter[str]:
    """How often each outcome was, alone and by form and stage; findings are printed."""
    counts: Counter[str] = Counter()
    before: dict[tuple[str, str], dict[str, str]] = {}
    home = Path.cwd()
    for number, (program, target, form, place) in enumerate(cases(programs, wanted, every)):
        if number % part[1] != part[0]:
            continue
        if (program, target) not in before:
            before[program, target] = baseline(program, target)
        for kind in marks:
            word = kind == "word" and (form.stage in NAMED or form.stage == "execution")
            with tempfile.TemporaryDirectory() as folder:
                try:
                    found, why = Probe(Path(folder)).outcome(form, place, MARKS[kind], before[program, target], word)
                finally:
                    os.chdir(home)
            counts[found] += 1
            counts[f"{form.name} {form.stage} {found}"] += 1
            if found in FINDINGS:
                print(f"{found} {program} {target} {form.name} {form.stage} {kind} {place}: {why}", flush=True)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.markers", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--only", default="", help="stages and forms")
    parser.add_argument("--marks", default=",".join(MARKS))
    parser.add_argument("--every", action="store_true", help="each string, not the first of each sort")
    parser.add_argument("--part", default="0/1", help="every n-th place: 3/8 is the fourth of eight parts")
    given = parser.parse_args()
    which, of = map(int, given.part.split("/"))
    start = time.monotonic()
    wanted = [s for s in given.only.split(",") if s]
    counts = campaign(given.programs.split(","), wanted, every=given.every, part=(which, of), marks=given.marks.split(","))
    for name in sorted(counts, key=lambda n: (" " in n, n)):
        print(f"{name:28} {counts[name]}")
    print(f"{time.monotonic() - start:.0f} s")
    return 1 if any(counts[f] for f in FINDINGS) else 0


if __name__ == "__main__":
    sys.exit(main())
