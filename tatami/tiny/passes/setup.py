"""Constant work moves out of main into the program `setup`, which runs once at load, or once for the held inputs it reads
(design §3 plan; design §3 tiny; decision 0015).

    main: y = x @ (w * s), w and s constants   ->   setup: const0 = w * s;   main: y = x @ const0

A value is constant if it depends only on const_pool inputs with a payload, held inputs, CONST, and IOTA of known size. The cut
is at computed values. Movement of a constant stays in main, where it costs nothing, unless a called program takes it, which
reads memory. Rounding to tf32 and the widening of integers stay too: they tell a product how it may be multiplied. Work
without a payload (a mask from IOTA) moves only if it is expensive.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tatami.core.expr import Shape
from tatami.core.module import Module
from tatami.core.ops import OPS, ScalarOp
from tatami.core.signature import Input, Output, Signature, is_constant
from tatami.core.tensor import Tensor
from tatami.tiny import ir
from tatami.tiny.passes.tidy import tidy
from tatami.tiny.views.narrow_factors import codes_of_factors, is_widening, multiplied

GROWTH = 4
"""Maximum ratio of a constant's elements to those of its sources; a larger constant stays in main."""


def split_setup(module: Module[ir.Program], keeps_narrow: bool = False) -> Module[ir.Program]:
    """`module` with the constant computed values of main in `setup`; unchanged if there are none. `keeps_narrow`: the widening
    of 8-bit integers, fp16 and bf16 to fp32 stays in main if a product reads it, where the micro-kernels of a CPU do it in registers."""
    main = module.main
    by_id = {n.id: n for n in main.nodes}
    constant = constant_values(module.constants, main)
    cut = computed_constants(main, constant, keeps_narrow)
    if not cut:
        return module
    taken = {p.tensor for p in main.signature.inputs} | {p.tensor for p in main.signature.outputs}
    names: dict[str, str] = {}
    for ident in cut:
        number = len(names)
        while f"const{number}" in taken:
            number += len(cut)
        names[ident] = f"const{number}"
        taken.add(names[ident])
    setup_outputs = tuple(Output(names[i], by_id[i].dtype, by_id[i].shape) for i in cut)
    setup_nodes = tuple(n for n in main.nodes if n.id in constant)
    used = {n.op.tensor_id for n in setup_nodes if isinstance(n.op, ir.InputOp)}
    setup_inputs = tuple(p for p in main.signature.inputs if p.tensor in used)
    identity = {n.id: (n.id,) for n in main.nodes}
    setup, setup_origins = tidy(
        ir.Program(Signature(setup_inputs, setup_outputs), setup_nodes, tuple(cut)), identity, module.constants
    )

    ports = tuple(Input(o.tensor, o.dtype, o.shape, role="const", storage="const_pool") for o in setup_outputs)
    signature = msgspec.structs.replace(main.signature, inputs=(*main.signature.inputs, *ports))
    nodes = tuple(ir.Node(n.id, ir.InputOp(names[n.id]), (), n.dtype, n.shape) if n.id in names else n for n in main.nodes)
    rest, main_origins = tidy(ir.Program(signature, nodes, main.outputs), identity, module.constants)

    before = module.origins.get("main", {})
    origins = {
        **module.origins,
        "main": {k: before.get(v[0], ()) for k, v in main_origins.items()},
        "setup": {k: before.get(v[0], ()) for k, v in setup_origins.items()},
    }
    return Module({**module.programs, "main": rest, "setup": setup}, module.constants, origins)


def constant_values(
    constants: Mapping[str, Tensor], program: ir.Program, passed: Mapping[str, bool] | None = None
) -> dict[str, bool]:
    """Ids of constant values; True if they depend on a payload or a held input.

    `passed`: the arguments of a called program that are constant at every call, with the same flag. In a called program, reads
    at indices that may lie outside are not constant: they are a fault only if the program is called.
    """
    ports = {p.tensor: p for p in program.signature.inputs}
    is_called = passed is not None
    passed = passed or {}
    out: dict[str, bool] = {}
    for node in program.nodes:
        if any(s.as_int() is None for s in node.shape):
            continue
        match node.op:
            case ir.InputOp(tensor_id=tensor):
                port = ports[tensor]
                known = is_constant(port, constants)
                if port.mutability == "immutable" and (known or tensor in passed):
                    out[node.id] = known or passed[tensor]
            case ir.ConstOp() | ir.IotaOp():
                out[node.id] = False
            case ir.SizeOp() | ir.CallOp() | ir.ResultOp():
                pass
            case ir.GatherOp(bounds=bounds) | ir.ScatterOp(bounds=bounds) if is_called and bounds != "zero":
                pass
            case _:
                if all(s in out for s in node.src):
                    out[node.id] = any(out[s] for s in node.src)
    return out


def computed_constants(program: ir.Program, constant: Mapping[str, bool], keeps_narrow: bool) -> list[str]:
    """Computed constants that a value that is not constant (or an output) reads, directly or through movement; moved constants
    that a CALL takes."""
    by_id = {n.id: n for n in program.nodes}
    wanted: dict[str, None] = {}
    work = _work(program, constant)
    factors = multiplied(program) if keeps_narrow else frozenset()
    codes = codes_of_factors(program) if keeps_narrow else {}
    reads = [(s, isinstance(n.op, ir.CallOp)) for n in program.nodes if n.id not in constant for s in n.src]
    reads += [(o, False) for o in program.outputs]
    while reads:
        ident, is_passed = reads.pop()
        if ident not in constant:
            continue
        moves = is_passed and constant[ident] and isinstance(by_id[ident].op, ir.MOVEMENT)
        while not moves:
            node = by_id[ident]
            is_stored_narrow = keeps_narrow and is_widening(node, by_id, factors)
            if not (is_stored_narrow or isinstance(node.op, ir.MOVEMENT) or _tells_a_product(node, by_id)):
                break
            ident = node.src[0]
        node = by_id[ident]
        if ident in codes and not is_passed:
            reads += [(leaf, False) for leaf in codes[ident].leaves]
            continue
        if isinstance(node.op, ir.InputOp | ir.ConstOp | ir.IotaOp) or not (constant[ident] or work[ident]):
            continue
        if _elements(node.shape) > max(GROWTH * _source_elements(node, by_id), 1 << 20):
            continue
        wanted[ident] = None
    order = {n.id: k for k, n in enumerate(program.nodes)}
    return sorted(wanted, key=lambda i: order[i])


def _tells_a_product(node: ir.Node, by_id: Mapping[str, ir.Node]) -> bool:
    """True if the node is a rounding to tf32 or a widening of codes or integers: a product must see it to choose its operands'
    dtype."""
    if not isinstance(node.op, ir.CastOp):
        return node.op == ir.Elementwise("tf32")
    source = by_id[node.src[0]].dtype
    return source.is_fp8 or node.dtype.widens(source)


def _work(program: ir.Program, constant: Mapping[str, bool]) -> dict[str, bool]:
    """Constant value → True if costly operations are needed to compute it."""
    out: dict[str, bool] = {}
    floats = {n.id for n in program.nodes if n.dtype.is_float}
    for node in program.nodes:
        if node.id not in constant:
            continue
        if isinstance(node.op, ir.CastOp):  # float to integer saturates, and 64-bit results have no vector instruction
            cheap = not (node.dtype.is_int and node.src[0] in floats)
        else:
            cheap = isinstance(node.op, (*ir.MOVEMENT, ir.InputOp, ir.ConstOp, ir.IotaOp, ir.BitcastOp)) or (
                isinstance(node.op, ir.Elementwise) and _is_arithmetic(OPS[node.op.fn])
            )
        out[node.id] = not cheap or any(out[s] for s in node.src)
    return out


def _is_arithmetic(op: ScalarOp) -> bool:
    """True if the op is one instruction on numbers of every dtype; rounding and tests of floats are none."""
    return not op.is_costly and op.rule not in ("float", "test")


def _source_elements(node: ir.Node, by_id: Mapping[str, ir.Node]) -> int:
    """Number of elements of the payloads that `node` depends on, each counted once; its own if there are none."""
    seen: set[str] = set()
    stack = [node.id]
    total = 0
    while stack:
        ident = stack.pop()
        if ident in seen:
            continue
        seen.add(ident)
        if isinstance(by_id[ident].op, ir.InputOp):
            total += _elements(by_id[ident].shape)
        stack.extend(by_id[ident].src)
    return total or _elements(node.shape)


def _elements(shape: Shape) -> int:
    total = 1
    for size in shape:
        total *= size.as_int() or 0
    return total
