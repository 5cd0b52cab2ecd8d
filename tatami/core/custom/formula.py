"""A scalar formula over placeholders: what a custom kernel computes at every element (spec 1 "Kernel").

    input0 * 2 + ridx1      input0: the element of operand 0    ridx1: the index along axis 1    shape1: that axis's size

As read (`core/custom/formula_text.py`) a formula is a table of terms without types. `typed` decides them:

- Elements have their tensor's dtype, and two of them meet in one dtype only: nothing is cast silently (D2.17).
- Numbers, `ridx` and `shape` are loose: they become the dtype of what they meet. Among themselves whole numbers are
  i64 and fractions fp64, and a whole formula of them is i64 or fp32. `/` of integers truncates, as everywhere.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, assert_never

import msgspec

from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.ops import OPS, result_dtype
from tatami.core.scalar import Scalar, number, scalar

# -- as read -------------------------------------------------------------------------------------


class Number(msgspec.Struct, frozen=True, tag_field="t", tag="number"):
    """A constant: a number, or True or False."""

    value: Scalar


class Placeholder(msgspec.Struct, frozen=True, tag_field="t", tag="placeholder"):
    """The element of an operand, the index along an axis, or the size of an axis, number `index` of each."""

    kind: Literal["input", "ridx", "shape"]
    index: int


class Apply(msgspec.Struct, frozen=True, tag_field="t", tag="apply"):
    """A scalar op of `core.ops` over earlier terms."""

    fn: str
    args: tuple[int, ...]


class Convert(msgspec.Struct, frozen=True, tag_field="t", tag="convert"):
    """The term `arg` cast to the dtype `to`."""

    to: DType
    arg: int


Term: TypeAlias = Number | Placeholder | Apply | Convert


class Formula(msgspec.Struct, frozen=True):
    """Terms in the order of evaluation; the last is the value. `places` are their positions in `text`."""

    text: str
    terms: tuple[Term, ...]
    places: tuple[int, ...]


# -- with types ----------------------------------------------------------------------------------


class TypedTerm(msgspec.Struct, frozen=True):
    """`args` are positions in the typed table. A Convert casts its operand to `dtype`; ridx and shape are i64."""

    term: Term
    dtype: DType
    args: tuple[int, ...] = ()


class _Value(msgspec.Struct, frozen=True):
    """The place of a term's value in the table, and True if its dtype is still loose."""

    at: int
    loose: bool


def typed(formula: Formula, inputs: tuple[DType, ...], rank: int, at: str) -> tuple[TypedTerm, ...]:
    """The table of typed terms for operands of dtypes `inputs` and an index space of `rank` axes. Raises TatamiError with the
    place in the text."""
    return _Typing(formula, inputs, rank, at).table()


class Spot(NamedTuple):
    """A place in a user's text. `at`: the thing whose text it is; `place`: position of the character."""

    at: str
    text: str
    place: int = 0


def fault(kind: str, spot: Spot, why: str, suggestion: str) -> TatamiError:
    """A diagnostic about one place of a text: line, column, and the line with a caret."""
    at, text, place = spot
    before = text[:place]
    line, column = before.count("\n"), place - (before.rfind("\n") + 1)
    first = max(column - 60, 0)
    shown = text.split("\n")[line][first : first + 100]
    lead = "".join(c if c == "\t" else " " for c in shown[: column - first])
    return fail(
        kind,
        f"{at}, line {line + 1} column {column + 1}",
        f"{why}\n    {shown}\n    {lead}^",
        suggestion,
        line=line + 1,
        column=column + 1,
    )


def absent_placeholder(word: str, stem: str, count: int, what: str) -> tuple[str, str]:
    """(why a placeholder does not exist, which ones do). `what`: operand, result or axis; `count`: how many there are."""
    things = {"operand": "operands", "axis": "axes", "result": "results"}[what]
    names = ", ".join(f"{stem}{k}" for k in range(min(count, 4))) + (", …" if count > 4 else "")
    hint = f"use {names}" if count else f"there is no {stem} placeholder here"
    if what == "operand":
        hint += f", or pass {int(word[len(stem) :].split('_')[0]) + 1} operands"
    return f"{word}: the kernel has {count} {what if count == 1 else things}", hint


class _Typing:
    def __init__(self, formula: Formula, inputs: tuple[DType, ...], rank: int, at: str) -> None:
        self.formula = formula
        self.inputs = inputs
        self.rank = rank
        self.at = at
        self.made: list[TypedTerm] = []
        self.known: dict[TypedTerm, int] = {}

    def table(self) -> tuple[TypedTerm, ...]:
        values: list[_Value] = []
        for i in range(len(self.formula.terms)):
            values.append(self.term(i, values))
        last = values[-1]
        if last.loose and self.made[last.at].dtype == DType.fp64:
            last = _Value(self.convert(last.at, DType.fp32), False)
        return tuple(self.made[: last.at + 1])

    def fault(self, i: int, kind: str, why: str, suggestion: str) -> TatamiError:
        return fault(kind, Spot(self.at, self.formula.text, self.formula.places[i]), why, suggestion)

    def add(self, term: TypedTerm) -> int:
        key = msgspec.structs.replace(term, term=Number(repr(term.term.value))) if isinstance(term.term, Number) else term
        if key not in self.known:  # 1, 1.0 and True are equal in Python
            self.known[key] = len(self.made)
            self.made.append(term)
        return self.known[key]

    def term(self, i: int, values: list[_Value]) -> _Value:
        term = self.formula.terms[i]
        match term:
            case Number(value=value):
                whole = isinstance(value, int)
                dtype = DType.bool if isinstance(value, bool) else DType.i64 if whole else DType.fp64
                return _Value(self.add(TypedTerm(term, dtype)), dtype != DType.bool)
            case Placeholder(kind="input", index=index):
                if index >= len(self.inputs):
                    raise self.out_of_range(i, term, len(self.inputs), "operand")
                return _Value(self.add(TypedTerm(term, self.inputs[index])), False)
            case Placeholder(index=index):
                if index >= self.rank:
                    raise self.out_of_range(i, term, self.rank, "axis")
                return _Value(self.add(TypedTerm(term, DType.i64)), True)
            case Convert(to=to, arg=arg):
                return _Value(self.convert(values[arg].at, to), False)
            case Apply(fn=fn, args=args):
                return self.apply(i, fn, [values[a] for a in args])
            case _:
                assert_never(term)

    def out_of_range(self, i: int, term: Placeholder, count: int, what: str) -> TatamiError:
        word = f"{term.kind}{term.index}"
        why, hint = absent_placeholder(word, term.kind, count, what)
        return self.fault(i, "UnknownValue", why, hint)

    def convert(self, at: int, to: DType) -> int:
        have = self.made[at]
        if have.dtype == to:
            return at
        if isinstance(have.term, Number):
            from tatami.core.numbers.numerics import constant

            return self.add(TypedTerm(Number(_folded(constant(number(have.term.value), to).item(), to)), to))
        return self.add(TypedTerm(Convert(to, at), to, (at,)))

    def apply(self, i: int, fn: str, args: list[_Value]) -> _Value:
        op = OPS["idiv" if fn == "div" and not self.is_fraction(args) else fn]
        condition, operands = (args[:1], args[1:]) if op.rule == "select" else ([], args)
        dtype, loose = self.meet(i, fn, operands)
        if op.rule in ("float", "test") and loose:
            dtype = DType.fp64
        at = [*(a.at for a in condition), *(self.convert(a.at, dtype) for a in operands)]
        dtypes = tuple(self.made[a].dtype for a in at)
        result = result_dtype(op, dtypes)
        if result is None:
            given = " and ".join(dict.fromkeys(str(d) for d in dtypes))
            raise self.fault(i, "UnsupportedDType", f"{fn} of {given} is not defined", _RULES[op.rule])
        constants = [t.term.value for a in at if isinstance((t := self.made[a]).term, Number)]
        if len(constants) == len(at):
            return self.fold(i, op.name, constants, dtypes, result, loose)
        term = TypedTerm(Apply(op.name, tuple(at)), result, tuple(at))
        return _Value(self.add(term), loose and result not in (DType.bool,))

    def is_fraction(self, args: list[_Value]) -> bool:
        return any(self.made[a.at].dtype.is_float for a in args)

    def meet(self, i: int, fn: str, args: list[_Value]) -> tuple[DType, bool]:
        """The common dtype of the operands of an op, and True if it is still loose."""
        firm = list(dict.fromkeys(self.made[a.at].dtype for a in args if not a.loose))
        loose = [self.made[a.at].dtype for a in args if a.loose]
        if len(firm) > 1:
            narrow, wide = sorted(firm, key=lambda d: (d.is_float, d.itemsize))[:2]
            raise self.fault(
                i,
                "DTypeMismatch",
                f"{fn} of {' and '.join(map(str, firm))}",
                f"cast one of them: {wide}(…) of the {narrow} value",
            )
        if not firm:
            return (DType.fp64 if DType.fp64 in loose else DType.i64), True
        if DType.fp64 in loose and not firm[0].is_float:
            raise self.fault(
                i, "DTypeMismatch", f"{fn} of {firm[0]} and a fraction", "cast the whole number first, for example fp32(…)"
            )
        if loose and firm[0] == DType.bool:
            raise self.fault(i, "DTypeMismatch", f"{fn} of bool and a number", "cast the bool first, for example i32(…)")
        return firm[0], False

    def fold(self, i: int, fn: str, values: list[Scalar], dtypes: tuple[DType, ...], result: DType, loose: bool) -> _Value:
        """The value of an op over constants. Raises TatamiError for a quotient of whole numbers that is not whole: it is more
        likely a slip than meant."""
        a, b = number(values[0]), number(values[-1])
        if self.formula.terms[i] == Apply("div", getattr(self.formula.terms[i], "args", ())) and fn == "idiv" and b and a % b:
            hint = f"write {a}.0/{b} for the fraction, idiv({a}, {b}) for the whole number"
            raise self.fault(i, "InvalidAttribute", f"{a}/{b} of whole numbers is {int(a / b)}", hint)
        from tatami.core.numbers.numerics import apply, constant  # numpy, which reading a graph does not need

        got = apply(fn, [constant(number(v), d) for v, d in zip(values, dtypes)], result).item()
        return _Value(self.add(TypedTerm(Number(_folded(got, result)), result)), loose and result != DType.bool)


def _folded(value: bool | int | float, dtype: DType) -> Scalar:
    return scalar(float(value) if dtype.is_float else bool(value) if dtype == DType.bool else int(value))


_RULES = {
    "same": "it takes numbers: cast the bool, for example i32(…)",
    "signed": "it takes signed numbers: cast the operand, for example i32(…)",
    "float": "it takes floats: cast the operand, for example fp32(…)",
    "compare": "compare values of one dtype",
    "logic": "it takes bool: compare with 0 first",
    "int": "it takes integers: cast the operand, for example i32(…)",
    "bits": "it takes integers and bool: cast the operand, for example i32(…)",
    "select": "its first operand is a condition (bool), the others have one dtype",
    "test": "it takes floats: cast the operand, for example fp32(…)",
}
