"""Integer expressions over sizes and axes: the algebra every layer rests on.

An `Expr` is a sum of products with integer coefficients over *atoms*: a variable, `floor(num / den)`,
`min(...)`, `max(...)`. It is kept in one normal form, so structural equality is algebraic equality for
polynomials: ``N*4 == 4*N``. A `Size` is an Expr over size symbols only; an axis expression also
names axes. Both are this one type: whether a name is an axis is known from its context (the axes of the
value or let it stands in), never from its spelling.

`a mod b` has no node of its own: it is ``a - b*floor(a/b)`` (spec 3 §4.2). Denominators are positive.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal, TypeAlias, assert_never

from tatami.core.algebra.expr_text import Operation, read


class Var:
    """A size symbol or an axis."""

    __slots__ = ("_hash", "name")

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self._hash = hash(("var", name))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Var) and other.name == self.name)

    def __str__(self) -> str:
        return self.name


class Floor:
    """``floor(num / den)``, rounding to minus infinity; `den` is positive."""

    __slots__ = ("_hash", "_text", "den", "num")

    def __init__(self, num: Expr, den: Expr) -> None:
        self.num: Final = num
        self.den: Final = den
        self._hash = hash(("floor", num, den))
        self._text: str | None = None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Floor) and other._hash == self._hash and other.num == self.num and other.den == self.den
        )

    def __str__(self) -> str:
        if self._text is None:
            self._text = f"{_factor(self.num)}//{_factor(self.den)}"
        return self._text


class Extreme:
    """``min(args)`` or ``max(args)``."""

    __slots__ = ("_hash", "args", "kind")

    def __init__(self, kind: Literal["min", "max"], args: tuple[Expr, ...]) -> None:
        self.kind: Final = kind
        self.args: Final = args
        self._hash = hash((kind, args))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Extreme) and other.kind == self.kind and other.args == self.args)

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(str(a) for a in self.args)})"


Atom: TypeAlias = Var | Floor | Extreme
Monomial: TypeAlias = tuple[Atom, ...]


class Expr:
    """A sum of terms ``coefficient * monomial`` in normal form. Immutable and hashable."""

    __slots__ = ("_hash", "_text", "names", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms: Final = terms
        self._hash = hash(terms)
        self._text: str | None = None
        self.names: frozenset[str] | None = None
        """Names of all variables, once `free_vars` has found them."""

    # -- identity ------------------------------------------------------------------------------
    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, int):
            return self.as_int() == other
        return isinstance(other, Expr) and self._hash == other._hash and self.terms == other.terms

    def __str__(self) -> str:
        if self._text is None:
            self._text = _text(self)
        return self._text

    def __repr__(self) -> str:
        return f"Expr({str(self)!r})"

    # -- arithmetic ----------------------------------------------------------------------------
    def __add__(self, other: IntoExpr) -> Expr:
        return _combine(self, other if isinstance(other, Expr) else expr(other), 1)

    def __sub__(self, other: IntoExpr) -> Expr:
        return _combine(self, other if isinstance(other, Expr) else expr(other), -1)

    def __mul__(self, other: IntoExpr) -> Expr:
        return _product(self, other if isinstance(other, Expr) else expr(other))

    def __floordiv__(self, other: IntoExpr) -> Expr:
        return floordiv(self, expr(other))

    def __mod__(self, other: IntoExpr) -> Expr:
        return mod(self, expr(other))

    def __radd__(self, other: IntoExpr) -> Expr:
        return expr(other) + self

    def __rsub__(self, other: IntoExpr) -> Expr:
        return expr(other) - self

    def __rmul__(self, other: IntoExpr) -> Expr:
        return expr(other) * self

    def __rfloordiv__(self, other: IntoExpr) -> Expr:
        return floordiv(expr(other), self)

    def __neg__(self) -> Expr:
        return ZERO - self

    # -- queries -------------------------------------------------------------------------------
    def as_int(self) -> int | None:
        """The value of a constant expression, else None."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    def as_name(self) -> str | None:
        """The name of an expression that is one bare variable, else None."""
        if len(self.terms) == 1:
            mono, coef = self.terms[0]
            if coef == 1 and len(mono) == 1 and isinstance(mono[0], Var):
                return mono[0].name
        return None


IntoExpr: TypeAlias = "Expr | int | str"
Size: TypeAlias = Expr
Shape: TypeAlias = tuple[Expr, ...]

MAX_SIZE: Final = 2**63 - 1
"""Maximum of sizes and offsets: they are 64-bit integers wherever they are computed."""

ZERO: Final = Expr(())
"""The expression 0, which has no terms."""
ONE: Final = Expr((((), 1),))
"""The expression 1, one term without atoms."""


# -- construction --------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _constant(value: int) -> Expr:
    return ZERO if value == 0 else Expr((((), value),))


@lru_cache(maxsize=65536)
def var(name: str) -> Expr:
    """The expression that is one variable."""
    return Expr((((Var(name),), 1),))


def expr(value: IntoExpr | float) -> Expr:
    """An expression from a whole number, a text such as ``"2*ho + kh - 1"``, or an expression."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, str):
        return parse_expr(value)
    number = int(value)
    if number != value:
        raise ValueError(f"{value!r} is not an integer")
    return _constant(number)


@lru_cache(maxsize=16384)
def parse_expr(text: str) -> Expr:
    """The expression that a text writes; ``parse_expr(str(e)) == e``. Raises ExprSyntaxError with the position of the fault."""
    return read(text, lambda leaf: var(leaf) if isinstance(leaf, str) else _constant(leaf), _applied)


def _applied(operation: Operation, args: Sequence[Expr]) -> Expr:
    match operation:
        case "+":
            return args[0] + args[1]
        case "-":
            return args[0] - args[1]
        case "*":
            return args[0] * args[1]
        case "//":
            return floordiv(*args)
        case "%":
            return mod(*args)
        case "negative":
            return -args[0]
        case "min":
            return minimum(*args)
        case "max":
            return maximum(*args)
        case _ as other:
            assert_never(other)


def sizes_text(sizes: Iterable[Expr]) -> str:
    """The expressions as text, separated by commas: ``M, 4``."""
    return ", ".join(map(str, sizes))


def shape_text(sizes: Iterable[Expr]) -> str:
    """A shape as text: ``[M, 4]``."""
    return f"[{sizes_text(sizes)}]"


def shape(*sizes: IntoExpr) -> Shape:
    """The sizes as expressions: integers, names or texts such as ``"N + 1"``."""
    return tuple(expr(s) for s in sizes)


@lru_cache(maxsize=65536)
def _monomial_key(mono: Monomial) -> tuple[int, tuple[str, ...]]:
    return (-len(mono), tuple(str(a) for a in mono))


def from_terms(terms: Mapping[Monomial, int]) -> Expr:
    """The expression with these terms, in their order in normal form; terms with coefficient 0 are dropped."""
    kept = [(m, c) for m, c in terms.items() if c]
    if len(kept) > 1:
        kept.sort(key=lambda t: _monomial_key(t[0]))
    return Expr(tuple(kept))


KEPT_SUMS = 1024
"""Maximum sums, and products, that are remembered for all models of a process: 92 of 100 sums are found in a first compilation
of slanet-plus. A limit 64 times as large finds 94, and kept 3 MB after swift-f0 was loaded."""


@lru_cache(maxsize=KEPT_SUMS)
def _combine(a: Expr, b: Expr, sign: int) -> Expr:
    if not b.terms:
        return a
    if not a.terms and sign == 1:
        return b
    out = dict(a.terms)
    for mono, coef in b.terms:
        out[mono] = out.get(mono, 0) + sign * coef
    return from_terms(out)


def _join(a: Monomial, b: Monomial) -> Monomial:
    if not a:
        return b
    if not b:
        return a
    return tuple(sorted(a + b, key=str))


@lru_cache(maxsize=KEPT_SUMS)
def _product(a: Expr, b: Expr) -> Expr:
    out: dict[Monomial, int] = {}
    for ma, ca in a.terms:
        for mb, cb in b.terms:
            mono = _join(ma, mb)
            out[mono] = out.get(mono, 0) + ca * cb
    return from_terms(out)


def mod(a: IntoExpr, b: IntoExpr) -> Expr:
    """``a - b*floor(a/b)``: the remainder with the sign of the (positive) divisor."""
    a, b = expr(a), expr(b)
    return a - b * floordiv(a, b)


def product(sizes: Iterable[IntoExpr]) -> Expr:
    """The product of the sizes; 1 if there are none."""
    out = ONE
    for s in sizes:
        out = out * s
    return out


def minimum(*args: IntoExpr) -> Expr:
    """The smallest of `args`, in normal form."""
    return extreme("min", tuple(expr(a) for a in args))


def maximum(*args: IntoExpr) -> Expr:
    """The largest of `args`, in normal form."""
    return extreme("max", tuple(expr(a) for a in args))


def ceildiv(a: IntoExpr, b: IntoExpr) -> Expr:
    """``floor((a + b - 1) / b)``, which is a / b rounded up for a positive `b`."""
    return floordiv(expr(a) + b - 1, expr(b))


@lru_cache(maxsize=16384)
def extreme(kind: Literal["min", "max"], args: tuple[Expr, ...]) -> Expr:
    """``min(args)`` or ``max(args)`` in normal form: nested ones of the kind are merged, and arguments that differ by a constant
    are compared at once."""
    flat: list[Expr] = []
    for a in args:
        inner = a.terms[0][0][0] if len(a.terms) == 1 and len(a.terms[0][0]) == 1 else None
        if isinstance(inner, Extreme) and inner.kind == kind and a.terms[0][1] == 1:
            flat.extend(inner.args)
        else:
            flat.append(a)
    # Arguments that differ by a constant compare at once: keep the winner of each class.
    kept: list[Expr] = []
    for a in flat:
        for i, b in enumerate(kept):
            d = (a - b).as_int()
            if d is not None:
                if (d < 0) == (kind == "min"):
                    kept[i] = a
                break
        else:
            kept.append(a)
    if len(kept) == 1:
        return kept[0]
    return Expr((((Extreme(kind, tuple(sorted(kept, key=str))),), 1),))


# -- floor division ------------------------------------------------------------------------------


def _divide_term(mono: Monomial, coef: int, by_mono: Monomial, by_coef: int) -> tuple[Monomial, int] | None:
    """The exact quotient of two terms, or None."""
    if coef % by_coef:
        return None
    rest = list(mono)
    for atom in by_mono:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest), coef // by_coef


def exact_div(num: Expr, den: Expr) -> Expr | None:
    """`q` with ``q * den == num`` as polynomials, or None when there is none."""
    if not den.terms:
        return None
    quotient: dict[Monomial, int] = {}
    rest = num
    lead_mono, lead_coef = den.terms[0]
    for _ in range(len(num.terms) * 2 + 2):
        if not rest.terms:
            return from_terms(quotient)
        q = _divide_term(*rest.terms[0], lead_mono, lead_coef)
        if q is None:
            return None
        quotient[q[0]] = quotient.get(q[0], 0) + q[1]
        rest = rest - _product(den, Expr((q,)))
    return None


@lru_cache(maxsize=65536)
def floordiv(num: Expr, den: Expr) -> Expr:
    """``floor(num / den)`` in normal form. Raises ZeroDivisionError or ValueError for a constant `den` <= 0.

    Holds for all integers and positive sizes: whole multiples leave the floor, common factors cancel, nested
    floors merge. Rules that need the range of an axis are in `simplify`.
    """
    d = den.as_int()
    n = num.as_int()
    if d is not None:
        if d == 0:
            raise ZeroDivisionError("floordiv by zero")
        if d < 0:
            raise ValueError(f"floordiv by a negative number ({d}); write the denominator positive")
        if d == 1:
            return num
        if n is not None:
            return _constant(n // d)
    if n == 0:
        return ZERO
    if num == den:
        return ONE
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    if len(den.terms) == 1:
        den_mono, den_coef = den.terms[0]
        for mono, coef in num.terms:
            q = _divide_term(mono, coef, den_mono, den_coef)
            if q is not None:
                whole[q[0]] = whole.get(q[0], 0) + q[1]
            elif not mono and d is not None:
                whole[()] = whole.get((), 0) + coef // d
                rest[()] = coef % d
            else:
                rest[mono] = coef
        remainder = from_terms(rest)
    else:
        q_all = exact_div(num, den)
        if q_all is not None:
            return q_all
        remainder = num
    return from_terms(whole) + _floor_atom(remainder, den)


def _floor_atom(num: Expr, den: Expr) -> Expr:
    if not num.terms:
        return ZERO
    num, den = _cancel_common(num, den)
    if den == ONE:
        return num
    if num.as_int() is not None and den.as_int() is not None:
        return floordiv(num, den)
    # floor((floor(a/b) + c) / d) = floor((a + b*c) / (b*d))
    inner = [(m, c) for m, c in num.terms if m]
    if len(inner) == 1 and inner[0][1] == 1 and len(inner[0][0]) == 1:
        atom = inner[0][0][0]
        if isinstance(atom, Floor):
            offset = _constant(dict(num.terms).get((), 0))
            return floordiv(atom.num + offset * atom.den, atom.den * den)
    return Expr((((Floor(num, den),), 1),))


def _cancel_common(num: Expr, den: Expr) -> tuple[Expr, Expr]:
    """Divide out what every term shares; a constant term only has to follow by its own floor."""
    g = 0
    for _, c in den.terms:
        g = math.gcd(g, c)
    for m, c in num.terms:
        if m:
            g = math.gcd(g, c)
    if g > 1:
        num = from_terms({m: (c // g) for m, c in num.terms})
        den = from_terms({m: c // g for m, c in den.terms})
    if len(den.terms) == 1 and den.terms[0][0]:
        for atom in den.terms[0][0]:
            if num.terms and all(atom in m for m, _ in num.terms):
                num = _drop_atom(num, atom)
                den = _drop_atom(den, atom)
    return num, den


def _drop_atom(e: Expr, atom: Atom) -> Expr:
    out: dict[Monomial, int] = {}
    for mono, coef in e.terms:
        rest = list(mono)
        rest.remove(atom)
        out[tuple(rest)] = coef
    return from_terms(out)


# -- text ----------------------------------------------------------------------------------------


def _factor(e: Expr) -> str:
    text = str(e)
    if len(e.terms) == 1:
        mono, coef = e.terms[0]
        simple = (not mono and coef >= 0) or (coef == 1 and len(mono) == 1 and not isinstance(mono[0], Floor))
        if simple:
            return text
    return text if not e.terms else f"({text})"


def _text(e: Expr) -> str:
    if not e.terms:
        return "0"
    parts: list[str] = []
    for mono, coef in e.terms:
        body = "*".join(f"({a})" if isinstance(a, Floor) and (len(mono) > 1 or abs(coef) != 1) else str(a) for a in mono)
        size = abs(coef)
        text = str(size) if not mono else body if size == 1 else f"{size}*{body}"
        if not parts:
            parts.append(text if coef > 0 else f"-{text}" if not isinstance(mono[0] if mono else None, Floor) else f"-({text})")
        else:
            parts.append(f"{'+' if coef > 0 else '-'} {text}")
    return " ".join(parts)
