"""The functions that MkDocs calls, in the order in which it calls them."""

from __future__ import annotations

import logging
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from website.dialect import for_python_markdown, lost_blocks, requests
from website.explorers import PAGE, explorers, with_explorers
from website.home import home
from website.links import for_site
from website.navigation import MAP, navigation
from website.pictures import lacking, pictures
from website.reference import FOLDER, reference
from website.tutorial import is_chapter, with_outputs

log = logging.getLogger("mkdocs.hooks.tatami")
ROOT = Path(__file__).parents[1]
MOVED = {"website/home.md": "index.md", "README.md": "index.md", "CHANGELOG.md": "changelog.md"}
"""Pages from outside docs/: path in the repository -> path in the site. The README's sentences stand in the home page."""
SOURCES = {"index.md": "website/home.md", "changelog.md": "CHANGELOG.md"}
"""Path in the site -> the file of the repository from which the page's links lead."""
ASSETS = ("style.css", "iframe-worker.js")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The navigation: home, the sections of the map, the API, changes."""
    api = list(reference())
    config.nav = [
        {"Home": "index.md"},
        *navigation(ROOT / "docs"),
        {"API": api},
        {"More": [{"All pages": MAP}, {"Changes": "changelog.md"}]},
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Pages and assets that are made rather than found in docs/; the map makes room for the home page."""
    made = {
        "index.md": home(ROOT),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
        **reference(),
        **dict(explorers(ROOT)),
        **{f"assets/{name}": (ROOT / "website" / name).read_text(encoding="utf-8") for name in ASSETS},
    }
    pages = files.get_file_from_path(MAP)
    assert pages is not None
    pages.dest_uri, pages.url = "pages.html", "pages.html"
    without = lacking()
    if without:
        log.info("pictures of the explorer are those of docs/explorer: %s is not installed", without)
    else:
        for path, picture in pictures().items():
            old = files.get_file_from_path(path)
            if old is not None:
                files.remove(old)
            files.append(File.generated(config, path, content=picture))
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with the links of the site; a chapter of the tutorial with what its code prints, which ends a strict build where the page
    says otherwise."""
    place = page.file.src_uri
    if is_chapter(place):
        markdown, faults = with_outputs(ROOT, place, markdown)
        for fault in faults:
            log.warning("%s: %s", place, fault)
    text = for_python_markdown(for_site(markdown, SOURCES.get(place, f"docs/{place}"), place, MOVED))
    return with_explorers(text) if place == PAGE else text


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Ends a strict build where a page has lost a list, a table or a heading. Pages with HTML or docstrings are not compared."""
    place = page.file.src_uri
    if place != "index.md" and not place.startswith(f"{FOLDER}/"):
        for fault in lost_blocks(page.markdown or "", html):
            log.warning("%s: %s", place, fault)
    return html


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Ends a strict build where reading the page would need a network."""
    for fault in requests(output):
        log.warning("%s: %s", page.file.src_uri, fault)
    return output
