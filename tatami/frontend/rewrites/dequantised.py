"""Products and convolutions of dequantised integers: sums of integers, exact, and one factor after them.

    y = matmul(dequantize(a, sa, za), dequantize(b, sb, zb))
    ->   s = matmul(a, b) acc_dtype=i32, less what the zero points add;   y = cast(s, fp32) * (sa * sb)
    y = matmul(x, dequantize(w, s))   ->   y = matmul(x, cast(w, fp32)) * s     w a constant: it stays 8 bits wide in memory
                                                (weights of other forms: narrow_weights.py)
    y = max_pool(dequantize(a, s, z))   ->   y = dequantize(max_pool(a), s, z)

Scales are a common factor of all terms and leave the sum, so that the meaning is the same and the sum is exact. A scale belongs to
the whole tensor, or there is one per row of the left operand or per column of the right one. Movement between a dequantisation
and its product moves the integers instead. Bias, activation and quantisation that follow are the product's epilogue as for floats.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from tatami.core.codec import to_builtins
from tatami.core.dtype import DType
from tatami.core.expr import Expr, product
from tatami.core.module import Module
from tatami.core.target import Target
from tatami.frontend.ir import Graph, Node
from tatami.frontend.operation import attributes
from tatami.frontend.operations.contraction import Conv, Gemm, Matmul
from tatami.frontend.ops import OPS
from tatami.frontend.rewrites.integer_products import Integers, as_signed, integer_conv, integer_matmul
from tatami.frontend.rewrites.narrow_rows import look_up_in_weights
from tatami.frontend.rewrites.narrow_weights import narrow_weight
from tatami.frontend.rewrites.rewriting import Rewriting, Subject, has_any, rewrite_graphs
from tatami.frontend.rewrites.spelled_scales import SpelledScales

LONGEST_SUM = (2**31 - 1) // 255**2
"""Maximum number of terms, each a product of two differences of 8 bits, for which a sum of 32 bits cannot overflow."""
CHANNELS_OF_WINDOWS = 3
"""Minimum number of channels for which a convolution with windows gains from multiply-adds of four channels."""
FILTERS_OF_WINDOWS = 128
"""Minimum number of filters for which a convolution with windows gains from tile registers: packing its windows byte by byte
takes the time of this many filters' products. Without tile registers fp32 is faster, by its transformation of 3x3 windows
(measured 2 times)."""
_EIGHT_BITS = (DType.i8, DType.u8)
_PLAIN_MOVEMENT = ("reshape", "permute", "expand", "slice", "squeeze", "unsqueeze", "contiguous", "identity", "flip")
"""Movement of one operand that keeps all values."""
_PRODUCTS = ("matmul", "linear", "gemm", "conv")


class Codes(msgspec.Struct, frozen=True):
    """A dequantised tensor, (tensor - zero) * scale, by names. `zero`: "" if it is 0; `axis`: the axis of a scale or zero
    point of rank 1."""

    tensor: str
    scale: str
    zero: str
    axis: int
    is_constant: bool


def multiply_integers(module: Module[Graph], target: Target) -> Module[Graph]:
    """The module with integer sums for products of dequantised operands where `target`, a CPU, gains from them; unchanged for
    GPUs."""
    if target.kind != "cpu":
        return module
    has_casts, has_products = has_any("cast"), has_any(*_PRODUCTS)
    module = rewrite_graphs(module, SpelledScales, lambda graph: has_casts(graph) and has_products(graph))
    module = rewrite_graphs(module, lambda subject: _Rewriting(subject, target), has_any("dequantize"))
    return look_up_in_weights(module)


class _Rewriting(Rewriting):
    """The rewriting of one graph's products to sums of integers."""

    def __init__(self, subject: Subject, target: Target) -> None:
        super().__init__(subject)
        graph = self.graph
        self.target = target
        self.codes: dict[str, Codes | None] = {}
        self.uses = Counter(i for n in graph.graph for i in n.inputs)
        self.uses.update(o.tensor for o in graph.signature.outputs)
        self.sums: dict[str, tuple[str, str]] = {}
        """Result of a convolution -> its sums, of integers, and the factor that makes them the result."""

    def result(self) -> Graph:
        for node in self.graph.graph:
            self.at = node
            rule = {**dict.fromkeys(_PRODUCTS, self.product), "quantize": self.quantised, "max_pool": self.greatest_codes}
            made = rule[node.op](node) if node.op in rule else None
            if made is None:
                self.nodes.append(node)
            else:
                self.add("identity", [made], {}, node.outputs)
        return self.rewritten()

    def quantised(self, node: Node) -> str | None:
        """The codes of a quantisation without floats that others read: codes that it reproduces, or sums with one factor."""
        return self.same_codes(node) or self.requantised(node)

    def requantised(self, node: Node) -> str | None:
        """The codes of integers with factors that nothing else reads: the factors are divided by the quantisation's scale once,
        when the model is loaded, instead of each result. None for other operands."""
        own = self.scaling(node)
        scale = self.constants.get(own.scale)
        terms = self.terms(own.tensor) if self.uses[own.tensor] == 1 else []
        if not terms or scale is None or scale.array.ndim or (own.zero and self.shape(own.zero)):
            return None
        if self.dtype(own.scale) != DType.fp32 or not scale.array.item() > 0:
            return None
        first, *others = (self.joined("mul", self.cast(x, DType.fp32), self.joined("div", f, own.scale)) for x, f in terms)
        y = first
        for other in others:
            y = self.joined("add", y, other)
        y = self.one("round", [y])
        if own.zero:
            y = self.joined("add", y, self.cast(own.zero, DType.fp32))
        return self.cast(y, self.dtype(node.outputs[0]))

    def terms(self, tensor: str) -> list[tuple[str, str]]:
        """(integers, factor) whose products add up to a tensor: the sums of a convolution, or two dequantised tensors of one shape
        that are added. Empty for others."""
        if tensor in self.sums:
            return [self.sums[tensor]]
        made = self.producers.get(tensor)
        if made is None or made.op != "add" or self.dtype(tensor) != DType.fp32:
            return []
        found = []
        for operand in made.inputs:
            codes = self.codes_of(operand)
            if codes is None or not self.per(codes, None) or self.shape(codes.tensor) != self.shape(tensor):
                return []
            zero = self.cast(codes.zero, DType.i32) if codes.zero else ""
            wide = self.cast(codes.tensor, DType.i32)
            found.append((self.joined("sub", wide, zero) if zero else wide, codes.scale))
        return found

    def same_codes(self, node: Node) -> str | None:
        """The codes that a quantisation reproduces: it quantises what was dequantised with the same scale and zero point, and
        the quotient is within a rounding of the integer. None for other quantisations."""
        codes, own = self.codes_of(node.inputs[0]), self.scaling(node)
        if codes is None or self.dtype(codes.tensor) != self.dtype(node.outputs[0]) or not self.per(codes, own.axis):
            return None
        return codes.tensor if (codes.scale, codes.zero) == (own.scale, own.zero) else None

    def greatest_codes(self, node: Node) -> str | None:
        """A maximum of dequantised values as the dequantised maximum of their codes, which have the same order; None for other
        operands."""
        codes = self.codes_of(node.inputs[0])
        if codes is None or not self.per(codes, None):
            return None
        scale = self.constants.get(codes.scale)
        if scale is None or not scale.array.item() > 0 or self.dtype(node.outputs[0]) != DType.fp32:
            return None
        wide = self.one("max_pool", [self.cast(codes.tensor, DType.i32)], node.attrs)  # windows are taken of 32 bits
        greatest = self.cast(wide, self.dtype(codes.tensor))
        self.codes[node.outputs[0]] = msgspec.structs.replace(codes, tensor=greatest, is_constant=False)
        operands = [greatest, codes.scale, *([codes.zero] if codes.zero else [])]
        return self.one("dequantize", operands, {"to": DType.fp32})

    # -- what is multiplied ---------------------------------------------------------------------
    def product(self, node: Node) -> str | None:
        """The node's result from integer sums; None if an operand is not dequantised, or if the sum could overflow."""
        a = node.inputs[0]
        if self.dtype(a) != DType.fp32 or self.dtype(node.outputs[0]) != DType.fp32:
            return None
        return self.of_codes(node) or (None if node.op == "conv" else self.of_blocks(node))

    def of_blocks(self, node: Node) -> str | None:
        """The product with its weights as codes in memory; None if they are not dequantised constants."""
        attrs = attributes(OPS[node.op], node)
        is_turned = node.op == "linear" or (isinstance(attrs, Gemm) and attrs.trans_b)
        narrow = narrow_weight(self, node.inputs[1], 1 if is_turned else 0)
        if narrow is None:
            return None
        return self.one(node.op, [node.inputs[0], narrow, *node.inputs[2:]], to_builtins(attrs))

    def of_codes(self, node: Node) -> str | None:
        """The product as sums of integers, or of floats and integers; None if that is not exact or not faster."""
        a, b = node.inputs[:2]
        attrs = attributes(OPS[node.op], node)
        left, right = self.codes_of(a), self.codes_of(b)
        if right is None:
            return None
        bias = node.inputs[2] if len(node.inputs) > 2 else ""
        if left is None:
            return self.widened(node, right, bias, attrs)
        if node.op == "conv":
            return self.convolution(node, left, right, attrs)
        flips = {"linear": (False, True), "matmul": (False, False)}
        transposed = flips[node.op] if node.op in flips else (attrs.trans_a, attrs.trans_b)
        if transposed[0]:
            left = self.swapped(left)
        if transposed[1]:
            right = self.swapped(right)
        return self.matrices(left, right, bias, attrs if node.op == "gemm" else Gemm())

    def widened(self, node: Node, b: Codes, bias: str, attrs: Matmul | Gemm | Conv) -> str | None:
        """The product of floats and integers cast to float, with the scale after the sum: weights stay narrow in memory. None
        unless the integers are a constant matrix with a zero point of 0 (128 for u8)."""
        gemm = attrs if isinstance(attrs, Gemm) else None
        transposed = node.op == "linear" or (gemm is not None and gemm.trans_b)
        if not b.is_constant or node.op == "conv" or len(self.shape(b.tensor)) != 2 or not self.per(b, 0 if transposed else 1):
            return None
        if b.zero:
            known = self.constants.get(b.zero)
            if known is None or self.dtype(b.tensor) != DType.u8 or not (known.array == 128).all():
                return None
            b = msgspec.structs.replace(b, tensor=as_signed(self, b.tensor, "")[0])
        operands = [node.inputs[0], self.cast(b.tensor, DType.fp32)]
        beta = 1.0 if gemm is None else gemm.beta
        is_scaled = gemm is not None and bias and beta != 0.0
        kept = {**to_builtins(attrs), **({"beta": 0.0} if is_scaled else {})}
        out = self.joined("mul", self.one(node.op, operands, kept), b.scale)
        if not bias or beta == 0.0:
            return out
        more = bias if beta == 1.0 else self.joined("mul", bias, self.number(beta, DType.fp32))
        return self.joined("add", out, more)

    def matrices(self, a: Codes, b: Codes, bias: str, attrs: Gemm) -> str | None:
        ranks = len(self.shape(a.tensor)), len(self.shape(b.tensor))
        rows, columns = self.per(a, ranks[0] - 2), self.per(b, ranks[1] - 1)
        if min(ranks) < 2 or not rows or not columns or not _is_short(self.shape(a.tensor)[-1]):
            return None
        sums = integer_matmul(self, Integers(a.tensor, a.zero), Integers(b.tensor, b.zero))
        out = self.scaled(sums, self.along(a.scale, 1), self.along(b.scale, 0), attrs.alpha)
        if bias and attrs.beta != 0.0:
            addend = bias if attrs.beta == 1.0 else self.joined("mul", bias, self.number(attrs.beta, DType.fp32))
            out = self.joined("add", out, addend)
        return out

    def convolution(self, node: Node, x: Codes, w: Codes, attrs: Conv) -> str | None:
        shape = self.shape(w.tensor)
        if not self.per(x, None) or not self.per(w, 0) or len(self.shape(x.tensor)) != len(shape):
            return None
        if not _is_short(product(shape[1:])) or not self.gains(x, w, attrs):
            return None
        kept = {k: v for k, v in to_builtins(attrs).items() if k not in ("acc_dtype", "out_dtype")}
        bias = node.inputs[2] if len(node.inputs) > 2 else ""
        whole = self.bias_of_sums(bias, x, w)
        sums = integer_conv(self, Integers(x.tensor, x.zero), Integers(w.tensor, w.zero), whole, kept)
        factor = self.joined("mul", x.scale, self.along(w.scale, len(shape) - 2))
        out = self.joined("mul", self.cast(sums, DType.fp32), factor)
        if bias and not whole:
            return self.joined("add", out, self.along(bias, len(shape) - 2))
        self.sums[node.outputs[0]] = sums, factor
        return out

    def bias_of_sums(self, bias: str, x: Codes, w: Codes) -> str:
        """The bias as integers, if it is dequantised by the sums' own factor and 32 bits hold the sums with it; else ""."""
        made = self.producers.get(bias)
        if made is None or made.op != "dequantize" or made.attrs.get("block"):
            return ""
        codes, scale, zero = (self.constants.get(t) if t else None for t in (*made.inputs, "")[:3])
        factors = [self.constants.get(t) for t in (x.scale, w.scale)]
        if (
            codes is None
            or scale is None
            or None in factors
            or self.dtype(made.inputs[0]) != DType.i32
            or codes.array.ndim != 1
        ):
            return ""
        left, right = (f.array.astype("f8") for f in factors if f is not None)
        is_centred = len(made.inputs) < 3 or not made.inputs[2] or (zero is not None and not zero.array.any())
        terms = product(self.shape(w.tensor)[1:]).as_int() or 0
        fits = abs(codes.array.astype("i8")).max(initial=0) + terms * 255**2 < 2**31
        is_own = (abs(scale.array - left * right) <= 1e-6 * abs(left * right)).all()
        return made.inputs[0] if is_centred and fits and is_own else ""

    def gains(self, x: Codes, w: Codes, attrs: Conv) -> bool:
        """True if integers are faster than fp32: for windows of one element, for groups, for windows of several channels if
        the target multiplies four numbers of 8 bits by one instruction, and if tile registers multiply many filters."""
        filters = self.shape(w.tensor)
        count, channels = (s.as_int() for s in filters[:2])
        is_window = product(filters[2:]).as_int() != 1
        is_plain = self.dtype(w.tensor) == DType.i8 and not w.zero and (not x.zero or x.zero in self.constants)
        by_quads = "vnni" in self.target.features and is_plain and channels is not None and channels >= CHANNELS_OF_WINDOWS
        by_tiles = "amx_int8" in self.target.features and count is not None and count >= FILTERS_OF_WINDOWS
        return not is_window or attrs.groups > 1 or by_quads or by_tiles

    def scaled(self, sums: str, left: str, right: str, alpha: float) -> str:
        factor = self.joined("mul", left, right)
        if alpha != 1.0:
            factor = self.joined("mul", factor, self.number(alpha, DType.fp32))
        return self.joined("mul", self.cast(sums, DType.fp32), factor)

    def per(self, codes: Codes, axis: int | None) -> bool:
        """True if scale and zero point belong to the whole tensor, or have an element for each position of this axis."""
        ranks = {len(self.shape(t)) for t in (codes.scale, codes.zero) if t}
        return ranks == {0} or (max(ranks) == 1 and codes.axis == axis)

    def along(self, t: str, after: int) -> str:
        """A tensor of rank 1 followed by `after` axes of size 1."""
        return self.one("unsqueeze", [t], {"axes": tuple(range(1, 1 + after))}) if after and self.shape(t) else t

    # -- where codes come from ------------------------------------------------------------------
    def codes_of(self, tensor: str) -> Codes | None:
        """The integers whose dequantisation, perhaps moved, is `tensor`; None if it is not dequantised."""
        if tensor not in self.codes:
            chain: list[Node] = []
            node = self.producers.get(tensor)
            while node is not None and node.op in _PLAIN_MOVEMENT:
                chain.append(node)
                node = self.producers.get(node.inputs[0])
            codes = None if node is None or node.op != "dequantize" else self.dequantised(node)
            for step in reversed(chain):
                codes = None if codes is None else self.moved(codes, step)
            self.codes[tensor] = codes
        return self.codes[tensor]

    def dequantised(self, node: Node) -> Codes | None:
        codes = self.scaling(node)
        plain = {self.dtype(codes.scale), self.dtype(node.outputs[0])} == {DType.fp32} and not node.attrs.get("block")
        return codes if plain and self.dtype(codes.tensor) in _EIGHT_BITS else None

    def scaling(self, node: Node) -> Codes:
        """Operands of a quantisation or dequantisation. A constant array of one element is replaced by a constant of rank 0,
        and a zero point of 0 left out."""
        x, scale, zero = (*node.inputs, "")[:3]
        scale, zero = (self.plain_number(t) if t else "" for t in (scale, zero))
        known = self.constants.get(zero)
        rank = len(self.shape(x))
        axis = attributes(OPS[node.op], node).axis % rank if rank else 0
        return Codes(x, scale, "" if known is not None and not known.array.any() else zero, axis, x in self.constants)

    def plain_number(self, t: str) -> str:
        made = self.producers.get(t)
        if made is not None and made.op == "constant":
            return self.number(made.attrs["value"], self.dtype(t))
        source = made.inputs[0] if made is not None and made.op == "reshape" else t
        if self.shape(t) or source not in self.constants:
            return t
        return self.number(self.constants[source].array.item(), self.dtype(t))

    def moved(self, codes: Codes, step: Node) -> Codes | None:
        """The codes after a movement; None if a scale per element of an axis does not keep that axis whole."""
        axis = codes.axis
        if not self.per(codes, None):
            if step.op == "permute":
                axis = [p % len(step.attrs["perm"]) for p in step.attrs["perm"]].index(axis)
            elif step.op not in ("contiguous", "identity"):
                return None
        return msgspec.structs.replace(codes, tensor=self.one(step.op, [codes.tensor, *step.inputs[1:]], step.attrs), axis=axis)

    def swapped(self, codes: Codes) -> Codes:
        return msgspec.structs.replace(codes, tensor=self.one("permute", [codes.tensor], {"perm": (1, 0)}), axis=1 - codes.axis)


def _is_short(size: Expr) -> bool:
    number = size.as_int()
    return number is not None and number <= LONGEST_SUM
