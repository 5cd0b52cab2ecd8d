"""The docstring of a layer lists the folders of the layer."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.docs.pages import ROOT

PACKAGE = ROOT / "tatami"


def unlisted(layer: Path, page: str) -> list[str]:
    """Folders of a layer that its page does not name."""
    folders = sorted(p.name for p in layer.iterdir() if p.is_dir() and p.name != "__pycache__")
    return [f"{layer.name}/{name}" for name in folders if name not in page]


def page_of(layer: Path) -> str:
    return ast.get_docstring(ast.parse((layer / "__init__.py").read_text(encoding="utf-8"))) or ""


def test_each_layer_lists_its_folders() -> None:
    layers = [p for p in sorted(PACKAGE.iterdir()) if (p / "__init__.py").is_file()]
    assert len(layers) > 15 and all(page_of(layer) for layer in layers)
    assert [name for layer in layers for name in unlisted(layer, page_of(layer))] == []


def test_a_folder_that_is_not_listed_is_found() -> None:
    assert "plan/pairs" in unlisted(PACKAGE / "plan", page_of(PACKAGE / "plan").replace("pairs", ""))
