"""Time of streaming pairs with pointwise weights as one Region each, compared with products whose weights are in memory.

    saved: weights written and read, the launches of the first products
    lost: the slower template of pairs, first products that several pairs compute again

A pair skips weights that are 0 at positions which coordinates alone decide, as under a causal mask; separate products do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tatami.core.cost import Fusion, estimate, fusion_delta, rates
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, product
from tatami.core.target import Target
from tatami.poly_view.ir import ContractionPattern, Statement
from tatami.region.fusion.pairs import Pair
from tatami.tiny.ir import CastOp, ConstOp, Elementwise, IotaOp, Node, PermuteOp, SizeOp

LOSS = {"cpu": 0.1, "fma": 0.4, "tensor cores": 1.5}
"""Relative time that a pair adds to its products, by unit. cpu: measured with AVX2 as 0.05 to 0.17 at depths and columns of 64
to 512. GPUs: from simulations of pairs and of two products, at 64 and 128: 0.3 to 0.9 (fma), 1.4 to 1.6 (tensor cores)."""
LOSS_OF_SEVERAL = {"cpu": 0.1, "fma": 0.5, "tensor cores": 1.7}
"""The same for weights made of two products, whose arrays are larger: simulated as 0.0 to 0.3 (fma) and 0.4 to 0.9, at depths
for which the three separate products always wait for memory."""
MOST = 1 << 28
"""Maximum bytes of weights kept in memory because that is faster. Above it the pair is chosen in any case, since its memory is
linear in the sequence length."""
SEEN = 0.5
"""Fraction of the weights that is computed if coordinates exclude some: half, as under a causal mask."""
MULTIPLIED = {DType.fp16, DType.bf16, DType.fp32}
"""Operand dtypes of the GPU templates for two products."""
NARROW = {DType.fp16, DType.bf16}
"""Operand dtypes that tensor cores take without rounding to tf32."""
ROUNDED = Elementwise("tf32")
"""The operation that rounds fp32 operands for tensor cores."""
WIDEST, WIDEST_OF_ROLES = 256, 128
"""Maximum depth and columns that the GPU templates keep on chip: in general, and if warpgroups have roles. A larger pair with
roles has no registers for them, and is simulated to take 1.4 times as long as two products."""


class StreamingCost:
    """Costs of pairs of one program at given sizes."""

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

    def refusal(self, pairs: Sequence[Pair]) -> str:
        """The reason why pairs that share values (or one pair alone) are not worth a Region each, or "".

        Shared values are computed in each pair. Separate kernels also store the results of all first products but one,
        which counts as saved traffic on GPUs; on CPUs it does not, since the pair's tiles share L1, which by measurement
        costs as much.
        """
        if why := next(filter(None, map(self.pair_refusal, pairs)), ""):
            return why
        weights = Counter(p.weights for p in pairs)
        written = sum(self.bytes(v, pairs) for v in weights)
        read = sum(self.bytes(v, pairs) * readers for v, readers in weights.items())
        if self.target.kind == "cuda":
            between = sum(self.bytes(v, pairs) for v in {v for p in pairs for v in p.firsts[1:]})
            written, read = written + between, read + between
        products = {v: self.flops(v, p) for p in pairs for v in (*p.firsts, p.second)}
        streamed = sum(self.flops(v, p) * self.share(p) for p in pairs for v in (*p.firsts, p.second))
        more, launches = streamed - sum(products.values()), len(products) - len(pairs)
        delta, _ = fusion_delta(self.target, Fusion(more, written + read, launches))
        if written <= rates(self.target).cache:
            return f"{written:.3g} bytes of weights stay in cache without it"
        return f"Δtime {delta * 1e6:+.2f} µs" if delta >= 0 and written <= MOST else ""

    def pair_refusal(self, pair: Pair) -> str:
        """The reason why no template takes the pair, or "": float products, rows and keys of one axis each."""
        first = self.patterns[pair.firsts[0]]
        sizes = {a.name: a.size for a in self.statements[first.value].axes}
        sides = [[a for a in side if sizes[a] != ONE] for side in (first.m, first.n)]
        floats = {self.nodes[v].dtype for v in (*pair.firsts, pair.second)} <= {DType.fp32, DType.fp64}
        if not floats or [len(side) for side in sides] != [1, 1]:
            return "a pair takes products of fp32 or fp64 sums, rows and keys of one axis each"
        return self.template_refusal(pair) if self.target.kind == "cuda" else ""

    def share(self, pair: Pair) -> float:
        """Time of the pair relative to its products."""
        loss = (LOSS_OF_SEVERAL if len(pair.firsts) > 1 else LOSS)[self.unit(pair)]
        return (SEEN if self.is_zero_by_place(pair.weights) else 1.0) * (1 + loss)

    def unit(self, pair: Pair) -> str:
        """The unit that multiplies: "cpu", "fma" or "tensor cores"; a key of `LOSS`."""
        if self.target.kind != "cuda":
            return "cpu"
        weights = self.nodes[pair.weights]
        return "tensor cores" if weights.dtype.is_narrow_float or weights.op == ROUNDED else "fma"

    def bytes(self, value: str, pairs: Sequence[Pair]) -> float:
        """Bytes of `value` if it has one element per row and key of its pair."""
        first = self.statements[next(p.firsts[0] for p in pairs if value in p.unit)]
        return estimate(product(a.size for a in first.axes), self.sizes) * self.nodes[value].dtype.itemsize

    def flops(self, contraction: str, pair: Pair) -> float:
        """Operations of a contraction in units of fp32's rate: fewer if tensor cores compute them faster."""
        s, weights = self.statements[contraction], self.nodes[pair.weights]
        rate = self.target.flops_fp16 if weights.dtype.is_narrow_float else self.target.flops_tf32
        slower = self.target.flops_fp32 / rate if self.unit(pair) == "tensor cores" else 1.0
        return 2 * estimate(product(a.size for a in (*s.axes, *s.reduced)), self.sizes) * slower

    def template_refusal(self, pair: Pair) -> str:
        """The reason why no GPU template takes the pair, or "": matrices of one dtype in memory without a change of order,
        depth and columns that fit on chip, and one depth for several first products."""
        ones, two = [self.patterns[first] for first in pair.firsts], self.patterns[pair.second]
        values, columns = (two.rhs, two.n) if two.lhs.tensor == pair.weights else (two.lhs, two.m)
        operands = (*(o for one in ones for o in (one.lhs, one.rhs)), values)
        kinds = {self.nodes[v].dtype for v in (pair.weights, *(o.tensor for o in operands))}
        depths = [[a.size for a in self.statements[one.value].reduced if a.name in one.k] for one in ones]
        widths = depths[0] + [a.size for a in self.statements[pair.second].axes if a.name in columns and a.size != ONE]
        by_roles = self.target.arch == "sm_90a" and kinds <= NARROW
        most = WIDEST_OF_ROLES if by_roles else WIDEST
        if any(depth != depths[0] for depth in depths):
            return f"first products of depths {' and '.join(_times(d) for d in depths)}; a pair has one"
        if any(self.nodes[first].dtype != DType.fp32 for first in pair.firsts) or len(kinds) != 1 or not kinds <= MULTIPLIED:
            return f"matrices of {_named(kinds)}; a pair takes one of {_named(MULTIPLIED)}, summed in fp32"
        if any(o.guards or None in o.map for o in operands):
            return "an operand does not lie in memory as it is multiplied"
        if len(widths) != 2 or not all(0 < (size.as_int() or 0) <= most for size in widths):
            room = "registers of warpgroups have" if by_roles else "shared memory has"
            return f"depth and columns {' and '.join(map(str, widths))}; {room} room for {most}"
        return ""

    def is_zero_by_place(self, weights: str) -> bool:
        """True if the weights are ``x where p else 0`` (possibly rounded or transposed) and p depends on coordinates and
        numbers alone."""
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
