"""One model in a process of its own: every kernel measured next to its estimate, as JSON on the last line.

python -m benchmarks.cost_model.process MODEL.onnx ARRAYS.npz SECONDS NAME
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Mapping

import msgspec
import numpy as np

from benchmarks.cost_model.record import Kernel, Model
from tatami.api import prepare
from tatami.bench.measure import measure
from tatami.core.diagnostic import TatamiError

THREADS = 1
"""Threads of a measurement: estimates of one thread show the model, not the scheduler."""


def measured(path: str, arrays: str, seconds: float, name: str) -> Model:
    """The kernels of a model that runs at each call; those of called programs and library steps have no estimate."""
    try:
        with np.load(arrays, allow_pickle=False) as feed:
            inputs = dict(feed)
        compilation = prepare(path, sizes=sizes_of(path, inputs))
        found = measure(compilation, inputs, {}, THREADS, seconds)
    except TatamiError as error:
        return Model(name, refused=str(error.diagnostics[0])[:300])
    out = Model(name, found.whole)
    for t in found.timings:
        if t.estimate is None or not t.plan or t.seconds <= 0:
            out.unpriced += 1
            continue
        kind = json.loads(t.plan)["kind"]
        sources = list(t.sources[:3])
        out.kernels.append(
            Kernel(
                t.kernel,
                t.kind,
                kind,
                sources,
                t.estimate,
                t.seconds,
                t.bytes or 0.0,
                {k: float(v) for k, v in t.terms.items()},
            )
        )
    return out


def sizes_of(path: str, inputs: Mapping[str, np.ndarray]) -> dict[str, int]:
    """The sizes of the model's symbols that the shapes of its inputs give."""
    given = prepare(path).stages["frontend"].main.signature.inputs
    ports = {port.tensor: port.shape for port in given}
    found: dict[str, int] = {}
    for tensor, array in inputs.items():
        for size, n in zip(ports.get(tensor, ()), array.shape):
            if (symbol := size.as_name()) is not None:
                found[symbol] = n
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    path, arrays, seconds, name = sys.argv[1:]
    print(json.dumps(msgspec.to_builtins(measured(path, arrays, float(seconds), name))))
