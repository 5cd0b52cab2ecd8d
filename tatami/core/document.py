"""The envelope around the programs of one stage, on disk and in memory (design §4).

    {"tatami": 1, "stage": "region", "target": …, "programs": {"main": …, "setup": …}, "inputs": {…},
     "constants": {…}, "origins": {…}, "decisions": {…}}

`inputs` names the earlier documents that this stage needs as well (a side table needs its graph): a relative
path with its sha256, or the document embedded. `constants` are raw little-endian files next to the document, or
base64 text when embedded. `target` is the machine that the stage was made for, with all its numbers, or the name of one: a
restart goes on for it. The form of a program is its stage's: the table of stages knows its codec.
"""

from __future__ import annotations

import base64
import hashlib
import json
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from tatami.core.codec import MAX_BYTES, dump_text, from_builtins, to_builtins
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.files.plain_file import read_plain
from tatami.core.target import Target
from tatami.core.tensor import Tensor

SCHEMA_VERSION = 1
"""Value of "tatami" in documents that this version writes and reads."""
MAX_CONSTANT_BYTES = 1 << 40
"""Maximum bytes of one constant of a document."""


class ConstantRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """A constant of a document: `file`, a path next to it, or `data`, its bytes in base64; the other one is empty."""

    dtype: DType
    shape: tuple[int, ...]
    sha256: str
    file: str = ""
    data: str = ""


class InputRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """An earlier document that a stage needs: `path`, relative to this one, or the `document` embedded."""

    sha256: str
    path: str = ""
    document: dict[str, Any] | None = None


class Document(msgspec.Struct, frozen=True, omit_defaults=True):
    """The envelope of one stage. `programs`: name -> body in the stage's own form; `origins`: program -> id -> ids one layer
    up."""

    tatami: int
    stage: str
    programs: dict[str, Any]
    target: str | Target = ""
    inputs: dict[str, InputRef] = {}
    constants: dict[str, ConstantRef] = {}
    origins: dict[str, dict[str, tuple[str, ...]]] = {}
    decisions: dict[str, Any] = {}


def is_document(value: Any) -> bool:
    """True if `value` is an object with the field of an envelope."""
    return isinstance(value, dict) and "tatami" in value


def parse_document(value: Any, at: str = "document") -> Document:
    """The envelope in plain JSON values. Raises TatamiError InvalidDocument."""
    document = from_builtins(value, Document, at)
    if document.tatami != SCHEMA_VERSION:
        raise fail(
            "InvalidDocument",
            at,
            f"schema version {document.tatami}; this Tatami reads version {SCHEMA_VERSION}",
            f'write the document again with this version (set "tatami": {SCHEMA_VERSION} when nothing else differs)',
        )
    return document


def check_file(path: Path) -> None:
    """Raises FileUnreadable unless `path` is a regular file that is not empty."""
    why, what = "", "check the path"
    if path.is_dir():
        inside = min((p.name for p in path.iterdir() if p.suffix in (".json", ".onnx", ".harp")), default="")
        why, what = "it is a folder", f"name a file in it: {path / inside}" if inside else "name a file"
    elif not path.exists():
        why = "there is no such file"
    elif not path.is_file():
        why, what = "it is not a regular file", "copy its contents into a file"
    elif path.stat().st_size == 0:
        why, what = "the file is empty", "write it again; whatever made it did not finish"
    if why:
        raise fail("FileUnreadable", str(path), why, what)


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """The bytes of a regular file of at most `limit` bytes. Raises FileUnreadable, InputTooLarge."""
    try:
        check_file(path)
        size = path.stat().st_size
        if size > limit:
            raise fail(
                "InputTooLarge", path.name, f"{size} bytes; the limit is {limit}", "keep large constants in files of their own"
            )
        return read_plain(path)
    except OSError as error:
        raise fail(
            "FileUnreadable", path.name, error.strerror or "it cannot be read", "check the path and its permissions"
        ) from None


def changed_input(at: str, file: str, sha256: str) -> TatamiError:
    """The fault of a document whose input `file` has another hash than the one recorded."""
    return fail(
        "InvalidDocument", at, f"{file} is not the file that this document was made from",
        f"restart from {file} itself; if the two still fit, write sha256 {sha256} here",
    )  # fmt: skip


def document_text(document: Document) -> str:
    """The document as JSON text, the same for equal documents."""
    return dump_text(to_builtins(document))


def content_sha256(document: Document) -> str:
    """The hash by which one document refers to another: of its content, whatever the layout of its text."""
    return sha256_of(json.dumps(to_builtins(document), separators=(",", ":")))


def sha256_of(text: str | bytes) -> str:
    """The SHA-256 of a text (as UTF-8) or of bytes, in hexadecimal."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


# -- constants -----------------------------------------------------------------------------------


def embed_constant(tensor: Tensor) -> ConstantRef:
    """A reference that holds the tensor's bytes as base64 text."""
    data = base64.b64encode(tensor.data).decode()
    return ConstantRef(tensor.dtype, tensor.shape, tensor.sha256, data=data)


def file_constant(tensor: Tensor) -> ConstantRef:
    """A reference to ``constants/<sha256>.bin`` next to the document."""
    return ConstantRef(tensor.dtype, tensor.shape, tensor.sha256, file=f"constants/{tensor.sha256}.bin")


def load_constant(name: str, ref: ConstantRef, folder: Path | None) -> Tensor:
    """The tensor of a reference, its hash checked. Files lie inside the document's `folder` only. Raises TatamiError."""
    if ref.file:
        if folder is None:
            raise fail(
                "FileUnreadable", name, "the document refers to a file but was not read from a folder", "embed its constants"
            )
        relative = PurePosixPath(ref.file)
        path = folder / relative
        if relative.is_absolute() or ".." in relative.parts or not path.resolve().is_relative_to(folder.resolve()):
            raise fail(
                "FileUnreadable",
                name,
                f"the constant's file {ref.file!r} leaves the folder",
                "keep constants in the document's folder",
            )
        data = read_bytes(path, MAX_CONSTANT_BYTES) if 0 not in ref.shape else b""
    else:
        try:
            data = base64.b64decode(ref.data, validate=True)
        except ValueError:
            raise fail("InvalidDocument", name, "the constant's data is not base64", "write the document again") from None
    return constant_of(name, ref, data)


def constant_of(name: str, ref: ConstantRef, data: bytes | memoryview) -> Tensor:
    """The tensor of a reference from its bytes. Raises InvalidDocument unless size and hash agree."""
    need = prod(ref.shape) * ref.dtype.itemsize
    if any(s < 0 for s in ref.shape) or need != len(data):
        raise fail(
            "InvalidDocument",
            name,
            f"{len(data)} bytes of data for {ref.dtype}{list(ref.shape)}, which needs {need}",
            "write the constant again",
        )
    tensor = Tensor.of_bytes(bytes(data), ref.dtype, ref.shape)
    if tensor.sha256 != ref.sha256:
        raise fail("InvalidDocument", name, "the constant's data does not match its sha256", "write the constant again")
    return tensor
