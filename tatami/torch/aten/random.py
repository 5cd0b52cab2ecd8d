"""Random numbers: Philox streams of the program, from one key that the caller draws from PyTorch's generator."""

from __future__ import annotations

from tatami.core.dtype import DType
from tatami.frontend.graph_api.tensor import Tensor
from tatami.torch.handler import Handler
from tatami.torch.importer import Importer, Number
from tatami.torch.refusal import Refusal

SEED = "seed"
"""Name of the input that holds the key."""
_STRIDE = 0x9E3779B97F4A7C15
"""Difference of the keys of two operators: the bits of the golden ratio, so that streams do not overlap."""


def _key(m: Importer) -> Tensor:
    if not m.seeds:
        m.seeds.append(m.graph.input(SEED, (), DType.u64))
    m.draws += 1
    return m.seeds[0] + m.graph.number((m.draws * _STRIDE) & (2**64 - 1), DType.u64)


def _uniform(m: Importer, low: float = 0.0, high: float = 1.0) -> Tensor:
    wide = DType.fp64 if m.dtype == DType.fp64 else DType.fp32
    return m.graph.uniform(m.shape, _key(m), low, high, wide)


def rand(m: Importer, *_: object, **__: object) -> Tensor:
    """rand, rand_like: numbers in [0, 1)."""
    return m.cast(_uniform(m), m.dtype)


def randn(m: Importer, *_: object, **__: object) -> Tensor:
    """randn, randn_like: normally distributed numbers."""
    wide = DType.fp64 if m.dtype == DType.fp64 else DType.fp32
    return m.cast(m.graph.normal(m.shape, _key(m), dtype=wide), m.dtype)


def dropout(m: Importer, x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """native_dropout: (x / (1 - p) where kept, mask of kept elements)."""
    if train is False or p == 0.0:
        return x, m.graph.full(x.shape, True, DType.bool)
    if p == 1.0:
        return m.graph.full(x.shape, 0, x.dtype), m.graph.full(x.shape, False, DType.bool)
    keep = m.graph.uniform(x.shape, _key(m), dtype=DType.fp32) >= p
    return m.graph.where(keep, x * (1.0 / (1.0 - p)), 0.0), keep


def bernoulli_p(m: Importer, x: Tensor, p: float = 0.5, **_: object) -> Tensor:
    """bernoulli.p: 1 with probability p, in the operand's shape."""
    return (m.graph.uniform(x.shape, _key(m), dtype=DType.fp32) < p).cast(m.dtype)


def bernoulli(m: Importer, p: Tensor, **_: object) -> Tensor:
    """bernoulli: 1 with the probability of each element."""
    draw = m.graph.uniform(p.shape, _key(m), dtype=DType.fp64 if p.dtype == DType.fp64 else DType.fp32)
    return (draw < m.cast(p, draw.dtype)).cast(m.dtype)


def randint(m: Importer, low: Number, high: Number, *_: object, **__: object) -> Tensor:
    """randint: integers in low … high - 1."""
    start, stop = (m.tensor(v, DType.fp64) for v in (low, high))
    draw = m.graph.uniform(m.shape, _key(m), dtype=DType.fp64)
    return (start + draw * (stop - start)).floor().minimum(stop - 1.0).cast(m.dtype)


def uniform(m: Importer, x: Tensor, low: float = 0.0, high: float = 1.0, **_: object) -> Tensor:
    """uniform: numbers in [low, high), in the operand's shape. Raises Refusal if low > high."""
    if low > high:
        raise Refusal(f"uniform numbers between {low} and {high}")
    return m.cast(_uniform(m, low, high), m.dtype)


def normal(m: Importer, x: Tensor, mean: float = 0.0, deviation: float = 1.0, **_: object) -> Tensor:
    """normal_functional: normally distributed numbers in the operand's shape."""
    wide = DType.fp64 if m.dtype == DType.fp64 else DType.fp32
    return m.cast(m.graph.normal(m.shape, _key(m), mean, deviation, wide), m.dtype)


def normal_of_shape(m: Importer, shape: object, *, mean: float = 0.0, std: float = 1.0, **_: object) -> Tensor:
    """prims.normal: normally distributed numbers in the given shape."""
    wide = DType.fp64 if m.dtype == DType.fp64 else DType.fp32
    return m.cast(m.graph.normal(m.shape, _key(m), mean, std, wide), m.dtype)


def leaky_relu_of_random_slope(
    m: Importer,
    x: Tensor,
    noise: Tensor,
    low: float = 0.125,
    high: float = 1 / 3,
    training: bool = False,
    generator: object = None,
) -> tuple[Tensor, Tensor]:
    """rrelu_with_noise_functional: (negative elements times a random slope, the slopes); the mean slope in inference."""
    if not training:
        return m.graph.where(x > 0.0, x, x * ((low + high) / 2)), noise
    slope = m.cast(m.graph.uniform(x.shape, _key(m), low, high, DType.fp32), x.dtype)
    slope = m.graph.where(x > 0.0, 1.0, slope)
    return x * slope, slope


RANDOM: dict[str, Handler] = {
    "aten.rand.default": rand,
    "aten.rand_like.default": rand,
    "aten.randn.default": randn,
    "aten.randn_like.default": randn,
    "aten.native_dropout.default": dropout,
    "aten.bernoulli.p": bernoulli_p,
    "aten.bernoulli.default": bernoulli,
    "aten.randint.low": randint,
    "aten.randint.default": lambda m, high, *a, **k: randint(m, 0, high),
    "aten.randint_like.low_dtype": lambda m, x, low, high, **k: randint(m, low, high),
    "aten.randint_like.default": lambda m, x, high, **k: randint(m, 0, high),
    "aten.uniform.default": uniform,
    "prims.normal.default": normal_of_shape,
    "aten.rrelu_with_noise_functional.default": leaky_relu_of_random_slope,
    "aten.normal_functional.default": normal,
}
"""Handlers of this file by overload."""
