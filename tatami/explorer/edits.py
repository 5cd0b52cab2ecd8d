"""Documents of a compilation to edit, and the compilations that go on from edited ones.

A text to edit is the file of a dump: its constants and the earlier stages are given by their hashes, and are those of the
compilation that the page shows. No file is read for it, whatever name a document says."""

from __future__ import annotations

from collections.abc import Mapping

from tatami.compilation import Compilation
from tatami.core.codec import parse_text
from tatami.core.diagnostic import fail
from tatami.core.document import ConstantRef, Document, document_text, load_constant, parse_document
from tatami.core.module import Module
from tatami.core.tensor import Tensor
from tatami.prepare import prepare_edited
from tatami.stages import STAGES, stage
from tatami.storage.dump import dump_documents, own_stage

MOST_TEXT = 16 << 20
"""Maximum characters of a document that is edited in a page: some five hundred kernels as loops."""
MOST_SAVED = 64 << 20
"""Maximum bytes of constants in a document that a browser saves."""
_IN_A_FILE = "write it by tatami compile MODEL -o DIR --dump=all, edit the file, and explore that"


def document_of(compilation: Compilation, name: str, *, trust: bool) -> tuple[str, str]:
    """(text of a stage's document, name of its file in a dump). Raises TatamiError: Untrusted for code without `trust`,
    UnknownName for a stage that this compilation lacks, InputTooLarge."""
    file, document = _document(compilation, name, trust)
    text = document_text(document)
    if len(text) > MOST_TEXT:
        why = f"its document has {len(text)} characters; a page edits {MOST_TEXT} at most"
        raise fail("InputTooLarge", name, why, _IN_A_FILE)
    return text, file


def restarted(compilation: Compilation, name: str, text: str, *, trust: bool) -> Compilation:
    """The compilation that goes on from the edited text of a stage's document. Raises TatamiError."""
    return prepare_edited(_given(compilation, name, text, trust), compilation, trust=trust)


def whole_document(compilation: Compilation, name: str, text: str, *, trust: bool) -> tuple[str, str]:
    """(the edited document with constants and earlier stages inside, name of a file for it). Raises TatamiError if the edit is refused
    or its constants are too large."""
    given = _given(compilation, name, text, trust)
    prepare_edited(given, compilation, trust=trust)
    size = sum(len(t.data) for m in given.values() for t in m.constants.values())
    if size > MOST_SAVED:
        why = f"its constants have {size} bytes; a browser saves {MOST_SAVED} at most"
        raise fail(
            "InputTooLarge", name, why, "save the text alone, in place of its file in a dump (tatami compile --dump=all)"
        )
    stem, document = list(dump_documents(given, given, compilation.target, embed=True))[-1]
    return document_text(document), f"{stem}-edited.json"


def _needed(name: str) -> list[str]:
    """The stages that a restart from a stage needs, and those that these need, in the order of the chain."""
    wanted = {name}
    for s in reversed(STAGES):
        if s.name in wanted:
            wanted.update(s.needs)
    return [s.name for s in STAGES if s.name in wanted - {name}]


def _stages(compilation: Compilation, name: str, trust: bool) -> dict[str, Module[object]]:
    """A stage and those that it needs. Raises Untrusted, UnknownName."""
    stages = compilation.stages
    if stage(name).code and not trust:
        why = f"a document of stage {name} carries code that would be compiled"
        raise fail("Untrusted", name, why, "start tatami explore with --serve --trust")
    have = compilation.values()
    if name not in have:
        raise fail("UnknownName", name, "this compilation does not have the stage", f"its stages are {', '.join(have)}")
    return {n: stages[n] for n in (*_needed(name), name) if n in have}


def _document(compilation: Compilation, name: str, trust: bool) -> tuple[str, Document]:
    values = _stages(compilation, name, trust)
    stem, document = list(dump_documents(values, values, compilation.target, embed=False))[-1]
    return f"{stem}.json", document


def _given(compilation: Compilation, name: str, text: str, trust: bool) -> dict[str, Module[object]]:
    """The edited stage and those that it needs. Raises TatamiError."""
    values = _stages(compilation, name, trust)
    if len(text) > MOST_TEXT:
        raise fail("InputTooLarge", name, f"{len(text)} characters; a page edits {MOST_TEXT} at most", _IN_A_FILE)
    document = parse_document(parse_text(text, name), name)
    _, was = _document(compilation, name, trust)
    for field, how in (
        ("stage", f"write {name!r}; other stages are edited by themselves"),
        ("target", "leave it as it is; tatami explore --target names another machine"),
        ("inputs", "leave them as they are: they are the earlier stages of this page"),
    ):
        if getattr(document, field) != getattr(was, field):
            raise fail("InvalidDocument", f"{name}.{field}", "it is not that of the page", how)
    known = {t.sha256: t for module in values.values() for t in module.constants.values()}
    edited = own_stage(document, None, name, lambda n, ref: _constant(f"{name}.constants.{n}", ref, known), trust=trust)
    return {**values, name: edited}


def _constant(at: str, ref: ConstantRef, known: Mapping[str, Tensor]) -> Tensor:
    """The constant of a reference: one of the page's, or the one that stands in the document. Raises TatamiError."""
    if not ref.file:
        return load_constant(at, ref, None)
    found = known.get(ref.sha256)
    if found is None or (found.dtype, found.shape) != (ref.dtype, ref.shape):
        why = f"the page has no constant {ref.dtype}{list(ref.shape)} with sha256 {ref.sha256[:16]!r}, and reads no files"
        raise fail("FileUnreadable", at, why, "name one of the page's, or write `data` in base64 instead of `file`")
    return found
