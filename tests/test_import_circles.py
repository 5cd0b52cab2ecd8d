"""No file imports itself through others, and no folder another that imports it: whoever reads a part needs to know only what stands below it."""

from __future__ import annotations

from pathlib import Path

from tests.import_graph import Graph, circles, folder_graph, import_graph, part_graph, shown

ROOT = Path(__file__).parent.parent
FILES = import_graph(ROOT, ("tatami", "tests", "benchmarks"))


def test_no_files_import_each_other() -> None:
    found = circles(FILES)
    assert not found, "\n\n".join(shown(FILES, circle) for circle in found)


def test_no_folders_import_each_other() -> None:
    """A folder and one inside it may: the files of a layer's own folder are its face, which its parts read and which leads to
    them."""
    folders = folder_graph(import_graph(ROOT, ("tatami", "benchmarks")))
    found = circles(folders)
    assert not found, "\n\n".join(shown(folders, circle) for circle in found)


def test_no_parts_of_the_package_import_each_other() -> None:
    parts = part_graph(import_graph(ROOT, ["tatami"]))
    found = circles(parts)
    assert not found, "\n\n".join(shown(parts, circle) for circle in found)


def graph_of(folder: Path, **texts: str) -> Graph:
    """The graph of a package `p` with these files; `_` in a name stands for a folder."""
    for name, text in texts.items():
        path = folder / "p" / f"{name.replace('_', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return import_graph(folder, ["p"])


def test_a_circle_is_found_however_deep_its_imports_stand(tmp_path: Path) -> None:
    late = "def f() -> None:\n    from p.b import g\n"
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p.c\n"
    graph = graph_of(tmp_path, a=late, b=typed, c="from p import a, d\n", d="import json\n")
    assert circles(graph) == [["p/a.py", "p/b.py", "p/c.py"]]
    assert shown(graph, ["p/a.py", "p/b.py", "p/c.py"]).splitlines()[2] == "p/c.py imports p/a.py"


def test_a_chain_is_no_circle(tmp_path: Path) -> None:
    assert circles(graph_of(tmp_path, a="import p.b\nimport p.c\n", b="import p.c\n", c="")) == []


def test_a_circle_of_folders_is_found_without_one_of_files(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, x_a="import p.y.a\n", y_a="", y_b="import p.x.b\n", x_b="", x_in_c="import p.x.b\n")
    assert circles(graph) == []
    assert circles(folder_graph(graph)) == [["p/x", "p/y"]]


def test_a_circle_of_a_file_and_a_folder_is_found_without_one_of_files(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, a="import p.x.b\n", x_b="", x_in_c="import p.a\n")
    assert circles(graph) == circles(folder_graph(graph)) == []
    assert circles(part_graph(graph)) == [["p/a", "p/x"]]
