"""Python expressions for operations whose name is not a method: one each, which a test evaluates.

x, y: floats [N, N]; n, m: integers; b, c: bool; i: positions; w: an image; k: a u64 key; f: a graph."""

from __future__ import annotations

from tatami.frontend.graph_api.tensor import Tensor

SPELLINGS: dict[str, str] = {
    "add": "x + y",
    "sub": "x - y",
    "mul": "x * y",
    "div": "x / y",
    "floordiv": "x // y",
    "mod": "x % y",
    "neg": "-x",
    "abs": "abs(x)",
    "pow": "x ** y",
    "powi": "x ** 3",
    "matmul": "x @ y",
    "eq": "x == y",
    "ne": "x != y",
    "lt": "x < y",
    "le": "x <= y",
    "gt": "x > y",
    "ge": "x >= y",
    "and": "b & c",
    "or": "b | c",
    "xor": "b ^ c",
    "not": "~b",
    "bitand": "n & m",
    "bitor": "n | m",
    "bitxor": "n ^ m",
    "bitnot": "~n",
    "shl": "n << m",
    "shr": "n >> m",
    "max": "x.maximum(y)",
    "min": "x.minimum(y)",
    "where": "g.where(b, x, y)",
    "slice": "x[1:, ::2]",
    "concat": "g.concat([x, y], axis=0)",
    "stack": "g.stack([x, y], axis=0)",
    "einsum": 'g.einsum("ij,jk->ik", x, y)',
    "trilu": "x.triu(k=1)",
    "reduce_sum": "x.sum(axis=(0, 1))",
    "reduce_prod": "x.prod(axis=0)",
    "reduce_max": "x.max(axis=0)",
    "reduce_min": "x.min(axis=0)",
    "reduce_mean": "x.mean(axis=0)",
    "reduce_and": "b.all(axis=0)",
    "reduce_or": "b.any(axis=0)",
    "reduce_log_sum_exp": "x.logsumexp(axis=0)",
    "take": "x[i]",
    "constant": "g.number(2.5, tt.fp32)",
    "size": 'g.size_of("2*N")',
    "full": "g.zeros((3, 4))",
    "extent": "i[0].as_size()",
    "extents": "g.sizes_of(i[0], i[1])",
    "iota": 'g.arange("N")',
    "eye": 'g.eye("N")',
    "rand_u32": "g.rand_u32((3, 4), k)",
    "uniform": "g.uniform((3, 4), k)",
    "normal": "g.normal((3, 4), k)",
    "dropout": "x.dropout(k, rate=0.1)",
    "kernel": 'g.kernel("input0 * 2 + ridx1", x)',
    "kernel_reduce": 'g.kernel_reduce("input0 * input1", x, y, op="sum", axes=[1])',
    "kernel_scan": 'g.kernel_scan("input0", x, op="sum", axis=1)',
    "all_reduce": "x.all_reduce(2)",
    "all_gather": "x.all_gather(2)",
    "reduce_scatter": "x.all_gather(2).reduce_scatter(2)",
    "all_to_all": "x.all_gather(2).all_to_all(2)",
    "broadcast": "x.broadcast(2)",
    "call": "g.call(f, x)",
}
"""Operation -> expression in Python."""


def spelling(op: str) -> str:
    """The expression of an operation: from the table, else the method of its name, else `op`."""
    if op in SPELLINGS:
        return SPELLINGS[op]
    if op in ("kernel_body", "loop"):
        return f"g.{op}(…)"
    if op == "if":
        return "g.cond(b, f, h, x)"
    return f"x.{op}(…)" if callable(getattr(Tensor, op, None)) else f'x.op("{op}", …)'
