"""Random image graphs whose height and width are open: sizes become floors, remainders and extremes of symbols.

`make_graph(seed)` draws strided convolutions and pools, resizes, crops, pads, joins, and splits and merges of axes. Whatever sizes
come out, one compilation serves every binding.

    python -m tests.random_models.open_size_graphs --count 200 --run      says which seeds are refused, or differ from the reference
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tatami as tt
from tatami.api import prepare
from tatami.core.expr import ceildiv, expr, floordiv, maximum, minimum

LEAST = 12
"""Minimum of height and width, so that no window is larger than its image."""
BINDINGS = ((1, 12, 17), (2, 15, 13), (1, 21, 12))


class Maker:
    """Tensors [B, C, h, w] so far, each with how often it was halved."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.graph = tt.Graph(f"open{seed}")
        x = self.graph.input("x", ("B", 4, "H", "W"), tt.fp32)
        self.pool: list[tuple[Any, int]] = [(x, 0)]
        self.drawn: list[str] = []

    def made(self) -> tt.Graph:
        for _ in range(self.r.randint(3, 7)):
            self.step()
        for k, (x, _) in enumerate(self.pool[-2:]):
            self.graph.output(f"y{k}", x)
        return self.graph

    def step(self) -> None:
        x, halved = self.pool[-1] if self.r.random() < 0.7 else self.r.choice(self.pool)
        options = [
            self.conv,
            self.pooled,
            self.crop,
            self.pad,
            self.joined,
            self.rows,
            self.pointwise,
            self.flipped,
            self.split,
        ]
        options += [self.resized, self.like_another, self.merged, self.scanned, self.every_second, self.spread]
        made = self.r.choice([o for o in options if halved < 2 or o not in (self.conv, self.pooled, self.every_second)])
        self.drawn.append(made.__name__)
        self.pool.append(made(x, halved))

    def constant(self, *shape: int) -> Any:
        return self.graph.constant(self.numbers.standard_normal(shape).astype(np.float32) * 0.5)

    def conv(self, x: Any, halved: int) -> tuple[Any, int]:
        c, stride, k = int(str(x.shape[1])), self.r.choice((1, 2, 2)), self.r.choice((1, 2, 3))
        groups = self.r.choice((1, c))
        border = [(self.r.randint(0, k - 1), self.r.randint(0, k - 1)) for _ in range(2)]
        w = self.constant(c, c // groups, k, k)
        return x.conv(w, None, stride=stride, padding=border, groups=groups), halved + (stride > 1)

    def pooled(self, x: Any, halved: int) -> tuple[Any, int]:
        k, stride = self.r.choice((2, 3)), self.r.choice((1, 2, 2))
        attrs = {"ceil_mode": True} if self.r.random() < 0.4 else {}
        make = x.max_pool if self.r.random() < 0.5 else x.avg_pool
        return make(k, stride, self.r.randint(0, k // 2), **attrs), halved + (stride > 1)

    def crop(self, x: Any, halved: int) -> tuple[Any, int]:
        lo, hi = self.r.randint(0, 1), self.r.choice((None, -1))
        return (x[:, :, lo:hi] if self.r.random() < 0.5 else x[:, :, :, lo:hi]), halved

    def every_second(self, x: Any, halved: int) -> tuple[Any, int]:
        start = self.r.randint(0, 1)
        return (x[:, :, start::2] if self.r.random() < 0.5 else x[:, :, :, start::2]), halved + 1

    def pad(self, x: Any, halved: int) -> tuple[Any, int]:
        h = x.shape[2]
        many = self.r.choice((1, 2, ceildiv(h, 4) * 4 - h, maximum(h, 16) - h))
        mode = self.r.choice(("constant", "constant", "edge"))
        return x.pad([(0, 0), (0, 0), (0, many), (self.r.randint(0, 1), 0)], mode=mode), halved

    def joined(self, x: Any, halved: int) -> tuple[Any, int]:
        others = [t for t, _ in self.pool if t.shape[2:] == x.shape[2:]]
        if self.r.random() < 0.6:
            return self.graph.concat([x, self.r.choice(others)], 1)[:, :4], halved
        return self.graph.concat([x, x[:, :, :1] * 2.0, x.flip(2)], 2), max(0, halved - 1)

    def rows(self, x: Any, halved: int) -> tuple[Any, int]:
        axis = self.r.choice((2, 3))
        return self.r.choice((lambda: x.softmax(axis), lambda: x - x.mean(axis, keepdims=True).expand(x.shape)))(), halved

    def pointwise(self, x: Any, halved: int) -> tuple[Any, int]:
        others = [t for t, _ in self.pool if t.shape == x.shape]
        return x * 0.5 + self.r.choice(others), halved

    def flipped(self, x: Any, halved: int) -> tuple[Any, int]:
        return (x.flip(self.r.choice((2, 3))) if self.r.random() < 0.5 else x.transpose(2, 3)), halved

    def split(self, x: Any, halved: int) -> tuple[Any, int]:
        """A height made a multiple of 2, split and joined another way round."""
        b, c, h, w = x.shape
        even = x.pad([(0, 0), (0, 0), (0, ceildiv(h, 2) * 2 - h), (0, 0)])
        parts = even.reshape((b, c, ceildiv(h, 2), 2, w))
        if self.r.random() < 0.5:
            return parts.mean(3), halved + 1
        return parts.permute(0, 1, 3, 2, 4).reshape((b, c, ceildiv(h, 2) * 2, w)), halved

    def resized(self, x: Any, halved: int) -> tuple[Any, int]:
        b, c, h, w = x.shape
        mode = self.r.choice(("nearest", "linear"))
        if self.r.random() < 0.5:
            return x.resize((b, c, h * 2, w * 2), mode, scales=(1.0, 1.0, 2.0, 2.0)), max(0, halved - 1)
        to = (b, c, floordiv(h * 3, expr(2)), w)
        return x.resize(to, "nearest", scales=(1.0, 1.0, 1.5, 1.0), coordinates="asymmetric"), halved

    def like_another(self, x: Any, halved: int) -> tuple[Any, int]:
        """Cropped to the smaller of two sizes, and added."""
        y, other = self.r.choice(self.pool)
        h, w = minimum(x.shape[2], y.shape[2]), minimum(x.shape[3], y.shape[3])
        return x[:, :, :h, :w] + y[:, :, :h, :w], max(halved, other)

    def merged(self, x: Any, halved: int) -> tuple[Any, int]:
        b, c, h, w = x.shape
        line = x.reshape((b, c, h * w))
        line = self.r.choice((lambda: line.softmax(2), lambda: line.cumsum(2) * 0.1, lambda: line.flip(2)))()
        return line.reshape((b, c, h, w)) if self.r.random() < 0.5 else line.reshape((b, c, w, h)), halved

    def scanned(self, x: Any, halved: int) -> tuple[Any, int]:
        return x.cumsum(self.r.choice((2, 3))) * 0.1, halved

    def spread(self, x: Any, halved: int) -> tuple[Any, int]:
        """Places along an axis, which are numbers too."""
        at = self.graph.iota(x.shape, self.r.choice((2, 3))).cast(tt.fp32)
        return x + at * 0.01, halved


def make_graph(seed: int) -> tt.Graph:
    return Maker(seed).made()


def inputs() -> Iterator[np.ndarray]:
    for b, h, w in BINDINGS:
        yield np.random.default_rng(h).standard_normal((b, 4, h, w)).astype(np.float32)


def planned(seed: int, target: str = "cpu:avx2") -> Any:
    """The stages down to the order of the kernels, each verified."""
    stages = prepare(make_graph(seed), target=target).stages
    assert stages["execution"]
    return stages


def difference(seed: int) -> str:
    """The difference from the reference for some binding; "" if there is none."""
    f, r = (tt.compile(make_graph(seed), target=t, threads=1) for t in ("cpu", "reference"))
    for x in inputs():
        wanted = r(x=x)
        for name, got in f(x=x).items():
            if got.shape != wanted[name].shape:
                return f"{name} of {x.shape}: shape {got.shape}, expected {wanted[name].shape}"
            if not np.allclose(got, wanted[name], rtol=1e-3, atol=1e-4):
                return f"{name} of {x.shape}: {np.abs(got - wanted[name]).max()} apart"
    return ""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", action="store_true", help="compare with the reference, at every binding")
    given = parser.parse_args(arguments)
    faults = 0
    for seed in range(given.seed, given.seed + given.count):
        check: Callable[[int], Any] = difference if given.run else planned
        try:
            found = check(seed)
            fault = found if given.run else ""
        except Exception as error:
            fault = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        if fault:
            maker = Maker(seed)
            try:
                maker.made()
            except Exception as error:
                fault += f" (made: {error})"
            faults += 1
            print(f"{seed}: {fault[:300]} after {maker.drawn}", flush=True)
    print(f"{faults} of {given.count}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
