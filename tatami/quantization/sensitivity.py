"""The cost of each layer: the outputs of the model with this layer alone quantised, against those of the model, both computed by
the float64 reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from tatami.core.diagnostic import fail
from tatami.quantization.layers import Layer
from tatami.quantization.ranges import Range
from tatami.quantization.rewrite import id_of, rewritten
from tatami.quantization.samples import Sample
from tatami.quantization.settings import Settings


def sensitivities(
    model: onnx.ModelProto, layers: Sequence[Layer], settings: Settings, ranges: Mapping[str, Range], sample: Sample
) -> dict[str, float]:
    """Result of a layer -> norm of the change of all outputs of floats, relative to their norm. One run of the reference for each layer."""
    whole = _reference(model, sample)
    norm = float(np.linalg.norm(whole))
    if not norm > 0:
        why = "the outputs of the first sample are 0, or no numbers of floating point"
        raise fail("InputMismatch", "calibration[0]", why, "leave sensitivity out, or pass another sample")
    out = {}
    for layer in layers:
        found = _reference(rewritten(model, [layer], settings, ranges), sample)
        if found.shape != whole.shape:
            why = f"the outputs change their sizes with {layer.name[:60]!a} quantised, so that they cannot be compared"
            raise fail(
                "UnsupportedModel", "sensitivity", why, "leave sensitivity out, or give a model whose outputs have fixed sizes"
            )
        out[id_of(layer.node)] = float(np.linalg.norm(found - whole)) / norm
    return out


def _reference(model: onnx.ModelProto, sample: Sample) -> np.ndarray:
    """All outputs of floats in one vector."""
    import tatami.api

    compilation = tatami.api.prepare(model, target="reference")
    signature = compilation.stages["frontend"].programs["main"].signature
    inputs = {p.tensor: sample[p.tensor] for p in signature.inputs if p.tensor in sample}
    results = compilation.reference_run(inputs, {})
    flat = [np.asarray(a, np.float64).ravel() for a in results.values() if np.asarray(a).dtype.kind == "f"]
    return np.concatenate(flat) if flat else np.zeros(0)
