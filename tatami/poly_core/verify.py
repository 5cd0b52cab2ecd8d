"""Check that facts agree with their Regions: they are computed again and compared."""

from __future__ import annotations

from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.module import Module
from tatami.poly_core.analyse import facts_of, pair_dependences
from tatami.poly_core.ir import PolyCore
from tatami.region.ir import Program, Region


def verify(poly_core: Module[PolyCore], region: Module[Program]) -> list[Diagnostic]:
    """A fault for each fact that its Region does not have."""
    out: list[Diagnostic] = []
    for name, program in region.programs.items():
        core = poly_core.programs.get(name)
        if core is None:
            out.append(diagnostic("InvalidDocument", name, "the program has no facts", "analyse the Regions again"))
            continue
        stored = {f.region: f for f in core.regions}
        for item in program.body:
            if not isinstance(item, Region):
                continue
            if item.name not in stored:
                out.append(diagnostic("InvalidDocument", f"{name}: {item.name}", "the Region has no facts", "analyse it again"))
                continue
            have, want = stored[item.name], facts_of(item)
            for field in have.__struct_fields__:
                if getattr(have, field) != getattr(want, field):
                    why = f"{field} is {_short(getattr(have, field))}, the Region has {_short(getattr(want, field))}"
                    out.append(diagnostic("InvalidDocument", f"{name}: {item.name}", why, "analyse the Regions again"))
        if set(core.dependences) != set(pair_dependences(program)):
            out.append(
                diagnostic("InvalidDocument", name, "the dependences are not those of the Regions", "analyse them again")
            )
    return out


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) < 120 else text[:117] + "..."
