"""A kernel with a CUDA body, either a user's own (docs/custom_kernels.md) or that of tree ensembles: a thread per element of
its first result."""

from __future__ import annotations

import re

from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.custom.kernel_body import Ranks, bound_text, counters_in
from tatami.core.custom.verbatim import KernelCode, VerbatimCode
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ceildiv, product, var
from tatami.core.kernel import Binding
from tatami.gpu.ir import NO_FACE, BodyKernel, SizeName
from tatami.gpu.stream_ir import Param
from tatami.region.ir import Param as Port
from tatami.region.ir import Region, Target
from tatami.region.walk import routine_operands

THREADS = 256
"""Number of threads per block."""


_TREES = """
REAL y = START;
for (tt_i64 t = 0; t < input2_shape0; ++t) {
  const int* n;
  int at = input2[t], to = at;
  do {
    REAL split, v;
    at = to;
    n = input1 + at * input1_shape1;
    memcpy(&split, n, sizeof(REAL));
    v = input0[ridx0 * input0_shape1 + n[WORD] / 2];
    to = n[WORD + 1 + ((n[WORD] % 2 ? -v : v) <= split)];
  } while (to != at);
  const tt_i64 column = ridx1 - input3[n[0]];
  if (column >= 0 && column < input4_shape1) {
    const REAL given = input4[n[0] * input4_shape1 + column];
    y = COMBINE;
  }
}
output[ridx0 * shape1 + ridx1] = y;
"""
"""One output of one row: all trees in order (core/numbers/trees.py), by the types of the CUDA headers: NVRTC has no
`stdint.h`. Words in capitals are filled in."""
_INFINITE = "tt_bits_to_f32(0x7f800000u)"
_COMBINE = {
    0: ("0", "y + given"),
    1: (_INFINITE, "given < y ? given : y"),
    2: (f"-{_INFINITE}", "given > y ? given : y"),
}


def tree_text(region: Region) -> VerbatimCode:
    """The body of a tree ensemble, for its dtype and its way of combining leaves."""
    assert region.opaque is not None
    is_double = region.outputs[0].memref.dtype == DType.fp64
    start, combine = _COMBINE[int(str(region.opaque.attrs.get("how", 0)))]
    words = {"REAL": "double" if is_double else "float", "WORD": "2" if is_double else "1", "START": start, "COMBINE": combine}
    return VerbatimCode(re.sub("|".join(words), lambda found: words[found[0]], _TREES))


def lower_body(region: Region) -> tuple[BodyKernel, Binding]:
    """The kernel of an opaque Region and its binding, without the kernel's name. Raises UnsupportedModel for a custom kernel
    without a CUDA body, InvalidPlan for a routine without CUDA text."""
    assert region.opaque is not None
    code = region.opaque.code
    if region.opaque.routine == "tree_ensemble":
        code = KernelCode(cuda=tree_text(region))
    if code is None:
        raise fail("InvalidPlan", region.name, f"routine {region.opaque.routine} has no CUDA text", "compile for the CPU")
    if code.cuda is None:
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
    text = bound_text(code.cuda, ranks, "the CUDA body of a custom kernel")
    points = shapes[len(operands)]
    kernel = BodyKernel(
        face=NO_FACE,
        params=tuple(
            Param(n, p.memref.dtype, k >= len(operands), p.memref.noalias)
            for k, (n, p) in enumerate(zip(names, ports, strict=True))
        ),
        sizes=tuple(
            SizeName(f"{n}_n{axis}", substitute(size, own))
            for n, shape in zip(names, shapes, strict=True)
            for axis, size in enumerate(shape)
        ),
        points=tuple(substitute(size, own) for size in points),
        counters=tuple(f"tatami_i{k}" for k in counters_in(text, ranks) if k >= len(points)),
        text=text,
        preamble=code.cuda_preamble,
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
