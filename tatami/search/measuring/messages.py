"""The messages between a search and its worker: one line of JSON per message, over the worker's standard streams."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from tatami.decisions import Decisions

OWN = "own"
"""Name of the program with the compiler's own decisions, against which candidates are compared."""
Step: TypeAlias = Literal["reference", "compile", "run", "turn"]
"""The activities of a worker: each has a time limit of its own."""


class Open(msgspec.Struct, frozen=True, tag="open"):
    """Read the program in `folder` and generate its inputs. `hints`: values of size symbols; `flush`: bytes to write before
    each timed call so that it finds cold caches, 0 for warm ones."""

    folder: str
    target: dict[str, object]
    hints: dict[str, int]
    threads: int
    flush: int
    memory: int
    """Maximum bytes of the process."""


class Add(msgspec.Struct, frozen=True, tag="add"):
    """Compile a program with these decisions, and compare it with the reference. `folder`: another program with the inputs and
    outputs of the opened one; "": that one."""

    name: str
    decisions: Decisions
    folder: str = ""


class Turns(msgspec.Struct, frozen=True, tag="turns"):
    """Time programs in turns: `count` turns, in each of which every program runs for about `seconds`."""

    names: tuple[str, ...]
    count: int
    seconds: float
    seed: int


class Clocks(msgspec.Struct, frozen=True, tag="clocks"):
    """The same with clocks around the kernels of each program; a turn is one call."""

    names: tuple[str, ...]
    count: int


class Drop(msgspec.Struct, frozen=True, tag="drop"):
    """Remove a program from the worker."""

    name: str


Request: TypeAlias = Open | Add | Turns | Clocks | Drop


class Running(msgspec.Struct, frozen=True, tag="running"):
    """The program that is worked on from now on: to blame if nothing more is heard. `seconds`: expected time."""

    name: str
    step: Step
    seconds: float = 0.0


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The request is fulfilled; for Add: the results agree with the reference."""


class Wrong(msgspec.Struct, frozen=True, tag="wrong"):
    """The results of a program differ from the reference."""

    why: str


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The compiler refuses the decisions, or the program refuses the inputs."""

    why: str


class Timed(msgspec.Struct, frozen=True, tag="timed"):
    """Seconds per call, a number per turn, for each program."""

    seconds: dict[str, list[float]]


class Clocked(msgspec.Struct, frozen=True, tag="clocked"):
    """Program -> kernel (`main/r3`) -> seconds, a number per turn."""

    seconds: dict[str, dict[str, list[float]]]


Reply: TypeAlias = Running | Done | Wrong | Refused | Timed | Clocked
