"""The exchange form of a tiny program: JSON with nodes as in spec 2 §1.1.

    {"id": "n7", "uop": "MUL", "src": ["n5", "n6"], "dtype": "fp32", "shape": ["M", "N", "K"]}
    {"id": "n8", "uop": "REDUCE", "src": ["n7"], "arg": {"op": "sum", "axes": [2], "dtype": "fp32"}, …}

`arg` has the fields of the op; `uop` of an elementwise op is the scalar op's own name. Strict both ways: ``decode(encode(p))
== p``. Shorthands are read by `load` only.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tatami.core.codec import from_builtins, to_builtins
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Shape
from tatami.core.ops import BY_UOP, OPS
from tatami.core.signature import Signature
from tatami.tiny.ir import Elementwise, Node, Op, Program

LEGAL_UOPS: tuple[str, ...] = (
    *("INPUT", "CONST", "SIZE", "IOTA", "RESHAPE", "PERMUTE", "EXPAND", "PAD", "SHRINK", "FLIP", "VIEW"),
    *("CAST", "BITCAST", "REDUCE", "SCAN", "GATHER", "SCATTER", "RAND", "CALL", "RESULT"),
    *BY_UOP,
)
"""Names of UOps in documents, scalar ops included."""


class _NodeForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    uop: str
    dtype: DType
    shape: Shape
    src: tuple[str, ...] = ()
    arg: dict[str, Any] = {}
    tag: str = ""


class _ProgramForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    signature: Signature
    uops: tuple[_NodeForm, ...]
    outputs: tuple[str, ...]


def encode(program: Program) -> dict[str, Any]:
    """The program as plain JSON values."""
    return {
        "signature": to_builtins(program.signature),
        "uops": [_encode_node(node) for node in program.nodes],
        "outputs": list(program.outputs),
    }


def _encode_node(node: Node) -> dict[str, Any]:
    if isinstance(node.op, Elementwise):
        uop, arg = OPS[node.op.fn].uop, {}
    else:
        arg = to_builtins(node.op)
        uop = arg.pop("uop")
        if arg.get("code", 0) is None:
            del arg["code"]
    out: dict[str, Any] = {"id": node.id, "uop": uop}
    if node.src:
        out["src"] = list(node.src)
    if arg:
        out["arg"] = arg
    out |= {"dtype": node.dtype.value, "shape": to_builtins(node.shape)}
    if node.tag:
        out["tag"] = node.tag
    return out


def decode(value: Any, at: str = "tiny", *, trust: bool = False) -> Program:
    """The program. Raises TatamiError: InvalidDocument with the path, UnknownOp with the legal names."""
    form = from_builtins(value, _ProgramForm, at)
    return Program(form.signature, tuple(_decode_node(n, f"{at}.uops.{n.id[:80]}", trust) for n in form.uops), form.outputs)


def _decode_node(form: _NodeForm, at: str, trust: bool) -> Node:
    return Node(form.id, decode_op(form.uop, form.arg, at, trust=trust), form.src, form.dtype, form.shape, form.tag)


def decode_op(uop: str, arg: dict[str, Any], at: str, *, trust: bool = False) -> Op:
    """One op from its name and its fields. Raises TatamiError: InvalidDocument, or UnknownOp with the legal names."""
    if uop in BY_UOP:
        if arg:
            raise fail("InvalidDocument", at, f"{uop} takes no arg, got {', '.join(arg)}", "remove the arg")
        return Elementwise(BY_UOP[uop].name)
    if uop not in LEGAL_UOPS:
        raise fail("UnknownOp", at, f"there is no UOp {uop!r}", f"the legal names are {', '.join(LEGAL_UOPS)}")
    return from_builtins({"uop": uop, **arg}, Op, at, trust=trust)  # type: ignore[arg-type]
