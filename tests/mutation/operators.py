"""Mutants of a Python source: one change of its syntax tree each.

A verifier is a list of conditions, each with the report of a fault. Mutants of a report: it is lost, a condition holds
always or never, one operand of `and` or `or` is missing, a bound is off by one, a comparison looks one way only, a loop looks at
nothing, a case is forgotten. Texts of messages stay as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

REPORTS: Final = frozenset(
    {"diagnostic", "fault", "_fault", "_wrong", "wrong", "Diagnostic", "_diagnostic", "refuse", "_bad", "invalid_plan"}
)
"""Functions whose arguments are text for people."""

_COMPARISONS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE,),
    ast.LtE: (ast.Lt,),
    ast.Gt: (ast.GtE,),
    ast.GtE: (ast.Gt,),
}
_OF_NUMBERS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Eq: (ast.LtE, ast.GtE),
    ast.NotEq: (ast.Lt, ast.Gt),
}
_OPPOSITES: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_CALLS: Final = {"any": "all", "all": "any", "min": "max", "max": "min"}


@dataclass(frozen=True, eq=False)
class Mutant:
    """A change of the tree it was found in: `owner.field` (or one item of it) becomes `new`."""

    function: str
    """Qualified name of the function that it stands in, "" in the module."""
    lines: range
    """Lines of the statement, for the tests that reach it."""
    line: int
    what: str
    """The change in words: `a < b` → `a <= b`."""
    owner: ast.AST
    field: str
    index: int | None
    new: object

    def apply(self) -> None:
        """Change the tree, for good."""
        if self.index is None:
            setattr(self.owner, self.field, self.new)
        else:
            getattr(self.owner, self.field)[self.index] = self.new


def mutants(tree: ast.Module) -> list[Mutant]:
    """All changes of a module, in the order of its text, each told from others of its function by its words."""
    found = sorted(_Finder().statements(tree, "body", "", None), key=lambda m: m.line)
    count: dict[tuple[str, str], int] = {}
    out: list[Mutant] = []
    for m in found:
        n = count[m.function, m.what] = count.get((m.function, m.what), 0) + 1
        words = m.what if n == 1 else f"{m.what} ({n})"
        out.append(Mutant(m.function, m.lines, m.line, words, m.owner, m.field, m.index, m.new))
    return out


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 90 else f"{text[:60]} … {text[-27:]}"


def _constant(value: object, at: ast.AST) -> ast.expr:
    return ast.copy_location(ast.Constant(value), at)  # type: ignore[arg-type]


class _Finder:
    def __init__(self) -> None:
        self.function = ""
        self.lines = range(0)
        self.returns = ""

    def at(self, owner: ast.AST, field: str, index: int | None, new: object, line: int, what: str) -> Mutant:
        return Mutant(self.function, self.lines, line, what, owner, field, index, new)

    def swap(self, owner: ast.AST, field: str, index: int | None, old: ast.expr, new: ast.expr) -> Mutant:
        ast.fix_missing_locations(ast.copy_location(new, old))
        return self.at(owner, field, index, new, old.lineno, f"`{_short(old)}` → `{_short(new)}`")

    # -- statements ----------------------------------------------------------------------------

    def statements(self, owner: ast.AST, field: str, function: str, returns: str | None) -> Iterator[Mutant]:
        """Mutants of a block of statements. `returns`: result type of the function whose outermost block this is; None: an inner block."""
        for index, stmt in enumerate(getattr(owner, field)):
            if isinstance(stmt, ast.FunctionDef):
                yield from self.definition(stmt, function)
                continue
            if isinstance(stmt, ast.ClassDef):
                yield from self.statements(stmt, "body", f"{function}.{stmt.name}".strip("."), None)
                continue
            self.function = function
            last = stmt.lineno if hasattr(stmt, "body") or isinstance(stmt, ast.Match) else stmt.end_lineno or stmt.lineno
            self.lines = range(stmt.lineno, last + 1)
            if self.can_go(stmt, nested=returns is None and function != ""):
                gone = ast.copy_location(ast.If(_constant(False, stmt), [stmt], []), stmt)
                yield self.at(owner, field, index, gone, stmt.lineno, f"without `{_short(stmt)}`")
            yield from self.statement(stmt, function)

    def definition(self, f: ast.FunctionDef, function: str) -> Iterator[Mutant]:
        before = self.returns
        name = f"{function}.{f.name}".strip(".")
        self.function, self.lines = name, range(f.lineno, f.body[0].lineno)
        for defaults in ("defaults", "kw_defaults"):
            for index, value in enumerate(getattr(f.args, defaults)):
                if value is not None:
                    yield from self.expression(f.args, defaults, index, value)
        self.returns = ast.unparse(f.returns) if f.returns is not None else ""
        yield from self.statements(f, "body", name, self.returns)
        self.returns = before

    def can_go(self, stmt: ast.stmt, nested: bool) -> bool:
        match stmt:
            case ast.Expr(value=ast.Call(func=ast.Name("assert_never"))):
                return False
            case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()) | ast.AugAssign() | ast.Continue() | ast.Break():
                return True
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                return True
            case ast.Return():
                return nested
        return False

    def statement(self, stmt: ast.stmt, function: str) -> Iterator[Mutant]:
        match stmt:
            case ast.If() | ast.While():
                lone = isinstance(stmt, ast.If) and len(stmt.body) == 1 and not stmt.orelse and self.can_go(stmt.body[0], True)
                self.lines = range(stmt.lineno, (stmt.test.end_lineno or stmt.lineno) + 1)
                wanted = () if lone else (False,)
                yield from self.condition(
                    stmt, "test", None, stmt.test, wanted if isinstance(stmt, ast.While) else (*wanted, True)
                )
                for block in ("body", "orelse"):
                    yield from self.statements(stmt, block, function, None)
            case ast.For():
                self.lines = range(stmt.lineno, (stmt.iter.end_lineno or stmt.lineno) + 1)
                yield self.swap(stmt, "iter", None, stmt.iter, ast.Tuple([], ast.Load()))
                yield from self.expression(stmt, "iter", None, stmt.iter)
                yield from self.statements(stmt, "body", function, None)
                yield from self.statements(stmt, "orelse", function, None)
            case ast.Match():
                yield from self.cases(stmt, function)
            case ast.Try():
                for block in ("body", "orelse", "finalbody"):
                    yield from self.statements(stmt, block, function, None)
                for handler in stmt.handlers:
                    yield from self.statements(handler, "body", function, None)
            case ast.With():
                yield from self.statements(stmt, "body", function, None)
            case ast.Return(value=value) if value is not None:
                yield from self.result(stmt, value)
                yield from self.expression(stmt, "value", None, value)
            case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.Raise() | ast.Assert():
                return
            case _:
                for name, value in ast.iter_fields(stmt):
                    if isinstance(value, ast.expr) and name not in ("target", "annotation"):
                        yield from self.expression(stmt, name, None, value)

    def result(self, stmt: ast.Return, value: ast.expr) -> Iterator[Mutant]:
        if isinstance(value, ast.Constant | ast.List):
            return
        if self.returns == "bool":
            for known in (True, False):
                yield self.swap(stmt, "value", None, value, ast.Constant(known))
        elif self.returns.startswith("list["):
            yield self.swap(stmt, "value", None, value, ast.List([], ast.Load()))

    def cases(self, stmt: ast.Match, function: str) -> Iterator[Mutant]:
        lines = range(stmt.lineno, stmt.lineno + 1)
        for case in stmt.cases:
            self.function, self.lines = function, lines
            wild = isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None
            if not wild:
                never = _constant(False, case.pattern)
                yield self.at(case, "guard", None, never, case.pattern.lineno, f"without `case {_short(case.pattern)}`")
            if isinstance(case.pattern, ast.MatchOr):
                for k, one in enumerate(case.pattern.patterns):
                    rest = [p for j, p in enumerate(case.pattern.patterns) if j != k]
                    yield self.at(case.pattern, "patterns", None, rest, one.lineno, f"without `| {_short(one)}`")
            if case.guard is not None:
                yield from self.condition(case, "guard", None, case.guard, (True, False))
            yield from self.statements(case, "body", function, None)

    # -- expressions ---------------------------------------------------------------------------

    def condition(
        self, owner: ast.AST, field: str, index: int | None, test: ast.expr, values: tuple[bool, ...]
    ) -> Iterator[Mutant]:
        """A condition holds always or never, but for what a missing operand shows already."""
        if isinstance(test, ast.BoolOp):
            values = tuple(v for v in values if v is not isinstance(test.op, ast.And))
        if not isinstance(test, ast.Constant):
            for value in values:
                yield self.swap(owner, field, index, test, ast.Constant(value))
        yield from self.expression(owner, field, index, test, decides=True)

    def expression(self, owner: ast.AST, field: str, index: int | None, e: ast.expr, decides: bool = False) -> Iterator[Mutant]:
        """Mutants of an expression. `decides`: True if `e` is a condition or an operand of one, so that its opposite shows no more than dropping it."""
        inner = False
        match e:
            case ast.JoinedStr() | ast.Lambda(body=ast.JoinedStr()):
                return
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in REPORTS:
                return
            case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
                yield self.swap(owner, field, index, e, ast.Call(ast.Name(_CALLS[name], ast.Load()), e.args, e.keywords))
            case ast.BoolOp():
                inner = decides
                for k in range(len(e.values)):
                    rest = [v for j, v in enumerate(e.values) if j != k]
                    yield self.swap(owner, field, index, e, rest[0] if len(rest) == 1 else ast.BoolOp(e.op, rest))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = decides
                if not decides:
                    yield self.swap(owner, field, index, e, operand)
            case ast.Compare(ops=[op]):
                yield from self.comparison(owner, field, index, e, op, decides)
            case ast.Compare():
                for k, op in enumerate(e.ops):
                    for other in _COMPARISONS.get(type(op), ()):
                        ops = [*e.ops[:k], other(), *e.ops[k + 1 :]]
                        yield self.swap(owner, field, index, e, ast.Compare(e.left, ops, e.comparators))
            case ast.BinOp(op=op) if type(op) in _ARITHMETIC and not _is_sequence(e.left) and not _is_sequence(e.right):
                yield self.swap(owner, field, index, e, ast.BinOp(e.left, _ARITHMETIC[type(op)](), e.right))
            case ast.Constant(value=bool() as value):
                yield self.swap(owner, field, index, e, ast.Constant(not value))
            case ast.Constant(value=int() as value):
                for near in (value + 1, value - 1):
                    yield self.swap(owner, field, index, e, ast.Constant(near))
            case ast.IfExp():
                yield from self.condition(e, "test", None, e.test, (True, False))
                yield from self.expression(e, "body", None, e.body)
                yield from self.expression(e, "orelse", None, e.orelse)
                return
            case ast.Tuple() | ast.List() | ast.Set() if len(e.elts) > 1 and all(isinstance(x, ast.Constant) for x in e.elts):
                for k, gone in enumerate(e.elts):
                    kept = type(e)(**{**dict(ast.iter_fields(e)), "elts": [x for j, x in enumerate(e.elts) if j != k]})
                    ast.fix_missing_locations(ast.copy_location(kept, e))
                    yield self.at(owner, field, index, kept, gone.lineno, f"without {_short(gone)} of `{_short(e)}`")
                return
        if isinstance(e, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            yield from self.comprehension(e)
            return
        for name, value in ast.iter_fields(e):
            if isinstance(value, ast.expr):
                yield from self.expression(e, name, None, value, inner)
            elif isinstance(value, list):
                for k, item in enumerate(value):
                    if isinstance(item, ast.expr):
                        yield from self.expression(e, name, k, item, inner)
                    elif isinstance(item, ast.keyword) and item.arg != "strict":
                        yield from self.expression(item, "value", None, item.value)

    def comparison(
        self, owner: ast.AST, field: str, index: int | None, e: ast.Compare, op: ast.cmpop, decides: bool
    ) -> Iterator[Mutant]:
        others = list(_COMPARISONS.get(type(op), ()))
        if _is_number(e.left) or _is_number(e.comparators[0]):
            others += _OF_NUMBERS.get(type(op), ())
        if not decides and type(op) in _OPPOSITES:
            others.append(_OPPOSITES[type(op)])
        for other in others:
            yield self.swap(owner, field, index, e, ast.Compare(e.left, [other()], e.comparators))

    def comprehension(self, e: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> Iterator[Mutant]:
        for name in ("elt", "key", "value"):
            if isinstance(value := getattr(e, name, None), ast.expr):
                yield from self.expression(e, name, None, value)
        for g in e.generators:
            yield self.swap(g, "iter", None, g.iter, ast.Tuple([], ast.Load()))
            yield from self.expression(g, "iter", None, g.iter)
            for k, test in enumerate(g.ifs):
                yield from self.condition(g, "ifs", k, test, (True,))


def _is_sequence(e: ast.expr) -> bool:
    return isinstance(e, ast.List | ast.Tuple | ast.JoinedStr | ast.ListComp) or (
        isinstance(e, ast.Constant) and isinstance(e.value, str)
    )


def _is_number(e: ast.expr) -> bool:
    """True if the expression is a count: `len(…)`, `sum(…)`, a number but 0."""
    if isinstance(e, ast.Call):
        return isinstance(e.func, ast.Name) and e.func.id in ("len", "sum")
    return isinstance(e, ast.Constant) and type(e.value) is int and e.value not in (0,)
