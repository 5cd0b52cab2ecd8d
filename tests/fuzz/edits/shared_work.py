"""Work that the edits of one document share, done once: the earlier documents, the derivations, the programs of equal text.

An edit goes the way of a document from outside, in the same order: its envelope, its body, its verifier, the comparison with its
derivation. Most edits are refused there. The earlier stages are the same objects for all edits of a document, so what is derived
from them alone is the same too. An edit that is accepted is set up as any document is; a program whose text and execution plan
were built before is not built again, but runs again.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tatami.api import build
from tatami.compilation import Compilation
from tatami.core.diagnostic import raise_errors
from tatami.core.document import Document, parse_document
from tatami.core.module import Module
from tatami.core.target import Target
from tatami.models import open_model
from tatami.observer import explained
from tatami.prepare import checked, with_origin
from tatami.stages import BY_NAME, encode_body, show, verify
from tatami.storage import derived
from tatami.storage.derived import check_derived
from tatami.storage.dump import own_stage
from tatami.targets import resolve_target
from tests.fuzz.edits.every_edit import documents_of
from tests.gpu.edits import plain

MOST_BUILT = 64
"""Programs that a process keeps loaded."""


@dataclass(frozen=True)
class Unedited:
    """A document before its edits: its envelope, its stages, all of them verified, and the machine that it was made for."""

    document: Document
    given: Mapping[str, Module[Any]]
    target: Target


@functools.cache
def unedited(program: str, stage: str) -> Unedited:
    document = parse_document(documents_of(program)[stage])
    given = open_model(documents_of(program)[stage])
    assert document.target
    target = resolve_target(document.target)
    checked(given, target, trust=False)
    return Unedited(document, given, target)


def accepted(program: str, stage: str, document: Mapping[str, Any]) -> Module[Any]:
    """The module of an edited document that passes its verifier and is what its derivation says. Raises TatamiError. The edit
    is of the programs, so that the envelope and the earlier stages are those that were verified."""
    was = unedited(program, stage)
    own = own_stage(msgspec.structs.replace(was.document, programs=document["programs"]), None, "document", trust=False)
    with_derivations_kept(was)
    given = {**was.given, stage: own}
    with explained("document", True):
        raise_errors([with_origin(d, own) for d in verify(stage, own, given.get)])
        check_derived(given, was.target)
    return own


def is_unchanged(program: str, stage: str, own: Module[Any]) -> bool:
    """True if the edit spells the document that was there."""
    return bool(own.programs == unedited(program, stage).given[stage].programs)


derive = derived._derived
_kept: dict[tuple[str, tuple[int, ...]], Module[Any]] = {}


def with_derivations_kept(was: Unedited) -> None:
    """Derivations from stages of `was` alone are made once in this process."""
    ours = {id(m) for m in was.given.values()}

    def kept(name: str, above: derived.Given, target: Target) -> Module[Any]:
        ids = tuple(id(m) for m in above.values())
        if not ours.issuperset(ids):
            return derive(name, above, target)
        if (name, ids) not in _kept:
            _kept[name, ids] = derive(name, above, target)
        return _kept[name, ids]

    derived._derived = kept


_built: OrderedDict[str, Any] = OrderedDict()


def built(compilation: Compilation) -> Any:
    """The callable of a compilation; of an earlier one if their texts and execution plans are equal. Raises TatamiError."""
    body = encode_body(BY_NAME["execution"], compilation.stages["execution"].main)
    key = f"{text_of(compilation)}\n{plain(msgspec.json.encode(body).decode())}"
    if key not in _built:
        _built[key] = build(compilation)
        if len(_built) > MOST_BUILT:
            _built.popitem(last=False)
    _built.move_to_end(key)
    return _built[key]


def text_of(compilation: Compilation) -> str:
    """The text of the program's kernels and of what calls them."""
    if "c" not in compilation.stages:
        return plain(show("cu", compilation.stages["cu"]) + show("execution", compilation.stages["execution"]))
    source = compilation.stages["c"].main
    return "\n".join([source.entry, *sorted(f"{name} {u.text}" for name, u in source.units.items())])
