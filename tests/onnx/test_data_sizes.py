"""Sizes that integers of the data decide: one compilation serves every value, and agrees with ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.onnx.backend import prepare
from tests.onnx.test_models import FLOAT, INT64, compare, ints, model, x


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_shapes_of_the_data() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "s"], ["reshaped"]),
        helper.make_node("Relu", ["reshaped"], ["a"]),
        helper.make_node("Expand", ["row", "e"], ["b"]),
        helper.make_node("Tile", ["x", "r"], ["c"]),
        helper.make_node("ConstantOfShape", ["e"], ["d"]),
        helper.make_node("TopK", ["x", "k"], ["f", "g"], axis=1),
        helper.make_node("Split", ["x", "cut"], ["h", "i"], axis=1),
        helper.make_node("Mul", ["x", "x"], ["square"]),
        helper.make_node("Reshape", ["square", "t"], ["j"], allowzero=1),
    ]
    inputs = [("x", FLOAT, ["N", 6]), ("row", FLOAT, [1, 3])]
    inputs += [(n, INT64, [k]) for n, k in (("s", 3), ("e", 2), ("r", 2), ("k", 1), ("cut", 2), ("t", 2))]
    outputs = [(n, INT64 if n == "g" else FLOAT, [None] * (3 if n == "a" else 2)) for n in "abcdfghij"]
    rows = (
        (4, i64(2, -1, 3), i64(5, 3), i64(2, 1), i64(3), i64(2, 4), i64(12, 2)),
        (4, i64(0, 3, 2), i64(1, 1), i64(1, 3), i64(1), i64(6, 0), i64(3, 8)),
        (3, i64(-1, 0, 1), i64(2, 3), i64(0, 1), i64(6), i64(1, 5), i64(18, 1)),
    )
    names = ("s", "e", "r", "k", "cut", "t")
    compare(
        model(nodes, inputs, outputs),
        *({"x": x(n, 6), "row": x(1, 3), **dict(zip(names, more, strict=True))} for n, *more in rows),
    )


def test_positions_of_the_data() -> None:
    nodes = [
        helper.make_node("Slice", ["x", "from", "to"], ["a"]),
        helper.make_node("Slice", ["x", "from", "to", "axes", "back"], ["b"]),
        helper.make_node("Pad", ["x", "pads"], ["c"]),
        helper.make_node("Pad", ["x", "pads"], ["d"], mode="edge"),
    ]
    inputs = [("x", FLOAT, ["N", 7]), ("from", INT64, [2]), ("to", INT64, [2]), ("pads", INT64, [4])]
    made = model(nodes, inputs, [(n, FLOAT, [None, None]) for n in "abcd"], ints(axes=[1, 0], back=[-2, 3]))
    most = np.iinfo(np.int64)
    places = (((0, 1), (3, 5)), ((-4, -2), (-1, most.max)), ((2, 9), (1, -100)), ((5, 1), (most.min, 4)), ((0, 0), (0, 0)))
    pads = ((0, 0, 0, 0), (1, 2, 0, 3), (-1, 1, 2, -3), (0, -2, -1, 0), (3, 0, 0, 0))
    feeds = [
        {"x": x(4 + i, 7), "from": i64(*a), "to": i64(*b), "pads": i64(*p)}
        for i, ((a, b), p) in enumerate(zip(places, pads, strict=True))
    ]
    compare(made, *feeds)


@pytest.mark.parametrize("kind", [INT64, FLOAT])
def test_ranges_of_the_data(kind: int) -> None:
    names = ("start", "limit", "delta")
    made = model([helper.make_node("Range", list(names), ["y"])], [(n, kind, []) for n in names], [("y", kind, [None])])
    rows = ((0, 7, 2), (3, -8, -5), (5, 5, 1), (2, 9, -1), (-4, 5, 3))
    dtype = np.int64 if kind == INT64 else np.float32
    compare(made, *(dict(zip(names, (np.array(v, dtype) for v in row), strict=True)) for row in rows))


@pytest.mark.parametrize(("start", "delta", "is_counted"), [(0, 1, True), (2, 3, True), (9, -2, True), (0.5, 1, False)])
@pytest.mark.parametrize("to", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_a_range_of_floats_to_a_size(start: float, delta: float, is_counted: bool, to: int) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["n"], axis=0),
        helper.make_node("Cast", ["n"], ["limit"], to=to),
        helper.make_node("Range", ["start", "limit", "delta"], ["y"]),
        helper.make_node("Add", ["y", "half"], ["z"]),
    ]
    dtype = np.float32 if to == TensorProto.FLOAT else np.float64
    numbers = {"start": np.array(start, dtype), "delta": np.array(delta, dtype), "half": np.array(0.5, dtype)}
    held = [numpy_helper.from_array(v, k) for k, v in numbers.items()]
    made = model(nodes, [("x", FLOAT, ["N"])], [("z", to, [None])], [*held, *ints(first=0)])
    compare(made, *({"x": x(n)} for n in (1, 4, 7, 8, 0)))
    assert ("extent" in tt.compile(made, threads=1).explain()) is not is_counted


def test_one_program_of_the_backend_serves_every_value_and_another_where_a_size_broadcasts() -> None:
    nodes = [helper.make_node("Reshape", ["x", "s"], ["t"]), helper.make_node("Add", ["t", "z"], ["y"])]
    inputs = [("x", FLOAT, ["N"]), ("s", INT64, [2]), ("z", FLOAT, ["A", 4])]
    prepared = prepare(model(nodes, inputs, [("y", FLOAT, [None, None])]), threads=1)
    assert prepared.path == "kernels only"
    for rows in (1, 3, 5):
        given, z = x(rows * 4), x(rows, 4)
        (y,) = prepared.run([given, i64(rows, 4), z])
        np.testing.assert_allclose(y, given.reshape(rows, 4) + z)
    assert len(prepared.programs) == 1
    given, z = x(3), x(3, 4)
    (y,) = prepared.run([given, i64(3, 1), z])
    np.testing.assert_allclose(y, given.reshape(3, 1) + z)
    assert prepared.path == "specialised at run time"


def test_a_value_that_cannot_be_a_size_is_a_diagnostic() -> None:
    made = model(
        [helper.make_node("Reshape", ["x", "s"], ["y"])], [("x", FLOAT, ["N"]), ("s", INT64, [2])], [("y", FLOAT, [None, None])]
    )
    function = tt.compile(made, threads=1)
    assert np.asarray(function(x=x(6), s=i64(2, 3))["y"]).shape == (2, 3)
    for wrong in (i64(4, 2), i64(-2, -3), i64(5, -1)):
        with pytest.raises(TatamiError):
            function(x=x(6), s=wrong)


def test_the_integers_of_one_operand_are_read_at_once() -> None:
    """Positions of a slice, a shape and pads: a Host step each, whatever number of sizes they decide; what is known stays
    known, a shape put together of numbers, of sizes of inputs and of data for one."""
    nodes = [
        helper.make_node("Slice", ["x", "from", "to"], ["a"]),
        helper.make_node("Pad", ["x", "pads"], ["b"]),
        helper.make_node("Shape", ["x"], ["sx"], start=0, end=1),
        helper.make_node("Concat", ["one", "sx", "k"], ["s"], axis=0),
        helper.make_node("Expand", ["row", "s"], ["c"]),
        helper.make_node("Concat", ["minus", "k"], ["t"], axis=0),
        helper.make_node("Reshape", ["c", "t"], ["d"]),
    ]
    inputs = [("x", FLOAT, ["N", 7]), ("row", FLOAT, [1, 1, 1]), ("from", INT64, [2]), ("to", INT64, [2])]
    inputs += [("pads", INT64, [4]), ("k", INT64, [1])]
    outputs = [(n, FLOAT, [None] * (3 if n == "c" else 2)) for n in "abcd"]
    made = model(nodes, inputs, outputs, ints(one=[1], minus=[-1]))
    feeds = [
        {"x": x(n, 7), "row": x(1, 1, 1), "from": i64(0, -5), "to": i64(n, 6), "pads": i64(1, 0, 2, 3), "k": i64(k)}
        for n, k in ((4, 3), (2, 1))
    ]
    compare(made, *feeds)
    text = tt.compile(made, threads=1).explain()
    assert text.count("host extent") == 4 and "synchronisations: 4 a run" in text


def test_pads_as_exporters_turn_them_stay_known_where_they_are() -> None:
    """PyTorch's exporter lists pads from the last axis on and turns the list about by Reshape, Slice and Transpose: zeros in
    it stay zeros, so that the axis of size 1 has size 1 after it and broadcasts."""
    nodes = [
        helper.make_node("Concat", ["n", "zero", "n", "zero", "zero", "zero"], ["last_first"], axis=0),
        helper.make_node("Reshape", ["last_first", "pairs"], ["p"]),
        helper.make_node("Slice", ["p", "end", "begin", "zero", "back"], ["q"]),
        helper.make_node("Transpose", ["q"], ["r"], perm=[1, 0]),
        helper.make_node("Reshape", ["r", "flat"], ["s"]),
        helper.make_node("Cast", ["s"], ["pads"], to=INT64),
        helper.make_node("Pad", ["x", "pads"], ["padded"]),
        helper.make_node("Add", ["padded", "y"], ["z"]),
    ]
    inputs = [("x", FLOAT, [1, 2, 3]), ("y", FLOAT, [4, 1, 1]), ("n", INT64, [1])]
    known = ints(zero=[0], pairs=[-1, 2], end=[-1], begin=[np.iinfo(np.int64).min], back=[-1], flat=[-1])
    made = model(nodes, inputs, [("z", FLOAT, [4, None, None])], known)
    compare(made, *({"x": x(1, 2, 3), "y": x(4, 1, 1), "n": i64(k)} for k in (2, 0, 1)))


def test_a_number_of_the_graph_api_is_a_size() -> None:
    g = tt.Graph("g")
    value, n = g.input("x", ("N",), tt.fp32), g.input("n", (), DType.i32)
    g.output("y", value.unsqueeze((0,)).expand((n.as_size(), "N")) * 2.0)
    function = tt.compile(g, threads=1)
    assert "host extent" in function.explain()
    for count in (0, 1, 3):
        assert np.asarray(function(x=x(2), n=np.array(count, np.int32))["y"]).shape == (count, 2)
    with pytest.raises(TatamiError, match="HostFault"):
        function(x=x(2), n=np.array(-1, np.int32))
