"""The server against the package `openai`, and many clients at once."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from tests.generation.stand_in import after
from tests.serve.served import MODEL, Running, serving, text_of


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving() as found:
        yield found


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as found:
        yield found


def test_a_completion(client: openai.OpenAI) -> None:
    found = client.completions.create(model=MODEL, prompt="3 1 4", max_tokens=7, temperature=0)
    (choice,) = found.choices
    assert choice.text == text_of(after((3, 1, 4), 7))
    assert choice.finish_reason == "length"
    assert found.usage is not None
    assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens) == (3, 7, 10)


def test_completions_of_several_prompts_and_of_tokens(client: openai.OpenAI) -> None:
    found = client.completions.create(model=MODEL, prompt=["3 1 4", "1 5"], max_tokens=4, n=2, temperature=0)
    assert [c.text for c in found.choices] == [text_of(after(p, 4)) for p in ((3, 1, 4), (3, 1, 4), (1, 5), (1, 5))]
    assert [c.index for c in found.choices] == [0, 1, 2, 3]
    assert found.usage is not None
    assert found.usage.prompt_tokens == 5
    assert client.completions.create(model=MODEL, prompt=[9, 2, 6], max_tokens=4, temperature=0).choices[0].text == text_of(
        after((9, 2, 6), 4)
    )
    many = client.completions.create(model=MODEL, prompt=[[9, 2], [6]], max_tokens=4, temperature=0)
    assert [c.text for c in many.choices] == [text_of(after(p, 4)) for p in ((9, 2), (6,))]


def test_a_conversation(client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": "3 1"}, {"role": "user", "content": [{"type": "text", "text": "4"}]}]
    found = client.chat.completions.create(model=MODEL, messages=messages, max_completion_tokens=5, temperature=0)
    assert found.choices[0].message.content == text_of(after((3, 1, 4), 5))
    assert found.choices[0].message.role == "assistant"


def test_streams(client: openai.OpenAI) -> None:
    want = [f"{t} " for t in after((2, 7), 9)]
    pieces = client.completions.create(model=MODEL, prompt="2 7", max_tokens=9, temperature=0, stream=True)
    choices = [p.choices[0] for p in pieces]
    assert [c.text for c in choices] == [*want, ""]
    assert [c.finish_reason for c in choices] == [None] * 9 + ["length"]
    chat = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "2 7"}], max_tokens=9, temperature=0, stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    *said, counts = chat
    assert [c.choices[0].delta.content for c in said] == ["", *want, None]
    assert said[0].choices[0].delta.role == "assistant"
    assert counts.usage is not None
    assert counts.usage.completion_tokens == 9
    assert not counts.choices


def test_stop_strings_and_seeds(client: openai.OpenAI) -> None:
    tokens = after((3, 1, 4), 9)
    found = client.completions.create(
        model=MODEL, prompt="3 1 4", max_tokens=50, temperature=0, stop=[f"{tokens[4]} {tokens[5]}"]
    )
    assert found.choices[0].text == text_of(tokens[:4])
    assert found.choices[0].finish_reason == "stop"
    drawn = [
        client.completions.create(model=MODEL, prompt="3", max_tokens=20, temperature=2.0, seed=s).choices[0].text
        for s in (5, 5, 6)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_models(client: openai.OpenAI) -> None:
    assert [m.id for m in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "tatami"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_a_thousand_requests_from_16_clients() -> None:
    """None is lost, and none has the answer of another."""
    with (
        serving(slots=8, places=64) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="x", max_retries=0, timeout=60) as client,
    ):

        def ask(i: int) -> bool:
            prompt, most = (i % 97, i // 97, i % 13), 1 + i % 9
            text = " ".join(map(str, prompt))
            if i % 2:
                pieces = client.completions.create(model=MODEL, prompt=text, max_tokens=most, temperature=0, stream=True)
                found = "".join(p.choices[0].text for p in pieces)
            else:
                found = client.completions.create(model=MODEL, prompt=text, max_tokens=most, temperature=0).choices[0].text
            return found == text_of(after(prompt, most))

        with ThreadPoolExecutor(16) as pool:
            assert all(pool.map(ask, range(1000)))
        assert running.is_idle_within(5)
        assert running.server.metrics.value("tatami_requests_total", 'status="200"') == 1000
        assert running.server.metrics.value("tatami_generated_tokens_total") == sum(1 + i % 9 for i in range(1000))
        assert running.server.metrics.value("tatami_cancelled_total") == 0


def body(**fields: object) -> bytes:
    return json.dumps({"model": MODEL, "prompt": "1 2", "temperature": 0, **fields}).encode()


def post(data: bytes, path: str = "/v1/completions") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_a_client_that_leaves_frees_its_place(stream: bool, waits: bool) -> None:
    """While its answer is generated, and while it waits for a slot."""
    with serving(slots=1 if waits else 4, places=4) as running:
        running.program.seconds = 0.05
        sockets = []
        for _ in range(4):
            s = socket.create_connection(("127.0.0.1", running.port))
            s.sendall(post(body(max_tokens=200, stream=stream)))
            sockets.append(s)
        while running.server.worker._open < 4:
            time.sleep(0.01)
        for s in sockets:
            s.close()
        assert running.is_idle_within(8)  # 200 tokens take ten seconds
        assert running.server.metrics.value("tatami_cancelled_total") == 4


def test_a_full_queue_refuses_and_recovers() -> None:
    with (
        serving(slots=1, places=3) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="x", max_retries=0) as client,
    ):
        running.program.seconds = 0.005
        with pytest.raises(openai.RateLimitError, match="too many requests"):
            client.completions.create(model=MODEL, prompt=["1"] * 4, max_tokens=1)
        with ThreadPoolExecutor(12) as pool:

            def ask(_: int) -> str:
                try:
                    client.completions.create(model=MODEL, prompt="1 2", max_tokens=20, temperature=0)
                except openai.RateLimitError:
                    return "refused"
                return "answered"

            found = list(pool.map(ask, range(12)))
        assert found.count("answered") >= 3
        assert found.count("refused") >= 1
        assert running.is_idle_within(5)
        assert client.completions.create(model=MODEL, prompt="1 2", max_tokens=2, temperature=0).choices[0].text == text_of(
            after((1, 2), 2)
        )


def test_a_step_that_fails_ends_its_sequences_and_not_the_server(capfd: pytest.CaptureFixture[str]) -> None:
    with serving() as running, openai.OpenAI(base_url=f"{running.url}/v1", api_key="x", max_retries=0) as client:
        running.program.fails = 1
        with pytest.raises(openai.InternalServerError, match="the model failed"):
            client.completions.create(model=MODEL, prompt="1 2", max_tokens=20)
        assert client.completions.create(model=MODEL, prompt="1 2", max_tokens=2, temperature=0).choices[0].text == text_of(
            after((1, 2), 2)
        )
        assert running.server.metrics.value("tatami_faults_total") == 1
        assert "planted" in capfd.readouterr().err


def test_a_step_that_fails_for_one_sequence_leaves_the_others(capfd: pytest.CaptureFixture[str]) -> None:
    """Token 13 is poison: a step that has it fails. Three others run in the same steps."""
    with serving() as running, openai.OpenAI(base_url=f"{running.url}/v1", api_key="x", max_retries=0) as client:
        running.program.seconds = 0.01
        running.program.poison = 13
        good = ((1, 2), (3, 4, 5), (7,))

        def asked(prompt: tuple[int, ...]) -> str:
            return client.completions.create(model=MODEL, prompt=list(prompt), max_tokens=12, temperature=0).choices[0].text

        assert all(13 not in after(p, 12) for p in good)
        poisoned = next((a, b) for a in range(90) for b in range(90) if 13 in after((a, b), 12)[2:6] and 13 not in (a, b))
        with ThreadPoolExecutor(4) as pool:
            others = [pool.submit(asked, p) for p in good]
            failing = pool.submit(asked, poisoned)
            assert [f.result() for f in others] == [text_of(after(p, 12)) for p in good]
            with pytest.raises(openai.InternalServerError, match="the model failed"):
                failing.result()
        with client.completions.create(model=MODEL, prompt=list(poisoned), max_tokens=12, temperature=0, stream=True) as stream:
            reasons = [c.choices[0].finish_reason for c in stream if c.choices]
        assert reasons[-1] == "fault"
        assert running.is_idle_within(5)
        assert running.server.metrics.value("tatami_faults_total") == 2
        assert capfd.readouterr().err.count("planted") == 2


def test_the_end_of_a_server_ends_its_requests() -> None:
    with serving() as running:
        running.program.seconds = 0.02
        failed: list[BaseException] = []

        def ask() -> None:
            with openai.OpenAI(base_url=f"{running.url}/v1", api_key="x", max_retries=0) as client:
                try:
                    client.completions.create(model=MODEL, prompt="1 2", max_tokens=200, temperature=0)
                except openai.APIError as error:
                    failed.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        while not running.server.worker._open:
            time.sleep(0.01)
        running.server.worker.close()
        thread.join(5)
        assert len(failed) == 1
        assert isinstance(failed[0], openai.InternalServerError)
