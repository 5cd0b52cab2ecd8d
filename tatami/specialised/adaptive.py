"""Functions that `tt.compile` returns for a model whose sizes stay open: each has a program for every call.

AdaptiveFunction    one program serves all sizes; a call that breaks its assumptions gets a program of its own, and
                    requested tuples of sizes have theirs from the beginning
DeferredFunction    no program serves all sizes: each tuple of sizes has its own, compiled at the first such call"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from tatami.compiled_function import CompiledFunction, StageView
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.signature import Signature
from tatami.specialised.broken_axes import broken_axes
from tatami.specialised.specialisation import ShapeSet, shapes_by_name

if TYPE_CHECKING:
    from tatami.core.numbers.numerics import Array
    from tatami.runtime.bound_call import BoundCall
    from tatami.runtime.memory import Memory


@dataclass
class Cluster:
    """A program for sizes that were requested ahead of time, behind its guard: symbol -> (least, greatest)."""

    guard: Mapping[str, tuple[int, int]]
    function: CompiledFunction
    seconds: float
    calls: int = 0

    def admits(self, sizes: Mapping[str, int]) -> bool:
        """True if the guard has a range for sizes like these, and all lie in it."""
        return all(name in sizes and low <= sizes[name] <= high for name, (low, high) in self.guard.items())

    def __str__(self) -> str:
        sizes = (f"{n} = {low}" if low == high else f"{n} in {low}..{high}" for n, (low, high) in self.guard.items())
        return f"program for {', '.join(sizes)}: {self.seconds:.1f} s, {self.calls} calls"


class AdaptiveFunction(CompiledFunction):
    """A compiled program of open sizes, with further programs for some sizes. `shape_set` is None for a model that cannot be
    imported again; its calls outside the guards run this program or are refused by it."""

    shape_set: ShapeSet | None = None
    clusters: tuple[Cluster, ...] = ()

    @classmethod
    def around(cls, function: CompiledFunction, shape_set: ShapeSet | None, clusters: tuple[Cluster, ...]) -> AdaptiveFunction:
        """`function` with further programs for some sizes."""
        made = cls(function.compilation, function.execution, function.program, function.sizes)
        made.shape_set, made.clusters = shape_set, clusters
        made._routes = {}
        return made

    _routes: dict[tuple[tuple[int, ...] | None, ...], Cluster | None]
    """Shapes of the inputs -> the cluster that admits them, or None."""

    def _call(self, given: Mapping[str, object], out: Mapping[str, object] | None) -> dict[str, object]:
        """The results of the program of open sizes, unless another one serves this call. (A quick call has shapes that it
        served.)"""
        cluster = self._cluster(given) if self.clusters else None
        if cluster is not None:
            cluster.calls += 1
            return cluster.function(given, out=out)
        shape_set = self.shape_set
        if shape_set is None:
            return super()._call(given, out)
        if not given.keys().isdisjoint(self.compilation.overridable):
            return shape_set.run(shape_set.named(given), out)
        if shape_set.programs and given.keys() >= set(self._names) and shape_set.knows(shape_set.shapes_of(given)):
            return shape_set.run(given, out)
        try:
            return super()._call(given, out)
        except TatamiError as error:
            if not shape_set.may_answer(error):
                raise
            return shape_set.run(given, out, error, broken_axes(self._model_signature, shapes_by_name(given)))

    def bind(self, *inputs: object, out: Mapping[str, object] | None = None, **named: object) -> BoundCall:
        """Fix all arrays, for the program that serves their sizes."""
        cluster = self._cluster(self._by_name(inputs, named)) if self.clusters else None
        return super().bind(*inputs, out=out, **named) if cluster is None else cluster.function.bind(*inputs, out=out, **named)

    def _cluster(self, given: Mapping[str, object]) -> Cluster | None:
        shapes = tuple(getattr(given.get(n), "shape", None) for n in self._names)
        if shapes not in self._routes:
            sizes = self._sizes_of(shapes)
            if len(self._routes) > 4096:
                self._routes.clear()
            self._routes[shapes] = next((c for c in self.clusters if c.admits(sizes)), None)
        return self._routes[shapes]

    def _sizes_of(self, shapes: tuple[tuple[int, ...] | None, ...]) -> Mapping[str, int]:
        from tatami.core.sizes.binding import solve_sizes

        known = {n: tuple(map(int, s)) for n, s in zip(self._names, shapes, strict=True) if s is not None}
        return solve_sizes(self._model_signature, known, self.sizes)

    @property
    def _model_signature(self) -> Signature:
        """The signature of the model, with sizes that equations have replaced since."""
        frontend = self.compilation.stages.get_made("frontend")
        return self.signature if frontend is None else frontend.main.signature

    def explain(self) -> str:
        """The report as text, with the clusters and the programs of other sizes."""
        parts = [super().explain(), *map(str, self.clusters)]
        if self.shape_set is not None and self.shape_set.made:
            parts.append(self.shape_set.explain())
        return "\n".join(parts)

    @property
    def memory(self) -> Memory:
        """Bytes of this program by use, and how many programs there are for other sizes."""
        return {**super().memory, **_counts(self.shape_set)}


class DeferredFunction:
    """A model of which no single program serves all sizes: `why` is the refusal of such a program."""

    def __init__(self, shape_set: ShapeSet, why: TatamiError) -> None:
        self.shape_set = shape_set
        self.why = why

    def __call__(self, *inputs: object, out: Mapping[str, object] | None = None, **named: object) -> dict[str, Any]:
        """Run once, by the program for these sizes, which is compiled if this is their first call. Raises TatamiError."""
        return self.shape_set.run(self._given(inputs, named), out)

    def bind(self, *inputs: object, out: Mapping[str, object] | None = None, **named: object) -> BoundCall:
        """Fix all arrays, for the program that serves their sizes."""
        given = self._given(inputs, named)
        self.shape_set.run(given)
        function = self.latest("bind")
        return function.bind({a.tensor: given[a.tensor] for a in function.arguments}, out=out)

    def _given(self, inputs: tuple[object, ...], named: Mapping[str, object]) -> dict[str, object]:
        if inputs and named:
            names = self.shape_set.source.names
            first = inputs[0] if len(inputs) == 1 and isinstance(inputs[0], Mapping) else dict(zip(names, inputs, strict=False))
            return self.shape_set.named({**first, **named})
        one = len(inputs) == 1 and isinstance(inputs[0], Mapping)
        return self.shape_set.named(named if not inputs else inputs[0] if one else list(inputs))

    def latest(self, what: str) -> CompiledFunction:
        """The program of the last call. Raises UnboundSymbol before the first."""
        programs = self.shape_set.programs
        if not programs:
            reason = self.why.diagnostics[0]
            why = f"each tuple of sizes has a program of its own, and none was called yet ({reason.at}: {reason.why})"
            raise fail("UnboundSymbol", what, why, "call it once, or compile with sizes= for the sizes you want")
        return next(reversed(programs.values())).function

    @property
    def stages(self) -> Mapping[str, StageView]:
        """The stages of the program of the last call."""
        return self.latest("stages").stages

    def fetch(self, name: str, /, **inputs: Array) -> Array:
        """The value of a node in the program of the last call. Raises UnboundSymbol before the first."""
        return self.latest("fetch").fetch(name, **inputs)

    def explain(self) -> str:
        """The reason why there is no program for all sizes; then every program that was compiled."""
        reason = self.why.diagnostics[0]
        parts = [f"no program serves all sizes: {reason.code} at {reason.at}: {reason.why}", self.shape_set.explain()]
        parts += [p.function.explain() for p in self.shape_set.programs.values()]
        return "\n".join(parts)

    @property
    def memory(self) -> Memory:
        """Bytes of the program of the last call, and how many programs there are."""
        last = self.latest("memory").memory if self.shape_set.programs else {}
        return {**last, **_counts(self.shape_set)}

    def save(self, path: object) -> NoReturn:
        """Raise TatamiError: a saved program serves one tuple of sizes or all of them."""
        reason = self.why.diagnostics[0]
        why = f"no program serves all sizes ({reason.at}: {reason.why})"
        raise fail("UnboundSymbol", "save", why, "compile with sizes= for the sizes that the saved program shall serve")


def _counts(shape_set: ShapeSet | None) -> Memory:
    if shape_set is None:
        return {}
    return {"specialisations": len(shape_set.programs), "specialisation_seconds": round(shape_set.seconds, 3)}
