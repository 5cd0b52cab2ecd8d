"""Documents from outside against what they were derived from: an edit is obeyed or refused."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.api import build, prepare
from tatami.core.diagnostic import TatamiError
from tatami.core.document import content_sha256, parse_document
from tests.fuzz.edits.document_programs import EDITED, documents

Json = dict[str, Any]


@pytest.fixture(scope="module")
def made() -> Callable[[str], dict[str, Json]]:
    kept: dict[str, dict[str, Json]] = {}

    def of(name: str) -> dict[str, Json]:
        if name not in kept:
            kept[name] = documents(name)
        return copy.deepcopy(kept[name])

    return of


def refusal(document: Json, **options: Any) -> str:
    with pytest.raises(TatamiError) as error:
        build(prepare(document, **options))
    assert all(d.kind != "InternalError" for d in error.value.diagnostics)
    return str(error.value)


def kernels(document: Json) -> list[Json]:
    return [k for p in document["programs"].values() for k in p["kernels"].values()]


# -- facts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EDITED)
def test_documents_that_nobody_edited_are_derived_again_alike(name: str, made: Callable[[str], dict[str, Json]]) -> None:
    for stage, document in made(name).items():
        found = prepare(document)
        assert not [d for d in found.warnings if d.kind == "CheckedKernel"], stage


def test_a_read_of_another_value_or_place_is_refused(made: Callable[[str], dict[str, Json]]) -> None:
    for place, new in (("value", "n1"), ("map", ["i0", "i2 + 1"])):
        document = made("wide_products")["indexbook"]
        read = document["programs"]["main"]["values"]["n7"]["operands"][0]["pieces"][0]["read"]
        assert read[place] != new
        read[place] = new
        assert "InvalidDocument at indexbook: main.values.n7.operands.0.pieces.0.read" in refusal(document)


@pytest.mark.parametrize(
    ("stage", "edit"),
    [
        ("poly_view", lambda p: p["edges"].clear()),
        ("poly_view", lambda p: p["statements"].reverse()),
        ("poly_core", lambda p: p["regions"].append(p["regions"][0])),
    ],
)
def test_facts_that_are_not_so_are_refused(stage: str, edit: Any, made: Callable[[str], dict[str, Json]]) -> None:
    document = made("causal_attention")[stage]
    before = copy.deepcopy(document["programs"]["main"])
    edit(document["programs"]["main"])
    if document["programs"]["main"] != before:
        assert "InvalidDocument" in refusal(document)


# -- inputs ------------------------------------------------------------------------------------------


def test_an_embedded_input_is_the_one_by_its_hash(made: Callable[[str], dict[str, Json]]) -> None:
    document = made("row_softmax")["plan"]
    region = document["inputs"]["region"]["document"]
    region["programs"]["main"]["body"][0]["lets"][0]["expr"]["fn"] = "min"
    assert "is not the one that this document was made from" in refusal(document)
    document["inputs"]["region"]["sha256"] = content_sha256(parse_document(region))
    assert "InvalidPlan" in refusal(document)  # it is keyed by another Region


def test_a_key_that_names_no_machine_does_not_pass_a_plan_by(made: Callable[[str], dict[str, Json]]) -> None:
    document = made("wide_products")["plan"]
    plan = document["programs"]["main"]["regions"][0]
    plan["key"] = "x"
    plan["choices"][0]["plan"]["nr"] = 12
    assert "InvalidPlan" in refusal(document)


@pytest.mark.parametrize("stage", ["frontend", "tiny", "region", "plan", "loop", "execution"])
def test_a_field_that_nothing_reads_is_refused(stage: str, made: Callable[[str], dict[str, Json]]) -> None:
    document = made("row_softmax")[stage]
    main = document["programs"]["main"]
    (main["regions"][0] if stage == "plan" else main["signature"] if "signature" in main else main["bindings"][0])["more"] = 1
    assert "more" in refusal(document)
    document = made("row_softmax")[stage]
    document["decisions"] = {"plans": {}}
    assert "decisions" in refusal(document)


# -- loops -------------------------------------------------------------------------------------------


def every(body: list[Json], wanted: str) -> list[Json]:
    """The statements of a kind, at any depth."""
    inner = [s for x in body for key in ("body", "then", "otherwise", "prologue") for s in every(x.get(key, []), wanted)]
    return [*(x for x in body if x["s"] == wanted), *inner]


def first(body: list[Json], wanted: str) -> Json:
    return every(body, wanted)[0]


@pytest.mark.parametrize("name", ["v", "at", "count", "work", "mark", "fault", "frame"])
def test_a_register_has_any_name(name: str, made: Callable[[str], dict[str, Json]]) -> None:
    document = made("row_softmax")["loop"]
    x = np.linspace(-2, 2, 99, dtype=np.float32).reshape(3, 33)
    wanted = build(prepare(document))(x=x)["y"]
    program = document["programs"]["main"]
    (kernel,) = kernels(document)
    stored = {s["value"]["name"] for s in every(kernel["body"], "store") if s["value"]["v"] == "reg"}
    assert stored
    text = json.dumps(program["kernels"])
    program["kernels"] = json.loads(re.sub(f'"({"|".join(stored)})"', f'"{name}"', text))
    compilation = prepare(document)
    f = build(compilation)
    assert [d.kind for d in compilation.warnings] == ["CheckedKernel"]
    assert np.array_equal(f(x=x)["y"], wanted)


@pytest.mark.parametrize("index", ["-1", "s0*s1", "s1*z_1 + 4096", "-9223372036854775808", "s1*z_1*4611686018427387904 + 7"])
def test_an_edited_store_outside_ends_the_call(index: str, made: Callable[[str], dict[str, Json]]) -> None:
    document = made("row_softmax")["loop"]
    (kernel,) = kernels(document)
    for store in every(kernel["body"], "store"):
        store["index"] = index
    compilation = prepare(document)
    f = build(compilation)
    assert [d.kind for d in compilation.warnings] == ["CheckedKernel"]
    with pytest.raises(TatamiError, match="OutOfBounds"):
        f(x=np.ones((4, 33), np.float32))


def test_an_edited_kernel_that_stays_inside_is_obeyed(made: Callable[[str], dict[str, Json]]) -> None:
    document = made("host_and_state")["loop"]
    (kernel,) = kernels(document)
    vector = next(s for s in kernel["body"][0]["body"] if s["s"] == "for")
    vector["step"] = 2 * vector["step"]
    f = build(prepare(document))
    cache, x = np.zeros((16, 4), np.float32), np.ones((16, 4), np.float32)
    f(cache=cache, x=x)
    assert 0 < cache.sum() < 64


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda k: k["face"].update(sizes=9), "InvalidExecution"),
        (lambda k: k["params"][0].update(noalias=not k["params"][0]["noalias"]), "derived again"),
        (lambda k: first(k["body"], "store")["value"].update(lanes=3), "Invalid"),
        (lambda k: k["body"].append({"s": "fault", "code": 99}), "fault 99"),
        (lambda k: k.update(about="other words"), "derived again"),
    ],
)
def test_what_a_kernel_promises_is_its_regions(edit: Any, why: str, made: Callable[[str], dict[str, Json]]) -> None:
    document = made("row_softmax")["loop"]
    edit(kernels(document)[0])
    assert why in refusal(document)


def test_kernels_that_call_routines_are_not_edited_without_trust(made: Callable[[str], dict[str, Json]]) -> None:
    document = made("wide_products")["loop"]
    kernel = kernels(document)[0]
    assert any(c["routine"] for c in every(kernel["body"], "call"))
    kernel["body"].append({"s": "fault", "code": 1})
    assert "Untrusted" in refusal(document)
    build(prepare(document, trust=True))


def test_a_guard_of_a_negative_size_never_holds(made: Callable[[str], dict[str, Json]]) -> None:
    for size in (-1, "A - 4096"):
        document = made("views_of_open_sizes")["region"]
        main = document["programs"]["main"]
        text = json.dumps(main)
        assert '"size": "A + 3"' in text
        document["programs"]["main"] = json.loads(text.replace('"size": "A + 3"', f'"size": {json.dumps(size)}'))
        compilation = prepare(document)
        arrays = {"x": np.ones((4, 5), np.float32), "y": np.ones((3, 5), np.float32)}
        expected = compilation.reference_run(arrays, {"A": 4, "B": 5}, mode="declared")
        got = build(compilation)(arrays)
        for name, value in got.items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-5)


# -- execution ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["wide_products", "branches_loops_calls", "constants_and_setup", "scattered_rows"])
def test_arguments_of_instructions_are_not_edited(name: str, made: Callable[[str], dict[str, Json]]) -> None:
    document = made(name)["execution"]
    instruction = next(i for i in document["programs"]["main"]["instructions"] if i["op"]["op"] == "launch")
    for argument in instruction["op"]["args"]:
        changed = copy.deepcopy(argument)
        argument |= {"value": 0} if argument["arg"] == "size" else {"buffer": instruction["outputs"][0]}
        if argument != changed:
            assert "InvalidExecution" in refusal(document)
        argument.clear()
        argument |= changed


def chain() -> tt.Graph:
    """Three kernels in a row with two buffers of the arena between."""
    g = tt.Graph("chain")
    x = g.input("x", (64, 64), tt.fp32)
    y = (x @ x).cumsum(0)
    g.output("y", (y @ x).cumsum(1))
    return g


def test_buffers_that_live_at_once_do_not_share_bytes_whatever_is_said_of_their_uses() -> None:
    from tatami.core.codec import to_builtins
    from tatami.storage.dump import to_document

    compilation = prepare(chain(), target="cpu:generic")
    document = to_builtins(to_document("execution", compilation.stages["execution"], compilation.target))
    (plan,) = document["programs"].values()
    arena = [dict(b) for b in plan["buffers"] if b["kind"] == "arena"]
    assert len(arena) > 1
    others = [b for b in plan["buffers"] if b["kind"] != "arena"]
    for b in arena:
        b |= {"last_use": b["first_use"], "arena_offset": 0}
    from tatami.core.codec import from_builtins
    from tatami.core.module import Module
    from tatami.execution.ir import ExecutionPlan
    from tatami.execution.verify import verify

    forged = from_builtins({**plan, "buffers": [*others, *arena]}, ExecutionPlan)
    assert any("is said to be used" in d.why for d in verify(Module({"main": forged})))


def test_sizes_of_a_call_fit_what_is_passed(made: Callable[[str], dict[str, Json]]) -> None:
    for stage in ("tiny", "region"):
        for sizes in ({"N": "N + 4096"}, {"N": "2*N"}, {"N": "N", "Q": "N"}):
            document = made("branches_loops_calls")[stage]
            for step in (*document["programs"]["main"].get("uops", ()), *document["programs"]["main"].get("body", ())):
                held = step.get("arg", step)
                if "sizes" in held:
                    held["sizes"] = dict(sizes)
            found = refusal(document)
            assert "AxisAlignmentMismatch" in found or "UnboundSymbol" in found


# -- routines ----------------------------------------------------------------------------------------


def test_routines_take_and_give_what_they_are_for(made: Callable[[str], dict[str, Json]]) -> None:
    document = made("gather_scan_sort")["tiny"]
    call = next(u for u in document["programs"]["main"]["uops"] if u["uop"] == "CALL")
    call["src"] = []
    assert "sort of 0 operands" in refusal(document)
    document = made("gather_scan_sort")["region"]
    opaque = next(r for r in document["programs"]["main"]["body"] if "opaque" in r)
    opaque["outputs"] = opaque["outputs"][:1]
    assert "sort of 1 operands to 1 results" in refusal(document)


def test_attributes_of_routines_are_of_their_types(made: Callable[[str], dict[str, Json]]) -> None:
    edits: dict[str, dict[str, tuple[object, ...]]] = {
        "gather_scan_sort": {"axis": (True, "0", 9), "descending": (1, [], "x")},
        "trees_of_decisions": {"how": ([], True, 3, -1, 0.5)},
    }
    for program, attributes in edits.items():
        for name, value in ((n, v) for n, values in attributes.items() for v in values):
            document = made(program)["tiny"]
            call = next(u["arg"] for u in document["programs"]["main"]["uops"] if u["uop"] == "CALL")
            call["attrs"][name] = value
            assert "InvalidAttribute" in refusal(document), (program, name, value)
            document = made(program)["region"]
            next(r for r in document["programs"]["main"]["body"] if "opaque" in r)["opaque"]["attrs"][name] = value
            assert "InvalidRegion" in refusal(document), (program, name, value)


def test_tables_of_trees_lead_nowhere_else(made: Callable[[str], dict[str, Json]]) -> None:
    import base64
    import hashlib

    for stage in ("frontend", "tiny", "region"):
        document = made("trees_of_decisions")[stage]
        name = next(n for n, c in document["constants"].items() if c["shape"] == [5, 4])
        table = np.frombuffer(base64.b64decode(document["constants"][name]["data"]), np.int32).reshape(5, 4).copy()
        for place, value in (((0, 2), 5000), ((0, 1), 77), ((1, 0), 3), ((2, 2), 0)):
            forged = table.copy()
            forged[place] = value
            data = forged.tobytes()
            constant = {"data": base64.b64encode(data).decode(), "sha256": hashlib.sha256(data).hexdigest()}
            document["constants"][name] |= constant
            assert "InvalidDocument" in refusal(document), (stage, place)
