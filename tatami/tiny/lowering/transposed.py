"""Transposed convolutions as sums of gathers, never scatters: result element ``j*s + r`` is ``sum over q of x[j - q] * w[q*s +
r]``.

Elements of one phase r use the same taps, so each phase is a convolution of stride 1 with the taps r, s + r, 2s + r, …. Three
forms, which differ in the zeros they multiply:

- all phases as channels of one convolution, if s divides the kernel, or nearly: one product, its channels interleaved between
the columns. Phases with fewer taps are filled up with zeros;
- a convolution for each phase, then interleaved, if those zeros would cost much (3 taps at stride 2: 16 products instead of 9;
1 tap, the gradient of a strided projection: 4 instead of 1);
- a convolution of the operand with zeros between its elements, if the taps are dilated or all strides are 1.

Zeros that fill up are multiplied: an infinity in the operand or in a tap becomes NaN there, but not with a convolution for
each phase.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, Shape, ceildiv, expr, floordiv
from tatami.frontend.operation import accumulation
from tatami.frontend.operations.contraction import ConvTranspose, conv_padding, kernel_sizes
from tatami.frontend.operations.windows import filled
from tatami.tiny.build import Value
from tatami.tiny.lowering.contraction import Sliding, convolved, with_bias
from tatami.tiny.lowering.movement import part, spread
from tatami.tiny.lowering.rule import Use

MOST_PHASES = 8
"""Maximum number of phases with a convolution of their own, since each is a kernel."""
WORTH = 1.25
"""Minimum ratio of products with filled-up phases to products without for which every phase is a convolution of its own."""


@dataclass(frozen=True)
class _Transposed:
    """A transposed convolution of x [N, C, L..] with weight [Cout, C/g, k..]: elements first .. first + out of its whole
    result."""

    x: Value
    weight: Value
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    kernel: tuple[int, ...]
    out: Shape
    first: tuple[Expr, ...]
    attrs: ConvTranspose

    def sliding(self, dilation: tuple[int, ...] | None = None) -> Sliding:
        """Windows next to each other; None: taps too."""
        ones = (1,) * len(self.stride)
        return Sliding(ones, dilation or ones, self.attrs.groups, self.attrs.acc_dtype)


def conv_transpose(use: Use[ConvTranspose]) -> Value:
    """A transposed convolution, cropped to the result's size, plus bias."""
    x, w, a = use[0], use[1], use.attrs
    n = w.rank - 2
    x = x if x.rank == w.rank else x.unsqueeze(0)
    stride, dilation, padding = filled(a.stride, n), filled(a.dilation, n), conv_padding(a.padding, n)
    kernel = kernel_sizes(w.shape[2:], use.site)
    # (C, Cout/g, k..) -> (g, C/g, Cout/g, k..) -> (Cout, C/g, k..)
    cin, cout = w.shape[0], w.shape[1] * a.groups
    per_group = floordiv(cin, expr(a.groups))
    weight = w.reshape((a.groups, per_group, *w.shape[1:])).permute((0, 2, 1, *range(3, 3 + n)))
    weight = weight.reshape((cout, per_group, *w.shape[2:]))
    out, first = use.types[0].shape[-n:], tuple(lo for lo, _ in padding)
    t = _Transposed(x, weight, stride, dilation, kernel, out, first, a)
    if any(d != 1 for d in dilation) or all(s == 1 for s in stride) or 0 in kernel:
        y = _by_zeros(t)
    elif _is_each_phase_worth(stride, kernel) and all(lo.as_int() is not None for lo in first):
        y = _each_phase(t, None if use.optional(2) is not None else use.dtype)
    else:
        y = _cropped(_phases_as_channels(t), out, first)
    return with_bias(y, use.optional(2)).reshape(use.types[0].shape).cast(use.dtype)


def _is_each_phase_worth(stride: tuple[int, ...], kernel: tuple[int, ...]) -> bool:
    """True if a convolution for each phase saves enough against one convolution in which every phase has as many taps as the
    first."""
    filled_up = math.prod(-(-k // s) * s for k, s in zip(kernel, stride, strict=True))
    return math.prod(stride) <= MOST_PHASES and filled_up >= WORTH * math.prod(kernel)


def _cropped(y: Value, out: Shape, first: tuple[Expr, ...]) -> Value:
    """Elements first .. first + out of the axes after the channels; 0 beyond the last."""
    crop = [(-lo, size + lo - y.shape[2 + j]) for j, (lo, size) in enumerate(zip(first, out, strict=True))]
    return y.pad([(0, 0), (0, 0), *crop])


def _phases_as_channels(t: _Transposed) -> Value:
    """One convolution whose channels are (Cout, r..), its phases r then interleaved between the columns."""
    x, weight, stride, kernel = t.x, t.weight, t.stride, t.kernel
    n = len(stride)
    cout, cin = weight.shape[0], weight.shape[1]
    taps = tuple(-(-k // s) for k, s in zip(kernel, stride, strict=True))
    weight = weight.pad([(0, 0), (0, 0), *((0, q * s - k) for q, s, k in zip(taps, stride, kernel, strict=True))])
    split = weight.reshape((cout, cin, *(v for q, s in zip(taps, stride, strict=True) for v in (q, s))))
    phases = [3 + 2 * j for j in range(n)]
    split = split.permute((0, *phases, 1, *(2 + 2 * j for j in range(n)))).flip(range(2 + n, 2 + 2 * n))
    channels = cout * math.prod(stride)
    padded = x.pad([(0, 0), (0, 0), *((q - 1, q - 1) for q in taps)])
    columns = tuple(size + q - 1 for size, q in zip(x.shape[2:], taps, strict=True))
    y = convolved(padded, split.reshape((channels, cin, *taps)), columns, t.sliding())
    return _interleaved(y.reshape((x.shape[0], cout, *stride, *columns)), n)


def _interleaved(y: Value, n: int) -> Value:
    """[N, C, phases.., columns..] -> [N, C, columns * phases..]."""
    stride, columns = y.shape[2 : 2 + n], y.shape[2 + n :]
    y = y.permute((0, 1, *(v for j in range(n) for v in (2 + n + j, 2 + j))))
    return y.reshape((*y.shape[:2], *(c * s for c, s in zip(columns, stride, strict=True))))


def _each_phase(t: _Transposed, rounded: DType | None) -> Value:
    """A convolution for each phase of the cropped result, over as many columns as its longest phase has. `rounded`: dtype of
    each phase before they are interleaved, if no bias is added to the sums; else None.

    Column c of phase p is element ``e = c*s + p + first`` of the whole: tap ``e mod s + q*s`` of the kernel meets x at ``e //
    s - q``.
    """
    x, weight, stride, kernel, out, first = t.x, t.weight, t.stride, t.kernel, t.out, t.first
    n = len(stride)
    columns = tuple(ceildiv(size, expr(s)) for size, s in zip(out, stride, strict=True))
    made = rounded or accumulation(x.dtype, t.attrs.acc_dtype)

    def one_phase(phases: list[int]) -> Value:
        own, pads = weight, [(ZERO, ZERO)] * 2
        for j, (p, s, k) in enumerate(zip(phases, stride, kernel, strict=True)):
            tap = (first[j] + p).as_int()
            assert tap is not None
            taps = len(range(tap % s, k, s))
            if not taps:
                return x.builder.const(0, made).expand((x.shape[0], weight.shape[0], *columns))
            own = part(own, 2 + j, expr(tap % s), expr(k), s)
            before = expr(taps - 1 - tap // s)
            pads.append((before, columns[j] + taps - 1 - x.shape[2 + j] - before))
        own = own.flip(range(2, 2 + n))
        return convolved(x.pad(pads), own, columns, t.sliding()).cast(made)

    both = (x.shape[0], weight.shape[0], *(v for c, s in zip(columns, stride, strict=True) for v in (c, expr(s))))
    alone = (*both[:2], *(v for c in columns for v in (c, ONE)))

    def chosen(phases: list[int]) -> Value:
        """The value at these phases of the first axes, selected by coordinate over all phases of the other axes."""
        j = len(phases)
        if j == n:
            return one_phase(phases).reshape(alone).expand(both)
        value, own = chosen([*phases, 0]), x.builder.iota(both, 3 + 2 * j)
        for p in range(1, stride[j]):
            value = (own < p).where(value, chosen([*phases, p]))
        return value

    y = chosen([]).reshape((*both[:2], *(c * s for c, s in zip(columns, stride, strict=True))))
    return _cropped(y, out, (ZERO,) * n)


def _by_zeros(t: _Transposed) -> Value:
    """A convolution of the spread-out operand with the reversed kernel, elements first .. first + out of it: its border begins
    with the first element that is kept, so that nothing is cropped after the sum."""
    n = len(t.stride)
    spaced = spread(t.x, range(2, 2 + n), t.stride)
    reach = [max(0, t.kernel[j] - 1) * t.dilation[j] for j in range(n)]
    border = [(reach[j] - t.first[j], t.out[j] + t.first[j] - spaced.shape[2 + j]) for j in range(n)]
    padded = spaced.pad([(0, 0), (0, 0), *border])
    return convolved(padded, t.weight.flip(range(2, 2 + n)), t.out, t.sliding(t.dilation))
