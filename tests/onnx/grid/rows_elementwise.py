"""Rows of operators that work element by element: special values in tables, broadcasting, sizes 0 and 1, rank 0."""

from __future__ import annotations

from tests.onnx.grid.row import Edge, Fixed, Row, data
from tests.onnx.grid.values import CODES

_SHAPES: tuple[Edge, ...] = tuple({0: data(*s)} for s in ((), (1,), (0,), (2, 0, 3), (5,), (2, 1, 3)))
_PAIRS: tuple[Edge, ...] = tuple(
    {0: data(*a), 1: data(*b, fill="positive")}
    for a, b in (((2, 3, 4), ()), ((), (3,)), ((2, 1, 4), (3, 1)), ((1,), (0,)), ((0, 3), (3,)), ((1, 1), (2, 2)), ((), ()))
)  # fmt: skip


def _one(**more: object) -> Row:
    """One operand."""
    return Row((data(2, 3, 4),), edges=_SHAPES, special="all", **more)  # type: ignore[arg-type]


def _two(**more: object) -> Row:
    """Two operands that broadcast."""
    return Row((data(2, 3, 4), data(2, 3, 4, fill="positive")), edges=_PAIRS, special="all", since=7, **more)  # type: ignore[arg-type]


def _two_old(**more: object) -> Row:
    """Operands of two shapes before opset 7: equal, or the second one along an axis of the first."""
    edges: tuple[Edge, ...] = (
        {1: data(4, fill="positive"), "broadcast": 1},
        {1: data(3, fill="positive"), "broadcast": 1, "axis": 1},
        {1: data(2, 3, fill="positive"), "broadcast": 1, "axis": 0},
        {1: data(fill="positive"), "broadcast": 1},
    )
    return Row((data(2, 3, 4), data(2, 3, 4, fill="positive")), edges=edges, until=6, **more)  # type: ignore[arg-type]


_UNARY = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "HardSwish", "IsInf",
    "IsNaN", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign",
    "Sqrt", "Tan", "Tanh", "BitwiseNot", "Identity", "Gelu",
)  # fmt: skip
_BINARY = (
    "Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mul", "Or",
    "Sub", "Xor",
)  # fmt: skip
_COEFFICIENTS: dict[str, dict[str, tuple[float, ...]]] = {
    "Celu": {"alpha": (0.5, 2.0)},
    "Elu": {"alpha": (0.0, 0.5, 2.0)},
    "HardSigmoid": {"alpha": (0.0, 0.6), "beta": (0.0, 0.1)},
    "LeakyRelu": {"alpha": (0.0, 0.2, 1.5, -0.5)},
    "Selu": {"alpha": (0.5,), "gamma": (0.5, 2.0)},
    "Shrink": {"lambd": (0.0, 1.5), "bias": (0.0, 1.0, -1.0)},
    "Swish": {"alpha": (0.0, 0.5, -2.0)},
    "ThresholdedRelu": {"alpha": (0.0, 0.5, -1.0)},
}
_VARIADIC: tuple[Edge, ...] = (
    {0: data(2, 1, 4), 1: data(3, 1), 2: data()},
    {0: data(0, 3), 1: data(3), 2: data(1, 1)},
)

ELEMENTWISE: dict[str, tuple[Row, ...]] = {
    **{name: (_one(),) for name in _UNARY},
    **{name: (_one(each=each),) for name, each in _COEFFICIENTS.items()},
    **{name: (_two(), _two_old()) for name in _BINARY},
    "Div": (_two(safe_divisor=True), _two_old()),
    "Mod": (_two(safe_divisor=True, attrs={"fmod": 1}), _two(safe_divisor=True)),
    "Pow": (
        _two(),
        _two_old(),
        *(
            Row((data(2, 3), Fixed("Y", value, dtype)), since=7, alone=True)
            for value, dtype in (
                (2.0, "float"),
                (3.0, "float"),
                (0.5, "float"),
                ([2.0], "float"),
                (-1.0, "float"),
                (0.0, "float"),
            )
        ),
        *(
            Row((data(2, 3), Fixed("Y", value, dtype)), since=12)
            for value, dtype in ((2, "int64"), (3, "int32"), (-1, "int64"))
        ),
        *(
            Row((data(2, 3, dtype=a, fill="positive"), data(3, dtype=b, fill="positive")), since=12)
            for a, b in (
                ("int32", "float"),
                ("int64", "float"),
                ("int64", "int32"),
                ("int32", "int64"),
                ("float", "int32"),
                ("float", "double"),
            )
        ),
    ),
    "BitShift": (
        Row(
            (data(2, 3), data(2, 3, fill="below 8")),
            {"direction": "LEFT"},
            {"direction": ("LEFT", "RIGHT")},
            (
                {1: data(fill="below 8")},
                {
                    0: data(
                        0,
                    )
                },
            ),
        ),
    ),
    "PRelu": (
        Row(
            (data(2, 3, 4), data(3, 1)),
            edges=({1: data(2, 3, 4)}, {1: data(1)}, {1: data(4)}, {0: data(0, 3), 1: data(3)}),
            special="rows",
            since=7,
        ),
        Row((data(2, 3, 4), data(3)), edges=({1: data(1)},), until=6),
    ),
    "SwiGLU": (
        Row(
            (data(2, 3, 4), data(2, 3, 4)),
            each={"alpha": (0.0, 0.5, -2.0)},
            edges=({0: data(0), 1: data(0)}, {0: data(1), 1: data(1)}),
            special="rows",
        ),
    ),
    **{
        name: (
            Row((data(2, 3), data(2, 3), data(2, 3)), until=7),
            Row((data(2, 3, 4), data(3, 4), data(4)), edges=_VARIADIC, since=8, special="rows"),
            Row((data(2, 3),), special="all"),
            Row((data(2, 3), data(2, 3)), special="all", since=8, limits=True),
        )
        for name in ("Max", "Min", "Sum", "Mean")
    },
    "Where": (
        Row(
            (data(2, 3, dtype="bool"), data(2, 3), data(2, 3)),
            edges=(
                {0: data(3, dtype="bool"), 1: data(2, 1), 2: data()},
                {0: data(dtype="bool"), 1: data(2), 2: data(3, 1)},
                {0: data(0, dtype="bool"), 1: data(0), 2: data(0)},
                {0: Fixed("condition", [True, False, True], "bool")},
            ),
            special="rows",
        ),
    ),
    "Clip": (
        Row((data(2, 3),), {"min": -0.5, "max": 0.5}, {"min": (-1e9,), "max": (1e9, -1.0)}, special="rows", until=10),
        Row((data(2, 3), data(fill="unit"), data(fill="positive")), edges=_SHAPES, special="rows", since=11),
        Row((data(2, 3), Fixed("min", 1.0, "float"), Fixed("max", -1.0, "float")), since=11, alone=True),  # all are max
        Row((data(2, 3), Fixed("min", float("nan"), "float")), since=11, alone=True),
    ),
    "Cast": (
        *(Row((data(2, 5),), {"to": CODES[to]}, special=f"within {to}", since=6) for to in CODES if to != "float8e8m0"),
        *(
            Row((data(2, 5),), {"to": to.upper()}, special=f"within {to}", until=1)
            for to in ("float", "int32", "bool", "double")
        ),
        *(
            Row((data(2, 5, dtype="float"),), {"to": CODES[to], "saturate": saturate}, special="all", since=19)
            for to in ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz")
            for saturate in (0, 1)
        ),
        Row(
            (data(2, 5, dtype="float", fill="positive"),),
            {"to": CODES["float8e8m0"]},
            {"round_mode": ("up", "down", "nearest")},
            since=24,
        ),
    ),
    "CastLike": tuple(
        Row((data(2, 5, dtype=a), data(1, dtype=b)), special=f"within {b}")
        for a, b in (
            ("float", "int32"),
            ("float", "bool"),
            ("double", "float16"),
            ("int64", "float"),
            ("float16", "int8"),
            ("int32", "uint8"),
            ("float", "float"),
        )
    ),
    "BitCast": tuple(
        Row((data(2, 5, dtype=a),), {"to": CODES[b]}, edges=({0: data(0, dtype=a)},), special="all")
        for a, b in (
            ("float", "int32"),
            ("int32", "uint32"),
            ("double", "int64"),
            ("uint16", "float16"),
            ("int8", "uint8"),
            ("float16", "int16"),
            ("uint64", "double"),
        )
    ),
    "Dropout": (
        Row((data(2, 3),), {"is_test": 1}, outputs=2, until=6),
        Row((data(2, 3),), {"ratio": 0.3}, outputs=2, since=7, until=10),
        Row(
            (data(2, 3), Fixed("ratio", 0.5, "float"), Fixed("training_mode", False, "bool")),
            edges=({0: data(0)}, {2: Fixed("training_mode", True, "bool"), 1: Fixed("ratio", 0.0, "float")}),
            outputs=2,
            since=12,
        ),
        Row(
            (data(2, 3), Fixed("ratio", 0.5, "float"), Fixed("training_mode", True, "bool")),
            {"seed": 7},
            outputs=2,
            since=12,
            random=True,
        ),
    ),
}
