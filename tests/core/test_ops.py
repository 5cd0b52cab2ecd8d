"""A scalar operation is one row, with every cell filled, and no other table of operations says what a row says (decision 0060)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tatami.c.kernels.definitions import MAKERS
from tatami.c.kernels.needs import Needs
from tatami.c.kernels.scalar_ops import op_text
from tatami.core.dtype import DType
from tatami.core.numbers.numerics import FUNCTIONS
from tatami.core.ops import DEFINED, EACH, INLINE, LANE, OPS, REDUCE_OPS, CFunction, ScalarOp, result_dtype
from tatami.cu.expr_text import binary_text, unary_text

PACKAGE = Path(__file__).parents[2] / "tatami"
HEADER = "".join(p.read_text() for p in (PACKAGE / "cu" / "header").glob("*.cuh"))
OPERATOR = re.compile(r"[-+*/!~&|^<>=]{1,2}")


def faults(op: ScalarOp) -> Iterator[str]:
    """The columns of a row whose cell is missing, or names what does not exist."""
    if not op.doc:
        yield "doc"
    if op.flops < 1:
        yield "flops"
    if not re.fullmatch(r"(np|numerics)\.\w+", op.numpy):
        yield "numpy"
    if isinstance(op.c, CFunction):
        yield from (f"c.{name}" for name in ("fp64", "vectors", "fp32") if not getattr(op.c, name))
        if op.c.vectors == EACH and (op.c.fp32 == LANE or op.c.by_fours):
            yield "c.fp32"
    elif op.c not in (INLINE, DEFINED) and not OPERATOR.fullmatch(op.c):
        yield "c"
    called = op.cuda.removeprefix("tt_")
    if called != op.cuda:
        if not re.search(rf"\btt_{called}\(|TT_FLOAT_FUNCTION\({called}\)", HEADER):
            yield "cuda"
    elif op.cuda != INLINE and not OPERATOR.fullmatch(op.cuda):
        yield "cuda"


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_every_cell_is_filled(op: ScalarOp) -> None:
    assert not list(faults(op))
    assert callable(FUNCTIONS[op.name])


@pytest.mark.parametrize(
    ("row", "column", "missing"),
    [
        ("exp", "doc", ""),
        ("exp", "flops", 0),
        ("exp", "numpy", ""),
        ("exp", "cuda", ""),
        ("exp", "cuda", "tt_expo"),
        ("add", "c", ""),
        ("add", "cuda", "plus"),
        ("exp", "c.fp64", CFunction("", "exp")),
        ("exp", "c.vectors", CFunction("exp", "")),
        ("sqrt", "c.fp32", CFunction("sqrt", EACH)),
    ],
)
def test_a_missing_cell_is_found(row: str, column: str, missing: object) -> None:
    field = column.partition(".")[0]
    assert column in set(faults(msgspec.structs.replace(OPS[row], **{field: missing})))


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_every_op_has_text_for_every_dtype_it_takes(op: ScalarOp) -> None:
    for dtype in (d for d in DType if d != DType.unknown):
        operands = (DType.bool, dtype, dtype) if op.rule == "select" else (dtype,) * op.arity
        if (out := result_dtype(op, operands)) is None:
            continue
        for lanes in (1, 4, 8, 16):
            assert op_text(op.name, dtype, lanes, ["a", "b", "c"][: op.arity], Needs(MAKERS))
        if op.arity == 1:
            assert unary_text(op.name, ("a", dtype))[1] == out
        if op.arity == 2:
            assert binary_text(op.name, ("a", dtype), ("b", dtype))[1] == out


def test_what_costs_more_than_an_addition_is_costly() -> None:
    costly = {op.name for op in OPS.values() if op.is_costly}
    functions = {op.name for op in OPS.values() if op.is_function}
    assert costly - functions == {"div", "idiv", "rem", "mod", "sqrt", "rsqrt", "recip"}
    assert all(isinstance(OPS[name].c, CFunction) for name in functions)


COMBINED = {*REDUCE_OPS, "set", "add", "mul"}
"""Words of reduces and of writes, some of which are operations too."""
OWN_WORDS = {"core/ops.py", "core/algebra/expr_text.py"}
"""The table itself; words of index expressions, three of which are operations too."""
LAYERS_WITH_COLUMNS = ("core", "plan", "loop", "gpu", "execution", "c", "cu", "emulated", "runtime")


def tables(text: str) -> Iterator[tuple[int, list[str]]]:
    """Line and words of each dict, set, list, tuple, or text of words, that lists three scalar operations or more."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Dict(keys=listed) | ast.Set(elts=listed) | ast.List(elts=listed) | ast.Tuple(elts=listed):
                words = [x.value for x in listed if isinstance(x, ast.Constant) and isinstance(x.value, str)]
            case ast.Constant(value=str() as words_of_text) if re.fullmatch(r"(\w+ )+\w+", words_of_text):
                words = words_of_text.split()
            case _:
                continue
        ops = [w for w in words if w in OPS]
        if len(ops) >= 3 and 2 * len(ops) > len(words) and not set(words) <= COMBINED:
            yield node.lineno, words


@pytest.mark.parametrize("layer", LAYERS_WITH_COLUMNS)
def test_no_other_module_has_a_table_of_operations(layer: str) -> None:
    files = [p for p in sorted((PACKAGE / layer).rglob("*.py")) if str(p.relative_to(PACKAGE)) not in OWN_WORDS]
    found = [f"{p.relative_to(PACKAGE)}:{line}: {words}" for p in files for line, words in tables(p.read_text())]
    assert not found, "a column of core/ops.py says it: " + "; ".join(found)


@pytest.mark.parametrize(
    "planted",
    ['HEAVY = frozenset(["exp", "log", "div"])', '_FUNCTIONS = "exp log sin"', 'T = {"floor": "f", "ceil": "c", "exp": "e"}'],
)
def test_a_planted_table_is_found(planted: str) -> None:
    assert list(tables(planted))
    assert not list(tables('T = {"add": 1, "mul": 2, "max": 3, "min": 4}'))
