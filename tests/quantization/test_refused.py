"""Inputs of `tt.quantize` and `tatami quantize` that are wrong or hostile: one diagnostic, never a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper

import tatami as tt
from tatami.cli import main
from tatami.core.diagnostic import TatamiError
from tests.quantization.models import by_tatami, model_of, numbers, perceptron

GOOD = numbers(4, 96)
NAN = np.full((4, 96), np.nan, np.float32)

WRONG_OPTIONS = [
    ("int3", "'int3' is not a mode"),
    (8, "a int is not a mode"),
    (None, "a NoneType is not a mode"),
    ({"weights": "int2"}, "Invalid enum value 'int2'"),
    ({"weight": "int4"}, "unknown field `weight`"),
    ({"block": "many"}, "Expected `int | null`"),
    ({"block": -1}, "a block of -1"),
    ({"block": 1 << 40}, "a block of"),
    ({"weights": "int4", "activations": "dynamic"}, "multiplied with weights of 8 bits"),
    ({"activations": "dynamic", "block": 32}, "one scale per column"),
    ({"form": "MatMulNBits", "block": 24}, "blocks of 16, 32, 64"),
    ({"form": "MatMulNBits", "activations": "dynamic"}, "activations of floats"),
    ({"accuracy_level": 4}, "an attribute of MatMulNBits"),
    ({"activations": "static"}, "no arrays to run it on"),
    ({"percentile": 20.0}, "20.0 per cent"),
    ({"percentile": float("nan")}, "nan per cent"),
    ({1: 2}, "Expected `str`"),
    ({"ranges": "entropy"}, "activations 'float' have no ranges to find"),
    ({"activations": "dynamic", "ranges": "percentile"}, "activations 'dynamic' have no ranges to find"),
    ({"percentile": 99.0}, "ranges 'minmax' have no percentage"),
]


@pytest.mark.parametrize(("mode", "says"), WRONG_OPTIONS)
def test_options_that_are_none(mode: object, says: str) -> None:
    with pytest.raises(TatamiError, match="E1009") as raised:
        tt.quantize(perceptron(), mode)
    assert says in str(raised.value)


WRONG_SAMPLES: list[tuple[Any, str]] = [
    ([], "it has no sample"),
    (7, "a int is not a list of samples"),
    ("x.npz", "a str is not a list of samples"),
    ([{"x": GOOD}, {}], "calibration[1]['x']: the sample lacks this input"),
    ([{"x": GOOD, "z": GOOD}], "the model has no such input"),
    ([{"x": GOOD.astype(np.float64)}], "the array has the dtype float64; the input has float32"),
    ([{"x": GOOD[:, :95]}], "the array has the shape [4, 95]; the input has [?, 96]"),
    ([{"x": GOOD[0]}], "the array has the shape [96]"),
    ([{"x": GOOD[:0]}], "without elements"),
    ([{"x": NAN}], "numbers that are not finite"),
    ([{"x": np.array(["a"])}], "the array has the dtype <U1"),
    ([{"x": "text"}], "the array has the dtype <U4"),
    ([{"x": [[None]]}], "the array has the dtype object"),
    ([[[1.0, 2.0], [3.0]]], "it is not an array"),
]


@pytest.mark.parametrize(("calibration", "says"), WRONG_SAMPLES)
def test_samples_that_do_not_fit(calibration: Any, says: str) -> None:
    with pytest.raises(TatamiError, match=r"E1801 InputMismatch") as raised:
        tt.quantize(perceptron(), "static", calibration=calibration)
    assert says in str(raised.value)


def test_samples_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tatami.quantization.samples.MOST", 5)
    with pytest.raises(TatamiError, match=r"E1706 .*more than 5 samples"):
        tt.quantize(perceptron(), "static", calibration=({"x": GOOD} for _ in iter(int, 1)))


def test_values_that_overflow_inside_the_model() -> None:
    model = perceptron()
    with pytest.raises(TatamiError, match="sample 1 gives numbers that are not finite in 'h'"):
        tt.quantize(model, "static", calibration=[{"x": GOOD}, {"x": np.full((1, 96), 3e38, np.float32) * np.sign(GOOD[:1])}])


def test_calibration_where_nothing_is_calibrated() -> None:
    for mode in ("int4", "dynamic"):
        with pytest.raises(TatamiError, match="nothing is calibrated"):
            tt.quantize(perceptron(), mode, calibration=[GOOD])


def test_models_without_a_layer() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    with pytest.raises(TatamiError, match=r"E1606 .*no product or convolution with constant weights"):
        tt.quantize(model_of(nodes, {}, {"x": ["N", 4]}, ["y"]))
    two = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    with pytest.raises(TatamiError, match="no product or convolution with constant weights"):
        tt.quantize(model_of(two, {}, {"x": [4, 4], "w": [4, 4]}, ["y"]))
    with pytest.raises(TatamiError, match="all of its layers stay as they are; the first one: excluded"):
        tt.quantize(perceptron(), exclude=["first", "second", "third"])
    with pytest.raises(TatamiError, match="weights without elements"):
        tt.quantize(model_of(two, {"w": numbers(0, 4)}, {"x": ["N", 0]}, ["y"]))


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_weights_that_are_not_finite(number: float) -> None:
    model = perceptron()
    weight = next(t for t in model.graph.initializer if t.name == "b")
    changed = onnx.numpy_helper.to_array(weight).copy()
    changed[3, 3] = number
    weight.CopyFrom(onnx.numpy_helper.from_array(changed, "b"))
    with pytest.raises(TatamiError, match=r"E1606 .*second.* 'b' have numbers that are not finite"):
        tt.quantize(model)
    assert tt.quantize(model, exclude=["second"]).layers[1].form == "excluded"


def test_weights_and_values_that_are_zero() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = model_of(nodes, {"w": np.zeros((96, 8), np.float32)}, {"x": ["N", 96]}, ["y"])
    for mode, samples in (("int4", None), ("dynamic", None), ("static", [np.zeros((2, 96), np.float32)])):
        made = tt.quantize(model, mode, calibration=samples)
        assert made.layers[0].error == 0
        np.testing.assert_array_equal(by_tatami(made.model, x=GOOD), np.zeros((4, 8)))
    with pytest.raises(TatamiError, match="the outputs of the first sample are 0"):
        tt.quantize(model, "int8", sensitivity=True)


@pytest.mark.parametrize("name", ["firs", "y", ""])
def test_names_that_are_no_layer(name: str) -> None:
    with pytest.raises(TatamiError, match=r"E1611 .*is not a layer with constant weights"):
        tt.quantize(perceptron(), exclude=[name])
    with pytest.raises(TatamiError, match="not a list of names"):
        tt.quantize(perceptron(), exclude="first")


@pytest.mark.parametrize("exclude", [None, 3, "first", ["first", 3]])
def test_lists_of_names_that_are_none(exclude: Any) -> None:
    with pytest.raises(TatamiError, match=r"E1009 .*not a list of names"):
        tt.quantize(perceptron(), exclude=exclude)


def test_an_input_without_a_dtype() -> None:
    model = perceptron()
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.UNDEFINED
    with pytest.raises(TatamiError, match="takes no tensor of numbers here"):
        tt.quantize(model, "static", calibration=[GOOD])


def test_outputs_that_change_their_sizes_are_not_compared() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "layer"),
        helper.make_node("Greater", ["a", "zero"], ["positive"]),
        helper.make_node("Reshape", ["positive", "all"], ["flat"]),
        helper.make_node("Compress", ["a", "flat"], ["y"]),
    ]
    constants = {"w": numbers(96, 64), "zero": np.array(0, np.float32), "all": np.array([-1])}
    model = model_of(nodes, constants, {"x": ["N", 96]}, ["y"])
    del model.graph.output[0].type.tensor_type.shape.dim[1]
    with pytest.raises(TatamiError, match="the outputs change their sizes with 'layer' quantised"):
        tt.quantize(model, "int4", sensitivity=True)
    assert tt.quantize(model, "int4").layers


def test_models_of_other_kinds(tmp_path: Path) -> None:
    for model in (tt.Graph("g"), "model.gguf", 3, None):
        with pytest.raises(TatamiError, match=r"E1608 .*only models of ONNX are quantised"):
            tt.quantize(model)
    with pytest.raises(TatamiError, match="E1701"):
        tt.quantize(tmp_path / "missing.onnx")
    (tmp_path / "noise.onnx").write_bytes(b"\xff\x00not a model")
    for given in (tmp_path / "noise.onnx", b"\xff\x00not a model"):
        with pytest.raises(TatamiError, match="E1609"):
            tt.quantize(given)
    with pytest.raises(TatamiError, match="no product or convolution"):
        tt.quantize(b"")


def test_constants_in_another_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save_model(perceptron(), path, save_as_external_data=True, location="m.data", size_threshold=0)
    assert tt.quantize(path).layers
    with pytest.raises(TatamiError, match="in another file, whose folder is not known"):
        tt.quantize(path.read_bytes())
    (tmp_path / "m.data").unlink()
    with pytest.raises(TatamiError, match=r"E1701 .*cannot be read"):
        tt.quantize(path)
    hostile = onnx.load_model(str(path), load_external_data=False)
    for tensor in hostile.graph.initializer:
        for entry in tensor.external_data:
            entry.value = "../../../../etc/passwd" if entry.key == "location" else entry.value
    path.write_bytes(hostile.SerializeToString())
    with pytest.raises(TatamiError, match="E1701"):
        tt.quantize(path)


def test_a_model_whose_version_cannot_be_converted() -> None:
    model = perceptron(opset=13)
    node = model.graph.node.add()
    node.CopyFrom(helper.make_node("NoSuchOperator", ["y"], ["z"], "old"))
    with pytest.raises(TatamiError, match=r"E1606 .*blocks and 4 bits need 21"):
        tt.quantize(model, "int4")
    assert tt.quantize(model, {"weights": "int4", "form": "MatMulNBits"}).layers


def test_outputs_that_cannot_be_written(tmp_path: Path) -> None:
    made = tt.quantize(perceptron())
    for path in (tmp_path / "model.txt", tmp_path / "missing" / "model.onnx"):
        with pytest.raises(TatamiError, match="E1702"):
            made.save(path)


def ran(*arguments: object) -> Any:
    return CliRunner().invoke(main, ["quantize", *map(str, arguments)])


def test_the_command(tmp_path: Path) -> None:
    model, output, sample = tmp_path / "model.onnx", tmp_path / "small.onnx", tmp_path / "a.npz"
    onnx.save_model(perceptron(), model)
    np.savez(sample, x=GOOD)
    np.save(tmp_path / "b.npy", GOOD)
    for options, form in (
        (["--mode", "int4", "--exclude", "third"], "int4, blocks of 32"),
        (
            ["--calibration", sample, "--calibration", tmp_path / "b.npy", "--ranges", "percentile", "--sensitivity"],
            "int8, static",
        ),
        (["--form", "MatMulNBits", "--block", 16, "--accuracy-level", 1], "int8, blocks of 16"),
    ):
        result = ran(model, "-o", output, *options)
        assert result.exit_code == 0, result.output
        assert form in result.output and "first" in result.output
        assert by_tatami(onnx.load_model(str(output)), x=GOOD).shape == (4, 24)


def test_the_command_counts_constants_in_other_files(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    onnx.save_model(perceptron(), model, save_as_external_data=True, location="model.data", size_threshold=0)
    whole = model.stat().st_size + (tmp_path / "model.data").stat().st_size
    result = ran(model, "-o", tmp_path / "small.onnx")
    share = (tmp_path / "small.onnx").stat().st_size / whole
    assert f"{share:.2f} of the model" in result.output, result.output


def test_the_command_refuses(tmp_path: Path) -> None:
    model, bad = tmp_path / "model.onnx", tmp_path / "bad.npz"
    onnx.save_model(perceptron(), model)
    bad.write_bytes(b"not an archive")
    wrong = tmp_path / "wrong.npz"
    np.savez(wrong, x=np.array([{}], object))
    for options, says in (
        (["-o", model], "it is the model itself"),
        (["-o", tmp_path / "o.onnx", "--calibration", bad], "E1701"),
        (["-o", tmp_path / "o.onnx", "--calibration", wrong], "E1701"),
        (["-o", tmp_path / "o.onnx", "--calibration", tmp_path / "none.npz"], "E1701"),
        (["-o", tmp_path / "o.onnx", "--exclude", "\x1b[31m"], "E1611"),
        (["-o", tmp_path / "o.txt"], "E1702"),
    ):
        result = ran(model, *options)
        assert result.exit_code == 1, result.output
        assert says in result.output and "Traceback" not in result.output and "\x1b" not in result.output
    assert ran(model).exit_code == 2
    assert ran(model, "-o", "x.onnx", "--mode", "int2").exit_code == 2
