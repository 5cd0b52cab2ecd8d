"""`.harp` text and files to frontend modules: `tt.parse`, and the loader that `models` calls for the suffix."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tatami.core.diagnostic import TatamiError, fail
from tatami.core.document import read_bytes
from tatami.core.faults.arguments import bool_argument, mapping_argument, text_argument
from tatami.core.module import Module
from tatami.frontend import ir as frontend
from tatami.harp import ir
from tatami.harp.elaboration.constants import Constants
from tatami.harp.elaboration.elaborate import elaborate
from tatami.harp.parse import MAX_CHARACTERS
from tatami.harp.parse import parse as parse_tree
from tatami.harp.source import Source, Span


def parse(
    text: str, constants: Mapping[str, object] | None = None, name: str = "text.harp", *, trust: bool = False
) -> Module[frontend.Graph]:
    """The module of a text; `constants` are the arrays that ``constant(f32[…], "name")`` refers to. Kernels that are C or
    CUDA text need `trust`. Raises TatamiError with all faults.

    >>> module = parse("graph main(x: f32[3]) -> f32[3] { return x.relu() }")
    >>> [node.op for node in module.main.graph]
    ['relu']
    """
    if not isinstance(text, str):
        raise fail("ParseError", name, f"a {type(text).__name__} is not a text", "pass a str; tt.compile takes a path")
    file = parse_tree(text, text_argument(name, "name"))
    arrays = None if constants is None else mapping_argument(constants, "constants")
    return elaborate(file, Constants(arrays), trust=bool_argument(trust, "trust"))


def load_file(path: Path, *, trust: bool = False) -> Module[frontend.Graph]:
    """The module of a file. Named constants come from the .npz of the same name next to it. C and CUDA text in it is compiled
    as it stands, which needs `trust`. Raises TatamiError."""
    return elaborate(read_tree(path), Constants(archive=path.with_suffix(".npz")), trust=trust)


def read_tree(path: Path) -> ir.File:
    """The syntax tree of a file. Raises TatamiError unless it is a program."""
    return parse_tree(read_text(path), path.name)


def read_text(path: Path) -> str:
    """The text of a file in UTF-8. Raises TatamiError for other bytes, and for a file that is too large."""
    data = read_bytes(path, 4 * MAX_CHARACTERS)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig", errors="replace")
        source = Source(path.name, before + "\N{REPLACEMENT CHARACTER}")
        why = f"the byte 0x{data[error.start]:02x} is not UTF-8"
        raise TatamiError(
            source.fault("ParseError", Span(len(before), len(before) + 1), why, "save the text as UTF-8")
        ) from None
