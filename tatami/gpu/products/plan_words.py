"""The names in a plan: axes, places, lets, tensors. A name that means nothing in this Region is refused, and quoted."""

from __future__ import annotations

from collections import Counter

from tatami.gpu.products.problem import Problem
from tatami.plan.ir import INST_K, GpuSync, Sm80Mma, Sm90Mma
from tatami.plan.views.grid import is_folded
from tatami.plan.views.product_rules import PRODUCT_ALGORITHMS, algorithm_rules, product_kind
from tatami.region.ir import Binary, Cast, Let, Reduce, Ref, Region, Unary
from tatami.region.views.kinds import epilogue_of
from tatami.region.views.product import gemm_view
from tatami.region.walk import nodes, reads

BLOCKS = ("block.x", "block.y", "block.z")
"""Coordinates of a CTA, to which a plan may bind the tiles of an axis."""
PLACES = {"m.o": BLOCKS, "n.o": BLOCKS, "b": BLOCKS, "b.o": BLOCKS, "m.i.o": ("warp.y",), "n.i.o": ("warp.x",)}
"""Places of each part of an axis: a tile is a CTA's; its rows and columns are divided by warps, which count along the rows."""


def role_of(axis: str, roles: dict[str, str]) -> str | None:
    """The role of an axis in a plan's word: ``"m.i.i"`` -> m; the Region's own axis names are understood too. None: neither."""
    head = axis.split(".")[0]
    if head in roles:
        return roles[head]
    return head if head in ("m", "n", "k", "d", "b") else None


def tail_roles(axes: tuple[str, ...], roles: dict[str, str]) -> tuple[str, ...]:
    """Roles of the axes, each once, in the order m, n, k, d."""
    found = {role_of(a, roles) for a in axes}
    return tuple(r for r in ("m", "n", "k", "d") if r in found)


def check_words(plan: Sm80Mma | Sm90Mma | GpuSync, region: Region, p: Problem) -> list[str]:
    """Reasons to refuse the plan, each naming the field and the word."""
    out = [
        f"predicate_tail names {a!r}, which is not an axis of the Region"
        for a in plan.predicate_tail
        if role_of(a, p.roles) is None
    ]
    for axis, place in plan.bind.items():
        if axis not in PLACES:
            out.append(f"bind names {axis!r}; it places the sides of the product, {', '.join(PLACES)}")
        elif place not in PLACES[axis]:
            out.append(f"bind puts {axis} on {place!r}; it lies on {' or '.join(PLACES[axis])}")
    blocks = [place for place in plan.bind.values() if place.startswith("block.")]
    if len(blocks) != len(set(blocks)) and not is_folded(plan.bind):
        out.append(f"bind puts two axes on one place ({', '.join(sorted(blocks))})")
    if {"b", "b.o"} <= {*plan.bind}:
        out.append("bind names b and b.o, which are one axis: name it once")
    words = epilogue_words(region, p.acc)
    out += _epilogue(plan.epilogue, region, p.acc, words)
    bound = set(plan.bind)
    for pair in ({"m.o", "n.o"}, {"m.i.o", "n.i.o"}):
        if (pair - bound) and (bound & pair or "m.o" in pair):
            out.append(f"bind leaves out {', '.join(sorted(pair - bound))}: name both, or neither")
    if isinstance(plan, GpuSync):
        return out
    tensors = {x.name for x in region.inputs} | {"A", "B"}
    wanted = {c.tensor for c in plan.cache}
    out += [f"cache names {c.tensor!r}, which is not an input" for c in plan.cache if c.tensor not in tensors]
    out += [f"cache keeps {c.tensor} in {c.where!r}; only smem is implemented" for c in plan.cache if c.where != "smem"]
    operands = _operands(region, p.acc)
    for name, count in Counter(c.tensor for c in plan.cache).items():
        if count > max(1, operands.count(name)):
            out.append(f"cache names {name!r} {count} times")
    for letter, name in zip("AB", operands):
        if letter not in wanted and name not in wanted:
            out.append(f"cache leaves out {letter}: ldmatrix and wgmma read operands from shared memory only")
    out += [f"cache copies {c.tensor} at {c.at!r}; blocks of k are copied, at k.i" for c in plan.cache if c.at != "k.i"]
    out += [f"cache keeps one buffer of {c.tensor}; there are {plan.stages} stages" for c in plan.cache if not c.pingpong]
    if [c.tensor for c in plan.cache] in (["B", "A"], [*operands[::-1]]) and operands[0] != operands[1]:
        out.append(f"cache lists {', '.join(c.tensor for c in plan.cache)}: name A, then B")
    if plan.vectorize.axis != "n.i.i":
        out.append(f"vectorize.axis {plan.vectorize.axis!r}: neighbours are copied and stored along n.i.i")
    steps = max(1, plan.tile[2] // INST_K.get(plan.inst_shape, 16))
    if isinstance(plan, Sm80Mma) and plan.k_steps != steps:
        out.append(f"k_steps {plan.k_steps}: a block of {plan.tile[2]} is {steps} steps of {plan.inst_shape}")
    out += _edges(plan, p.acc, words)
    if plan.layout_hints.get("C_stride", "row") != "row":
        out.append(f"layout_hints.C_stride {plan.layout_hints['C_stride']!r}: only row is implemented")
    unknown = set(plan.layout_hints) - {"A_swizzle", "B_swizzle", "C_stride"}
    out += [f"layout_hints names {u!r}; hints are A_swizzle, B_swizzle, C_stride" for u in sorted(unknown)]
    for hint in ("A_swizzle", "B_swizzle"):
        if not isinstance(word := plan.layout_hints.get(hint, True), bool):
            out.append(f"layout_hints.{hint} {word!r}: it is true or false")
    if isinstance(plan, Sm90Mma):
        for hint in ("A_swizzle", "B_swizzle"):
            if not plan.layout_hints.get(hint, True):
                out.append(f"layout_hints.{hint} false: the wgmma descriptors of this template are swizzled")
    after = {let.name for let in region.lets} - {p.acc}
    for e in plan.local_edges:
        if e.buffer != "reg" and isinstance(plan, Sm90Mma):
            out.append(f"local_edges {e.source} -> {e.target} by {e.buffer}: on sm90 epilogue_store says how results leave")
        elif e.buffer != "reg" and e.source in after:
            out.append(f"local_edges {e.source} -> {e.target} by {e.buffer}: only what leaves the accumulator is exchanged")
    view = gemm_view(region)
    return out if isinstance(view, str) else out + algorithm_rules(plan.algo_choice, product_kind(view), PRODUCT_ALGORITHMS)


def _epilogue(named: tuple[str, ...], region: Region, acc: str, words: set[str]) -> list[str]:
    """The epilogue names every let that is applied to the accumulator, or an operation of it, in the Region's order; who names
    operations leaves out casts. That it names any is a rule of decided plans (`plan/views/fixed_fields.py`)."""
    if not named:
        return []
    if unknown := [e for e in named if e not in words]:
        return [f"epilogue names {e!r}; this Region has {', '.join(sorted(words))}" for e in unknown]
    applied = epilogue_of(region, acc)
    lets = [let for let in region.lets if let.name in applied]
    left = list(named)
    by_name = set(named) <= {let.name for let in lets}
    for let in lets:
        count = _words_taken(left, let)
        if not count and (by_name or not isinstance(let.expr, Cast | Ref)):
            break
        left = left[count:]
    else:
        if not left:
            return []
    return [f"epilogue {', '.join(named)}: the Region applies {', '.join(let.name for let in lets)}, in that order"]


def _edges(plan: Sm80Mma | Sm90Mma, acc: str, words: set[str]) -> list[str]:
    """Edges lead from the accumulator to what is applied to it; sum_k is the document's name for it. A kernel of partial sums
    applies nothing: its edges are those of the kernel that joins them."""
    out: list[str] = []
    if not words:
        return out
    for e in plan.local_edges:
        if e.source not in (acc, "sum_k") or e.target not in words:
            out.append(f"local_edges {e.source} -> {e.target}: edges lead from {acc} to one of {', '.join(sorted(words))}")
        elif e.buffer == "reg" and e.depth != 1:
            out.append(f"local_edges {e.source} -> {e.target} of depth {e.depth}: a register holds one value")
    return out


def _words_taken(words: list[str], let: Let) -> int:
    """Number of words from the first on that stand for a let: its name alone, or a word for each of its operations."""
    if words[:1] == [let.name]:
        return 1
    left = Counter(e.fn for e in nodes(let.expr) if isinstance(e, Unary | Binary))
    for count, word in enumerate(words):
        fn = next((fn for fn in (word, WORDS.get(word, "")) if left[fn]), None)
        if fn is None:
            return count
        left[fn] -= 1
    return len(words)


WORDS = {"bias": "add", "residual": "add", "relu": "max"}
"""Words of an epilogue for operations."""


def epilogue_words(region: Region, acc: str) -> set[str]:
    """Lets and operations after the accumulator; also `bias` and `residual` where something is added, `relu` where a maximum
    is taken."""
    return {word for let in region.lets if let.name != acc for word in let_words(let)}


def let_words(let: Let) -> set[str]:
    """The name of a let and the words for its operations."""
    found = {e.fn for e in nodes(let.expr) if isinstance(e, Unary | Binary)}
    return {let.name, *found, *(word for word, fn in WORDS.items() if fn in found)}


def _operands(region: Region, acc: str) -> tuple[str, str]:
    let = next(x for x in region.lets if x.name == acc)
    assert isinstance(let.expr, Reduce) and isinstance(let.expr.body, Binary)
    sides = (let.expr.body.x, let.expr.body.y)
    names = [next((e.tensor for e in reads(s)), "") for s in sides]
    return names[0], names[1]
