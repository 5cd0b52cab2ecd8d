"""The value of an expression as statements and one operand.

Lets, positions and reads of several lanes become constants at their first use, and are known from there to the
end of that block. The sides of a choice that need statements of their own are branches: a side is not evaluated
if the predicate excludes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.cu.expr_text import VALUE_TYPE, Value, cast_text, computed, factor_text, index_text
from tatami.cu.lines import Lines
from tatami.gpu.stream_ir import Position
from tatami.region.ir import Let, Random, Read, Ref, RegionExpr, Select


class Values:
    """A printer of values. `folds`: name -> result that exists. `wide`: reads whose lanes were loaded together."""

    def __init__(
        self, lines: Lines, params: Mapping[str, DType], lets: Mapping[str, Let], positions: Mapping[str, Position]
    ) -> None:
        self.lines = lines
        self.params = params
        self.lets = lets
        self.positions = positions
        self.known: list[dict[object, Value]] = [{}]
        self.count = 0

    def fresh(self, prefix: str) -> str:
        """A C name that is not used yet."""
        self.count += 1
        return f"{prefix}_{self.count}"

    @contextmanager
    def block(self, head: str = "", tail: str = "}") -> Iterator[None]:
        """A context for a C block; constants declared in it are forgotten at its end."""
        with self.lines.block(head, tail):
            self.known.append({})
            yield
            self.known.pop()

    def recall(self, key: object) -> Value | None:
        """The value known for a key here, or None."""
        return next((m[key] for m in reversed(self.known) if key in m), None)

    def remember(self, key: object, value: Value) -> None:
        """Record the value of a key for the rest of the block."""
        self.known[-1][key] = value

    def declared(self, value: Value, prefix: str) -> Value:
        """The value as a C constant."""
        text, d = value
        name = self.fresh(prefix)
        self.lines.add(f"const {VALUE_TYPE[d]} {name} = {text};")
        return name, d

    # -- expressions -------------------------------------------------------------------------------
    def value(self, e: RegionExpr) -> Value:
        """(text, dtype) of an expression; statements that it needs are printed."""
        match e:
            case Read():
                return self.read(e)
            case Ref(let=name):
                return self.let(name)
            case Select():
                return self.select(e)
            case Random(key=key, counter=counter):
                return f"tt_philox({self.value(key)[0]}, (tt_u64)({index_text(counter)}))", DType.u32
            case _:
                made = computed(e, self.value)
                if made is None:
                    raise fail("InvalidPlan", "cu", f"{type(e).__name__} has no CUDA text", "compile for the CPU")
                return made

    def let(self, name: str) -> Value:
        """The value of a let, declared at its first use."""
        known = self.recall(name)
        if known is None:
            let = self.lets[name]
            text, d = self.value(let.expr)
            known = self.declared((text, d), name)
            self.remember(name, known)
        return known

    def read(self, e: Read) -> Value:
        """The value of a read; 0 if a position is outside and its bounds allow that."""
        (at,) = e.map
        d = self.params[e.tensor]
        known = self.recall(e)
        if known is not None:
            return known
        places = self.places(at)
        text = f"tt_value({e.tensor}[{index_text(at)}])"
        inside = [n for n in places if self.positions[n].bounds != "assume"]
        if not inside:
            return text, d
        name = self.fresh("r")
        self.lines.add(f"{VALUE_TYPE[d]} {name} = 0;")
        self.lines.add(f"if ({self.inside_text(inside)}) {name} = {text};{self.fault_text(inside)}")
        self.remember(e, (name, d))
        return name, d

    def places(self, address: Expr) -> list[str]:
        """The positions that an address names, declared."""
        names = sorted(free_vars(address) & self.positions.keys())
        for n in names:
            self.position(n)
        return names

    def position(self, name: str) -> None:
        """Declare a position, wrapped or clamped by its bounds."""
        if self.recall(("position", name)) is not None:
            return
        p = self.positions[name]
        value = cast_text(self.value(p.value), DType.i64)
        size = index_text(p.size)
        match p.bounds:
            case "wrap":
                value = f"tt_wrapped({value}, {size})"
            case "clamp":
                value = f"tt_clamped({value}, {size})"
            case _:
                pass
        self.lines.add(f"const tt_i64 {name} = {value};")
        self.remember(("position", name), (name, DType.i64))

    def inside_text(self, names: list[str]) -> str:
        """C test that all positions are inside their axes."""
        return " && ".join(f"0 <= {n} && {n} < {factor_text(self.positions[n].size)}" for n in names)

    def fault_text(self, names: list[str]) -> str:
        """C text for a position outside: a fault, or "" if its bounds allow it."""
        return " else tt_fault(1);" if any(self.positions[n].bounds in ("wrap", "error") for n in names) else ""

    # -- choices -----------------------------------------------------------------------------------
    def select(self, e: Select) -> Value:
        """The value of a choice: an expression, or a variable set by branches."""
        pred = self.value(e.pred)[0]
        then, then_lines = self.aside(e.then)
        other, other_lines = self.aside(e.other)
        if not then_lines and not other_lines:
            return f"({pred} ? {then[0]} : {other[0]})", then[1]
        name = self.fresh("c")
        l = self.lines
        l.add(f"{VALUE_TYPE[then[1]]} {name};")
        l.add(f"if ({pred}) {{")
        l.out += [*then_lines, "  " * (l.depth + 1) + f"{name} = {then[0]};"]
        l.add("} else {")
        l.out += [*other_lines, "  " * (l.depth + 1) + f"{name} = {other[0]};"]
        l.add("}")
        return name, then[1]

    def aside(self, e: RegionExpr) -> tuple[Value, list[str]]:
        """(the value, the statements that it needs, one level deeper)."""
        before = len(self.lines.out)
        self.known.append({})
        self.lines.depth += 1
        value = self.value(e)
        self.lines.depth -= 1
        self.known.pop()
        made = self.lines.out[before:]
        del self.lines.out[before:]
        return value, made
