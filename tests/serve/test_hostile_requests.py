"""Malformed, wrong and oversized requests: an error in OpenAI's form each, and a server that goes on."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tatami.serve import app
from tests.generation.stand_in import after
from tests.serve.served import MODEL, Running, serving, text_of


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving(context=64) as found:
        yield found


def ask(
    running: Running, data: bytes | None, path: str = "/v1/completions", method: str = "POST", **headers: str
) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", running.port, timeout=20)
    try:
        connection.request(method, path, data, {"Content-Type": "application/json", "Host": "localhost", **headers})
        answer = connection.getresponse()
        found = answer.read()
    finally:
        connection.close()
    return answer.status, json.loads(found) if answer.headers["content-type"] == "application/json" else found


def works(running: Running) -> bool:
    status, found = ask(running, json.dumps({"model": MODEL, "prompt": "1 2", "max_tokens": 3, "temperature": 0}).encode())
    return status == 200 and found["choices"][0]["text"] == text_of(after((1, 2), 3))


BASE = {"model": MODEL, "prompt": "1 2", "max_tokens": 2}
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "1"}], "max_tokens": 2}


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["1", 2]}, "prompt"),
        ({"prompt": [[1], "x"]}, None),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [1, 97]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [1 << 70]}, None),
        ({"prompt": "1 " * 64}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "3"}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"repetition_penalty": 1e-320}, "repetition_penalty"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"n": 0}, "n"),
        ({"n": 1000}, "n"),
        ({"n": 33, "prompt": ["1", "2"]}, "n"),
        ({"stop": [""]}, "stop[0]"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stop": 3}, "stop"),
        ({"seed": "x"}, "seed"),
        ({"presence_penalty": 1}, "presence_penalty"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"logprobs": 3}, "logprobs"),
        ({"echo": True}, "echo"),
        ({"best_of": 2}, "best_of"),
        ({"suffix": "x"}, "suffix"),
        ({"frobnicate": 1}, None),
    ],
)
def test_a_wrong_field_is_named(running: Running, changes: dict[str, Any], param: str | None) -> None:
    status, found = ask(running, json.dumps(BASE | changes).encode())
    assert status == 400
    assert found["error"]["type"] == "invalid_request_error"
    assert found["error"]["message"]
    if param is not None:
        assert found["error"]["param"] == param


@pytest.mark.parametrize(
    "changes",
    [
        {"messages": []},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]},
        {"messages": [{"role": "user", "content": "1", "tool_calls": []}]},
        {"messages": [{"role": "", "content": "1"}]},
        {"messages": "1"},
        {"tools": [{"type": "function"}]},
        {"response_format": {"type": "json_object"}},
        {"logprobs": True},
    ],
)
def test_a_wrong_conversation_is_refused(running: Running, changes: dict[str, Any]) -> None:
    status, found = ask(running, json.dumps(CHAT | changes).encode(), "/v1/chat/completions")
    assert status == 400
    assert found["error"]["message"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"x"',
        b"\xff\xfe",
        b'{"model": "\xff"}',
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"1e999999",
        b'{"model": NaN}',
    ],
)
def test_what_is_no_body_is_refused(running: Running, data: bytes) -> None:
    status, found = ask(running, data)
    assert status == 400
    assert found["error"]["message"]


def test_a_large_body_is_refused(running: Running) -> None:
    assert ask(running, b" " * (app.MOST_BODY + 1))[0] == 413


def test_a_chunked_body_that_is_too_large_is_refused(running: Running) -> None:
    connection = HTTPConnection("127.0.0.1", running.port, timeout=20)
    parts = (b" " * 65536 for _ in range(app.MOST_BODY // 65536 + 1))
    connection.request("POST", "/v1/completions", parts, {"Host": "localhost"}, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_a_body_that_does_not_arrive_ends(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "BODY_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", running.port)) as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        s.settimeout(5)
        assert b" 408 " in s.recv(4096)


def test_another_model_other_pages_and_methods(running: Running) -> None:
    status, found = ask(running, json.dumps(BASE | {"model": "gpt-9"}).encode())
    assert status == 404
    assert found["error"]["code"] == "model_not_found"
    assert ask(running, None, "/v1/models/../../etc/passwd", "GET")[0] == 404
    assert ask(running, None, "/nowhere", "GET")[0] == 404
    assert ask(running, None, "/v1/completions", "GET")[0] == 405
    assert ask(running, None, "/v1/completions", "DELETE")[0] == 405


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil", "[::2]:80", ""]
)
def test_pages_of_other_hosts_cannot_reach_a_local_server(running: Running, host: str) -> None:
    assert ask(running, json.dumps(BASE).encode(), Host=host)[0] in (400, 403)
    assert ask(running, None, "/v1/models", "GET", Host=host)[0] in (400, 403)


@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost.evil:80", "null", "", "http://127.0.0.1.evil"])
def test_pages_of_other_origins_cannot_ask_a_local_server(running: Running, origin: str) -> None:
    """A form of text/plain goes to another origin without a question."""
    assert ask(running, json.dumps(BASE).encode(), Origin=origin, **{"Content-Type": "text/plain"})[0] == 403
    assert ask(running, json.dumps(BASE).encode(), Origin="http://localhost:3000")[0] == 200


def test_the_least_temperature_harms_nobody(running: Running) -> None:
    status, _ = ask(running, json.dumps(BASE | {"temperature": 1e-310}).encode())
    assert status == 200
    assert works(running)


def test_a_prompt_becomes_tokens_once(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    tokenizer = running.server.generator.tokenizer
    assert tokenizer is not None
    work = tokenizer.tokens

    def counted(text: str) -> tuple[int, ...]:
        texts.append(text)
        return work(text)

    monkeypatch.setattr(tokenizer, "tokens", counted)
    status, found = ask(running, json.dumps(BASE | {"n": 8}).encode())
    assert (status, len(found["choices"]), texts) == (200, 8, ["1 2"])


def test_a_prompt_that_does_not_fit_is_refused_before_its_answers_are_made(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    work = running.server.generator.sequence

    def counted(*given: Any) -> Any:
        made.append(given)
        return work(*given)

    monkeypatch.setattr(running.server.generator, "sequence", counted)
    status, found = ask(running, json.dumps(BASE | {"n": 32, "prompt": "1 " * 400_000}).encode())
    assert (status, found["error"]["code"], len(made)) == (400, "context_length_exceeded", 1)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]", "[::1]:80"])
def test_names_of_this_machine_reach_it(running: Running, host: str) -> None:
    assert ask(running, None, "/v1/models", "GET", Host=host)[0] == 200


def test_a_key() -> None:
    with serving(key="correct horse battery") as running:
        for given in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "correct horse battery"},
            {"Authorization": "Bearer \xff"},
        ):
            status, found = ask(running, json.dumps(BASE).encode(), **given)
            assert status == 401
            assert found["error"]["type"] == "authentication_error"
        good = {"Authorization": "Bearer correct horse battery", "Host": "any.example"}
        assert ask(running, json.dumps(BASE).encode(), **good)[0] == 200
        assert ask(running, None, "/metrics", "GET")[0] == 401
        assert ask(running, None, "/metrics", "GET", **good)[0] == 200
        assert ask(running, None, "/health", "GET")[0] == 200


@pytest.mark.parametrize(
    "raw",
    [b"\x00" * 100, b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n", b"GET /" + b"a" * 100_000, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n"],
)  # fmt: skip
def test_what_is_no_http_is_refused(running: Running, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", running.port)) as s:
        s.settimeout(5)
        s.sendall(raw)
        s.shutdown(socket.SHUT_WR)
        try:
            while s.recv(4096):
                pass
        except ConnectionResetError:
            pass
    assert works(running)


ANY_JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8), lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=8), x, max_size=3), max_leaves=6)  # fmt: skip
FIELDS = ("prompt", "messages", "max_tokens", "n", "stream", "stop", "seed", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "stream_options", "user")  # fmt: skip


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from(FIELDS), ANY_JSON, max_size=4), st.booleans())
def test_any_values_are_answered_or_refused(running: Running, values: dict[str, Any], chat: bool) -> None:
    data = json.dumps((CHAT if chat else BASE) | values).encode("utf-8", "surrogatepass")
    status, _ = ask(running, data, "/v1/chat/completions" if chat else "/v1/completions")
    assert status in (200, 400, 429)


def test_afterwards_the_server_works_and_nothing_is_held(running: Running) -> None:
    assert works(running)
    assert running.is_idle_within(10)
    text = ask(running, None, "/metrics", "GET")[1].decode()
    assert "tatami_running 0" in text
    assert 'tatami_requests_total{status="400"}' in text
    assert "tatami_faults_total 0" in text
