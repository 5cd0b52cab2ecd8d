"""Programs whose kernels are run statement by statement, against the meaning of their Regions."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import pytest

from tatami.api import prepare
from tatami.core.expr import ONE, expr
from tatami.core.module import Module
from tatami.loop import ir
from tatami.region.ir import Program
from tatami.report.playback import compare_outputs
from tatami.stages import Stages
from tests.fuzz.edits.document_programs import EDITED, TARGET, array, bound
from tests.fuzz.programs import PROGRAMS
from tests.loop.meaning.program import Undetermined, run_program
from tests.loop.meaning.values import NoMeaning

WHOLE = ("row_softmax", "scattered_rows", "branches_loops_calls", "views_of_open_sizes", "host_and_state")
"""Programs none of whose kernels calls a routine."""


def all_edited(loops: Module[ir.Program], body: Mapping[str, tuple[ir.Stmt, ...]] | None = None) -> Module[ir.Program]:
    """The kernels as edited ones are marked: with sizes of their buffers. `body`: other statements, by symbol."""
    programs = {
        name: msgspec.structs.replace(
            p,
            kernels={
                s: msgspec.structs.replace(k, extents=(ONE,), body=(body or {}).get(s, k.body)) for s, k in p.kernels.items()
            },
        )
        for name, p in loops.programs.items()
    }
    return Module(programs, loops.constants, {})


def made(name: str) -> tuple[Stages, Module[Program], dict[str, np.ndarray], dict[str, int]]:
    compilation = prepare(PROGRAMS[name](), target=TARGET)
    stages = compilation.stages
    ports = stages["region"].main.signature.inputs
    names = {n for p in ports for s in p.shape for n in (s.as_name(),) if n}
    sizes = {n: bound(n, 0) for n in sorted(names)}
    shapes = {p.tensor: tuple(s.as_int() or sizes[s.as_name() or ""] for s in p.shape) for p in ports}
    arrays = {p.tensor: array(p.dtype, shapes[p.tensor], 7 * k) for k, p in enumerate(ports)}
    return stages, stages["realised"], arrays, sizes


@pytest.mark.parametrize("name", WHOLE)
def test_a_program_of_loops_means_what_its_regions_mean(name: str) -> None:
    stages, realised, arrays, sizes = made(name)
    got = run_program(realised, all_edited(stages["loop"]), arrays, sizes)
    wanted = prepare(PROGRAMS[name](), target=TARGET).reference_run(arrays, sizes)
    agreements = compare_outputs(stages["region"].main.signature, got, wanted)
    assert agreements and all(a.difference is None for a in agreements)


def test_the_other_programs_call_routines() -> None:
    for name in sorted(set(EDITED) - set(WHOLE) - {"trees_of_decisions"}):
        stages, realised, arrays, sizes = made(name)
        with pytest.raises(NoMeaning):
            run_program(realised, all_edited(stages["loop"]), arrays, sizes)


def test_memory_that_nothing_wrote_and_the_order_of_threads_are_no_meaning() -> None:
    stages, realised, arrays, sizes = made("row_softmax")
    (kernel,) = stages["loop"].main.kernels.values()
    last = kernel.params[-1]
    race = ir.Parallel("z", expr(9), ONE, (ir.Store(last.name, expr(0), ir.IndexOf(expr("z"), last.dtype)),))
    unread = ir.LocalBuffer("b9", last.dtype, ONE)
    for stmts in ((race,), (unread, ir.Store(last.name, expr(0), ir.Load("b9", expr(0), last.dtype))), ()):
        body = {kernel.face.symbol: (*kernel.body, *stmts) if stmts else ()}
        with pytest.raises(Undetermined):
            run_program(realised, all_edited(stages["loop"], body), arrays, sizes)
