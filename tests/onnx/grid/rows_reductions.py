"""Rows of reductions, running sums, positions of extremes, sorting and quantisation."""

from __future__ import annotations

from tests.onnx.grid.row import Edge, Fixed, Row, data, ints
from tests.onnx.grid.values import CODES

_REDUCE_EDGES: tuple[Edge, ...] = (
    {1: ints("axes", 0)},
    {1: ints("axes", -1)},
    {1: ints("axes", 0, 2)},
    {1: ints("axes", 0, 1, 2)},
    {1: ints("axes", -3, 1)},
    {0: data(2, 1, 4)},
    {0: data(2, 0, 4)},
    {0: data(0, 3, 4)},
    {0: data(2, 3, 4), 1: None, "keepdims": 0},
)
_EMPTY_AXES: tuple[Edge, ...] = (
    {1: None, "noop_with_empty_axes": 1},
    {1: ints("axes"), "noop_with_empty_axes": 1},
    {1: ints("axes"), "noop_with_empty_axes": 0},
    {1: ints("axes"), "noop_with_empty_axes": 1, "keepdims": 0},
    {0: data(), 1: None},
    {0: data(), 1: ints("axes"), "noop_with_empty_axes": 1},
)
_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
    "ReduceSumSquare",
)  # fmt: skip


def _reduction(name: str) -> tuple[Row, ...]:
    fill = "positive" if name == "ReduceLogSum" else "normal"
    first = 13 if name == "ReduceSum" else 18
    return (
        Row((data(2, 3, 4, fill=fill), ints("axes", 1)), edges=_REDUCE_EDGES, drops=True),
        Row((data(24, 4), ints("axes", 1)), special="rows", limits=True),
        Row((data(2, 3, 4, fill=fill), ints("axes", 1)), edges=_EMPTY_AXES, since=first, drops=False),
    )


_ARG = (
    Row(
        (data(2, 3, 4, fill="below 3"),),
        {},
        {"axis": (0, 1, 2)},
        (
            {"axis": -1},
            {0: data(1)},
            {0: data(2, 1, 3), "axis": 1},
            {0: data(0, 3), "axis": 1},
            {"axis": 1, "select_last_index": 1, "keepdims": 0},
        ),
    ),
    Row((data(24, 4),), {"axis": 1}, special="rows"),
)
_CUMULATIVE = (
    Row(
        (data(2, 3, 4), Fixed("axis", 1)),
        {},
        {},
        (
            {"exclusive": 1, "reverse": 1},
            {1: Fixed("axis", -1)},
            {1: Fixed("axis", 0, "int32")},
            {0: data(2, 1)},
            {0: data(2, 0)},
            {0: data(5), 1: Fixed("axis", 0)},
        ),
    ),
    Row((data(24, 4), Fixed("axis", 1)), special="rows", limits=True),
)
_SCALES = {
    "uint8": 0.05,
    "int8": 0.05,
    "uint16": 0.001,
    "int16": 0.001,
    "uint4": 0.3,
    "int4": 0.3,
    "uint2": 1.0,
    "int2": 1.0,
    "float8e4m3fn": 0.01,
    "float8e4m3fnuz": 0.01,
    "float8e5m2": 0.01,
    "float8e5m2fnuz": 0.01,
    "float4e2m1": 0.5,
}


def _point(dtype: str) -> int:
    """A zero point: small floats have none but 0."""
    return 0 if dtype.startswith("float") else 1


REDUCTIONS: dict[str, tuple[Row, ...]] = {
    **{name: _reduction(name) for name in _REDUCTIONS},
    "ArgMax": _ARG,
    "ArgMin": _ARG,
    "CumSum": _CUMULATIVE,
    "CumProd": _CUMULATIVE,
    "TopK": (
        Row(
            (data(2, 3, 6, fill="below 4"), ints("K", 2)),
            {},
            {"axis": (0, 1, 2)},
            (
                {1: ints("K", 1)},
                {1: ints("K", 6)},
                {1: ints("K", 0)},
                {0: data(2, 1), 1: ints("K", 1)},
                {0: data(0, 3)},
                {"axis": -2},
                {"axis": 0, "largest": 0},
            ),
            outputs=2,
            since=10,
        ),
        Row((data(24, 4), ints("K", 3)), outputs=2, special="rows", since=10),
        Row((data(24, 4), ints("K", 3)), {"largest": 0}, outputs=2, special="rows", since=11),
        Row((data(2, 3, 6),), {"k": 2}, {"axis": (0, 1)}, outputs=2, until=1),
    ),
    "Unique": (
        Row(
            (data(3, 4, fill="below 3"),),
            {},
            {"axis": (0, 1, -1)},
            ({0: data(0)}, {0: data(1)}, {0: data()}, {"sorted": 0, "axis": 0}),
            outputs=4,
        ),
        Row((data(20),), special="all", outputs=4),
    ),
    "NonZero": (Row((data(3, 4, fill="below 3"),), edges=({0: data(0, 3)}, {0: data(1)}, {0: data()}), special="all"),),
    "NonMaxSuppression": (
        Row(
            (
                Fixed(
                    "boxes",
                    [[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [1, 101, 0, 100]]],
                    "float",
                ),
                data(1, 2, 6, fill="unit", dtype="float"),
                ints("max_output_boxes_per_class", 3),
                Fixed("iou_threshold", [0.5], "float"),
                Fixed("score_threshold", [0.0], "float"),
            ),
            {},
            {},
            (
                {2: ints("max_output_boxes_per_class", 0)},
                {3: Fixed("iou_threshold", [0.0], "float")},
                {3: Fixed("iou_threshold", [1.0], "float")},
                {4: Fixed("score_threshold", [0.4], "float")},
                {2: Fixed("max_output_boxes_per_class", 2)},
            ),
        ),
    ),
    "QuantizeLinear": (
        *(
            Row(
                (data(2, 3, 4, dtype="float"), Fixed("y_scale", s, "float"), Fixed("y_zero_point", _point(t), t)),
                edges=(
                    {
                        1: Fixed("y_scale", [s, 2 * s, 3 * s], "float"),
                        2: Fixed("y_zero_point", [0, _point(t), _point(t)], t),
                        "axis": 1,
                    },
                ),
                special="numbers",
                alone=t != "uint8",
            )
            for t, s in _SCALES.items()
        ),
        *(
            Row((data(2, 3, 4, dtype="float"), Fixed("y_scale", s, "float")), {"output_dtype": CODES[t]}, since=21, alone=True)
            for t, s in _SCALES.items()
        ),
        *(
            Row(
                (data(2, 5, dtype="float"), Fixed("y_scale", 0.001, "float"), Fixed("y_zero_point", 0, t)),
                {"saturate": v},
                special="numbers",
                since=19,
                alone=True,
            )
            for t in _SCALES
            if t.startswith("float8")
            for v in (0, 1)
        ),
        Row(
            (data(2, 3, 4, dtype="float"), Fixed("y_scale", 0.02, "float"), Fixed("y_zero_point", 128, "uint8")),
            {},
            {"precision": (CODES["float"], CODES["float16"])},
            ({0: data(0, 3, dtype="float")}, {0: data(dtype="float")}),
            since=23,
        ),
        Row(
            (
                data(2, 6, dtype="float"),
                Fixed("y_scale", [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], "float"),
                Fixed("y_zero_point", [[1, 2, 3], [4, 5, 6]], "uint8"),
            ),
            {"block_size": 2, "axis": 1},
            since=21,
        ),
        Row((data(2, 3, dtype="int32"), Fixed("y_scale", 0.5, "float"), Fixed("y_zero_point", 2, "uint8"))),
        Row(
            (data(2, 3, 4, dtype="float"), Fixed("y_scale", 1.0, "float"), Fixed("y_zero_point", 1, "uint8")),
            special="numbers",
            limits=True,
        ),
        Row(
            (
                Fixed("x", [0.5, 1.5, 2.5, -0.5, -1.5], "float"),
                Fixed("y_scale", 1.0, "float"),
                Fixed("y_zero_point", 1, "uint8"),
            )
        ),  # ties go to even, before the zero point is added
    ),
    "DequantizeLinear": (
        *(
            Row(
                (data(2, 3, 4, dtype=t), Fixed("x_scale", s, "float"), Fixed("x_zero_point", _point(t), t)),
                edges=(
                    {
                        1: Fixed("x_scale", [s, 2 * s, 3 * s], "float"),
                        2: Fixed("x_zero_point", [0, _point(t), _point(t)], t),
                        "axis": 1,
                    },
                ),
                limits=True,
                alone=t != "uint8",
            )
            for t, s in _SCALES.items()
        ),
        Row((data(2, 3, 4, dtype="int32"), Fixed("x_scale", 0.1, "float")), limits=True),
        Row(
            (
                data(2, 6, dtype="uint8"),
                Fixed("x_scale", [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], "float"),
                Fixed("x_zero_point", [[1, 2, 3], [4, 5, 6]], "uint8"),
            ),
            {"block_size": 2, "axis": 1},
            {"output_dtype": (CODES["float"], CODES["float16"])},
            since=21,
        ),
        Row(
            (data(2, 6, dtype="int8"), Fixed("x_scale", 0.1, "float16"), Fixed("x_zero_point", 3, "int8")),
            {},
            {"output_dtype": (CODES["float"], CODES["float16"])},
            since=23,
        ),
    ),
    "DynamicQuantizeLinear": (
        Row(
            (data(3, 4),),
            edges=(
                {0: data(3, 4, fill="positive")},
                {0: Fixed("x", [0.0, 0.0], "float")},
                {0: Fixed("x", [-1.0, -2.5], "float")},
                {0: data(1)},
            ),
            outputs=3,
            limits=True,
        ),
    ),
    "NegativeLogLikelihoodLoss": (
        Row(
            (data(3, 5), data(3, fill="below 5", dtype="int64"), data(5, fill="positive")),
            {},
            {"reduction": ("none", "sum", "mean"), "ignore_index": (0, 2, -1)},
            (
                {0: data(3, 5, 2), 1: data(3, 2, fill="below 5", dtype="int64")},
                {"reduction": "none", "ignore_index": 1},
                {"reduction": "sum", "ignore_index": 1},
            ),
        ),
    ),
    "SoftmaxCrossEntropyLoss": (
        Row(
            (data(3, 5), data(3, fill="below 5", dtype="int64"), data(5, fill="positive")),
            {},
            {"reduction": ("none", "sum", "mean"), "ignore_index": (0, 2, -1)},
            ({0: data(3, 5, 2), 1: data(3, 2, fill="below 5", dtype="int64")}, {"reduction": "none", "ignore_index": 1}),
            outputs=2,
        ),
    ),
}
