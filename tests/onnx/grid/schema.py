"""Operators of the default ONNX domain as onnx.defs has them: versions, operands, attributes, types."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import onnx
from onnx.defs import OpSchema

from tests.onnx.grid.values import DTYPES

Option = OpSchema.FormalParameterOption
ENUMERATED: dict[str, tuple[object, ...]] = {
    "align_corners": (0, 1), "allowzero": (0, 1), "antialias": (0, 1), "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    "approximate": ("none", "tanh"), "ceil_mode": (0, 1), "center_point_box": (0, 1), "count_include_pad": (0, 1),
    "detect_negative": (0, 1), "detect_positive": (0, 1), "direction": (), "exclude_outside": (0, 1), "exclusive": (0, 1),
    "fmod": (0, 1), "input_forget": (0, 1), "interleaved": (0, 1), "inverse": (0, 1), "is_causal": (0, 1), "keepdims": (0, 1),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"), "largest": (0, 1), "layout": (0, 1),
    "linear_before_reset": (0, 1), "new_axis": (0, 1), "noop_with_empty_axes": (0, 1), "onesided": (0, 1), "periodic": (0, 1),
    "qk_matmul_output_mode": (0, 1, 2, 3), "reverse": (0, 1), "round_mode": ("up", "down", "nearest"), "saturate": (0, 1),
    "select_last_index": (0, 1), "sorted": (0, 1), "storage_order": (0, 1), "training_mode": (0, 1), "transA": (0, 1),
    "transB": (0, 1), "upper": (0, 1), "stash_type": (1,), "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    "coordinate_transformation_mode": (), "mode": (), "reduction": (), "padding_mode": ("zeros", "border", "reflection"),
    "update_rule": ("linear", "gated", "delta", "gated_delta"), "activation": ("none", "silu", "swish"),
}  # fmt: skip
"""Attributes with a list of values in the operators' texts; an empty list: the values differ between operators, whose rows
have them."""


@cache
def history() -> dict[str, tuple[OpSchema, ...]]:
    """Operator → its schemas, the oldest first."""
    found: dict[str, dict[int, OpSchema]] = defaultdict(dict)
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            found[schema.name][schema.since_version] = schema
    return {name: tuple(by[v] for v in sorted(by)) for name, by in sorted(found.items())}


def types_of(schema: OpSchema, variable: str) -> list[str]:
    """The tensor types that the schema allows where it says `variable`, without strings and complex numbers."""
    allowed = next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == variable), [variable])
    names = [t.removeprefix("tensor(").removesuffix(")") for t in allowed if t.startswith("tensor(")]
    return [n for n in DTYPES if n in names]


def operand_count(schema: OpSchema) -> int:
    """How many operands a node may have."""
    if schema.inputs and schema.inputs[-1].option == Option.Variadic:
        return 1000
    return len(schema.inputs)


def formal(schema: OpSchema, position: int) -> OpSchema.FormalParameter:
    return schema.inputs[min(position, len(schema.inputs) - 1)]


def output_count(schema: OpSchema) -> int:
    return len(schema.outputs)
