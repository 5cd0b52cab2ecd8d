"""Results that loops can store past the caches (`loop/passes/nontemporal.py`): whole vectors of fp32 that begin at places of vectors."""

from __future__ import annotations

from tatami.core.algebra.visit import free_vars, step_of
from tatami.core.dtype import DType
from tatami.core.expr import ONE, var
from tatami.core.layout import address
from tatami.plan.ir import LoopPhase
from tatami.plan.views.nest_form import NestForm


def goes_past(form: NestForm, phases: tuple[LoopPhase, ...], output: str) -> bool:
    """True if some pass stores to `output` so, in loops that threads share."""
    vectors = {
        n: p.vector for phase in phases if phase.threads or _is_scanned(form, phase) for p in phase.passes for n in p.lets
    }
    memref = form.memrefs[output]
    if memref.dtype != DType.fp32:
        return False
    for source, yields in form.yields.items():
        vector = vectors.get(source, "")
        lanes = form.width(vector) if vector else 1
        for y in yields:
            if y.to != output or lanes not in (4, 8, 16):
                continue
            entries = y.map if y.map is not None else tuple(var(a) for a in form.lets[source].axes)
            linear = address(memref.layout, memref.shape, tuple(e for e in entries if e is not None))
            rest = [(mono, coef) for mono, coef in linear.terms if vector not in free_vars(type(linear)(((mono, coef),)))]
            if step_of(linear, vector) == ONE and all(coef % lanes == 0 for _, coef in rest):
                return True
    return False


def _is_scanned(form: NestForm, phase: LoopPhase) -> bool:
    """True if the phase is a lone scan, whose blocks threads may share."""
    return not phase.outer and any(form.lets[n].kind == "scan" for p in phase.passes for n in p.lets)
