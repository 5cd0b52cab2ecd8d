"""Citations in code, tests and docs, and what they resolve to. docs/design/README.md lists the forms.

spec 3 §6.2          a clause of docs/design/compiler.md, by its heading; further clauses: ``spec 3 §8, §11``
spec 1 "View"        a clause without a number, by the words of its heading
D2.15                a ruling of docs/design/rulings.md
design §3 region     a section of docs/design/system.md; of section 3, a layer
(notes: cpu §1)      a section of a page of docs/notes; ``notes: cpu`` the page
decision 0017        a file of docs/decisions
G-29                 a row, in the pages of docs/design
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.docs.pages import DOCS, ROOT, Section, line_of, sections

SPECIFICATION = {"1": "graph", "2": "tiny", "3": "compiler", "4": "plan", "5": "matmul"}
NOTES = tuple(sorted(p.stem for p in (DOCS / "notes").glob("*.md") if p.stem != "README"))
LAST_RULING = 21

FOLDERS = ("tatami", "tests", "docs", "benchmarks", "examples")
SUFFIXES = {".py", ".md", ".c", ".h", ".cpp", ".hpp", ".cu", ".cuh", ".harp", ".toml"}
GENERATED = ("tests/golden/",)

HERE = Path(__file__).parent
EXPLAINS = ("docs/design/README.md", "docs/notes/README.md", "docs/decisions/0057-what-code-cites.md")
"""Pages that show forms of citations, right and wrong."""

BREAK = r"(?:[ ]|\s*\n[ \t]*(?:#|//|\*)?[ \t]*)"
"""A space, or the end of a comment's line and the beginning of the next."""
NUMBER = r"§\d+(?:\.\d+)*(?:\([0-9A-Z]\))?"
ONE = rf'(?:{NUMBER}|"[^"\n]+")'
AND = rf"(?:,|{BREAK}and){BREAK}"
SPEC = re.compile(rf"\b[Ss]pec{BREAK}(\d)\b(?:{BREAK}({ONE}(?:{AND}{ONE})*))?")
DESIGN = re.compile(rf"\bdesign{BREAK}(§\d+)(?:{BREAK}(\w+))?")
NOTE = re.compile(rf"(?:(?<=[(\[])|(?<=[,;] ))[Nn]otes:{BREAK}(\w+)(?:{BREAK}({NUMBER}(?:{AND}{NUMBER})*))?")
RULING = re.compile(r"(?<![\w.-])D(\d+)\.(\d+)\b(?!\.\d)")
DECISION = re.compile(rf"\b[Dd]ecision{BREAK}(\d+)\b")
ROW = re.compile(r"(?<![\w/-])([GTCEM]-\d\d)(?![\w-])")
BARE = re.compile(r"§ ?[\w.]*")
FORMER = (
    (re.compile(r"\bDESIGN\b|\bD§|\bD3\b"), "write `design §3 region`, `design §4` or `D2.15`"),
    (re.compile(r"\bnotes/\w+\.md|\(notes (?:on|§)"), "write `notes: cpu §1`"),
    (re.compile(r"docs/decisions/\d"), "write `decision 0017`"),
    (re.compile(r"docs/rows"), "rows stand in docs/design"),
    (re.compile(r"[(,] ?issue \d"), "an issue is not a place to look a reason up: cite a page of docs"),
    (re.compile(r"\bC-[A-Z]{3,}\d*\b(?<!C-CON1)"), "of rules with a name only C-CON1 is described (spec 3 §6.3.1)"),
)


@dataclass(frozen=True)
class Fault:
    where: str
    cited: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.cited!r}: {self.why}"


@cache
def page(name: str) -> tuple[Section, ...]:
    return tuple(sections((DOCS / f"{name}.md").read_text(encoding="utf-8")))


@cache
def clauses(name: str) -> dict[str, str]:
    """`§6.2` or the words of a heading -> the text under it, of one page of docs."""
    out: dict[str, str] = {}
    for section in page(name)[1:]:
        number = re.match(r"§\d+(?:\.\d+)*", section.title)
        key = number[0] if number else section.title
        out[key] = out.get(key, "") + section.body
    return out


@cache
def layers() -> frozenset[str]:
    titles = [s.title.removeprefix("§3 ") for s in page("design/system") if s.level == 3]
    return frozenset(word for title in titles for word in title.split(" and "))


@cache
def rows() -> frozenset[str]:
    return frozenset(
        id
        for name in SPECIFICATION.values()
        for s in page(f"design/{name}")
        for id in re.findall(r"^- \*\*([GTCEM]-\d\d)\*\*", s.body, re.M)
    )


@cache
def decisions() -> frozenset[str]:
    return frozenset(p.name[:4] for p in (DOCS / "decisions").glob("[0-9]*.md"))


def has_clause(name: str, cited: str) -> bool:
    """True if the page has the heading and, for `§4.3(7)`, an item 7 or (7) under it."""
    found = re.fullmatch(r"(.*?)(?:\((\w)\))?", cited)
    assert found is not None
    text = clauses(name).get(found[1])
    item = found[2]
    return text is not None and (item is None or re.search(rf"^(?:{item}\. |- \({item}\) )", text, re.M) is not None)


def parts(cited: str | None) -> list[str]:
    return re.findall(ONE, cited or "")


def faults(text: str, where: str, own: str | None = None) -> list[Fault]:
    """Citations in `text` that lead nowhere. `own`: the page of docs it is, whose clauses may stand without its name.

    Targets of Markdown links are left out: tests/docs/test_links.py follows them."""
    text = re.sub(r"\]\([^()\s]*\)", lambda m: "]" + " " * (len(m[0]) - 1), text)
    out: list[Fault] = []
    taken: list[tuple[int, int]] = []

    def missing(match: re.Match[str], why: str) -> None:
        out.append(Fault(f"{where}:{line_of(text, match.start())}", " ".join(match[0].split()), why))

    for m in SPEC.finditer(text):
        taken.append(m.span())
        if m[1] not in SPECIFICATION:
            missing(m, "the specification has the documents 1 to 5")
            continue
        name = f"design/{SPECIFICATION[m[1]]}"
        for cited in parts(m[2]):
            if not has_clause(name, cited.strip('"')):
                missing(m, f"docs/{name}.md has no {cited}")
    for m in DESIGN.finditer(text):
        taken.append(m.span())
        if not any(s.title.startswith(f"{m[1]} ") for s in page("design/system")):
            missing(m, f"docs/design/system.md has no {m[1]}")
        elif m[1] == "§3" and m[2] not in layers():
            missing(m, f"after `design §3` stands a layer: {', '.join(sorted(layers()))}")
    for m in NOTE.finditer(text):
        taken.append(m.span())
        if m[1] not in NOTES:
            missing(m, f"notes are cited by page: {', '.join(NOTES)}")
        else:
            out += [
                Fault(f"{where}:{line_of(text, m.start())}", f"notes: {m[1]} {cited}", f"docs/notes/{m[1]}.md has no {cited}")
                for cited in parts(m[2])
                if not has_clause(f"notes/{m[1]}", cited)
            ]
    for m in RULING.finditer(text):
        if m[1] != "2" or not 1 <= int(m[2]) <= LAST_RULING:
            missing(m, f"rulings are D2.1 to D2.{LAST_RULING}")
    for m in DECISION.finditer(text):
        if m[1] not in decisions():
            missing(m, "docs/decisions has no file of that number (four digits)")
    for m in ROW.finditer(text):
        if m[1] not in rows():
            missing(m, "no page of docs/design has this row")
    for m in BARE.finditer(text):
        if any(start <= m.start() < end for start, end in taken):
            continue
        if own is None or not (m[0] == "§" or has_clause(own, m[0].rstrip("."))):
            missing(m, "a clause is cited with its document: `spec 3 §6.2`")
    for pattern, how in FORMER:
        for m in pattern.finditer(text):
            missing(m, how)
    return out


def own_page(path: Path) -> str | None:
    """The name of a page whose headings are clauses."""
    name = path.relative_to(DOCS).with_suffix("").as_posix() if path.is_relative_to(DOCS) else ""
    return name if name.startswith(("design/", "notes/")) else None


def sources() -> Iterator[Path]:
    yield from (ROOT / name for name in ("README.md", "CHANGELOG.md", "pyproject.toml", "Makefile"))
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            inside = path.relative_to(ROOT).as_posix()
            if path.suffix in SUFFIXES and path.is_file() and not inside.startswith(GENERATED) and "__pycache__" not in inside:
                yield path


def unresolved() -> list[Fault]:
    """Every citation of the repository that leads nowhere."""
    found = []
    for path in sources():
        if not path.is_relative_to(HERE) and path.relative_to(ROOT).as_posix() not in EXPLAINS:
            found += faults(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)), own_page(path))
    return found
