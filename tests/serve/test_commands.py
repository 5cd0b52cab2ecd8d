"""`tatami generate` and `tatami serve` as processes, with a file."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import openai
import pytest
from click.testing import CliRunner, Result

from tatami.cli import main
from tatami.generation.generator import Generator
from tests.gguf.small import small_model

PROMPT = "The rain began"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("small") / "small.gguf")


@pytest.fixture(scope="module")
def expected(path: Path) -> str:
    return Generator.open(path).generate(PROMPT, most=12).text


def tatami(*arguments: str, stdin: str | None = None, **environment: str | None) -> Result:
    return CliRunner().invoke(main, list(arguments), env=environment, input=stdin)


def test_generate_prints_the_text_and_its_speed(path: Path, expected: str) -> None:
    found = tatami("generate", str(path), "-p", PROMPT, "-n", "12")
    assert found.exit_code == 0
    assert found.stdout == expected + "\n"
    assert re.search(r"tokens read in [\d.]+ s, 12 generated at [\d.]+ tokens/s \(length\)", found.stderr)
    piped = tatami("generate", str(path), "-n", "12", stdin=PROMPT)
    assert (piped.exit_code, piped.stdout) == (0, found.stdout), piped.stderr


def test_a_precision_that_changes_nothing_is_told(tmp_path: Path) -> None:
    """The weights of the file are floats, which int8 does not round."""
    path = str(small_model(tmp_path / "floats.gguf", "F16"))
    exact, found = (tatami("generate", path, "-p", PROMPT, "-n", "3", "--precision", p) for p in ("fp32", "int8"))
    assert (found.exit_code, found.stdout) == (0, exact.stdout)
    assert "W2504 PrecisionKept" in found.stderr and "W2504" not in exact.stderr


def test_generate_draws_by_seed_and_stops(path: Path, expected: str) -> None:
    drawn = [
        tatami("generate", str(path), "-p", PROMPT, "-n", "9", "--temperature", "1.5", "--seed", s).stdout
        for s in ("1", "1", "2")
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    stop = expected[3:6]
    stopped = tatami("generate", str(path), "-p", PROMPT, "-n", "12", "--stop", stop)
    assert stopped.stdout == expected[: expected.index(stop)] + "\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-n", "0"), "0' tokens"),
        (("--temperature", "-1"), "temperature is -1"),
        (("--context", "1000"), "the model was made for 128"),
        (("-p", "x " * 300), "the context has room for 128"),
        (("--stop", ""), "a stop string is empty"),
    ],
)
def test_a_wrong_option_is_one_diagnostic(path: Path, arguments: tuple[str, ...], words: str) -> None:
    found = tatami("generate", str(path), "-p", "x", *arguments)
    assert found.exit_code == 1
    assert words in found.output
    assert "Traceback" not in found.output


@pytest.mark.parametrize(
    ("arguments", "key", "words"),
    [(("--host", "0.0.0.0"), None, "reached from other machines"), ((), "short", "it is not a key"), (("--port", "70000"), None, "below 65536"), (("--slots", "0"), None, "slots is '0'")],
)  # fmt: skip
def test_an_unsafe_server_is_refused(path: Path, arguments: tuple[str, ...], key: str | None, words: str) -> None:
    found = tatami("serve", str(path), *arguments, TATAMI_API_KEY=key)
    assert found.exit_code == 1
    assert words in found.output


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_serve_answers_until_a_signal(path: Path, expected: str, sent: signal.Signals, code: int) -> None:
    command = [sys.executable, "-m", "tatami", "serve", str(path), "--port", "0", "--slots", "2"]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TATAMI_API_KEY": "key of this test"},
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a background job begins with it ignored
    )
    try:
        assert process.stderr is not None
        assert select.select([process.stderr], [], [], 120)[0]
        said = process.stderr.readline()
        url = re.search(r"http://127\.0\.0\.1:\d+/v1", said)
        assert url, said
        with openai.OpenAI(base_url=url[0], api_key="key of this test") as client:
            assert (
                client.completions.create(model="small", prompt=PROMPT, max_tokens=12, temperature=0).choices[0].text
                == expected
            )
            chat = client.chat.completions.create(model="small", messages=[{"role": "user", "content": PROMPT}], max_tokens=5)
            assert chat.choices[0].finish_reason in ("length", "stop")
        process.send_signal(sent)
        assert process.wait(30) == code
    finally:
        process.kill()
        process.communicate()
