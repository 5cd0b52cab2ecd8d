"""Kernels that are launched while the one before them ends (programmatic dependent launch): they wait themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.compilation import decisions_of
from tatami.core.diagnostic import TatamiError
from tatami.core.module import Module
from tatami.cu.ir import Unit
from tatami.decisions import Decisions
from tatami.gpu.ir import GridDependency, Kernel
from tatami.gpu.verify import verify
from tatami.runtime.building.nvrtc import Cubin
from tatami.runtime.emulated import machine
from tests.cuda.emulated_gpu import cubins_of, emulated_gpu
from tests.cuda.programs import eighths, on_gpu, same_as_reference


def attention_of_products() -> tt.Graph:
    """A product, attention of its results, a product of that: each reads what the kernel before it wrote."""
    g = tt.Graph("mixed")
    x = g.input("x", (1, 40, 64), tt.fp16)
    q, k, v = ((x @ g.constant(eighths(64, 64, seed=s).astype("float16") / 8)).reshape(1, 40, 1, 64) for s in range(3))
    y = q.transpose(1, 2).attention(k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2).reshape(1, 40, 64)
    g.output("y", y @ g.constant(eighths(64, 64, seed=3).astype("float16") / 8))
    return g


def early(g: tt.Graph) -> Decisions:
    """Every plan by TMA as it is chosen, launched early."""
    taken = decisions_of(prepare(g, target="sm90").stages).plans
    plans = {
        key: {**plan, "dependent_launch": True} for key, plan in taken.items() if plan["kind"] in ("sm90_mma", "sm90_pair")
    }
    assert {p["kind"] for p in plans.values()} == {"sm90_mma", "sm90_pair"}
    return Decisions(plans=plans)


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_kernel_that_begins_early_waits_itself(one_by_one: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulated GPU reports what it touches before: in a graph and launched one by one."""
    monkeypatch.setenv("TATAMI_CUDA_SYNC", str(int(one_by_one)))
    g = attention_of_products()
    with emulated_gpu("sm90") as gpu:
        f = on_gpu(gpu, g, decisions=early(g))
        for seed in range(2):
            same_as_reference(f, g, 4e-3, x=eighths(1, 40, 64, dtype="float16", seed=seed))
        assert any(x.dependent for x in gpu.launches)
        assert (gpu.counts["cuGraphAddDependencies"] > 0) != one_by_one


MISSING = r"griddepcontrol\.wait is missing"


def test_a_kernel_that_does_not_wait_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    g = attention_of_products()
    x = eighths(1, 40, 64, dtype="float16")

    def at_once(units: Sequence[Unit], *others: Any) -> dict[str, Cubin]:
        return cubins_of([without_wait(u) for u in units], *others)

    monkeypatch.setattr("tests.cuda.emulated_gpu.cubins_of", at_once)
    with emulated_gpu("sm90") as gpu:
        f = on_gpu(gpu, g, decisions=early(g))
        with pytest.raises(TatamiError, match=MISSING):
            f(x=x)


def test_the_emulated_target_knows_who_begins_early(monkeypatch: pytest.MonkeyPatch) -> None:
    g = attention_of_products()
    x = eighths(1, 40, 64, dtype="float16")
    same_as_reference(tt.compile(g, target="emulated-sm90", decisions=early(g)), g, 4e-3, x=x)
    build = machine.build_machine

    def at_once(units: Sequence[Unit], *others: Any, **named: Any) -> Any:
        return build([without_wait(u) for u in units], *others, **named)

    monkeypatch.setattr(machine, "build_machine", at_once)
    with pytest.raises(TatamiError, match=MISSING):
        tt.compile(g, target="emulated-sm90", decisions=early(g))(x=x)


def without_wait(unit: Unit) -> Unit:
    return msgspec.structs.replace(unit, text=unit.text.replace("tt_grid_dependency_wait();", ""))


def without(k: Any) -> Any:
    return tuple(s for s in k.body if s != GridDependency())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without, "has no GridDependency to wait"),
        (lambda k: (*without(k), GridDependency()), "may touch memory that the kernel before still writes"),
        (lambda k: (*k.body[:-1], GridDependency(), *k.body[-1:]), "may touch memory that the kernel before still writes"),
    ],
    ids=["no wait", "a wait behind the roles", "two waits"],
)
def test_the_verifier_wants_the_wait_first(change: Any, words: str) -> None:
    g = attention_of_products()
    module = prepare(g, target="sm90", decisions=early(g)).stages["gpu"]
    assert verify(module) == []
    kernels = [
        msgspec.structs.replace(k, body=change(k)) if isinstance(k, Kernel) and GridDependency() in k.body else k
        for k in module.main.kernels
    ]
    found = verify(Module({"main": msgspec.structs.replace(module.main, kernels=tuple(kernels))}))
    assert found and all(d.kind == "TokenHazard" and words in d.why for d in found), found
