"""Inputs and outputs of a drop-in session that are named once and used for many runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tatami.backends.onnx_session_errors import invalid_argument, not_implemented
from tatami.backends.onnx_session_values import OrtValue


class IOBinding:
    """Names and values of one run; outputs without memory of their own get an array per run."""

    def __init__(self, session: Any) -> None:
        self._inputs = {i.name for i in session.get_inputs()} | {i.name for i in session.get_overridable_initializers()}
        self._outputs = {o.name for o in session.get_outputs()}
        self.feed: dict[str, Any] = {}
        self._places: dict[str, OrtValue | None] = {}
        self._results: list[OrtValue] = []

    @property
    def names(self) -> list[str]:
        """Names of the bound outputs, in order; an empty list stands for all."""
        return list(self._places)

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray) -> None:
        """Bind the input `name` to an array. Raises InvalidArgument for an unknown name."""
        self._known(name, self._inputs)
        self.feed[name] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind the input `name` to an OrtValue. Raises InvalidArgument for an unknown name."""
        self._known(name, self._inputs)
        self.feed[name] = ortvalue

    def bind_output(self, name: str, device_type: str = "cpu", *args: Any, **kwargs: Any) -> None:
        """Bind an output, whose memory is allocated by the run. Raises NotImplemented for memory at an address."""
        if device_type != "cpu" or args or kwargs:
            raise not_implemented("an output in memory at an address", name, "bind_ortvalue_output takes an array")
        self._known(name, self._outputs)
        self._places[name] = None

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an output that is written into the memory of a value. Raises InvalidArgument."""
        self._known(name, self._outputs)
        self._places[name] = ortvalue

    def take(self, results: Sequence[Any]) -> None:
        """Store the results of a run, in the order of `names`."""
        self._results = []
        for result, place in zip(results, self._places.values() or [None] * len(results), strict=True):
            if place is None:
                self._results.append(OrtValue(result))
            else:
                place.update_inplace(result)
                self._results.append(place)

    def get_outputs(self) -> list[OrtValue]:
        """The results of the last run as OrtValues, in the order of `names`."""
        return list(self._results)

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The results of the last run as arrays, lists or maps, in the order of `names`."""
        return [v.to_python() for v in self._results]

    def clear_binding_inputs(self) -> None:
        """Forget the bound inputs and their values."""
        self.feed.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the bound outputs and their results."""
        self._places.clear()
        self._results.clear()

    def synchronize_inputs(self) -> None:
        """Do nothing: arrays of the CPU are ready."""

    def synchronize_outputs(self) -> None:
        """Do nothing: a run has ended when it returns."""

    def _known(self, name: str, names: set[str]) -> None:
        if name not in names:
            raise invalid_argument(
                f"Failed to find NodeArg in all def list: {name}", name, f"use one of {', '.join(sorted(names))}"
            )
