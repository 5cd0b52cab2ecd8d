"""Exact rewrites of one node, given the nodes it reads (D2.16: nothing that rounds differently).

Each rule takes an op and its operands' nodes and returns the id of an equal value, a Rewrite to build instead, or None. RULES
is tried in order.
"""

from __future__ import annotations

from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, Shape, expr, maximum, minimum
from tatami.core.scalar import number, scalar
from tatami.tiny import ir
from tatami.tiny.passes.gathered_views import gather_of_view
from tatami.tiny.passes.rewrite import Answer, Nodes, Rewrite, Rule, uniform_constant
from tatami.tiny.run import evaluate_node


def simplify(op: ir.Op, src: tuple[str, ...], dtype: DType, shape: Shape, nodes: Nodes) -> Answer:
    """The answer of the first rule that applies; None if none does."""
    for rule in RULES.get(type(op), ()):
        answer = rule(op, src, dtype, shape, nodes)
        if answer is not None:
            return answer
    return None


# -- movement ------------------------------------------------------------------------------------


def reshape_of_reshape(op: ir.Op, src: tuple[str, ...], dtype: DType, shape: Shape, nodes: Nodes) -> Answer:
    """RESHAPE(RESHAPE(x)) -> RESHAPE(x); a reshape to the operand's own shape -> x."""
    x = nodes[src[0]]
    if x.shape == shape:
        return src[0]
    return Rewrite(ir.ReshapeOp(shape), x.src, dtype, shape) if isinstance(x.op, ir.ReshapeOp) else None


def permute_of_permute(op: ir.Op, src: tuple[str, ...], dtype: DType, shape: Shape, nodes: Nodes) -> Answer:
    """PERMUTE(PERMUTE(x)) -> one PERMUTE; the identity -> x."""
    assert isinstance(op, ir.PermuteOp)
    x = nodes[src[0]]
    if op.perm == tuple(range(len(op.perm))):
        return src[0]
    if isinstance(x.op, ir.PermuteOp):
        return Rewrite(ir.PermuteOp(tuple(x.op.perm[p] for p in op.perm)), x.src, dtype, shape)
    return None


def expand_of_expand(op: ir.Op, src: tuple[str, ...], dtype: DType, shape: Shape, nodes: Nodes) -> Answer:
    """EXPAND(EXPAND(x)) -> one EXPAND; to the same shape -> x."""
    assert isinstance(op, ir.ExpandOp)
    x = nodes[src[0]]
    if x.shape == shape:
        return src[0]
    if isinstance(x.op, ir.ExpandOp):
        dims = tuple(op.broadcast_dimensions[d] for d in x.op.broadcast_dimensions)
        return Rewrite(ir.ExpandOp(shape, dims), x.src, dtype, shape)
    return None


def movement_of_nothing(op: ir.Op, src: tuple[str, ...], dtype: DType, shape: Shape, nodes: Nodes) -> Answer:
    """PAD by zero, SHRINK of everything, FLIP of no axis or of axes of size 1 -> x."""
    x = nodes[src[0]]
    match op:
        case ir.PadOp(pad=pad):
            return src[0] if all(lo == ZERO and hi == ZERO for lo, hi in pad) else None
        case ir.ShrinkOp(lo=lo, hi=hi, step=step):
            whole = all(a == ZERO and b == size and s == 1 for a, b, s, size in zip(lo, hi, step, x.shape))
            return src[0] if whole else None
        case ir.FlipOp(axes=axes):
            return src[0] if all(x.shape[a] == ONE for a in axes) else None
        case _:
            return None


def gather_of_gather(op: ir.Op, src: tuple[str, ...], dtype: DType, shape: Shape, nodes: Nodes) -> Answer:
    """GATHER(GATHER(x, i), j), both along one axis -> GATHER(x, GATHER(i, j)), for indices i in memory: the values between are
    never made. An index outside is a fault in both forms; the second reads only the indices that j names."""
    assert isinstance(op, ir.GatherOp)
    inner = nodes[src[0]]
    if (
        not isinstance(inner.op, ir.GatherOp)
        or not len(src) == len(inner.src) == 2
        or not op.bounds == inner.op.bounds == "wrap"
    ):
        return None
    if not _is_in_memory(inner.src[1], nodes) or f"i{op.map.index(None)}" in {
        n for e in inner.op.map if e for n in free_vars(e)
    }:
        return None
    place = {f"i{k}": e for k, e in enumerate(op.map) if e is not None}
    index = nodes[inner.src[1]]
    indices = Rewrite(op, (inner.src[1], src[1]), index.dtype, shape)
    entries = tuple(None if e is None else substitute(e, place) for e in inner.op.map)
    return Rewrite(ir.GatherOp(op.result_shape, entries, "wrap"), (inner.src[0], indices), dtype, shape)


def _is_in_memory(ident: str, nodes: Nodes) -> bool:
    """True if the value is an input, or elements of one at indices that are."""
    while isinstance(nodes[ident].op, ir.GatherOp) and len(nodes[ident].src) == 2:
        if not _is_in_memory(nodes[ident].src[1], nodes):
            return False
        ident = nodes[ident].src[0]
    return isinstance(nodes[ident].op, ir.InputOp)


def part_of_padded(op: ir.Op, src: tuple[str, ...], dtype: DType, shape: Shape, nodes: Nodes) -> Answer:
    """SHRINK(PAD(x)) to elements of x alone -> SHRINK(x)."""
    assert isinstance(op, ir.ShrinkOp)
    padded = nodes[src[0]]
    if not isinstance(padded.op, ir.PadOp):
        return None
    inner = nodes[padded.src[0]]
    los, his = [], []
    for (before, after), lo, hi, size in zip(padded.op.pad, op.lo, op.hi, inner.shape, strict=True):
        low, high = lo - before, hi - before
        first, spare = low.as_int(), (size - high).as_int()
        if (before != ZERO or after != ZERO) and (first is None or spare is None or first < 0 or spare < 0):
            return None
        los.append(low)
        his.append(high)
    return Rewrite(ir.ShrinkOp(tuple(los), tuple(his), op.step), padded.src, dtype, shape)


def part_of_joined(op: ir.Op, src: tuple[str, ...], dtype: DType, shape: Shape, nodes: Nodes) -> Answer:
    """SHRINK of parts laid end to end, to elements of one side -> SHRINK of that side.

    WHERE(LT(IOTA, c), x, y)[lo .. hi]  ->  x[lo .. hi] where hi <= c,  y[lo .. hi] where lo >= c
    """
    assert isinstance(op, ir.ShrinkOp)
    chosen = nodes[src[0]]
    if not isinstance(chosen.op, ir.Elementwise) or chosen.op.fn != "where":
        return None
    test = nodes[chosen.src[0]]
    if not isinstance(test.op, ir.Elementwise) or test.op.fn != "lt":
        return None
    coordinate, bound = nodes[test.src[0]], uniform_constant(test.src[1], nodes)
    if (
        not isinstance(coordinate.op, ir.IotaOp)
        or coordinate.dtype != DType.i64
        or coordinate.shape != chosen.shape
        or bound is None
    ):
        return None  # narrow integers wrap around
    assert isinstance(bound.op, ir.ConstOp)
    cut, axis = int(number(bound.op.value)), coordinate.op.axis
    lo, hi = op.lo[axis].as_int(), op.hi[axis].as_int()
    if hi is not None and hi <= cut:
        return Rewrite(op, (chosen.src[1],), dtype, shape)
    return Rewrite(op, (chosen.src[2],), dtype, shape) if lo is not None and lo >= cut else None


# -- constants -----------------------------------------------------------------------------------


def size_to_constant(op: ir.Op, src: tuple[str, ...], dtype: DType, shape: Shape, nodes: Nodes) -> Answer:
    """SIZE of a number -> CONST."""
    assert isinstance(op, ir.SizeOp)
    value = op.value.as_int()
    return None if value is None else Rewrite(ir.ConstOp(value), (), dtype, shape)


def constant_in_its_dtype(op: ir.Op, src: tuple[str, ...], dtype: DType, shape: Shape, nodes: Nodes) -> Answer:
    """CONST 0.1 of fp16 -> the number fp16 holds, so that equal constants are one node."""
    assert isinstance(op, ir.ConstOp)
    held = scalar(evaluate_node(ir.Node("c", op, (), dtype, ()), (), {}).item())
    if type(held) is type(op.value) and repr(held) == repr(op.value):
        return None
    return Rewrite(ir.ConstOp(held), (), dtype, shape)


def fold_uniform(op: ir.Op, src: tuple[str, ...], dtype: DType, shape: Shape, nodes: Nodes) -> Answer:
    """An op whose operands are each one number everywhere -> that op's number, expanded."""
    constants = []
    for s in src:
        found = uniform_constant(s, nodes)
        if found is None:
            return None
        constants.append(found)
    values = [evaluate_node(c, (), {}) for c in constants]
    result = evaluate_node(ir.Node("c", op, (), dtype, ()), values, {})
    constant = Rewrite(ir.ConstOp(scalar(result.item())), (), dtype, ())
    return constant if not shape else Rewrite(ir.ExpandOp(shape, ()), (constant,), dtype, shape)


def fold_sizes(op: ir.Op, src: tuple[str, ...], dtype: DType, shape: Shape, nodes: Nodes) -> Answer:
    """Integer arithmetic of SIZE and CONST -> SIZE of the expression."""
    if not dtype.is_int or shape or dtype.itemsize < 4:
        return None
    values: list[Expr] = []
    for s in src:
        node = nodes[s]
        if isinstance(node.op, ir.SizeOp):
            values.append(node.op.value)
        elif isinstance(node.op, ir.ConstOp) and node.dtype.is_int:
            values.append(expr(int(number(node.op.value))))
        else:
            return None
    match op:
        case ir.CastOp():
            result = values[0]
        case ir.Elementwise(fn="add"):
            result = values[0] + values[1]
        case ir.Elementwise(fn="sub"):
            result = values[0] - values[1]
        case ir.Elementwise(fn="mul"):
            result = values[0] * values[1]
        case ir.Elementwise(fn="max"):
            result = maximum(*values)
        case ir.Elementwise(fn="min"):
            result = minimum(*values)
        case _:
            return None
    return Rewrite(ir.SizeOp(result), (), dtype, ())


# -- arithmetic ----------------------------------------------------------------------------------


def cast_to_own_dtype(op: ir.Op, src: tuple[str, ...], dtype: DType, shape: Shape, nodes: Nodes) -> Answer:
    """CAST to the dtype it has -> x."""
    return src[0] if nodes[src[0]].dtype == dtype else None


def neutral_operand(op: ir.Op, src: tuple[str, ...], dtype: DType, shape: Shape, nodes: Nodes) -> Answer:
    """x*1, x/1, x-0 -> x; x+0 -> x for integers (for floats -0.0 + 0 is 0.0)."""
    if not isinstance(op, ir.Elementwise) or op.fn not in ("add", "sub", "mul", "div", "idiv"):
        return None
    for x, c in ((0, 1), (1, 0)) if op.fn in ("add", "mul") else ((0, 1),):
        if nodes[src[x]].dtype != dtype:
            continue
        constant = uniform_constant(src[c], nodes)
        if constant is None or not isinstance(constant.op, ir.ConstOp):
            continue
        value = number(constant.op.value)
        is_zero = value == 0 and not str(value).startswith("-")
        if op.fn in ("mul", "div", "idiv") and value == 1:
            return src[x]
        if is_zero and (op.fn == "sub" or (op.fn == "add" and dtype.is_int)):
            return src[x]
    return None


def twice_is_once(op: ir.Op, src: tuple[str, ...], dtype: DType, shape: Shape, nodes: Nodes) -> Answer:
    """NEG NEG x, NOT NOT x -> x; RELU, ABS, FLOOR, … of itself -> itself; MAX(x, x) -> x."""
    if not isinstance(op, ir.Elementwise):
        return None
    x = nodes[src[0]]
    if len(src) == 1 and isinstance(x.op, ir.Elementwise) and x.op.fn == op.fn:
        if op.fn in ("neg", "not", "bitnot"):
            return x.src[0]
        if op.fn in ("relu", "abs", "floor", "ceil", "round", "trunc", "sign", "tf32"):
            return src[0]
    if op.fn in ("max", "min", "and", "or", "bitand", "bitor") and src[0] == src[1]:
        return src[0]
    return None


def select_of_constant(op: ir.Op, src: tuple[str, ...], dtype: DType, shape: Shape, nodes: Nodes) -> Answer:
    """WHERE(true, x, y) -> x, WHERE(false, x, y) -> y, WHERE(c, x, x) -> x."""
    if not isinstance(op, ir.Elementwise) or op.fn != "where":
        return None
    if src[1] == src[2]:
        return src[1]
    condition = uniform_constant(src[0], nodes)
    if condition is None or not isinstance(condition.op, ir.ConstOp):
        return None
    return src[1] if number(condition.op.value) else src[2]


def reduce_of_nothing(op: ir.Op, src: tuple[str, ...], dtype: DType, shape: Shape, nodes: Nodes) -> Answer:
    """REDUCE over no axis without a start value -> CAST."""
    assert isinstance(op, ir.ReduceOp)
    if op.axes or op.init is not None or op.op in ("argmax", "argmin"):
        return None
    return src[0] if nodes[src[0]].dtype == dtype else Rewrite(ir.CastOp(dtype), src, dtype, shape)


RULES: dict[type, tuple[Rule, ...]] = {
    ir.GatherOp: (gather_of_view, gather_of_gather),
    ir.ReshapeOp: (reshape_of_reshape,),
    ir.PermuteOp: (permute_of_permute,),
    ir.ExpandOp: (expand_of_expand,),
    ir.PadOp: (movement_of_nothing,),
    ir.ShrinkOp: (movement_of_nothing, part_of_padded, part_of_joined),
    ir.FlipOp: (movement_of_nothing,),
    ir.SizeOp: (size_to_constant,),
    ir.ConstOp: (constant_in_its_dtype,),
    ir.CastOp: (cast_to_own_dtype, fold_sizes, fold_uniform),
    ir.Elementwise: (fold_sizes, fold_uniform, neutral_operand, twice_is_once, select_of_constant),
    ir.ReduceOp: (reduce_of_nothing,),
}
"""The rewrites of each op, in the order in which they are tried."""
