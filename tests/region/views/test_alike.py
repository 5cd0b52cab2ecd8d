"""Regions that only names of values tell apart are derived once, and no document shows it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.compiled_function import StageView
from tatami.poly_core.analyse import facts_of
from tatami.region.canonicalise import canonical_region
from tatami.region.ir import Let, Reduce, Region, Yield
from tatami.region.views import alike
from tatami.region.views.alike import OncePerForm, form_of, region_in_names
from tatami.stages import BY_NAME
from tests.region.examples import add, iters, param, read, target

EXAMPLES = Path(__file__).parents[3] / "examples"


def region(name: str, x: str, y: str, out: str, size: object = "N") -> Region:
    lets = (Let(f"{out}_0", ("i0",), tt.fp32, add(read(x, "i0"), read(y, "i0"))),)
    ports = (param(x, size), param(y, size))
    return Region(name, iters(i0=size), (), ports, (target(out, size),), lets, (Yield(f"{out}_0", out),))


def cells() -> tt.Graph:
    """A cell unrolled over five steps."""
    g = tt.Graph("cells")
    w, u = g.input("w", (8, 16), tt.fp32), g.input("u", (16, 16), tt.fp32)
    h = g.input("h", (4, 16), tt.fp32)
    for t in range(5):
        gate = (g.input(f"x{t}", (4, 8), tt.fp32) @ w + h @ u).sigmoid()
        h = gate * h + (1.0 - gate) * (h @ u).tanh()
        h = h / (h.abs().sum(1, keepdims=True) + 1.0).expand((4, 16))
    g.output("y", h)
    return g


def scaled_sums() -> tt.Graph:
    """Integer sums of which a factor is taken out, so that a rule names a new let."""
    g = tt.Graph("scaled_sums")
    for k in range(3):
        a, b = g.input(f"a{k}", (8, "N"), tt.i32), g.input(f"b{k}", (8, 1), tt.i32)
        g.output(f"out{k}", (a * b.expand((8, "N"))).sum(1))
    return g


MODELS: dict[str, Callable[[], object]] = {
    "cells": cells,
    "scaled_sums": scaled_sums,
    **{n: partial(EXAMPLES.joinpath, n) for n in ("digits/digits.onnx", "harp/attention.harp", "harp/kmeans.harp")},
}


def documents(model: object, target: str) -> dict[str, str]:
    stages = prepare(model, target=target).stages
    _ = stages["c" if target.startswith("cpu") else "cu"]
    return {n: StageView(n, stages[n], prepare(model, target=target).target).json for n in stages.made if n in BY_NAME}


@pytest.mark.parametrize("target", ["cpu:avx512", "sm90"])
@pytest.mark.parametrize("name", MODELS)
def test_every_document_is_the_same_without_the_memo(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_memo = documents(MODELS[name](), target)
    monkeypatch.setattr(OncePerForm, "__call__", lambda self, region: self._make(region))
    assert documents(MODELS[name](), target) == with_memo


def test_steps_of_an_unrolled_loop_have_few_forms() -> None:
    body = prepare(cells(), target="cpu:avx512").stages["region"].main.body
    assert len({form_of(r).key for r in body}) <= len(body) / 3


def test_a_form_is_derived_once_and_renamed() -> None:
    calls: list[str] = []

    def derive(r: Region) -> Region:
        calls.append(r.name)
        return canonical_region(r)

    once = OncePerForm(derive, region_in_names)
    regions = [region("r0", "a", "b", "c"), region("r1", "p", "q", "r"), region("r2", "p", "q", "r", "M")]
    assert [once(r) for r in regions] == [canonical_region(r) for r in regions]
    assert calls == ["r0", "r2"]


def test_a_value_that_stands_twice_is_another_form() -> None:
    assert form_of(region("r0", "a", "b", "c")).key == form_of(region("r1", "b", "a", "d")).key
    assert form_of(region("r0", "a", "b", "a_")).key != form_of(region("r1", "a", "b", "b_", "M")).key
    one, other = region("r0", "a", "b", "c"), region("r1", "p", "q", "r")
    crossed = add(read("q", "i0"), read("p", "i0"))
    other = msgspec.structs.replace(other, lets=(Let("r_0", ("i0",), tt.fp32, crossed),))
    assert form_of(one).key != form_of(other).key


def test_a_let_named_after_another_follows_it() -> None:
    r = prepare(scaled_sums(), target="cpu:avx512").stages["region@explicit"].main.body[0]
    changed = canonical_region(r)
    made = [let.name for let in changed.lets if isinstance(let.expr, Reduce)]
    assert made[0].endswith(alike.PART)
    form = form_of(r)
    to = {n: f"z{k}" for k, n in enumerate(form.names)}
    again = region_in_names(changed, to, "r9")
    renamed = region_in_names(r, to, "r9")
    assert renamed is not None
    assert again == canonical_region(renamed)


def test_a_let_of_an_unknown_name_is_derived_again() -> None:
    r = region("r0", "a", "b", "c")
    assert region_in_names(r, {"a": "x", "b": "y", "c": "z"}, "r1") is None


def test_forms_are_forgotten_with_their_regions() -> None:
    before = len(alike._KNOWN)
    r = region("r0", "a", "b", "c")
    form_of(r)
    assert len(alike._KNOWN) == before + 1
    del r
    assert len(alike._KNOWN) == before


def test_facts_are_those_of_the_region_itself() -> None:
    stages = prepare(cells(), target="cpu:avx512").stages
    facts = stages["poly_core"].main.regions
    assert [facts_of(r) for r in stages["region"].main.body] == list(facts)
