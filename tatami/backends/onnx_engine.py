"""The engine of a drop-in session: the function that `tatami.compile` returns, called with the model's own values.

A program takes and returns tensors by name. If the model's inputs or outputs are more than that (sequences, optional
values), if an axis was given a number, or if the file has another suffix, `Prepared` converts values to the form of the
program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from tatami.api import CompiledFunction, compile
from tatami.backends.onnx_api import Prepared
from tatami.specialised.adaptive import DeferredFunction


class Engine:
    """A model that runs with values by name. file: the path or the bytes; None if `model` differs from them. Raises
    TatamiError."""

    def __init__(
        self, file: Path | bytes | None, model: onnx.ModelProto, folder: Path | None = None, threads: int | None = None
    ) -> None:
        initialised = {i.name for i in model.graph.initializer}
        self.names = tuple(i.name for i in model.graph.input if i.name not in initialised)
        self.outputs = tuple(o.name for o in model.graph.output)
        self._function: Any = None
        if isinstance(file, bytes) or (file is not None and file.suffix.lower() == ".onnx"):
            self._function = compile(file, threads=threads)
        if isinstance(self._function, CompiledFunction) and not self._is_of_tensors(self._function):
            self._function = None
        if self._function is None:
            self._function = Prepared(model, "cpu", threads, folder)
        elif isinstance(self._function, CompiledFunction):
            self._arguments = tuple(a.tensor for a in self._function.arguments)

    def run(self, feed: Mapping[str, Any]) -> Sequence[Any]:
        """The outputs in the model's order. Raises TatamiError."""
        function = self._function
        if isinstance(function, CompiledFunction):
            results = function({n: feed[n] for n in self._arguments})
            return [results[n] for n in self.outputs]
        if isinstance(function, DeferredFunction):
            results = function.shape_set.run(function.shape_set.named(feed))
            return [results[n] for n in self.outputs]
        return tuple(function.run(feed))

    def explain(self) -> str:
        """The report of the compilation as text."""
        return str(self._function.explain())

    def _is_of_tensors(self, function: CompiledFunction) -> bool:
        """True if every input and output of the model is one tensor of the program."""
        taken = {a.tensor for a in function.arguments}
        given = [o.tensor for o in function.signature.outputs]
        return taken <= set(self.names) and given == list(self.outputs)
