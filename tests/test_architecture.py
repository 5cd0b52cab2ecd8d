"""The directions of design §1: imports run the way data runs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "tatami"
LAYERS = [
    "core",
    "frontend",
    "tiny",
    "indexbook",
    "poly_view",
    "region",
    "poly_core",
    "plan",
    "loop",
    "gpu",
    "execution",
    "c",
    "cu",
    "emulated",
    "runtime",
]
IMPORTERS = ("harp", "onnx", "torch")
ABOVE = {
    "__init__",
    "__main__",
    "api",
    "backends",
    "bench",
    "cli",
    "compilation",
    "decisions",
    "models",
    "observer",
    "pipeline",
    "prepare",
    "progress",
    "report",
    "specialised",
    "stages",
    "storage",
}
NUMPY_FILES = {
    "core/numbers/numerics.py",
    "core/tensor.py",
    "core/numbers/trees.py",
    "core/document.py",
    "core/files/array_file.py",
    "tiny/meaning/routines.py",
}


def imports_of(path: Path) -> list[tuple[str, ...]]:
    """(part, file) of every module of the package that a file imports, at any depth."""
    out: list[tuple[str, ...]] = []
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            names = [f"{module}.{a.name}" for a in node.names] if module.count(".") == 1 else [module]
        out += [tuple(n.split(".")) for n in names]
    return out


FILES = sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_layer_imports_only_core_and_earlier_irs(path: Path) -> None:
    me = part_of(path)
    if me in ABOVE:
        return
    for module in imports_of(path):
        if module[0] != "tatami" or len(module) < 2 or module[1] == me:
            continue
        other = module[1]
        file = module[2] if len(module) > 2 else ""
        if me in IMPORTERS:
            assert other in ("core", "frontend"), f"{path.name} imports {'.'.join(module)}"
            continue
        assert other in LAYERS, f"{path} imports {'.'.join(module)}: only core and earlier layers"
        assert LAYERS.index(other) < LAYERS.index(me), f"{path} imports the later layer {other}"
        if other == "core" or me == "runtime":
            continue
        allowed = (
            file in FACE
            or any("/".join(module[1:n]) in OFFERED for n in (3, 4))
            or (is_meaning(path) and file in ("run", "meaning"))
        )
        assert allowed, f"{path} imports {'.'.join(module)}: only what a layer offers to later ones"


FACE = {
    "canonical_key",
    "down_columns",
    "flatten",
    "form_passes",
    "frames",
    "ir",
    "nest_form",
    "operation",
    "ops",
    "overlap",
    "own_names",
    "partition_ir",
    "specialise",
    "stream_ir",
    "walk",
}
"""What a layer offers to later ones: its nodes, its table of operations, and questions that a value answers by itself."""

OFFERED = {"frontend/operations", "plan/gpu/limits", "plan/gpu/stream_k_cut", "plan/pairs/limits", "region/views"}
"""Folders and files, besides those of FACE, whose questions a value answers by itself: later layers may ask them."""


def is_meaning(path: Path) -> bool:
    """True if the file says what a layer means in numpy."""
    return path.name.startswith("run") or path.parent.name == "meaning"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_islpy_stays_in_the_polyhedral_layers(path: Path) -> None:
    if part_of(path) not in ("poly_view", "poly_core"):
        assert not any(m[0] == "islpy" for m in imports_of(path))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_numpy_stays_where_numbers_are(path: Path) -> None:
    relative = path.relative_to(PACKAGE).as_posix()
    part = part_of(path)
    allowed = (
        relative in NUMPY_FILES
        or is_meaning(path)
        or part
        in (
            *IMPORTERS,
            "runtime",
            "api",
            "specialised",
            "prepare",
            "backends",
            "bench",
            "cli",
            "emulated",
        )
        or relative in ("frontend/graph.py", "report/playback.py")
    )
    if not allowed:
        assert not any(m[0] == "numpy" for m in imports_of(path)), f"{relative} imports numpy"


def test_a_forbidden_import_is_found(tmp_path: Path) -> None:
    bad = tmp_path / "x.py"
    bad.write_text("from tatami.plan.choose import choose\n")
    assert ("tatami", "plan", "choose") in imports_of(bad)
