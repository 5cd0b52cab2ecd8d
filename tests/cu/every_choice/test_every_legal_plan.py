"""The space of legal plans and its record: what is a point and what is none, what the command does with a record that was cut off or
is out of date, and what the committed record says."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.target import PRESETS
from tatami.plan.choose_gpu import measurable
from tatami.plan.ir import Sm90Mma, Sm90Pair
from tatami.plan.pairs.choose import REGISTERS as PAIR_REGISTERS
from tatami.plan.verify_plan import verify_plan
from tatami.plan.views.grid import BY_ROWS
from tests.cu.every_choice import every_legal_plan
from tests.cu.every_choice.every_legal_plan import Record, main, name_of
from tests.cu.every_choice.every_plan import Made
from tests.cu.every_choice.legal_space import (
    SPACE,
    Row,
    Template,
    is_refused_alone,
    kernels_of,
    legal_points,
    made_by,
    plan_of,
    region_of,
    row_of,
    shuffled,
)

SM90 = PRESETS["sm90"]
PATH = Path(__file__).parent / "legal_plans.jsonl"
COMMAND = "run `python -m tests.cu.every_choice.every_legal_plan --record tests/cu/every_choice/legal_plans.jsonl --seconds 600` or longer"
TEMPLATES: tuple[Template, ...] = ("product", "image", "pair")
PRODUCT: Row = {
    "dtype": DType.fp16,
    "order": "nn",
    "epilogue": "bias, relu",
    "outer": "none",
    "sizes": "any",
    "rows": 128,
    "columns": 128,
    "k_steps": 4,
    "stages": 4,
    "warpgroups": "2",
    "registers": "usual",
    "tiles": "one",
    "cluster": ((1, 1), "none"),
    "tile_order": "grouped",
    "loads": ("tma", "tma"),
    "width": 8,
    "results": "direct",
    "wait_depth": 1,
    "parts": "whole",
    "swap_ab": False,
    "dependent_launch": False,
}
IMAGE: Row = {"convolution": "3x3", "nchw": False} | {k: v for k, v in PRODUCT.items() if k not in list(PRODUCT)[:5]}
PAIR: Row = {
    "weights": "causal",
    "dtype": DType.bf16,
    "order": "nnn",
    "width": (128, 128),
    "keys": 128,
    "consumers": 2,
    "stages": 2,
    "registers": "usual",
    "overlap": True,
    "in_turns": False,
    "section": 0,
    "split": 1,
    "shared": False,
    "dependent_launch": False,
}
PLAIN: dict[Template, Row] = {"product": PRODUCT, "image": IMAGE, "pair": PAIR}


# -- the space -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 7, 64, 1000])
def test_every_point_is_drawn_once(count: int) -> None:
    drawn = [shuffled(i, count, "product") for i in range(count)]
    assert sorted(drawn) == list(range(count))
    assert count < 64 or drawn != sorted(drawn)


@pytest.mark.parametrize("template", TEMPLATES)
def test_values_are_drawn_evenly(template: Template) -> None:
    rows = [row_of(template, i) for i in range(2000)]
    for field, values in SPACE[template].items():
        for value in values:
            share = sum(r[field] == value for r in rows) / len(rows)
            assert 0.5 / len(values) < share < 2 / len(values), (field, value)
    assert all(row.keys() == PLAIN[template].keys() for row in rows)


PLANTED: list[tuple[Template, Row, str]] = [
    ("product", {"rows": 256, "stages": 8}, "shared memory"),
    ("product", {"rows": 192}, "BM = 192 is not a multiple of 64 x 2"),
    ("product", {"warpgroups": "2 in turns"}, "schedule pingpong"),
    ("product", {"cluster": ((2, 1), "b")}, "needs persistent tiles"),
    ("product", {"dtype": DType.f8e4m3fn}, "along k only"),
    ("product", {"results": "fetched"}, "its epilogue reads nothing of 16 bits"),
    ("product", {"outer": "groups of rows", "parts": "4"}, "rows in groups"),
    ("product", {"parts": "tail", "tiles": "persistent"}, "a line of known length"),
    ("product", {"swap_ab": True, "columns": 256}, "384 accumulators and their addresses"),
    ("image", {"convolution": "24 channels"}, "blocks of 64 channels do not divide"),
    ("image", {"cluster": ((1, 2), "a"), "tiles": "persistent"}, "cannot share the pixels"),
    ("pair", {"stages": 4, "keys": 256}, "shared memory"),
    ("pair", {"consumers": 1, "in_turns": True}, "nobody to take turns with"),
    ("pair", {"shared": True}, "shared: the second product's values"),
    ("pair", {"weights": "sigmoid", "split": 7, "keys": 64}, "are not joined from parts"),
]


@pytest.mark.parametrize("template", TEMPLATES)
def test_what_is_planted_upon_is_a_plan(template: Template) -> None:
    assert kernels_of(template, PLAIN[template]) and not is_refused_alone(template, PLAIN[template])


@pytest.mark.parametrize(("template", "changes", "words"), PLANTED)
def test_what_the_limits_refuse_is_no_point(template: Template, changes: Row, words: str) -> None:
    with pytest.raises(TatamiError, match=words):
        kernels_of(template, PLAIN[template] | changes)


@pytest.mark.parametrize("template", TEMPLATES)
def test_what_is_passed_over_at_once_the_verifier_refuses_too(template: Template) -> None:
    refused = (row for row in (row_of(template, i) for i in range(10_000)) if is_refused_alone(template, row))
    for row in islice(refused, 40):
        if template != "pair" or region_of_pair(row):
            assert verify_plan(plan_of(template, row), region_of(template, row), SM90), row


def region_of_pair(row: Row) -> bool:
    """True if the pair's two products are one kernel."""
    try:
        region_of("pair", row)
    except AssertionError:
        return False
    return True


def test_plans_of_the_planner_are_points() -> None:
    region = region_of("product", PRODUCT)
    plans = [o.plan for o in measurable(region, SM90, {}) if isinstance(o.plan, Sm90Mma)]
    assert len(plans) > 8
    for plan in plans:
        row = PRODUCT | {
            "rows": plan.tile[0],
            "columns": plan.tile[1],
            "stages": plan.stages,
            "warpgroups": f"{plan.consumers}{' in turns' if plan.schedule == 'pingpong' else ''}",
            "tiles": "overlapped" if plan.persistent else "one",
            "cluster": (plan.cluster, plan.multicast),
            "results": "direct" if plan.epilogue_store == "direct" else "staged",
            "parts": "whole" if plan.split_k == 1 else str(plan.split_k),
            "swap_ab": plan.swap_ab,
        }
        assert plan.persistent or plan.bind == {"m.o": "block.x", "n.o": "block.x"}, "open rows are counted on x"
        assert_is_point("product", row, msgspec.structs.replace(plan, bind=dict(BY_ROWS)))  # the space has one order of places


def test_pairs_of_the_planner_are_points() -> None:
    plans = [o.plan for o in measurable(region_of("pair", PAIR), SM90, {}) if isinstance(o.plan, Sm90Pair)]
    assert len(plans) > 4
    for plan in plans:
        assert plan.registers == PAIR_REGISTERS[plan.consumers]
        row = (
            PAIR
            | {"keys": plan.tile[2], "section": plan.section}
            | {field: getattr(plan, field) for field in ("consumers", "stages", "overlap", "in_turns")}
        )
        assert_is_point("pair", row, plan)


def assert_is_point(template: Template, row: Row, plan: Any) -> None:
    """A row of the space, whose kernels are those of the plan. `section` is a number that others stand for."""
    for field, value in row.items():
        assert field == "section" or value in SPACE[template][field], (field, value)
    assert list(map(name_of, kernels_of(template, row))) == list(map(name_of, made_by(template, row, plan))), plan


# -- the command -----------------------------------------------------------------------------------


class Compiler:
    """A stand-in for NVRTC that records the kernels it is given; kernels with a number in `wrong` are at fault."""

    def __init__(self, wrong: tuple[int, ...] = ()) -> None:
        self.asked: list[str] = []
        self.wrong = wrong

    def __call__(self, made: Made) -> tuple[dict[str, Any], str]:
        self.asked.append(name_of(made))
        fault = "spills 8 bytes, 1 LDL, 1 STL" if len(self.asked) - 1 in self.wrong else ""
        return {"registers": 168, "shared": made.shared, "spilled": 8 if fault else 0, "code": {"HGMMA": 4}}, fault


@pytest.fixture(autouse=True)
def version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(every_legal_plan, "nvrtc_version", lambda: "13.0")


def run(monkeypatch: pytest.MonkeyPatch, path: Path, points: int, wrong: tuple[int, ...] = ()) -> tuple[list[str], int]:
    """Kernels that were compiled, and what the command returned."""
    compiler = Compiler(wrong)
    monkeypatch.setattr(every_legal_plan, "examined", compiler)
    code = main(["--record", str(path), "--jobs", "1", "--points", str(points)])
    return compiler.asked, code


def test_it_goes_on_where_its_record_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    first, code = run(monkeypatch, path, 2)
    assert code == 0 and len(set(first)) == len(first) >= 6
    whole = path.read_text()
    assert run(monkeypatch, path, 2) == ([], 0) and path.read_text() == whole
    more, _ = run(monkeypatch, path, 3)
    assert more and not set(more) & set(first)
    longer = path.read_text()
    path.write_text(longer[:-20])  # ended while a line was written
    again, _ = run(monkeypatch, path, 3)
    assert set(again) <= set(more) and path.read_text() == longer


def test_a_line_is_there_as_soon_as_its_kernels_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path, found = tmp_path / "record.jsonl", []

    def compiler(made: Made) -> tuple[dict[str, Any], str]:
        found.append(len(path.read_text().splitlines()))
        return {"registers": 1, "shared": 0, "spilled": 0, "code": {}}, ""

    monkeypatch.setattr(every_legal_plan, "examined", compiler)
    main(["--record", str(path), "--jobs", "1", "--points", "1"])
    assert found[0] == 1 and found[-1] == 3


def test_a_fault_is_told_and_looked_at_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "record.jsonl"
    asked, code = run(monkeypatch, path, 1, wrong=(0,))
    said = capsys.readouterr().out
    assert code == 1 and f"{asked[0]}: spills 8 bytes" in said and "1 plans at fault" in said
    template, _, kernels, _ = json.loads(path.read_text().splitlines()[-1])
    assert template == "product" and asked[0] in kernels
    assert run(monkeypatch, path, 1) == (list(kernels), 0)


def test_lines_of_other_texts_and_of_no_plans_are_dropped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "record.jsonl"
    run(monkeypatch, path, 2)
    good = path.read_text()
    head, line, *others = good.splitlines()
    template, draw, kernels = json.loads(line)
    refused = next(i for i in range(draw) if is_refused_alone(template, row_of(template, i)))
    stale = [json.dumps([template, draw, {"0" * 16: "1 registers 0 B"}]), json.dumps([template, refused, {"1" * 16: ""}])]
    path.write_text("\n".join([head, *stale, *others]) + "\n")
    capsys.readouterr()
    asked, _ = run(monkeypatch, path, 2)
    assert asked == list(kernels) and path.read_text() == good
    assert "1 lines dropped" in capsys.readouterr().out


def test_another_compiler_does_not_take_the_record_for_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Record(PATH).lines
    monkeypatch.setattr(every_legal_plan, "nvrtc_version", lambda: "13.5")
    with pytest.raises(SystemExit, match=r"is of NVRTC 13\.0, installed is 13\.5"):
        Record(PATH)


# -- the record ------------------------------------------------------------------------------------


def test_no_plan_of_the_record_is_at_fault() -> None:
    lines = Record(PATH).lines.values()
    assert len(lines) >= 100 and {line.template for line in lines} == set(TEMPLATES)
    for line in lines:
        assert not line.fault and line.kernels, line
        for figures in line.kernels.values():
            registers, _, shared, _, *code = figures.split(" ")
            assert 0 < int(registers) <= 255 and int(shared) <= SM90.smem_per_block, line
            assert not {"LDL", "STL"} & set(code), line


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_record_begins_with_the_first_plans_as_they_are_today(template: Template) -> None:
    lines = Record(PATH).lines
    draws = sorted(draw for kind, draw in lines if kind == template)
    for (draw, _, made), recorded in zip(islice(legal_points(template), 5), draws, strict=False):
        assert draw == recorded, COMMAND
        assert list(lines[template, draw].kernels) == list(map(name_of, made)), f"{template} {draw}: {COMMAND}"
