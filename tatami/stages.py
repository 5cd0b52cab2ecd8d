"""The table of stages: name, body, codec, checker, printer, meaning, and the stages that a restart from it needs. `Stages`
holds their values for one program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from types import ModuleType
from typing import Any

from tatami.core.codec import from_builtins, to_builtins
from tatami.core.diagnostic import Diagnostic, fail
from tatami.core.module import Module


@dataclass(frozen=True)
class Stage:
    """One stage. `needs`: earlier stages without which the chain cannot continue from this one. `checks_with`: stages that the
    verifier compares with, if they exist. `code`: holds C or CUDA text, which only trusted documents may. `facts`: its
    verifier computes it again, which shows nothing if it was just computed."""

    name: str
    body: str
    needs: tuple[str, ...] = ()
    checks_with: tuple[str, ...] = ()
    runs: bool = False
    code: bool = False
    facts: bool = False

    @property
    def layer(self) -> str:
        """The folder of the package that has the stage's code."""
        return self.name.split("@")[0]

    @property
    def file_stem(self) -> str:
        """The stage's name in file names of dumps."""
        return self.name.replace("@", "-")


STAGES: tuple[Stage, ...] = (
    Stage("frontend", "Graph", runs=True),
    Stage("tiny@imported", "Program", runs=True),
    Stage("tiny", "Program", runs=True),
    Stage("indexbook", "IndexBook", needs=("tiny",), checks_with=("tiny",)),
    Stage("poly_view", "PolyView", needs=("tiny", "indexbook"), checks_with=("tiny", "indexbook")),
    Stage("region@explicit", "Program", runs=True),
    Stage("region", "Program", runs=True),
    Stage("poly_core", "PolyCore", needs=("region",), checks_with=("region",), facts=True),
    Stage("plan", "ProgramPlan", needs=("region",), checks_with=("region",)),
    Stage("loop", "Program", needs=("region", "plan")),
    Stage("gpu", "Program", needs=("region", "plan")),
    Stage("execution", "ExecutionPlan", needs=("loop", "gpu")),
    Stage("c", "Source", needs=("execution",), code=True),
    Stage("cu", "Source", needs=("execution",), code=True),
)
"""All stages, in the order of the chain."""
BY_NAME: Mapping[str, Stage] = {s.name: s for s in STAGES}
"""Name -> stage of the table."""
UP_TO_TINY = ("frontend", "tiny@imported", "tiny")
"""Stages from which the compiler partitions by itself."""
UP_TO_REGION = (*UP_TO_TINY, "region@explicit", "region")
"""Stages from which the compiler makes plans by itself."""


def stage(name: str) -> Stage:
    """The stage of this name. Raises UnknownName."""
    try:
        return BY_NAME[name]
    except KeyError:
        raise fail(
            "UnknownName", name or "stage", f"there is no stage {name[:40]!r}", f"the stages are {', '.join(BY_NAME)}"
        ) from None


def _module(layer: str, file: str) -> ModuleType | None:
    try:
        return import_module(f"tatami.{layer}.{file}")
    except ModuleNotFoundError as error:
        if error.name == f"tatami.{layer}.{file}":
            return None
        raise


def body_type(s: Stage) -> type:
    """The class of the stage's programs."""
    made: type = getattr(import_module(f"tatami.{s.layer}.ir"), s.body)
    return made


def encode_body(s: Stage, body: object) -> object:
    """A program of the stage as plain JSON values."""
    form = _module(s.layer, "json_form")
    return form.encode(body) if form is not None else to_builtins(body)


def decode_body(s: Stage, value: object, at: str, *, trust: bool) -> object:
    """The program in plain JSON values. Raises TatamiError; Untrusted if it holds code and the document is not trusted."""
    form = _module(s.layer, "json_form")
    if form is not None:
        return form.decode(value, at, trust=trust)
    return from_builtins(value, body_type(s), at, trust=trust)


def verify(name: str, value: object, others: Callable[[str], object]) -> list[Diagnostic]:
    """The findings of the stage's verifier. `others(stage)`: a stage that exists, or None."""
    s = stage(name)
    checker = _module(s.layer, "verify")
    if checker is None:
        return []
    given = [others(n) for n in s.checks_with]
    if any(b is None for b in given):
        return []
    form = {"form": name} if "form" in signature(checker.verify).parameters else {}
    result: list[Diagnostic] = checker.verify(value, *given, **form)
    return result


def show(name: str, value: Module[object]) -> str:
    """The text of a stage for people; empty if it has no printer."""
    printer = _module(stage(name).layer, "show")
    if printer is None:
        return ""
    text: str = printer.show(value)
    return text


def runner(name: str) -> Callable[..., dict[str, Any]] | None:
    """The function with the numpy meaning of a stage that computes; None for other stages."""
    s = stage(name)
    if not s.runs:
        return None
    module = _module(s.layer, "run")
    return None if module is None else module.run


Observe = Callable[[str, Callable[[], Any]], Any]
"""observe(stage, make) runs `make`, looks at the value and returns it."""


class Stages:
    """Named values, made on demand and kept. The order of iteration is the order of the picture."""

    def __init__(self, given: Mapping[str, Module[object]], observe: Observe, define: Callable[[Stages], None]) -> None:
        self.given = dict(given)
        self._made: dict[str, Any] = dict(given)
        self._defined: dict[str, Callable[[], object]] = {}
        self._observe = observe
        self.told: Callable[[Any, Any], None] | None = None
        """told(kernel, unit), called with each CPU kernel and its C unit as soon as it is made, before the program that it
        belongs to is verified; None: nobody asks."""
        self._define = define
        """Function that adds every stage, called for the first stage that is not given: a stored program imports no layer."""

    def add(self, name: str, make: Callable[[], object]) -> None:
        """Define how the stage `name` is made; a given stage stays as it is."""
        self._defined[name] = make

    @property
    def _makers(self) -> dict[str, Callable[[], object]]:
        if not self._defined:
            self._define(self)
        return self._defined

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            make = self._makers[name]
            self._made[name] = self._observe(name, make)
        return self._made[name]

    def __contains__(self, name: str) -> bool:
        return name in self._made or name in self._makers

    def get_made(self, name: str) -> Any:
        """The value if it exists, else None: for side tables that a restart may lack."""
        return self._made.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """All stages of the chain, in order."""
        return tuple(self._makers)

    @property
    def made(self) -> tuple[str, ...]:
        """The stages that were given or made, in order."""
        return tuple(n for n in self._makers if n in self._made)
