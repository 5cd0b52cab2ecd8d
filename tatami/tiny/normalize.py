"""tiny@imported to tiny: broadcasts explicit, constants folded, equal nodes shared, constant work in `setup`.

    n2 = ADD(x[N, C, H, W], b[W])   ->   n2 = EXPAND(b, [N, C, H, W], [3]); n3 = ADD(x, n2)

One forward pass per program builds new nodes, with the rules of `simplify` tried on each; ids are renumbered. Only
exact rewrites (D2.16): no float is reassociated, 0*x stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tatami.core.algebra.assumed import NOTHING, Assumed
from tatami.core.algebra.substitute import substitute_sizes
from tatami.core.dtype import DType
from tatami.core.expr import Expr, Shape, var
from tatami.core.module import Module
from tatami.core.scalar import Scalar, scalar
from tatami.core.signature import Equation, Signature, bound_values
from tatami.core.tensor import Tensor
from tatami.tiny.checks.size_conditions import with_conditions
from tatami.tiny.infer import Type, are_assumed_equal, joined_shape, reshape_equation
from tatami.tiny.ir import (
    CallOp,
    ConstOp,
    Elementwise,
    ExpandOp,
    InputOp,
    Node,
    Op,
    PadOp,
    Program,
    ReduceOp,
    ReshapeOp,
    ViewOp,
)
from tatami.tiny.passes.equations import padded_reshape, replace_equal_symbols
from tatami.tiny.passes.hoist import hoist_constants
from tatami.tiny.passes.invariants import read_unchanged_states
from tatami.tiny.passes.rewrite import Rewrite
from tatami.tiny.passes.setup import split_setup
from tatami.tiny.passes.simplify import simplify
from tatami.tiny.passes.tidy import live_ids, tidy


def normalize(module: Module[Program], keeps_narrow: bool = False) -> Module[Program]:
    """The module in normal form, with the same meaning. `origins` lead to the ids of the input module. `keeps_narrow`:
    integers of 8 bits that main converts to floats stay integers (tiny/passes/setup.py)."""
    programs: dict[str, Program] = {}
    origins: dict[str, dict[str, tuple[str, ...]]] = {}
    for name, given in module.programs.items():
        program = with_bound_symbols(given)
        if name == "main":
            program = replace_equal_symbols(program)
        programs[name], origins[name] = _Builder(module.constants if name == "main" else {}).program(program)
    result = read_unchanged_states(Module(programs, module.constants, origins))
    return result if "setup" in programs else split_setup(hoist_constants(result, keeps_narrow), keeps_narrow)


def with_bound_symbols(program: Program) -> Program:
    """The program with symbols that must be bound (strides and the like, D2.6) replaced by their default values."""
    signature = program.signature
    values = bound_values(signature)
    if not values:
        return program
    left = tuple(s for s in signature.must_bind if s not in values)
    defaults = {s: v for s, v in signature.defaults.items() if s not in values}
    cleared = msgspec.structs.replace(signature, must_bind=left, defaults=defaults)
    return substitute_sizes(msgspec.structs.replace(program, signature=cleared), values)


class _Builder:
    """New nodes of one program, shared by value."""

    def __init__(self, constants: Mapping[str, Tensor]) -> None:
        self.constants = constants
        self.nodes: dict[str, Node] = {}
        self.known: dict[object, str] = {}
        self.origins: dict[str, tuple[str, ...]] = {}
        self.current: tuple[str, ...] = ()
        self.equations: dict[tuple[Expr, Expr], Equation] = {}
        self.assumed: frozenset[tuple[Expr, Expr]] = frozenset()
        self.rewrites = NOTHING

    def program(self, program: Program) -> tuple[Program, dict[str, tuple[str, ...]]]:
        live = live_ids(program)
        self.assumed = frozenset((e.lhs, e.rhs) for e in program.signature.assumptions)
        self.rewrites = Assumed(program.signature.assumptions)
        widened = _widened_products(program, live)
        new: dict[str, str] = {}
        for node in program.nodes:
            if node.id not in live:
                continue
            self.current = (node.id,)
            new[node.id] = self.rebuild(node, [new[s] for s in node.src], widened.get(node.id, node.dtype))
        outputs = tuple(new[o] for o in program.outputs)
        rebuilt = Program(self.signature(program.signature), tuple(self.nodes.values()), outputs)
        tidied, origins = tidy(rebuilt, self.origins, self.constants)
        return with_conditions(tidied), origins

    def signature(self, given: Signature) -> Signature:
        """The signature with the equations that reshapes rely on (D2.6)."""
        known = {(e.lhs, e.rhs) for e in given.assumptions}
        more = tuple(e for pair, e in self.equations.items() if pair not in known)
        return msgspec.structs.replace(given, assumptions=(*given.assumptions, *more)) if more else given

    def rebuild(self, node: Node, src: list[str], dtype: DType) -> str:
        op = node.op
        if isinstance(op, Elementwise):
            src = [self.spread(s, node.shape) for s in src]
        if isinstance(op, InputOp):
            value = self.small_constant(op.tensor_id)
            if value is not None:
                return self.make(ConstOp(value), (), dtype, ())
        if isinstance(op, ReshapeOp):
            x = self.nodes[src[0]]
            equation = reshape_equation(Type(x.dtype, x.shape), node.shape)
            if equation is not None:
                if not are_assumed_equal(x.shape, node.shape, self.assumed):
                    self.equations.setdefault(equation, Equation(*equation, node.id))
                elif all(a == b or self.rewrites.is_at_most(b, a) for a, b in zip(x.shape, node.shape, strict=True)):
                    identity = tuple(var(f"i{k}") for k in range(len(node.shape)))
                    return self.make(ViewOp(node.shape, identity), src, dtype, node.shape)
                return self.reshape_by_assumption(src[0], dtype, node.shape)
        return self.make(op, src, dtype, node.shape, node.tag)

    def reshape_by_assumption(self, ident: str, dtype: DType, shape: Shape) -> str:
        """The reshape as an exact one around a pad that adds nothing if the equation holds."""
        merged, pad, padded = padded_reshape(self.nodes[ident].shape, shape)
        for op, to in ((ReshapeOp(merged), merged), (PadOp(pad), padded), (ReshapeOp(shape), shape)):
            ident = self.make(op, (ident,), dtype, to)
        return ident

    def small_constant(self, tensor: str) -> Scalar | None:
        found = self.constants.get(tensor)
        if found is None or found.shape != ():
            return None
        return scalar(found.array.item())

    def spread(self, ident: str, shape: Shape) -> str:
        """The value `ident` expanded to `shape` by the right-aligned rule of spec 2 §0."""
        have = self.nodes[ident].shape
        if have == shape:
            return ident
        joined_shape([have, shape], ident)
        offset = len(shape) - len(have)
        return self.make(ExpandOp(shape, tuple(range(offset, len(shape)))), (ident,), self.nodes[ident].dtype, shape)

    def make(self, op: Op, src: Sequence[str], dtype: DType, shape: Shape, tag: str = "") -> str:
        """The id of this value: an existing node, a simpler one, or a new one."""
        src = tuple(src)
        rewrite = simplify(op, src, dtype, shape, self.nodes)
        for _ in range(8):
            if rewrite is None:
                break
            if isinstance(rewrite, str):
                return rewrite
            op, src, dtype, shape = self.resolve(rewrite)
            rewrite = simplify(op, src, dtype, shape, self.nodes)
        if isinstance(rewrite, str):
            return rewrite
        shared = not (isinstance(op, CallOp) and op.kind == "host")
        key = (repr(op.value) if isinstance(op, ConstOp) else op, src, dtype, shape) if shared and _is_hashable(op) else None
        if key is not None and key in self.known:
            return self.known[key]
        ident = f"v{len(self.nodes)}"
        self.nodes[ident] = Node(ident, op, src, dtype, shape, tag)
        self.origins[ident] = self.current
        if key is not None:
            self.known[key] = ident
        return ident

    def resolve(self, rewrite: Rewrite) -> tuple[Op, tuple[str, ...], DType, Shape]:
        """The op and operands of a rewrite, whose operands are built first, innermost first."""
        src = tuple(s if isinstance(s, str) else self.make(*self.resolve(s)) for s in rewrite.src)
        return rewrite.op, src, rewrite.dtype, rewrite.shape


def _is_hashable(op: Op) -> bool:
    return not isinstance(op, CallOp)


def _widened_products(program: Program, live: frozenset[str]) -> dict[str, DType]:
    """D2.21: MUL nodes that feed only sums, and the accumulation dtype they get."""
    outputs = frozenset(program.outputs)
    products = {n.id: n.dtype for n in program.nodes if isinstance(n.op, Elementwise) and n.op.fn == "mul"}
    products = {k: v for k, v in products.items() if k not in outputs}
    wanted: dict[str, DType | None] = {}
    for node in program.nodes:
        if node.id not in live:
            continue
        for s in node.src:
            if s not in products:
                continue
            to = node.op.dtype if isinstance(node.op, ReduceOp) and node.op.op == "sum" else None
            if to is None or not _widens(products[s], to) or wanted.get(s, to) != to:
                wanted[s] = None
            else:
                wanted[s] = to
    return {k: v for k, v in wanted.items() if v is not None}


def _widens(narrow: DType, wide: DType) -> bool:
    same_family = (narrow.is_float and wide.is_float) or (narrow.is_int and wide.is_int and narrow.is_signed <= wide.is_signed)
    return same_family and wide.itemsize > narrow.itemsize
