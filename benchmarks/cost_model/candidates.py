"""The candidates of Regions, each in a program of its own: estimates, and times in turns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from tatami.bench.inputs import gather_inputs
from tatami.build import load_cpu_program
from tatami.compilation import Compilation
from tatami.core.codec import to_builtins
from tatami.core.diagnostic import TatamiError
from tatami.core.target import Target
from tatami.decisions import Decisions
from tatami.pipeline import compile_stages
from tatami.plan.choose_cpu import asked, cpu_alternatives, cpu_candidates
from tatami.plan.ir import Guarded
from tatami.plan.named_region import constant_tensors, named_regions
from tatami.plan.rename import inverse, kept_choices, rename_plan
from tatami.plan.usual_sizes import usual_sizes
from tatami.prepare import prepare
from tatami.runtime.function import Function
from tatami.search.cut import cut, places
from tatami.search.proposal import with_decisions

TURNS, CALLS = 12, 4
"""Turns in which candidates are timed, and calls of each in a turn, of which the least counts: 48 times in all."""
FAR = 6.0
"""Ratio to the fastest time above which a candidate is not timed again: the first turn says enough."""


class Timed(msgspec.Struct):
    """A candidate. `plan`: its document as JSON text; `seconds`: the least time of its kernels, 0 where it has none; `why`: the
    reason for that."""

    line: str
    plan: str
    estimate: float
    terms: dict[str, float]
    seconds: float = 0.0
    why: str = ""

    @property
    def kind(self) -> str:
        """Kind of the plan."""
        return str(json.loads(self.plan)["kind"])


class Choice(msgspec.Struct):
    """A Region with all its candidates, the planner's own first. `name`: case or model, with the Region's name."""

    name: str
    kind: str
    candidates: list[Timed]

    @property
    def timed(self) -> list[Timed]:
        """The candidates that have a time."""
        return [c for c in self.candidates if c.seconds > 0]

    @property
    def loss(self) -> float:
        """Time of the planner's choice over the least time; 0 where it has none."""
        own = self.candidates[0].seconds
        return own / min(c.seconds for c in self.timed) if own > 0 else 0.0


@dataclass(frozen=True)
class Question:
    """A program of one Region with the candidates of its plan, the best estimate first."""

    name: str
    compilation: Compilation
    kind: str
    candidates: tuple[Timed, ...]
    key: str

    def decided(self, c: Timed) -> Compilation:
        """The program with the plan of a candidate."""
        return with_decisions(self.compilation, Decisions(plans={self.key: json.loads(c.plan)}))


def questions(name: str, model: object, sizes: Mapping[str, int], target: Target, every: bool) -> Iterator[Question]:
    """Each different Region of a model that can be measured alone. `sizes`: values of its symbols; `every`: with the alternatives
    that a search tries too. Raises TatamiError for a model that does not compile."""
    whole = prepare(model, target=target, sizes=dict(sizes))
    seen = set()
    for place in places(whole, sizes):
        if place.form not in seen:
            seen.add(place.form)
            module = cut(whole, place)
            stages = compile_stages({"region": module}, target, Decisions(), lambda _, make: make(), place.sizes)
            one = Compilation(stages, whole.observer, target, Decisions(), place.sizes)
            inside = "" if place.program == "main" else f"{place.program}/"
            yield _question(f"{name} {inside}{place.region.name}", one, place.sizes, every)


def _question(name: str, one: Compilation, sizes: Mapping[str, int], every: bool) -> Question:
    module, plan = one.stages["region"], one.stages["plan"].main
    (n,) = named_regions(module.main, one.stages["poly_core"].main, plan.layouts, constant_tensors(module, "main"))
    question = asked(n.renamed, n.facts, one.target, n.hints({**usual_sizes(module.main), **sizes}), n.constants)
    found, _ = (cpu_alternatives if every else cpu_candidates)(question)
    made = []
    for c in found:
        kept = kept_choices((Guarded((), rename_plan(c.plan, inverse(n.names))),), n.region)
        terms = {k: v for k, v in c.estimate.items() if not k.startswith("at.")}
        made.append(Timed(c.line, json.dumps(to_builtins(kept)), c.estimate["total"], terms))
    return Question(name, one, question.kind, tuple(made), plan.regions[0].key)


def timed(question: Question) -> Choice:
    """The Region with the times of its candidates, on one thread. A candidate that is refused, or whose results differ from the
    first one's, has no time but the reason."""
    calls: dict[int, Callable[[], float]] = {}
    first: dict[str, np.ndarray] = {}
    out = [msgspec.structs.replace(c) for c in question.candidates]
    for k, c in enumerate(out):
        try:
            run, clock = _ready(question.decided(c))
            got = run()
        except TatamiError as error:
            c.why = str(error.diagnostics[0])
            continue
        first = first or {n: a.copy() for n, a in got.items()}
        if all(np.allclose(a, got[n], 1e-3, 1e-3, equal_nan=True) for n, a in first.items()):
            calls[k] = _clocked(run, clock)
        else:
            c.why = "its results differ from the first candidate's"
    least = dict.fromkeys(calls, float("inf"))
    for turn in range(TURNS):
        for k, call in calls.items():
            if turn == 0 or least[k] <= FAR * min(least.values()):
                least[k] = min(least[k], *(call() for _ in range(CALLS)))
    for k, seconds in least.items():
        out[k].seconds = seconds
    return Choice(question.name, question.kind, out)


Run = Callable[[], dict[str, np.ndarray]]
Clock = Callable[[], dict[tuple[str, str], float]]


def _ready(compilation: Compilation) -> tuple[Run, Clock]:
    """A call of a program on generated inputs, after its first one, and the times of its kernels since the last question."""
    program = load_cpu_program(compilation, 1, timed=True)
    function = Function(compilation.stages["execution"], program, sizes=compilation.hints)
    arrays, _ = gather_inputs(function.signature, function.arguments, (), compilation.hints)
    call = function.bind(arrays)
    call()
    program.times()
    return call, program.times


def _clocked(run: Run, clock: Clock) -> Callable[[], float]:
    """A call's seconds in the kernels of `main`."""

    def call() -> float:
        run()
        return sum(taken for (program, _), taken in clock().items() if program == "main")

    return call
