"""Each question that `tatami check` asks of an ONNX file: a model with that one fault, and one without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tatami.core.files.data_files import ModelFile
from tatami.onnx.check import check_file
from tests.onnx.small_models import FLOAT, INT64, branch, conditional, model, node, port


def found(made: onnx.ModelProto, path: Path | None = None) -> list[tuple[str, str]]:
    """(place, fault) of each finding."""
    faults, _ = check_file(ModelFile("m.onnx", made.SerializeToString()), path)
    assert all(d.kind == "InvalidDocument" and d.why.startswith("onnx.checker: ") for d in faults)
    return [(d.at.removeprefix("m.onnx: "), d.why.removeprefix("onnx.checker: ")) for d in faults]


def places(made: onnx.ModelProto) -> list[str]:
    return [at for at, _ in found(made)]


def plain(**fields: Any) -> onnx.ModelProto:
    return model([node("Neg", ["x"], ["y"], name="n")], **fields)


def test_a_right_model_has_no_findings() -> None:
    assert found(plain()) == []
    assert found(conditional(branch(node("Neg", ["x"], ["a"])), branch(node("Abs", ["x"], ["a"])))) == []


def test_what_is_not_a_model_is_left_to_the_import() -> None:
    assert check_file(ModelFile("m.onnx", b"\xff\xff\xff"), None) == ([], ())


def test_repairs_are_those_of_an_import() -> None:
    nodes = [node("Add", ["t", "x"], ["y"], name="late"), node("Mul", ["x", "x"], ["t"], name="early")]
    _, repairs = check_file(ModelFile("m.onnx", model(nodes).SerializeToString()))
    assert len(repairs) == 1


@pytest.mark.parametrize("where", ["input", "output"])
def test_ports_are_asked(where: str) -> None:
    made = plain()
    getattr(made.graph, where)[0].type.Clear()
    at = places(made)
    assert at[0] == ("x" if where == "input" else "y")


def test_constants_are_asked_but_those_in_other_files() -> None:
    made = plain(constants=[("c", np.zeros(3))])
    assert found(made) == []
    made.graph.initializer[0].dims[0] = 4
    assert places(made)[0] == "c"
    outside = plain(constants=[("c", np.zeros(3))])
    tensor = outside.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="gone.bin")
    assert places(outside) == ["model"]


def test_every_node_is_asked() -> None:
    made = model([node("Neg", ["x"], ["a"], name="first", hue=1), node("Neg", ["a"], ["y"], name="second", hue=1)])
    assert places(made) == ["first"]  # one fault, said once
    made = model([node("Neg", ["x"], ["a"], name="first", hue=1), node("Abs", ["a"], ["y"], name="second", tint=1)])
    assert places(made)[:2] == ["first", "second"]


def test_a_node_with_graphs_is_asked_with_the_model() -> None:
    """Alone, its graphs read names that nobody gives."""
    made = conditional(branch(node("Neg", ["x"], ["a"], hue=1)), branch(node("Abs", ["x"], ["a"])))
    assert places(made) == ["model"]
    flow = (branch(node("Neg", ["x"], ["a"])), branch(node("Abs", ["x"], ["a"])))
    two = conditional(*flow, node("Neg", ["x"], ["z"], name="n", hue=1))
    assert places(two)[0] == "n"


def test_shapes_are_inferred() -> None:
    made = model([node("Neg", ["x"], ["a"]), node("Relu", ["a"], ["y"])])
    made.graph.value_info.append(port("a", INT64))
    ((at, why),) = found(made)
    assert at == "model" and "Inferred elem type differs" in why


def test_operators_are_those_of_the_opset_of_the_model() -> None:
    upsample = model(
        [node("Upsample", ["x", "s"], ["y"], name="u")], [port("x"), port("s", FLOAT, (2,))], [port("y", FLOAT, ("a", "b"))]
    )
    assert places(upsample)[0] == "u"
    del upsample.opset_import[:]
    upsample.opset_import.append(helper.make_opsetid("", 9))
    assert found(upsample) == []
    upsample.opset_import[0].domain = "ai.onnx"
    assert "u" not in places(upsample)


def test_domains_are_those_of_the_model() -> None:
    made = plain()
    made.opset_import.append(helper.make_opsetid("own", 1))
    made.graph.node[0].op_type = "Clip"
    assert found(made) == []
    made.opset_import[0].domain = "ai.onnx"
    assert found(made) == []


def test_a_model_of_several_files_is_asked_by_its_path(tmp_path: Path) -> None:
    made = model([node("Add", ["x", "c"], ["y"])], constants=[("c", np.ones((1, 3)))])
    path = tmp_path / "m.onnx"
    onnx.save(made, path, save_as_external_data=True, location="c.bin", size_threshold=0)
    beside = onnx.load(path, load_external_data=False)
    assert beside.graph.initializer[0].data_location == TensorProto.EXTERNAL
    assert found(beside, path) == []
    (tmp_path / "c.bin").unlink()
    assert [at for at, _ in found(beside, path)] == ["model"]


def test_a_finding_is_the_first_paragraph_of_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str) -> Any:
        def check(*args: object, **kwargs: object) -> None:
            raise ValueError(text)

        return check

    for text, wanted in (("one\n two\n\nthree", "one two"), ("", "ValueError"), ("x" * 500, "x" * 400)):
        monkeypatch.setattr(onnx.checker, "check_node", refuse(text))
        assert found(plain()) == [("n", wanted)]
