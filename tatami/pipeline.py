"""The compiler, a line per step: 26 steps, 14 of which are stages.

A *stage* is a document: a name of `--dump`, a key of `f.stages`, a file that the compiler restarts from (`stages.py`). Boxes of
the picture in `docs/architecture.md` stand at the margin and are stages; what lies between two boxes is indented. Two indented
steps are stages too: `tiny@imported` and `region@explicit`, earlier forms of their boxes; the other 12 are values in memory, which
no dump has and a restart computes again.

Before the first row, `models.py` opens a file or an object and an importer (`onnx/load.py`, `torch/load.py`, `harp/load.py`)
makes `frontend` of it; the Graph API makes it directly. After the last row, `runtime/building/` compiles the text, and
`runtime/function.py` has what the caller calls.

    stage              made from                              made by                             what it is
    frontend           (given)                                an importer, the Graph API          what the model means
      instances        frontend                               frontend/rewrites/instantiate.py    one graph per shape and dtype of its calls
      calls            instances                              frontend/rewrites/inline.py         which calls are put in place, which stay programs
      linked           instances, calls                       frontend/rewrites/inline.py         the graphs with these calls put in place
      siblings         linked                                 frontend/rewrites/sibling_products.py  products of one operand as one product
      integers         siblings                               frontend/rewrites/dequantised.py    products of dequantised integers as integer sums
      filters          integers                               frontend/rewrites/folded_scales.py  scales of channels as a part of constant filters
      tiny@imported    filters                                tiny/lower.py                       movement, elementwise, reduce
    tiny               tiny@imported                          tiny/normalize.py                   the same: broadcasts explicit, constant work in `setup`
    indexbook          tiny                                   indexbook/analyse.py                axes, domains, access maps per value
    poly_view          tiny, indexbook                        poly_view/extract.py                contractions, dependences, fusion edges
      partition        tiny, indexbook, poly_view             region/fusion/partition.py          which values share a kernel
      region@explicit  tiny, indexbook, poly_view, partition  region/lower.py                     a Region per kernel: values, each defined once
      canonical        region@explicit                        region/canonicalise.py              the same in normal form: operands read directly
    region             canonical                              plan/block_reduces/block_sums.py    the same; on sm90, reductions begun in products
    poly_core          region, poly_view                      poly_core/analyse.py                facts about each Region
    plan               region, poly_core                      plan/choose.py                      a schedule per Region, a layout per value
      realisation      region, plan                           plan/realise.py                     Regions as plans want them: packed, converted, cut
      realised         realisation                            plan/realise.py                     its programs, with one form of each Region
      added            realised, plan                         poly_core/analyse.py                facts about Regions that realising added
      realised_plan    realisation, plan, added               plan/plan_realised.py               the plan, and schedules for those
    loop               realised, realised_plan, realisation   loop/lower.py                       CPU: loop nests
    gpu                realised, realised_plan                gpu/lower.py                        GPU: tokens, an MMA template
    execution          realised, realised_plan, loop or gpu   execution/lower.py                  instructions, buffers, an arena
    c                  loop, execution                        c/print.py                          CPU: C text
    cu                 gpu, execution                         cu/print.py                         GPU: CUDA C++ text

`compile_stages` is a pure function of (given stages, target, decisions). A step is computed when something needs it; a stage that
is given (a document the user edited) cuts the graph there. Each computed value passes through `observe`, which verifies, times
and dumps it. The target `reference` has two stages: `execution` is made from `frontend` and run in numpy; of documents of later
stages it runs the last one that computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

from tatami.core.module import Module
from tatami.core.target import Target
from tatami.decisions import Decisions
from tatami.stages import Observe, Stages

if TYPE_CHECKING:
    from tatami.loop.ir import Kernel


def compile_stages(
    given: Mapping[str, Module[object]],
    target: Target,
    decisions: Decisions,
    observe: Observe,
    hints: Mapping[str, int] | None = None,
) -> Stages:
    """The chain for `target`, from the stages that are given. `hints`: usual values of size symbols."""
    return Stages(given, observe, lambda s: add_stages(s, target, decisions, hints))


def add_stages(s: Stages, target: Target, decisions: Decisions, hints: Mapping[str, int] | None) -> None:
    """Define the stages of the chain for `target`, from the frontend to the code."""
    from tatami.execution.lower import lower as lower_to_execution
    from tatami.frontend.rewrites.dequantised import multiply_integers
    from tatami.frontend.rewrites.folded_scales import fold_scales
    from tatami.frontend.rewrites.inline import choose_calls, inline_calls
    from tatami.frontend.rewrites.instantiate import instantiate_calls
    from tatami.frontend.rewrites.sibling_products import join_siblings
    from tatami.indexbook.analyse import analyse as analyse_indices
    from tatami.node_names import with_node_names
    from tatami.plan.block_reduces.block_sums import reduce_in_blocks
    from tatami.plan.choose import choose
    from tatami.plan.plan_realised import added_regions, plan_realised
    from tatami.plan.realise import realise
    from tatami.poly_core.analyse import analyse as analyse_regions
    from tatami.poly_view.extract import extract
    from tatami.region.canonicalise import canonicalise
    from tatami.region.fusion.partition import partition
    from tatami.region.lower import lower as lower_to_regions
    from tatami.tiny.lower import lower as lower_to_tiny
    from tatami.tiny.normalize import normalize

    s.add("frontend", lambda: missing("frontend"))
    if target.kind == "reference":
        from tatami.execution.from_graph import from_graph

        if "tiny" in s.given:  # facts of documents, to compare given ones with
            s.add("indexbook", lambda: analyse_indices(s["tiny"]))
            s.add("poly_view", lambda: extract(s["tiny"], s["indexbook"]))
        if "region" in s.given:
            s.add("poly_core", lambda: analyse_regions(s["region"], s.get_made("poly_view")))
        if "frontend" in s.given or "execution" in s.given:
            s.add("execution", lambda: from_graph(s["frontend"]))
        return
    s.add("instances", lambda: instantiate_calls(s["frontend"]))
    s.add("calls", lambda: choose_calls(s["instances"], target, decisions.calls))
    s.add("linked", lambda: inline_calls(s["instances"], s["calls"]))
    s.add("siblings", lambda: join_siblings(s["linked"], target))
    s.add("integers", lambda: multiply_integers(s["siblings"], target))
    s.add("filters", lambda: fold_scales(s["integers"], target))
    s.add("tiny@imported", lambda: lower_to_tiny(s["filters"]))
    s.add("tiny", lambda: normalize(s["tiny@imported"], keeps_narrow=target.kind == "cpu"))
    s.add("indexbook", lambda: analyse_indices(s["tiny"]))
    s.add("poly_view", lambda: extract(s["tiny"], s["indexbook"]))
    s.add("partition", lambda: partition(s["tiny"], s["indexbook"], s["poly_view"], target, decisions.partitions, hints))
    s.add("region@explicit", lambda: lower_to_regions(s["tiny"], s["indexbook"], s["poly_view"], s["partition"]))
    s.add("canonical", lambda: canonicalise(s["region@explicit"]))
    s.add("region", lambda: reduce_in_blocks(s["canonical"], target))
    s.add("poly_core", lambda: analyse_regions(s["region"], s.get_made("poly_view")))
    s.add("plan", lambda: with_node_names(choose(s["region"], s["poly_core"], target, decisions.plans, hints), s, "region"))
    s.add("realisation", lambda: realise(s["region"], s["plan"]))
    s.add("realised", lambda: s["realisation"].module)
    s.add("added", lambda: analyse_regions(added_regions(s["realised"], s["plan"])))
    s.add("realised_plan", lambda: plan_realised(s["realisation"], s["plan"], s["added"], target))
    code = add_cuda if target.kind == "cuda" else add_cpu
    code(s, target)
    s.add(
        "execution",
        lambda: with_node_names(
            lower_to_execution(s["realised"], s["realised_plan"], s["gpu" if target.kind == "cuda" else "loop"]), s, "realised"
        ),
    )


def add_cpu(s: Stages, target: Target) -> None:
    """Define the code stages of a CPU target: loops and C."""
    from tatami.c.print import KernelUnits, print_c
    from tatami.loop.lower import lower as lower_to_loops

    printed = KernelUnits()

    def tell(kernel: Kernel) -> None:
        if s.told is not None:
            s.told(kernel, printed.unit(kernel))

    s.add("loop", lambda: lower_to_loops(s["realised"], s["realised_plan"], target, s["realisation"].variants, tell))
    s.add("c", lambda: print_c(s["loop"], s["execution"], target, printed))


def add_cuda(s: Stages, target: Target) -> None:
    """Define the code stages of a GPU target: GPU kernels and CUDA C++."""
    from tatami.cu.print import print_cu
    from tatami.gpu.lower import lower as lower_to_gpu

    s.add("gpu", lambda: lower_to_gpu(s["realised"], s["realised_plan"], target))
    s.add("cu", lambda: print_cu(s["gpu"], s["execution"], target))


def missing(stage: str) -> NoReturn:
    """Raise UnknownName: the stage is needed and neither given nor derivable."""
    from tatami.core.diagnostic import fail

    raise fail(
        "UnknownName",
        stage,
        f"the documents given do not contain the stage {stage!r}, which is needed here",
        "give the folder of a dump",
    )
