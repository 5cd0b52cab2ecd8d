"""A custom kernel with a CUDA body: a thread per element of its first result (docs/custom_kernels.md)."""

from __future__ import annotations

from tatami.core.diagnostic import fail
from tatami.core.expr import ONE, ceildiv, free_vars, product, substitute, var
from tatami.core.kernel import Binding
from tatami.core.kernel_body import Ranks, bound_text, counters_in
from tatami.gpu.ir import NO_FACE, BodyKernel, SizeName
from tatami.gpu.stream_ir import Param
from tatami.region.ir import Param as Port
from tatami.region.ir import Region, Target
from tatami.region.walk import routine_operands

THREADS = 256


def lower_body(region: Region) -> tuple[BodyKernel, Binding]:
    """The kernel of an opaque Region and its binding, without the kernel's name. Raises UnsupportedModel without a
    CUDA body, InvalidPlan for a routine that has no CUDA text."""
    assert region.opaque is not None
    attrs = region.opaque.attrs
    if region.opaque.routine != "custom":
        raise fail("InvalidPlan", region.name, f"routine {region.opaque.routine} has no CUDA text", "compile for the CPU")
    cuda = attrs.get("cuda")
    if not isinstance(cuda, str):
        raise fail(
            "UnsupportedModel",
            region.name,
            "this custom kernel has no CUDA body, and the target is a GPU",
            "give g.kernel_body(…, cuda=…) what one thread does for one element of output0, or compile for the CPU",
        )
    inputs = {p.name: p for p in region.inputs}
    operands: list[Port | Target] = [inputs[name] for name in routine_operands(region)]
    ports = [*operands, *region.outputs]
    shapes = [p.memref.shape for p in ports]
    ranks = Ranks(tuple(map(len, shapes[: len(operands)])), tuple(map(len, shapes[len(operands) :])))
    names = [f"tatami_in{k}" for k in range(len(operands))] + [f"tatami_out{k}" for k in range(len(region.outputs))]
    symbols = sorted({s for shape in shapes for size in shape for s in free_vars(size)})
    own = {s: var(f"s{k}") for k, s in enumerate(symbols)}
    text = bound_text(cuda, ranks, "the CUDA body of a custom kernel")
    points = shapes[len(operands)]
    kernel = BodyKernel(
        face=NO_FACE,
        params=tuple(Param(n, p.memref.dtype, k >= len(operands)) for k, (n, p) in enumerate(zip(names, ports, strict=True))),
        sizes=tuple(
            SizeName(f"{n}_n{axis}", substitute(size, own))
            for n, shape in zip(names, shapes, strict=True)
            for axis, size in enumerate(shape)
        ),
        points=tuple(substitute(size, own) for size in points),
        counters=tuple(f"tatami_i{k}" for k in counters_in(text, ranks) if k >= len(points)),
        text=text,
        preamble=str(attrs.get("cuda_preamble", "")),
        threads=THREADS,
    )
    binding = Binding(
        region.name,
        "",
        tuple(p.name for p in ports),
        tuple(var(s) for s in symbols),
        grid=(ceildiv(product(points), THREADS), ONE, ONE),
        block=(THREADS,),
    )
    return kernel, binding
