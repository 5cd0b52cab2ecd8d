"""Rows of operators with windows, products and normalisations."""

from __future__ import annotations

from tests.onnx.grid.row import Data, Edge, Fixed, Row, data, ints

_STEPS: tuple[Edge, ...] = ({"strides": [2, 3]}, {"dilations": [2, 2]})
_AUTO: tuple[Edge, ...] = tuple(
    {"auto_pad": auto, **more} for auto in ("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET") for more in _STEPS
)
_AUTO_BY_TWO: tuple[Edge, ...] = tuple({"auto_pad": a, "strides": [2, 2]} for a in ("SAME_UPPER", "SAME_LOWER", "VALID"))
_POOL_EDGES: tuple[Edge, ...] = (
    *_AUTO,
    {0: data(1, 2, 3, 2), "kernel_shape": [3, 2]},  # equal to the window
    {0: data(1, 1, 1, 1), "kernel_shape": [1, 1]},
    {0: data(0, 2, 5, 6)},
    {0: data(1, 2, 9), "kernel_shape": [4], "strides": [3], "ceil_mode": 1},
    {0: data(1, 2, 9), "kernel_shape": [4], "strides": [3], "ceil_mode": 1, "pads": [1, 2]},
    {
        0: data(1, 2, 7),
        "kernel_shape": [2],
        "strides": [3],
        "ceil_mode": 1,
        "pads": [1, 1],
    },  # a last window only in the padding
    {0: data(1, 1, 4, 5, 6), "kernel_shape": [2, 3, 2], "strides": [1, 2, 2], "pads": [0, 1, 1, 1, 1, 0]},
    {"pads": [1, 0, 1, 1]},
    {"pads": [1, 1, 1, 1], "count_include_pad": 1},
    {"pads": [1, 1, 1, 1], "count_include_pad": 0, "strides": [2, 2]},
    {"pads": [1, 1, 1, 1], "count_include_pad": 1, "strides": [2, 2], "ceil_mode": 1},
    {"pads": [1, 1, 1, 1], "strides": [2, 2], "ceil_mode": 1},
    {"dilations": [2, 1], "pads": [1, 0, 1, 1]},
    {"strides": [4, 5]},
)
_POOL = {"kernel_shape": [3, 2]}
_CONV_EDGES: tuple[Edge, ...] = (
    *_AUTO,
    {0: data(1, 4, 3, 2)},
    {0: data(0, 4, 5, 6)},
    {"group": 2, 1: data(4, 2, 3, 2), 2: data(4)},
    {"group": 4, 1: data(4, 1, 3, 2), 2: data(4)},
    {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]},
    {"kernel_shape": [3, 2]},
    {0: data(1, 3, 7), 1: data(2, 3, 3), 2: data(2), "pads": [2, 1]},
    {0: data(1, 2, 4, 4, 4), 1: data(2, 2, 2, 2, 3), 2: data(2)},
    {1: data(3, 4, 1, 1), 2: data(3)},
)
_TRANSPOSE_EDGES: tuple[Edge, ...] = (
    *_AUTO_BY_TWO,
    {"output_shape": [10, 11], "strides": [2, 2]},
    {"output_shape": [10, 11], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"output_shape": [10, 11], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    {"output_padding": [1, 0], "strides": [2, 2]},
    {"output_padding": [1, 0], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"pads": [1, 0, 2, 1], "dilations": [2, 1]},
    {"group": 2, 1: data(4, 3, 3, 2), 2: data(6)},
    {0: data(1, 4, 1, 1)},
    {0: data(1, 2, 5), 1: data(2, 3, 3), 2: data(3), "strides": [3]},
)
_BATCH = tuple(data(3, fill=f) for f in ("normal", "normal", "normal", "positive"))
_NORM: tuple[Edge, ...] = ({0: data(1, 3, 1, 1)}, {0: data(0, 3, 4)}, {0: data(2, 3, 5)})


def _quantised(shape: tuple[int, ...]) -> Data:
    return Data(shape, "normal")


WINDOWS: dict[str, tuple[Row, ...]] = {
    "AveragePool": (Row((data(2, 3, 6, 7),), _POOL, edges=_POOL_EDGES, special="rows", limits=True),),
    "MaxPool": (
        Row((data(2, 3, 6, 7),), _POOL, edges=_POOL_EDGES, outputs=1, special="rows"),
        Row((data(2, 3, 6, 7),), {**_POOL, "pads": [1, 1, 1, 1]}, {"strides": ([2, 2],)}, outputs=2, since=8),
    ),
    "LpPool": (
        Row((data(2, 3, 6, 7),), _POOL, {"p": (1, 2, 3)}, _POOL_EDGES, special="rows", since=2),
        Row((data(2, 3, 6, 7),), _POOL, {"p": (1.0, 2.0, 3.0)}, until=1),
    ),
    "GlobalAveragePool": (Row((data(2, 3, 4, 5),), edges=_NORM, special="rows", limits=True),),
    "GlobalMaxPool": (Row((data(2, 3, 4, 5),), edges=_NORM, special="rows"),),
    "GlobalLpPool": (
        Row((data(2, 3, 4, 5),), {}, {"p": (1, 2, 3)}, _NORM, special="rows", since=2),
        Row((data(2, 3, 4, 5),), {}, {"p": (1.0, 2.0, 3.0)}, until=1),
    ),
    "MaxUnpool": (
        Row(
            (data(1, 1, 2, 2), Fixed("I", [[[[5, 7], [13, 15]]]])),
            {"kernel_shape": [2, 2], "strides": [2, 2]},
            {},
            (
                {2: ints("output_shape", 1, 1, 4, 4)},
                {2: ints("output_shape", 1, 1, 5, 5)},
                {"strides": [1, 1], 1: Fixed("I", [[[[0, 2], [6, 8]]]])},
                {"pads": [1, 1, 0, 0], 1: Fixed("I", [[[[0, 2], [6, 8]]]])},
            ),
        ),
    ),
    "MaxRoiPool": (
        Row(
            (data(2, 3, 6, 7), Fixed("rois", [[0.0, 1.0, 1.0, 4.0, 5.0], [1.0, 0.0, 0.0, 6.0, 5.0]], "float")),
            {"pooled_shape": [2, 2]},
            {"spatial_scale": (0.5,)},
        ),
    ),
    "RoiAlign": (
        Row(
            (
                data(2, 3, 6, 7),
                Fixed("rois", [[1.0, 1.0, 4.0, 5.0], [0.0, 0.0, 6.0, 5.0], [-2.0, 1.5, 9.0, 3.0]], "float"),
                ints("batch_indices", 0, 1, 0),
            ),
            {"output_height": 2, "output_width": 3, "sampling_ratio": 2},
            {
                "mode": ("avg", "max"),
                "coordinate_transformation_mode": ("half_pixel", "output_half_pixel"),
                "spatial_scale": (0.5, 2.0),
                "sampling_ratio": (0, 1, 3),
                "output_height": (1,),
                "output_width": (1,),
            },
        ),
    ),
    "Conv": (Row((data(2, 4, 6, 7), data(3, 4, 3, 2), data(3)), edges=_CONV_EDGES, special="rows", limits=True),),
    "ConvTranspose": (Row((data(2, 4, 5, 6), data(4, 3, 3, 2), data(3)), edges=_TRANSPOSE_EDGES, special="rows"),),
    "ConvInteger": (
        Row(
            (
                data(2, 4, 6, 7, dtype="uint8"),
                data(3, 4, 3, 2, dtype="uint8"),
                Fixed("x_zero_point", 3, "uint8"),
                Fixed("w_zero_point", 2, "uint8"),
            ),
            edges=tuple(e for e in _AUTO),
            limits=True,
        ),
        Row(
            (
                data(2, 4, 6, 7, dtype="uint8"),
                data(3, 4, 3, 2, dtype="int8"),
                Fixed("x_zero_point", 3, "uint8"),
                ints("w_zero_point", 2, 0, -1, dtype="int8"),
            ),
            {"pads": [1, 1, 1, 1]},
        ),
        Row((data(2, 4, 6, 7, dtype="uint8"), data(4, 2, 3, 2, dtype="uint8")), {"group": 2}),
    ),
    "QLinearConv": tuple(
        Row(
            (
                data(2, 4, 6, 7, dtype=x, fill=fill),
                Fixed("x_scale", 0.02, "float"),
                Fixed("x_zero_point", 3, x),
                data(3, 4, 3, 2, dtype=w, fill=fill),
                Fixed("w_scale", ws, "float"),
                Fixed("w_zero_point", wz, w),
                Fixed("y_scale", 0.05, "float"),
                Fixed("y_zero_point", 7, x),
                Fixed("B", [1, -200, 3000], "int32"),
            ),
            edges=(*_AUTO[:3], {"pads": [1, 1, 1, 1]}, {0: data(2, 12, 6, 7, dtype=x, fill=fill), "group": 3}),
        )
        for x, w, ws, wz, fill in (
            ("uint8", "uint8", 0.03, 2, "normal"),
            ("uint8", "int8", [0.03, 0.01, 0.2], [0, 0, 0], "normal"),
            ("int8", "int8", 0.03, 0, "limits"),
        )
    ),
    "MatMul": (
        Row(
            (data(3, 4), data(4, 5)),
            edges=(
                {0: data(4), 1: data(4)},
                {0: data(4)},
                {1: data(4)},
                {0: data(2, 1, 3, 4), 1: data(5, 4, 2)},
                {0: data(0, 4)},
                {0: data(3, 0), 1: data(0, 5)},
                {0: data(1, 1), 1: data(1, 1)},
                {0: data(2, 3, 4), 1: data(4)},
            ),
            special="rows",
            limits=True,
        ),
    ),
    "MatMulInteger": tuple(
        Row(
            (data(3, 6, dtype=a, fill=fill), data(6, 5, dtype=b, fill=fill), az, bz),
            edges=({0: data(2, 3, 6, dtype=a)}, {0: data(1, 6, dtype=a)}),
        )
        for fill in ("normal", "limits")
        for a, b, az, bz in (
            ("uint8", "uint8", Fixed("a_zero_point", 3, "uint8"), Fixed("b_zero_point", 200, "uint8")),
            ("uint8", "int8", ints("a_zero_point", 1, dtype="uint8"), ints("b_zero_point", 1, 2, 3, 4, -5, dtype="int8")),
            ("int8", "int8", Fixed("a_zero_point", -128, "int8"), None),
            ("int8", "uint8", None, None),
        )
    ),
    "QLinearMatMul": tuple(
        Row(
            (
                data(3, 6, dtype=a, fill=fill),
                Fixed("a_scale", 0.02, "float"),
                Fixed("a_zero_point", 3, a),
                data(6, 5, dtype=b, fill=fill),
                Fixed("b_scale", 0.03, "float"),
                Fixed("b_zero_point", 1, b),
                Fixed("y_scale", 0.01, "float"),
                Fixed("y_zero_point", 5, a),
            ),
            edges=({0: data(2, 3, 6, dtype=a), 3: data(2, 6, 5, dtype=b)},),
        )
        for fill in ("normal", "limits")
        for a, b in (("uint8", "uint8"), ("int8", "int8"), ("uint8", "int8"))
    ),
    "Gemm": (
        Row(
            (data(3, 4), data(4, 5), data(3, 5)),
            {},
            {"alpha": (0.0, 0.5), "beta": (0.0, 0.5)},
            (
                {0: data(4, 3), "transA": 1},
                {1: data(5, 4), "transB": 1},
                {2: data(5)},
                {2: data(3, 1)},
                {2: data(1)},
                {2: data()},
                {2: data(1, 5)},
                {0: data(0, 4), 2: data(5)},
                {0: data(3, 0), 1: data(0, 5)},
                {0: data(1, 1), 1: data(1, 1), 2: data(1)},
            ),
            special="rows",
            since=7,
        ),
        Row(
            (data(3, 4), data(4, 5), data(3, 5)),
            {},
            {"alpha": (0.5,), "beta": (0.5,)},
            ({2: data(5), "broadcast": 1}, {0: data(4, 3), "transA": 1}),
            until=6,
        ),
    ),
    "Einsum": tuple(
        Row(tuple(data(*s) for s in shapes), {"equation": equation}, special="rows", alone=equation != "ij,jk->ik")
        for equation, shapes in (
            ("ij,jk->ik", ((2, 3), (3, 4))),
            ("ij,jk", ((2, 3), (3, 4))),
            ("ii->i", ((3, 3),)),
            ("ii", ((3, 3),)),
            ("ij->ji", ((2, 3),)),
            ("ij->", ((2, 3),)),
            ("...ij,...jk->...ik", ((2, 2, 3), (2, 3, 4))),
            ("bij , bjk -> bik", ((2, 2, 3), (2, 3, 4))),
            ("i,j->ij", ((2,), (3,))),
            ("ij,ij,ij->i", ((2, 3), (2, 3), (2, 3))),
            ("...ii->...i", ((2, 3, 3),)),
            ("ij,kj->ik", ((0, 3), (4, 3))),
            ("i...->...", ((2, 3, 4),)),
            ("ib,i->b", ((1, 1), (1,))),
            ("iij,jk->ik", ((2, 2, 3), (3, 4))),
        )
    ),
    "DeformConv": (
        Row(
            (data(1, 4, 5, 6), data(2, 4, 2, 2), data(1, 8, 4, 5), data(2), data(1, 4, 4, 5, fill="positive")),
            {"kernel_shape": [2, 2]},
            {},
            (
                {"pads": [1, 0, 1, 0], 2: data(1, 8, 6, 5), 4: data(1, 4, 6, 5, fill="positive")},
                {"strides": [2, 2], 2: data(1, 8, 2, 3), 4: data(1, 4, 2, 3, fill="positive")},
                {"dilations": [2, 1], 2: data(1, 8, 3, 5), 4: data(1, 4, 3, 5, fill="positive")},
                {"group": 2, 1: data(2, 2, 2, 2)},
                {"offset_group": 2, 2: data(1, 16, 4, 5), 4: data(1, 8, 4, 5, fill="positive")},
            ),
        ),
    ),
    "CausalConvWithState": (
        Row(
            (data(2, 3, 5), data(3, 1, 4), data(3), data(2, 3, 3)),
            edges=({0: data(2, 3, 1)}, {1: data(3, 1, 1), 3: data(2, 3, 0)}),
            outputs=2,
        ),
    ),
    "BatchNormalization": (
        Row((data(2, 3, 4, 5), *_BATCH), {}, {"epsilon": (0.1,)}, _NORM, special="rows", since=14),
        Row(
            (data(2, 3, 4, 5), *_BATCH),
            {"training_mode": 1},
            {"momentum": (0.0, 0.5, 1.0), "epsilon": (0.1,)},
            ({0: data(2, 3, 5)},),
            outputs=3,
            since=14,
        ),
        Row((data(2, 3, 4, 5), *_BATCH), {}, {"epsilon": (0.1,), "momentum": (0.5,)}, _NORM, special="rows", since=7, until=13),
        Row((data(2, 3, 4, 5), *_BATCH), {"is_test": 1}, {"epsilon": (0.1,), "spatial": (1,), "momentum": (0.5,)}, until=6),
    ),
    "InstanceNormalization": (
        Row(
            (data(2, 3, 4, 5), data(3), data(3)),
            {},
            {"epsilon": (0.1,)},
            ({0: data(2, 3, 5)}, {0: data(1, 3, 1)}),
            special="rows",
        ),
    ),
    "GroupNormalization": (
        Row(
            (data(2, 4, 3, 3), data(4), data(4)),
            {"num_groups": 2},
            {"epsilon": (0.1,), "num_groups": (1, 4)},
            ({0: data(1, 4, 1)},),
            special="rows",
            since=21,
        ),
        Row((data(2, 4, 3, 3), data(2), data(2)), {"num_groups": 2}, {"epsilon": (0.1,)}, until=18),
    ),
    "LayerNormalization": (
        Row(
            (data(2, 3, 4), data(4), data(4)),
            {},
            {"epsilon": (0.1,)},
            (
                {"axis": 1, 1: data(3, 4), 2: data(3, 4)},
                {"axis": -2, 1: data(3, 4), 2: data(3, 4)},
                {0: data(2, 3, 1), 1: data(1), 2: data(1)},
                {0: data(0, 4)},
                {1: data(1)},
                {"axis": 0, 1: data(2, 3, 4), 2: data(2, 3, 4)},
            ),
            special="rows",
        ),
        Row((data(2, 3, 4), data(4), data(4)), outputs=3),
    ),
    "RMSNormalization": (
        Row(
            (data(2, 3, 4), data(4)),
            {},
            {"epsilon": (0.1,)},
            ({"axis": 1, 1: data(3, 4)}, {1: data(1)}, {0: data(2, 3, 1), 1: data(1)}, {"axis": -3, 1: data(2, 3, 4)}),
            special="rows",
        ),
    ),
    "LpNormalization": (
        Row((data(2, 3, 4),), {}, {"axis": (0, 1, -1), "p": (1, 2)}, ({0: data(2, 1)}, {0: data(0, 3)}), special="rows"),
    ),
    "LRN": (
        Row(
            (data(2, 5, 4, 4),),
            {"size": 3},
            {"size": (1, 2, 4, 5, 9), "alpha": (0.5,), "beta": (0.5, 1.0), "bias": (2.0,)},
            ({0: data(1, 1, 2, 2)},),
            special="rows",
        ),
    ),
    "MeanVarianceNormalization": (Row((data(2, 3, 4, 5),), {}, {"axes": ([0, 2], [1], [0, 1, 2, 3], [-1])}, special="rows"),),
    "Softmax": (
        Row(
            (data(2, 3, 4),),
            {},
            {"axis": (0, 1, 2)},
            ({"axis": -1}, {0: data(1)}, {0: data(2, 1), "axis": 1}, {0: data(0, 3)}, {"axis": -2}),
            special="rows",
            limits=True,
        ),
    ),
}
WINDOWS["LogSoftmax"] = WINDOWS["Hardmax"] = WINDOWS["Softmax"]
