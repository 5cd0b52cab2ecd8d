"""A page as a file: nothing from outside, one script of a known hash, names as data."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from functools import cache
from html import unescape
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

import tatami as tt
from tatami.cli import main
from tatami.core.diagnostic import TatamiError
from tatami.explorer.document import explored
from tatami.explorer.html import html, page_file, script
from tatami.explorer.ir import Explored
from tatami.prepare import prepare
from tests.explorer.pages import ATTENTION, DIGITS, HOSTILE, ROOT, hostile, page_of

MODULES = sorted((ROOT / "tatami" / "explorer" / "page").rglob("*.js"))


@cache
def text() -> str:
    return html(page_of(DIGITS))


def document_in(page: str) -> Explored:
    found = re.search(r'id="data">([^<]*)</script>', page)
    assert found is not None
    return msgspec.json.decode(gzip.decompress(base64.b64decode(found[1])), type=Explored)


def test_a_page_holds_its_document() -> None:
    assert msgspec.json.encode(document_in(text())) == msgspec.json.encode(page_of(DIGITS))


def test_a_page_is_the_same_each_time() -> None:
    assert html(page_of(DIGITS)) == text()


def test_the_policy_allows_the_script_of_the_page_alone_and_no_request() -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text())
    code = re.search(r'<script type="module">(.*)</script>\n</body>', text(), re.DOTALL)
    assert policy is not None and code is not None
    digest = base64.b64encode(hashlib.sha256(code[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy[1]
    assert "default-src 'none'" in policy[1] and "connect-src 'none'" in policy[1]


def test_a_page_names_no_address_outside() -> None:
    shown = re.sub(r'id="data">[^<]*<', "", text()).replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\(", shown)


def test_modules_of_the_page_never_parse_markup() -> None:
    for module in MODULES:
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function", module.read_text()), (
            module
        )


def test_the_script_holds_every_module_once() -> None:
    code = script()
    assert "import " not in re.sub(r"//.*", "", code) and not re.search(r"^export ", code, re.MULTILINE)
    for module in MODULES:
        first = module.read_text().splitlines()[0]
        assert code.count(first) == 1, module


def test_each_module_imports_what_it_uses() -> None:
    texts = {m.stem: m.read_text() for m in MODULES}
    exported = {
        name: stem
        for stem, text in texts.items()
        for name in re.findall(r"^export (?:async )?(?:const|function|class) (\w+)", text, re.MULTILINE)
    }
    assert len(exported) > 30
    for stem, text in texts.items():
        imported = set(re.findall(r"\w+", " ".join(re.findall(r"^import \{([^}]*)\}", text, re.MULTILINE))))
        code = re.sub(r"//[^\n]*|/\*.*?\*/|^import [^;]*;", "", text, flags=re.MULTILINE | re.DOTALL)
        code = re.sub(r'"[^"\n]*"', " ", code)
        used = {n for n in exported if exported[n] != stem and re.search(rf"(?<![\w.$]){n}\b(?!:)", code)}
        declared = set(re.findall(r"\b(?:const|let|function|class) (\w+)", code))
        taken = set(re.findall(r"\w+", " ".join(re.findall(r"\(([^()]*)\)\s*(?:=>|\{)|^  \w+\(", code, re.MULTILINE))))
        methods = set(re.findall(r"^  (\w+)\([^()]*\) \{", code, re.MULTILINE))
        assert used - declared - taken - methods <= imported, stem
        assert imported <= exported.keys(), stem


def test_no_two_modules_name_the_same_thing() -> None:
    names = re.findall(r"^(?:async )?(?:const|let|function|class) (\w+)|^  ([A-Z]+) = ", script(), re.MULTILINE)
    names = [one or other for one, other in names]
    assert len(names) > 50 and "LEFT" in names and sorted(names) == sorted(set(names))


def test_the_package_carries_the_files_of_the_page() -> None:
    assert "default-src" not in page_file("style.css") and page_file("main.js").startswith("//")


def test_hostile_names_stand_in_the_data_alone() -> None:
    page = html(explored(prepare(hostile(), target="cpu:avx2"), HOSTILE, HOSTILE))
    assert "onerror" not in page and document_in(page).model == HOSTILE


def test_explore_writes_a_page(tmp_path: Path) -> None:
    out = tmp_path / "p.html"
    result = CliRunner().invoke(main, ["explore", str(ATTENTION), "-D", "B=2", "-D", "T=16", "-o", str(out)])
    assert result.exit_code == 0, result.output
    assert document_in(out.read_text()).sizes == {"B": 2, "T": 16}
    assert result.output.strip() == str(out)


def test_explore_measures_kernels_when_asked(tmp_path: Path) -> None:
    out = tmp_path / "p.html"
    result = CliRunner().invoke(main, ["explore", str(ATTENTION), "--bench", "-o", str(out)])
    assert result.exit_code == 0, result.output
    page = document_in(out.read_text())
    assert page.whole and page.peaks is not None and page.peaks.measured
    assert all(k.seconds for k in page.kernels if k.program == "main" and k.symbols)


def test_explore_plays_the_stages_back_when_asked(tmp_path: Path) -> None:
    out = tmp_path / "p.html"
    result = CliRunner().invoke(main, ["explore", str(ATTENTION), "--playback", "-o", str(out)])
    assert result.exit_code == 0, result.output
    checks = document_in(out.read_text()).checks
    assert {"frontend", "tiny", "region"} <= {c.stage for c in checks} and not any(c.differs for c in checks)
    assert all(c.error < 1e-4 for c in checks)


def test_an_edited_stage_is_the_first_divergence_of_its_page(tmp_path: Path) -> None:
    folder, out = tmp_path / "dump", tmp_path / "p.html"
    harp = tmp_path / "m.harp"
    harp.write_text("graph main(x: f32[16]) -> (y: f32[16]) {\n    return exp(x) + 1.0\n}\n")
    assert CliRunner().invoke(main, ["compile", str(harp), "-o", str(folder), "--dump=all"]).exit_code == 0
    tiny = folder / "2_tiny.json"
    text = tiny.read_text()
    assert text.count('"EXP"') == 1
    tiny.write_text(text.replace('"EXP"', '"SIN"'))
    result = CliRunner().invoke(main, ["explore", str(folder), "--playback", "-o", str(out)])
    assert result.exit_code == 0, result.output
    checks = document_in(out.read_text()).checks
    assert next(c.stage for c in checks if c.differs) == "tiny" and "instead of" in next(c.differs for c in checks if c.differs)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["-o", "page.txt"], "not the name of an .html file"), (["--target", "reference"], "no stages to show"),
     (["--bench", "--target", "sm80"], "sm80")],
)  # fmt: skip
def test_what_cannot_be_explored_is_refused(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(main, ["explore", str(ATTENTION), *arguments])
    assert result.exit_code == 1 and words in result.output and result.output.count("error") <= 1


def test_a_function_shows_its_page_in_a_notebook(tmp_path: Path) -> None:
    page = tt.compile(ATTENTION, target="cpu:avx2").explore("attention")
    shown = page._repr_html_()
    assert shown.startswith("<iframe sandbox=") and page.text in unescape(shown)
    assert page.save(tmp_path / "a.html").read_text() == page.text


def test_a_title_that_is_no_text_is_refused() -> None:
    with pytest.raises(TatamiError, match="name"):
        tt.compile(ATTENTION, target="cpu:avx2").explore(3)
