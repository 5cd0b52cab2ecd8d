"""Explorer pages in the site: compilations that a reader can look into without installing anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tatami.explorer.document import explored, source_text
from tatami.explorer.html import html
from tatami.prepare import prepare

PAGE = "explorer.md"
"""The page of the site that shows them."""
FOLDER = "explore"
"""The folder of these pages in the site."""


@dataclass(frozen=True)
class Shown:
    """One compilation. `model`: its path in the repository; `sizes`: values of its size symbols."""

    name: str
    title: str
    model: str
    target: str
    sizes: Mapping[str, int]


SHOWN = (
    Shown("digits", "the digits network on a CPU", "examples/digits/digits.onnx", "cpu:avx2", {"N": 64}),
    Shown("block", "a transformer's attention on a CPU", "examples/harp/attention.harp", "cpu:avx2", {}),
    Shown("block-h100", "the same on an H100", "examples/harp/attention.harp", "h100", {}),
)
"""The compilations that the site shows."""


def explorers(root: Path) -> Iterator[tuple[str, str]]:
    """(path in the site, page) of each compilation. `root`: of the repository."""
    for s in SHOWN:
        model = root / s.model
        compilation = prepare(model, target=s.target)
        yield f"{FOLDER}/{s.name}.html", html(explored(compilation, model.name, source_text(str(model)), s.sizes))


def with_explorers(text: str) -> str:
    """The page about the explorer with these compilations below its introduction."""
    first, *_ = SHOWN
    frame = f'<iframe src="{FOLDER}/{first.name}.html#panes=region,c" title="{first.title}" loading="lazy" class="explorer"></iframe>'
    links = " · ".join(f'<a href="{FOLDER}/{s.name}.html">{s.title}</a>' for s in SHOWN)
    frames = f"{frame}\n<p>Each on a page of its own: {links}</p>"
    head, mark, rest = text.partition("\n## ")
    assert mark, "the page about the explorer has sections"
    return f"{head}\n## Look into one\n\n<div>\n{frames}\n</div>\n{mark}{rest}"
