"""The importer of GGUF files, which `models` calls for the suffix."""

from __future__ import annotations

from pathlib import Path

from tatami.core.module import Module
from tatami.frontend.ir import Graph
from tatami.gguf.architectures import sizes_of
from tatami.gguf.decoder import decoder
from tatami.gguf.file import read_header


def load_file(path: Path, *, trust: bool = False) -> Module[Graph]:
    """The module of a model: one step of a decoder (`decoder.py`). A GGUF file holds no code, so that `trust` changes nothing.
    Raises TatamiError."""
    file = read_header(path)
    return decoder(file, sizes_of(file)).module()
