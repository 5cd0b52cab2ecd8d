"""Valid programs that use the whole language, for tests that break or rewrite them."""

from __future__ import annotations

PROGRAMS: dict[str, str] = {
    "relu": """
// a graph of our own before the operation of its name
graph<B=1, N=1> relu(x: f32[B, N]) -> (y: f32[B, N]) {
    zero = 0.0
    result = max(x, zero)
    return result
}
graph<B=1, D=1> main(input: f32[B, D]) -> (output: f32[B, D]) {
    result = relu(input)
    return result
}
""",
    "two results": """
graph<N=1> multi_output(x: f32[N]) -> (a: f32[N], b: f32[N]) {
    r1 = x + 1.0
    r2 = x * 2.0
    return r1, r2
}
graph main(input: f32[10]) -> (out1: f32[10], out2: f32[10]) {
    (a, b) = multi_output(input)
    return a, b
}
""",
    "row softmax": """
graph<R=4, C=16> main(x: f32[R, C]) -> f32[R, C] {
    m = x.max(dim=1).unsqueeze(1).repeat(1, C)
    e = ((x - m) * 1.442695).exp2()
    s = e.sum(1).unsqueeze(1).repeat(1, C)
    p = e / s
    return p
}
""",
    "fused": """
graph<N=32> main(w: f32[N], x: f32[N]) -> (a: f32[N], b: f32[1], c: f32[N]) {
    a = fused(w, x) { -w * x.exp() + 1.0 }
    q = fused_reduce(w, x, axis=0, op=sum) { w * x * x }
    c = fused_cumulative(w, x, axis=0, op=prod) { w + x }
    return a, q.unsqueeze(0).sqrt(), c
}
""",
    "views": """
graph<H=6, W=8> main(x: f32[H, W], i: i64[H, 3]) -> (a: f32[10], b: f32[3*H, W], c: f32[H, 3], d: f32[H*W], e: f32[H - 1, 1, W/2]) {
    r = arange(10, f32).view_expr([10], (idx0 + 3) % 10)
    t = x.tile(0, 3)
    g = x.gather(1, i)
    e = x[1:, None, ::2]
    return r, t, g, x.reshape([H * W]), e[:, :, :W / 2]
}
""",
    "control": """
graph double(i: i64[], go: bool[], x: f32[4]) -> (keep: bool[], y: f32[4]) {
    return go & (i < 10), x * 2.0
}
graph plus(x: f32[4]) -> f32[4] { return x + 1.0 }
graph minus(x: f32[4]) -> f32[4] { return x - 1.0 }
graph main(x: f32[4], c: bool[], mut total: f32[4]) -> (y: f32[4], z: f32[4]) {
    y = loop(double, [x], trip=3)
    z = if_else(c, plus, minus, y)
    update(total, total + z)
    assume(4, 2 * 2)
    return y, where(z > 0.0 | z == -1.0, z, x ** 2)
}
""",
    "constants and layers": """
graph<B=2> main(x: f32[B, 3, 8, 8], key: u64[]) -> (y: f32[B, 4, 4, 4], n: f16[B], v: f32[2], p: i64[2]) {
    w = constant(f32[4, 3, 3, 3], "w")
    b = constant(f32[4], [0.5, -1.0, 1e-3, inf], role="param")
    h = conv(x, w, b, padding=[(1, 1), (1, 1)]).relu().max_pool(2)
    n = normal(key, shape=[B], dtype=f32).cast(f16)
    (v, p) = topk(constant(f32[3], [1, 3, 2]), k=2)
    return h, n, v, p
}
""",
    "numbers": """
graph<K=2> main(x: i32[3], u: u8[], t: bool[2]) -> (a: i32[3], b: f64[], c: bool[2], d: i64[], e: f32[2, K]) {
    one = (1 + 2 * 3) % 4 - 2
    return x / 2 + one, size(K).cast(f64) * .5, !t | true, size(2 * K - 1), full([2, K], nan, f32)
}
""",
}
