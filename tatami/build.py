"""The callable of a compilation: its program compiled, found or read, and loaded for the target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from tatami.compilation import Compilation, StoredProgram
from tatami.compiled_function import CompiledFunction
from tatami.core.collector import without_collector
from tatami.core.custom.verbatim import KernelCode
from tatami.observer import explained
from tatami.stages import UP_TO_REGION, runner

if TYPE_CHECKING:
    from tatami.c.ir import Unit as CUnit
    from tatami.gpu.ir import AnyKernel
    from tatami.loop.ir import Kernel
    from tatami.runtime.building.objects import Unit
    from tatami.runtime.building.user_text import UserText
    from tatami.runtime.cpu.program import CpuProgram
    from tatami.runtime.cuda.program import CudaProgram
    from tatami.runtime.emulated.program import EmulatedProgram


def build(compilation: Compilation, threads: int | None = None, sizes: Mapping[str, int] | None = None) -> CompiledFunction:
    """The callable of a prepared compilation. `sizes`: values of symbols that no input decides. Raises TatamiError."""
    target = compilation.target
    if target.kind == "reference":
        from tatami.runtime.reference_program import ReferenceProgram, StageProgram

        with explained("execution", compilation.observer.from_document):
            stage = compilation.meaning
            if stage is None:
                execution = compilation.stages["execution"]
                return CompiledFunction(compilation, execution, ReferenceProgram(execution), sizes)
            run = runner(stage)
            assert run is not None
            meaning = StageProgram(compilation.stages[stage], run)
            return CompiledFunction(compilation, meaning.execution, meaning, sizes)
    if target.emulated:
        with explained("execution", compilation.observer.from_document):
            emulated = load_emulated_program(compilation)
            return CompiledFunction(compilation, emulated.execution, emulated, sizes)
    if target.kind == "cuda":
        with explained("execution", compilation.observer.from_document):
            on_device = load_cuda_program(compilation)
            return CompiledFunction(compilation, on_device.execution, on_device, sizes)
    from tatami.runtime.machine.host import check_runs_here

    check_runs_here(target)
    with without_collector():
        program = find_program(compilation)
    with explained("execution", compilation.observer.from_document):
        return CompiledFunction(compilation, program.execution, load_stored(compilation, program, threads), sizes)


def find_program(compilation: Compilation) -> StoredProgram:
    """The compiled program: as it was saved, else from the cache, else compiled and added to the cache. If several processes
    need the same program at once, one compiles it."""
    from tatami.storage import program_cache

    if compilation.program is None:
        compilation.program = program_cache.find(compilation)
    if compilation.program is None:
        with program_cache.one_maker_of(compilation):
            compilation.program = program_cache.find(compilation)
            if compilation.program is None:
                compilation.program = make_program(compilation)
                program_cache.keep(compilation, compilation.program)
    return compilation.program


def make_program(compilation: Compilation, timed: bool = False) -> StoredProgram:
    """The program, compiled through all stages and the C compiler, which compiles kernels while others are lowered. timed: its
    entry measures the time of each kernel."""
    from tatami.runtime.building.apart import Apart, apart
    from tatami.runtime.building.compiler import find_compiler, is_quick_build
    from tatami.runtime.building.objects import Units, build_keyed, program_units
    from tatami.runtime.building.sanitizer import sanitizer_flags
    from tatami.runtime.cpu.pool import runtime_body
    from tatami.runtime.cpu.short_call import made_beside

    stages, made = compilation.stages, Units()

    def early(kernel: Kernel, unit: CUnit) -> None:
        if kernel.user is None:
            made.early(_kernel_unit(unit))

    def printed() -> None:
        if not is_quick_build():  # a quick build saves processor time: it compiles all kernels at once
            stages.told = early
            for unit in program_units():
                made.early(unit)
        try:
            made.complete([*program_text(compilation, timed), *program_units()])
        finally:
            stages.told = None

    with explained("execution", compilation.observer.from_document):
        extra = sanitizer_flags(find_compiler())
        told = compilation.observer.progress
        progress = None if told is None else partial(told, "kernels")

        def built(seen: Apart) -> tuple[bytes, str]:
            with made_beside(seen.stop, runtime_body):
                return build_keyed(made, compilation.target, extra_flags=extra, progress=progress)

        library, key = apart(built, printed)
    return StoredProgram(stages["execution"], library, key, tuple(compilation.program_warnings()))


def _kernel_unit(unit: CUnit) -> Unit:
    """The unit of a kernel that no user wrote a part of, as it is compiled."""
    from tatami.runtime.building.objects import Unit

    return Unit(unit.text, unit.contract, unit.light, kernel=True)


def program_text(compilation: Compilation, timed: bool = False) -> list[Unit]:
    """The units of the program's kernels, the routines that they call, and its entry, in order."""
    from tatami.execution.ir import launched_kernels
    from tatami.runtime.building.compiler import is_quick_build
    from tatami.runtime.building.objects import Unit
    from tatami.runtime.building.user_text import UserText

    execution, source = compilation.stages["execution"], compilation.stages["c"].main
    entry = source.entry
    if timed:
        from tatami.c.print_entry import print_entry

        entry = print_entry(execution, timed=True)
    users, kernels = _user_texts(compilation), {f"{symbol}.c" for symbol in launched_kernels(execution)}
    is_given = "c" in compilation.stages.given  # text that may define names that no printer uses
    units = []
    for f, u in source.units.items():
        if f in kernels and not u.user and not is_given:
            units.append(_kernel_unit(u))
        else:
            user = users.get(f) or UserText("custom kernel") if u.user else None
            units.append(Unit(u.text, u.contract, u.light, user))
    joins = is_quick_build() and not is_given  # else an entry that changes would have kernels compiled again
    return [*units, Unit(entry, light=True, stays=is_given, kernel=joins)]


def load_stored(compilation: Compilation, program: StoredProgram, threads: int | None = None) -> CpuProgram:
    """The program loaded into this process."""
    from tatami.runtime.building.sanitizer import is_asked_for
    from tatami.runtime.cores import thread_count
    from tatami.runtime.cpu.pool import get_pool, load_program
    from tatami.runtime.cpu.program import CpuProgram
    from tatami.runtime.machine.host import WORTH_A_TRIM, trim_heap

    library = load_program(program.library, program.runtime, keep=is_asked_for())
    loaded = CpuProgram(program.execution, library, get_pool(threads), thread_count(threads), where=where(compilation))
    if loaded.constant_bytes >= WORTH_A_TRIM:
        trim_heap()
    return loaded


def load_cpu_program(compilation: Compilation, threads: int | None = None, timed: bool = False) -> CpuProgram:
    """The compiled and loaded program of a CPU target. timed: its entry measures the time of each kernel."""
    from tatami.runtime.machine.host import check_runs_here

    check_runs_here(compilation.target)
    return load_stored(compilation, make_program(compilation, timed), threads)


def load_emulated_program(compilation: Compilation) -> EmulatedProgram:
    """The kernels of a GPU target, compiled as C++ for the emulated machine and loaded."""
    from tatami.gpu.ir import BodyKernel
    from tatami.runtime.emulated.machine import build_machine
    from tatami.runtime.emulated.program import EmulatedProgram

    execution = compilation.stages["execution"]
    source = compilation.stages["cu"].main
    kernels = {k.face.symbol: k for program in compilation.stages["gpu"].programs.values() for k in program.kernels}
    stays = "cu" in compilation.stages.given or any(isinstance(k, BodyKernel) for k in kernels.values())
    machine = build_machine(source.units, source.headers, compilation.target, stays=stays)
    faces = {symbol: k.face for symbol, k in kernels.items()}

    def behind(kernel: str, line: int) -> dict[str, str]:
        return behind_line(kernels[kernel], line)

    return EmulatedProgram(execution, machine, faces, compilation.target, where(compilation), behind)


def behind_line(kernel: AnyKernel, line: int) -> dict[str, str]:
    """Origin of a line of a kernel's text: the GPU `statement` that it was printed for, and the fields of the `plan` that
    decide it. Empty for a line of the frame, or of a kernel without statements."""
    from tatami.cu.products.kernel import statement_at
    from tatami.gpu.ir import Kernel
    from tatami.gpu.plan_fields import plan_fields
    from tatami.gpu.show import statement_text

    found = statement_at(kernel, line) if isinstance(kernel, Kernel) else None
    return {} if found is None else {"statement": statement_text(found), "plan": plan_fields(found)}


def load_cuda_program(compilation: Compilation) -> CudaProgram:
    """The kernels of a GPU target, loaded on the device that the target names: "cuda", "cuda:1", "cuda:sm80"."""
    from tatami.runtime.cuda.cubins import compile_units
    from tatami.runtime.cuda.device import device_of
    from tatami.runtime.cuda.program import CudaProgram

    device = device_of(compilation.target)
    execution = compilation.stages["execution"]
    source = compilation.stages["cu"].main
    cubins = compile_units(source.units, source.headers, device.arch)
    return CudaProgram(execution, cubins, device, where(compilation))


def _user_texts(compilation: Compilation) -> dict[str, UserText]:
    """Unit -> the node and the text of a body that a user wrote."""
    from tatami.runtime.building.user_text import UserText

    loop, realised = compilation.stages.get_made("loop"), compilation.stages.get_made("realised")
    out: dict[str, UserText] = {}
    if loop is None or realised is None:
        return out
    named = where(compilation)
    for name, program in loop.programs.items():
        opaque = {r.name: r.opaque for r in realised.programs[name].body if getattr(r, "opaque", None) is not None}
        for b in program.bindings:
            user = program.kernels[b.kernel].user
            if user is not None and b.region in opaque:
                code = opaque[b.region].code or KernelCode()
                text = UserText(named(name, b.region), code.c or "", code.preamble)
                out.setdefault(f"{user.name}.c", text)
    return out


def where(compilation: Compilation) -> Callable[[str, str], str]:
    """A function from (program, Region or step) to the nodes of the model that it computes, for faults at run time."""

    def named(program: str, name: str) -> str:
        from tatami.report.explain import trace

        stages = compilation.stages
        regions = stages["region"] if compilation.first in UP_TO_REGION else stages.get_made("region")
        body = regions.programs[program].body if regions is not None and program in regions.programs else ()
        item = next((i for i in body if i.name == name), None)
        sources = trace(compilation, program, item) if item is not None else ()
        return f"{name} ({', '.join(sources)})" if sources else name

    return named
