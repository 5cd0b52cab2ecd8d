"""The directions of design §1: imports run the way data runs; and the size of a folder."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
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
"""The boxes of the picture, in the order of data: a layer imports only earlier ones."""
IMPORTERS = ("gguf", "harp", "onnx", "torch")
"""Ways in: each imports `core`, `frontend` and `derivative` only."""
ABOVE = {
    "__init__",
    "__main__",
    "api",
    "backends",
    "bench",
    "build",
    "cli",
    "compilation",
    "execution_plan",
    "generation",
    "ledger",
    "compiled_function",
    "decisions",
    "deploy",
    "derivative",
    "explorer",
    "models",
    "node_names",
    "observer",
    "pipeline",
    "prepare",
    "progress",
    "quantization",
    "report",
    "search",
    "serve",
    "specialised",
    "stages",
    "storage",
    "targets",
}
"""Parts above the chain: they may import any layer."""
FACE = {"frames", "ir", "operation", "ops", "specialise", "walk"}
"""Files in a layer's own folder that later layers may import, and every `…_ir`: nodes, visits of nodes, the table of
operations, sizes put into a graph, the frames of a program."""
OFFERED = {"operations", "views"}
"""Folders in a layer that later layers may import: operations of the table, and what one value shows by itself."""
NUMPY_FILES = {
    "core/numbers/codes.py",
    "core/numbers/derived.py",
    "core/numbers/words.py",
    "core/numbers/collectives.py",
    "core/numbers/numerics.py",
    "core/tensor.py",
    "core/numbers/trees.py",
    "core/document.py",
    "core/numbers/run_programs.py",
    "core/files/array_file.py",
    "frontend/graph.py",
    "loop/passes/run_writes.py",
    "report/playback.py",
    "tiny/meaning/routines.py",
}
NUMPY_PARTS = (
    *IMPORTERS,
    "runtime",
    "api",
    "specialised",
    "prepare",
    "backends",
    "bench",
    "cli",
    "deploy",
    "emulated",
    "generation",
    "quantization",
    "search",
)
MOST_FILES = 20
"""Maximum number of files in a folder, its `__init__.py` not counted: a longer list is of several subjects."""


@cache
def imports_of(path: Path) -> list[tuple[str, ...]]:
    """Every module that a file imports, at any depth, as its parts: ("tatami", "region", "views", "kinds"). A name that is
    imported from a package counts as a module of it."""
    out: list[tuple[str, ...]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            names = [f"{module}.{a.name}" for a in node.names] if module.count(".") <= 1 else [module]
        out += [tuple(n.split(".")) for n in names]
    return out


def is_offered(inside: tuple[str, ...]) -> bool:
    """True if later layers may import the module at this place in its layer: ("walk",), ("views", "images", "window")."""
    return bool(inside) and (inside[0] in OFFERED or inside[0] in FACE or inside[0].endswith("_ir"))


def is_meaning(relative: str) -> bool:
    """True if the file says what a layer means in numpy."""
    path = Path(relative)
    return path.name == "run.py" or path.parent.name == "meaning"


def why_not(relative: str, module: tuple[str, ...]) -> str:
    """The rule that an import of `module` in the file `relative` (to the package) breaks; empty if it breaks none."""
    me = relative.split("/")[0].removesuffix(".py")
    if me in ABOVE or module[0] != "tatami" or len(module) < 2 or module[1] == me:
        return ""
    other, inside = module[1], module[2:]
    if me in IMPORTERS:
        return "" if other in ("core", "frontend", "derivative") else "an importer knows core, frontend and derivative only"
    if me not in LAYERS:
        return f"{me} is not a part that this test knows: add it to LAYERS or ABOVE"
    if other not in LAYERS:
        return f"{other} stands above the layers"
    if LAYERS.index(other) > LAYERS.index(me):
        return f"{other} is a later layer"
    if other == "core" or me == "runtime" or is_offered(inside):
        return ""
    if is_meaning(relative) and inside[:1] in (("run",), ("meaning",)):
        return ""
    return f"a layer offers later ones its {', '.join(sorted(FACE))}, *_ir, and its folders {', '.join(sorted(OFFERED))}"


FILES = sorted(p.relative_to(PACKAGE).as_posix() for p in PACKAGE.rglob("*.py"))


def part_of(relative: str) -> str:
    return relative.split("/")[0].removesuffix(".py")


@pytest.mark.parametrize("part", sorted({part_of(f) for f in FILES}))
def test_a_layer_imports_only_core_and_what_earlier_layers_offer(part: str) -> None:
    broken = [
        f"{file} imports {'.'.join(module)}: {why}"
        for file in FILES
        if part_of(file) == part
        for module in imports_of(PACKAGE / file)
        if (why := why_not(file, module))
    ]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    ("file", "module", "words"),
    [
        ("region/lower.py", "plan.ir", "plan is a later layer"),
        ("loop/lower.py", "plan.choose", "a layer offers later ones"),
        ("loop/nests/rows.py", "region.fusion.partition", "a layer offers later ones"),
        ("plan/choose.py", "region.run", "a layer offers later ones"),
        ("onnx/load.py", "tiny.ir", "an importer knows"),
        ("c/print.py", "pipeline", "pipeline stands above"),
        ("novel/file.py", "core.expr", "novel is not a part"),
    ],
)
def test_a_forbidden_import_is_found(file: str, module: str, words: str) -> None:
    assert words in why_not(file, ("tatami", *module.split(".")))


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("loop/images/window.py", "region.views.images.window"),
        ("region/run.py", "tiny.run"),
        ("cu/streaming/sort.py", "gpu.stream_ir"),
        ("runtime/cpu/program.py", "c.print_entry"),
        ("onnx/load.py", "frontend.graph"),
        ("report/explain.py", "plan.choose"),
    ],
)
def test_what_a_layer_offers_may_be_imported(file: str, module: str) -> None:
    assert why_not(file, ("tatami", *module.split("."))) == ""


def test_imports_are_found_at_any_depth(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text(
        "from tatami.plan.choose import choose\nfrom tatami import api\n\ndef f():\n    from tatami.region import walk\n"
    )
    assert imports_of(file) == [("tatami", "plan", "choose"), ("tatami", "api"), ("tatami", "region", "walk")]


def test_islpy_stays_in_the_polyhedral_layers() -> None:
    users = {part_of(file) for file in FILES if any(m[0] == "islpy" for m in imports_of(PACKAGE / file))}
    assert users == {"poly_view"}


def test_numpy_stays_where_numbers_are() -> None:
    users = {file for file in FILES if any(m[0] == "numpy" for m in imports_of(PACKAGE / file))}
    assert not {f for f in users if not (f in NUMPY_FILES or is_meaning(f) or part_of(f) in NUMPY_PARTS)}


def full_folders(files: Iterable[Path]) -> list[str]:
    """Each folder with more than MOST_FILES of these files, `__init__.py` not counted, with the number."""
    count: dict[Path, int] = {}
    for file in files:
        if file.name != "__init__.py":
            count[file.parent] = count.get(file.parent, 0) + 1
    return [f"{folder} has {n} files" for folder, n in sorted(count.items()) if n > MOST_FILES]


def test_a_folder_is_seen_at_a_glance() -> None:
    root = PACKAGE.parent
    assert not full_folders(
        p.relative_to(root)
        for top in ("tatami", "tests", "benchmarks")
        for p in (root / top).rglob("*")
        if p.is_file() and p.suffix != ".pyc"
    )


def test_a_full_folder_is_found() -> None:
    files = [Path("p", "a", "__init__.py"), *(Path("p", "a", f"m{i}.py") for i in range(MOST_FILES)), Path("p", "b.py")]
    assert full_folders(files) == []
    assert full_folders([*files, Path("p", "a", "one_more.py")]) == ["p/a has 21 files"]
