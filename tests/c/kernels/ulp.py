"""Errors of the fp32 functions, in units in the last place, of kernels as a user gets them.

    python -m tests.c.kernels.ulp [name …]           one fp32 number in 16411: some hundred of every exponent
    python -m tests.c.kernels.ulp --all [name …]     every fp32 number (minutes a function)
    python -m tests.c.kernels.ulp --record           one in 257 (or --all), every function; writes docs/accuracy.md

The reference is numpy in double precision. An error is the distance to the exact value in units of the last place that an
fp32 number of that size has, so that a result rounded correctly is within 0.5; a result that overflows counts as 2^128.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

import tatami as tt
from tatami.core.dtype import DType
from tatami.core.numbers import numerics
from tests.loop.compiled import has_flags

TARGETS = ("cpu:avx512", "cpu:avx2", "cpu:generic")
PAGE = Path(__file__).parents[3] / "docs" / "accuracy.md"
CHUNK = 1 << 21
SAMPLE = 16411

Exact = Callable[..., np.ndarray]
FUNCTIONS: dict[str, Exact] = {
    "recip": lambda x: 1 / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": lambda x: np.asarray(numerics.apply("erf", [x], DType.fp64)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}
OF_TWO: dict[str, Exact] = {"pow": np.power, "atan2": np.arctan2}
ALL = (*FUNCTIONS, *OF_TWO)


class Worst:
    """The largest error so far, and where it is."""

    def __init__(self) -> None:
        self.ulps = 0.0
        self.at: tuple[float, ...] = ()

    def join(self, operands: Sequence[np.ndarray], got: np.ndarray, want: np.ndarray) -> None:
        errors = ulps(got, want)
        k = int(errors.argmax())
        if errors[k] > self.ulps:
            self.ulps, self.at = float(errors[k]), tuple(float(x[k]) for x in operands)


def ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Errors of fp32 results against exact ones; infinite where one is NaN and the other is not."""
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(want)
        unit = np.ldexp(1.0, np.clip(exponent, -125, 128) - 24)
        limit = 2.0**128
        error = np.abs(np.clip(got.astype(np.float64), -limit, limit) - np.clip(want, -limit, limit)) / unit
    odd = np.isnan(got) | np.isnan(want)
    return np.where(odd, np.where(np.isnan(got) & np.isnan(want), 0.0, np.inf), error)


def numbers(every: int) -> Iterator[np.ndarray]:
    """One fp32 number in `every`, in order of their bits and in parts; first zeros, infinities, NaN and the ends of ranges."""
    ends = np.array([0x0, 0x1, 0x7FFFFF, 0x800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000], np.uint32)
    yield np.concatenate([ends, ends | np.uint32(1 << 31)]).view(np.float32)
    for first in range(0, 1 << 32, CHUNK * every):
        bits = np.arange(first, min(first + CHUNK * every, 1 << 32), every, dtype=np.uint64)
        yield bits.astype(np.uint32).view(np.float32)


def pairs(every: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs of operands: each number of a side with each, one fp32 number in 2^16 sqrt(every) on both sides."""
    side = np.concatenate(list(numbers(math.isqrt(every) << 16 | 1)))
    for part in np.array_split(side, -(-(len(side) ** 2) // CHUNK)):
        yield np.repeat(part, len(side)), np.tile(side, len(part))


def measure(names: Sequence[str], target: str, every: int) -> dict[str, Worst]:
    """The largest error of each function over one number in `every`, or as many pairs."""
    one, two = [n for n in names if n in FUNCTIONS], [n for n in names if n in OF_TWO]
    found = _measure(one, FUNCTIONS, target, ((x,) for x in numbers(every))) if one else {}
    return found | (_measure(two, OF_TWO, target, pairs(every)) if two else {})


def _measure(
    names: Sequence[str], exact: Mapping[str, Exact], target: str, places: Iterable[tuple[np.ndarray, ...]]
) -> dict[str, Worst]:
    g = tt.Graph("functions")
    x, *others = (g.input(f"x{k}", ("N",), tt.fp32) for k in range(1 + (exact is OF_TWO)))
    for name in names:
        g.output(name, x.op(name, *others))
    f = tt.compile(g, target=target, threads=1)
    worst = {name: Worst() for name in names}
    for operands in places:
        results = f(*operands)
        with np.errstate(all="ignore"):
            wide = [x.astype(np.float64) for x in operands]
            for name in names:
                worst[name].join(operands, results[name], exact[name](*wide))
    return worst


def columns_of(text: str) -> dict[str, dict[str, str]]:
    """{target: {function: cell}} of a page."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]
    return {target: {row[0]: row[k] for row in rows[1:]} for k, target in enumerate(rows[0]) if k} if rows else {}


def page(found: dict[str, dict[str, Worst]], every: int, before: str) -> str:
    """The page; targets that were not measured stay as they are in the page `before`."""
    head = "# Accuracy of fp32 functions\n\nWritten by `python -m tests.c.kernels.ulp --record`: the largest error over "
    head += "all fp32 numbers" if every == 1 else f"one fp32 number in {every}, every exponent among them"
    head += ", or as many pairs, in units in the last place (0.5: rounded correctly) against double precision, and the number where it is. "
    head += f"`tests/c/kernels/test_ulp.py` allows 2 at one number in {SAMPLE}. Functions not listed go through double precision or are exact.\n"
    columns = columns_of(before)
    for target, worst in found.items():
        columns[target] = {n: f"{w.ulps:.2f} at {', '.join(f'{x:.9g}' for x in w.at)}" for n, w in worst.items()}
    columns = {target: columns[target] for target in TARGETS if target in columns}
    lines = [head, f"| function | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    for name in ALL:
        lines.append(f"| {name} | {' | '.join(cells.get(name, '') for cells in columns.values())} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.c.kernels.ulp", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *ALL], default=[])
    parser.add_argument("--all", action="store_true", help="every fp32 number")
    parser.add_argument("--record", action="store_true", help="every function; writes docs/accuracy.md")
    parser.add_argument("--target", action="append", default=[], choices=TARGETS)
    args = parser.parse_args()
    every = 1 if args.all else 257 if args.record else SAMPLE
    names = ALL if args.record else args.names or ALL
    found: dict[str, dict[str, Worst]] = {}
    for target in args.target or [t for t in TARGETS if has_flags(t.removeprefix("cpu:"))]:
        found[target] = measure(names, target, every)
        for name, worst in found[target].items():
            print(f"{target} {name}: {worst.ulps:.3f} at {worst.at!r}", flush=True)
    if args.record:
        before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        PAGE.write_text(page(found, every, before), encoding="utf-8")


if __name__ == "__main__":
    main()
