"""Counts of what the kernels of a program do on the emulated GPU: instructions per role of warps, bytes and bank conflicts,
next to the inputs of the simulation by which their plans were chosen (D2.18: measuring stands above the pipeline)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tatami.compilation import Compilation
from tatami.compiled_function import CompiledFunction
from tatami.core.diagnostic import fail
from tatami.core.kernel import is_met
from tatami.emulated.tallies import COPIES, PRODUCTS, Counts, Role, Tally, added, roles, summed, total
from tatami.gpu.ir import Kernel
from tatami.plan.demands import Demands, demands_at
from tatami.plan.gpu.edges import SECTOR
from tatami.region.ir import Region
from tatami.runtime.emulated.program import EmulatedProgram

STORES = ("st.global", "TMA store", "cp.async.bulk store")
"""Instructions that store results to global memory."""
SHARED_READS = ("ldmatrix", "ld.shared", "wgmma.mma_async", "TMA store", "cp.async.bulk store")
"""Instructions that read shared memory."""
SHARED_WRITES = (*COPIES, "st.shared", "stmatrix")
"""Instructions that write shared memory."""
MEMORY = ("shared B", "turns", "conflicts", "global B", "lines", "sectors")
"""Headings of what instructions ask of memory."""


@dataclass
class CountedKernel:
    """The launches of one kernel for one Region, summed. `sizes`: values of size symbols at its last launch. `simulated`: the
    inputs of the simulation of one launch; empty for a kernel that is not simulated."""

    program: str
    region: str
    kernel: str
    sizes: dict[str, int]
    launches: int = 0
    counts: Counts = field(default_factory=dict)
    simulated: Demands = field(default_factory=dict)

    @property
    def roles(self) -> list[Role]:
        """Groups of warps that do the same kinds of instructions."""
        return roles(self.counts)

    @property
    def counted(self) -> Demands:
        """The totals that a simulation models, as counted, per launch."""
        return {unit: n / self.launches for unit, n in demands_of(summed(self.counts.values())).items()}


def demands_of(tallies: Mapping[str, Tally]) -> Demands:
    """The counts of a launch in the words of a simulation's inputs. Loads of an operand that the kernel copies through
    registers (synchronous plans) count as copies; other plain loads are the epilogue's."""
    copies = total(tallies, COPIES)
    loads, stores = total(tallies, ("ld.global",)), total(tallies, ("st.global",))
    synchronous = not copies.instructions
    return {
        "flops of tensor cores": total(tallies, PRODUCTS).flops,
        "bytes copied from L2": loads.global_ if synchronous else copies.global_,
        "bytes written to shared memory": total(tallies, SHARED_WRITES).shared,
        "bytes read from shared memory": total(tallies, SHARED_READS).shared,
        "bytes stored": stores.sectors * SECTOR + total(tallies, STORES[1:]).global_,
        "lines stored": stores.lines,
        "lines read by the epilogue": 0 if synchronous else loads.lines,
        "TMA loads": total(tallies, ("TMA load", "TMA im2col load")).instructions,
    }


def count(function: CompiledFunction, inputs: Mapping[str, np.ndarray]) -> list[CountedKernel]:
    """Run a function once on the emulated GPU and count, in the order of the first launches. Raises TatamiError for another
    target, or a kernel's fault."""
    compilation, program = function.compilation, function.program
    if not isinstance(program, EmulatedProgram):
        target = compilation.target.name
        raise fail("UnknownTarget", target, "only emulated GPUs count", "use target emulated-sm80 or emulated-sm90")
    found: dict[tuple[str, str, str], CountedKernel] = {}

    def take(name: str, step: str, kernel: str, bound: Mapping[str, int], counts: Counts) -> None:
        at = found.setdefault((name, step, kernel), CountedKernel(name, step, kernel, dict(bound)))
        at.launches += 1
        at.counts = added(at.counts, counts)
        at.sizes = dict(bound)

    program.counted = take
    try:
        function(inputs)
    finally:
        program.counted = None
    for at in found.values():
        at.simulated = _simulated(compilation, at)
    return list(found.values())


def _simulated(compilation: Compilation, at: CountedKernel) -> Demands:
    """The inputs of the kernel's simulation at the sizes of its last launch."""
    regions = {r.name: r for r in compilation.stages["region"].programs[at.program].body if isinstance(r, Region)}
    plans = {r.region: r for r in compilation.stages["plan"].programs[at.program].regions}
    of_gpu = compilation.stages["gpu"].programs[at.program]
    products = {k.face.symbol for k in of_gpu.kernels if isinstance(k, Kernel)}
    if at.region not in regions or at.kernel not in products:
        return {}
    choice = next(c for c in plans[at.region].choices if all(is_met(x, at.sizes) for x in c.conditions))
    return demands_at(regions[at.region], choice.plan, compilation.target, at.sizes)


def table(counted: list[CountedKernel]) -> Iterator[tuple[str, ...]]:
    """Rows (kernel, role, instruction, instructions, lanes, flops, bytes of shared memory, turns, conflicts, bytes of global
    memory, lines, sectors), with a heading; a kernel and its roles are named once."""
    yield ("kernel", "role", "instruction", "issued", "lanes", "flops", *MEMORY)
    for k in counted:
        name = k.region if k.launches == 1 else f"{k.region} x{k.launches}"
        for role in k.roles:
            who = f"{role.name}, warps {_ranges(role.warps)}"
            for what, t in sorted(role.tallies.items()):
                numbers = (t.instructions, t.lanes, t.flops, t.shared, t.turns, t.conflicts, t.global_, t.lines, t.sectors)
                yield (name, who, what, *(str(n) if n else "" for n in numbers))
                name = who = ""


def comparison(counted: list[CountedKernel]) -> Iterator[tuple[str, ...]]:
    """Rows (kernel, input of the simulation, counted, simulated, counted over simulated), with a heading."""
    yield ("kernel", "input of the simulation", "counted", "simulated", "ratio")
    for k in counted:
        name, own = k.region, k.counted
        for unit, simulated in k.simulated.items():
            ratio = f"{own[unit] / simulated:.3f}" if simulated else "" if not own[unit] else "inf"
            yield (name, unit, f"{own[unit]:.0f}", f"{simulated:.0f}", ratio)
            name = ""


def _ranges(numbers: tuple[int, ...]) -> str:
    """0-3, 8: runs of neighbours."""
    out: list[list[int]] = []
    for n in numbers:
        if out and n == out[-1][1] + 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in out)
