"""gpu -> CUDA text (spec 5 §7). Hardware is touched only through `header/tatami_ptx.cuh`."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, assert_never

from tatami.core.custom.verbatim import VerbatimCode
from tatami.core.module import Module
from tatami.core.target import Target
from tatami.cu.expr_text import SHORT
from tatami.cu.ir import Source, Unit
from tatami.cu.products.kernel import kernel_text
from tatami.cu.products.wgmma import KIND, Form, wgmma_function
from tatami.cu.streaming.custom_body import body_text
from tatami.cu.streaming.sort import sort_text
from tatami.cu.streaming.stream import stream_text
from tatami.execution.ir import launched_kernels
from tatami.execution.views.kernel_labels import kernel_labels
from tatami.gpu.ir import AnyKernel, BodyKernel, Kernel, Program
from tatami.gpu.stream_ir import SortKernel, StreamKernel

HEADERS = ("tatami_ptx.cuh", "tatami_math.cuh")
"""Headers that every kernel may include."""
TEMPLATE_HEADERS = {StreamKernel: "tatami_stream.cuh", SortKernel: "tatami_sort.cuh"}
"""Kind of kernel -> header of its template."""


def print_cu(gpu: Module[Program], execution: Module[Any], target: Target) -> Module[Source]:
    """One Source for all programs of the module: every launched kernel is one unit, in the order of symbols."""
    launched = launched_kernels(execution)
    kernels = {k.face.symbol: k for program in gpu.programs.values() for k in program.kernels if k.face.symbol in launched}
    ordered = [k for _, k in sorted(kernels.items(), key=lambda x: (len(x[0]), x[0]))]
    labels = {symbol: label for symbol, label in kernel_labels(execution).items() if symbol in kernels}
    source = Source(tuple(print_unit(k, target) for k in ordered), headers(tuple(ordered)), labels=labels)
    return Module({"main": source})


def print_unit(kernel: AnyKernel, target: Target) -> Unit:
    """The unit of one kernel, for the target's architecture."""
    text = kernel_text(kernel) if isinstance(kernel, Kernel) else _plain_text(kernel)
    contracts = isinstance(kernel, BodyKernel) or (isinstance(kernel, Kernel) and kernel.template in ("mma", "pair"))
    return Unit(kernel.face.symbol, target.arch, VerbatimCode(text), contracts)


def _plain_text(kernel: StreamKernel | SortKernel | BodyKernel) -> str:
    match kernel:
        case StreamKernel():
            return stream_text(kernel)
        case SortKernel():
            return sort_text(kernel)
        case BodyKernel():
            return body_text(kernel)
        case _:
            assert_never(kernel)


def headers(kernels: tuple[AnyKernel, ...]) -> dict[str, VerbatimCode]:
    """Name -> text, for the headers that these kernels include; the PTX header ends with the wgmma shapes that they use."""
    folder = files("tatami.cu") / "header"
    more = [header for kind, header in TEMPLATE_HEADERS.items() if any(isinstance(k, kind) for k in kernels)]
    out = {name: (folder / name).read_text() for name in (*HEADERS, *more)}
    shapes = sorted({x for k in kernels if isinstance(k, Kernel) and k.has_roles for x in _products(k)})
    if shapes:
        functions = "\n".join(wgmma_function(d, n, form) for d, n, form in shapes)
        out[HEADERS[0]] += f"\n#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900\n{functions}#endif\n"
    return {name: VerbatimCode(text) for name, text in out.items()}


def _products(k: Kernel) -> list[tuple[str, int, Form]]:
    """(type, columns, form) of the wgmma instructions of a kernel."""
    dtype = KIND[k.b.dtype]
    _, bn, bk = k.tile
    if dtype not in SHORT.values():
        return [(dtype, bn, "narrow")]
    return [(dtype, bn, "shared")] if k.weights is None else [(dtype, bk, "shared"), (dtype, bn, "registers")]
