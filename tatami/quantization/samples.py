"""Calibration arrays, checked against the inputs of the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn, TypeAlias

import numpy as np
import onnx

from tatami.core.diagnostic import fail

Sample: TypeAlias = dict[str, np.ndarray]
MOST = 1 << 12
"""Maximum number of calibration samples: they are held in memory, since they are read several times."""


def samples_of(calibration: object, model: onnx.ModelProto) -> list[Sample]:
    """The samples, each with an array for every input. One sample is a dict, or an array if the model has one input; several are
    a list or another iterable of these. Raises InputMismatch, InputTooLarge."""
    if calibration is None:
        return []
    held = {t.name for t in model.graph.initializer}
    ports = {i.name: i for i in model.graph.input if i.name not in held}
    if isinstance(calibration, Mapping | np.ndarray):
        calibration = [calibration]
    if isinstance(calibration, str | bytes) or not isinstance(calibration, Iterable):
        _refuse("calibration", f"a {type(calibration).__name__} is not a list of samples", "pass a list of dicts of arrays")
    out: list[Sample] = []
    for sample in calibration:
        if len(out) == MOST:
            raise fail("InputTooLarge", "calibration", f"more than {MOST} samples", "some hundred samples are enough")
        out.append(_sample(sample, ports, f"calibration[{len(out)}]"))
    if not out:
        _refuse("calibration", "it has no sample", "pass at least one; some hundred give good ranges")
    return out


def _refuse(at: str, why: str, how: str) -> NoReturn:
    raise fail("InputMismatch", at, why, how)


def _sample(given: object, ports: Mapping[str, onnx.ValueInfoProto], at: str) -> Sample:
    if not isinstance(given, Mapping):
        if len(ports) != 1:
            _refuse(
                at, f"one array for a model with {len(ports)} inputs", f"pass a dict of {', '.join(map(ascii, ports))}"[:200]
            )
        given = {next(iter(ports)): given}
    named = {str(n): a for n, a in given.items()}
    for name in [*(n for n in ports if n not in named), *(n for n in named if n not in ports)]:
        why = "the sample lacks this input" if name in ports else "the model has no such input"
        _refuse(f"{at}[{name[:60]!a}]", why, f"the inputs are {', '.join(map(ascii, ports))}"[:200])
    return {name: _array(named[name], port, f"{at}[{name[:60]!a}]") for name, port in ports.items()}


def _array(given: object, port: onnx.ValueInfoProto, at: str) -> np.ndarray:
    """The array of one input; its dtype, rank and fixed sizes are those of the input, and it is finite."""
    try:
        array = np.asarray(given)
    except (ValueError, TypeError, RuntimeError) as error:  # rows of several lengths; a tensor of PyTorch that needs a gradient
        _refuse(at, f"it is not an array: {str(error)[:120]}", "pass an array of numpy")
    kind = port.type.tensor_type
    known = onnx.helper.get_all_tensor_dtypes() - {onnx.TensorProto.STRING}
    if port.type.WhichOneof("value") != "tensor_type" or kind.elem_type not in known:
        _refuse(at, "the model takes no tensor of numbers here", "quantise without calibration")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    if array.dtype != dtype:
        _refuse(at, f"the array has the dtype {array.dtype}; the input has {dtype}", f"pass array.astype({str(dtype)!r})")
    if kind.HasField("shape"):
        sizes = [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]
        if len(sizes) != array.ndim or any(n is not None and n != m for n, m in zip(sizes, array.shape)):
            wanted = ", ".join("?" if n is None else str(n) for n in sizes)
            _refuse(at, f"the array has the shape {list(array.shape)}; the input has [{wanted}]", "pass arrays as for a call")
    if 0 in array.shape:
        _refuse(at, f"the array has the shape {list(array.shape)}, without elements", "pass arrays with elements")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        _refuse(at, "the array has numbers that are not finite", "leave the sample out")
    return array
