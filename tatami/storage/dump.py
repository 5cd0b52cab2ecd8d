"""Stages to a folder and back. Any file of a dump restarts the compiler.

0_frontend.json  0_frontend.txt  1_tiny-imported.json … constants/<sha256>.bin  decisions.json"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tatami.core.codec import parse_text, to_builtins
from tatami.core.diagnostic import fail
from tatami.core.document import (
    SCHEMA_VERSION,
    ConstantRef,
    Document,
    InputRef,
    changed_input,
    content_sha256,
    document_text,
    embed_constant,
    file_constant,
    load_constant,
    parse_document,
    read_bytes,
    sha256_of,
)
from tatami.core.files.plain_file import leads_elsewhere
from tatami.core.module import Module
from tatami.core.target import Target
from tatami.core.tensor import Tensor
from tatami.runtime.building.apart import apart
from tatami.stages import STAGES, Stage, decode_body, encode_body, show, stage


def to_document(
    name: str,
    value: Module[object],
    target: Target,
    *,
    inputs: Mapping[str, InputRef] | None = None,
    embed: bool = True,
) -> Document:
    """The document of one stage. `embed` keeps constants inside, else they are files next to it."""
    reference = embed_constant if embed else file_constant
    return Document(
        tatami=SCHEMA_VERSION,
        stage=name,
        target="" if name == "frontend" else target,
        programs={n: encode_body(stage(name), b) for n, b in value.programs.items()},
        inputs=dict(inputs or {}),
        constants={n: reference(t) for n, t in value.constants.items()},
        origins={p: {k: tuple(v) for k, v in o.items()} for p, o in value.origins.items()},
    )


def from_document(document: Document, folder: Path | None, *, trust: bool, at: str = "document") -> dict[str, Module[object]]:
    """The stages that a document holds: its own, and the earlier ones that its `inputs` name. Raises TatamiError."""
    s = _trusted(document, trust, at)
    found: dict[str, Module[Any]] = {}
    for name, ref in document.inputs.items():
        earlier = _read_input(name, ref, folder, at, trust)
        if name not in s.needs or earlier.stage != name:
            why = f"a document of stage {s.name} is made from {' and '.join(s.needs) or 'no other'}, not from {name[:40]!r}"
            raise fail("InvalidDocument", f"{at}.inputs.{name[:40]}", why, "leave it out")
        found.update(from_document(earlier, folder, trust=trust, at=f"{at}.inputs.{name}"))
    found[s.name] = own_stage(document, folder, at, trust=trust)
    return found


def _trusted(document: Document, trust: bool, at: str) -> Stage:
    """The stage of a document that may be read. Raises Untrusted for a stage that consists of code."""
    s = stage(document.stage)
    if s.code and not trust:
        raise fail(
            "Untrusted",
            at,
            f"a document of stage {s.name} carries code that would be compiled and run",
            "pass --trust (trust=True) if you wrote it yourself",
        )
    return s


def own_stage(
    document: Document,
    folder: Path | None,
    at: str,
    read: Callable[[str, ConstantRef], Tensor] | None = None,
    *,
    trust: bool,
) -> Module[object]:
    """The stage that a document holds itself. read: reads constants that are neither in a folder nor in the document. Raises
    Untrusted if it holds code and `trust` is not given."""
    s = stage(document.stage)
    if document.decisions:
        why = "decisions in a document are not read"
        raise fail("InvalidDocument", f"{at}.decisions", why, "keep them in a file of their own: --decisions FILE")
    for name in document.origins:
        if name not in document.programs:
            why = f"there is no program {name[:40]!r}"
            raise fail("InvalidDocument", f"{at}.origins", why, f"the programs are {', '.join(document.programs)}"[:200])
    constants = {n: read(n, r) if read is not None else load_constant(n, r, folder) for n, r in document.constants.items()}
    if "main" not in document.programs:
        has = ", ".join(n[:40] for n in document.programs) or "none"
        raise fail("InvalidDocument", f"{at}.programs", f"there is no program main (there is {has})", "call the entry main")
    return Module(
        programs={n: decode_body(s, b, f"{at}.programs.{n[:80]}", trust=trust) for n, b in document.programs.items()},
        constants=constants,
        origins=document.origins,
        target=document.target,
    )


def _read_input(name: str, ref: InputRef, folder: Path | None, at: str, trust: bool) -> Document:
    """The earlier document that this one was made from, found by its hash. Raises TatamiError."""
    if ref.document is not None:
        earlier = parse_document(ref.document, f"{at}.inputs.{name}")
        _trusted(earlier, trust, f"{at}.inputs.{name}")
        if content_sha256(earlier) != ref.sha256:
            raise fail(
                "InvalidDocument", f"{at}.inputs.{name}", f"the {name} inside is not the one that this document was made from",
                f"compile that one by itself; if the two still fit, write sha256 {content_sha256(earlier)} here",
            )  # fmt: skip
        return earlier
    if folder is None or not ref.path or Path(ref.path).name != ref.path:
        raise fail(
            "InvalidDocument", f"{at}.inputs.{name}", "the earlier stage is neither embedded nor a file in the same folder",
            "dump again with --embed, or keep the files of one dump together",
        )  # fmt: skip
    if not (folder / ref.path).exists():
        why = f"the document was made from {ref.path}, which is not in its folder"
        raise fail("FileUnreadable", f"{at}.inputs.{name}", why, "keep the files of one dump together, or dump with --embed")
    data = read_bytes(folder / ref.path)
    if sha256_of(data) != ref.sha256:
        raise changed_input(f"{at}.inputs.{name}", ref.path, sha256_of(data))
    return parse_document(parse_text(data, ref.path), ref.path)


def write_dump(
    folder: Path, values: Mapping[str, Module[object]], names: Iterable[str], target: Target, *, embed: bool = False
) -> list[Path]:
    """Write `names` (and what they need to restart) into `folder`; each file appears whole or not at all."""
    written: list[Path] = []
    for stem, document in dump_documents(values, names, target, embed=embed):
        value = values[document.stage]
        if not embed:
            for name, ref in document.constants.items():
                write_pieces(folder / ref.file, (value.constants[name].data,))
        written.append(write_text(folder / f"{stem}.json", document_text(document)))
        text = show(document.stage, value)
        if text:
            written.append(write_text(folder / f"{stem}.txt", text))
    return written


def dump_documents(
    values: Mapping[str, Module[object]], names: Iterable[str], target: Target, *, embed: bool
) -> Iterator[tuple[str, Document]]:
    """(name of its file without suffix, document) of the stages `names` and of those that they need to restart, in the order of
    the chain. `embed`: constants and needed stages stand inside, else they are files of the same folder."""
    wanted = set(names)
    for s in STAGES:
        if s.name in wanted:
            wanted.update(n for n in s.needs if n in values)
    documents: dict[str, tuple[str, Document]] = {}
    for position, s in enumerate(STAGES):
        if s.name in wanted and s.name in values:
            inputs = {n: _reference(documents[n], embed) for n in s.needs if n in documents}
            document = to_document(s.name, values[s.name], target, inputs=inputs, embed=embed)
            stem = f"{position}_{s.file_stem}"
            documents[s.name] = (f"{stem}.json", document)
            yield stem, document


def _reference(entry: tuple[str, Document], embed: bool) -> InputRef:
    file, document = entry
    if embed:
        return InputRef(sha256=content_sha256(document), document=msgspec.to_builtins(to_builtins(document)))
    return InputRef(sha256=sha256_of(document_text(document)), path=file)


def write_text(path: Path, text: str) -> Path:
    """Write the text as UTF-8; the file appears whole or not at all. Raises FileUnwritable."""
    return write_bytes(path, text.encode())


def make_folder(folder: Path) -> None:
    """Create `folder` and its parents. Raises FileUnwritable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        why = "" if os.access(folder, os.W_OK | os.X_OK) else "you may not write to it"
        if leads_elsewhere(folder):
            why = "it is a link to a folder of another user"
    except (FileExistsError, NotADirectoryError):
        why = "a file is in its place"
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
    if why:
        raise fail("FileUnwritable", str(folder)[:200], why, "name a folder you may write to (-o DIR)")


def write_bytes(path: Path, data: bytes) -> Path:
    """Write the bytes; the file appears whole or not at all. Raises FileUnwritable."""
    return write_pieces(path, (data,))


def write_pieces(path: Path, pieces: Iterable[bytes | memoryview]) -> Path:
    """Write the pieces one after another to a temporary file in the same folder, which is then renamed. Raises
    FileUnwritable."""
    return apart(lambda _: _write_pieces(path, pieces))


def _write_pieces(path: Path, pieces: Iterable[bytes | memoryview]) -> Path:
    try:
        make_folder(path.parent)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".tatami-")
        try:
            with os.fdopen(handle, "wb") as out:
                out.writelines(pieces)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise fail(
            "FileUnwritable", str(path), error.strerror or "it cannot be written", "choose a folder you may write to"
        ) from None
    return path
