"""Pages of C and CUDA text: how holes are filled, and that each page says what its holes take."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tatami
from tatami.core.page import Page, page, read_page

PACKAGE = Path(tatami.__file__).parent
PAGES = sorted(p for p in PACKAGE.glob("*/pages/**/*") if p.is_file())
CODE = {folder: "".join(p.read_text() for p in (PACKAGE / folder).rglob("*.py")) for folder in ("c", "cu")}

TOP = "/* About.\n   @A  a\n*/\n"


def made(text: str) -> Page:
    return read_page("p", TOP + text)


def test_a_hole_in_a_line_takes_a_text() -> None:
    assert made("int @A = @A_B@C;\n").fill(A="x", A_B=1, C="") == "int x = 1;\n"
    assert made("u16x@W_u v;\n").fill(W=8) == "u16x8_u v;\n"


def test_a_hole_alone_on_its_line_takes_lines() -> None:
    p = made("{\n  @LINES\n}\n")
    assert p.fill(LINES=["a;", "if (b) {\n  c;\n}", "", "#if D"]) == "{\n  a;\n  if (b) {\n    c;\n  }\n\n#if D\n}\n"
    assert p.fill(LINES="a;\nb;\n") == "{\n  a;\n  b;\n}\n"
    assert p.fill(LINES=[]) == p.fill(LINES="") == "{\n}\n"


def test_lines_under_a_condition() -> None:
    p = made("@if ON\na @ON\n@if N\nb\n@else\nc\n@end\n@else\nd\n@end\n")
    assert p.fill(ON="x", N=0) == "a x\nc\n"
    assert p.fill(ON=True, N=2) == "a True\nb\n"
    assert p.fill(ON=[], N=2) == p.fill(ON="", N=0) == p.fill(ON=False, N=0) == "d\n"


def test_what_stands_in_a_hole_is_not_read_for_holes() -> None:
    assert made("@A\n@B\n").fill(A="@B\n@if C", B="x\u2028y\x0bz") == "@B\n@if C\nx\u2028y\x0bz\n"


def test_a_name_too_many_or_too_few_is_refused() -> None:
    for values in ({"A": "x"}, {"A": "x", "B": "y", "C": "z"}):
        with pytest.raises(ValueError, match="not both holes of the page and given"):
            made("@A @B\n").fill(**values)


def test_a_page_without_its_comment_is_refused() -> None:
    with pytest.raises(ValueError, match="begins with no comment"):
        read_page("p", "int x; /* about */\n")


def untold(p: Page) -> frozenset[str]:
    """Holes of a page that its comment does not name at the beginning of a line, and names there that are not holes."""
    told = {
        n for line in p.about.splitlines() for m in [re.match(r"   ((?:@[A-Z0-9_]+ +)+)\S", line)] if m for n in m[1].split()
    }
    return p.holes ^ {n.removeprefix("@") for n in told}


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_each_page_says_what_its_holes_take_and_is_used(path: Path) -> None:
    layer, _, *inside = path.relative_to(PACKAGE).parts
    name = "/".join(inside)
    p = page(f"tatami.{layer}", name)
    assert not untold(p), f"{path}: {untold(p)}"
    assert [f for f in re.findall(r"[\w/]+/\w+\.(?:py|c|cu)\b", p.about) if not (PACKAGE / f).is_file()] == []
    words = [w for line in p.lines for w in [line.strip()] if w in ("@end", "@else") or w.startswith("@if ")]
    assert words.count("@end") == sum(w.startswith("@if ") for w in words)
    code = CODE[layer]
    assert f'"{name}"' in code or f'_page("{name.removeprefix("products/").rpartition(".")[0]}")' in code, (
        f"no code fills {path}"
    )


def test_a_hole_that_the_comment_does_not_name_is_found() -> None:
    assert untold(made("@A @B\n")) == {"B"} and untold(made("x\n")) == {"A"} and not untold(made("@A\n"))
