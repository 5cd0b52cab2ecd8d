"""The served page: who may ask, what an edit is answered, and that it ends in time."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from tatami.cli import main
from tatami.cli.explore_worker import answer
from tatami.explorer.messages import Answer, PlanEdit
from tatami.explorer.serve import MOST_BYTES, Server
from tests.explorer.browser import Browser, opened
from tests.explorer.pages import DIGITS

pytest.importorskip("starlette", reason="the extra explorer is not installed")
from tests.explorer.serving import EDIT, running

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as found:
        yield found


def ask(server: Server, path: str, body: object = None, **headers: str) -> tuple[int, bytes]:
    """(status, body) of the reply; `headers` replace this server's own Host and Origin."""
    own = f"127.0.0.1:{server.port}"
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    sent = {"Host": own, **({"Origin": f"http://{own}", "Content-Type": "application/json"} if body is not None else {})}
    sent |= {k.replace("_", "-"): v for k, v in headers.items()}
    sent = {k: v for k, v in sent.items() if v}
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    connection.request("GET" if body is None else "POST", path, data, sent)
    reply = connection.getresponse()
    found = reply.status, reply.read()
    connection.close()
    return found


def first(server: Server) -> tuple[str, dict[str, Any]]:
    kernel = next(k for k in server.page.kernels if k.name == "r0" and k.program == "main")
    return kernel.key, dict(kernel.choices[0].fields)


def faults(reply: tuple[int, bytes]) -> list[str]:
    assert reply[0] == 200
    return [f"{d.kind}: {d.why}" for d in msgspec.json.decode(reply[1], type=Answer).faults]


def test_the_page_is_served_to_who_knows_the_token(server: Server) -> None:
    status, text = ask(server, f"/{server.token}/")
    assert status == 200 and b"data-edits=" in text and b"connect-src 'self'" in text


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Host": "localhost"}, {"Origin": "http://evil.example"}, {"Origin": "null"}],
)
def test_a_page_of_another_origin_gets_nothing(server: Server, headers: dict[str, str]) -> None:
    assert ask(server, f"/{server.token}/", **headers)[0] == 404
    key, plan = first(server)
    assert ask(server, f"/{server.token}/edit", {"ask": "plan", "key": key, "plan": plan}, **headers)[0] == 404


def test_a_wrong_token_and_an_edit_without_an_origin_get_nothing(server: Server) -> None:
    assert ask(server, "/x/")[0] == 404 and ask(server, "/")[0] == 404
    key, plan = first(server)
    assert ask(server, "/x/edit", {"ask": "plan", "key": key, "plan": plan})[0] == 404
    assert ask(server, f"/{server.token}/edit", {"ask": "plan", "key": key, "plan": plan}, Origin="")[0] == 404


def test_an_edit_that_is_no_edit_is_refused(server: Server) -> None:
    path = f"/{server.token}/edit"
    status, text = ask(server, path, b"x", Content_Type="text/plain")
    assert status == 415 and [d.kind for d in msgspec.json.decode(text, type=Answer).faults] == ["InvalidDocument"]
    status, text = ask(server, path, b" " * (MOST_BYTES + 1))
    assert status == 413 and [d.kind for d in msgspec.json.decode(text, type=Answer).faults] == ["InputTooLarge"]
    assert "cannot be read" in faults(ask(server, path, b"[" * 100_000))[0]
    assert "cannot be read" in faults(ask(server, path, b"{"))[0]
    assert "cannot be read" in faults(ask(server, path, {"ask": "plan", "key": "a", "plan": {}, "more": 1}))[0]
    assert "no kernel" in faults(ask(server, path, {"ask": "plan", "key": "a", "plan": {}}))[0]


def test_a_plan_is_compiled_or_refused_with_the_reason(server: Server) -> None:
    key, plan = first(server)
    path = f"/{server.token}/edit"
    assert faults(ask(server, path, {"ask": "plan", "key": key, "plan": plan | {"mr": 7}}))
    assert "unknown plan field" in faults(ask(server, path, {"ask": "plan", "key": key, "plan": plan | {"import": "os"}}))[0]
    status, text = ask(server, path, {"ask": "plan", "key": key, "plan": plan | {"kc": 64}})
    found = msgspec.json.decode(text, type=Answer)
    assert status == 200 and found.page and not found.faults


def test_an_edit_that_takes_too_long_is_ended() -> None:
    with running(limit=0.05) as server:
        key, plan = first(server)
        start = time.monotonic()
        assert (
            "not compiled within" in faults(ask(server, f"/{server.token}/edit", {"ask": "plan", "key": key, "plan": plan}))[0]
        )
        assert time.monotonic() - start < 20


def test_the_worker_says_what_the_compiler_says() -> None:
    edit = msgspec.structs.replace(EDIT, model="no-such.onnx", asked=PlanEdit("k", {}))
    assert answer(edit).faults and not answer(edit).page


def test_a_plan_is_edited_in_a_browser(server: Server) -> None:
    with opened() as browser:
        browser.open(server.address, "view=kernels&kernel=0")
        browser.one("details.edit summary").click()
        field = browser.one("form.edit input[name=mr]")
        field.clear()
        field.send_keys("7\n")
        browser.wait(lambda: browser.all(".faults li"))
        assert re.search(r"E\d{4} \w+ at .*: ", browser.text(".faults li"))
        browser.one("form.edit button[type=reset]").click()
        field = browser.one("form.edit input[name=kc]")
        field.clear()
        field.send_keys("64\n")
        browser.wait(lambda: "Accepted" in browser.text(".answer"))
        next(b for b in browser.all(".answer button") if "compare" in b.text).click()
        assert "kernels changed" in browser.wait(lambda: browser.all("summary") and browser.text("summary"))
        assert {u.split("/")[2] for u in browser.requests()} == {f"127.0.0.1:{server.port}"}
        assert browser.complaints() == []


def test_the_command_serves_until_it_is_interrupted() -> None:
    command = [sys.executable, "-m", "tatami", "explore", str(DIGITS), "--target", "cpu:avx2", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.match(r"http://127\.0\.0\.1:(\d+)/([\w-]{32})/", process.stdout.readline())
            assert found is not None
            connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
            connection.request("GET", f"/{found[2]}/")
            reply = connection.getresponse()
            assert (reply.status, b"Tatami explorer" in reply.read()) == (200, True)
            connection.close()
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
            assert (process.returncode, said) == (0, "")
        finally:
            process.kill()


@pytest.mark.parametrize("arguments", [["--serve", "-o", "p.html"], ["--port", "8080"]])
def test_options_that_contradict_each_other_are_refused(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["explore", str(DIGITS), *arguments])
    assert result.exit_code == 1 and result.output.startswith("E1")


def test_without_the_extra_one_diagnostic_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "starlette", None)
    result = CliRunner().invoke(main, ["explore", str(DIGITS), "--target", "cpu:avx2", "--serve"])
    assert result.exit_code == 1 and "tatami[explorer]" in result.output


def typed(browser: Browser, old: str, new: str) -> None:
    """Replace a text of the open document, as typing does, and press Ctrl+Enter in it."""
    browser.js(
        "const [a, b] = arguments; const t = document.querySelector('.editor textarea'); t.focus();"
        "const at = t.value.indexOf(a); t.setSelectionRange(at, at + a.length); document.execCommand('insertText', false, b)",
        old,
        new,
    )
    browser.chord("CONTROL", "ENTER")


def refused(browser: Browser) -> str:
    """The text of the faults, once there are some."""
    browser.wait(lambda: browser.all(".faults li"))
    return browser.text(".faults")


def test_a_document_is_edited_in_a_browser(server: Server, tmp_path: Path) -> None:
    with opened() as browser:
        browser.saves_to(tmp_path)
        browser.open(server.address, "panes=region,loop")
        browser.one('[aria-label="edit region"]').click()
        browser.wait(lambda: "6_region.json" in browser.text(".answer"))
        browser.open(server.address, "view=edit")
        browser.wait(lambda: "8_plan.json" in browser.text(".answer"))
        typed(browser, '"mr": 6', '"mr": 7')
        assert "E1502 ResourceExceeded" in refused(browser)
        assert browser.js("return document.querySelector('.numbers .bad').textContent") in browser.text(".faults button")
        assert browser.all(".bars .bad") and browser.js("return document.activeElement.ariaInvalid ?? 'true'") == "true"
        typed(browser, '"mr": 7', '"mr": 4')
        assert browser.wait(lambda: "4 stages changed" in browser.text(".answer"))
        assert browser.all(".changed .line.differs") and not browser.all(".bars .bad")
        next(b for b in browser.all(".tools button") if b.text == "save document").click()
        saved = tmp_path / "8_plan-edited.json"
        browser.wait(saved.exists)
        assert '"mr": 4' in saved.read_text()
        next(b for b in browser.all(".answer button") if "compare" in b.text).click()
        assert "kernels changed" in browser.wait(lambda: browser.all("summary") and browser.text("summary"))
        browser.driver.back()
        assert '"mr": 4' in browser.js("return document.querySelector('.editor textarea').value")  # the edit is kept
        browser.one("select").send_keys("c")  # code is not shown without --trust
        assert "E1610 Untrusted" in refused(browser)
        assert {u.split("/")[2] for u in browser.requests()} == {f"127.0.0.1:{server.port}"}
        assert browser.complaints() == []
