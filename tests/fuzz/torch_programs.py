"""Random programs of PyTorch as source text: views, indexing, writes in place, dtypes, reductions, products, modules.

A program is made while eager runs it, so that each line knows the shapes and dtypes it may use, and two lines may well share
memory. A printed program is complete: a function of a few tensors.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

FLOATS = (torch.float32, torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int64, torch.int32, torch.uint8)
HEAD = "import torch\nimport torch.nn.functional as F\n"


@dataclass
class Program:
    """Source of `f`, and what its arguments are: (shape, dtype, the largest integer or None, needs a gradient, permuted)."""

    seed: int
    source: str
    arguments: list[Argument]
    dynamic: bool
    backward: bool

    def make(self, longer: int = 0) -> list[torch.Tensor]:
        """The arguments, their first axes longer by that much where it is the program's own length."""
        generator = torch.Generator().manual_seed(self.seed)
        return [a.make(generator, longer, self.backward) for a in self.arguments]

    def function(self) -> Callable[..., Any]:
        space: dict[str, Any] = {}
        exec(compile(HEAD + self.source, f"<program {self.seed}>", "exec"), space)
        return space["f"]


@dataclass(frozen=True)
class Argument:
    shape: tuple[int, ...]
    dtype: torch.dtype
    low: int = 0
    high: int = 0
    """Integers lie in low … high - 1."""
    is_open: bool = False
    """The first axis has another length in another call."""
    is_turned: bool = False
    """The last two axes lie in the other order."""

    def make(self, generator: torch.Generator, longer: int, backward: bool) -> torch.Tensor:
        shape = (self.shape[0] + longer, *self.shape[1:]) if self.is_open else self.shape
        lies = (*shape[:-2], shape[-1], shape[-2]) if self.is_turned else shape
        if self.dtype == torch.bool:
            made = torch.rand(lies, generator=generator) > 0.5
        elif self.dtype.is_floating_point:
            made = (torch.randint(-12, 13, lies, generator=generator) / 4).to(self.dtype)
        else:
            made = torch.randint(self.low, self.high, lies, generator=generator).to(self.dtype)
        made = made.transpose(-1, -2) if self.is_turned else made
        return made.requires_grad_() if backward and self.dtype.is_floating_point else made


@dataclass
class Writer:
    """The program so far: lines, and what eager has for every name."""

    rng: random.Random
    lines: list[str] = field(default_factory=list)
    values: dict[str, torch.Tensor] = field(default_factory=dict)
    space: dict[str, Any] = field(default_factory=dict)

    def pick(self, test: Callable[[torch.Tensor], bool] = lambda t: True) -> str | None:
        found = [n for n, v in self.values.items() if test(v)]
        return self.rng.choice(found[-6:] if self.rng.random() < 0.7 else found) if found else None

    def add(self, expression: str) -> bool:
        """Append a line for the expression. False if eager refuses it, or the result is too large."""
        name = f"v{len(self.lines)}"
        try:
            made = eval(expression, self.space)
        except Exception:
            return False
        if not isinstance(made, torch.Tensor) or made.numel() > 20_000 or made.ndim > 5 or made.dtype not in KNOWN:
            return False
        if made.is_floating_point() and made.numel() and not bool(made.detach().abs().max() < 1000):
            return False
        self.lines.append(f"{name} = {expression}")
        self.values[name] = self.space[name] = made
        return True

    def do(self, statement: str) -> bool:
        """Append a line that writes in place. False if eager refuses it."""
        try:
            exec(statement, self.space)
        except Exception:
            return False
        self.lines.append(statement)
        return True


KNOWN = frozenset({*FLOATS, *INTEGERS, torch.bool, torch.int16, torch.int8})
Step = Callable[[Writer], bool]


def is_float(t: torch.Tensor) -> bool:
    return t.is_floating_point()


def is_integer(t: torch.Tensor) -> bool:
    return not t.is_floating_point() and t.dtype != torch.bool


def _axis(w: Writer, x: torch.Tensor) -> int:
    return w.rng.randrange(-x.ndim, x.ndim) if x.ndim else 0


def unary(w: Writer) -> bool:
    n = w.pick(is_float)
    ops = ("exp({}.clamp(max=3))", "{}.tanh()", "{}.sigmoid()", "F.relu({})", "F.gelu({})", "F.silu({})", "{}.abs()", "-{}", "{}.sqrt()",
           "{}.clamp(-1, 1.5)", "{}.round()", "{}.floor()", "{}.sin()", "{}.square()", "{}.sign()", "{}.reciprocal()", "F.softplus({})",
           "F.leaky_relu({}, 0.1)", "{}.log1p()", "{}.erf()", "{}.rsqrt()", "{}.nan_to_num()", "F.hardtanh({})", "F.elu({})")  # fmt: skip
    chosen = w.rng.choice(ops)
    chosen = "torch." + chosen if chosen.startswith("exp") else chosen
    return n is not None and w.add(chosen.format(n))


def binary(w: Writer) -> bool:
    a = w.pick(lambda t: t.dtype != torch.bool)
    b = w.pick(lambda t: t.dtype != torch.bool)
    if a is None or b is None:
        return False
    if w.rng.random() < 0.3:
        b = w.rng.choice(["2", "0.5", "-1.5", "3"])
    op = w.rng.choice(["+", "-", "*", "+", "*", "/", "//", "%", "<", ">=", "=="])
    if w.rng.random() < 0.15:
        return w.add(
            f"torch.{w.rng.choice(['maximum', 'minimum', 'atan2', 'fmod', 'where'])}("
            + (f"{a} > {b}, " if False else "")
            + f"{a}, {b})"
        )
    return w.add(f"{a} {op} {b}")


def chosen(w: Writer) -> bool:
    a, b, m = w.pick(), w.pick(), w.pick(lambda t: t.dtype == torch.bool)
    if m is None:
        return a is not None and w.add(f"{a} > 0")
    forms = (
        f"torch.where({m}, {a}, {b})",
        f"torch.where({m}, {a}, 0)",
        f"{a}.masked_fill({m}, 2)",
        f"~{m}",
        f"{m} & ({a} > 0)",
        f"{m}.any(-1)",
        f"{m}.sum()",
    )
    return w.add(w.rng.choice(forms))


def cast(w: Writer) -> bool:
    n = w.pick()
    to = w.rng.choice(["float32", "float64", "float16", "bfloat16", "int64", "int32", "bool"])
    return n is not None and w.add(f"{n}.to(torch.{to})")


def view(w: Writer) -> bool:
    n = w.pick(lambda t: t.ndim > 0)
    if n is None:
        return False
    x = w.values[n]
    a, b = _axis(w, x), _axis(w, x)
    size = x.shape[a]
    order = list(range(x.ndim))
    w.rng.shuffle(order)
    low, step = w.rng.randint(0, max(size - 1, 0)), w.rng.choice([1, 1, 2, 3])
    colons = ":, " * (a % x.ndim)
    forms = (
        f"{n}.transpose({a}, {b})", f"{n}.permute({order})", f"{n}.reshape(-1)", f"{n}.flatten(0, -1)", f"{n}.unsqueeze({a})", f"{n}.squeeze()",
        f"{n}[{colons}{low}:]", f"{n}[{colons}::{step}]", f"{n}[{colons}{low}]", f"{n}[{colons}:{low + 1}:{step}]", f"{n}[..., -1]", f"{n}[None]",
        f"{n}.flip({a})", f"{n}.roll({low}, {a})", f"{n}.select({a}, {low})", f"{n}.narrow({a}, {low}, {w.rng.randint(0, size - low) if size else 0})",
        f"{n}.chunk(2, {a})[0]", f"{n}.chunk(2, {a})[-1]", f"{n}.unbind({a})[{low}]", f"{n}.contiguous()", f"{n}.clone()", f"{n}.detach()",
        f"{n}.unsqueeze({a}).expand({', '.join('3' if k == a % (x.ndim + 1) else '-1' for k in range(x.ndim + 1))})", f"{n}.movedim({a}, {b})",
        f"{n}.view(-1)", f"{n}.view({n}.shape)", f"{n}.repeat_interleave(2, {a})", f"{n}.tile(2)", f"{n}.mT", f"{n}.diagonal()", f"{n}.unfold({a}, 2, 1)",
        f"F.pad({n}, (1, 2))", f"F.pad({n}, (-1, 1))", f"{n}.reshape({size}, -1)", f"{n}.tril()", f"{n}.triu(1)", f"{n}.expand_as({n})", f"{n}.swapaxes(0, -1)",
    )  # fmt: skip
    return w.add(w.rng.choice(forms))


def join(w: Writer) -> bool:
    a = w.pick(lambda t: t.ndim > 0)
    if a is None:
        return False
    x = w.values[a]
    b = w.pick(lambda t: t.shape == x.shape and t.dtype == x.dtype)
    return w.add(
        w.rng.choice(
            [f"torch.cat([{a}, {b}], {_axis(w, x)})", f"torch.stack([{a}, {b}], {_axis(w, x)})", f"torch.cat([{a}, {a}])"]
        )
    )


def reduce(w: Writer) -> bool:
    n = w.pick(lambda t: t.ndim > 0 and t.dtype != torch.bool)
    if n is None:
        return False
    x = w.values[n]
    a, k = _axis(w, x), w.rng.choice(["", ", keepdim=True"])
    forms = (f"{n}.sum({a}{k})", f"{n}.mean({a}{k})", f"{n}.amax({a}{k})", f"{n}.amin({a}{k})", f"{n}.var({a}{k})", f"{n}.std({a}{k})", f"{n}.sum()",
             f"{n}.argmax({a}{k})", f"{n}.cumsum({a})", f"{n}.logsumexp({a}{k})", f"{n}.softmax({a})", f"{n}.log_softmax({a})", f"{n}.max({a})[0]",
             f"{n}.sort({a})[0]", f"{n}.topk(2, {a})[0]", f"{n}.norm(dim={a})", f"{n}.prod({a}{k})", f"{n}.min({a}).values", f"{n}.max()", f"{n}.median({a})[0]",
             f"{n}.any()", f"({n} > 0).all({a})", f"F.normalize({n}, dim={a})", f"{n}.cumprod({a})", f"{n}.argsort({a}, stable=True)", f"{n}.diff(dim={a})")  # fmt: skip
    return w.add(w.rng.choice(forms))


def index(w: Writer) -> bool:
    n, i = w.pick(lambda t: t.ndim > 0), w.pick(lambda t: t.dtype in (torch.int64, torch.int32))
    if n is None or i is None:
        return False
    x = w.values[n]
    a = _axis(w, x)
    safe = i if w.rng.random() < 0.2 else f"({i} % {max(x.shape[a], 1)})"
    colons = ":, " * (a % x.ndim)
    forms = (f"{n}[{colons}{safe}]", f"{n}.index_select({a}, {safe}.flatten())", f"{n}.take_along_dim({safe}.long().flatten(), None)", f"{n}[{safe}, {safe}]",
             f"F.embedding({safe}, {n})", f"{n}.gather({a}, {safe}.long().expand_as({n}))", f"{n}[{colons}[0, -1]]", f"{n}.index_add({a}, {safe}.flatten(), {n}.index_select({a}, {safe}.flatten()))",
             f"{n}.scatter({a}, {safe}.long().expand_as({n}), 2)", f"{n}.index_fill({a}, {safe}.long().flatten(), 1)", f"{n}.index_copy({a}, {safe}.flatten().long(), {n}.index_select({a}, {safe}.flatten()) * 2)",
             f"F.one_hot({safe}.long(), {x.shape[a] + 1})", f"{n}.scatter_add({a}, {safe}.long().expand_as({n}), {n})", f"F.cross_entropy({n}, {safe}.long().flatten())")  # fmt: skip
    return w.add(w.rng.choice(forms))


def write(w: Writer) -> bool:
    n = w.pick(lambda t: t.ndim > 0 and t.dtype != torch.bool and not (t.is_leaf and t.requires_grad))
    if n is None:
        return False
    x = w.values[n]
    a = _axis(w, x)
    low = w.rng.randint(0, max(x.shape[a] - 1, 0))
    colons = ":, " * (a % x.ndim)
    b = w.pick(lambda t: t.dtype == x.dtype) or "1"
    i = w.pick(lambda t: t.dtype == torch.int64)
    forms = [f"{n}.add_({b})", f"{n}.mul_(2)", f"{n}[{colons}{low}] = 1", f"{n}[{colons}{low}:] = {n}[{colons}{low}:] * 2", f"{n}[{colons}{low}].add_(3)", f"{n}.zero_()",
             f"{n}.copy_({b})", f"{n}.clamp_(-1, 1)", f"{n}.transpose(0, -1)[0] = 2", f"{n}.view(-1)[{low}] = 5", f"{n}[{n} > 0] = 0", f"{n} += {b}", f"{n}[..., ::2] -= 1",
             f"{n}.fill_(2)", f"{n}.masked_fill_({n} < 0, 3)", f"{n}.t_()", f"{n}.unsqueeze_(0)"]  # fmt: skip
    if i is not None:
        size = max(x.shape[a], 1)
        forms += [f"{n}[{colons}{i} % {size}] = 3", f"{n}.index_add_({a}, {i}.flatten() % {size}, {n}.index_select({a}, {i}.flatten() % {size}))",
                  f"{n}.index_put_(({i} % {size},), {n}[0].clone())", f"{n}.scatter_({a}, ({i} % {size}).expand_as({n}), 1)"]  # fmt: skip
    return w.do(w.rng.choice(forms))


def product(w: Writer) -> bool:
    a = w.pick(lambda t: is_float(t) and t.ndim >= 2 and t.numel() > 0)
    if a is None:
        return False
    x = w.values[a]
    b = w.pick(lambda t: is_float(t) and t.dtype == x.dtype and t.ndim >= 1 and t.shape[-1] == x.shape[-1]) or a
    forms = (f"({a} @ {b}.mT) / 4", f"F.linear({a}, {b}) / 4", f"torch.einsum('...ij,...kj->...ik', {a}, {a}) / 8", f"{a} @ {b}", f"torch.outer({a}.flatten()[:5], {b}.flatten()[:7])",
             f"F.scaled_dot_product_attention({a}[None, None], {a}[None, None], {a}[None, None])")  # fmt: skip
    return w.add(w.rng.choice(forms))


def module(w: Writer) -> bool:
    n = w.pick(lambda t: t.dtype == torch.float32 and t.ndim >= 2 and t.numel() > 0)
    if n is None:
        return False
    x = w.values[n]
    c = x.shape[1]
    forms = [f"F.layer_norm({n}, ({x.shape[-1]},))", f"F.batch_norm({n}, None, None, training=True)", f"F.avg_pool1d({n}, 2)", f"F.max_pool1d({n}, 2)",
             f"F.dropout({n}, 0.5, training=False)", f"F.adaptive_avg_pool1d({n}, 3)", f"F.rms_norm({n}, ({x.shape[-1]},))", f"F.mse_loss({n}, {n}.roll(1, 0))"]  # fmt: skip
    if x.ndim == 3:
        forms += [f"F.conv1d({n}, torch.linspace(-1, 1, {c * 6}).view(2, {c}, 3), padding=1)", f"F.interpolate({n}, scale_factor=2.0)", f"F.pad({n}, (1, 1), mode='replicate')",
                  f"F.conv1d({n}, torch.ones({c}, 1, 2), groups={c})", f"F.conv_transpose1d({n}, torch.linspace(-1, 1, {c * 6}).view({c}, 2, 3), stride=2)", f"F.group_norm({n}, 1)"]  # fmt: skip
    if x.ndim == 4:
        forms += [f"F.conv2d({n}, torch.linspace(-1, 1, {c * 18}).view(2, {c}, 3, 3), padding=1)", f"F.max_pool2d({n}, 2)", f"F.avg_pool2d({n}, 2)",
                  f"F.interpolate({n}, scale_factor=2.0, mode='bilinear')", f"F.pixel_shuffle({n}, 2)"]  # fmt: skip
    return w.add(w.rng.choice(forms))


STEPS: tuple[tuple[Step, int], ...] = (
    (unary, 5),
    (binary, 6),
    (view, 8),
    (reduce, 5),
    (index, 5),
    (write, 5),
    (chosen, 3),
    (cast, 2),
    (join, 2),
    (product, 3),
    (module, 3),
)


def program(seed: int) -> Program:
    rng = random.Random(seed)
    w = Writer(rng)
    backward, dynamic = rng.random() < 0.4, rng.random() < 0.35
    arguments: list[Argument] = []
    length = rng.choice([1, 2, 3, 4, 5, 7, 8, 17])
    for k in range(rng.randint(2, 4)):
        rank = rng.choice([1, 2, 2, 2, 3, 3, 4])
        shape = tuple(rng.choice([1, 2, 3, 4, 5, 8, 16, 19]) for _ in range(rank - 1))
        dtype = rng.choice(FLOATS) if k == 0 or rng.random() < 0.6 else rng.choice((*INTEGERS, torch.bool))
        if rng.random() < 0.5 and arguments and arguments[0].dtype.is_floating_point:
            shape, dtype = arguments[0].shape[1:], arguments[0].dtype if dtype.is_floating_point else dtype
        low = rng.choice([0, 0, -3]) if dtype != torch.uint8 else 0
        arguments.append(
            Argument((length, *shape), dtype, low, rng.choice([3, 5, 9]), dynamic, len(shape) > 0 and rng.random() < 0.2)
        )
    made = Program(seed, "", arguments, dynamic, backward)
    exec(HEAD, w.space)
    for k, value in enumerate(made.make()):
        w.values[f"a{k}"] = w.space[f"a{k}"] = value
    steps, weights = zip(*STEPS)
    for _ in range(rng.randint(3, 9)):
        for _ in range(20):
            if rng.choices(steps, weights)[0](w):
                break
    own = [n for n in w.values if n.startswith("v")]
    results = rng.sample(own, min(len(own), rng.randint(1, 3)))
    if own and own[-1] not in results:
        results.append(own[-1])
    if rng.random() < 0.15:
        results.append("a0")
    names = ", ".join(f"a{k}" for k in range(len(arguments)))
    body = "".join(f"    {line}\n" for line in w.lines)
    made.source = f"def f({names}):\n{body}    return {', '.join(results) or 'a0'},\n"
    return made
