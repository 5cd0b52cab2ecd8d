"""Comparison of an execution plan's launches with the kernels: a wrong number of arguments would be read as memory."""

from __future__ import annotations

from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.kernel import KernelFace
from tatami.core.module import Module
from tatami.execution.ir import BufferInfo, ExecutionPlan, Launch, Ptr, SizeArg, launches
from tatami.loop.ir import Kernel, Program


def check_launches(loop: Module[Program], execution: Module[ExecutionPlan]) -> list[Diagnostic]:
    """A fault for each launch that names no kernel, or whose arguments differ from the kernel's face."""
    kernels = {s: k for p in loop.programs.values() for s, k in p.kernels.items()}
    return [
        found
        for name, plan in execution.programs.items()
        for i, ins in enumerate(plan.instructions)
        for launch in launches(ins.op)
        if (found := _check(f"{name}: {ins.debug_name or f'instruction {i}'}", plan, launch, kernels)) is not None
    ]


def _check(at: str, plan: ExecutionPlan, launch: Launch, kernels: dict[str, Kernel]) -> Diagnostic | None:
    kernel = kernels.get(launch.kernel)
    if kernel is None:
        return diagnostic("UnknownName", at, f"there is no kernel {launch.kernel!r}", "launch a kernel of the loop stage")
    face = kernel.face
    buffers = {b.id: b for b in plan.buffers}
    given = [buffers[a.buffer].dtype for a in launch.args if isinstance(a, Ptr)]
    sizes = sum(isinstance(a, SizeArg) for a in launch.args)
    wanted = [p.dtype for p in face.params]
    with_workspace = (0, 1)
    if given[: len(wanted)] == wanted and len(given) - len(wanted) in with_workspace and sizes == face.sizes:
        pointers = [buffers[a.buffer] for a in launch.args if isinstance(a, Ptr)]
        return _shared(at, pointers, face) or _misplaced(at, plan, pointers, kernel)
    return diagnostic(
        "InvalidExecution", at,
        f"{launch.kernel} takes {len(wanted)} buffers ({', '.join(map(str, wanted))}) and {face.sizes} sizes; "
        f"the launch passes {len(given)} ({', '.join(map(str, given))}) and {sizes}",
        "pass what the kernel's face in the loop stage lists, in order",
    )  # fmt: skip


def _misplaced(at: str, plan: ExecutionPlan, given: list[BufferInfo], kernel: Kernel) -> Diagnostic | None:
    """The fault of a buffer that need not lie at a multiple of the bytes that its parameter promises to the C compiler."""
    ports = zip(plan.input_buffers, plan.signature.inputs)
    promised = {id: port.alignment for id, port in ports if port.alignment and port.storage != "const_pool"}
    for param, buffer in zip(kernel.params, given):
        if param.alignment and (param.alignment < 1 or promised.get(buffer.id, 1) % param.alignment):
            why = f"{kernel.face.symbol} reads {param.name} at multiples of {param.alignment} bytes, which nothing says of {buffer.id}"
            return diagnostic("LayoutMismatch", at, why, "write alignment 0, or the one of the input in the signature")
    return None


def _shared(at: str, given: list[BufferInfo], face: KernelFace) -> Diagnostic | None:
    """The fault of a buffer in the place of another of the same launch, unless the kernel allows it."""
    for o, new in enumerate(given):
        for i, old in enumerate(given):
            if new.in_place_of == old.id and (i, o) not in face.in_place:
                why = f"{new.id} takes the place of {old.id}, which {face.symbol} may still read when it writes {new.id}"
                return diagnostic("InvalidExecution", at, why, "leave `in_place_of` out, and the offsets to be planned")
    return None
