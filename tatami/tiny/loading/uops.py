"""Readers of the UOps of a spec document: one function per UOp, in `UOPS`.

A reader takes (loader, `arg`, operands, the whole entry) and returns the value. Elementwise ops are not listed: they are read
by their own names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tatami.core.algebra.visit import substitute
from tatami.core.diagnostic import Patch, TatamiError, diagnostic, fail
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, Shape, floordiv, var
from tatami.core.ops import REDUCE_OPS
from tatami.core.scalar import Scalar, scalar
from tatami.tiny import ir
from tatami.tiny.build import Value
from tatami.tiny.infer import Type
from tatami.tiny.json_form import decode_op
from tatami.tiny.loading.loader import Arg, Items, Loader, Rule


def _number(load: Loader, value: object) -> Scalar:
    """A number of a document as nodes hold it. Raises TatamiError InvalidAttribute."""
    if not isinstance(value, bool | int | float | str):
        raise fail("InvalidAttribute", load.at, f"{value!r} is not a number", "give a number, INF, -INF or NAN")
    try:
        return scalar(value)
    except ValueError as error:
        raise fail("InvalidAttribute", load.at, str(error), "give a number") from None


def _one(load: Loader, items: Items) -> Value:
    if len(items) != 1:
        raise fail("InvalidDocument", load.at, f"{len(items)} entries in src", "give one operand")
    return load.operand(items[0], f"{load.path}/src/0")


def _ints(load: Loader, arg: Arg, name: str) -> tuple[int, ...]:
    values = load.field(arg, name, list)
    if not all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        raise fail("InvalidDocument", load.at, f"{name} is {values}", "write a list of integers")
    return tuple(values)


# -- leaves --------------------------------------------------------------------------------------


def read_input(load: Loader, arg: Arg, items: Items, entry: Arg) -> Value:
    """INPUT: a port of the signature and its node."""
    fields = {k: v for k, v in arg.items() if k in ("storage", "role", "mutability")}
    name = load.field(arg, "tensor_id", str)
    declared = {**load.declared_type(name), **arg}
    return load.declare(name, declared, fields)


def read_const(load: Loader, arg: Arg, items: Items, entry: Arg) -> Value:
    """CONST: a rank-0 number of the declared dtype, fp32 by default."""
    dtype = load.dtype(arg.get("dtype", entry.get("dtype", "fp32")))
    value = load.field(arg, "value", object)
    try:
        held = _number(load, value)
    except (ValueError, TypeError):
        raise fail(
            "InvalidDocument", load.at, f"the value {value!r} is not a number", "write a number, INF, -INF or NAN"
        ) from None
    return load.build.add(ir.ConstOp(held), own=Type(dtype, ()))


def read_size(load: Loader, arg: Arg, items: Items, entry: Arg) -> Value:
    """SIZE: a rank-0 integer of a size expression, i64 by default."""
    dtype = load.dtype(entry.get("dtype", "i64"))
    return load.build.add(ir.SizeOp(load.size(load.field(arg, "value", object))), own=Type(dtype, ()))


def read_iota(load: Loader, arg: Arg, items: Items, entry: Arg) -> Value:
    """IOTA: the coordinate along an axis, i64 by default."""
    shape = load.shape(arg.get("shape", entry.get("shape")))
    dtype = load.dtype(arg.get("dtype", entry.get("dtype", "i64")))
    return load.build.add(ir.IotaOp(load.field(arg, "axis", int)), own=Type(dtype, shape))


# -- movement ------------------------------------------------------------------------------------


def read_reshape(load: Loader, arg: Arg, items: Items, entry: Arg) -> Value:
    """RESHAPE to `result_shape`."""
    x = _one(load, items)
    to = load.shape(load.field(arg, "result_shape", list))
    return x.reshape(to) if to != x.shape else load.build.add(ir.ReshapeOp(to), (x,))


def read_permute(load: Loader, arg: Arg, items: Items, entry: Arg) -> Value:
    """PERMUTE by `perm` (or `dims`); axis labels move along."""
    x = _one(load, items)
    perm = _ints(load, arg, "dims" if "perm" not in arg and "dims" in arg else "perm")
    result = load.build.add(ir.PermuteOp(perm), (x,))
    if x.id in load.labels:
        load.labels[result.id] = tuple(load.labels[x.id][p] for p in perm)
    return result


def read_expand(load: Loader, arg: Arg, items: Items, entry: Arg) -> Value:
    """EXPAND, with both readings of broadcast_dimensions (D2.3): one entry per operand axis, or per axis that is not literally
    1."""
    x = _one(load, items)
    to = load.shape(load.field(arg, "result_shape", list))
    if "broadcast_dimensions" not in arg:
        return load.build.add(ir.ExpandOp(to, tuple(range(len(to) - x.rank, len(to)))), (x,))
    dims = _ints(load, arg, "broadcast_dimensions")
    wide = [k for k, s in enumerate(x.shape) if s != ONE]
    if len(dims) != x.rank and len(dims) == len(wide):
        x = load.build.add(ir.ReshapeOp(tuple(x.shape[k] for k in wide)), (x,))
    return load.build.add(ir.ExpandOp(to, dims), (x,))


def read_pad(load: Loader, arg: Arg, items: Items, entry: Arg) -> Value:
    """PAD by one pair [lo, hi] per axis."""
    x = _one(load, items)
    pairs = load.field(arg, "pad", list)
    if len(pairs) != x.rank or not all(isinstance(p, list) and len(p) == 2 for p in pairs):
        raise fail(
            "InvalidAttribute",
            load.at,
            f"pad has {len(pairs)} entries {pairs} for a tensor of rank {x.rank}",
            "write one pair [lo, hi] per axis, for two spatial axes by 1: [[0,0],[0,0],[1,1],[1,1]]",
        )
    widths = tuple((load.size(lo), load.size(hi)) for lo, hi in pairs)
    return load.build.add(ir.PadOp(widths, _number(load, arg.get("value", 0))), (x,))


def read_shrink(load: Loader, arg: Arg, items: Items, entry: Arg) -> Value:
    """SHRINK to lo … hi, by `step` if it is given."""
    x = _one(load, items)
    lo, hi = load.shape(load.field(arg, "lo", list)), load.shape(load.field(arg, "hi", list))
    step = _ints(load, arg, "step") if "step" in arg else (1,) * len(lo)
    return load.build.add(ir.ShrinkOp(lo, hi, step), (x,))


def read_flip(load: Loader, arg: Arg, items: Items, entry: Arg) -> Value:
    """FLIP along the axes `axes`."""
    x = _one(load, items)
    return load.build.add(ir.FlipOp(_ints(load, arg, "axes")), (x,))


def read_view(load: Loader, arg: Arg, items: Items, entry: Arg) -> Value:
    """VIEW: a leaf or a value as it is, or through an index_map (a list, or {"axes": names, "map": list})."""
    x = _one(load, items)
    if "index_map" not in arg and "map" not in arg:
        return x
    to = load.shape(load.field(arg, "result_shape", list))
    given = arg.get("index_map", arg.get("map"))
    names: list[str] = []
    if isinstance(given, dict):
        names = [str(n) for n in given.get("axes", [])]
        given = given["map"] if "map" in given else list(given.values())
    if not isinstance(given, list):
        raise fail("InvalidDocument", load.at, "index_map is not a list", "write one expression per operand axis")
    rename = {n: var(f"i{k}") for k, n in enumerate(names)}
    return x.view(to, [substitute(load.size(e), rename) for e in given])


def read_load(load: Loader, arg: Arg, items: Items, entry: Arg) -> Value:
    """LOAD(tensor, map): a VIEW of the tensor."""
    if not items and "tensor" in arg:
        items = [arg["tensor"]]
    return read_view(load, arg, items, entry)


def read_store(load: Loader, arg: Arg, items: Items, entry: Arg) -> None:
    """STORE: its value is an output under the tensor's name."""
    named = [arg["tensor"], *items] if "tensor" in arg else list(items)
    if len(named) != 2 or not all(isinstance(n, str) for n in named):
        raise fail("InvalidDocument", load.at, f"STORE of {named}", 'write "src": [TENSOR, VALUE], both names')
    load.named(named[1])
    load.stored[named[0]] = named[1]


def read_pool(load: Loader, arg: Arg, items: Items, entry: Arg) -> Value:
    """POOL: sliding windows of the trailing axes: [..., O…, K…] with O = (size - D*(K-1) - 1)//S + 1."""
    x = _one(load, items)
    kernel = load.shape(load.field(arg, "kernel", list))
    ones = [1] * len(kernel)
    stride, dilation = load.shape(arg.get("stride", ones)), load.shape(arg.get("dilation", ones))
    if not len(kernel) == len(stride) == len(dilation) <= x.rank:
        raise fail(
            "InvalidAttribute", load.at, "kernel, stride and dilation differ in length", "give one number per spatial axis"
        )
    return windows(x, kernel, stride, dilation)


def windows(x: Value, kernel: Sequence[Expr], stride: Sequence[Expr], dilation: Sequence[Expr]) -> Value:
    """The VIEW of sliding windows for POOL and for conv contractions: [..., O…, K…]."""
    d = len(kernel)
    lead = x.rank - d
    out = [floordiv(x.shape[lead + k] - dilation[k] * (kernel[k] - 1) - 1, stride[k]) + 1 for k in range(d)]
    index = [var(f"i{k}") for k in range(lead)]
    index += [stride[k] * var(f"i{lead + k}") + dilation[k] * var(f"i{lead + d + k}") for k in range(d)]
    return x.view((*x.shape[:lead], *out, *kernel), index)


# -- base ----------------------------------------------------------------------------------------


def read_cast(load: Loader, arg: Arg, items: Items, entry: Arg) -> Value:
    """CAST to dtype `to`; axis labels are kept."""
    x = _one(load, items)
    result = x.cast(load.dtype(load.field(arg, "to", str)))
    load.keep_labels(result, [x])
    return result


def read_reduce(load: Loader, arg: Arg, items: Items, entry: Arg) -> Value:
    """REDUCE over `axes`. A missing accumulation dtype is a fault; fp32 is assumed for 16-bit floats."""
    x = _one(load, items)
    op = load.field(arg, "op", str).lower()
    if op not in REDUCE_OPS:
        raise fail(
            "InvalidAttribute",
            load.at,
            f"{arg['op']!r} is not a reduce op",
            f"use one of {', '.join(o.upper() for o in REDUCE_OPS)}",
        )
    axes = tuple(_axis(load, x, a) for a in load.field(arg, "axes", list))
    default = DType.fp32 if x.dtype.is_narrow_float else x.dtype
    stated = arg.get("dtype", arg.get("acc_dtype"))
    if stated is None:
        load.faults.append(
            diagnostic(
                "AccDtypeMissing",
                load.at,
                f"REDUCE {op.upper()} has no dtype",
                f'write "dtype": "{default}" in arg',
                patch=Patch(({"op": "add", "path": f"{load.path}/arg/dtype", "value": default.value},)),
            )
        )
    dtype = default if stated is None else load.dtype(stated)
    init = _number(load, arg["init"]) if arg.get("init") is not None else None
    result = load.build.add(ir.ReduceOp(op, axes, dtype, init), (x,))
    if x.id in load.labels:
        load.labels[result.id] = tuple(n for k, n in enumerate(load.labels[x.id]) if k not in axes)
    return result


def _axis(load: Loader, x: Value, axis: Any) -> int:
    """An axis as a position (negative from the end), an index name of a CONTRACT, or a size symbol that names one axis."""
    if isinstance(axis, int) and not isinstance(axis, bool):
        return axis + x.rank if axis < 0 else axis
    names = load.labels.get(x.id, ())
    if axis in names:
        return names.index(axis)
    places = [k for k, s in enumerate(x.shape) if s.as_name() == axis]
    if len(places) > 1:
        raise fail(
            "AmbiguousAxis",
            load.at,
            f"{axis!r} names axes {places} of [{', '.join(map(str, x.shape))}]",
            f"give the position: {' or '.join(map(str, places))}",
        )
    if not places:
        raise fail(
            "AxisOutOfRange",
            load.at,
            f"{axis!r} names no axis of [{', '.join(map(str, x.shape))}]",
            f"give a position from 0 to {x.rank - 1}, or a size symbol of the shape",
        )
    return places[0]


def read_contract(load: Loader, arg: Arg, items: Items, entry: Arg) -> Value:
    """CONTRACT: both operands brought to out_idx + reduce_idx by PERMUTE and EXPAND, then MUL and REDUCE(SUM) (spec 3 §3.3)."""
    if len(items) != 2:
        raise fail("InvalidDocument", load.at, f"CONTRACT of {len(items)} operands", "give two")
    operands = [load.operand(item, f"{load.path}/src/{k}") for k, item in enumerate(items)]
    indices = [_names(load, arg, "lhs_idx"), _names(load, arg, "rhs_idx")]
    out = _names(load, arg, "out_idx")
    reduced = _names(load, arg, "reduce_idx")
    sizes: dict[str, Expr] = {}
    for k in sorted((0, 1), key=lambda k: operands[k].rank < len(indices[k])):
        if operands[k].rank < len(indices[k]):
            operands[k] = _conv_windows(load, arg, operands[k], indices[k], sizes)
        if operands[k].rank != len(indices[k]):
            raise fail(
                "InvalidAttribute",
                load.at,
                f"operand {k} has rank {operands[k].rank} and indices {list(indices[k])}",
                "give one index per axis (conv patterns: also one per kernel axis at the end)",
            )
        for name, size in zip(indices[k], operands[k].shape):
            if sizes.setdefault(name, size) != size:
                raise _index_clash(load, name, sizes[name], size, operands)
    full = (*out, *reduced)
    if set(full) != set(sizes) or len(set(full)) != len(full):
        raise fail(
            "InvalidAttribute",
            load.at,
            f"out_idx and reduce_idx {list(full)} are not the operands' indices {sorted(sizes)}",
            "list each once",
        )
    shape = tuple(sizes[n] for n in full)
    spread = [_spread(load, x, names, full, shape) for x, names in zip(operands, indices)]
    if spread[0].dtype != spread[1].dtype:
        raise fail(
            "DTypeMismatch",
            load.at,
            f"operands are {spread[0].dtype} and {spread[1].dtype}",
            f'insert CAST with "to": "{max((spread[0].dtype, spread[1].dtype), key=lambda d: d.itemsize)}"',
        )
    stated = arg.get("dtype", arg.get("acc_dtype"))
    narrow = spread[0].dtype.is_narrow_float
    dtype = load.dtype(stated) if stated is not None else DType.fp32 if narrow else spread[0].dtype
    product = spread[0] * spread[1]
    result = load.build.add(ir.ReduceOp("sum", tuple(range(len(out), len(full))), dtype), (product,))
    load.labels[result.id] = out
    return result


def _names(load: Loader, arg: Arg, field: str) -> tuple[str, ...]:
    names = load.field(arg, field, list)
    if not all(isinstance(n, str) for n in names) or len(set(names)) != len(names):
        raise fail("InvalidAttribute", load.at, f"{field} is {names}", "write different names")
    return tuple(names)


def _index_clash(load: Loader, name: str, left: Expr, right: Expr, operands: Sequence[Value]) -> TatamiError:
    shapes = [", ".join(map(str, x.shape)) for x in operands]
    return fail(
        "BroadcastMismatch",
        load.at,
        f"index {name} has sizes {left} and {right} (operands [{shapes[0]}] and [{shapes[1]}])",
        "give the index one size, or two names",
        lhs_shape=shapes[0],
        rhs_shape=shapes[1],
    )


def _conv_windows(load: Loader, arg: Arg, x: Value, names: tuple[str, ...], sizes: Mapping[str, Expr]) -> Value:
    """Windows of the trailing d axes of `x`; the trailing d index names are the kernel's axes."""
    d = len(names) - x.rank
    kernel = [sizes.get(n) for n in names[len(names) - d :]]
    if d > x.rank or any(k is None for k in kernel):
        raise fail(
            "InvalidAttribute",
            load.at,
            f"an operand of rank {x.rank} has indices {list(names)}",
            "give one index per axis; a conv adds its kernel indices at the end, and the other operand sizes them",
        )
    ones = [1] * d
    stride, dilation = load.shape(arg.get("strides", ones)), load.shape(arg.get("dilations", ones))
    if len(stride) != d or len(dilation) != d:
        raise fail("InvalidAttribute", load.at, f"strides or dilations are not {d} numbers", f"give {d}")
    return windows(x, [k for k in kernel if k is not None], stride, dilation)


def _spread(load: Loader, x: Value, names: tuple[str, ...], full: tuple[str, ...], shape: Shape) -> Value:
    order = sorted(range(len(names)), key=lambda k: full.index(names[k]))
    return x.permute(order).expand(shape, [full.index(names[k]) for k in order])


def read_strict(load: Loader, arg: Arg, items: Items, entry: Arg) -> Value:
    """BITCAST, SCAN, GATHER, SCATTER, RAND: exactly as in the exchange form."""
    op = decode_op(str(entry["uop"]), dict(arg), load.at)
    return load.build.add(op, [load.operand(item, f"{load.path}/src/{k}") for k, item in enumerate(items)])


UOPS: dict[str, Rule] = {
    "INPUT": read_input,
    "CONST": read_const,
    "SIZE": read_size,
    "IOTA": read_iota,
    "RESHAPE": read_reshape,
    "PERMUTE": read_permute,
    "EXPAND": read_expand,
    "PAD": read_pad,
    "SHRINK": read_shrink,
    "FLIP": read_flip,
    "VIEW": read_view,
    "LOAD": read_load,
    "STORE": read_store,
    "POOL": read_pool,
    "CAST": read_cast,
    "REDUCE": read_reduce,
    "CONTRACT": read_contract,
    "BITCAST": read_strict,
    "SCAN": read_strict,
    "GATHER": read_strict,
    "SCATTER": read_strict,
    "RAND": read_strict,
}
"""Reader function by name of the UOp."""
