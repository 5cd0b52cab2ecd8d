"""Plans behind guards: who chooses them, what runs on both sides of a guard, how documents hold them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.compilation import decisions_of
from tatami.core.codec import to_builtins
from tatami.core.diagnostic import TatamiError
from tatami.core.expr import var
from tatami.core.kernel import Condition, is_met
from tatami.core.target import PRESETS
from tatami.execution.ir import Choose
from tatami.plan.choose_cpu import plan_estimate
from tatami.plan.guards import GRID, MOST_GUARDED, MOST_PLANS, PRODUCTS
from tatami.plan.ir import CpuContraction, CpuPlanes, CpuRows, CpuSplit, CpuStreaming, Guarded, RegionPlan, Scalar
from tatami.poly_core.analyse import facts_of
from tatami.region.ir import Region
from tatami.storage.dump import write_dump

ONE = msgspec.structs.replace(PRESETS["cpu:avx512"], cores=1)
TWO = msgspec.structs.replace(PRESETS["cpu:avx512"], cores=2)


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def stem(shape: tuple[Any, ...] = ("B", 3, 64, 64)) -> tt.Graph:
    """A first layer of a network of images: an image is a block of planes, of many images each goes to a thread."""
    g = tt.Graph("stem")
    x = g.input("x", shape, tt.fp32)
    g.output("y", x.conv(g.constant(values(32, 3, 7, 7)), g.constant(values(32)), stride=2, padding=3).relu())
    return g


def sounds(shape: tuple[Any, ...] = ("B", 16, "N")) -> tt.Graph:
    """Windows over a line: by planes where it is long, a product of few rows where it is not."""
    g = tt.Graph("sounds")
    g.output("y", g.input("x", shape, tt.fp32).conv(g.constant(values(64, shape[1], 9)), None))
    return g


def linear() -> tt.Graph:
    g = tt.Graph("linear")
    x = g.input("x", ("R", 96), tt.fp32)
    g.output("y", (x @ g.constant(values(96, 80))).tanh())
    return g


def plan_of(made: Any) -> RegionPlan:
    regions = made.stages["plan"].main.regions
    found: RegionPlan = next(r for r in regions if not isinstance(r.choices[-1].plan, CpuRows))
    return found


def edges(choices: tuple[Guarded, ...]) -> list[int]:
    """Sizes below, at and above each end of each guard."""
    ends = {end for g in choices for c in g.conditions for end in (c.low, c.high) if end}
    return sorted({max(0, end + d) for end in ends for d in (-1, 0, 1)})


# -- choosing --------------------------------------------------------------------------------------


def test_one_image_has_a_plan_that_threads_share() -> None:
    made = prepare(stem(), target=TWO)
    *guarded, last = plan_of(made).choices
    assert last.conditions == () and len(guarded) == 1
    (condition,) = guarded[0].conditions
    assert condition.size == var("B") and is_met(condition, {"B": 1}) and not is_met(condition, {"B": 64})
    assert type(guarded[0].plan) is type(last.plan) and guarded[0].plan != last.plan


LINES = {"N": (9, 2048, 8192)}


def test_a_plan_of_another_kind_has_to_be_far_ahead() -> None:
    made = prepare(sounds(), target=ONE, sizes=LINES)
    *guarded, last = plan_of(made).choices
    assert isinstance(last.plan, CpuPlanes)
    (few,) = (c for c in guarded if isinstance(c.plan, CpuContraction))
    assert all(is_met(c, {"B": 1, "N": 10}) for c in few.conditions)
    assert not all(is_met(c, {"B": 1, "N": 500}) for c in few.conditions)


def test_plans_of_kinds_whose_estimates_say_little_of_each_other_stand_alone() -> None:
    for made in (prepare(stem(), target=TWO), prepare(sounds(), target=TWO)):
        for r in made.stages["plan"].main.regions:
            kinds = {type(c.plan) for c in r.choices}
            assert len(kinds) == 1 or kinds <= PRODUCTS


def test_sizes_that_are_known_have_one_plan() -> None:
    assert all(len(r.choices) == 1 for r in prepare(stem((1, 3, 64, 64)), target=TWO).stages["plan"].main.regions)


def test_a_hint_moves_the_plan_and_with_it_the_guard() -> None:
    """Planned for one image, the plan is that of one image; for none is another one kept that it would be slower than."""
    made = prepare(stem(), target=TWO, sizes={"B": (0, 1, 512)})
    (usual,) = (c.plan for c in plan_of(prepare(stem(), target=TWO)).choices[:-1])
    assert plan_of(made).choices[-1].plan == usual


def test_few_are_kept() -> None:
    """Some of twenty layers of other sizes keep a guarded plan, although all have another plan for one image."""
    g = tt.Graph("layers")
    for k in range(20):
        x = g.input(f"x{k}", ("B", 3, 64 + 2 * k, 64), tt.fp32)
        g.output(f"y{k}", x.conv(g.constant(values(32, 3, 7, 7)), None, stride=2, padding=3))
    plans = prepare(g, target=TWO).stages["plan"].main.regions
    assert max(len(r.choices) for r in plans) <= 1 + MOST_PLANS
    assert 0 < sum(len(r.choices) - 1 for r in plans) <= MOST_GUARDED


def test_guards_end_at_a_few_sizes() -> None:
    for r in prepare(stem(), target=TWO).stages["plan"].main.regions:
        assert all(end in (0, *GRID) for g in r.choices for c in g.conditions for end in (c.low, c.high))


# -- running ---------------------------------------------------------------------------------------


@pytest.mark.runs_on("cpu:avx512")
def test_both_sides_of_a_chosen_guard_give_the_convolution() -> None:
    compilation = prepare(stem(), target=TWO)
    choices = plan_of(compilation).choices
    assert len(choices) > 1
    kept = decisions_of(compilation.stages).plans
    f = tt.compile(stem(), target="cpu:avx512", threads=2, decisions={"plans": kept})
    for b in edges(choices):
        x = values(b, 3, 64, 64)
        want = tt.compile(stem((b, 3, 64, 64)), target="reference")(x=x)["y"]
        np.testing.assert_allclose(f(x=x)["y"], want, rtol=1e-4, atol=1e-4, err_msg=str(b))


@pytest.mark.runs_on("cpu:avx512")
def test_both_sides_of_a_guard_between_kinds_give_the_convolution() -> None:
    compilation = prepare(sounds(), target=ONE, sizes=LINES)
    choices = plan_of(compilation).choices
    assert len({type(c.plan) for c in choices}) == 2
    kept = decisions_of(compilation.stages).plans
    f = tt.compile(sounds(), target="cpu:avx512", threads=1, sizes=LINES, decisions={"plans": kept})
    for b in (1, 3):
        for n in (n for n in edges(choices) if n >= 9):
            x = values(b, 16, n)
            want = tt.compile(sounds((b, 16, n)), target="reference")(x=x)["y"]
            np.testing.assert_allclose(f(x=x)["y"], want, rtol=1e-4, atol=1e-4, err_msg=str((b, n)))


def guarded_linear() -> tuple[str, tuple[Guarded, ...]]:
    """Few rows by panels of 4 and slivers of 16, a middle range swapped and without packed weights, all others as chosen."""
    made = prepare(linear(), target="cpu:avx512")
    found = plan_of(made)
    chosen = found.choices[-1].plan
    assert isinstance(chosen, CpuContraction) and chosen.packed and chosen.nr == 32
    change = msgspec.structs.replace
    few = change(chosen, mr=4, mc=4, nr=16, nc=16, in_place=())
    middle = change(chosen, packed=(), in_place=(), split="m", kc=32)
    rows = var("R")
    return found.key, (
        Guarded((Condition(rows, high=4),), few),
        Guarded((Condition(rows, low=9, high=16), Condition(rows, divisor=2)), middle),
        Guarded((), chosen),
    )


@pytest.mark.runs_on("cpu:avx512")
def test_plans_that_pack_otherwise_run_behind_their_guards() -> None:
    key, choices = guarded_linear()
    f = tt.compile(linear(), target="cpu:avx512", decisions={"plans": {key: to_builtins(choices)}})
    assert [p.tensor for p in f.execution.programs["setup"].signature.outputs], "weights are packed"
    (chosen,) = (i.op for i in f.execution.main.instructions if isinstance(i.op, Choose))
    read = [{a.buffer for launch in c.launches for a in launch.args if hasattr(a, "buffer")} for c in chosen.cases]
    assert len(read) == 3 and read[0] != read[1] != read[2] != read[0], "each reads the weights as it wants them"
    whole = tt.compile(linear(), target="reference")
    for rows in [*edges(choices), 0, 1, 12, 13, 64]:
        x = values(rows, 96)
        np.testing.assert_allclose(f(x=x)["y"], whole(x=x)["y"], rtol=1e-5, atol=1e-5, err_msg=str(rows))


@pytest.mark.runs_on("cpu:avx512")
def test_each_of_two_products_has_its_guard() -> None:
    """A product after another."""
    g = tt.Graph("twice")
    x = g.input("x", ("R", 96), tt.fp32)
    w = g.constant(values(96, 96) / 10)
    g.output("y", (x @ w).tanh() @ w)
    made = prepare(g, target="cpu:avx512")
    plans = {}
    for r in made.stages["plan"].main.regions:
        plan = r.choices[-1].plan
        assert isinstance(plan, CpuContraction)
        few = msgspec.structs.replace(plan, mr=4, mc=4, nr=16, nc=16, in_place=())
        plans[r.key] = to_builtins((Guarded((Condition(var("R"), high=2),), few), Guarded((), plan)))
    f = tt.compile(g, target="cpu:avx512", decisions={"plans": plans})
    for rows in (1, 2, 3):
        a = values(rows, 96)
        np.testing.assert_allclose(f(x=a)["y"], tt.compile(g, target="reference")(x=a)["y"], rtol=1e-5, atol=1e-5)


# -- documents -------------------------------------------------------------------------------------


def test_a_few_short_texts_are_one_product_too() -> None:
    """Planes pad each line to whole vectors: the plan of one text serves a few as well, where they are short."""
    g = tt.Graph("texts")
    lines = g.input("x", ("B", "T", 96), tt.fp32).permute(0, 2, 1)
    g.output("y", lines.conv(g.constant(values(192, 96, 5)), None, padding=2).relu().permute(0, 2, 1))
    choices = plan_of(prepare(g, target=ONE)).choices
    assert isinstance(choices[-1].plan, CpuPlanes)
    for batch, length, kind in ((1, 5, CpuContraction), (3, 2, CpuContraction), (128, 128, CpuPlanes)):
        taken = next(c for c in choices if all(is_met(k, {"B": batch, "T": length}) for k in c.conditions))
        assert isinstance(taken.plan, kind), (batch, length)
    assert len({str(c.plan) for c in choices}) == 2


def test_decisions_repeat_the_guards() -> None:
    made = prepare(stem(), target=TWO)
    again = prepare(stem(), target=TWO, decisions=decisions_of(made.stages))
    before, after = (
        [[(g.conditions, g.plan) for g in r.choices] for r in m.stages["plan"].main.regions] for m in (made, again)
    )
    assert before == after and any(len(choices) > 1 for choices in before)


@pytest.mark.runs_on("cpu:avx512")
def test_every_stage_is_one_to_go_on_from(tmp_path: Path) -> None:
    """The plan of a dump, its loops and its execution have the guards, which a person may edit."""
    key, choices = guarded_linear()
    compilation = prepare(linear(), target="cpu:avx512", decisions={"plans": {key: to_builtins(choices)}})
    compilation.stages["c"]
    stages = compilation.values()
    write_dump(tmp_path, stages, stages, compilation.target)
    x = values(4, 96)
    want = tt.compile(linear(), target="reference")(x=x)["y"]
    (plan,) = tmp_path.glob("*_plan.json")
    text = json.loads(plan.read_text())
    (region,) = (r for r in text["programs"]["main"]["regions"] if len(r["choices"]) > 1)
    assert region["choices"][0]["conditions"][0]["high"] == 4
    region["choices"][0]["conditions"][0]["high"] = 3
    for file in tmp_path.glob("*.json"):
        if "_loop" in file.name or "_execution" in file.name or "_c." in file.name:
            file.unlink()
    plan.write_text(json.dumps(text))
    f = tt.compile(str(tmp_path), target="cpu:avx512")
    (chosen,) = (i.op for i in f.execution.main.instructions if isinstance(i.op, Choose))
    assert chosen.cases[0].conditions == (Condition(var("R"), high=3),)
    np.testing.assert_allclose(f(x=x)["y"], want, rtol=1e-5, atol=1e-5)


@pytest.mark.runs_on("cpu:avx512")
def test_explain_says_when_a_plan_runs() -> None:
    key, choices = guarded_linear()
    f = tt.compile(linear(), target="cpu:avx512", decisions={"plans": {key: to_builtins(choices)}})
    assert "when R <= 4" in f.explain() and "when 9 <= R and R <= 16 and R % 2 == 0" in f.explain()


def decoding() -> tt.Graph:
    """Attention of S rows over T keys, both open: many rows while a prompt is read, one row for each token after it."""
    g = tt.Graph("decoding")
    q = g.input("q", (8, "S", 64), tt.fp32)
    k, v = (g.input(n, (8, "T", 64), tt.fp32) for n in "kv")
    seen = g.iota((8, "S", "T"), 2) <= g.iota((8, "S", "T"), 1) + (g.size_of("T") - g.size_of("S")).expand((8, "S", "T"))
    g.output("y", seen.where((q @ k.permute((0, 2, 1))) * 0.125, -np.inf).softmax(2) @ v)
    return g


def test_one_row_over_many_keys_reads_them_in_place() -> None:
    """A sliver of rows would be one row and padding, and turned keys are a copy that one row reads once."""
    choices = plan_of(prepare(decoding(), target=ONE)).choices
    one = next(c.plan for c in choices if all(is_met(x, {"S": 1, "T": 1000}) for x in c.conditions))
    assert isinstance(one, CpuRows)
    assert not one.turned
    assert isinstance(choices[-1].plan, CpuStreaming)


@pytest.mark.runs_on("cpu:avx512")
def test_both_sides_of_a_guard_of_attention_attend() -> None:
    f = tt.compile(decoding(), target=ONE)
    for rows, keys in ((1, 1), (1, 77), (2, 500), (3, 20), (40, 77)):
        q, k, v = values(8, rows, 64), values(8, keys, 64), values(8, keys, 64)[:, ::-1].copy()
        scores = np.einsum("hsd,htd->hst", q.astype(np.float64), k) / 8
        scores[:, np.arange(keys)[None] > np.arange(rows)[:, None] + keys - rows] = -np.inf
        weights = np.exp(scores - scores.max(2, keepdims=True))
        want = np.einsum("hst,htd->hsd", weights / weights.sum(2, keepdims=True), v)
        assert np.abs(f(q=q, k=k, v=v)["y"] - want).max() < 2e-5


def test_a_split_stands_alone() -> None:
    key, choices = guarded_linear()
    (region,) = (r for r in prepare(linear(), target="cpu:avx512").stages["region"].main.body)
    split = CpuSplit(tuple((let.name,) for let in region.lets))
    wrong = (Guarded(choices[0].conditions, choices[0].plan), Guarded((), split))
    with pytest.raises(TatamiError, match="a plan that splits a Region cannot be one of several guarded plans"):
        prepare(linear(), target="cpu:avx512", decisions={"plans": {key: to_builtins(wrong)}}).stages["plan"]


def test_a_routine_of_an_open_size_is_estimated_by_what_it_moves() -> None:
    g = tt.Graph("g")
    x = g.input("x", ("N", 8), tt.fp32)
    g.output("most", x.topk(3, axis=1)[0])
    regions = prepare(g, target=ONE).stages["region"].main.body
    (region,) = (r for r in regions if isinstance(r, Region) and r.opaque is not None)
    few, many = (plan_estimate(region, facts_of(region), Scalar((), {}), ONE, {"N": n})["total"] for n in (1000, 1000000))
    assert 0 < few < many
    assert prepare(g, target=ONE).stages["plan"].main.regions
