"""GGUF files of an adversary: one diagnostic each, in little time and memory."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from click.testing import CliRunner

import tatami as tt
from tatami.cli import main
from tatami.core.diagnostic import TatamiError
from tatami.gguf.architectures import sizes_of
from tatami.gguf.file import MAX_ENTRIES, read_header

HEAD = struct.pack("<4sIQQ", b"GGUF", 3, 0, 1)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def entry(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def whole(path: Path) -> Path:
    """A file of one tensor, with the metadata of a model."""
    writer = gguf.GGUFWriter(path, "llama")
    for add, value in ((writer.add_block_count, 1), (writer.add_context_length, 64), (writer.add_embedding_length, 32), (writer.add_head_count, 2)):  # fmt: skip
        add(value)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_token_list(["a", "b", "é"])
    writer.add_tensor("token_embd.weight", np.ones((3, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


LIMIT = 20.0
"""Maximum seconds until a file is refused: a count that is believed takes hours. It is much less on an idle machine."""


def refusal(data: bytes, folder: Path) -> str:
    """The text of the only diagnostic for a file with these bytes, which comes within `LIMIT`."""
    path = folder / "hostile.gguf"
    path.write_bytes(data)
    started = time.monotonic()
    with pytest.raises(TatamiError) as raised:
        tt.compile(path)
    assert time.monotonic() - started < LIMIT
    (found,) = raised.value.diagnostics
    return str(found)


def test_a_header_is_read(tmp_path: Path) -> None:
    file = read_header(whole(tmp_path / "m.gguf"))
    assert file.metadata["tokenizer.ggml.tokens"] == ("a", "b", "é")
    assert file.tensors["token_embd.weight"].shape == (3, 32)
    assert np.frombuffer(file.read_rows("token_embd.weight", 0, 3), np.float32).sum() == 96
    assert sizes_of(file).head == 16


def test_every_truncation_is_one_diagnostic(tmp_path: Path) -> None:
    data = whole(tmp_path / "m.gguf").read_bytes()
    for length in [*range(1, len(data) - 1, 7), len(data) - 1]:
        assert "not a GGUF model" in refusal(data[:length], tmp_path)


def test_every_changed_byte_is_read_or_one_diagnostic(tmp_path: Path) -> None:
    data = whole(tmp_path / "m.gguf").read_bytes()
    path = tmp_path / "changed.gguf"
    refused = 0
    for at in range(len(data) - 400):
        for value in (0x00, 0xFF, data[at] ^ 0x80):
            path.write_bytes(data[:at] + bytes([value]) + data[at + 1 :])
            try:
                sizes_of(read_header(path))
            except TatamiError as error:
                assert len(error.diagnostics) == 1
                refused += 1
    assert refused > 300


HUGE = struct.pack("<Q", 1 << 62)
HOSTILE: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "the file is empty"),
    "another format": (b"PK\x03\x04" + bytes(40), "does not begin with GGUF"),
    "big-endian": (struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), "version 50331648"),
    "many tensors": (struct.pack("<4sIQQ", b"GGUF", 3, 1 << 62, 0), "tensors; 65536 is the most"),
    "many entries": (struct.pack("<4sIQQ", b"GGUF", 3, 0, 1 << 62), "metadata entries"),
    "entries that are not there": (struct.pack("<4sIQQ", b"GGUF", 3, 0, MAX_ENTRIES), "past its end"),
    "a long key": (HEAD + HUGE, "bytes of a text"),
    "a long array": (HEAD + entry("a", 9, struct.pack("<I", 0) + HUGE), "elements of an array"),
    "a long array of texts": (HEAD + entry("a", 9, struct.pack("<IQ", 8, 1 << 22)), "past its end"),
    "arrays in arrays": (HEAD + entry("a", 9, struct.pack("<IQ", 9, 1)), "an array of the type 9"),
    "an unknown type": (HEAD + entry("a", 77, b""), "unknown type 77"),
    "a text for a number": (HEAD + entry("general.alignment", 8, text("x")), "an alignment of 'x'"),
    "an alignment of 0": (HEAD + entry("general.alignment", 4, struct.pack("<I", 0)), "an alignment of 0"),
    "a key twice": (
        struct.pack("<4sIQQ", b"GGUF", 3, 0, 2) + 2 * entry("a", 4, struct.pack("<I", 0)),
        "stands twice",
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_header_is_one_diagnostic(what: str, tmp_path: Path) -> None:
    data, words = HOSTILE[what]
    assert words in refusal(data, tmp_path)


def one_tensor(rank: int, sizes: tuple[int, ...], code: int, first: int) -> bytes:
    head = struct.pack("<4sIQQ", b"GGUF", 3, 1, 0)
    return head + text("t") + struct.pack(f"<I{len(sizes)}QIQ", rank, *sizes, code, first) + bytes(100)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (one_tensor(1 << 30, (), 0, 0), "a tensor of rank"),
        (one_tensor(2, (1 << 39, 1 << 39), 0, 0), "lies past its end"),
        (one_tensor(1, (1 << 63,), 0, 0), "elements along an axis"),
        (one_tensor(1, (8,), 0, 1 << 63), "lies past its end"),
        (one_tensor(1, (8,), 10, 0), "a tensor of type 10"),
        (one_tensor(1, (33,), 2, 0), "in blocks of 32"),
        (one_tensor(1, (0,), 0, 0), "a tensor of shape [0]"),
        (one_tensor(0, (), 0, 0), "a tensor of shape []"),
    ],
)
def test_a_hostile_tensor_is_one_diagnostic(data: bytes, words: str, tmp_path: Path) -> None:
    assert words in refusal(data, tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("general.architecture", "mamba", "the architecture 'mamba' is not supported"),
        ("llama.block_count", 0, "block_count is '0'"),
        ("llama.block_count", 1 << 31, "block_count"),
        ("llama.embedding_length", "wide", "embedding_length is 'wide'"),
        ("llama.attention.head_count", [2, 3], "with a number per layer"),
        ("llama.attention.head_count_kv", 3, "share 3 key heads"),
        ("llama.rope.dimension_count", 64, "64 of 16 elements"),
        ("llama.rope.scaling.type", "yarn", "rotary scaling 'yarn'"),
        ("llama.attention.layer_norm_rms_epsilon", float("nan"), "a number above 0"),
        ("llama.context_length", -1, "context_length is '-1'"),
        ("llama.attention.value_length", 8, "values of another size"),
    ],
)
def test_hostile_metadata_is_one_diagnostic(key: str, value: Any, words: str, tmp_path: Path) -> None:
    file = read_header(whole(tmp_path / "m.gguf"))
    changed = file._replace(metadata={**file.metadata, key: tuple(value) if isinstance(value, list) else value})
    with pytest.raises(TatamiError) as raised:
        sizes_of(changed)
    assert words in str(raised.value)


def test_tensors_that_share_bytes_are_one_diagnostic(tmp_path: Path) -> None:
    """A small file could be many times its size in memory."""

    def of(*places: int) -> bytes:
        entries = b"".join(text(f"t{i}") + struct.pack("<IQIQ", 1, 64, 0, at) for i, at in enumerate(places))
        return struct.pack("<4sIQQ", b"GGUF", 3, len(places), 0) + entries + bytes(1024)

    assert "'t1' overlaps another tensor" in refusal(of(0, 0), tmp_path)
    assert "'t0' overlaps another tensor" in refusal(of(224, 0), tmp_path)
    assert "'t1' is not aligned to 32 bytes" in refusal(of(0, 260), tmp_path)
    path = tmp_path / "apart.gguf"
    path.write_bytes(of(256, 0))
    assert len(read_header(path).tensors) == 2


@pytest.mark.parametrize(
    ("metadata", "divisor"),
    [
        ({}, 1.0),
        ({"llama.rope.scaling.factor": 4.0}, 4.0),
        ({"llama.rope.scale_linear": 2.0}, 2.0),
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0, "llama.rope.scale_linear": 2.0}, 4.0),
        ({"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0}, 1.0),
    ],
)
def test_a_factor_without_a_type_is_linear_scaling(metadata: dict[str, Any], divisor: float, tmp_path: Path) -> None:
    file = read_header(whole(tmp_path / "m.gguf"))
    assert sizes_of(file._replace(metadata={**file.metadata, **metadata})).divisor == divisor


def test_missing_and_misshapen_tensors_are_named(tmp_path: Path) -> None:
    data = whole(tmp_path / "m.gguf").read_bytes()
    assert "it has no tensor blk.0.attn_norm.weight" in refusal(data, tmp_path)


def test_a_fifo_and_a_folder_make_nobody_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    for name in ("pipe.gguf", "missing.gguf"):
        with pytest.raises(TatamiError, match="E1701"):
            tt.compile(tmp_path / name)


def test_the_command_says_it_in_one_diagnostic(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    found = CliRunner().invoke(main, ["run", str(path)])
    assert found.exit_code == 1
    assert "E1609" in found.output
    assert "Traceback" not in found.output
