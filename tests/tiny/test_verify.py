"""Each fault of a tiny module is one diagnostic at its node."""

import json
from typing import Any

import msgspec
import pytest

from tatami.core.diagnostic import Diagnostic
from tatami.core.dtype import DType
from tatami.core.expr import expr, shape
from tatami.core.module import Module
from tatami.core.signature import Output
from tatami.tiny.ir import CastOp, Elementwise, InputOp, Node, PermuteOp, Program, ReshapeOp, ViewOp
from tatami.tiny.json_form import decode, encode
from tatami.tiny.normalize import normalize
from tatami.tiny.verify import verify
from tests.tiny.build import F16, F32, Build


def good() -> Program:
    b = Build()
    x = b.input("x", F32, "M", 4)
    return b.program(b.fn("exp2", b.permute(x, 1, 0)))


def planted(position: int, **fields: Any) -> list[Diagnostic]:
    p = good()
    nodes = list(p.nodes)
    nodes[position] = msgspec.structs.replace(nodes[position], **fields)
    return verify(Module({"main": msgspec.structs.replace(p, nodes=tuple(nodes))}))


def one(found: list[Diagnostic]) -> tuple[str, str]:
    assert found, "nothing was found"
    return found[0].kind, found[0].at


def test_a_good_program_has_no_faults() -> None:
    assert verify(Module({"main": good()})) == []


@pytest.mark.parametrize(
    ("position", "fields", "kind", "at"),
    [
        (2, {"id": "n1"}, "DuplicateId", "n1"),
        (2, {"src": ("n9",)}, "UnknownValue", "n2"),
        (1, {"src": ("n2",)}, "CyclicGraph", "n1"),
        (1, {"src": ("n1",)}, "CyclicGraph", "n1"),
        (1, {"op": PermuteOp((0, 0))}, "InvalidPermutation", "n1"),
        (1, {"op": ReshapeOp(shape("M", 5)), "shape": shape("M", 5)}, "AxisSizeMismatch", "n1"),
        (2, {"dtype": F16}, "DTypeMismatch", "n2"),
        (2, {"shape": shape(4, "N")}, "AxisAlignmentMismatch", "n2"),
        (2, {"shape": shape(4, 7)}, "AxisSizeMismatch", "n2"),
        (2, {"op": Elementwise("foo")}, "UnknownOp", "n2"),
        (0, {"op": InputOp("z")}, "UnknownValue", "n0"),
        (0, {"shape": shape("M2", 4)}, "AxisAlignmentMismatch", "n0"),
        (1, {"op": ViewOp(shape("M", 4), (expr("i0"), expr("i0*i1"))), "shape": shape("M", 4)}, "NonAffineView", "n1"),
        (1, {"op": ViewOp(shape("M", 4), (expr("i0 + 1"), expr("i1"))), "shape": shape("M", 4)}, "IndexOutOfRange", "n1"),
        (
            1,
            {"op": ViewOp(shape("M", 4), (expr("i0"), expr("floor((3*i1 + 1)/2)"))), "shape": shape("M", 4)},
            "IndexOutOfRange",
            "n1",
        ),
        (1, {"op": ViewOp(shape("M", 4), (expr("i0"), expr("i7"))), "shape": shape("M", 4)}, "AxisOutOfRange", "n1"),
    ],
)
def test_a_planted_fault_is_found(position: int, fields: dict[str, Any], kind: str, at: str) -> None:
    assert one(planted(position, **fields)) == (kind, at)


def two(left: tuple[Any, ...], right: tuple[Any, ...], kinds: tuple[DType, DType] = (F32, F32)) -> Module[Program]:
    b = Build()
    b.input("x", kinds[0], *left)
    b.input("y", kinds[1], *right)
    p = b.program("n0")
    add = Node("n2", Elementwise("add"), ("n0", "n1"), kinds[0], shape(*left))
    out = (Output("z", kinds[0], shape(*left)),)
    return Module({"main": Program(msgspec.structs.replace(p.signature, outputs=out), (*p.nodes, add), ("n2",))})


def test_broadcast_mismatch_has_both_shapes_and_the_op_to_insert() -> None:
    (d,) = verify(two(("M", "K", "N"), ("M", "K", "N2")), "tiny@imported")
    assert (d.code, d.kind, d.at) == ("E1001", "BroadcastMismatch", "n2")
    assert "M, K, N" in d.why
    assert "M, K, N2" in d.why
    assert "EXPAND" in d.suggestion


def test_imported_programs_may_broadcast_normalised_ones_may_not() -> None:
    m = two((2, 3), (3,))
    assert verify(m, "tiny@imported") == []
    assert one(verify(m)) == ("BroadcastMismatch", "n2")
    assert verify(normalize(m)) == []


def test_two_dtypes_name_the_cast() -> None:
    (d,) = verify(two((2,), (2,), (F32, F16)))
    assert d.kind == "DTypeMismatch"
    assert 'CAST with "to": "fp32"' in d.suggestion


def test_reserved_symbols_are_refused() -> None:
    b = Build()
    x = b.input("x", F32, "i0")
    assert one(verify(b.module(x))) == ("InvalidSymbol", "i0")


def test_a_symbol_of_no_input_is_unbound() -> None:
    p = good()
    nodes = (*p.nodes, Node("n3", ReshapeOp(shape("Q", 4)), ("n0",), F32, shape("Q", 4)))
    m = Module({"main": msgspec.structs.replace(p, nodes=nodes)})
    assert one(verify(m)) == ("UnboundSymbol", "n3")


def test_outputs_agree_with_the_signature() -> None:
    p = good()
    wrong = msgspec.structs.replace(p.signature, outputs=(Output("y", F16, shape(4, "M")),))
    assert one(verify(Module({"main": msgspec.structs.replace(p, signature=wrong)})))[0] == "DTypeMismatch"
    wrong = msgspec.structs.replace(p.signature, outputs=(Output("y", F32, shape("M", 4)),))
    assert one(verify(Module({"main": msgspec.structs.replace(p, signature=wrong)})))[0] == "AxisAlignmentMismatch"
    assert one(verify(Module({"main": msgspec.structs.replace(p, outputs=("n2", "n2"))})))[0] == "InvalidDocument"


def test_a_cast_repairs_the_dtype() -> None:
    b = Build()
    x = b.input("x", F16, 3)
    assert verify(b.module(b.add(CastOp(F32), x))) == []


@pytest.mark.parametrize(
    ("left", "right", "kinds"), [((2,), (2,), (F32, F16)), (("M", "N"), ("M",), (F32, F32)), ((2, 3), (2,), (F16, F16))]
)
def test_patches_of_documents_repair_them(left: tuple, right: tuple, kinds: tuple[DType, DType]) -> None:
    m = two(left, right, kinds)
    (fault,) = verify(m, "tiny@imported")
    assert fault.patch is not None
    document = json.loads(json.dumps({"programs": {"main": encode(m.main)}}))
    for op in fault.patch.ops:
        *parents, last = op["path"].strip("/").split("/")
        where = document
        for key in parents:
            where = where[int(key)] if isinstance(where, list) else where[key]
        if op["op"] == "add" and isinstance(where, list):
            where.insert(int(last), op["value"])
        else:
            where[int(last) if isinstance(where, list) else last] = op["value"]
    assert verify(Module({"main": decode(document["programs"]["main"])}), "tiny") == []
