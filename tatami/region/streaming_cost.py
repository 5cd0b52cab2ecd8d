"""Is a streaming pair with pointwise weights faster as one Region than as two products with its weights in memory?

    saved: weights written and read, the launches of the first products        lost: what the pair's template takes longer

Weights that are 0 at places which coordinates alone decide, as a causal mask does, are passed over by the pair, and by
nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

from tatami.core.cost import estimate, fusion_delta, rates
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, product
from tatami.core.target import Target
from tatami.poly_view.ir import ContractionPattern, Statement
from tatami.tiny.ir import CastOp, ConstOp, Elementwise, IotaOp, Node, PermuteOp, SizeOp

LOSS = {"cpu": 0.1, "fma": 0.4, "tensor cores": 1.5}
"""What a pair adds to the time of its products: by AVX2 from 0.05 to 0.17, at depths and columns of 64 to 512; of GPUs
between what is simulated for pairs and for two products, at 64 and 128: 0.3 to 0.9, and 1.4 to 1.6."""
LOSS_OF_SEVERAL = {"cpu": 0.1, "fma": 0.5, "tensor cores": 1.7}
"""The same of weights made of two products, whose arrays are larger: simulated 0.0 to 0.3 (fma) and 0.4 to 0.9, where the three
products of matrices as deep as that wait for memory all the time."""
SEEN = 0.5
"""Share of the weights that count where coordinates exclude some."""
MULTIPLIED = {DType.fp16, DType.bf16, DType.fp32}
"""What the templates of GPUs for two products multiply."""
NARROW = {DType.fp16, DType.bf16}
ROUNDED = Elementwise("tf32")
WIDEST, WIDEST_OF_ROLES = 256, 128
"""Depth and columns that they keep on chip; where products go by warpgroups, a pair of more than the second has no registers
for them, and is simulated to take 1.4 times what two products take."""


class StreamingCost:
    """Of the values of one program."""

    def __init__(
        self,
        nodes: Mapping[str, Node],
        statements: Mapping[str, Statement],
        patterns: Mapping[str, ContractionPattern],
        target: Target,
        sizes: Mapping[str, int],
    ) -> None:
        self.nodes, self.statements, self.patterns = nodes, statements, patterns
        self.target, self.sizes = target, sizes

    def refusal(self, firsts: list[str], weights: str, second: str) -> str:
        """Why the pair is not worth one Region, "" where it is: products of floats, rows and keys of an axis each. Of several
        first ones what the earlier give goes through memory too. On CPUs a tile for each takes from the others' share of L1:
        by measurement the two are even."""
        first = firsts[0]
        sizes = {a.name: a.size for a in self.statements[first].axes}
        sides = [[a for a in side if sizes[a] != ONE] for side in (self.patterns[first].m, self.patterns[first].n)]
        floats = {self.nodes[v].dtype for v in (*firsts, second)} <= {DType.fp32, DType.fp64}
        if not floats or [len(side) for side in sides] != [1, 1]:
            return "a pair takes products of fp32 or fp64 sums, rows and keys of one axis each"
        unit, flops = "cpu", sum(map(self.flops, (*firsts, second)))
        if self.target.kind == "cuda":
            if why := self.template_refusal(firsts, weights, second):
                return why
            narrow, tf32 = self.nodes[weights].dtype.is_narrow_float, self.nodes[weights].op == ROUNDED
            unit = "tensor cores" if narrow or tf32 else "fma"
            rate = self.target.flops_fp16 if narrow else self.target.flops_tf32 if tf32 else self.target.flops_fp32
            flops *= self.target.flops_fp32 / rate
        stored = estimate(product(sizes.values()), self.sizes) * self.nodes[weights].dtype.itemsize
        loss = (LOSS_OF_SEVERAL if len(firsts) > 1 else LOSS)[unit]
        more = (SEEN if self.is_zero_by_place(weights) else 1.0) * (1 + loss) - 1
        between = [self.nodes[v].dtype.itemsize for v in firsts[1:]] if unit != "cpu" else []
        saved = stored + estimate(product(sizes.values()), self.sizes) * sum(between)
        delta, _ = fusion_delta(self.target, dflops=more * flops, dbytes=0, saved_bytes=2 * saved, launches=len(firsts))
        if stored <= rates(self.target).cache:
            return f"{stored:.3g} bytes of weights stay in cache without it"
        return f"Δtime {delta * 1e6:+.2f} µs" if delta >= 0 else ""

    def flops(self, contraction: str) -> float:
        s = self.statements[contraction]
        return 2 * estimate(product(a.size for a in (*s.axes, *s.reduced)), self.sizes)

    def template_refusal(self, firsts: list[str], weights: str, second: str) -> str:
        """Why no template of GPUs takes the pair, or "": they multiply matrices of one type, as they lie in memory, with a depth
        and columns that are kept on chip; of several first products with one depth."""
        ones, two = [self.patterns[first] for first in firsts], self.patterns[second]
        values, columns = (two.rhs, two.n) if two.lhs.tensor == weights else (two.lhs, two.m)
        operands = (*(o for one in ones for o in (one.lhs, one.rhs)), values)
        kinds = {self.nodes[v].dtype for v in (weights, *(o.tensor for o in operands))}
        depths = [[a.size for a in self.statements[f].reduced if a.name in one.k] for f, one in zip(firsts, ones, strict=True)]
        widths = depths[0] + [a.size for a in self.statements[second].axes if a.name in columns and a.size != ONE]
        by_roles = self.target.arch == "sm_90a" and kinds <= NARROW
        most = WIDEST_OF_ROLES if by_roles else WIDEST
        if any(depth != depths[0] for depth in depths):
            return f"first products of depths {' and '.join(_times(d) for d in depths)}; a pair has one"
        if any(self.nodes[first].dtype != DType.fp32 for first in firsts) or len(kinds) != 1 or not kinds <= MULTIPLIED:
            return f"matrices of {_named(kinds)}; a pair takes one of {_named(MULTIPLIED)}, summed in fp32"
        if any(o.guards or None in o.map for o in operands):
            return "an operand does not lie in memory as it is multiplied"
        if len(widths) != 2 or not all(0 < (size.as_int() or 0) <= most for size in widths):
            room = "registers of warpgroups have" if by_roles else "shared memory has"
            return f"depth and columns {' and '.join(map(str, widths))}; {room} room for {most}"
        return ""

    def is_zero_by_place(self, weights: str) -> bool:
        """Is it ``x where p else 0``, rounded or turned or not, with p made of coordinates and numbers alone?"""
        node = self.nodes[weights]
        while isinstance(node.op, CastOp | PermuteOp) or node.op == ROUNDED:
            node = self.nodes[node.src[0]]
        if node.op != Elementwise("where"):
            return False
        seen: set[str] = set()
        stack = [node.src[0]]
        while stack:
            if (v := stack.pop()) in seen:
                continue
            seen.add(v)
            if v not in self.nodes or not (self.nodes[v].src or isinstance(self.nodes[v].op, IotaOp | ConstOp | SizeOp)):
                return False
            stack.extend(self.nodes[v].src)
        return True


def _named(dtypes: set[DType]) -> str:
    return ", ".join(sorted(map(str, dtypes)))


def _times(sizes: list[Expr]) -> str:
    return " x ".join(map(str, sizes)) or "1"
