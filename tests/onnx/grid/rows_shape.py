"""Rows of operators that move, index, resize and make tensors."""

from __future__ import annotations

import numpy as np

from tests.onnx.grid.row import Edge, Fixed, Row, data, ints
from tests.onnx.grid.values import CODES, DTYPES, tensor

LAST = 2**63 - 1


def _slice(starts: list[int], ends: list[int], axes: list[int] | None = None, steps: list[int] | None = None) -> Edge:
    found: dict[int | str, object] = {1: ints("starts", *starts), 2: ints("ends", *ends)}
    found[3] = None if axes is None else ints("axes", *axes)
    found[4] = None if steps is None else ints("steps", *steps)
    return found


_SLICES: tuple[Edge, ...] = (
    _slice([0, 0], [2, 2]),
    _slice([-3], [-1], [1]),
    _slice([5], [0], [2], [-1]),
    _slice([-1], [-LAST - 1], [0], [-1]),
    _slice([100], [-100], [1], [-2]),
    _slice([0], [LAST], [-1], [3]),
    _slice([3], [1], [1]),
    _slice([0], [1], [0], [2**62]),
    _slice([-1], [-LAST - 1], [2], [-(2**62)]),
    _slice([0], [LAST], [2], [LAST]),
    _slice([-100], [100], [0], [1]),
    _slice([-100], [-50], [0], [1]),
    {0: data(0, 3), **_slice([-1], [-LAST - 1], [0], [-1])},
    {0: data(0, 3), **_slice([0], [LAST], [0], [2])},
    {0: data(1), **_slice([0], [1], [0])},
    _slice([1, 2], [3, 5], [0, 2], [1, 2]),
)
_RESIZE_MODES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def _resize() -> tuple[Row, ...]:
    image = data(2, 3, 4, 5)
    up = Fixed("scales", [1.0, 1.0, 2.0, 3.0], "float")
    down = Fixed("scales", [1.0, 1.0, 0.6, 0.5], "float")
    to = ints("sizes", 2, 3, 7, 3)
    roi = Fixed("roi", [0.0, 0.0, 0.2, 0.1, 1.0, 1.0, 0.9, 0.8], "float")
    rows: list[Row] = []
    for coordinates in _RESIZE_MODES:
        crop = roi if coordinates == "tf_crop_and_resize" else Fixed("roi", [], "float")
        since, until = (
            (19 if coordinates == "half_pixel_symmetric" else 11),
            (12 if coordinates == "tf_half_pixel_for_nn" else 1000),
        )
        attrs = {"coordinate_transformation_mode": coordinates}
        for nearest in _NEAREST:
            for scales in (up, down):
                rows.append(
                    Row(
                        (image, crop, scales),
                        {**attrs, "mode": "nearest", "nearest_mode": nearest},
                        since=since,
                        until=until,
                        drops=False,
                        alone=True,
                    )
                )
        for mode in ("linear", "cubic"):
            more: tuple[Edge, ...] = tuple({"exclude_outside": 1, 2: s} for s in (up, down)) if mode == "cubic" else ()
            rows.append(
                Row(
                    (image, crop, up),
                    {**attrs, "mode": mode},
                    {},
                    (
                        {2: down},
                        {2: Fixed("scales", [], "float"), 3: to},
                        {2: Fixed("scales", [1.0, 1.0, 0.6, 3.0], "float")},
                        *more,
                    ),
                    since=since,
                    until=until,
                    drops=False,
                    alone=True,
                )
            )
        rows.append(
            Row(
                (image, crop, None, to),
                {**attrs, "mode": "nearest"},
                {"nearest_mode": _NEAREST},
                since=max(since, 13),
                until=until,
                drops=False,
                alone=True,
            )
        )
    empty = Fixed("roi", [], "float")
    for mode in ("nearest", "linear", "cubic"):
        rows.append(
            Row(
                (image, empty, up),
                {"mode": mode},
                {"cubic_coeff_a": (-0.5,)},
                ({0: data(1, 1, 1, 1)}, {0: data(1, 1, 1, 4)}),
                since=11,
                drops=False,
            )
        )
        rows.append(
            Row(
                (image, None, Fixed("scales", [2.0, 0.6], "float")),
                {"mode": mode, "axes": [2, 3]},
                {},
                ({"axes": [3, 1]}, {"axes": [-1, -2]}),
                since=18,
                drops=False,
                alone=True,
            )
        )
        for policy in ("stretch", "not_larger", "not_smaller"):
            rows.append(
                Row(
                    (image, None, None, ints("sizes", 7, 3)),
                    {"mode": mode, "axes": [2, 3], "keep_aspect_ratio_policy": policy},
                    {},
                    ({3: ints("sizes", 8, 11)},),
                    since=18,
                    drops=False,
                    alone=True,
                )
            )
    for mode in ("linear", "cubic"):
        for scales in (down, up):
            rows.append(
                Row(
                    (image, None, scales),
                    {"mode": mode, "antialias": 1},
                    {"exclude_outside": (0, 1)},
                    since=18,
                    drops=False,
                    alone=True,
                )
            )
    rows.append(
        Row(
            (image, roi, up),
            {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 5.0},
            {},
            ({1: Fixed("roi", [0, 0, -0.5, 0.2, 1, 1, 1.4, 1.2], "float")},),
            since=11,
            drops=False,
            alone=True,
        )
    )
    rows.append(
        Row((data(2, 6), empty, Fixed("scales", [1.0, 0.5], "float")), {"mode": "linear"}, since=11, drops=False, alone=True)
    )
    rows.append(
        Row(
            (image, Fixed("scales", [1.0, 1.0, 2.0, 3.0], "float")),
            {},
            {"mode": ("nearest", "linear")},
            ({1: Fixed("scales", [1.0, 1.0, 0.6, 0.5], "float")},),
            until=10,
        )
    )
    return tuple(rows)


_REDUCTION16, _REDUCTION18 = ("none", "add", "mul"), ("none", "add", "mul", "max", "min")


def _scatter(indices: list[list[int]]) -> Row:
    return Row(
        (data(3, 4), Fixed("indices", indices), data(2, 2)),
        {},
        {"axis": (0, 1)},
        ({"axis": -1}, {1: Fixed("indices", [[-1, 0], [1, -2]])}, {1: Fixed("indices", [[0, 2], [1, 1]], "int32")}),
    )


_GRID_MODES = {"since 16": ("bilinear", "nearest", "bicubic"), "since 20": ("linear", "nearest", "cubic")}


def _grid(modes: tuple[str, ...], since: int, until: int) -> tuple[Row, ...]:
    return tuple(
        Row((data(2, 3, 4, 5), data(2, 3, 4, 2)), {"mode": mode, "padding_mode": padding, "align_corners": align}, {}, ({1: Fixed("grid", np.linspace(-1.6, 1.6, 48, dtype=np.float32).reshape(2, 3, 4, 2).tolist(), "float")},), since=since, until=until, alone=True)
        for mode in modes
        for padding in ("zeros", "border", "reflection")
        for align in (0, 1)
    )  # fmt: skip


SHAPE: dict[str, tuple[Row, ...]] = {
    "Transpose": (
        Row((data(2, 3, 4),), {}, {"perm": ([0, 1, 2], [2, 1, 0], [1, 0, 2])}, ({0: data()}, {0: data(0, 3)}, {0: data(5)})),
    ),
    "Slice": (
        Row((data(4, 3, 6), ints("starts", 1), ints("ends", 3), ints("axes", 0), ints("steps", 1)), edges=_SLICES, since=10),
        Row(
            (data(4, 3, 6), ints("starts", 1), ints("ends", 3)),
            {},
            {"axes": ([1],)},
            (_slice([-2, 0], [LAST, -1]), {0: data(0, 3), **_slice([0], [5])}),
            until=1,
        ),
    ),
    "Pad": (
        *(
            Row(
                (data(4, 5), ints("pads", 1, 2, 3, 0)),
                {"mode": mode},
                {},
                ({1: ints("pads", 0, 0, 0, 0)}, {1: ints("pads", -1, 0, 1, -2)}, {1: ints("pads", 3, 4, 3, 4)}),
                special="rows",
                since=19 if mode == "wrap" else 11,
                alone=mode != "constant",
            )
            for mode in ("constant", "reflect", "edge", "wrap")
        ),
        Row(
            (data(4, 5), ints("pads", 1, 2, 3, 0), Fixed("constant_value", 1.5, "float")),
            edges=({0: data(0, 2)}, {0: data(1, 1)}),
            since=11,
        ),
        *(
            Row((data(4, 5), ints("pads", 2, 1), None, ints("axes", axis)), {"mode": mode}, since=18, drops=False, alone=True)
            for mode in ("constant", "reflect", "edge")
            for axis in (0, -1)
        ),
        *(
            Row((data(4, 5),), {"pads": [1, 2, 3, 0], "mode": mode}, {"value": (1.5,)}, since=2, until=2)
            for mode in ("constant", "reflect", "edge")
        ),
        *(
            Row((data(4, 5),), {"paddings": [1, 2, 3, 0], "mode": mode}, {"value": (1.5,)}, until=1)
            for mode in ("constant", "reflect", "edge")
        ),
    ),
    "Split": (
        Row(
            (data(2, 7), ints("split", 2, 5)), {"axis": 1}, {}, ({"axis": -1}, {1: ints("split", 0, 7)}), outputs=2, drops=False
        ),
        Row((data(4, 6),), {"axis": 1}, {"axis": (0, -1)}, outputs=2, until=13),
        Row(
            (data(4, 6),),
            {"num_outputs": 3, "axis": 1},
            {},
            ({0: data(4, 7)}, {0: data(4, 8)}, {0: data(4, 3)}),
            outputs=3,
            since=18,
        ),
    ),
    "Tile": (
        Row(
            (data(2, 3), ints("repeats", 2, 3)),
            edges=({1: ints("repeats", 1, 1)}, {1: ints("repeats", 0, 2)}, {0: data(), 1: ints("repeats")}, {0: data(0, 2)}),
            since=6,
        ),
        Row((data(2, 3), Fixed("tiles", 2, "float"), Fixed("axis", 1, "float")), until=1),
    ),
    "DepthToSpace": (
        Row((data(2, 8, 2, 3),), {"blocksize": 2}, {"mode": ("DCR", "CRD"), "blocksize": (1,)}, ({0: data(0, 4, 1, 1)},)),
    ),
    "SpaceToDepth": (Row((data(2, 3, 4, 6),), {"blocksize": 2}, {"mode": ("DCR", "CRD"), "blocksize": (1,)}),),
    "Trilu": (
        Row(
            (data(2, 3, 4), Fixed("k", 1)),
            edges=(
                {1: Fixed("k", -1), "upper": 0},
                {1: Fixed("k", 10)},
                {1: Fixed("k", -10), "upper": 0},
                {0: data(0, 3)},
                {0: data(1, 1)},
            ),
            special="rows",
        ),
    ),
    "CenterCropPad": (
        Row(
            (data(4, 7, 3), ints("shape", 6, 4, 3)),
            {},
            {},
            ({1: ints("shape", 3, 8), "axes": [0, 1]}, {1: ints("shape", 5), "axes": [-1]}, {1: ints("shape", 1, 1, 1)}),
        ),
    ),
    "Reshape": (
        Row(
            (data(2, 3, 4), ints("shape", 4, 6)),
            {},
            {},
            (
                {1: ints("shape", -1)},
                {1: ints("shape", 0, -1)},
                {1: ints("shape", 2, 0, 2, 2)},
                {0: data(0, 3), 1: ints("shape", 3, 0)},
                {0: data(0, 3), 1: ints("shape", 0, -1)},
                {0: data(1), 1: ints("shape")},
                {0: data(0, 3), 1: ints("shape", 3, 0), "allowzero": 1},
                {0: data(2, 0), 1: ints("shape", 0, 5), "allowzero": 1},
            ),
            since=5,
        ),
        Row((data(2, 3, 4),), {"shape": [4, 6]}, {"shape": ([0, -1],)}, until=1),
    ),
    "Flatten": (Row((data(2, 3, 4),), {}, {"axis": (0, 1, 2, 3)}, ({"axis": -1}, {0: data(0, 3)}, {0: data(), "axis": 0})),),
    "Squeeze": (
        Row(
            (data(1, 3, 1, 4), ints("axes", 0)),
            edges=(
                {1: ints("axes", 0, 2)},
                {1: ints("axes", -2)},
                {1: None},
                {0: data(1, 1), 1: None},
                {0: data(2, 3), 1: None},
                {0: data(1, 0, 1), 1: None},
            ),
        ),
    ),
    "Unsqueeze": (
        Row(
            (data(3, 4), ints("axes", 0)),
            edges=(
                {1: ints("axes", 0, 3)},
                {1: ints("axes", 3, 0, 1)},
                {1: ints("axes", -1)},
                {0: data(), 1: ints("axes", 0)},
                {0: data(0), 1: ints("axes", 1)},
            ),
        ),
    ),
    "Concat": (
        Row(
            (data(2, 3), data(2, 1), data(2, 4)),
            {"axis": 1},
            {},
            ({0: data(2, 0)}, {"axis": -1}, {0: data(0, 3), 1: data(2, 3), 2: data(1, 3), "axis": 0}),
        ),
        Row((data(2, 3),), {"axis": 0}),
    ),
    "Expand": (
        Row(
            (data(3, 1), ints("shape", 2, 3, 4)),
            edges=(
                {1: ints("shape", 3, 1)},
                {1: ints("shape", 1)},
                {0: data(), 1: ints("shape", 2, 2)},
                {1: ints("shape", 0, 3, 2)},
                {0: data(0, 1), 1: ints("shape", 1, 2)},
                {0: data(), 1: ints("shape")},
            ),
        ),
    ),
    "Shape": (
        Row(
            (data(2, 0, 4),), {}, {"start": (0, 1, -1, -9, 9), "end": (0, 2, -1, 9, -9)}, ({0: data()}, {"start": 2, "end": 1})
        ),
    ),
    "Size": (Row((data(2, 3, 4),), edges=({0: data()}, {0: data(0, 3)})),),
    "Gather": (
        Row(
            (data(3, 4), Fixed("indices", [[0, 2], [1, 1]])),
            {},
            {"axis": (0, 1)},
            (
                {1: Fixed("indices", [-1, 0, -3])},
                {1: Fixed("indices", 1)},
                {1: Fixed("indices", [])},
                {1: Fixed("indices", [0, 2], "int32")},
                {"axis": -1},
                {1: data(2, 2, fill="below 3", dtype="int64")},
            ),
        ),
    ),
    "GatherElements": (
        Row(
            (data(3, 4), Fixed("indices", [[0, 2], [1, 1]])),
            {},
            {"axis": (0, 1)},
            ({1: Fixed("indices", [[-1, 0], [-2, 1]])}, {"axis": -1}, {1: data(2, 4, fill="below 3", dtype="int64")}),
        ),
    ),
    "GatherND": (
        Row(
            (data(2, 3, 4), Fixed("indices", [[0, 1], [1, 2]])),
            {},
            {},
            (
                {1: Fixed("indices", [[0, 1, 3], [-1, -2, 0]])},
                {1: Fixed("indices", [[[1]], [[0]]])},
                {1: Fixed("indices", [[1], [2]]), "batch_dims": 1},
                {1: data(2, 2, fill="below 2", dtype="int64")},
            ),
        ),
    ),
    "Scatter": (_scatter([[0, 2], [1, 1]]),),
    "ScatterElements": (
        _scatter([[0, 2], [1, 1]]),
        *(
            Row(
                (data(3, 4), Fixed("indices", [[0, 2], [0, 2]]), data(2, 2)),
                {"reduction": how},
                special="rows",
                since=16 if how in _REDUCTION16 else 18,
            )
            for how in _REDUCTION18
            if how != "none"
        ),
    ),
    "ScatterND": (
        Row(
            (data(4, 3), Fixed("indices", [[0], [2]]), data(2, 3)),
            edges=({1: Fixed("indices", [[0, 1], [-1, 2]]), 2: data(2)}, {1: Fixed("indices", [[-1], [1]])}),
        ),
        *(
            Row(
                (data(4, 3), Fixed("indices", [[0], [0]]), data(2, 3)),
                {"reduction": how},
                special="rows",
                since=16 if how in _REDUCTION16 else 18,
            )
            for how in _REDUCTION18
            if how != "none"
        ),
    ),
    "TensorScatter": (
        Row((data(2, 2, 6, 3), data(2, 2, 2, 3), ints("write_indices", 1, 3)), {}, {"axis": (2,), "mode": ("linear",)}),
        Row((data(2, 2, 6, 3), data(2, 2, 2, 3), ints("write_indices", 5, 3)), {"mode": "circular"}),
    ),
    "OneHot": (
        Row(
            (Fixed("indices", [0, 2, -1, 5, -6]), Fixed("depth", 4), data(2)),
            {},
            {"axis": (0, 1)},
            (
                {"axis": -2},
                {1: ints("depth", 4)},
                {0: Fixed("indices", [1.0, 2.0], "float")},
                {0: Fixed("indices", [[0, 1], [2, 3]], "int32"), "axis": 1},
                {0: data(3, fill="below 4", dtype="int64")},
                {1: Fixed("depth", 3.0, "float")},
            ),
        ),
    ),
    "Compress": (
        Row(
            (data(3, 4), Fixed("condition", [True, False, True], "bool")),
            {"axis": 0},
            {},
            (
                {"axis": 1},
                {"axis": -1, 1: Fixed("condition", [False, True], "bool")},
                {1: Fixed("condition", [False, False, False], "bool")},
            ),
        ),
        Row((data(3, 4), data(5, dtype="bool"))),
    ),
    "ReverseSequence": (
        Row(
            (data(4, 3, 2), ints("sequence_lens", 1, 4, 2)),
            {},
            {},
            ({0: data(3, 4, 2), "time_axis": 1, "batch_axis": 0}, {1: ints("sequence_lens", 0, 1, 4)}),
        ),
    ),
    "Col2Im": (
        Row(
            (data(1, 12, 12), ints("image_shape", 4, 5), ints("block_shape", 2, 2)),
            {},
            {},
            (
                {0: data(1, 12, 4), "strides": [2, 2]},
                {0: data(1, 12, 30), "pads": [1, 1, 1, 1]},
                {0: data(1, 12, 6), "dilations": [2, 2]},
                {0: data(1, 4, 20), 2: ints("block_shape", 1, 1)},
            ),
        ),
    ),
    "Resize": _resize(),
    "Upsample": (
        Row((data(2, 3, 4, 5), Fixed("scales", [1.0, 1.0, 2.0, 3.0], "float")), {}, {"mode": ("nearest", "linear")}, since=7),
        Row((data(2, 3, 4, 5),), {"height_scale": 2.0, "width_scale": 3.0}, {"mode": ("nearest", "bilinear")}, until=1),
    ),
    "GridSample": (
        *_grid(_GRID_MODES["since 16"], 16, 19),
        *_grid(_GRID_MODES["since 20"], 20, 1000),
        Row((data(1, 2, 3, 4, 5), data(1, 2, 3, 4, 3)), {}, {"mode": ("linear", "nearest")}, since=20),
    ),
    "AffineGrid": (
        Row(
            (data(2, 2, 3), ints("size", 2, 3, 4, 5)),
            edges=({0: data(1, 3, 4), 1: ints("size", 1, 1, 2, 3, 4)}, {1: ints("size", 2, 1, 1, 1)}),
        ),
    ),
    "Constant": (
        Row((), {"value": tensor(np.array([[1.0, -0.0], [np.nan, np.inf]], np.float32), "")}),
        *(
            Row((), {"value": tensor(np.arange(3).astype(DTYPES[t]), "")})
            for t in ("int32", "bool", "uint8", "float16", "double")
        ),
        *(
            Row((), {name: value}, since=12)
            for name, value in (("value_int", 5), ("value_ints", [1, 2]), ("value_float", 0.5), ("value_floats", [0.5, 1.5]))
        ),
    ),
    "ConstantOfShape": (
        Row(
            (ints("shape", 2, 3),),
            edges=(
                {"value": tensor(np.array([7], np.int64), "")},
                {"value": tensor(np.array([True]), "")},
                {"value": tensor(np.array([0.5], np.float16), "")},
                {0: ints("shape")},
                {0: ints("shape", 0, 2)},
            ),
        ),
    ),
    "EyeLike": (
        Row(
            (data(3, 4),),
            {},
            {
                "k": (1, -1, 9),
                "dtype": tuple(CODES[t] for t in ("float", "double", "int32", "int64", "bool", "float16", "uint64")),
            },
            ({0: data(0, 2)}, {0: data(1, 1)}),
        ),
    ),
    "Range": (
        *(
            Row((Fixed("start", a, t), Fixed("limit", b, t), Fixed("delta", c, t)))
            for t, a, b, c in (
                ("float", 0.0, 1.0, 0.3),
                ("float", 1.0, 0.0, -0.25),
                ("int64", 5, -3, -3),
                ("int32", 0, 7, 3),
                ("int16", 3, 3, 1),
                ("double", 0.0, 1.0, 0.1),
                ("int64", 5, 2, 1),
            )
        ),
    ),
    "Identity": (Row((data(2, 3),), edges=({0: data()}, {0: data(0)}), special="all"),),
    "IsInf": (Row((data(2, 3),), {}, {}, ({"detect_negative": 0, "detect_positive": 0}, {0: data(0)}), special="all"),),
    "Det": (
        Row(
            (data(3, 3),),
            edges=(
                {0: data(2, 4, 4)},
                {0: data(1, 1)},
                {0: Fixed("X", [[0.0, 1.0], [1.0, 0.0]], "float")},
                {0: Fixed("X", [[1.0, 2.0], [2.0, 4.0]], "float")},
            ),
        ),
    ),
}
