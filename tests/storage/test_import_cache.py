"""A model file that was imported before is not imported again, unless a byte that was read has changed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tatami.core.document import ConstantRef
from tatami.core.files.data_files import ModelFile
from tatami.core.module import Module
from tatami.execution.frames import PART_BYTES
from tatami.models import open_model
from tatami.prepare import prepare
from tatami.runtime.building.cache import default_cache
from tatami.stages import show
from tatami.storage import import_cache
from tatami.storage.program_cache import chain_parts

RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TATAMI_PROGRAM_CACHE", "1")
    monkeypatch.setenv("TATAMI_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """x + outside + inside + halves + small: bytes in another file, in the model's, as varints (nowhere), and a few."""
    outside = numpy_helper.from_array(RANDOM.normal(size=(40, 5)).astype(np.float32), "outside")
    (tmp_path / "m.data").write_bytes(b"head" + outside.raw_data)
    halves = RANDOM.normal(size=(40, 5)).astype(np.float16)
    constants = [
        outside,
        numpy_helper.from_array(RANDOM.normal(size=(40, 5)).astype(np.float32), "inside"),
        helper.make_tensor("halves", TensorProto.FLOAT16, (40, 5), halves.reshape(-1)),
        numpy_helper.from_array(np.array([1, 2, 3, 4, 5], np.float32), "small"),
    ]
    outside.ClearField("raw_data")
    outside.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "m.data"), ("offset", "4"), ("length", "800")):
        outside.external_data.add(key=key, value=value)
    nodes = [
        helper.make_node("Cast", ["halves"], ["cast"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "outside"], ["a"]),
        helper.make_node("Add", ["a", "inside"], ["b"]),
        helper.make_node("Add", ["b", "cast"], ["c"]),
        helper.make_node("Add", ["c", "small"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("N", 5))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ("N", 5))
    graph = helper.make_graph(nodes, "m", [x], [y], constants)
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString())
    return path


def opened(path: Path) -> Module[Any]:
    return open_model(path)["frontend"]


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that an importer was run for."""
    found: list[str] = []
    through = import_cache.import_file

    def counted(file: ModelFile, name: str, find_importer: Callable[[str], Any], examples: Any) -> Any:
        def find(name: str) -> Any:
            found.append(file.name)
            return find_importer(name)

        return through(file, name, find, examples)

    monkeypatch.setattr("tatami.models.import_file", counted)
    return found


def test_a_second_opening_gives_the_same_module_without_the_importer(model: Path, imports: list[str]) -> None:
    first, second = opened(model), opened(model)
    assert imports == ["m.onnx"]
    assert second == first and list(second.constants) == list(first.constants)
    for name, tensor in first.constants.items():
        assert second.constants[name].array.tobytes() == tensor.array.tobytes()
        assert not second.constants[name].array.flags.writeable


def test_constants_are_not_kept_a_second_time(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    embed = vars(import_cache)["embed_constant"]

    def counted(tensor: Any) -> ConstantRef:
        held.append(tensor.array.nbytes)
        return embed(tensor)

    monkeypatch.setattr(import_cache, "embed_constant", counted)
    opened(model)
    assert sorted(held) == [20, 800]  # the few numbers, and the cast halves


def test_constants_of_a_model_just_imported_are_read_again_as_those_of_one_that_was_kept(model: Path) -> None:
    first = opened(model)
    kept = opened(model)
    was = {n: t.array.tobytes() for n, t in kept.constants.items()}
    for name, tensor in first.constants.items():
        tensor.release()
        is_in_a_file = name in {n for n, t in kept.constants.items() if t._reload is not None}
        assert ("array" in vars(tensor)) != is_in_a_file
        assert tensor.array.tobytes() == was[name]
    assert sum("array" in vars(t) and t._reload is not None for t in first.constants.values()) == 2
    data = model.with_name("m.data")
    data.write_bytes(data.read_bytes()[:-1] + b"\x41")
    changed = next(t for n, t in first.constants.items() if was[n] in data.read_bytes() or was[n][:-1] in data.read_bytes())
    changed.release()
    with pytest.raises(TatamiError, match="has changed since it was compiled"):
        _ = changed.data


def test_a_constant_is_found_behind_others_that_begin_as_it_does() -> None:
    zeros, wanted = bytes(400), bytes(300) + b"end"
    assert import_cache._find(zeros + b"x" + wanted, wanted, 0) == 401
    assert import_cache._find(zeros + b"x" + wanted[:-1], wanted, 0) == -1
    assert import_cache._find(b"abcd" + wanted, memoryview(wanted), 4) == 4


def test_a_changed_byte_of_the_data_is_another_model(model: Path, imports: list[str]) -> None:
    first = opened(model)
    data = model.with_name("m.data")
    data.write_bytes(data.read_bytes()[:-1] + b"\x40")
    second = opened(model)
    assert imports == ["m.onnx"] * 2 and second != first
    data.write_bytes(b"HEAD" + data.read_bytes()[4:])  # bytes that no tensor reads
    assert opened(model) == second and imports == ["m.onnx"] * 2


@pytest.mark.parametrize("how", ["gone", "short", "linked"])
def test_data_that_may_not_be_read_is_refused_although_the_model_was_imported(model: Path, how: str) -> None:
    opened(model)
    data = model.with_name("m.data")
    if how == "short":
        data.write_bytes(data.read_bytes()[:100])
    else:
        data.rename(model.with_name("other"))
        if how == "linked":
            data.symlink_to("other")
    with pytest.raises(TatamiError) as caught:
        opened(model)
    assert caught.value.diagnostics[0].kind == ("InvalidDocument" if how == "short" else "FileUnreadable")


def test_an_entry_of_another_form_is_a_miss(model: Path, imports: list[str]) -> None:
    first = opened(model)
    cache = default_cache()
    assert cache.root is not None
    for entry in [p for p in cache.root.rglob("*") if p.is_file()]:
        cache.put(entry.parent.name + entry.name, b'{"programs": {}}')
    assert opened(model) == first and imports == ["m.onnx"] * 2


def test_too_many_bytes_of_their_own_are_not_kept(model: Path, imports: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_cache, "_held", lambda file: 100)
    assert opened(model) == opened(model) and imports == ["m.onnx"] * 2


def test_bytes_are_a_model_too(model: Path, imports: list[str]) -> None:
    graph = onnx.load(model)
    data = graph.SerializeToString()
    whole = opened(model)
    assert open_model(data)["frontend"] == whole == open_model(bytearray(data))["frontend"]
    assert imports == ["m.onnx", "bytes"]
    with pytest.raises(TatamiError) as caught:
        open_model(model.read_bytes())
    assert caught.value.diagnostics[0].kind == "FileUnreadable" and "no folder" in caught.value.diagnostics[0].why


def test_example_inputs_decide_the_structure_of_a_file_as_of_a_model(tmp_path: Path, imports: list[str]) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))
    axes = helper.make_tensor_value_info("axes", TensorProto.INT64, (1,))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ("N",))
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    model = helper.make_model(helper.make_graph([node], "m", [x, axes], [y]), opset_imports=[helper.make_opsetid("", 21)])
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    for axis, size in ((0, 3), (1, 2), (0, 3)):
        main = open_model(path, example_inputs={"axes": np.array([axis], np.int64)})["frontend"].main
        assert main.signature.outputs[0].shape == (size,)


def test_attributes_of_lists_and_of_open_sizes_are_found_again(tmp_path: Path, imports: list[str]) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("N", 1, 4, "W"))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ("N", "M"))
    kernel = numpy_helper.from_array(RANDOM.normal(size=(1, 2, 2, 2)).astype(np.float32), "kernel")
    nodes = [
        helper.make_node("ConvTranspose", ["x", "kernel"], ["a"], strides=[2, 2]),
        helper.make_node("Flatten", ["a"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "m", [x], [y], [kernel])
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString())
    first, second = prepare(path), prepare(path)
    assert imports == ["m.onnx"]
    assert list(chain_parts(second)) == list(chain_parts(first))
    assert show("region", second.stages["region"]) == show("region", first.stages["region"])


def test_constants_of_a_program_from_the_cache_are_read_again_when_they_are_asked_for(tmp_path: Path, monkeypatch: Any) -> None:
    """The program holds them as kernels read them; the file's bytes are not kept in addition."""
    monkeypatch.setenv("TATAMI_CACHE_DIR", str(tmp_path / "cache"))
    weights = np.arange(64 * 32, dtype=np.float32).reshape(64, 32) / 2048
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["B", 32])],
        [numpy_helper.from_array(weights, "w")],
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    tt.compile(path, threads=1)
    function = tt.compile(path, threads=1)
    (constant,) = (t for t in function.compilation.stages["frontend"].constants.values() if t.shape == (64, 32))
    assert not {"data", "array"} & vars(constant).keys()
    given = np.ones((2, 64), np.float32)
    np.testing.assert_allclose(function(x=given)["y"], given @ weights, rtol=1e-5)
    assert np.array_equal(constant.array, weights)
    function.save(tmp_path / "m.tatami")
    constant.release()
    path.write_bytes(b"another model, and a longer text than the tensor that was here" * 200)
    with pytest.raises(TatamiError, match="has changed"):
        _ = constant.array
    path.unlink()
    with pytest.raises(TatamiError, match="FileUnreadable"):
        _ = constant.array
    np.testing.assert_allclose(function(x=given)["y"], given @ weights, rtol=1e-5)


ONE, LAYERS = 1 << 11, 14
"""Weights of ONE x ONE in each layer: 16 MiB, 224 MiB together."""
MEASURE = """
import sys, numpy as np, tatami as tt
def now(what):
    return next(int(l.split()[1]) >> 10 for l in open("/proc/self/status") if l.startswith(what + ":"))
small = tt.compile(sys.argv[1], threads=1)
small(x=np.ones((1, 64), "f4"))  # what a first compilation imports
before = now("VmRSS")
f = tt.compile(sys.argv[2], threads=1)
y = f(x=np.ones((1, int(sys.argv[3])), "f4"))["y"]
print(now("VmHWM") - before, now("VmRSS") - before, float(y.sum()))
"""


def chain_of_products(folder: Path, size: int, layers: int) -> Path:
    """A model with its weights in another file of its folder."""
    weights, nodes = [], []
    for k in range(layers):
        nodes.append(helper.make_node("MatMul", [f"h{k}" if k else "x", f"w{k}"], ["y" if k + 1 == layers else f"h{k + 1}"]))
        tensor = numpy_helper.from_array(
            np.random.default_rng(k).standard_normal((size, size), np.float32) / size**0.5, f"w{k}"
        )
        weights.append(tensor)
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["B", size]) for n in ("x", "y")]
    model = helper.make_model(helper.make_graph(nodes, "g", ports[:1], ports[1:], weights), ir_version=9)
    path = folder / f"{size}.onnx"
    onnx.save_model(model, str(path), save_as_external_data=True, location=f"{size}.bin", size_threshold=0)
    return path


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_weights_beside_a_model_are_in_memory_once(tmp_path: Path) -> None:
    """While it is compiled, with an empty cache and from a full one, and afterwards: `setup` runs part by part."""
    paths = [chain_of_products(tmp_path, 64, 2), chain_of_products(tmp_path, ONE, LAYERS)]
    weights, part, sums = 4 * ONE * ONE * LAYERS >> 20, PART_BYTES >> 20, set()
    for _ in range(2):
        env = {**os.environ, "TATAMI_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(Path(tt.__file__).parents[1])}
        command = [sys.executable, "-c", MEASURE, *map(str, paths), str(ONE)]
        run = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
        peak, left, total = map(float, run.stdout.split())
        assert weights <= peak <= weights + part + 60 and left <= 1.2 * weights + 20, (peak, left)
        sums.add(total)
    assert len(sums) == 1
