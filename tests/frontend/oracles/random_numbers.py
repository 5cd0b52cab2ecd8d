"""Random numbers: the published vectors of Philox4x32-10, and each distribution from the same words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.frontend.oracles.oracle import Oracle, oracle
from tests.frontend.oracles.reduction import drawn


def philox4x32(counter: list[int], key: list[int]) -> list[int]:
    """Ten rounds by the definition (Salmon et al. 2011), one block of four words."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def words(key: int, count: int) -> np.ndarray:
    """The first `count` words of the stream of a 64-bit key: block after block."""
    blocks = [philox4x32([i & 0xFFFFFFFF, i >> 32, 0, 0], [key & 0xFFFFFFFF, key >> 32]) for i in range(-(-count // 4))]
    return np.array([w for block in blocks for w in block][:count], np.uint32)


KEYS = (0, 1, 0xDEADBEEF12345678, 2**64 - 1)


@oracle
def random_words(o: Oracle) -> None:
    for key in KEYS:
        k = o.given(np.uint64(key))
        o.same(f"words of {key}", o.g.rand_u32((3, 37), k), words(key, 111).reshape(3, 37))
        o.same(f"one word of {key}", o.g.rand_u32((), k), words(key, 1)[0])
    k = o.given(np.uint64(5))
    rows = o.given(drawn((7, 3)), ("R", 3))
    o.same("words of an open shape", o.g.rand_u32(("R", 5), k), words(5, 35).reshape(7, 5))
    o.same("no words", o.g.rand_u32((0, 4), k), np.zeros((0, 4), np.uint32))
    o.same("rows", rows, drawn((7, 3)))


@oracle
def random_numbers(o: Oracle) -> None:
    """uniform is bit-equal, normal within 4 ulp, dropout keeps the same elements."""
    for key in KEYS:
        k = o.given(np.uint64(key))
        for label, bits in (("fp32", 24), ("fp64", 24), ("fp16", 11), ("bf16", 8)):
            unit = (words(key, 90) >> np.uint32(32 - bits)).reshape(9, 10) / 2.0**bits
            g: Any = o.g  # dtypes by name
            o.same(f"uniform {label} {key}", g.uniform((9, 10), k, dtype=label), unit, 0.0, each=True)
        unit = (words(key, 90) >> np.uint32(8)).reshape(9, 10) / 2.0**24
        o.same(f"uniform between {key}", o.g.uniform((9, 10), k, -2.0, 2.0), unit * 4 - 2, 0.0, each=True)
        u, v = (words(key, 180) >> np.uint32(8)).reshape(2, 9, 10) / 2.0**24
        z = np.sqrt(-2 * np.log1p(-u)) * np.cos(2 * math.pi * v)
        o.same(f"normal {key}", o.g.normal((9, 10), k), z, 4.0, each=True)
        o.same(f"normal of 3, 2 {key}", o.g.normal((9, 10), k, 3.0, 2.0), z * 2 + 3, 4.0)
        x = drawn((9, 10), seed=1)
        kept = np.where(unit >= np.float32(0.25), x * (1 / 0.75), 0)
        o.same(f"dropout {key}", o.given(x, (f"D{key % 97}", 10)).dropout(k, 0.25), kept)
