"""The package in other places than a folder of its own, and caches that see what it is made of by content (reliability.md)."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import tatami

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys, tempfile
from pathlib import Path
import numpy as np
import tatami as tt
g = tt.Graph("g")
x = g.input("x", ("N", 8), tt.fp32)
g.output("y", x.softmax(1)), g.output("v", x.topk(3, axis=1)[0]), g.output("p", x @ x.transpose(0, 1))
a = np.arange(16, dtype=np.float32).reshape(2, 8)
f = tt.compile(g)
assert f(x=a)["v"].tolist() == [[7, 6, 5], [15, 14, 13]]
saved = f.save(Path(tempfile.mkdtemp()) / "p.tatami")
assert tt.load(saved, trust=True)(x=a)["v"].tolist() == [[7, 6, 5], [15, 14, 13]]
assert tt.parse("graph main(x: f32[3]) -> f32[3] { return x.relu() }").main.graph[0].op == "relu"
assert tt.api.prepare(g, target="sm90").stages["cu"].main.units
print(tt.__file__)
"""


def files_of_package() -> list[Path]:
    return [p for p in sorted((ROOT / "tatami").rglob("*")) if p.is_file() and "__pycache__" not in p.parts]


def packed(path: Path, *suffixes: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for p in files_of_package():
            if not suffixes or p.suffix in suffixes:
                out.write(p, p.relative_to(ROOT))
    return path


def python(program: str, package: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(package), "TATAMI_CACHE_DIR": str(cache), "TATAMI_CALIBRATE": "0"}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, cwd=cache)


def test_the_package_runs_from_a_zip(tmp_path: Path) -> None:
    done = python(PROGRAM, packed(tmp_path / "tatami.zip"), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith(str(tmp_path / "tatami.zip"))


def test_a_zip_without_the_texts_says_so_at_import(tmp_path: Path) -> None:
    done = python("import tatami", packed(tmp_path / "tatami.zip", ".py"), tmp_path)
    assert done.returncode == 1
    said = done.stderr.strip().splitlines()[-1]
    assert (
        said.startswith("ImportError: tatami is packed without c/runtime_text/tatami.h, c/pages/chunk.c")
        and "--collect-all tatami" in said
    )


@pytest.fixture(scope="module")
def copy_of_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copied")
    shutil.copytree(ROOT / "tatami", folder / "tatami", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


DIGESTS = """
from tatami.storage.program_cache import own_files
from tatami.storage.tatami_file import code_stamp
print(own_files(), code_stamp())
"""


@pytest.mark.parametrize(
    "name",
    [
        "tiny/lowering/view.py",
        "c/runtime_text/pool.c",
        "c/pages/products/panel.c",
        "cu/header/tatami_ptx.cuh",
        "cu/pages/kernel.cu",
        "harp/grammar.lark",
    ],
)
def test_keys_see_sources_by_content(copy_of_package: Path, tmp_path: Path, name: str) -> None:
    """One byte for another, with the size and the time as they were, as builds with fixed times make them."""
    path = copy_of_package / "tatami" / name
    was, info = path.read_bytes(), path.stat()
    before = python(DIGESTS, copy_of_package, tmp_path).stdout.split()
    path.write_bytes(was.replace(b"a", b"b", 1) if b"#" not in was[:1] else was[:2] + b"~" + was[3:])
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    try:
        after = python(DIGESTS, copy_of_package, tmp_path).stdout.split()
        assert path.stat().st_size == info.st_size
        assert len(after) == 2 and before[0] != after[0]
        assert (before[1] != after[1]) == name.startswith("c/")
    finally:
        path.write_bytes(was)


def test_keys_do_not_see_times_and_places(copy_of_package: Path, tmp_path: Path) -> None:
    before = python(DIGESTS, copy_of_package, tmp_path).stdout.split()
    for path in (copy_of_package / "tatami").rglob("*"):
        os.utime(path, (1, 1))
    other = tmp_path / "elsewhere"
    shutil.copytree(copy_of_package, other)
    assert python(DIGESTS, copy_of_package, tmp_path).stdout.split() == before
    assert python(DIGESTS, other, tmp_path).stdout.split() == before


def test_every_file_is_in_the_grammar_of_the_oldest_python() -> None:
    for path in files_of_package():
        if path.suffix == ".py":
            ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 11))


def test_the_versions_agree() -> None:
    """A release is named in two places: the wheel's, and what `tatami.__version__` says (contributing.md)."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert tatami.__version__ == declared
    assert f"## {declared}" in (ROOT / "CHANGELOG.md").read_text()
