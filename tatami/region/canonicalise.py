"""From region@explicit to region: movement goes into reads, reduces into single form, epilogues after them (C-CON1, SRNF
R0-R4).

acc [m, n] = sum over k of A[m, k] * B[k, n]
c1  [m, n] = acc + bias[n]
c2  [m, n] = relu(c1)                            C <- c2 as fp16
"""

from __future__ import annotations

from functools import partial

import msgspec

from tatami.core.algebra.assumed import NOTHING, Assumed
from tatami.core.module import Module, Origins
from tatami.region.form.keep_inside import keep_inside
from tatami.region.ir import Program, Region
from tatami.region.rules import RULES
from tatami.region.views.alike import PART, OncePerForm, region_in_names


def canonicalise(module: Module[Program]) -> Module[Program]:
    """Every Region in canonical form. A let keeps its origins; a let that a rule made has those of the let it came from."""
    programs = {}
    origins: dict[str, Origins] = {}
    for name, program in module.programs.items():
        made = OncePerForm(partial(canonical_region, assumed=Assumed(program.signature.assumptions)), region_in_names)
        body = tuple(made(item) if isinstance(item, Region) else item for item in program.body)
        programs[name] = msgspec.structs.replace(program, body=body)
        known = module.origins.get(name, {})
        origins[name] = _origins(body, known)
    return Module(programs, module.constants, origins)


def canonical_region(region: Region, assumed: Assumed = NOTHING) -> Region:
    """`region` after all rules, in order. `assumed`: the equations of its program."""
    if region.opaque is not None:
        return region
    for rule in RULES:
        region = rule(region)
    return keep_inside(region, assumed)


def _origins(body: tuple[object, ...], known: Origins) -> dict[str, tuple[str, ...]]:
    out: dict[str, tuple[str, ...]] = {}
    for item in body:
        name = getattr(item, "name", "")
        out[name] = known.get(name, ())
        if isinstance(item, Region):
            for let in item.lets:
                out[let.name] = known.get(let.name) or known.get(let.name.removesuffix(PART), ())
    return out
