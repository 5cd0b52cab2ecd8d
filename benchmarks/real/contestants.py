"""The contestants of one process, the model compiled and ONNX Runtime, what is asked of it and what it answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from benchmarks.real.errors import distance
from benchmarks.real.record import Size

MOVED = 3
"""Draws of moved feeds and of moved weights: one draw may hit upon a small error by luck."""
LEAST_WEIGHTS = 16
"""Elements of a weight that is moved: smaller ones are scales of Resize and other numbers that decide sizes."""
FAR_UNITS = 8
"""Units in the last place by which a feed is moved where moved weights change the shape of a result."""
Feed = Mapping[str, Any]


class Request(msgspec.Struct, frozen=True):
    path: str
    feeds: tuple[str, ...]
    """Files of numpy arrays by input name, one for each size; their first axis counts feeds."""
    sizes: tuple[Mapping[str, int], ...]
    rounds: int = 3
    tiny: str = ""
    """A small model that loads whatever every first model of a process loads."""


class Answer(msgspec.Struct):
    refused: str = ""
    seconds: float = 0.0
    sizes: list[Size] = []
    resident: int = 0
    compilations: int = 0


def session(model: str | bytes, optimised: bool = True) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class Ours:
    """The model compiled, called as a session is: a list of outputs in the model's order."""

    def __init__(self, path: str) -> None:
        from tatami.onnx import InferenceSession, SessionOptions

        options = SessionOptions()
        options.intra_op_num_threads = 1
        self._session = InferenceSession(path, options)

    def __call__(self, feed: Feed) -> list[Any]:
        return list(self._session.run(None, feed))


class Programs:
    """How many programs were compiled or loaded since the last `count`."""

    def __init__(self) -> None:
        from tatami import build

        find, self._found = build.find_program, 0

        def counted(compilation: Any) -> Any:
            self._found += 1
            return find(compilation)

        build.find_program = counted

    def count(self) -> int:
        found, self._found = self._found, 0
        return found


class Moved(NamedTuple):
    """Sessions without optimisations: of the model, and of the model with floats of its weights moved by one unit in the last
    place, some up, some down; none of these for a model without weights to move (trees)."""

    reference: Any
    weights: list[Any]


def own_error(feed: Feed, reference: Sequence[Any], optimised: Any, moved: Moved) -> float:
    """ONNX Runtime's own error: the greatest distance from its results without optimisations. One is that of its optimised
    session. The others are those of the same model with floats of the feed, and those of the feed and of the weights, moved by
    one unit in the last place: what the model makes of rounding, where no optimisation changes anything. Results of another
    shape (a duration that rounding decides) do not count: with an infinite error every result would be right. For each of
    those the feed alone is moved, by FAR_UNITS: less than what rounding does to values within such a model."""
    found = [distance(optimised.run(None, dict(feed)), reference)]
    for seed in range(MOVED):
        found.append(distance(moved.reference.run(None, _moved_feed(feed, seed)), reference))
    for seed, other in enumerate(moved.weights):
        error = distance(other.run(None, _moved_feed(feed, seed)), reference)
        if math.isinf(error):
            error = distance(moved.reference.run(None, _moved_feed(feed, seed, FAR_UNITS)), reference)
        found.append(error)
    return max((e for e in found if math.isfinite(e)), default=0.0)


def moved_sessions(path: str, reference: Any) -> Moved:
    """The model at `path` with moved weights, MOVED times."""
    found: list[Any] = []
    for seed in range(MOVED):
        data = _moved_weights(path, np.random.default_rng(seed))
        if data is not None:
            found.append(session(data, optimised=False))
    return Moved(reference, found)


def _moved_feed(feed: Feed, seed: int, units: int = 1) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    return {name: _moved(array, generator, units) for name, array in feed.items()}


def _moved(array: Any, generator: np.random.Generator, units: int = 1) -> Any:
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        return array
    away = np.where(generator.integers(0, 2, array.shape) == 0, -np.inf, np.inf).astype(array.dtype)
    found = array
    for _ in range(units):
        found = np.nextafter(found, away)
    return np.where((array == 0) | ~np.isfinite(array), array, found).astype(array.dtype)


def _moved_weights(path: str, generator: np.random.Generator) -> bytes | None:
    import onnx
    from onnx import numpy_helper

    model, any_moved = onnx.load(path), False
    for weight in model.graph.initializer:
        count = int(np.prod(weight.dims))
        if count >= LEAST_WEIGHTS and weight.data_type in (
            onnx.TensorProto.FLOAT,
            onnx.TensorProto.FLOAT16,
            onnx.TensorProto.DOUBLE,
        ):
            weight.CopyFrom(numpy_helper.from_array(_moved(numpy_helper.to_array(weight), generator), weight.name))
            any_moved = True
    return bytes(model.SerializeToString()) if any_moved else None


def load_feeds(file: str) -> list[dict[str, np.ndarray]]:
    """The feeds of a file; each array is one of its own, as a caller's are."""
    with np.load(file) as arrays:
        stacked = {name: arrays[name] for name in arrays.files}
    count = len(next(iter(stacked.values()))) if stacked else 1
    return [{name: np.array(a[k]) for name, a in stacked.items()} for k in range(count)]
