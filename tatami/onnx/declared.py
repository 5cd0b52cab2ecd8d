"""Types that a model declares for its results, compared with those the importer found. A contradicting dtype is refused, and
so is a shape if both sizes are numbers; a shape of open sizes may have been written for other inputs, and gives a warning."""

from __future__ import annotations

import onnx

from tatami.core.diagnostic import diagnostic, fail
from tatami.core.expr import shape_text
from tatami.onnx.importer import FROM_ONNX, Importer
from tatami.onnx.values import Value


def declared(m: Importer, port: onnx.ValueInfoProto, *, sizes: bool = True) -> Value:
    """The value of an output, with the dtype and, with `sizes`, the shape that the model declares, as far as it declares them.
    A symbolic size contradicts nothing. Warns ModelRepaired; raises DTypeMismatch, AxisSizeMismatch."""
    value = m.value(port.name)
    if not value.is_tensor or not port.type.HasField("tensor_type"):
        return value
    said, kind = port.type.tensor_type, m.type_of(value)
    how = "correct the declaration, or the nodes that compute the output"
    if said.elem_type in FROM_ONNX and FROM_ONNX[said.elem_type] != kind.dtype:
        why = f"the output is declared {FROM_ONNX[said.elem_type]}, and its nodes give {kind.dtype}"
        raise fail("DTypeMismatch", port.name, why, how)
    if not sizes or not said.HasField("shape"):
        return value
    dims = [d.dim_value if d.dim_value > 0 or (d.HasField("dim_value") and not d.dim_value) else None for d in said.shape.dim]
    pairs = zip(dims, (s.as_int() for s in kind.shape), strict=False)
    if len(dims) != len(kind.shape) or any(a is not None and b is not None and a != b for a, b in pairs):
        wanted = ", ".join("?" if d is None else str(d) for d in dims)
        why = f"the output is declared of shape [{wanted}], and its nodes give {shape_text(kind.shape)}"
        if not any(s.as_int() is None for s in kind.shape) and None not in dims:
            raise fail("AxisSizeMismatch", port.name, why, how)
        m.warnings.append(diagnostic("ModelRepaired", port.name, f"{why}; the declaration is left out", how))
    return value
