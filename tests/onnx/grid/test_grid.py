"""The grid of ONNX operators (docs/onnx-grid.md): that it leaves nothing out, and a share of it."""

from __future__ import annotations

import os

import pytest
from onnx import AttributeProto, helper

from tatami.backends.onnx_api import OnnxBackend
from tatami.core.diagnostic import TatamiError
from tests.onnx.grid.cases import Case, cases, model
from tests.onnx.grid.known import DISAGREEMENTS, FAILING
from tests.onnx.grid.report import PAGE, share_of, tables, unexpected
from tests.onnx.grid.rows import ROWS
from tests.onnx.grid.run import verdicts
from tests.onnx.grid.schema import ENUMERATED, history

SHARE = os.environ.get("TATAMI_GRID_SHARE", "1/40")
"""The part that a test run takes: about 350 cases, 20 s of one core."""
FREE = {
    ("Constant", "sparse_value"): "sparse tensors have no import",
    ("Constant", "value_string"): "strings",
    ("Constant", "value_strings"): "strings",
    ("TfIdfVectorizer", "pool_strings"): "strings",
    ("StringNormalizer", "locale"): "strings",
    ("Optional", "type"): "the type of an empty optional value",
    ("Conv", "kernel_shape"): "said by the weight",
    ("ConvTranspose", "kernel_shape"): "said by the weight",
    ("ConvInteger", "kernel_shape"): "said by the weight",
    ("QLinearConv", "kernel_shape"): "said by the weight",
    ("DeformConv", "kernel_shape"): "said by the weight",
}
"""Attributes that keep one value, and why."""


@pytest.fixture(scope="module")
def every() -> list[Case]:
    return cases()


def test_every_operator_and_version_has_cases(every: list[Case]) -> None:
    wanted = {f"{name}-{s.since_version}" for name, schemas in history().items() for s in schemas}
    missing = wanted - {f"{c.op}-{c.version}" for c in every}
    assert missing <= NOT_BUILT, sorted(missing - NOT_BUILT)
    assert set(ROWS) <= set(history())


NOT_BUILT = {"Scan-8"}
"""Versions without cases. Scan of opset 8 has a batch axis, and a first operand that is empty."""


def test_every_attribute_takes_each_of_its_values(every: list[Case]) -> None:
    given: dict[tuple[str, str], set[str]] = {}
    for case in every:
        for name, value in case.attrs.items():
            given.setdefault((case.op, name), set()).add(str(value)[:80])
    forgotten = []
    for op, schemas in history().items():
        for name in schemas[-1].attributes:
            values = given.get((op, name), set())
            if (op, name) not in FREE and not (values and {str(v) for v in ENUMERATED.get(name, ())} <= values):
                forgotten.append(f"{op}.{name}: {sorted(values)}")
    assert not forgotten, forgotten


def test_the_page_says_what_is_known() -> None:
    assert PAGE.read_text().endswith(tables()), "python -m tests.onnx.grid --tables"


def test_everything_known_is_of_some_case(every: list[Case]) -> None:
    idle = [f"{k.ops} {k.labels}" for k in (*DISAGREEMENTS, *FAILING) if not any(k.has(c) for c in every)]
    assert not idle


def test_a_share_of_the_grid(every: list[Case]) -> None:
    wrong = unexpected(verdicts(share_of(every, SHARE)))
    assert not wrong, "\n".join(f"{v.outcome}: {v.case.name}: {v.why}" for v in wrong)


WORDS = sorted(
    (op, name) for op, schemas in history().items() for name, a in schemas[-1].attributes.items() if name in ENUMERATED and a.type == AttributeProto.STRING
)  # fmt: skip


@pytest.mark.parametrize(("op", "name"), WORDS)
def test_no_word_stands_for_another(op: str, name: str) -> None:
    """An attribute with a word that the operator does not know is refused: it does not fall through to some other meaning."""
    newest = history()[op][-1].since_version
    case = next(c for c in cases(op) if c.version == newest and (name in c.attrs or history()[op][-1].attributes[name]))
    made, feeds, _ = model([case])
    node = next(n for n in made.graph.node if n.op_type == op)
    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, "nonsense")])
    with pytest.raises(TatamiError):
        OnnxBackend.prepare(made, threads=1).run(feeds)
