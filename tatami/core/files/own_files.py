"""The content of Tatami's own files, which keys of caches and saved programs depend on, wherever the package lies.

Size and time of a file say nothing if builds set them (Nix and Bazel: time 1, layers of images, `SOURCE_DATE_EPOCH`), so every
byte is read, once per process, when a cache is first used: 680 files of 5 MB take some 20 ms."""

from __future__ import annotations

import hashlib
import os
import sys
import zipimport
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_LEFT_OUT = ("__pycache__",)


@lru_cache(maxsize=8)
def package_digest(layers: tuple[str, ...] = ()) -> str:
    """sha256 of the names and contents of the package's files, or of the files in the folders `layers`. A package in one file
    (a zip, an executable) has the digest of that file, whatever `layers` says."""
    found = hashlib.sha256()
    archive = archive_of_package()
    if archive is not None:
        found.update(Path(archive).read_bytes())
        return found.hexdigest()
    for root in [_ROOT / layer for layer in layers] or [_ROOT]:
        for name, path in sorted(_files(str(root))):
            found.update(f"{name}\0{os.path.getsize(path)}\0".encode())
            with open(path, "rb") as file:
                found.update(file.read())
    return found.hexdigest()


def _files(root: str) -> Iterator[tuple[str, str]]:
    """(name in the package, path) of each file that is not derived from another."""
    for folder, folders, names in os.walk(root, followlinks=True):
        folders[:] = [f for f in folders if f not in _LEFT_OUT and not f.startswith(".")]
        for name in names:
            if not name.startswith("."):
                path = os.path.join(folder, name)
                yield path.removeprefix(str(_ROOT)), path


def archive_of_package() -> str | None:
    """The file that holds the whole package: a zip, or the executable of a frozen program. None if the package is a folder."""
    if getattr(sys, "frozen", False):
        return sys.executable
    spec = find_spec("tatami")
    loader = spec.loader if spec is not None else None
    return loader.archive if isinstance(loader, zipimport.zipimporter) else None


@lru_cache(maxsize=16)
def package_version(package: str) -> str:
    """The identity of another package: its version, and the content of its first file, which a build from a checkout changes.
    Empty if it is not installed."""
    try:
        said = version(package)
    except PackageNotFoundError:
        said = ""
    spec = find_spec(package)
    path = spec.origin if spec is not None else None
    content = Path(path).read_bytes() if path is not None and os.path.isfile(path) else b""
    return f"{said} {hashlib.sha256(content).hexdigest()}" if said or content else ""
