"""Markdown as GitHub reads it, for the Markdown of MkDocs, and checks of what becomes of a page: the same blocks, no
requests.

The pages are written for GitHub (CommonMark with tables). MkDocs uses Python-Markdown, which takes a list for a part of the
paragraph above it unless a blank line stands between them.
"""

from __future__ import annotations

import re
from collections import Counter

from markdown_it import MarkdownIt

from tests.docs.pages import FENCE

ITEM = re.compile(r"(?:[-*+]|1[.)]) +\S")
"""A line that begins a list: GitHub lets only number 1 interrupt a paragraph."""
WITHIN = re.compile(r"\s|[-*+] |\d+[.)] |$")
"""The line before an item if it needs no blank line: blank, indented (of the item above it), or an item."""
FETCHED = re.compile(r"""<(?!a\b)[a-z]+\b[^>]*?\b(?:src|href|srcset|data|poster)=["']?(?:https?:)?//[^>]*>""", re.IGNORECASE)
BLOCKS = ("h1", "h2", "h3", "h4", "li", "tr", "pre", "blockquote", "img")


def for_python_markdown(text: str) -> str:
    """`text` with a blank line between a paragraph and the list after it."""
    shown = FENCE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text).split("\n")
    out: list[str] = []
    before = ""
    for line, visible in zip(text.split("\n"), shown, strict=True):
        if ITEM.match(visible) and not WITHIN.match(before):
            out.append("")
        out.append(line)
        before = visible
    return "\n".join(out)


def lost_blocks(markdown: str, html: str) -> list[str]:
    """Kinds of blocks of which `html` has another number than GitHub's reading of `markdown`."""
    github = tags(MarkdownIt("commonmark").enable("table").render(markdown))
    ours = tags(html)
    return [f"{name}: {ours[name]} in the site, {github[name]} at GitHub" for name in BLOCKS if ours[name] != github[name]]


def requests(html: str) -> list[str]:
    """Tags that make a browser fetch something from another host; a link that a reader follows is not one."""
    return [m[0] for m in FETCHED.finditer(html)]


def tags(html: str) -> Counter[str]:
    return Counter(re.findall(r"<([a-z][a-z0-9]*)\b", html))
