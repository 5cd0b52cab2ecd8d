"""The backend of torch.compile: Dynamo's graph through AOTAutograd, each resulting graph compiled.

AOTAutograd functionalises, decomposes and, if gradients are requested, splits into forward and backward; it handles views and
mutations at the boundary, except updates of arguments, which the programs do in place.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import msgspec
import torch
from functorch.compile import make_boxed_func
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.descriptors import PlainAOTInput
from torch._subclasses.fake_tensor import FakeTensor

from tatami.api import build, prepare
from tatami.backends.torch_as_eager import as_eager
from tatami.backends.torch_groups import use_torch_groups_by_default
from tatami.backends.torch_kept import Kept, kept_bytes
from tatami.backends.torch_parameters import span
from tatami.backends.torch_partition import cut
from tatami.backends.torch_program import TorchProgram
from tatami.backends.torch_report import REPORTS, GraphReport
from tatami.core.algebra.visit import evaluate, free_vars
from tatami.core.collector import without_collector
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.expr import Expr
from tatami.core.faults.arguments import seconds_argument
from tatami.core.sizes.binding import solve
from tatami.execution.ir import Choose, Launch, is_collective, is_exchange_of_reference
from tatami.runtime.cores import thread_count
from tatami.runtime.cpu.watch import can_watch
from tatami.torch.decompose import decompositions, whole_interpolation
from tatami.torch.import_graph import import_graph
from tatami.torch.imported import Frame, Imported, Unsupported, View, described

PARAMETER = "tatami_parameter"
"""Key in the metadata of placeholders that are parameters; its value is the parameter's name."""
PACKED_SHARE = 1 / 4
"""Maximum share of the machine's memory for packed copies of weights of matrix products, which hold these weights twice."""
log = logging.getLogger("tatami.torch")


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`options=` of torch.compile. fallback: operators that cannot be imported run in PyTorch, else they are an error.
    pack: without gradients, programs keep packed copies of parameters (of those of matrix products where the system can watch
    writes of them), and each call checks whether these changed. freeze: a promise that parameters change only by writes that PyTorch counts, so that
    no call has to check.
    target: by default the machine that holds the tensors, "cpu" or that GPU. threads: by default TATAMI_NUM_THREADS, else PyTorch's
    number at the time of each call. tune: seconds to search for faster plans of each graph
    by measuring (docs/tune.md); 0: no search. memory_budget: the share, 0 to 1, of what forward keeps for backward, of which less
    makes backward compute more again; by default `torch._functorch.config.activation_memory_budget`, which means the same."""

    fallback: bool = True
    pack: bool = True
    freeze: bool = False
    target: str = ""
    threads: int | None = None
    precision: str | None = None
    tune: float = 0.0
    memory_budget: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


def compile_graph(gm: fx.GraphModule, example_inputs: Sequence[Any], options: Any = None, mode: Any = None) -> Any:
    """The compiled form of a graph of Dynamo. Raises TatamiError."""
    chosen = read_options(options, mode)
    as_eager(gm)
    compiler = {kind: partial(_compile, kind=kind, options=chosen) for kind in ("forward", "backward")}
    compiler["inference"] = partial(_compile, kind="inference", options=chosen, parameters=_parameters(gm, example_inputs))
    backend = aot_autograd(
        fw_compiler=compiler["forward"],
        bw_compiler=compiler["backward"],
        inference_compiler=compiler["inference"],
        decompositions=decompositions(),
        partition_fn=Kept(chosen.memory_budget),
        keep_inference_input_mutations=True,
    )
    try:
        with without_collector(), whole_interpolation():
            return backend(gm, example_inputs)
    except RuntimeError as error:  # raised by AOTAutograd while it follows the derivatives
        if not chosen.fallback or not lacks_derivative(error):
            raise
        report = GraphReport("forward", sum(n.op != "placeholder" for n in gm.graph.nodes))
        report.refused.append(f"{str(error).splitlines()[0]}: eager raises this once a gradient is asked for")
        REPORTS.append(report)
        return gm.forward


def lacks_derivative(error: Exception) -> bool:
    """True if the error is that PyTorch has no derivative of an operator, which it reports as soon as it traces one, while
    eager code without gradients never meets it."""
    return "derivative for" in str(error) and "not implemented" in str(error)


def read_options(options: Any, mode: Any) -> Options:
    """`options=` as Options. Raises InvalidAttribute for options and modes that do not exist."""
    if mode not in (None, "default"):
        raise fail("InvalidAttribute", "torch.compile", f"mode {mode!r} is none of tatami's", "leave mode out")
    try:
        found = msgspec.convert(dict(options or {}), Options)
        if found.tune:
            seconds_argument(found.tune)
        return found
    except msgspec.ValidationError as error:
        names = ", ".join(f.name for f in msgspec.structs.fields(Options))
        raise fail("InvalidAttribute", "options of torch.compile", str(error), f"the options are {names}") from None


@dataclass(frozen=True)
class Parameter:
    """A parameter among the arguments of a graph. `is_watchable`: the system tells whether its memory was written."""

    name: str
    bytes: int
    is_watchable: bool


def _parameters(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> dict[int, Parameter]:
    """The parameters on the CPU among the arguments of a graph of Dynamo, by position."""
    names = [n.name for n in gm.graph.nodes if n.op == "placeholder"]
    given = [
        (k, name, value)
        for k, (name, value) in enumerate(zip(names, example_inputs))
        if isinstance(value, torch.nn.Parameter) and value.device.type == "cpu"
    ]
    real = [v.numel() > 0 and not isinstance(v, FakeTensor) for _, _, v in given]
    watchable = iter(can_watch([span(v) for (_, _, v), is_real in zip(given, real) if is_real]))
    return {k: Parameter(name, v.nbytes, is_real and next(watchable)) for (k, name, v), is_real in zip(given, real)}


def _packed_placeholders(gm: fx.GraphModule, options: Options, parameters: Mapping[int, Parameter]) -> dict[fx.Node, str]:
    """Placeholder -> name, for the parameters that may be packed. `parameters`: those of Dynamo's graph, by position.

    Without the promise of `freeze`, a weight of matrix products is packed only if no call has to read it to check the copy
    (measured in decision 0067), and none is where copies of all would take more than PACKED_SHARE of the machine's memory.
    Their biases are read as they lie."""
    found = {
        n: parameters[of.idx]
        for n in gm.graph.nodes
        if isinstance(of := n.meta.get("desc"), PlainAOTInput) and of.idx in parameters
    }
    if not options.freeze:
        factors = {n: p for n, p in found.items() if is_factor(n)}
        too_many = sum(p.bytes for p in factors.values()) > PACKED_SHARE * _machine_bytes()
        for n, p in factors.items():
            if too_many or not p.is_watchable or n.meta["val"].ndim < 2:
                del found[n]
    return {n: p.name for n, p in found.items()}


def _machine_bytes() -> int:
    """The machine's memory; 0 if the system does not tell."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0


def _compile(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    kind: str,
    options: Options,
    parameters: Mapping[int, Parameter] | None = None,
) -> Any:
    """One graph of AOTAutograd as a function of a list of arguments. `parameters`: those that may be packed, by their
    positions in Dynamo's graph."""
    if options.pack and parameters:
        for node, name in _packed_placeholders(gm, options, parameters).items():
            node.meta[PARAMETER] = name
    report = GraphReport(kind, sum(n.op == "call_function" for n in gm.graph.nodes))
    report.kept_bytes = kept_bytes(gm)
    REPORTS.append(report)
    began = time.perf_counter()
    try:
        with without_collector():
            return make_boxed_func(_whole(gm, report, options))
    finally:
        report.seconds = time.perf_counter() - began
        log.info("%s", report.text())


_VIEWS = frozenset(
    {"aten.t.default", "aten.permute.default", "aten.transpose.int", "aten.view.default", "aten.unsqueeze.default"}
)
_READS = frozenset(
    {"aten.mm.default", "aten.addmm.default", "aten.bmm.default", "aten.baddbmm.default", "aten.embedding.default"}
)


def is_factor(parameter: fx.Node) -> bool:
    """True if only matrix products read the parameter, unchanged, besides an embedding, which reads rows of it (tied weights):
    reading such a weight in place costs less than reading it at each call to check a packed copy (measured in decision 0041).
    """
    ahead = list(parameter.users)
    while ahead:
        node = ahead.pop()
        if str(node.target) in _VIEWS:
            ahead += node.users
        elif str(node.target) not in _READS:
            return False
    return True


def _whole(gm: fx.GraphModule, report: GraphReport, options: Options) -> Callable[..., Any]:
    imported, unsupported = _imported(gm, options.fallback)
    if not unsupported:
        made = _program(gm, imported, report, options)
        return gm.forward if made is None else made
    report.unsupported += unsupported
    if not options.fallback:
        raise fail(
            "UnsupportedModel",
            "torch.compile",
            described(unsupported),
            'leave out options={"fallback": False}: these operators then run in PyTorch',
        )
    return cut(gm, unsupported, lambda part: _part(part, report, options)) or gm.forward


def _part(part: fx.GraphModule, report: GraphReport, options: Options) -> TorchProgram | None:
    """The program of a part of a cut graph; None if it has operators that cannot be imported, which was not found before the
    cut: the graph as a whole is then refused."""
    imported, unsupported = _imported(part, options.fallback)
    if unsupported:
        report.refused.append(described(unsupported))
        return None
    return _program(part, imported, report, options)


def _imported(gm: fx.GraphModule, fallback: bool) -> tuple[Imported, list[Unsupported]]:
    """(the graph as ours, operators that cannot be imported or that PyTorch may as well run)."""
    imported = import_graph(gm, Frame(held=_held(gm), leaves=fallback))
    return imported, [*imported.unsupported, *undecided_sizes(gm, imported)]


def _held(gm: fx.GraphModule) -> dict[int, str]:
    """Position -> name, for the parameters among the placeholders."""
    placeholders = enumerate(n for n in gm.graph.nodes if n.op == "placeholder")
    return {k: n.meta[PARAMETER] for k, n in placeholders if PARAMETER in n.meta}


def _program(gm: fx.GraphModule, imported: Imported, report: GraphReport, options: Options) -> TorchProgram | None:
    """The compiled and loaded program; None if there is nothing to compute, or if the compiler refuses the program and PyTorch
    may run it."""
    if not imported.graph._updates:
        return None
    fixed = threads_asked_for(options)
    threads = torch.get_num_threads() if fixed is None else fixed
    try:
        target = options.target or target_of(gm)
        compilation = prepare(imported.module(), target=target, precision=options.precision)
        if options.tune > 0:
            from tatami.search.tune import tuned

            found = tuned(compilation, options.tune, {}, threads)
            compilation = prepare(imported.module(), target=target, precision=options.precision, decisions=found)
        function = build(compilation, threads)
    except TatamiError as error:
        if not options.fallback:
            raise
        log.warning("a graph stays in PyTorch: %s", error)
        report.refused.append(str(error.diagnostics[0]))
        return None
    if any(is_collective(i.op) or is_exchange_of_reference(i.op) for i in function.execution.main.instructions):
        use_torch_groups_by_default()
    report.programs += 1
    report.alive.add(function)
    report.kernels += sum(isinstance(i.op, Launch | Choose) for i in function.execution.main.instructions)
    return TorchProgram(imported, function, report, _held(gm), options.freeze, fixed)


def threads_asked_for(options: Options) -> int | None:
    """The number of threads that the options or TATAMI_NUM_THREADS fix; None for PyTorch's, which follows OMP_NUM_THREADS."""
    if options.threads is None and not os.environ.get("TATAMI_NUM_THREADS", "").strip():
        return None
    return thread_count(options.threads)


def target_of(gm: fx.GraphModule) -> str:
    """The machine that holds a graph's tensors. Rank-0 arguments may stay on the host of a GPU, as in PyTorch; other mixtures
    raise UnsupportedModel."""
    found: dict[torch.device, fx.Node] = {}
    for node in gm.graph.nodes:
        values = node.meta.get("val")
        for value in values if isinstance(values, list | tuple) else (values,):
            if isinstance(value, torch.Tensor) and not (node.op == "placeholder" and value.ndim == 0):
                found.setdefault(value.device, node)
    kinds = {d.type for d in found}
    if kinds <= {"cpu"}:
        return "cpu"
    if len(found) == 1 and kinds == {"cuda"}:
        (device,) = found
        return f"cuda:{device.index or 0}"
    where = ", ".join(sorted(map(str, found)))
    at = next(reversed(found.values())).name
    why = f"a graph with tensors on {where} is on several devices; a program runs on one"
    raise fail("UnsupportedModel", at, why, "move the tensors to one device before the model")


def undecided_sizes(gm: fx.GraphModule, imported: Imported) -> list[Unsupported]:
    """Sizes that no argument decides: the number depends on data, and PyTorch knows it only at run time."""
    said = [*imported.sizes.values(), *(s for i in imported.graph._inputs if i.storage == "argument" for s in i.shape)]
    used = {n for t in imported.graph._tensors.values() for s in t.shape for n in free_vars(s)}
    used |= {n for o in imported.outputs if isinstance(o, Expr) for n in free_vars(o)}
    views = [o for o in imported.outputs if isinstance(o, View)]
    used |= {n for v in views for s in (*v.shape, *v.strides, v.offset) for n in free_vars(s)}
    trial = {n: 1009 + 2 * k for k, n in enumerate(sorted(used | {n for s in said for n in free_vars(s)}))}
    decided: dict[str, int] = {}
    solve([(s, int(evaluate(s, trial)), "") for s in said], decided)
    missing = sorted(used - decided.keys())
    output = next(n for n in gm.graph.nodes if n.op == "output")
    return [Unsupported(output, "output", f"no argument decides the size {name}", output.name) for name in missing]
