"""Random models of the whole vocabulary of the Graph API: one seed, one model.

Floats are small multiples of 1/4, and what could flip by rounding (comparisons, floor, argmax, sort) reads inputs only.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from tatami.core.algebra.visit import evaluate
from tatami.core.dtype import DType
from tatami.core.expr import expr
from tatami.core.module import Module
from tatami.core.tensor import numpy_dtype
from tatami.frontend.graph import Graph
from tests.random_models import vocabulary_places  # noqa: F401
from tests.random_models.vocabulary_values import STEPS

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 65)
F = DType


@dataclass
class Model:
    """A module, its inputs, the values of its symbols, and what was drawn."""

    module: Module
    inputs: dict[str, np.ndarray]
    sizes: dict[str, int]
    ops: list[str]


class Maker:
    """The model so far. Each `op_` method adds a step to `x`, or gives None where it does not apply."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.np = np.random.default_rng(seed)
        self.g = Graph("g")
        self.inputs = {}
        self.sizes = {}
        self.values = []
        self.ops = []

    def value_of(self, e):
        n = e.as_int()
        if n is not None:
            return n
        return evaluate(e, self.sizes)

    def size(self, small=False):
        n = self.r.choice(SIZES[:8] if small else SIZES)
        if self.r.random() < 0.03:
            n = 0
        if self.r.random() < 0.4:
            s = f"S{len(self.sizes)}"
            self.sizes[s] = n
            return expr(s)
        return expr(n)

    def shape_numbers(self, shape):
        return tuple(self.value_of(s) for s in shape)

    def array(self, shape, dtype):
        n = self.shape_numbers(shape)
        if dtype == F.bool:
            return self.np.integers(0, 2, n).astype(bool)
        if dtype.is_float:
            return (self.np.integers(-8, 9, n) / 4).astype(numpy_dtype(dtype))
        lo = 0 if dtype in (F.u8, F.u16, F.u32, F.u64) else -20
        return self.np.integers(lo, 40, n).astype(numpy_dtype(dtype))

    def fresh(self, shape, dtype, const=None):
        """an input or constant of that shape"""
        static = all(s.as_int() is not None for s in shape)
        if static and (const if const is not None else self.r.random() < 0.3):
            return self.g.constant(self.array(shape, dtype))
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.array(shape, dtype)
        return self.g.input(name, tuple(shape), dtype)

    def exact(self, x):
        """`x` where it is an input, else an input like it: its values are small multiples of 1/4."""
        return x if x.name in self.inputs else self.fresh(x.shape, x.dtype, const=False)

    def truth(self, x):
        return x if x.dtype == F.bool else self.fresh(x.shape, F.bool)

    def indices(self, shape, low, high):
        """An input of integers in low..high - 1."""
        name = f"x{len(self.inputs)}"
        to = self.r.choice([F.i64, F.i32])
        self.inputs[name] = self.np.integers(low, high, self.shape_numbers(shape)).astype(numpy_dtype(to))
        return self.g.input(name, tuple(shape), to)

    def distinct(self, shape):
        """An input without two equal elements."""
        name = f"x{len(self.inputs)}"
        numbers = self.shape_numbers(shape)
        self.inputs[name] = (self.np.permutation(int(np.prod(numbers))) / 64).reshape(numbers).astype(np.float32)
        return self.g.input(name, tuple(shape), F.fp32)

    def count(self, shape):
        return int(np.prod(self.shape_numbers(shape)))

    def is_empty(self, x, axes=None):
        return any(self.value_of(s) == 0 for i, s in enumerate(x.shape) if axes is None or i in axes)

    def peer(self, x):
        same = [v for v in self.values if v.shape == x.shape and v.dtype == x.dtype and v is not x]
        if same and self.r.random() < 0.7:
            return self.r.choice(same)
        return self.fresh(x.shape, x.dtype)

    def push(self, t, name):
        self.values.append(t)
        self.ops.append(name)

    def model(self, most=7, vocabulary=False):
        """A random model of at most `most` steps. `vocabulary`: most steps are single operations of the table, each equally likely."""
        r = self.r
        base = r.choice([F.fp32] * 6 + [F.fp16, F.bf16, F.i32, F.i64, F.fp64, F.i8, F.u8])
        rank = r.choice([1, 2, 2, 3, 3, 4])
        big = rank <= 2
        self.push(self.fresh([self.size(small=not big) for _ in range(rank)], base, const=False), "input")
        for _ in range(r.randint(1, most)):
            x = r.choice(self.values[-3:])
            for _try in range(6):
                if vocabulary and r.random() < 0.7:
                    name = r.choice(WORDS)
                    out = self.word(name, x)
                else:
                    name = r.choice(OPS)
                    out = getattr(self, "op_" + name)(x)
                if out is None:
                    continue
                if isinstance(out, tuple):
                    for o in out:
                        self.push(o, name)
                else:
                    self.push(out, name)
                break
        self.g.output("y", self.values[-1])
        for i in range(r.choice([0, 0, 1, 2])):
            v = r.choice(self.values)
            self.g.output(f"z{i}", v)
        used = self.g.module()
        return Model(used, self.inputs, dict(self.sizes), self.ops)

    def word(self, name, x):
        """One operation of the table, of `x` or else of an input that it applies to."""
        out = STEPS[name](self, x)
        for _ in range(4):
            if out is not None:
                break
            rank = self.r.choice([1, 2, 3, 3, 4, 4])
            shape = [self.size(small=True) if self.r.random() < 0.5 else expr(self.r.choice([2, 4, 6])) for _ in range(rank)]
            if rank > 2:
                shape[1] = expr(4)
            dtype = self.r.choice([F.fp32, F.fp32, F.fp32, F.fp16, F.fp64, F.i32, F.u8, F.bool])
            out = STEPS[name](self, self.fresh(shape, dtype, const=False))
        return out

    # ---- elementwise
    def op_unary(self, x):
        if x.dtype.is_float:
            fs = [
                "neg",
                "abs",
                "relu",
                "square",
                "sigmoid",
                "tanh",
                "exp_",
                "silu",
                "gelu",
                "erf",
                "sin",
                "softplus",
                "leaky_relu",
                "elu",
                "sqrt_",
                "log_",
                "recip_",
                "floor",
                "ceil",
                "round",
                "clamp",
            ]
            n = self.r.choice(fs)
            if n == "exp_":
                return x.clamp(-3.0, 3.0).exp()
            if n == "square":
                return x.clamp(-3.0, 3.0).square()
            if n == "sqrt_":
                return x.abs().sqrt()
            if n == "log_":
                return (x.abs() + 1.0).log()
            if n == "recip_":
                return (x.abs() + 1.0).recip()
            if n in ("floor", "ceil", "round"):
                if x.name not in self.inputs:
                    return None
                return x.one(n)
            if n == "clamp":
                return x.clamp(-1.5, 2.0)
            return x.one(n)
        if x.dtype == F.bool:
            return ~x
        n = self.r.choice(["neg", "abs", "inv", "clamp"])
        if n == "neg":
            return -x if x.dtype not in (F.u8, F.u16, F.u32, F.u64) else None
        if n == "abs":
            return x.abs()
        if n == "inv":
            return ~x
        return x.maximum(3)

    def op_binary(self, x):
        if x.dtype == F.bool:
            y = self.peer(x)
            return self.r.choice([lambda: x & y, lambda: x | y, lambda: x ^ y])()
        y = self.peer(x)
        n = self.r.choice(["add", "sub", "mul", "max", "min", "div", "mod"])
        if n == "add":
            return x + y
        if n == "sub":
            return x - y
        if n == "mul":
            return x * y if not x.dtype.is_float else x * y.clamp(-2.0, 2.0)
        if n == "max":
            return x.maximum(y)
        if n == "min":
            return x.minimum(y)
        if n == "div":
            return x / (y.abs() + 1.0) if x.dtype.is_float else x / y
        if x.dtype.is_float:
            return None
        return x % y

    def op_scalar(self, x):
        if x.dtype == F.bool:
            return None
        if x.dtype.is_float:
            return self.r.choice([lambda: x * 0.5, lambda: x + 1.25, lambda: 1.0 - x, lambda: x / 4.0, lambda: x**2])()
        return self.r.choice([lambda: x * 3, lambda: x + 5, lambda: x / 2, lambda: x % 7, lambda: x >> 1, lambda: x & 6])()

    def op_compare(self, x):
        if x.dtype.is_float and x.name not in self.inputs:
            return None
        y = self.fresh(x.shape, x.dtype)
        return self.r.choice([lambda: x > y, lambda: x <= y, lambda: x == y, lambda: x != y])()

    def op_where(self, x):
        y = self.peer(x)
        return self.g.where(self.fresh(x.shape, F.bool), x, y)

    def op_cast(self, x):
        to = self.r.choice([F.fp32, F.fp32, F.fp16, F.bf16, F.i32, F.i64, F.i8, F.u8, F.bool, F.fp64])
        loses_nothing = to.is_float and to.itemsize <= x.dtype.itemsize
        if x.dtype.is_float and not loses_nothing and x.name not in self.inputs:
            return None
        return x.cast(to)

    # ---- movement
    def axis(self, x):
        return self.r.randrange(x.rank) if x.rank else None

    def op_permute(self, x):
        if x.rank < 2:
            return None
        p = list(range(x.rank))
        self.r.shuffle(p)
        return x.permute(*p)

    def op_flip(self, x):
        return x.flip(self.axis(x)) if x.rank else None

    def op_pad(self, x):
        if not x.rank:
            return None
        p = [(self.r.randint(0, 2), self.r.randint(0, 2)) if self.r.random() < 0.5 else (0, 0) for _ in range(x.rank)]
        v = True if x.dtype == F.bool else (1.5 if x.dtype.is_float else 2)
        if self.r.random() < 0.5:
            v = 0 if x.dtype != F.bool else False
        return x.pad(p, value=v)

    def op_slice(self, x):
        if not x.rank:
            return None
        k: list[slice | int | None] = []
        for s in x.shape:
            n = s.as_int()
            q = self.r.random()
            if q < 0.4:
                k.append(slice(None))
            elif q < 0.6:
                k.append(slice(None, None, self.r.choice([2, 3, -1, -2])))
            elif n and q < 0.9:
                a = self.r.randint(0, n - 1)
                k.append(slice(a, self.r.randint(a, n), self.r.choice([1, 1, 2])))
            elif n and n > 0:
                k.append(self.r.randint(-n, n - 1))
            elif n is None and self.sizes and self.value_of(s) >= 3:
                k.append(slice(1, -1))
            else:
                k.append(slice(None))
        return x[tuple(k)]

    def op_expand(self, x):
        if x.rank > 3:
            return None
        a = self.r.randint(0, x.rank)
        n = self.size(small=True) if self.r.random() < 0.3 else expr(self.r.choice([2, 3, 4, 8]))
        if n.as_int() is None:
            n = expr(3)
        return x.unsqueeze(a).expand(*x.shape[:a], n, *x.shape[a:])

    def op_merge(self, x):
        if x.rank < 2:
            return None
        a = self.r.randrange(x.rank - 1)
        return x.reshape(*x.shape[:a], x.shape[a] * x.shape[a + 1], *x.shape[a + 2 :])

    def op_split(self, x):
        for a, s in enumerate(x.shape):
            n = s.as_int()
            if n and n > 1 and x.rank < 5:
                d = [k for k in range(2, n) if n % k == 0]
                if d:
                    k = self.r.choice(d)
                    return x.reshape(*x.shape[:a], n // k, k, *x.shape[a + 1 :])
        return None

    def op_flatten(self, x):
        return x.flatten() if x.rank else None

    def op_transpose_merge(self, x):
        if x.rank < 2:
            return None
        y = self.op_permute(x)
        return self.op_merge(y)

    def op_concat(self, x):
        if not x.rank:
            return None
        a = self.axis(x)
        other = [
            v
            for v in self.values
            if v.rank == x.rank
            and v.dtype == x.dtype
            and all(i == a or p == q for i, (p, q) in enumerate(zip(v.shape, x.shape)))
        ]
        ys = [x] + [self.r.choice(other) for _ in range(self.r.randint(1, 2))]
        if self.r.random() < 0.5:
            sh = list(x.shape)
            sh[a] = expr(self.r.choice([1, 2, 5]))
            ys.append(self.fresh(sh, x.dtype))
        self.r.shuffle(ys)
        return self.g.concat(ys, a)

    def op_stack(self, x):
        if x.rank > 3:
            return None
        return self.g.stack([x, self.peer(x)], self.r.randint(0, x.rank))

    def op_splits(self, x):
        for a, s in enumerate(x.shape):
            n = s.as_int()
            if n and n > 2:
                k = self.r.randint(1, n - 1)
                return x.split((k, n - k), a)
        return None

    def op_roll(self, x):
        if not x.rank:
            return None
        a = self.axis(x)
        if self.value_of(x.shape[a]) == 0:
            return None
        return x.roll(self.r.randint(-3, 3), a)

    def op_tile(self, x):
        return x.one("tile", repeats=tuple(expr(self.r.choice([1, 2, 3])) for _ in range(x.rank))) if x.rank else None

    # ---- reduce
    def op_reduce(self, x):
        if not x.rank:
            return None
        axes = tuple(sorted(self.r.sample(range(x.rank), self.r.randint(1, x.rank))))
        empty = any(self.value_of(x.shape[a]) == 0 for a in axes)
        k = self.r.random() < 0.4
        if x.dtype == F.bool:
            return x.any(axes, keepdims=k) if self.r.random() < 0.5 else x.all(axes, keepdims=k)
        n = self.r.choice(["sum", "max", "min", "mean", "prod", "variance"])
        if empty and n not in ("sum",):
            return None
        if not x.dtype.is_float and n in ("mean", "variance"):
            return None
        if n == "prod":
            if not x.dtype.is_float:
                return x.prod(axes, keepdims=k)
            return (x.clamp(-1.0, 1.0) * 0.125 + 1.0).prod(axes, keepdims=k)
        return getattr(x, n)(axes, keepdims=k)

    def op_arg(self, x):
        if not x.rank or x.dtype == F.bool:
            return None
        if x.dtype.is_float and x.name not in self.inputs:
            return None
        a = self.axis(x)
        if self.value_of(x.shape[a]) == 0:
            return None
        return (x.argmax if self.r.random() < 0.5 else x.argmin)(a, keepdims=self.r.random() < 0.4)

    def op_cumsum(self, x):
        if not x.rank or x.dtype == F.bool:
            return None
        return x.cumsum(self.axis(x), exclusive=self.r.random() < 0.3, reverse=self.r.random() < 0.3)

    def op_softmax(self, x):
        if not x.rank or not x.dtype.is_float:
            return None
        a = self.axis(x)
        if self.value_of(x.shape[a]) == 0:
            return None
        return x.softmax(a) if self.r.random() < 0.7 else x.log_softmax(a)

    def op_norm(self, x):
        if not x.rank or not x.dtype.is_float:
            return None
        a = x.rank - 1
        if self.value_of(x.shape[a]) < 2:
            return None

        def p():
            return self.fresh(x.shape[a:], x.dtype)

        return self.r.choice([lambda: x.layer_norm(p(), p()), lambda: x.rms_norm(p()), lambda: x.layer_norm()])()

    # ---- contraction
    def op_matmul(self, x):
        if x.rank < 2 or x.dtype == F.bool:
            return None
        n = self.size() if self.r.random() < 0.7 else expr(1)
        mode = self.r.random()
        if mode < 0.5:
            w = self.fresh((x.shape[-1], n), x.dtype)
        elif mode < 0.7:
            w = self.fresh((*x.shape[:-2], x.shape[-1], n), x.dtype)
        elif mode < 0.85:
            w = self.fresh((n, x.shape[-1]), x.dtype).transpose(0, 1)
        else:
            w = x.transpose(-2, -1)
        return x @ w

    def op_gemm(self, x):
        if x.rank != 2 or not x.dtype.is_float:
            return None
        ta, tb = self.r.random() < 0.4, self.r.random() < 0.5
        k = x.shape[0] if ta else x.shape[1]
        m = x.shape[1] if ta else x.shape[0]
        n = self.size()
        w = self.fresh((n, k) if tb else (k, n), x.dtype)
        c = self.fresh(self.r.choice([(n,), (m, n), (expr(1), n)]), x.dtype) if self.r.random() < 0.6 else None
        return x.gemm(w, c, trans_a=ta, trans_b=tb, alpha=self.r.choice([1.0, 0.5]), beta=self.r.choice([1.0, 0.25]))

    def op_linear(self, x):
        if x.rank < 1 or not x.dtype.is_float:
            return None
        n = expr(self.r.choice([1, 3, 8, 17, 32]))
        return x.linear(self.fresh((n, x.shape[-1]), x.dtype), self.fresh((n,), x.dtype) if self.r.random() < 0.6 else None)

    def op_conv(self, x):
        if x.rank not in (3, 4) or not x.dtype.is_float:
            return None
        c = x.shape[1].as_int()
        if not c:
            return None
        d = x.rank - 2
        groups = self.r.choice([g for g in range(1, c + 1) if c % g == 0])
        o = groups * self.r.choice([1, 2, 3])
        kern = tuple(self.r.choice([1, 2, 3]) for _ in range(d))
        dil = tuple(self.r.choice([1, 1, 2]) for _ in range(d))
        st = tuple(self.r.choice([1, 1, 2, 3]) for _ in range(d))
        pads = tuple((self.r.randint(0, 2), self.r.randint(0, 2)) for _ in range(d))
        for i in range(d):
            n = self.value_of(x.shape[2 + i])
            if n + sum(pads[i]) < (kern[i] - 1) * dil[i] + 1:
                return None
        w = self.fresh((expr(o), expr(c // groups), *map(expr, kern)), x.dtype)
        b = self.fresh((expr(o),), x.dtype) if self.r.random() < 0.5 else None
        y = x.conv(w, b, stride=st, padding=pads, dilation=dil, groups=groups)
        return y.relu() if self.r.random() < 0.3 else y

    def op_conv_transpose(self, x):
        if x.rank not in (3, 4) or not x.dtype.is_float:
            return None
        c = x.shape[1].as_int()
        if not c or any(self.value_of(s) == 0 for s in x.shape):
            return None
        d = x.rank - 2
        kern = tuple(self.r.choice([1, 2, 3]) for _ in range(d))
        st = tuple(self.r.choice([1, 2]) for _ in range(d))
        w = self.fresh((expr(c), expr(self.r.choice([1, 2, 3])), *map(expr, kern)), x.dtype)
        return x.conv_transpose(w, stride=st)

    def op_pool(self, x):
        if x.rank not in (3, 4) or not x.dtype.is_float:
            return None
        d = x.rank - 2
        kern = tuple(self.r.choice([1, 2, 3]) for _ in range(d))
        st = tuple(self.r.choice([1, 2, 3]) for _ in range(d))
        pads = tuple((self.r.randint(0, k - 1), self.r.randint(0, k - 1)) for k in kern)
        for i in range(d):
            if self.value_of(x.shape[2 + i]) + sum(pads[i]) < kern[i] or self.value_of(x.shape[2 + i]) < 3:
                return None
        return (x.max_pool if self.r.random() < 0.5 else x.avg_pool)(kern, st, pads)

    def op_attention(self, x):
        if x.rank != 4 or x.dtype != F.fp32:
            return None
        k = self.fresh((*x.shape[:2], self.size(), x.shape[3]), x.dtype)
        if self.value_of(x.shape[3]) == 0 or self.value_of(k.shape[2]) == 0:
            return None
        v = self.fresh((*x.shape[:2], k.shape[2], expr(4)), x.dtype)
        return x.attention(k, v)

    # ---- indexing
    def op_take(self, x):
        if not x.rank:
            return None
        a = self.axis(x)
        n = self.value_of(x.shape[a])
        if n == 0:
            return None
        name = f"x{len(self.inputs)}"
        sh = [self.size(small=True) for _ in range(self.r.choice([0, 1, 1, 2]))]
        if x.rank + len(sh) > 5:
            return None
        idx = self.np.integers(-n, n, self.shape_numbers(sh))
        dt = self.r.choice([F.i64, F.i32])
        self.inputs[name] = np.asarray(idx).astype(numpy_dtype(dt))
        return x.take(self.g.input(name, tuple(sh), dt), a)

    def op_gather(self, x):
        if not x.rank:
            return None
        a = self.axis(x)
        n = self.value_of(x.shape[a])
        if n == 0:
            return None
        sh = list(x.shape)
        sh[a] = self.size(small=True)
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.np.integers(-n, n, self.shape_numbers(sh)).astype(np.int64)
        return x.gather(a, self.g.input(name, tuple(sh), F.i64))

    def op_scatter(self, x):
        if not x.rank or x.dtype == F.bool:
            return None
        a = self.axis(x)
        n = self.value_of(x.shape[a])
        if n < 2 or x.shape[a].as_int() is None:
            return None
        k = self.r.randint(1, n)
        sh = list(x.shape)
        sh[a] = expr(k)
        self.shape_numbers(sh)
        idx = np.argsort(self.np.random(self.shape_numbers(x.shape)), axis=a)
        idx = np.take(idx, range(k), axis=a).astype(np.int64)
        op = self.r.choice(["set", "add"])
        name = f"x{len(self.inputs)}"
        self.inputs[name] = idx
        i = self.g.input(name, tuple(sh), F.i64)
        return x.scatter(a, i, self.fresh(sh, x.dtype), op)

    def op_sort(self, x):
        if not x.rank or x.dtype == F.bool or x.name not in self.inputs:
            return None
        v, _p = x.op("sort", axis=self.axis(x))
        return v

    def op_topk(self, x):
        if not x.rank or x.dtype == F.bool or x.name not in self.inputs:
            return None
        a = self.axis(x)
        n = x.shape[a].as_int()
        if not n:
            return None
        v, _p = x.op("topk", k=expr(self.r.randint(1, n)), axis=a)
        return v


OPS = [m[3:] for m in dir(Maker) if m.startswith("op_")]
OPS += [
    "unary",
    "binary",
    "scalar",
    "permute",
    "merge",
    "split",
    "slice",
    "reduce",
    "matmul",
    "matmul",
    "conv",
    "softmax",
    "where",
    "pad",
]


WORDS = sorted(STEPS)


def make_model(seed: int, vocabulary: bool = False) -> Model:
    return Maker(seed).model(vocabulary=vocabulary)
