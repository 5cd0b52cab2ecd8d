"""The text of the `pair` template: two products and what stands between them, all in registers.

A warp has some rows of the tile and all keys of a block: WM rows of its own, or 16 of every 64 of its warpgroup (`Fragments`).
A lane has two keys of every eight in rows lane / 4 and + 8 of every sixteen, as accumulators of m16n8 and of wgmma lie;
the same registers, rounded and packed, are the A fragments of the second product. Scores are kept in units of log2(e),
so that a weight is one exp2; if weights are direct, a score is the weight, and a row has no state.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tatami.core.algebra.visit import free_vars, step_of, substitute
from tatami.core.dtype import DType
from tatami.core.expr import Expr, var
from tatami.core.scalar import number
from tatami.cu.expr_text import SHORT, constant_text, factor_text, index_text, scalar_text
from tatami.cu.lines import Lines
from tatami.cu.products.epilogue import let_lines, stored
from tatami.gpu.ir import Kernel, Weights
from tatami.gpu.statement_ir import StRows
from tatami.plan.ir import INST_K
from tatami.region.ir import Binary, Const, Let, Read, Ref, RegionExpr
from tatami.region.walk import nodes, rewrite, used_lets

LOG2_E = 1.4426950408889634
"""Factor from natural logarithms to base 2."""
LN_2 = 0.6931471805599453
"""Factor from base-2 logarithms to natural ones."""
INFINITE = "tt_bits_to_f32(0x7f800000u)"
"""C text of positive infinity."""
NAN = "tt_bits_to_f32(0x7fc00000u)"
"""C text of a quiet NaN of fp32."""
NEVER = "tt_bits_to_f32(0xff800000u)"
"""C text of minus infinity, the score of a key that is not seen."""


class Fragments(NamedTuple):
    """The layout of accumulators in a thread's registers: `blocks` of sixteen rows of a warp, of which the thread has rows
    `row` and + 8; element e of columns 8 * j .. + 7 is ``name[i]`` followed by `at`."""

    blocks: str
    row: str
    shape: str
    at: str

    def element(self, name: str, j: str, e: str) -> str:
        """C text of element e of the j-th eight columns."""
        return f"{name}[i]{self.at.format(j=j, e=e)}"

    def array(self, name: str, columns: str) -> str:
        """C declarator of an array of accumulators with this many columns."""
        return f"{name}[{self.blocks}]{self.shape.format(columns=columns)}"


OF_A_WARP = Fragments("WM / 16", "m0 + warp_m + 16 * i + lane / 4", "[{columns} / 8][4]", "[{j}][{e}]")
"""The layout of mma's accumulators."""
OF_A_WARPGROUP = Fragments(
    "ROWS / 64", "m0 + group * ROWS + 64 * i + 16 * (warp % 4) + lane / 4", "[{columns} / 2]", "[4 * ({j}) + {e}]"
)
"""The layout of wgmma's accumulators."""


def fragments_of(k: Kernel) -> Fragments:
    """The layout of the kernel's accumulators."""
    return OF_A_WARPGROUP if k.has_roles else OF_A_WARP


def size_lines(k: Kernel, w: Weights, l: Lines) -> None:
    """Declare the sizes of the products, and the number of tiles."""
    l.add(
        f"const tt_i64 D = {index_text(w.depth)}, keys = {index_text(k.k)}, n0 = 0;", f"constexpr int DEPTH = {16 * w.steps};"
    )
    l.add("const int MT = (int)((M + BM - 1) / BM);")


def place_lines(k: Kernel, tile: str, l: Lines) -> None:
    """Declare the rows of a CTA. The last rows come first: if a row sees the keys before it, they have the most work."""
    names = f"tt_i64 {', '.join(f'b{i}' for i in range(len(k.batch)))};"
    if k.section:
        count = " * ".join(factor_text(b) for b in k.batch) or "1"
        l.add(f"const int first = (int)({tile} / ({k.section} * MT)) * {k.section}, rest = (int)({count}) - first;")
        l.add(f"const int width = rest < {k.section} ? rest : {k.section}, at = {tile} - first * MT;")
        l.add("const tt_i64 m0 = (tt_i64)(MT - 1 - at / width) * BM;")
        l.add(*(("tt_i64 z = first + at % width;", names) if k.batch else ()))
        return
    l.add(f"const tt_i64 m0 = (tt_i64)(MT - 1 - {tile} % MT) * BM;")
    if k.batch or k.split > 1:
        l.add(f"tt_i64 z = {tile} / MT;")
    if k.split > 1:
        l.add(f"const tt_i64 split = z % {k.split};  // the part of the keys", f"z /= {k.split};")
    if k.batch:
        l.add(names)


def key_lines(k: Kernel, w: Weights, l: Lines) -> None:
    """Declare the keys k_first .. K that are visited; blocks within whole_first .. whole_end need no test of the predicate."""
    l.add(*(f"const tt_i64 {x.name} = (tt_i64){x.param}[{index_text(x.index)}];" for x in w.known))
    part = k.split > 1
    if part:
        l.add(f"const tt_i64 k_part = (keys + {k.split} * BK - 1) / ({k.split} * BK) * BK;")
    names = ("seen_first", "seen_end", "all_end") if part else ("k_first", "K", "whole_end")
    if not w.low and not w.high:
        l.add(f"const tt_i64 {names[0]} = 0, {names[1]} = keys, whole_first = 0, {names[2]} = keys;")
    else:
        assert w.nonfinite_at is not None
        l.add("const tt_i64 m_last = tt_min_size(m0 + BM, M) - 1;")
        l.add(f"const bool all = !({w.nonfinite}[{index_text(w.nonfinite_at)}] == 0.0f);  // some value is not finite")
        first, end, whole_first, whole_end = "(tt_i64)0", "keys", "(tt_i64)0", "keys"
        for e in w.low:
            first = f"tt_max_size({first}, {_at_end(e, largest=False)})"
            whole_first = f"tt_max_size({whole_first}, {_at_end(e, largest=True)})"
        for e in w.high:
            end = f"tt_min_size({end}, {_at_end(e + 1, largest=True)})"
            whole_end = f"tt_min_size({whole_end}, {_at_end(e + 1, largest=False)})"
        start = f"all ? 0 : {first} / BK * BK" if w.low else "0"
        l.add(f"const tt_i64 {names[0]} = {start}, {names[1]} = all ? keys : {end};")
        l.add(f"const tt_i64 whole_first = {whole_first}, {names[2]} = {whole_end};")
    if part:
        l.add("const tt_i64 k_first = tt_max_size(seen_first, split * k_part);")
        l.add("const tt_i64 K = tt_min_size(seen_end, (split + 1) * k_part), whole_end = tt_min_size(all_end, K);")
    l.add(f"const int KB = K > k_first ? (int)((K - k_first + BK - 1) / BK) : {int(k.uneven)};")


def _at_end(e: Expr, largest: bool) -> str:
    """The extreme of an expression over the rows m0 .. m_last, in which it is monotonic."""
    slope = step_of(e, "m")
    assert slope is not None
    grows = (slope.as_int() or 0) >= 0
    return index_text(substitute(e, {"m": var("m_last" if grows == largest else "m0")}))


def state_lines(k: Kernel, w: Weights, l: Lines) -> None:
    """Declare the state of rows, the scores and the weights of a block."""
    f = fragments_of(k)
    n = f"[{f.blocks}][2]"
    if not w.direct:
        l.add(
            f"float top{n}, total{n}, factor{n};  // of a row: the largest score, this lane's part of the sum, its last change"
        )
    lines = [f"float {f.array(tile, 'BK')};" for tile in w.tiles]
    if w.shape != "fma":
        lines.append(f"tt_u32 p[{f.blocks}][BK / {INST_K[w.shape]}][4];")
    l.add(*lines[:-1], f"{lines[-1]}  // scores and weights of a block of keys")


def begin_text(k: Kernel, w: Weights, l: Lines) -> None:
    """Initialise the state of rows."""
    if not w.direct:
        l.add(f"{_rows(k)} {{ top[i][h] = {NEVER}; total[i][h] = 0.0f; }}")


def _rows(k: Kernel) -> str:
    return f"TT_UNROLL for (int i = 0; i < {fragments_of(k).blocks}; ++i) TT_UNROLL for (int h = 0; h < 2; ++h)"


def _row_line(k: Kernel) -> str:
    return f"const tt_i64 m = {fragments_of(k).row} + 8 * h;"


def weigh_text(k: Kernel, w: Weights, block: Expr, l: Lines) -> None:
    """Print the step from scores to weights. Keys of a block that every row sees whole are not tested one by one."""
    at = _score(k)
    with l.block():
        _score_lines(k, w, block, l)
        if w.direct:
            return
        with l.block(_rows(k)):
            l.add("float best = top[i][h];")
            l.add(f"{ELEMENTS} best = fmaxf(best, {at});", "best = tt_quad_max(best);")
            none, factor = f"best == {NEVER}", "tt_exp2_approx(top[i][h] - shift)"
            if w.by_rows:  # a lane's sum may be 0, which infinity must not multiply
                none, factor = f"fabsf(best) == {INFINITE}", f"top[i][h] == best ? 1.0f : {factor}"
            l.add(f"const float shift = {none} ? 0.0f : best;", f"factor[i][h] = {factor};")
            l.add("top[i][h] = best;", "total[i][h] *= factor[i][h];")
            with l.block(ELEMENTS):
                l.add(f"{at} = tt_exp2_approx({at} - shift);", f"total[i][h] += {at};")


def rescale_text(k: Kernel, w: Weights, l: Lines) -> None:
    """Print the rescaling of the accumulator by the change of the sums, and the weights as fragments."""
    f = fragments_of(k)
    if not w.direct:
        _scaled(k, "factor[i][h]", l)
    if w.shape == "fma":
        return
    l.add(f"TT_UNROLL for (int i = 0; i < {f.blocks}; ++i)")
    if w.shape == "m16n8k8":
        l.add("  TT_UNROLL for (int kk = 0; kk < BK / 8; ++kk) TT_UNROLL for (int q = 0; q < 4; ++q)")
        l.add(f"    p[i][kk][q] = tt_to_tf32({f.element('s', 'kk', 'q % 2 * 2 + q / 2')});")
        return
    pack = f"tt_pack_{SHORT[k.b.dtype]}"
    with l.block("TT_UNROLL for (int kk = 0; kk < BK / 16; ++kk) TT_UNROLL for (int q = 0; q < 4; ++q)"):
        pair = [f.element("s", "2 * kk + q / 2", f"q % 2 * 2{more}") for more in ("", " + 1")]
        l.add(f"p[i][kk][q] = {pack}({', '.join(pair)});")


def _scaled(k: Kernel, factor: str, l: Lines) -> None:
    f = fragments_of(k)
    with l.block(f"{_rows(k)} TT_UNROLL for (int j = 0; j < BN / 8; ++j)"):
        l.add(*(f"{f.element('acc', 'j', f'2 * h{more}')} *= {factor};" for more in ("", " + 1")))


def _score(k: Kernel, tile: str = "s") -> str:
    return fragments_of(k).element(tile, "e / 2", "2 * h + e % 2")


ELEMENTS = "TT_UNROLL for (int e = 0; e < BK / 4; ++e)"
"""C loop over a lane's elements of a block of scores."""
KEY = "const tt_i64 key = key0 + 8 * (e / 2) + 2 * (lane % 4) + e % 2;"
"""C declaration of the key of element e."""


def _score_lines(k: Kernel, w: Weights, block: Expr, l: Lines) -> None:
    at, rows, row = _score(k), _rows(k), _row_line(k)
    l.add(f"const tt_i64 key0 = k_first + (tt_i64)({index_text(block)}) * BK;")
    if w.direct:
        _direct_lines(k, w, l)
        return
    parts = [w.score, *(x.expr for x in w.lets), *([w.excluded] if w.excluded is not None else [])]
    by_blocks = not _reads(parts) and (w.excluded is None or bool(w.low or w.high))
    scale = _scale(w.score)
    if scale is not None and by_blocks:
        l.add(f"{rows} {ELEMENTS} {at} *= {constant_text(scale, DType.fp32)};")
    else:
        with l.block(rows):
            l.add(row)
            with l.block(ELEMENTS):
                l.add(KEY, f"float score = {NEVER};")
                with l.block("" if by_blocks else "if (m < M && key < K)"):
                    l.add(f"const float acc_value = {at};")
                    scope = let_lines(k, w.lets, l)
                    text = scalar_text(w.score, scope)[0]
                    if not by_blocks and w.excluded is not None:
                        text = f"{scalar_text(w.excluded, scope)[0]} ? {text} : {NEVER}"
                    l.add(f"score = {text};")
                l.add(f"{at} = score * {constant_text(LOG2_E, DType.fp32)};")
    if by_blocks:
        _excluded_lines(k, w, NEVER, l)


def _direct_lines(k: Kernel, w: Weights, l: Lines) -> None:
    """A weight at every position, made from the last row's or key's values if there is no such position, so that no branch
    stands between products in flight; then 0 for keys that are not seen."""
    at = _score(k)
    of_keys = _reads_of_keys(k, w)
    names = {read: f"of_key{i}" for i, read in enumerate(of_keys)}

    def named(e: RegionExpr) -> RegionExpr:
        return rewrite(e, lambda x: Ref(names[x]) if isinstance(x, Read) and x in names else x)

    own, of_excluded = _behind(w.score, w.lets), _behind(w.excluded, w.lets)
    asked = w.excluded is not None and _reads([w.excluded, *(x.expr for x in of_excluded)])
    by_blocks = w.excluded is None or (not asked and bool(w.low or w.high))
    lets = own if by_blocks else tuple(x for x in w.lets if x in (*own, *of_excluded))
    lets = tuple(msgspec.structs.replace(x, expr=named(x.expr)) for x in lets)
    accs = [f"acc{i or ''}" for i in range(len(w.firsts))]
    known = {acc: (f"{acc}_value", DType.fp32) for acc in accs}
    for read, name in names.items():
        l.add(f"float {name}s[(BK + 31) / 32];  // of every 32 keys, the one that other lanes ask this lane for")
        with l.block("TT_UNROLL for (int c = 0; c < (BK + 31) / 32; ++c)"):
            l.add("const tt_i64 place = key0 + 32 * c + 8 * (lane / 8) + 2 * (lane % 4) + lane / 4 % 2;")
            l.add("const tt_i64 key = tt_min_size(place, keys - 1);")
            fetched, dtype = scalar_text(read, let_lines(k, (), l))
            known[name] = (name, dtype)
            l.add(f"{name}s[c] = {fetched};")
    with l.block(ELEMENTS):
        l.add(KEY.replace(" key =", " place ="), "const tt_i64 key = tt_min_size(place, keys - 1);")
        for name in names.values():
            other = f"tt_shuffle_xor(tt_f32_to_bits({name}s[e / 8]), (lane & ~3) ^ 4 * (e % 8))"
            l.add(f"const float {name} = tt_bits_to_f32({other});")
        with l.block(_rows(k)):
            l.add(f"const tt_i64 m = tt_min_size({fragments_of(k).row} + 8 * h, M - 1);")
            for acc, tile in zip(accs, w.tiles, strict=True):
                l.add(f"const float {acc}_value = {_score(k, tile)};")
            scope = let_lines(k, lets, l, known)
            l.add(f"{at} = {scalar_text(named(w.score), scope)[0]};")
            if not by_blocks:
                assert w.excluded is not None
                l.add(f"const bool counts = {scalar_text(named(w.excluded), scope)[0]};")
                l.add(f"{at} = (place < K) & counts ? {at} : 0.0f;")
    if by_blocks:
        _excluded_lines(k, w, "0.0f", l)


def _reads_of_keys(k: Kernel, w: Weights) -> tuple[Read, ...]:
    """Reads of a weight that are the same for all rows: a lane loads some of them, and gets the others from other lanes, since
    an address for each of its keys would take two registers."""
    floats = {p.name for p in k.params if p.dtype.is_float and p.dtype != DType.fp64}
    found = [n for e in (w.score, *(x.expr for x in _behind(w.score, w.lets))) for n in nodes(e) if isinstance(n, Read)]
    moved = {n: frozenset().union(*map(free_vars, n.map)) for n in found if n.tensor in floats}
    return tuple(n for n, by in moved.items() if "key" in by and "m" not in by)


def _excluded_lines(k: Kernel, w: Weights, never: str, l: Lines) -> None:
    """Set keys that are not seen to `never`, in blocks that not every row sees whole."""
    at = _score(k)
    if w.excluded is None and "k" not in k.tail and k.split == 1:
        return
    with l.block("if (key0 < whole_first || key0 + BK > whole_end)"), l.block(_rows(k)):
        l.add(_row_line(k))
        with l.block(ELEMENTS):
            l.add(KEY)
            seen = ["key < K"]
            if w.excluded is not None:
                l.add(f"const float acc_value = {at};")
                lets = _behind(w.excluded, w.lets) if w.direct else w.lets
                seen.append(scalar_text(w.excluded, let_lines(k, lets, l))[0])
            l.add(f"if (!({' && '.join(seen)})) {at} = {never};")


def _reads(parts: list[RegionExpr]) -> bool:
    return any(isinstance(n, Read) for e in parts for n in nodes(e))


def _behind(e: RegionExpr | None, lets: tuple[Let, ...]) -> tuple[Let, ...]:
    """The members of `lets` that `e` needs, in order."""
    needed = set(used_lets(e)) if e is not None else set()
    for let in reversed(lets):
        if let.name in needed:
            needed.update(used_lets(let.expr))
    return tuple(x for x in lets if x.name in needed)


def _scale(score: RegionExpr) -> float | None:
    """The factor from the product to the score in units of log2(e), if the score is only that; else None."""
    match score:
        case Ref(let="acc"):
            return LOG2_E
        case Binary(fn="mul", x=Ref(let="acc"), y=Const(value=c)) | Binary(fn="mul", x=Const(value=c), y=Ref(let="acc")):
            return float(number(c)) * LOG2_E
        case _:
            return None


def finish_text(k: Kernel, w: Weights, l: Lines) -> None:
    """Print the end of a row of `acc`: its sum over the quad's lanes, and NaN for rows that see nothing. Parts of the keys are
    joined by the next kernel. With direct weights there is nothing to do."""
    if w.direct:
        return
    f = fragments_of(k)
    with l.block(_rows(k)):
        l.add("total[i][h] = tt_quad_sum(total[i][h]);")
        if k.split > 1:
            return
        whole = "1.0f / total[i][h]" if w.divided else f"(top[i][h] == {NEVER} ? {NAN} : 1.0f)"
        if w.by_rows:
            whole = f"(top[i][h] == {INFINITE} ? {NAN} : {whole})"
        l.add(f"factor[i][h] = keys > 0 ? {whole} : 0.0f;")
    _scaled(k, "factor[i][h]", l)
    if w.nan_weight is None:
        return
    weight = constant_text(w.nan_weight, DType.fp32)
    at = k.b
    assert at.offset is not None and at.stride_mn is not None and at.stride_k is not None
    place = f"{at.param}[{index_text(at.offset)} + n * {factor_text(at.stride_mn)} + key * {factor_text(at.stride_k)}]"
    nan = f"!(total[i][h] > 0.0f && top[i][h] < {INFINITE})" if w.by_rows else "!(total[i][h] > 0.0f)"
    with l.block(_rows(k)), l.block(f"if ({nan} && keys > 0)"):
        l.add("// the sum is NaN, or of no key at all: all weights of the row are one number", _row_line(k))
        with l.block("TT_ROLLED for (int e = 0; e < BN / 4; ++e)"):
            l.add("const tt_i64 n = 8 * (e / 2) + 2 * (lane % 4) + e % 2;", "float plain = 0.0f;")
            l.add("if (m < M && n < N) for (tt_i64 key = 0; key < keys; ++key)")
            l.add(f"  plain += {weight} * tt_value({place});")
            l.add(
                f"TT_UNROLL for (int f = 0; f < BN / 4; ++f) if (f == e) {f.element('acc', 'f / 2', '2 * h + f % 2')} = plain;"
            )


def rows_text(k: Kernel, s: StRows, l: Lines) -> None:
    """Print the stores of a row's statistics, by one lane of its quad. The sum is NaN if a score is; `top` has the largest of
    the others."""
    known = {
        "top": f"total[i][h] == total[i][h] ? top[i][h] * {constant_text(LN_2, DType.fp32)} : {NAN}",
        "total": "total[i][h]",
        "sum": f"fabsf(top[i][h]) == {INFINITE} && keys > 0 ? {NAN} : total[i][h]",
    }
    used = {s.regs} | {n for x in s.ops for n in used_lets(x.expr)}
    with l.block(_rows(k)):
        l.add(_row_line(k))
        with l.block("if (m < M && lane % 4 == 0)"):
            l.add(*(f"const float {name}_value = {text};" for name, text in known.items() if name in used))
            scope = let_lines(k, s.ops, l, {name: (f"{name}_value", DType.fp32) for name in known})
            to = next(p.dtype for p in k.params if p.name == s.ptr)
            l.add(f"{s.ptr}[{index_text(s.index)}] = {stored(scope.lets[s.regs], to)};")
