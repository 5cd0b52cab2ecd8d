"""Pictures of the explorer's views for the site: taken when it is built, by a browser without a window."""

from __future__ import annotations

import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

SIZE = (1180, 780)
"""Width and height in pixels, those of the pictures in docs/."""
FOLDER = "explorer"
"""The folder of the pictures in docs/ and in the site."""


def lacking() -> str:
    """The first thing that pictures need and this machine lacks; empty if there is none."""
    programs = (("chromium", "chromium-browser"), ("chromedriver",))
    missing = (names[0] for names in programs if not any(map(shutil.which, names)))
    packages = (name for name in ("selenium", "pytest", "starlette", "uvicorn") if find_spec(name) is None)
    return next(iter((*missing, *packages)), "")


def pictures() -> dict[str, bytes]:
    """Path in docs/ -> a picture of that view, taken now."""
    from tests.explorer.screenshots import MADE, take

    with tempfile.TemporaryDirectory() as folder:
        take(Path(folder), *SIZE, names=MADE)
        return {f"{FOLDER}/{name}.png": (Path(folder) / f"{name}.png").read_bytes() for name in MADE}
