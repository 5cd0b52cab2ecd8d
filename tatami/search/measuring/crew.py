"""The places at which the subjects of a search are measured: on this machine one subject after another, on the nodes of a Ray
cluster one subject per node at the same time (ray_crew.py).

A subject is measured in one place from its begin to its end, by the same messages wherever that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tatami.core.diagnostic import TatamiError
from tatami.search.measuring.measurer import Limits, Measurer
from tatami.search.measuring.messages import Open


class NoPlace(Exception):
    """The place of a measurer was lost, and there is no other one now. `fault`: what to say if none comes."""

    def __init__(self, fault: TatamiError) -> None:
        super().__init__(str(fault))
        self.fault = fault


class Crew(Protocol):
    """Makes measurers. To be closed."""

    def lanes(self) -> int:
        """The number of subjects that can be measured at the same time now."""

    def measurer(self, opened: Open, *, is_alone: bool) -> Measurer:
        """A measurer of a program. `is_alone`: others measure at the same time, so that it needs a place for itself."""

    def close(self) -> None:
        """End all measuring, and give the places back."""


class LocalCrew:
    """The crew of a search on this machine: one worker."""

    def __init__(self, command: Sequence[str], limits: Limits) -> None:
        self._command = command
        self._limits = limits

    def lanes(self) -> int:
        """One, since two would disturb each other."""
        return 1

    def measurer(self, opened: Open, *, is_alone: bool) -> Measurer:
        """A measurer in a process of this machine."""
        return Measurer(opened, self._limits, self._command)

    def close(self) -> None:
        """Nothing to do: each measurer ends its own process."""
