"""Slice with bounds before and behind the axis, forwards and backwards, of an open size: as in ONNX Runtime; and where
the bound is a limit of the integers, as in the operator's text and the reference evaluator."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, parser
from onnx.reference import ReferenceEvaluator

import tatami as tt

BOUNDS = (-9, -5, -4, -1, 0, 2, 3, 4, 9)
CASES = [*product(BOUNDS, BOUNDS, (-2, -1, 1, 2)), *product(BOUNDS, (-(2**31) + 1, -(2**63) + 1), (-2, -1))]


LIMITS = (-(2**63), -(2**31), 2**31 - 1, 2**63 - 1)
OF_LIMITS = [*product((-4, -1, 0, 3, *LIMITS[2:]), LIMITS, (-2, -1, 1, 2))]


def slices(cases: list[tuple[int, int, int]]) -> ModelProto:
    nodes, constants, outputs = [], [], []
    for k, (start, end, step) in enumerate(cases):
        given = {"start": start, "end": end, "axis": 0, "step": step}
        constants += [helper.make_tensor(f"{name}{k}", TensorProto.INT64, [1], [value]) for name, value in given.items()]
        nodes.append(helper.make_node("Slice", ["x", *(f"{name}{k}" for name in given)], [f"y{k}"]))
        outputs.append(helper.make_tensor_value_info(f"y{k}", TensorProto.FLOAT, [f"M{k}"]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])
    graph = helper.make_graph(nodes, "slices", [x], outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("size", [0, 1, 4])
def test_slices_are_as_onnxruntime_has_them(size: int) -> None:
    model = slices(CASES)
    x = np.arange(size, dtype=np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"x": x})
    found = tt.compile(model, target="reference")(x=x)
    for k, (case, want) in enumerate(zip(CASES, wanted, strict=True)):
        np.testing.assert_array_equal(found[f"y{k}"], want, err_msg=f"(start, end, step) = {case}")


@pytest.mark.parametrize("size", [0, 1, 4])
def test_a_limit_of_the_integers_is_an_end_of_the_axis(size: int) -> None:
    """onnxruntime takes the greatest integer for "to the end" backwards too, where the text clamps it to the last element."""
    model = slices(OF_LIMITS)
    x = np.arange(size, dtype=np.float32)
    wanted = ReferenceEvaluator(model).run(None, {"x": x})
    found = tt.compile(model, target="reference")(x=x)
    for k, (case, want) in enumerate(zip(OF_LIMITS, wanted, strict=True)):
        if not (case[0] < -size and case[2] < 0):  # numpy has nothing where the text begins at the first element
            np.testing.assert_array_equal(found[f"y{k}"], want, err_msg=f"(start, end, step) = {case}")


STEPS = (10**9, 2**40, 2**61, 2**62, 2**63 - 1, -(10**9), -(2**62), -(2**63 - 1), -1)


@pytest.mark.parametrize("size", [7, "N"])
@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.INT8])
def test_a_huge_step_takes_the_first_element(size: int | str, dtype: int) -> None:
    """Products of such a step with a stride do not fit 64 bits."""
    nodes, constants, outputs = [], [], []
    for k, step in enumerate(STEPS):
        given = {"s": 0 if step > 0 else -1, "e": 2**63 - 1 if step > 0 else -(2**63), "a": 0, "t": step}
        constants += [helper.make_tensor(f"{name}{k}", TensorProto.INT64, [1], [value]) for name, value in given.items()]
        nodes.append(helper.make_node("Slice", ["x", *(f"{name}{k}" for name in given)], [f"y{k}"]))
        outputs.append(helper.make_tensor_value_info(f"y{k}", dtype, [f"M{k}", 2]))
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", dtype, [size, 2])], outputs, constants)
    function = tt.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), threads=1)
    for rows in (7,) if size == 7 else (7, 1, 0):
        x = np.arange(rows * 2).reshape(rows, 2).astype(helper.tensor_dtype_to_np_dtype(dtype))
        found = function(x=x)
        for k, step in enumerate(STEPS):
            np.testing.assert_array_equal(found[f"y{k}"], x[::step], err_msg=f"step {step}")


@pytest.mark.parametrize("size", [1, 3, 6])
def test_a_size_that_is_one_only_for_long_axes_is_not_taken_for_one(size: int) -> None:
    """An end of a million lies inside a longer axis: beyond it the slice is empty, and what is joined to it is alone."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[M] y) {
            zero = Constant <value = int64[1] {0}> ()
            first = Constant <value = int64[1] {-1}> ()
            third = Constant <value = int64[1] {-3}> ()
            far = Constant <value = int64[1] {1000000}> ()
            before = Constant <value = int64[1] {-1000000}> ()
            part = Slice (x, third, far, zero)
            sum = ReduceSum <keepdims = 1> (part, zero)
            both = Concat <axis = 0> (part, sum)
            y = Slice (both, first, before, zero, first)
        }"""
    )
    x = np.arange(size, dtype=np.float32)
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_array_equal(tt.compile(model, target="reference", max_specialisations=0)(x=x)["y"], wanted)


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_a_padded_axis_without_elements_is_not_read(size: int) -> None:
    """Element 0 of (N + 2) // 2 is padding where N is 0, and an element of x where it is not."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[M] y) {
            counts = Constant <value = int64[2] {1, 2}> ()
            zero = Constant <value = int64[1] {0}> ()
            one = Constant <value = int64[1] {1}> ()
            two = Constant <value = int64[1] {2}> ()
            end = Constant <value = int64[1] {9223372036854775807}> ()
            padded = Pad (x, counts)
            rest = Slice (padded, one, end, zero)
            length = Shape <start = 0, end = 1> (rest)
            half = Div (length, two)
            y = Slice (rest, zero, half, zero)
        }"""
    )
    x = np.arange(1, size + 1, dtype=np.float32)
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    for target in ("reference", "cpu"):
        np.testing.assert_array_equal(tt.compile(model, target=target, max_specialisations=0)(x=x)["y"], wanted, err_msg=target)
