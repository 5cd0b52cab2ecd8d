"""An edited gpu document is refused, or is another order of the same work; a share of `python -m tests.gpu.edits`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.gpu.editing.programs import PROGRAMS
from tests.gpu.edits import FINDINGS, Edited, campaign

Body = list[dict[str, Any]]


def kernel(body: Any) -> dict[str, Any]:
    """The kernel of the product."""
    found: dict[str, Any] = next(k for k in body["kernels"] if k["is"] == "contraction")
    return found


def blocks(statements: Body) -> list[Body]:
    """The statements of a kernel and of each of its roles and loops."""
    out = [statements]
    for s in statements:
        for fields in s.values():
            out += blocks(fields["body"]) if "body" in fields else []
    return out


def without(*names: str) -> Callable[[Any], None]:
    def edit(body: Any) -> None:
        count = 0
        for block in blocks(kernel(body)["body"]):
            count += sum(next(iter(s)) in names for s in block)
            block[:] = [s for s in block if next(iter(s)) not in names]
        assert count

    return edit


def twice(name: str) -> Callable[[Any], None]:
    def edit(body: Any) -> None:
        block = next(b for b in blocks(kernel(body)["body"]) if any(name in s for s in b))
        at = next(i for i, s in enumerate(block) if name in s)
        block.insert(at, copy.deepcopy(block[at]))

    return edit


def first(name: str, before: str) -> Callable[[Any], None]:
    """Statement `name` moved before `before`."""

    def edit(body: Any) -> None:
        block = next(b for b in blocks(kernel(body)["body"]) if any(name in s for s in b) and any(before in s for s in b))
        s = block.pop(next(i for i, x in enumerate(block) if name in x))
        block.insert(next(i for i, x in enumerate(block) if before in x), s)

    return edit


def field(name: str, key: str, value: Any, among: str = "") -> Callable[[Any], None]:
    """`key` of every statement `name`; `among`: of those that copy into this ring."""

    def edit(body: Any) -> None:
        found = [s[name] for block in blocks(kernel(body)["body"]) for s in block if name in s]
        found = [fields for fields in found if among in ("", fields.get("dst_smem"))]
        assert found
        for fields in found:
            assert fields.get(key) != value
            fields[key] = value

    return edit


def without_field(name: str, key: str) -> Callable[[Any], None]:
    def edit(body: Any) -> None:
        found = [s[name] for block in blocks(kernel(body)["body"]) for s in block if key in s.get(name, {})]
        assert found
        for fields in found:
            del fields[key]

    return edit


def fact(key: str, value: Any) -> Callable[[Any], None]:
    def edit(body: Any) -> None:
        assert kernel(body).get(key) != value
        kernel(body)[key] = value

    return edit


def launch(body: Any) -> None:
    body["bindings"][-1]["grid"] = [1, 1, 1]


def ring(body: Any) -> None:
    kernel(body)["smem"][-1]["swizzle"] = 64 if kernel(body)["smem"][-1]["swizzle"] != 64 else 32


def slots(count: int) -> Callable[[Any], None]:
    """Another number of slots for every barrier of the kernel."""

    def edit(body: Any) -> None:
        assert kernel(body)["barriers"]
        for barrier in kernel(body)["barriers"]:
            barrier["slots"] = count

    return edit


def turned(body: Any) -> None:
    for block in blocks(kernel(body)["body"]):
        for s in block:
            if "LdMatrix" in s:
                s["LdMatrix"]["trans"] = not s["LdMatrix"]["trans"]


NAMED: dict[str, tuple[str, Callable[[Any], None]]] = {
    "no LdMatrix": ("gemm80", without("LdMatrix")),
    "no LdMatrix and no Wait": ("gemm80", without("LdMatrix", "Wait")),
    "no Wait": ("gemm80", without("Wait")),
    "no ZeroAcc": ("gemm80", without("ZeroAcc")),
    "Mma twice": ("gemm80", twice("Mma")),
    "no StGlobalVec": ("gemm80", without("StGlobalVec")),
    "the accumulator is stored": ("gemm80", field("StGlobalVec", "regs", "acc")),
    "half a tile": ("gemm80", fact("tile", [32, 32, 32])),
    "one CTA": ("gemm80", launch),
    "LdMatrix.trans": ("gemm80", turned),
    "Mma.dtype": ("gemm80", field("Mma", "dtype", "bf16_fp32acc")),
    "Mma.k_steps": ("gemm80", field("Mma", "k_steps", 1)),
    "kernel.tail": ("gemm80", fact("tail", ["m"])),
    "Wait.token": ("gemm80", field("Wait", "token", [])),
    "barriers without slots": ("gemm90", slots(0)),
    "barriers of attention without slots": ("attention90", slots(0)),
    "fewer slots than warpgroups": ("attention90", slots(1)),
    "Weigh first": ("attention80", first("Weigh", "Mma")),
    "no Weigh": ("attention80", without("Weigh")),
    "no Rescale": ("attention80", without("Rescale")),
    "two columns of warps": ("attention80", fact("cols", 2)),
    "TmaLoad.coords": ("gemm90", field("TmaLoad", "coords", ["k", "0"])),
    "Wgmma.trans_a": ("cluster90", field("Wgmma", "trans_a", True)),
    "Wgmma.k_steps": ("gemm90", field("Wgmma", "k_steps", 2)),
    "Wgmma.shape": ("gemm90", field("Wgmma", "shape", "m64n8k16")),
    "swizzle of the store": ("gemm90", ring),
    "Weigh twice": ("attention90", twice("Weigh")),
    "Rescale twice": ("attention90", twice("Rescale")),
    "one ring for both operands": ("sync80", field("LoadTile", "dst_smem", "smA", among="smB")),
    "copies of one operand only": ("conv80", field("CpAsync", "dst_smem", "smA", among="smB")),
    "a token of two rings": ("conv80", field("CpAsync", "out_token", {"name": "tA", "block": "k"}, among="smB")),
    "keys into the ring of values": ("attention90", field("TmaLoad", "dst_smem", "smB", among="smK")),
    "a Wait without a block": ("attention90", without_field("Wait", "block")),
    "a cluster without rows": ("stream_k90", fact("cluster", [0, 1])),
    "a cluster without CTAs": ("conv90", fact("cluster", [1, 0])),
    "no Epilogue": ("gemm90", without("Epilogue")),
}
"""Edits that were accepted and computed other numbers, or had no effect."""


@pytest.mark.parametrize("name", NAMED)
def test_other_work_is_refused(name: str) -> None:
    program, edit = NAMED[name]
    edited = Edited(program, trust=True)
    body = copy.deepcopy(edited.body)
    edit(body)
    outcome = edited.outcome(name, body)
    assert outcome.kind == "refused", outcome


@pytest.mark.parametrize("trust", [False, True])
def test_another_order_is_obeyed(trust: bool) -> None:
    """Copies of both operands start in another order, and all threads meet once more."""
    edited = Edited("gemm80", trust)
    body = copy.deepcopy(edited.body)
    twice("SyncThreads")(body)
    block = kernel(body)["body"]
    a, b = [i for i, s in enumerate(block) if "CpAsync" in s][:2]
    block[a], block[b] = block[b], block[a]
    assert edited.outcome("another order", body).kind == "right"


def test_a_share_of_single_edits() -> None:
    found = list(campaign(list(PROGRAMS), (11, 300)))
    assert len(found) > 30 and any(o.kind == "refused" for o in found)
    assert [o for o in found if o.kind in FINDINGS] == []
