"""The forms in which a document reaches Tatami, each with its strings and the model that holds a marker in one of them.

document   a JSON value, earlier stages embedded          file, folder   of a dump, stages and constants by path
saved      a `.tatami` file: manifest, documents, names of blocks
decisions  next to a model: of a compilation, and plans     target         a machine as a document
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tatami.compilation import Compilation, decisions_of
from tatami.core.codec import to_builtins
from tatami.core.diagnostic import TatamiError
from tatami.core.document import content_sha256, parse_document, sha256_of
from tatami.core.files.container import Container, contained
from tatami.core.target import PRESETS
from tatami.storage.dump import write_dump
from tatami.storage.tatami_file import save
from tests.fuzz.marking.marker_places import Place, planted


@dataclass(frozen=True)
class Given:
    """Arguments of a compilation."""

    model: Any
    target: Any
    decisions: Any = None


@dataclass(frozen=True)
class Form:
    """`value` holds the strings. `given(folder, edited)`: what is compiled of an edited value, files in `folder`."""

    name: str
    stage: str
    value: Any
    given: Callable[..., Given]


def forms(made: Compilation, model: Callable[[], Any], target: str) -> Iterator[Form]:
    """All forms of the documents of a compilation for the target."""
    values = made.values()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_dump(folder / "whole", values, values, made.target, embed=True)
        write_dump(folder / "parts", values, values, made.target)
        for file in sorted((folder / "whole").glob("*.json")):
            document = json.loads(file.read_text())
            yield Form("document", document["stage"], document, lambda _, edited: Given(rehashed(edited), target))
        for file in sorted((folder / "parts").glob("*.json")):
            document = json.loads(file.read_text())
            yield Form("file", document["stage"], document, lambda to, edited, f=file: Given(_beside(f, to, edited), target))
            yield Form(
                "folder", document["stage"], document, lambda to, edited, f=file: Given(_beside(f, to, edited).parent, target)
            )
        if made.target.kind == "cpu":
            box = Container(save(folder / "program.tatami", made, {}).read_bytes(), "program")
            value = json.loads(json.dumps({"manifest": box.manifest, "blocks": _texts(box)}))
            yield Form("saved", "saved", value, lambda to, edited, b=box: Given(_saved(b, to, edited), target))
    decisions = json.loads(json.dumps(msgspec.to_builtins(to_builtins(decisions_of(made.stages)))))
    yield Form("decisions", "plan", decisions, lambda _, edited: Given(model(), target, edited))
    for plan in list(decisions.get("plans", {}).values())[:2]:
        yield Form("plan", "plan", plan, lambda _, edited: Given(model(), target, edited))
    machine = json.loads(json.dumps(to_builtins(PRESETS.get(target, made.target))))
    yield Form("target", "target", machine, lambda _, edited: Given(model(), edited))


def _beside(file: Path, to: Path, edited: Any) -> Path:
    """The edited file in a copy of its dump."""
    shutil.copytree(file.parent, to / "dump")
    out = to / "dump" / file.name
    out.write_text(json.dumps(edited))
    for other in sorted(out.parent.glob("*.json")):  # in the order of stages: each names earlier ones
        document, before = json.loads(other.read_text()), other.read_text()
        for ref in document.get("inputs", {}).values() if other != out else ():
            if isinstance(ref, dict) and (out.parent / ref.get("path", "")).is_file():
                ref["sha256"] = sha256_of((out.parent / ref["path"]).read_bytes())
        if document != json.loads(before):
            other.write_text(json.dumps(document))
    return out


def rehashed(document: Any) -> Any:
    """The document with hashes of its embedded parts computed anew: whoever edits a document can do so too."""
    inputs = document.get("inputs") if isinstance(document, dict) else None
    for ref in inputs.values() if isinstance(inputs, dict) else ():
        if isinstance(ref, dict) and isinstance(ref.get("document"), dict) and "zq7x" not in str(ref.get("sha256")):
            rehashed(ref["document"])
            try:
                ref["sha256"] = content_sha256(parse_document(ref["document"]))
            except TatamiError:
                continue  # it is refused where it is read
    return document


def _texts(box: Container) -> dict[str, Any]:
    return {n: json.loads(bytes(box[n])) if n.endswith(".json") else "" for n in box._places if n != "program.json"}


def _saved(box: Container, to: Path, edited: Any) -> Path:
    own = [n for n in box._places if n != "program.json"]
    blocks = {}
    for name, (key, value) in zip(own, edited["blocks"].items(), strict=True):
        blocks[key] = json.dumps(value).encode() if name.endswith(".json") else bytes(box[name])
    path = to / "edited.tatami"
    path.write_bytes(b"".join(map(bytes, contained(edited["manifest"], blocks))))
    return path


def with_marker(form: Form, place: Place, text: str, folder: Path) -> Given:
    return form.given(folder, planted(form.value, place, text))
