"""A model whose outputs are words or maps is parsed once when it is compiled first, and not at all by a later process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tatami as tt
from tatami.api import prepare
from tatami.core.diagnostic import TatamiError
from tatami.onnx import load, source

X = np.array([[1.0, 2.0], [-3.0, 0.5], [0.0, -1.0]], np.float32)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TATAMI_PROGRAM_CACHE", "1")
    monkeypatch.setenv("TATAMI_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are parsed."""
    names: list[str] = []
    read = load.read_proto

    def counted(file: Any) -> onnx.ModelProto:
        names.append(file.name)
        return read(file)

    monkeypatch.setattr(load, "read_proto", counted)
    monkeypatch.setattr(source, "read_proto", counted)
    return names


def save(path: Path, labels: tuple[str, ...] = ("cat", "dog", "owl"), outside: bool = False) -> Path:
    """A classifier of three words, its scores as maps; with `outside` its offset is in another file."""
    nodes = [
        helper.make_node("Add", ["x", "offset"], ["moved"]),
        helper.make_node(
            "LinearClassifier",
            ["moved"],
            ["label", "scores"],
            domain="ai.onnx.ml",
            coefficients=[1.0, 0.0, -1.0, 0.5, 0.0, -1.0],
            intercepts=[0.1, 0.2, 0.3],
            classlabels_strings=labels,
        ),
        helper.make_node("ZipMap", ["scores"], ["maps"], domain="ai.onnx.ml", classlabels_strings=labels),
    ]
    offset = numpy_helper.from_array(np.array([0.25, 0.5], np.float32), "offset")
    if outside:
        (path.parent / "data.bin").write_bytes(offset.raw_data)
        offset.ClearField("raw_data")
        offset.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "data.bin"), ("offset", "0"), ("length", "8")):
            offset.external_data.add(key=key, value=value)
    words = helper.make_tensor_value_info("label", TensorProto.STRING, ["N"])
    maps = helper.make_value_info(
        "maps", helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.STRING, _floats()))
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])
    graph = helper.make_graph(nodes, "g", [x], [words, maps], [offset])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    return path


def _floats() -> onnx.TypeProto:
    return helper.make_tensor_type_proto(TensorProto.FLOAT, [])


def results(path: Path) -> tuple[list[str], list[dict[str, float]]]:
    found = tt.compile(path)(x=X)
    return list(found["label"]), found["maps"]


def test_one_parse_and_then_none(tmp_path: Path, parsed: list[str]) -> None:
    path = save(tmp_path / "m.onnx")
    first = results(path)
    assert parsed == ["m.onnx"]
    assert set(first[0]) <= {"cat", "dog", "owl"}
    assert results(path) == first
    assert parsed == ["m.onnx"]


def test_a_changed_file_is_imported_again(tmp_path: Path, parsed: list[str]) -> None:
    first = results(save(tmp_path / "m.onnx"))
    words = {"cat": "cow", "dog": "dab", "owl": "orb"}
    second = results(save(tmp_path / "m.onnx", tuple(words.values())))
    assert second[0] == [words[w] for w in first[0]]
    assert len(parsed) == 2


def test_bytes_of_another_file_are_looked_at(tmp_path: Path, parsed: list[str]) -> None:
    path = save(tmp_path / "m.onnx", outside=True)
    first = results(path)
    assert results(path) == first
    assert len(parsed) == 1
    (tmp_path / "data.bin").write_bytes(np.array([-9.0, 9.0], np.float32).tobytes())
    assert results(path) != first
    assert len(parsed) == 2


def test_an_import_of_a_calls_values_is_not_kept(tmp_path: Path, parsed: list[str]) -> None:
    path = tmp_path / "m.onnx"
    upper = helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="UPPER")
    ports = [helper.make_tensor_value_info(n, TensorProto.STRING, ["N"]) for n in ("x", "y")]
    graph = helper.make_graph([upper], "g", ports[:1], ports[1:])
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    for _ in range(2):
        assert list(tt.compile(path)(x=np.array(["a", "b"], object))["y"]) == ["A", "B"]
    assert len(parsed) == 2


def test_the_error_of_a_module_alone_stays(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx")
    texts = []
    for _ in range(2):
        with pytest.raises(TatamiError) as caught:
            prepare(path)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
