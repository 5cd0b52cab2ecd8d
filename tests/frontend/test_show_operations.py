"""docs/operations.md is printed from the table; each test it names exists and exercises its operation."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

import tatami as tt
from tatami.frontend.graph_api.spellings import SPELLINGS
from tatami.frontend.ops import OPS
from tatami.frontend.show_operations import show_operations
from tests.frontend.test_compiled import NAMES
from tests.frontend.test_meaning import built
from tests.random_models.generated_graphs import drawn_operations

ROOT = Path(__file__).parents[2]
BODY = "`tests/rows/test_custom_kernel.py`"


@cache
def cited() -> dict[str, str]:
    """Operation -> the test whose graph has it most often: found by building the graphs."""
    pytest.importorskip("torch")
    from tests.frontend.oracles import test_oracles  # noqa: F401  its imports fill ORACLES
    from tests.frontend.oracles.oracle import ORACLES, Oracle

    sizes: dict[str, tuple[int, str]] = {}
    for name, fill in ORACLES.items():
        o = Oracle()
        fill(o)
        drawn = drawn_operations(o.g.module())
        for op, count in drawn.items():
            sizes[op] = max(sizes.get(op, (0, "")), (count, f"`tests/frontend/oracles/test_oracles.py[{name}]`"))
    for case in NAMES:
        for op in drawn_operations(built(case)[0]):
            sizes.setdefault(op, (0, f"`test_compiled.py[{case}]`"))
    return {**{op: where for op, (_, where) in sizes.items()}, "kernel_body": BODY}


def test_the_page_is_current(update_golden: bool) -> None:
    page = ROOT / "docs" / "operations.md"
    if update_golden:
        page.write_text(show_operations(cited()))
    assert page.read_text() == show_operations(cited())


def test_every_operation_is_exercised_by_a_test() -> None:
    assert OPS.keys() <= cited().keys(), OPS.keys() - cited().keys()


def test_every_test_the_page_names_exists() -> None:
    for path, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / "docs" / "operations.md").read_text()):
        source = (ROOT / path).read_text()
        assert not name or f"def {name}(" in source, (path, name)


@pytest.mark.parametrize("op", SPELLINGS)
def test_the_python_of_an_operation_makes_it(op: str) -> None:
    g = tt.Graph("g")
    f = g.subgraph("f")
    f.output("r", f.input("a", ("N", "N"), tt.fp32) * 2.0)
    names = {"g": g, "f": f, "tt": tt, "abs": abs, "k": g.input("k", (), tt.u64), "i": g.input("i", (3,), tt.i64)}
    for letters, dtype in (("xy", tt.fp32), ("nm", tt.i32), ("bc", tt.bool)):
        names |= {letter: g.input(letter, ("N", "N"), dtype) for letter in letters}
    eval(SPELLINGS[op], {"__builtins__": {}}, names)
    assert op in {node.op for node in g.nodes}
