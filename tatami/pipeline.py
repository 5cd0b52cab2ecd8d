"""The compiler: one line per box of the picture in `docs/architecture.md`.

`compile_stages` is a pure function of (given stages, target, decisions). A stage is computed when something needs it;
a stage that is given (a document the user edited) cuts the graph there, which is how every stage can be restarted
from. Each computed value passes through `observe`, which verifies, times and dumps it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tatami.core.target import Target
from tatami.decisions import Decisions

Observer = Callable[[str, Callable[[], Any]], Any]
"""observe(stage, make) runs `make`, looks at the value and returns it."""


class Stages:
    """Named values, made on demand and kept. The order of iteration is the order of the picture."""

    def __init__(self, given: Mapping[str, Any], observe: Observer, define: Callable[[Stages], None]) -> None:
        self.given = dict(given)
        self._made: dict[str, Any] = dict(given)
        self._defined: dict[str, Callable[[], Any]] = {}
        self._observe = observe
        self._define = define
        """Function that adds every stage, called for the first stage that is not given: a stored program imports no layer."""

    def add(self, name: str, make: Callable[[], Any]) -> None:
        """Define how the stage `name` is made; a given stage stays as it is."""
        self._defined[name] = make

    @property
    def _makers(self) -> dict[str, Callable[[], Any]]:
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


def compile_stages(
    given: Mapping[str, Any], target: Target, decisions: Decisions, observe: Observer, hints: Mapping[str, int] | None = None
) -> Stages:
    """The chain for `target`, from the stages that are given. `hints`: usual values of size symbols."""
    return Stages(given, observe, lambda s: add_stages(s, target, decisions, hints))


def add_stages(s: Stages, target: Target, decisions: Decisions, hints: Mapping[str, int] | None) -> None:
    """Define the stages of the chain for `target`, from the frontend to the code."""
    from tatami.execution.lower import lower as lower_to_execution
    from tatami.frontend.dequantised import multiply_integers
    from tatami.frontend.folded_scales import fold_scales
    from tatami.frontend.inline import choose_calls, inline_calls
    from tatami.frontend.instantiate import instantiate_calls
    from tatami.indexbook.analyse import analyse as analyse_indices
    from tatami.plan.choose import choose
    from tatami.plan.plan_realised import added_regions, plan_realised
    from tatami.plan.realise import realise
    from tatami.poly_core.analyse import analyse as analyse_regions
    from tatami.poly_view.extract import extract
    from tatami.region.block_sums import reduce_in_blocks
    from tatami.region.canonicalise import canonicalise
    from tatami.region.lower import lower as lower_to_regions
    from tatami.region.partition import partition
    from tatami.tiny.lower import lower as lower_to_tiny
    from tatami.tiny.normalize import normalize

    s.add("frontend", lambda: missing("frontend"))
    if target.kind == "reference":
        from tatami.execution.from_graph import from_graph

        s.add("execution", lambda: from_graph(s["frontend"]))
        return
    s.add("instances", lambda: instantiate_calls(s["frontend"]))
    s.add("calls", lambda: choose_calls(s["instances"], target, decisions.calls))
    s.add("linked", lambda: inline_calls(s["instances"], s["calls"]))
    s.add("integers", lambda: multiply_integers(s["linked"], target))
    s.add("filters", lambda: fold_scales(s["integers"], target))
    s.add("tiny@imported", lambda: lower_to_tiny(s["filters"]))
    s.add("tiny", lambda: normalize(s["tiny@imported"], keeps_narrow=target.kind == "cpu"))
    s.add("indexbook", lambda: analyse_indices(s["tiny"]))
    s.add("poly_view", lambda: extract(s["tiny"], s["indexbook"]))
    s.add("partition", lambda: partition(s["tiny"], s["indexbook"], s["poly_view"], target, decisions.partitions, hints))
    s.add("region@explicit", lambda: lower_to_regions(s["tiny"], s["indexbook"], s["poly_view"], s["partition"]))
    s.add("region", lambda: reduce_in_blocks(canonicalise(s["region@explicit"]), target))
    s.add("poly_core", lambda: analyse_regions(s["region"], s.get_made("poly_view")))
    s.add("plan", lambda: choose(s["region"], s["poly_core"], target, decisions.plans, hints))
    s.add("realisation", lambda: realise(s["region"], s["plan"]))
    s.add("realised", lambda: s["realisation"].module)
    s.add("added", lambda: analyse_regions(added_regions(s["realised"], s["plan"])))
    s.add("realised_plan", lambda: plan_realised(s["realisation"], s["plan"], s["added"], target))
    code = add_cuda if target.kind == "cuda" else add_cpu
    code(s, target)
    s.add(
        "execution",
        lambda: lower_to_execution(s["realised"], s["realised_plan"], s["gpu" if target.kind == "cuda" else "loop"]),
    )


def add_cpu(s: Stages, target: Target) -> None:
    """Define the code stages of a CPU target: loops and C."""
    from tatami.c.print import print_c
    from tatami.loop.lower import lower as lower_to_loops

    def make_loops() -> Any:
        return lower_to_loops(s["realised"], s["realised_plan"], target, s["realisation"].variants)

    s.add("loop", make_loops)
    s.add("c", lambda: print_c(s["loop"], s["execution"], target))


def add_cuda(s: Stages, target: Target) -> None:
    """Define the code stages of a GPU target: GPU kernels and CUDA C++."""
    from tatami.cu.print import print_cu
    from tatami.gpu.lower import lower as lower_to_gpu

    s.add("gpu", lambda: lower_to_gpu(s["realised"], s["realised_plan"], target))
    s.add("cu", lambda: print_cu(s["gpu"], s["execution"], target))


def missing(stage: str) -> Any:
    """Raise UnknownName: the stage is needed and neither given nor derivable."""
    from tatami.core.diagnostic import fail

    raise fail(
        "UnknownName",
        stage,
        f"the documents given do not contain the stage {stage!r}, which is needed here",
        "give the folder of a dump",
    )
