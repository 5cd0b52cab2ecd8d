"""Broken texts: each gives located diagnostics, or is a program; never a traceback, and soon."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tatami as tt
from tatami.cli import main
from tatami.core.diagnostic import TatamiError
from tests.harp.programs import PROGRAMS

CONSTANTS = {"w": np.ones((4, 3, 3, 3), np.float32)}
TOKEN = re.compile(r'\s+|//[^\n]*|"[^"\n]*"|[A-Za-z_]\w*|[0-9.]+|->|[<>=!]=|<<|>>|\*\*|\.\.\.|.', re.S)
ODD = [
    "\0", "\x1b[31m", "é", "世界", "\U0001f600", "\ufeff", "\u202e", "\t", "\r", "\v", "\\", "'", '"', "`", "$", "#", ";",
    "//", "/*", "9" * 400, "1e999", "-1", "99999999999999999999", "9223372036854775808", "0x10", "(" * 300, "[" * 300,
    "-" * 300, "!" * 300, "{" * 50, ")" * 50, "x" * 5000, "inf", "nan", "none", "true", "return", "graph", "fused", "main",
    "f32", "idx0", "N / 0", "1 / 0", "2 ** 4096", "N * N * N", "x.sum()", "[[[[]]]]", "(1, 2)", "f32[2]", '"w"', "= =", "->",
    "constant(f32[2], [1, 2])", "...", ":", "::", ",", ",,", "+ + x", "main(x)", "x[0]", "x[x]", "x @ x", "sizes", "-9" * 60,
]  # fmt: skip


def tokens(text: str) -> list[str]:
    return TOKEN.findall(text)


def deleted(words: list[str], rng: random.Random) -> None:
    del words[rng.randrange(len(words))]


def doubled(words: list[str], rng: random.Random) -> None:
    at = rng.randrange(len(words))
    words[at:at] = [words[at]] * rng.choice([1, 1, 2, 200])


def swapped(words: list[str], rng: random.Random) -> None:
    a, b = rng.randrange(len(words)), rng.randrange(len(words))
    words[a], words[b] = words[b], words[a]


def replaced(words: list[str], rng: random.Random) -> None:
    words[rng.randrange(len(words))] = rng.choice(words)


def odd(words: list[str], rng: random.Random) -> None:
    words.insert(rng.randrange(len(words)), rng.choice(ODD))


def odd_word(words: list[str], rng: random.Random) -> None:
    places = [i for i, w in enumerate(words) if re.match(r"\w", w)]
    words[rng.choice(places or [0])] = rng.choice(ODD)


def cut(words: list[str], rng: random.Random) -> None:
    del words[rng.randrange(len(words)) :]


def noise(words: list[str], rng: random.Random) -> None:
    at = rng.randrange(len(words))
    words[at : at + 1] = [bytes(rng.randrange(256) for _ in range(8)).decode("latin-1")]


MUTATIONS: list[Callable[[list[str], random.Random], None]] = [
    deleted, deleted, doubled, swapped, replaced, replaced, odd, odd_word, odd_word, odd_word, cut, noise,
]  # fmt: skip


def mutated(seed: int) -> str:
    rng = random.Random(seed)
    words = tokens(PROGRAMS[rng.choice(sorted(PROGRAMS))])
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        if words:
            rng.choice(MUTATIONS)(words, rng)
    return "".join(words)


def check_located(text: str) -> bool:
    """True if the text is a program. Asserts that each diagnostic of another text has its place in it."""
    try:
        tt.parse(text, CONSTANTS, "m.harp")
        return True
    except TatamiError as error:
        lines = text.split("\n")
        for d in error.diagnostics:
            place = re.fullmatch(r"m\.harp:(\d+):(\d+)", d.at)
            assert place, d
            line, column = int(place[1]), int(place[2])
            assert 1 <= line <= len(lines) and 1 <= column <= len(lines[line - 1]) + 1, d
            assert d.excerpt.split("\n")[1].strip(" |").startswith("^"), d
            assert d.why and d.suggestion and len(str(d)) < 2000, d
        assert error.diagnostics
    return False


def test_the_programs_are_programs() -> None:
    for name, text in PROGRAMS.items():
        assert check_located(text), name


TEXTS = int(os.environ.get("TATAMI_MUTATED_TEXTS", "200"))
"""How many texts are broken; 500 and more for a longer run."""


@pytest.mark.parametrize("block", range(TEXTS // 20))
def test_mutated_texts_give_located_errors(block: int) -> None:
    """20 texts a block; a few of them stay programs."""
    legal = [seed for seed in range(20 * block, 20 * block + 20) if check_located(mutated(seed))]
    assert len(legal) < 15


DEEP = 100_000


@pytest.mark.parametrize(
    "text",
    [
        "(" * DEEP,
        "[" * DEEP,
        "graph main() -> f32[] { return " + "(" * DEEP + "1.0" + ")" * DEEP + " }",
        "graph main() -> f32[] { return " + "-" * DEEP + "1.0 }",
        "graph main() -> f32[] { return " + "-(" * 90 + "1.0" + ")" * 90 + " }",
        "graph main() -> f32[] { return " + "1.0" + " + 1.0" * 5000 + " }",
        "graph main() -> f32[] { return " + "1.0" + ".exp()" * 3000 + " }",
        "graph main() -> f32[" + "[" * DEEP + "] { }",
        "graph main() -> f32[] { return x" + "[0]" * 5000 + " }",
        "graph main() -> f32[] { return " + "relu(" * 60 + "1.0" + ")" * 60 + " }",
        "graph main() -> f32[] { return " + "-(" * 30 + "1.0" + ")" * 30 + " }",
        "graph main() -> f32[] { return " + "[" * 60 + "1.0" + "]" * 60 + " }",
        "graph<" + "N=1," * 5000 + "> main() -> f32[] { }",
        "graph main(" + "x: f32[], " * 5000 + ") -> f32[] { return x }",
        "graph f() -> f32[] { }\n" * 3000,
        "graph<N=2> main(x: f32[" + "*".join(["(N + M + K + 1)"] * 40) + "]) -> f32[] { return x.sum() }",
        "graph<N=2, M=2, K=2> main(x: f32[" + "*".join(["(N + M + K + 1)"] * 40) + "]) -> f32[] { return x.sum() }",
        "graph<N=2> main(x: f32[" + "*".join(["N"] * 1000) + "]) -> f32[] { return x.sum() }",
        "graph<N=2> main(x: f32[" + "/".join(["(N + 1)"] * 90) + "]) -> f32[] { return x.sum() }",
        "graph main(x: f32[" + "9" * 19 + "]) -> f32[] { return x.sum() }",
        "graph main(x: f32[1]) -> f32[] { return x[" + "9" * 19 + "].sum(99999999999) }",
        "graph main() -> f32[] { a = " + "2 ** 62 * " * 50 + "2 return a }",
        "".join(f"graph g{k}(x: f32[]) -> f32[] {{ return g{k + 1}(x) }}\n" for k in range(1000)) + "graph g1000(x: f32[]) -> f32[] { return x }",
        "graph main() -> f32[] { return constant(f32[2, 2], [[1, 2], [3]])[0, 0] }",
        "graph main() -> f32[] { return full([99999999999, 99999999999], 1.0, f32).sum() }",
        "a" * 900_000,
        "\0" * 900_000,
        "//" + "x" * 900_000,
        " " * 900_000,
        "x" * 2_000_000,
        "",
    ],
    ids=range(31),
)  # fmt: skip
def test_large_and_deep_texts_end(text: str) -> None:
    check_located(text)


@pytest.mark.parametrize(
    ("data", "at", "kind"),
    [
        (b"graph main() -> f32[] {\n  y = \xff }", "m.harp:2:7", "ParseError"),
        (b"\xef\xbb\xbfgraph main() -> f32[] { return 1.0 }", None, None),
        ("graph é() -> f32[] { }".encode("utf-16"), "m.harp:1:1", "ParseError"),
        (b"\x00" * 100, "m.harp:1:1", "ParseError"),
        (b"", "m.harp", "FileUnreadable"),
        (b"x" * 5_000_000, "m.harp", "InputTooLarge"),
        (b"x" * 1_100_000, "m.harp:1:1048577", "InputTooLarge"),
    ],
)
def test_files_that_are_no_text_give_one_diagnostic(tmp_path: Path, data: bytes, at: str | None, kind: str | None) -> None:
    path = tmp_path / "m.harp"
    path.write_bytes(data)
    result = CliRunner().invoke(main, ["check", str(path)])
    assert "Traceback" not in result.output + result.stderr
    assert result.exit_code == (kind is not None)
    if kind is not None and at is not None:
        assert len(re.findall(r"^E\d{4} ", result.stderr, re.M)) == 1
        assert f"{kind} at " in result.stderr and at in result.stderr


def test_a_terminal_is_sent_no_control_characters(tmp_path: Path) -> None:
    path = tmp_path / "m.harp"
    path.write_text("graph main() -> f32[] { \x1b[31m y }")
    result = CliRunner().invoke(main, ["check", str(path)])
    assert result.exit_code == 1 and "\x1b" not in result.stderr
