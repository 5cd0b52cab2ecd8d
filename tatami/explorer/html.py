"""A page as one HTML file: its document, the modules of `page/` as one script, the style sheet.

The script is the modules one after another, in the order of their imports; they share one scope, so no two of them name the same
thing on their top level. The policy of the page names the script by its hash: no other script runs, whatever a name holds,
and no request is made."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

import msgspec

from tatami.core.faults.arguments import path_argument
from tatami.explorer.ir import Explored
from tatami.storage.dump import write_text

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=const |function |async function |class )", re.MULTILINE)
FIRST = "main"
"""The module that starts the page."""
_TITLE = "Tatami explorer"


@dataclass(frozen=True)
class Page:
    """A page that stands alone, as the text of an HTML file."""

    text: str

    def save(self, path: str | Path) -> Path:
        """Write the file. Raises FileUnwritable."""
        return write_text(path_argument(path, "path"), self.text)

    def _repr_html_(self) -> str:
        """The page in a frame of its own, whose script reaches nothing of the notebook."""
        return (
            f'<iframe sandbox="allow-scripts" style="width:100%;height:640px;border:1px solid #8888" srcdoc="{escape(self.text)}">'
            "</iframe>"
        )


def page_file(name: str) -> str:
    """The text of a file of `page/`."""
    return (files("tatami.explorer") / "page" / name).read_text(encoding="utf-8")


def script() -> str:
    """The modules of the page as one, each before those that import it."""
    order: dict[str, str] = {}
    waiting: list[str] = []

    def add(name: str) -> None:
        if name in order:
            return
        if name in waiting:
            raise ValueError(f"modules of the page import each other: {' '.join([*waiting, name])}")
        waiting.append(name)
        text = page_file(f"{name}.js")
        for module in _IMPORT.findall(text):
            add(module)
        order[waiting.pop()] = _EXPORT.sub("", _IMPORT.sub("", text))

    add(FIRST)
    return "\n".join(order.values())


def packed(page: Explored) -> str:
    """The document as text for a data element: gzip in base64, the same for equal documents."""
    return base64.b64encode(gzip.compress(msgspec.json.encode(page), mtime=0)).decode("ascii")


def html(page: Explored, edits: str = "") -> str:
    """The page as a document of HTML. `edits`: the address that compiles edited plans (`serve.py`); empty for a page that stands
    alone."""
    code = script()
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode("ascii")
    connect = "'self'" if edits else "'none'"
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; connect-src {connect}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return f"""<!DOCTYPE html>
<html lang="en"{f' data-edits="{edits}"' if edits else ""}>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{_TITLE}</title>
<link rel="icon" href="data:,">
<style>
{page_file("style.css")}</style>
</head>
<body>
<div id="page"></div>
<div id="said" role="status" aria-live="polite"></div>
<script type="application/octet-stream" id="data">{packed(page)}</script>
<script type="module">{code}</script>
</body>
</html>
"""
