"""The served page: who may ask, what an edit is answered, and that it ends in time."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from tatami.cli import main
from tatami.cli.explore_worker import answer
from tatami.decisions import Decisions
from tatami.explorer.messages import Answer, Edit
from tatami.explorer.serve import MOST_BYTES, Server
from tests.explorer.browser import opened
from tests.explorer.pages import DIGITS, page_of

pytest.importorskip("starlette", reason="the extra explorer is not installed")
import uvicorn

pytestmark = pytest.mark.xdist_group("browser")
EDIT = Edit(str(DIGITS), "cpu:avx2", {}, None, False, Decisions(), "", {})


@contextmanager
def running(limit: float = 60.0) -> Iterator[Server]:
    server = Server(page_of(DIGITS), EDIT, "tatami.cli.explore_worker", limit)
    config = uvicorn.Config(server.application(), host="127.0.0.1", port=0, log_level="error", access_log=False)
    serving = uvicorn.Server(config)
    thread = threading.Thread(target=serving.run, daemon=True)
    thread.start()
    until = time.monotonic() + 20
    while not serving.started:
        assert time.monotonic() < until
        time.sleep(0.02)
    server.port = serving.servers[0].sockets[0].getsockname()[1]
    yield server
    serving.should_exit = True
    thread.join(20)


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
    assert ask(server, f"/{server.token}/plan", {"key": key, "plan": plan}, **headers)[0] == 404


def test_a_wrong_token_and_an_edit_without_an_origin_get_nothing(server: Server) -> None:
    assert ask(server, "/x/")[0] == 404 and ask(server, "/")[0] == 404
    key, plan = first(server)
    assert ask(server, "/x/plan", {"key": key, "plan": plan})[0] == 404
    assert ask(server, f"/{server.token}/plan", {"key": key, "plan": plan}, Origin="")[0] == 404


def test_an_edit_that_is_no_edit_is_refused(server: Server) -> None:
    path = f"/{server.token}/plan"
    assert ask(server, path, b"x", Content_Type="text/plain")[0] == 415
    assert ask(server, path, b" " * (MOST_BYTES + 1))[0] == 413
    assert "cannot be read" in faults(ask(server, path, b"{"))[0]
    assert "cannot be read" in faults(ask(server, path, {"key": "a", "plan": {}, "more": 1}))[0]
    assert "no kernel" in faults(ask(server, path, {"key": "a", "plan": {}}))[0]


def test_a_plan_is_compiled_or_refused_with_the_reason(server: Server) -> None:
    key, plan = first(server)
    path = f"/{server.token}/plan"
    assert faults(ask(server, path, {"key": key, "plan": plan | {"mr": 7}}))
    assert "unknown plan field" in faults(ask(server, path, {"key": key, "plan": plan | {"import": "os"}}))[0]
    status, text = ask(server, path, {"key": key, "plan": plan | {"kc": 64}})
    found = msgspec.json.decode(text, type=Answer)
    assert status == 200 and found.page and not found.faults


def test_an_edit_that_takes_too_long_is_ended() -> None:
    with running(limit=0.05) as server:
        key, plan = first(server)
        start = time.monotonic()
        assert "not compiled within" in faults(ask(server, f"/{server.token}/plan", {"key": key, "plan": plan}))[0]
        assert time.monotonic() - start < 20


def test_the_worker_says_what_the_compiler_says() -> None:
    edit = msgspec.structs.replace(EDIT, model="no-such.onnx", key="k", plan={})
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
