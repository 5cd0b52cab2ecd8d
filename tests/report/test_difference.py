"""Two dumps compared by node: names that only count are left out, everything else is told where it stands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tatami.cli import main
from tatami.report.difference import Change, Comparison, Json

PLAIN = "graph<B=4> main(x: f32[B, 32], w: f32[32, 16]) -> (y: f32[B, 16]) {\n    return relu(x @ w)\n}\n"


def dump(folder: Path, text: str, *more: str) -> str:
    folder.mkdir()
    (folder / "m.harp").write_text(text)
    options = ["--dump=all", "--target", "cpu:generic", *more]
    done = CliRunner().invoke(main, ["compile", str(folder / "m.harp"), "-o", str(folder / "out"), *options])
    assert done.exit_code == 0, done.output
    return str(folder / "out")


def diff(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["diff", *arguments])
    return done.exit_code, done.stdout if done.exit_code in (0, 1) and done.stdout else done.stderr


def test_equal_dumps_do_not_differ(tmp_path: Path) -> None:
    a, b = dump(tmp_path / "a", PLAIN), dump(tmp_path / "b", PLAIN)
    code, text = diff(a, b)
    assert code == 0 and all(line.endswith(": no differences") for line in text.splitlines()) and "tiny: " in text
    assert diff(a, b, "--json") == (0, "[]\n")


def test_a_node_that_is_added_renumbers_the_others_and_is_the_only_difference(tmp_path: Path) -> None:
    a, b = dump(tmp_path / "a", PLAIN), dump(tmp_path / "b", PLAIN.replace("x @ w", "exp(x) @ w"))
    code, text = diff(a, b, "--json")
    changes = [Change(**c) for c in json.loads(text)]
    assert code == 1
    tiny = [str(c) for c in changes if c.stage == "tiny"]
    assert len(tiny) == 2 and tiny[0].startswith("+ main uops n2 ") and tiny[1] == '~ main uops n4 src[0]: "n0" -> "n2"'
    region = [c for c in changes if c.stage == "region"]
    assert [c.how for c in region if c.node == "main body r0"] == ["added"]
    assert not [c for c in region if c.how == "removed"]
    back = [Change(**c) for c in json.loads(diff(b, a, "--json")[1])]
    assert [c.how for c in back if c.stage == "tiny"] == ["removed", "changed"]


def test_another_operation_another_size_and_another_constant_are_told(tmp_path: Path) -> None:
    a = dump(tmp_path / "a", PLAIN)
    assert "relu" in diff(a, dump(tmp_path / "b", PLAIN.replace("relu", "exp")))[1]
    wider = diff(a, dump(tmp_path / "c", PLAIN.replace("16", "24")))[1]
    assert "~ main signature.outputs" in wider and "16 -> 24" in wider
    other = diff(a, dump(tmp_path / "d", PLAIN, "--target", "cpu:avx2"))[1]
    assert "~ document target: cpu:generic -> cpu:avx2" in other and "tiny: no differences" in other


def test_what_is_no_dump_is_refused(tmp_path: Path) -> None:
    a = dump(tmp_path / "a", PLAIN)
    empty = tmp_path / "empty"
    empty.mkdir()
    for wrong, kind in ((str(empty), "FileUnreadable"), (str(tmp_path / "none"), "FileUnreadable"), (f"{a}/main.c", "E")):
        code, text = diff(a, wrong)
        assert code == 1 and kind in text
    code, text = diff(f"{a}/0_frontend.json", f"{a}/2_tiny.json")
    assert code == 1 and "no stage is in both" in text
    assert diff(f"{a}/2_tiny.json", f"{a}/2_tiny.json")[0] == 0


def node(name: str, op: str, *src: str) -> dict[str, Json]:
    return {"id": name, "op": op, "src": list(src)}


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ([node("n0", "a"), node("n1", "b", "n0")], [node("n5", "a"), node("n7", "b", "n5")], []),
        ([node("n0", "a"), node("n1", "b", "n0")], [node("n0", "a"), node("n1", "b", "n1")], ['~ p l n1 src[0]: "n0" -> "n1"']),
        ([node("n0", "a")], [node("n0", "b")], ["- p l n0", "+ p l n0"]),
        ([node("n0", "a"), node("n1", "a")], [node("n0", "a")], ["- p l n1"]),
    ],
)
def test_lists_of_nodes(a: list[Json], b: list[Json], said: list[str]) -> None:
    found = Comparison().changes("tiny", {"p": {"l": a}}, {"p": {"l": b}})
    assert [str(c).split(" {")[0] for c in found] == said
