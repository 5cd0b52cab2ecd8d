"""Documents of the frontend without an envelope, among them the spec's own (spec 3 §2.2).

    {"signature": {...}, "tensors": {name: {dtype, shape}}, "graph": [{"op": "GEMM", "inputs": [...], ...}]}

The spec's operation words (GEMM, Elementwise with `fn`, Conv2D, Reduce with `fn`, …) become those of `frontend/ops.py`.
A broadcast becomes an explicit expand. A tensor that `tensors` does not list is a temporary: its dtype is its
contraction's `acc_dtype`, else its operands' widest; for temporaries alone casts are inserted (D2.17).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from tatami.core.codec import from_builtins
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, shape_text
from tatami.core.module import Module
from tatami.core.signature import Input, Output, Signature
from tatami.frontend.ir import Graph, Node, TensorType
from tatami.frontend.operation import Site, right_aligned, trusted_attributes
from tatami.frontend.operations.elementwise import ELEMENTWISE
from tatami.frontend.operations.size_conditions import with_conditions
from tatami.frontend.ops import OPS, infer, operands_of

_BROADCASTING = frozenset(op.name for op in ELEMENTWISE) - {"quantize", "dequantize"}
_OWN_KEYS = ("op", "name", "inputs", "outputs", "attrs")
_WORDS = {
    "transpose": "permute",
    "broadcast": "expand",
    "broadcast_in_dim": "expand",
    "conv1d": "conv",
    "conv2d": "conv",
    "conv3d": "conv",
    "batched_matmul": "matmul",
    "layernorm": "layer_norm",
    "batchnorm": "batch_norm",
    "rmsnorm": "rms_norm",
    "groupnorm": "group_norm",
    "mat_mul": "matmul",
    "max_pool2d": "max_pool",
    "avg_pool2d": "avg_pool",
    "embedding": "take",
    "si_lu": "silu",
    "re_lu": "relu",
    "ge_lu": "gelu",
}
_ATTRS = {
    "strides": "stride",
    "pads": "padding",
    "pad": "padding",
    "dilations": "dilation",
    "group": "groups",
    "keepdim": "keepdims",
}


class _Port(msgspec.Struct, frozen=True):
    tensor: str


def load(obj: object, at: str = "document", *, trust: bool = False) -> Module[Graph]:
    """A frontend document as a module. Raises TatamiError at the field or node; Untrusted for code without `trust`."""
    if not isinstance(obj, dict) or not isinstance(obj.get("graph"), list) or not isinstance(obj.get("signature"), dict):
        raise fail("InvalidDocument", at, "a frontend document has `signature`, `tensors` and `graph`", "see spec 3 §2.2")
    unknown = sorted(set(obj) - {"signature", "tensors", "graph"})
    if unknown:
        raise fail("InvalidDocument", at, f"unknown field {unknown[0]!r}", "a frontend document has signature, tensors, graph")
    loader = _Loader(from_builtins(obj.get("tensors", {}), dict[str, TensorType], f"{at}.tensors"), at, trust)
    inputs = loader.inputs(obj["signature"])
    for position, raw in enumerate(obj["graph"]):
        loader.node(raw, position)
    signature = loader.signature(obj["signature"], inputs)
    graph = with_conditions(Graph(signature, {**loader.known}, tuple(loader.nodes)))
    return Module({"main": graph}, {}, {"main": loader.origins})


class _Loader:
    def __init__(self, declared: Mapping[str, TensorType], at: str, trust: bool) -> None:
        self.trust = trust
        self.declared = declared
        self.known: dict[str, TensorType] = {}
        self.nodes: list[Node] = []
        self.names: set[str] = set()
        self.origins: dict[str, tuple[str, ...]] = {}
        self.at = at

    def inputs(self, signature: Mapping[str, object]) -> tuple[Input, ...]:
        ports = []
        for raw in self._ports(signature, "inputs"):
            ports.append(from_builtins(self.typed(raw, "input"), Input, f"{self.at}.signature"))
            self.agrees(ports[-1])
            self.known[ports[-1].tensor] = TensorType(ports[-1].dtype, ports[-1].shape)
        return tuple(ports)

    def _ports(self, signature: Mapping[str, object], side: str) -> list[object]:
        found = signature.get(side, [])
        if not isinstance(found, list | tuple):
            raise fail("InvalidDocument", f"{self.at}.signature", f"`{side}` is not a list", "write a list of tensors")
        return list(found)

    def typed(self, raw: object, what: str) -> dict[str, object]:
        """A port with dtype and shape, taken from `tensors` if it does not state them."""
        given: dict[str, object] = raw if isinstance(raw, dict) else {}
        name = from_builtins(given, _Port, f"{self.at}.signature", whole=False).tensor if isinstance(raw, dict) else ""
        if "dtype" in given and "shape" in given:
            return dict(given)
        type = self.declared.get(name) or (self.known.get(name) if what == "output" else None)
        if type is None:
            raise fail(
                "UnknownValue", name or self.at, f"the {what} {name!r} is not in `tensors`", "declare its dtype and shape"
            )
        return {"dtype": type.dtype.value, "shape": [str(s) for s in type.shape], **given}

    def agrees(self, port: Input | Output) -> None:
        """Raises E1304 or E1006 where `tensors` declares another shape or dtype than the signature."""
        if (type := self.declared.get(port.tensor)) is None or type == TensorType(port.dtype, port.shape):
            return
        if type.dtype != port.dtype:
            why = f"{port.tensor} is {type.dtype} in `tensors` and {port.dtype} in the signature"
            raise fail("DTypeMismatch", port.tensor, why, "declare one dtype")
        axes = [k for k, (a, b) in enumerate(zip(type.shape, port.shape)) if a != b]
        where = f"axis {axes[0]}: {type.shape[axes[0]]} and {port.shape[axes[0]]}" if axes else "their ranks differ"
        why = f"{port.tensor} has shape {shape_text(type.shape)} in `tensors` and {shape_text(port.shape)} in the signature ({where})"
        raise fail("AxisAlignmentMismatch", port.tensor, why, "the signature's symbols are the truth: use them in `tensors`")

    def signature(self, raw: Mapping[str, object], inputs: tuple[Input, ...]) -> Signature:
        outputs = tuple(
            from_builtins(self.typed(o, "output"), Output, f"{self.at}.signature") for o in self._ports(raw, "outputs")
        )
        for port in outputs:
            self.agrees(port)
        rest = {k: v for k, v in raw.items() if k not in ("inputs", "outputs")}
        return msgspec.structs.replace(from_builtins(rest, Signature, f"{self.at}.signature"), inputs=inputs, outputs=outputs)

    def node(self, raw: object, position: int) -> None:
        where = f"{self.at}.graph[{position}]"
        if not isinstance(raw, dict) or not isinstance(raw.get("op"), str):
            raise fail("InvalidDocument", where, "a node is an object with `op`", 'write {"op": …, "inputs": …, "outputs": …}')
        outputs = self._strings(raw.get("outputs"), where)
        inputs = self._strings(raw.get("inputs", []), where)
        name = str(raw.get("name") or (outputs[0] if outputs else f"node{position}"))
        attrs = {**raw.get("attrs", {}), **{k: v for k, v in raw.items() if k not in _OWN_KEYS}}
        op = self.operation_name(raw["op"], attrs, name)
        rank = len(self.known[inputs[0]].shape) if inputs and inputs[0] in self.known else 0
        attrs = _own_attributes(op, attrs, rank)
        if self.trust and op in OPS:
            attrs = trusted_attributes(OPS[op], attrs)
        self.origins[name] = (where,)
        draft = Node(op, name, tuple(inputs), tuple(outputs), attrs)
        operands_of(draft, self.known)
        if op in _BROADCASTING:
            inputs = self.joined(name, inputs)
        if OPS[op].is_contraction:
            attrs = self.contraction_dtypes(draft, attrs)
        self.emit(Node(op, name, tuple(inputs), tuple(outputs), attrs))

    def _strings(self, value: object, where: str) -> list[str]:
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise fail("InvalidDocument", where, "inputs and outputs are lists of tensor names", "write a list of strings")
        return list(value)

    def operation_name(self, word: str, attrs: dict[str, object], at: str) -> str:
        """The table's name of a spec word; `Elementwise` and `Reduce` state theirs in `fn`."""
        snake = _snake(word)
        if word.isupper():
            snake = word.lower()
        if snake in ("elementwise", "unary", "binary", "reduce"):
            fn = attrs.pop("fn", None) or attrs.pop("op", None)
            if not isinstance(fn, str):
                raise fail("InvalidAttribute", at, f"{word} without `fn`", 'write "fn": "add"')
            name = fn.lower()
            return f"reduce_{name}" if snake == "reduce" and f"reduce_{name}" in OPS else name
        return _WORDS.get(snake, snake) if snake not in OPS else snake

    def joined(self, at: str, inputs: Sequence[str]) -> list[str]:
        """Operands expanded to one shape and, if a temporary is among them, cast to one dtype."""
        types = [self.known[i] for i in inputs]
        shapes = [t.shape for t in types if t.shape]
        to = right_aligned(shapes)
        if to is None:
            raise fail(
                "BroadcastMismatch",
                at,
                f"operands of shapes {' and '.join(map(shape_text, shapes))} do not broadcast",
                "expand one of them",
            )
        out = []
        numeric = [t.dtype for t in types if t.dtype != DType.bool]
        widest = max(numeric, key=lambda d: (d.is_float, d.itemsize), default=DType.bool)
        relaxed = any(i not in self.declared for i in inputs)
        for i, t in zip(inputs, types, strict=True):
            value = i
            if relaxed and t.dtype not in (widest, DType.bool):
                value = self.inserted("cast", value, at, {"to": widest.value}, TensorType(widest, t.shape))
            if t.shape and t.shape != to:
                kept = TensorType(self.known[value].dtype, to)
                value = self.inserted("expand", value, at, {"shape": [_size(s) for s in to]}, kept)
            out.append(value)
        return out

    def inserted(self, op: str, source: str, at: str, attrs: dict[str, object], type: TensorType) -> str:
        name = f"{source}.{op}"
        while name in self.known or name in self.declared:
            name += "'"
        self.nodes.append(Node(op, name, (source,), (name,), attrs))
        self.known[name] = type
        self.origins[name] = self.origins.get(at, ())
        return name

    def contraction_dtypes(self, node: Node, attrs: dict[str, object]) -> dict[str, object]:
        """The node's attributes with its result dtype: a temporary keeps the accumulation dtype, a declared result has its
        own."""
        (output,) = node.outputs
        declared = self.declared.get(output)
        wanted = declared.dtype.value if declared is not None else attrs.get("acc_dtype")
        if wanted is None or wanted == self.known[node.inputs[0]].dtype.value:
            return attrs
        return {**attrs, "out_dtype": wanted}

    def emit(self, node: Node) -> None:
        """Append the node; a declared result of another dtype becomes a cast from a temporary."""
        if node.name in self.names:
            raise fail("DuplicateId", node.name, "two nodes have this name", "rename one of them")
        self.names.add(node.name)
        types = infer(node, operands_of(node, self.known), Site(node.name))
        if len(types) != len(node.outputs):
            raise fail("InvalidAttribute", node.name, f"{node.op} has {len(types)} results", "name each of them")
        outputs = []
        casts: list[Node] = []
        relaxed = any(i and i not in self.declared for i in node.inputs)
        for output, type in zip(node.outputs, types, strict=True):
            if output in self.known:
                raise fail("DuplicateId", node.name, f"{output!r} is defined twice", "rename one of the results")
            declared = self.declared.get(output)
            if declared is not None and declared.shape == type.shape and declared.dtype != type.dtype and relaxed:
                wide = f"{output}.wide"
                while wide in self.known or wide in self.declared:
                    wide += "'"
                self.known[wide] = type
                casts.append(Node("cast", f"{output}.cast", (wide,), (output,), {"to": declared.dtype.value}))
                self.origins[f"{output}.cast"] = self.origins.get(node.name, ())
                output, type = wide, type
                self.known[casts[-1].outputs[0]] = declared
            outputs.append(output)
            self.known.setdefault(output, declared if declared is not None and output in self.declared else type)
        self.nodes.append(msgspec.structs.replace(node, outputs=tuple(outputs)))
        self.nodes += casts


def _own_attributes(op: str, attrs: dict[str, object], rank: int) -> dict[str, object]:
    """Window attributes in the field's spellings, renamed to the table's."""
    out = dict(attrs)
    if op in OPS:
        own = {f.name for f in msgspec.structs.fields(OPS[op].attrs)}
        out = {(_ATTRS.get(k, k) if k not in own else k): v for k, v in attrs.items()}
        if "axis" in out and "axes" in own and "axis" not in own:
            out["axes"] = [out.pop("axis")]
        if isinstance(out.get("axes"), int):
            out["axes"] = [out["axes"]]
        spatial = rank - 2
        padding = out.get("padding")
        if "padding" in own and isinstance(padding, list):
            out["padding"] = _pairs(padding, spatial)
        for name in ("stride", "dilation", "kernel"):
            if name in own and isinstance(out.get(name), int):
                out[name] = [out[name]] * spatial
        if "padding" in own and isinstance(padding, int):
            out["padding"] = [[padding] * 2] * spatial
    return out


def _pairs(padding: list[object], spatial: int) -> list[object]:
    """(lo, hi) pairs from [p, q], [lo.., hi..] or [[lo, hi], …]."""
    if len(padding) == 2 * spatial and not any(isinstance(p, list) for p in padding):
        return [[padding[j], padding[spatial + j]] for j in range(spatial)]
    return [p if isinstance(p, list) else [p, p] for p in padding]


def _size(e: Expr) -> int | str:
    number = e.as_int()
    return str(e) if number is None else number


def _snake(word: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word).lower()
