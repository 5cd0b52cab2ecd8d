"""The cost of each layer: the outputs of the model with this layer alone quantised, against those of the model, both computed by
the float64 reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from tatami.core.diagnostic import fail
from tatami.core.sizes.binding import bind_sizes
from tatami.quantization.layers import Layer
from tatami.quantization.ranges import Range
from tatami.quantization.rewrite import rewritten
from tatami.quantization.samples import Sample
from tatami.quantization.settings import Settings


def sensitivities(
    model: onnx.ModelProto, layers: Sequence[Layer], settings: Settings, ranges: Mapping[str, Range], sample: Sample
) -> dict[str, float]:
    """Layer -> norm of the change of all outputs of floats, relative to their norm. One run of the reference for each layer."""
    whole = _reference(model, sample)
    norm = float(np.linalg.norm(whole))
    if not norm > 0:
        why = "the outputs of the first sample are 0, or no numbers of floating point"
        raise fail("InputMismatch", "calibration[0]", why, "leave sensitivity out, or pass another sample")
    out = {}
    for layer in layers:
        found = _reference(rewritten(model, [layer], settings, ranges), sample)
        out[layer.name] = float(np.linalg.norm(found - whole)) / norm
    return out


def _reference(model: onnx.ModelProto, sample: Sample) -> np.ndarray:
    """All outputs of floats in one vector."""
    import tatami.api

    compilation = tatami.api.prepare(model, target="reference")
    module = compilation.stages["frontend"]
    signature = module.programs["main"].signature
    shapes: dict[str, Any] = {n: t.shape for n, t in module.constants.items()}
    inputs = {p.tensor: sample[p.tensor] for p in signature.inputs if p.tensor in sample}
    sizes = bind_sizes(signature, shapes | {n: a.shape for n, a in inputs.items()}, None, set())
    results = compilation.reference_run(inputs, sizes)
    flat = [np.asarray(a, np.float64).ravel() for a in results.values() if np.asarray(a).dtype.kind == "f"]
    return np.concatenate(flat) if flat else np.zeros(0)
