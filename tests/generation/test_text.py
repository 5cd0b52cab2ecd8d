"""Text as it comes: whole characters, and stop strings that begin in one token and end in another."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tatami.generation.text import TextStream


def of_bytes(tokens: Sequence[int]) -> str:
    """A vocabulary of single bytes."""
    return bytes(tokens).decode("utf-8", errors="replace")


def given_out(text: str, stops: tuple[str, ...] = ()) -> tuple[list[str], TextStream]:
    stream = TextStream(of_bytes, stops)
    pieces = []
    for byte in text.encode():
        pieces.append(stream.add(byte))
        if stream.is_stopped:
            break
    return [*pieces, stream.finish()], stream


@given(st.text(max_size=40))
def test_pieces_are_the_text(text: str) -> None:
    pieces, stream = given_out(text)
    assert "".join(pieces) == stream.whole == text


def test_no_piece_ends_within_a_character() -> None:
    pieces, _ = given_out("日本語")
    assert [p for p in pieces if p] == ["日", "本", "語"]


def test_bytes_that_are_no_character_are_not_held_for_ever() -> None:
    stream = TextStream(of_bytes)
    for _ in range(20):
        stream.add(0xFF)
    assert len(stream.whole) > 4


@given(st.text("abc", max_size=30), st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3))
def test_the_text_ends_before_the_first_stop_string(text: str, stops: list[str]) -> None:
    """The stop string that is complete first counts; of those that end together, the longest."""
    pieces, stream = given_out(text, tuple(stops))
    want = text
    for end in range(1, len(text) + 1):
        found = [s for s in stops if text[:end].endswith(s)]
        if found:
            want = text[: end - max(map(len, found))]
            break
    assert "".join(pieces) == stream.whole == want
    assert stream.is_stopped == any(s in text for s in stops)


def test_what_may_begin_a_stop_string_is_held_back() -> None:
    stream = TextStream(of_bytes, ("<end>",))
    assert "".join(stream.add(b) for b in b"a<en") == "a"
    assert stream.add(ord("x")) == "<enx"


@pytest.mark.parametrize("stop", ["é", "本語"])
def test_a_stop_string_of_several_bytes(stop: str) -> None:
    pieces, stream = given_out(f"日{stop}xyz", (stop,))
    assert "".join(pieces) == "日"
    assert stream.is_stopped
