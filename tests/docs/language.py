"""The language of docstrings, comments, messages and pages: `python -m tests.docs.language [paths]` (docs/contributing.md).

Each rule below marks a way of writing that a reader has to read twice. It finds candidates: what stands there instead is
written by whoever has read the code. Four kinds of text are read:

- docstrings of modules, classes, functions, constants and fields (a string after an assignment);
- comments;
- messages of the package: every other string with three words in a row (diagnostics and their suggestions, the command line's
  help, lines of dumps and reports);
- pages: README.md and docs/, without block quotes.

Indented lines (tables of a docstring, code, before → after), fenced blocks and text in backticks are not read. Strings under
tests/ and benchmarks/ are data; `short`, `constant` and `undocumented` are held for the package alone.

    opening       a sentence begins with Of, Whose, What, Those, …; a docstring begins with a preposition or a pronoun, or is a place (Where …)
    question      a sentence ends with a question mark, except "did you mean …?"; pages may ask
    subject       the docstring of a class or function begins with a field or parameter (`rows`: …), before it says what the thing is
    predicate     the docstring of a function that returns `bool` does not say "True if" (or "False if")
    beside        "beside": next to, besides, in addition to
    is-no         "is no matrix": is not a matrix
    has-not       "a lane that a vector has not": does not have
    so-many       "of so many tiles", "from which on": this many, at least
    as-has-it     "as PyTorch has it": as in PyTorch
    prefetch      "asks for lines", "asked for early": prefetches
    history       "no longer", "any more", "previously": text says what is
    short         a docstring of fewer than 25 characters
    constant      a public constant of a module without a docstring or comment
    undocumented  a public function, method or class without a docstring
"""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tatami"
READ = ("tatami", "tests", "benchmarks", "examples", "website", "docs", "README.md")
"""Files and folders of the repository that are read where no path is given."""
PACKAGE_RULES = ("short", "constant", "undocumented")
"""Rules that are held for the package alone: names of tests say what a test holds."""

SHORTEST = 25
"""Characters of a docstring: fewer are a word or two that leave out what the thing is, its unit or its reason."""

FIRST = re.compile(
    r"(?:Of|Whose|What|Those|Who|Which|Beside|Whether|That (?:of|which|what)|Not of|Nor)\b(?! (?:and|or|is a)\b)"
)
"""A sentence that begins so has its subject later, or none."""
BEGINS = re.compile(
    r"(?:With|Without|In|At|To|From|By|On|Until|Beyond|Before|After|Than|Into|Through|Between|Among|Within|Behind|Above|Below|"
    r"They|Them|It|Its|Their|That|Such|Else|So|But|And|Or|Also|As)\b"
)
"""A docstring that begins so says where or how something is, before it says what."""
WHERE = re.compile(r"Where\b[^,]*$")
"""A docstring that is a place, with nothing said of it."""
PHRASES: dict[str, re.Pattern[str]] = {
    "beside": re.compile(r"\b[Bb]eside\b"),
    "is-no": re.compile(
        r"(?<!there )\b(?:is|are|was|were|be|being) no\b(?! (?:longer|more|less|fewer|later|earlier|other|\w+er than)\b)(?=[ ])",
        re.I,
    ),
    "has-not": re.compile(
        r"\b(?:has|have|had) not\b(?! (?:yet |always |only )?(?:been|\w+(?:ed|en|wn|un)|run|read|met|made|come|become|said|left|set|put)\b)"
    ),
    "so-many": re.compile(
        r"\b(?:of|by|for|to|from|at|has|have|and) so (?:many|few)\b|\bso (?:many|few) that\b|\bfrom (?:which|where) on\b"
    ),
    "as-has-it": re.compile(r"\bas [^.,;:()]{1,40}? ha(?:s|ve) (?:it|them)\b"),
    "prefetch": re.compile(
        r"\bask(?:s|ed|ing)? for (?:the |a |its |their |each |all |whole |next |one )?(?:next |cache )?"
        r"(?:lines?|panels?|copies|copy|slivers?|boxes|box|loads?)\b"
        r"|\bask(?:s|ed|ing)? for (?:early|earlier|before|in advance|in time)\b"
    ),
    "history": re.compile(
        r"\bno longer\b(?! than\b)|\bany ?more\b(?! (?:than|\w+ than)\b)|(?<!\bare )(?<!\bis )(?<!\bbe )(?<!\bwas )(?<!\bwere )\bused to (?:be|have|do|take|say)\b"
        r"|\b(?:previously|formerly|nowadays|until now|for now|in the past|in former times|has since|at present)\b",
        re.I,
    ),
}
TOKEN = re.compile(r'"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"|' r"'''(?:\\.|[^\\])*?'''|'(?:\\.|[^'\\\n])*'|#[^\n]*", re.S)
"""A string or a comment of Python."""
MARK = re.compile(r"#!|# *(?:type:|noqa|mypy:|ruff:|fmt:)")
"""A comment for a tool."""
PROSE = re.compile(r"(?:[A-Za-z][a-z]+|`x`)(?:,? (?:[a-z]+|`x`)){2}(?![\w?=])")
"""Three words in a row, values that are put in counted: a string with them is read as a message."""
FENCED = re.compile(r"^( *)```.*?^\1```$", re.S | re.M)
"""A block of a page that is shown as it is."""
CONSTANT = re.compile(r"[A-Z][A-Z0-9_]*[A-Z0-9]")
"""A constant that other modules may import."""


@dataclass(frozen=True, order=True)
class Fault:
    path: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


@dataclass(frozen=True)
class Text:
    """A docstring, a comment, a message or a part of a page. `of`: module, class, function, bool (a function that returns one),
    init, attribute, comment, message or page."""

    line: int
    of: str
    text: str


def prose(text: str) -> list[str]:
    """The paragraphs of a docstring, each on one line: without indented lines and doctests, `x` for what stands in backticks."""
    out: list[str] = []
    open_ = False
    for line in inspect.cleandoc(text).splitlines():
        item = re.match(r"(?:- |\d+\. |\* )", line)
        if not line.strip() or line.startswith((" ", "\t", ">>>", "...", "|")):
            open_ = False
        elif open_ and not item:
            out[-1] += " " + line.strip()
        else:
            out.append(line[len(item[0]) if item else 0 :].strip())
            open_ = True
    return [re.sub(r"``.+?``|`[^`]*`", "`x`", p) for p in out]


def sentences(paragraph: str) -> list[str]:
    return [s for s in re.split(r"(?<=[.?!])[)\"']* +(?=[A-Z`\"'(\[])", paragraph) if s]


def comments(source: str) -> Iterator[Text]:
    """Comments; lines that follow each other, with nothing but a comment, are one."""
    block: list[str] = []
    first, last, column = 0, -1, -1
    row, start = 1, 0
    for match in TOKEN.finditer(source):
        row, start = row + source.count("\n", start, match.start()), match.start()
        if source[start] != "#" or MARK.match(match[0]):
            continue
        begin = source.rfind("\n", 0, start) + 1
        own = not source[begin:start].strip()
        if own and row == last + 1 and start - begin == column:
            block.append(match[0].lstrip("# "))
        else:
            if block:
                yield Text(first, "comment", "\n".join(block))
            block, first = [match[0].lstrip("# ")], row
        last, column = (row, start - begin) if own else (-1, -1)
    if block:
        yield Text(first, "comment", "\n".join(block))


def messages(tree: ast.Module) -> Iterator[Text]:
    """Strings that are prose and no docstrings; `x` stands for each value that is put in."""
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}

    def visit(node: ast.AST) -> Iterator[Text]:
        if isinstance(node, ast.JoinedStr):
            parts = [str(v.value) if isinstance(v, ast.Constant) else "`x`" for v in node.values]
            yield Text(node.lineno, "message", "".join(parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
            yield Text(node.lineno, "message", node.value)
        for child in ast.iter_child_nodes(node):
            if not (isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant)):
                yield from visit(child)

    return (text for text in visit(tree) if PROSE.search(text.text))


def page(source: str) -> Iterator[Text]:
    """The paragraphs, list items and table cells of a page."""
    source = FENCED.sub(lambda fenced: "\n" * fenced[0].count("\n"), source)
    start = 1
    for block in re.split(r"(\n\s*\n)", source):
        if block.strip() and not block.startswith((">", "    ")):
            if block.lstrip().startswith("|"):
                for row, line in enumerate(block.splitlines()):
                    cells = re.sub(r"\]\([^)\s]*\)", "]", line).split("|")
                    yield from (Text(start + row, "page", cell.strip()) for cell in cells if cell.strip())
            else:
                yield Text(start, "page", re.sub(r"\]\([^)\s]*\)", "]", block))
        start += block.count("\n")


def said_by(node: ast.stmt) -> str | None:
    """The text of a statement that is a string."""
    said = node.value if isinstance(node, ast.Expr) else None
    return said.value if isinstance(said, ast.Constant) and isinstance(said.value, str) else None


def returns_bool(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and isinstance(node.returns, ast.Name)
        and node.returns.id in ("bool", "Truth")
    )


def bodies(node: ast.AST) -> Iterator[tuple[ast.AST, list[ast.stmt]]]:
    """Each list of statements in `node`, with what it belongs to."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(node, field, None)
        if isinstance(inner, list):
            if field == "body":
                yield node, inner
            elif field in ("orelse", "finalbody"):
                yield ast.Pass(), inner
            for statement in inner:
                yield from bodies(statement)


def docstrings(tree: ast.Module) -> Iterator[Text]:
    for node, body in bodies(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and body
            and (said := said_by(body[0]))
        ):
            of = "module" if isinstance(node, ast.Module) else "class" if isinstance(node, ast.ClassDef) else "function"
            of = "init" if getattr(node, "name", "") == "__init__" else of
            yield Text(body[0].lineno, "bool" if returns_bool(node) else of, said)
        for before, after in itertools.pairwise(body):
            if isinstance(before, ast.Assign | ast.AnnAssign) and (said := said_by(after)):
                yield Text(after.lineno, "attribute", said)


def in_text(text: Text) -> Iterator[tuple[str, str]]:
    """Rule and excerpt of each fault in a docstring or comment."""
    paragraphs = prose(text.text)
    is_docstring = text.of not in ("comment", "message", "page")
    for number, paragraph in enumerate(paragraphs):
        for place, sentence in enumerate(sentences(paragraph)):
            in_lower_case = (text.of == "comment" or (text.of == "message" and text.text[:1] != " ")) and place == number == 0
            begins = sentence[:1].upper() + sentence[1:] if in_lower_case else sentence
            head = is_docstring and text.of != "module" and place == number == 0
            asks = re.search(r"[\w`)]\?$", sentence) and not re.search(r"\bdid you mean\b", sentence, re.I)
            if text.of == "page" and asks:
                continue
            if FIRST.match(begins) or (head and (BEGINS.match(begins) or WHERE.match(begins))):
                yield "opening", sentence[:90]
            if asks:
                yield "question", sentence[-90:]
        for rule, pattern in PHRASES.items():
            for match in pattern.finditer(paragraph):
                yield rule, paragraph[max(0, match.start() - 30) : match.end() + 40]
    if text.of in ("class", "function", "bool") and re.match(r"`\w+`:", text.text):
        yield "subject", " ".join(text.text.split())[:90]
    if text.of == "bool" and not re.search(r"\b(?:True|False) (?:if|unless)\b", text.text.replace("\n", " ")):
        yield "predicate", " ".join(text.text.split())[:90]
    if is_docstring and len(text.text.strip()) < SHORTEST:
        yield "short", " ".join(text.text.split())


def constants(tree: ast.Module, source: str) -> Iterator[tuple[int, str]]:
    """Line and name of the constants of a module that no docstring follows, no comment stands above or at the end of."""
    lines = source.splitlines()
    for index, node in enumerate(tree.body):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        names = [t.id for t in targets if isinstance(t, ast.Name) and CONSTANT.fullmatch(t.id)]
        if not names or (index + 1 < len(tree.body) and said_by(tree.body[index + 1])):
            continue
        above = lines[node.lineno - 2].strip() if node.lineno > 1 else ""
        end = lines[(node.end_lineno or node.lineno) - 1][node.end_col_offset or 0 :]
        if not above.startswith("#") and "#" not in end:
            yield node.lineno, names[0]


def public(
    body: list[ast.stmt], prefix: str = ""
) -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            yield from public(node.body, prefix)
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        marks = {ast.unparse(d).split("(")[0].split(".")[-1] for d in node.decorator_list}
        if not marks & {"overload", "setter", "override"}:
            yield prefix + node.name, node
        if isinstance(node, ast.ClassDef):
            yield from public(node.body, f"{prefix}{node.name}.")


def undocumented(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for name, node in public(tree.body):
        if ast.get_docstring(node) is None:
            yield node.lineno, name


def faults(source: str, path: str = "here") -> list[Fault]:
    """Faults of a Python file of the package, by line."""
    tree = ast.parse(source)
    out = [*docstring_faults(source, path), *message_faults(source, path)]
    out += [Fault(path, line, "constant", name) for line, name in constants(tree, source)]
    out += [Fault(path, line, "undocumented", name) for line, name in undocumented(tree)]
    return sorted(out)


def docstring_faults(source: str, path: str) -> list[Fault]:
    """Faults of a Python file's docstrings and comments."""
    texts = (*docstrings(ast.parse(source)), *comments(source))
    return sorted(Fault(path, t.line, rule, said) for t in texts for rule, said in in_text(t))


def message_faults(source: str, path: str) -> list[Fault]:
    """Faults of the strings that are prose in a Python file."""
    return sorted(Fault(path, t.line, rule, said) for t in messages(ast.parse(source)) for rule, said in in_text(t))


def page_faults(source: str, path: str) -> list[Fault]:
    """Faults of a page of Markdown."""
    return sorted(Fault(path, t.line, rule, said) for t in page(source) for rule, said in in_text(t))


def outside_faults(source: str, path: str) -> list[Fault]:
    """Faults of a Python file outside the package: without PACKAGE_RULES, and its strings are data."""
    return [f for f in docstring_faults(source, path) if f.rule not in PACKAGE_RULES]


def reader(path: Path) -> Callable[[str, str], list[Fault]]:
    """The function that reads a file, by what it is."""
    if path.suffix == ".md":
        return page_faults
    return faults if path.resolve().is_relative_to(PACKAGE) else outside_faults


def files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted((*path.rglob("*.py"), *path.rglob("*.md"))) if path.is_dir() else [path]


def all_faults(paths: Sequence[Path] = ()) -> list[Fault]:
    """The faults of these files and folders; of all that is read if there are none."""
    here = Path.cwd()
    read = [ROOT / name for name in READ]
    return [
        f
        for path in files(list(paths) or [p.relative_to(here) if p.is_relative_to(here) else p for p in read])
        for f in reader(path)(path.read_text(encoding="utf-8"), str(path))
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.docs.language", description="The language of docstrings, comments, messages and pages."
    )
    parser.add_argument("paths", nargs="*", type=Path, help="files and folders; all that is read where none is given")
    parser.add_argument("--rules", default="", help="rules to hold, with commas between; all where none is given")
    parser.add_argument("--count", action="store_true", help="numbers by folder and rule only")
    options = parser.parse_args()
    rules = set(filter(None, options.rules.split(",")))
    found = [f for f in all_faults(options.paths) if not rules or f.rule in rules]
    if options.count:
        for (part, rule), count in sorted(Counter((str(Path(f.path).parent), f.rule) for f in found).items()):
            print(f"{count:5} {part} {rule}")
    else:
        print(*found, sep="\n") if found else None
    print(
        f"{len(found)} faults" if found else "the language of docstrings, comments, messages and pages holds", file=sys.stderr
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
