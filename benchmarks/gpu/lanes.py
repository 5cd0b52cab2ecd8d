"""Each function of the PTX header, lane by lane: what the hardware gives against what the emulated machine gives.

The machine's layouts were written from the manual; a kernel per function writes down what every lane got, and the two
tables have to be equal. Values are small integers, so that tensor cores are exact. The results of a GPU are kept in
`benchmarks/gpu/lanes/` and the machine is held to it from then on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np

import tatami as tt
from benchmarks.gpu.lanes_sm90 import more_kernels
from benchmarks.gpu.places import Emulated, Kernel, Where
from tatami.core.tensor import numpy_dtype
from tatami.cu.print import headers
from tatami.cu.products.wgmma import wgmma_function
from tatami.runtime.cuda.tensor_map import Map

GOLDEN = Path(__file__).parent / "lanes"
UNSEEN = {
    "tt_setmaxnreg_inc", "tt_setmaxnreg_dec", "tt_prefetch_tensor_map", "tt_fence_mbarrier_init", "tt_fence_proxy_async",
    "tt_wgmma_hold", "tt_sync_warp", "tt_fence_device", "tt_grid_dependency_wait", "tt_grid_dependency_launch", "tt_block_x", "tt_block_y", "tt_block_z", "tt_grid_x", "tt_fault", "tt_fault_code",
}  # fmt: skip
"""Functions that give no lane anything to write down: hints, fences, where a block is, faults."""
FILL = """\
  TT_DYNAMIC_SMEM(smem);
  const tt_u32 base = tt_smem_address(smem);
  const int lane = tt_thread();
  for (int i = lane; i < {words}; i += {threads}) ((tt_u32*)smem)[i] = {value};
  tt_sync_threads();"""


def halves(count: int, kind: str = "fp16") -> np.ndarray:
    """Small whole numbers that differ from their neighbours, as 16-bit floats."""
    numbers = (np.arange(count) * 7 % 13 - 6).astype(np.float32)
    return numbers.astype(numpy_dtype(tt.fp16 if kind == "fp16" else tt.bf16))


def all_kernels(arch: str) -> list[Kernel]:
    """The kernels that a GPU of `arch` (sm80, sm90) runs."""
    return [*sm80_kernels(), *(sm90_kernels() if arch == "sm90" else ())]


# -- sm_80 -----------------------------------------------------------------------------------------


def sm80_kernels() -> Iterator[Kernel]:
    ramp = np.arange(1024, dtype=np.uint16)
    fill = FILL.format(words=512, threads=32, value="p0[i]")
    for name in ("tt_ldmatrix_x4", "tt_ldmatrix_x4_trans"):
        body = f"{fill}\n  tt_u32 r[4];\n  {name}(r, base + lane * 16);\n  for (int i = 0; i < 4; ++i) p1[4 * lane + i] = r[i];"
        yield Kernel(name[3:], "sm_80", body, ramp, 128, shared=2048)
    for kind, word in (("fp16", "f16"), ("bf16", "bf16")):
        body = f"""\
  const int lane = tt_thread();
  tt_u32 a[4];
  float d[4] = {{0, 1, 2, 3}};
  for (int i = 0; i < 4; ++i) a[i] = p0[6 * lane + i];
  tt_mma_m16n8k16_{word}(d, a, p0[6 * lane + 4], p0[6 * lane + 5]);
  for (int i = 0; i < 4; ++i) p1[4 * lane + i] = tt_f32_to_bits(d[i]);"""
        yield Kernel(f"mma_{word}", "sm_80", body, halves(384, kind), 128)
    for width in (16, 8, 4):
        fill = FILL.format(words=32 * width // 4, threads=32, value="0xffffffffu")
        body = f"""\
{fill}
  tt_cp_async_{width}(base + lane * {width}, (const tt_u8*)p0 + lane * {width}, lane % {width // 4 + 1} * 4);
  tt_cp_async_commit();
  tt_cp_async_wait<0>();
  tt_sync_threads();
  for (int i = 0; i < {width // 4}; ++i) p1[{width // 4} * lane + i] = ((const tt_u32*)smem)[{width // 4} * lane + i];"""
        yield Kernel(f"cp_async_{width}", "sm_80", body, ramp, 32 * width // 4, shared=512)
    fill = FILL.format(words=16, threads=32, value="0xffffffffu")
    yield Kernel(
        "copy_2",
        "sm_80",
        f"{fill}\n  tt_copy_2(base + 2 * lane, (const tt_u8*)p0 + 2 * lane, lane % 3 ? 2 : 0);\n  tt_sync_threads();\n"
        "  if (lane < 16) p1[lane] = ((const tt_u32*)smem)[lane];",
        ramp,
        16,
        shared=512,
    )
    fill = FILL.format(words=512, threads=32, value="p0[i]")
    yield Kernel(
        "load_shared_v1",
        "sm_80",
        f"{fill}\n  for (int i = 0; i < 4; ++i) p1[4 * lane + i] = tt_load_shared_v1(base + 4 * (lane + 32 * i));",
        ramp,
        128,
        shared=2048,
    )
    yield Kernel(
        "load_shared_v2",
        "sm_80",
        f"{fill}\n  float x, y;\n  tt_load_shared_v2(x, y, base + 8 * (lane ^ 5));\n"
        "  p1[2 * lane] = tt_f32_to_bits(x);\n  p1[2 * lane + 1] = tt_f32_to_bits(y);",
        ramp,
        64,
        shared=2048,
    )
    yield Kernel(
        "load_shared_v4",
        "sm_80",
        f"{fill}\n  float r[4];\n  tt_load_shared_v4(r, base + 16 * lane);\n"
        "  for (int i = 0; i < 4; ++i) p1[4 * lane + i] = tt_f32_to_bits(r[i]);",
        ramp,
        128,
        shared=2048,
    )
    yield Kernel(
        "shuffles",
        "sm_80",
        """\
  const int lane = tt_thread();
  for (int i = 0; i < 5; ++i) p1[10 * lane + i] = tt_shuffle_xor(p0[lane], 1 << i);
  p1[10 * lane + 5] = (tt_u32)tt_uniform((int)p0[lane]);
  for (int i = 0; i < 4; ++i) p1[10 * lane + 6 + i] = tt_f32_to_bits(tt_quad_at(tt_bits_to_f32(p0[lane]), i));""",
        ramp,
        320,
    )
    yield Kernel(
        "stores",
        "sm_80",
        """\
  const int lane = tt_thread();
  tt_store_global_v4(p1 + 8 * lane, lane, lane + 100, lane + 200, lane + 300);
  tt_store_global_v2(p1 + 8 * lane + 4, lane + 400, lane + 500);
  tt_store_global_v1(p1 + 8 * lane + 6, lane + 600);
  tt_store_global_v1(p1 + 8 * lane + 7, (tt_u32)tt_thread());""",
        ramp,
        256,
    )
    yield Kernel(
        "loads",
        "sm_80",
        """\
  const int lane = tt_thread();
  tt_u32 a[4], b[2], c[1];
  tt_load_global_v4(a, p0 + 8 * lane);
  tt_load_global_v2(b, p0 + 8 * lane + 6);
  tt_load_global_v1(c, p0 + 8 * lane + 5);
  for (int i = 0; i < 4; ++i) p1[7 * lane + i] = a[i];
  p1[7 * lane + 4] = b[0], p1[7 * lane + 5] = b[1], p1[7 * lane + 6] = c[0];""",
        np.arange(256, dtype=np.uint32) * np.uint32(2654435761),
        224,
    )
    fractions = np.array([0, 0xFFF, 0x1000, 0x1001, 0x2000, 0x3000, 0x7FFFFF, 0x7FEFFF], np.uint32)
    exponents = np.array([0, 1, 2, 0x7F, 0xFE], np.uint32)[:, None] << 23
    yield Kernel(
        "to_tf32",  # the bits of the result that count
        "sm_80",
        "  for (int i = tt_thread(); i < 96; i += 32) p1[i] = tt_to_tf32(tt_bits_to_f32(p0[i])) >> 13;",
        np.concatenate([(exponents | fractions).ravel(), np.full(8, 0x7F800000, np.uint32)] * 2)
        | np.repeat(np.array([0, 1 << 31], np.uint32), 48),
        96,
    )
    yield Kernel(
        "mma_tf32",
        "sm_80",
        """\
  const int lane = tt_thread();
  tt_u32 a[4];
  float d[4] = {0, 1, 2, 3};
  for (int i = 0; i < 4; ++i) a[i] = p0[6 * lane + i];
  tt_mma_m16n8k8_tf32(d, a, p0[6 * lane + 4], p0[6 * lane + 5]);
  for (int i = 0; i < 4; ++i) p1[4 * lane + i] = tt_f32_to_bits(d[i]);""",
        halves(192).astype(np.float32),
        128,
    )
    yield Kernel(
        "atomics",
        "sm_80",
        """\
  const int lane = tt_thread();
  if (lane == 0) {
    for (int i = 0; i < 5; ++i) tt_store_relaxed(p1 + 32 + i, 7);
    p1[0] = tt_atomic_add(p1 + 32, 5);
    p1[1] = tt_atomic_add_acq_rel(p1 + 32, 6);
    p1[2] = tt_atomic_max(p1 + 33, 3);
    p1[3] = tt_atomic_max(p1 + 33, 9);
    p1[4] = tt_atomic_cas(p1 + 34, 7, 11);
    p1[5] = tt_atomic_cas(p1 + 34, 7, 12);
    tt_store_relaxed(p1 + 35, 0);
    tt_atomic_add_f32((float*)(p1 + 35), 1.5f);
    tt_store_release(p1 + 36, 42);
    p1[6] = tt_load_acquire(p1 + 36);
    p1[7] = tt_load_relaxed(p1 + 32);
  }
  const tt_u32 votes = tt_ballot(lane % 3 == 0);
  if (lane > 7) p1[lane] = votes;""",
        ramp,
        37,
    )
    yield from conversions()


def conversions() -> Iterator[Kernel]:
    """All 16-bit floats to fp32, and floats around every rounding to 16 bits."""
    every = np.arange(65536, dtype=np.uint16)
    every = every[(every & 0x7C00) != 0x7C00]  # infinities and NaNs apart: their payload is nobody's promise
    every = every[: len(every) // 64 * 64]
    for kind, word in (("f16", "tt_f16"), ("bf16", "tt_bf16")):
        body = f"""\
  for (int i = tt_thread(); i < {len(every)}; i += 32) {{
    {word} x;
    x.bits = ((const tt_u16*)p0)[i];
    p1[i] = tt_f32_to_bits(tt_to_f32(x));
  }}"""
        given = every if kind == "f16" else every[(every & 0x7F80) != 0x7F80][: len(every) // 2 // 64 * 64]
        body = body.replace(str(len(every)), str(len(given)))
        yield Kernel(f"from_{kind}", "sm_80", body, given, len(given))
    rng = np.random.default_rng(1)
    floats = np.concatenate(
        [rng.standard_normal(2000), 1 + np.arange(1024) / 4096, [0, -0.0, 65504, 65519, 65520, 1e-8, 6e-8, 3e38]]
    )
    given = np.resize(floats.astype(np.float32), 3072)
    body = """\
  for (int i = tt_thread(); i < 1536; i += 32) {
    const float a = tt_bits_to_f32(p0[2 * i]), b = tt_bits_to_f32(p0[2 * i + 1]);
    p1[4 * i] = tt_pack_f16(a, b);
    p1[4 * i + 1] = tt_pack_bf16(a, b);
    p1[4 * i + 2] = tt_to_f16(a).bits;
    p1[4 * i + 3] = tt_to_bf16(b).bits;
  }"""
    yield Kernel("to_16_bits", "sm_80", body, given, 6144)
    # Only what the manual promises to the bit: elsewhere an approximation may differ.
    given = np.resize(np.array([-np.inf, -200, -127.5, -1e-40, -0.0, 0, 1e-40, 128, 200, np.inf], np.float32), 32)
    body = "  p1[tt_thread()] = tt_f32_to_bits(tt_exp2_approx(tt_bits_to_f32(p0[tt_thread()])));"
    yield Kernel("exp2_approx", "sm_80", body, given, 32)


# -- sm_90 -----------------------------------------------------------------------------------------

LOAD = """\
  const tt_u32 bar = base;
  if (lane == 0) {{ tt_mbarrier_init(bar, 1); tt_fence_mbarrier_init(); }}
  tt_sync_threads();
  if (lane == 0) {{
    tt_prefetch_tensor_map(&map);
    tt_mbarrier_arrive_expect_tx(bar, {bytes});
    {loads}
  }}
  tt_mbarrier_wait(bar, 0);"""


def sm90_kernels() -> Iterator[Kernel]:
    yield Kernel(
        "mbarrier",
        "sm_90a",
        """\
  TT_DYNAMIC_SMEM(smem);
  const tt_u32 bar = tt_smem_address(smem);
  const int lane = tt_thread();
  if (lane == 0) { tt_mbarrier_init(bar, 31); tt_fence_mbarrier_init(); }
  tt_sync_threads();
  for (int phase = 0; phase < 4; ++phase) {
    if (lane != phase) tt_mbarrier_arrive(bar);
    tt_mbarrier_wait(bar, phase & 1);
    p1[32 * phase + lane] = tt_mbarrier_try_wait_parity(bar, phase & 1) + 2 * phase;
    tt_sync_threads();
  }""",
        np.zeros(4, np.uint32),
        128,
        shared=1024,
    )
    fill = FILL.format(words=512, threads=32, value="0u")
    ramp = np.arange(1024, dtype=np.uint16)
    for name in ("tt_stmatrix_x4", "tt_stmatrix_x4_trans"):
        body = f"""\
{fill}
  tt_u32 r[4];
  for (int i = 0; i < 4; ++i) r[i] = p0[4 * lane + i];
  {name}(base + 16 * lane, r);
  tt_sync_threads();
  for (int i = 0; i < 4; ++i) p1[4 * lane + i] = ((const tt_u32*)smem)[4 * lane + i];"""
        yield Kernel(name[3:], "sm_90a", body, ramp, 128, shared=2048)
    for kind in ("e4m3", "e5m2"):  # 0x38 and 0x3c are 1.0; with the signs they alternate
        body = f"""\
  const int lane = tt_thread();
  tt_u32 a[4];
  float d[4] = {{0, 1, 2, 3}};
  for (int i = 0; i < 4; ++i) a[i] = p0[6 * lane + i];
  tt_mma_m16n8k32_{kind}(d, a, p0[6 * lane + 4], p0[6 * lane + 5]);
  for (int i = 0; i < 4; ++i) p1[4 * lane + i] = tt_f32_to_bits(d[i]);"""
        numbers = np.array([0x38, 0x40, 0xB8, 0x00, 0xC0] if kind == "e4m3" else [0x3C, 0x40, 0xBC, 0x00, 0xC0], np.uint8)
        yield Kernel(f"mma_{kind}", "sm_90a", body, numbers[np.arange(768) * 7 % 11 % 5], 128)
    yield Kernel("elect", "sm_90a", "  p1[tt_thread()] = tt_elect();", ramp, 32)
    yield from loads()
    yield from meetings()
    yield from stores()
    yield from products()
    yield from more_kernels()


def loads() -> Iterator[Kernel]:
    """Boxes inside, across every edge and outside a tensor, with every swizzle and rank."""
    given = np.arange(1, 1 + 96 * 64, dtype=np.uint16)
    fill = FILL.format(words=1024 // 4 + 2048, threads=32, value="0xffffffffu")
    for swizzle in (128, 64, 32):
        box = (swizzle // 2, 16)
        for k, (x, y) in enumerate(((0, 0), (8, 5), (-8, -3), (64, 90), (200, 0))):
            bytes_ = swizzle * 16
            load = LOAD.format(bytes=bytes_, loads=f"tt_tma_load_2d(base + 1024, &map, {x}, {y}, bar);")
            dump = f"  for (int i = lane; i < {bytes_ // 4}; i += 32) p1[i] = ((const tt_u32*)(smem + 1024))[i];"
            map = Map(tt.fp16, (64, 96), (128,), box, swizzle)
            body = f"{fill}\n{load}\n{dump}"
            yield Kernel(f"tma_2d_sw{swizzle}_{k}", "sm_90a", body, given, bytes_ // 4, shared=1024 + 8192, map=map)
    shapes: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {
        2: ((64, 96), (32, 8)),
        3: ((64, 12, 8), (32, 4, 2)),
        4: ((64, 4, 3, 8), (32, 2, 3, 2)),
        5: ((64, 2, 3, 2, 8), (32, 2, 2, 2, 2)),
    }
    for rank, (dims, part) in shapes.items():
        strides = tuple(int(np.prod(dims[: i + 1])) * 2 for i in range(rank - 1))
        bytes_ = int(np.prod(part)) * 2
        at = ", ".join(["8", *(["-1"] * (rank - 2)), "7"])
        load = LOAD.format(bytes=bytes_, loads=f"tt_tma_load_{rank}d(base + 1024, &map, {at}, bar);")
        dump = f"  for (int i = lane; i < {bytes_ // 4}; i += 32) p1[i] = ((const tt_u32*)(smem + 1024))[i];"
        map = Map(tt.fp16, dims, strides, part, 64)
        yield Kernel(f"tma_{rank}d", "sm_90a", f"{fill}\n{load}\n{dump}", given, bytes_ // 4, shared=1024 + 8192, map=map)
        alone = load.replace("d(base", "d_multicast(base").replace("bar);\n  }", "bar, 1);\n  }")
        name = f"tma_{rank}d_multicast"
        yield Kernel(name, "sm_90a", f"{fill}\n{alone}\n{dump}", given, bytes_ // 4, shared=1024 + 8192, map=map)
    map = Map(tt.fp32, (4, 5, 5, 1), (16, 80, 400), (4, 16), 0, corners=((-1, -1), (0, 0)))
    for tap in range(4):
        call = f"tt_tma_load_im2col_4d(base + 1024, &map, 0, -1, -1, 0, (tt_u16){tap % 2}, (tt_u16){tap // 2}, bar);"
        load = LOAD.format(bytes=256, loads=call)
        dump = "  for (int i = lane; i < 64; i += 32) p1[i] = ((const tt_u32*)(smem + 1024))[i];"
        yield Kernel(f"im2col_{tap}", "sm_90a", f"{fill}\n{load}\n{dump}", given[:200], 64, shared=1024 + 8192, map=map)


def meetings() -> Iterator[Kernel]:
    """Two warps at a named barrier, cp.async that arrives at a barrier, a plain run of bytes."""
    ramp = np.arange(1024, dtype=np.uint16)
    given = "for (int i = 0; i < 4; ++i) ((tt_u32*)smem)[4 * lane + i] = p0[4 * lane + i];"
    body = f"""\
  TT_DYNAMIC_SMEM(smem);
  const int lane = tt_thread() % 32;
  if (tt_thread() < 32) {{
    {given}
    tt_named_arrive(1, 64);
  }} else {{
    tt_named_sync(1, 64);
    for (int i = 0; i < 4; ++i) p1[4 * lane + i] = ((const tt_u32*)smem)[127 - 4 * lane - i];
  }}"""
    yield Kernel("named_barrier", "sm_90a", body, ramp, 128, threads=64, shared=1024)
    begin = """\
  TT_DYNAMIC_SMEM(smem);
  const tt_u32 bar = tt_smem_address(smem);
  const int lane = tt_thread();
  if (lane == 0) { tt_mbarrier_init(bar, COUNT); tt_fence_mbarrier_init(); }
  tt_sync_threads();"""
    end = """\
  tt_mbarrier_wait(bar, 0);
  for (int i = 0; i < 4; ++i) p1[4 * lane + i] = ((const tt_u32*)(smem + 1024))[4 * lane + i];
  tt_sync_threads();
  if (lane == 0) tt_mbarrier_invalidate(bar);"""
    copy = "  tt_cp_async_16(bar + 1024 + 16 * lane, p0 + 4 * lane, 16);\n  tt_cp_async_arrive(bar);"
    yield Kernel("cp_async_arrive", "sm_90a", f"{begin.replace('COUNT', '32')}\n{copy}\n{end}", ramp, 128, shared=2048)
    load = """\
  if (lane == 0) {
    tt_mbarrier_expect_tx(bar, 512);
    tt_bulk_load(bar + 1024, p0, 512, bar);
    tt_mbarrier_arrive(bar);
  }"""
    yield Kernel("bulk_load", "sm_90a", f"{begin.replace('COUNT', '1')}\n{load}\n{end}", ramp, 128, shared=2048)


def stores() -> Iterator[Kernel]:
    """Boxes from shared memory over the edges of a tensor that is p1: what is outside stays away."""
    given = np.arange(1, 4097, dtype=np.uint16)
    shapes = {
        2: ((64, 24), (32, 16)),
        3: ((64, 6, 4), (32, 4, 2)),
        4: ((64, 4, 3, 2), (32, 2, 3, 2)),
        5: ((64, 2, 3, 2, 2), (32, 2, 2, 2, 2)),
    }
    for rank, (dims, box) in shapes.items():
        at = ", ".join(["40", *(["-1"] * (rank - 1))])
        yield stored(f"tma_store_{rank}d", f"tt_tma_store_{rank}d(&map, {at}, base);", given, dims, box, tt.fp16)
    numbers = halves(512).astype(np.float32)
    yield stored("tma_add_2d", "tt_tma_add_2d(&map, 8, -1, base);", numbers, (32, 12), (16, 8), tt.fp32)
    yield stored("bulk_store", "tt_bulk_store(p1 + 64, base, 1024);", given, (64, 24), (32, 16), tt.fp16)


def stored(symbol: str, call: str, given: np.ndarray, dims: tuple[int, ...], box: tuple[int, ...], dtype: tt.DType) -> Kernel:
    strides = tuple(int(np.prod(dims[: i + 1])) * dtype.itemsize for i in range(len(dims) - 1))
    words, own = (int(np.prod(x)) * dtype.itemsize // 4 for x in (dims, box))
    body = f"""\
{FILL.format(words=own, threads=32, value="p0[i]")}
  tt_fence_proxy_async();
  tt_sync_threads();
  if (lane == 0) {{
    {call}
    tt_bulk_commit();
    tt_bulk_wait_read<0>();
    tt_bulk_wait<0>();
  }}"""
    return Kernel(
        symbol,
        "sm_90a",
        body,
        given,
        words,
        shared=8192,
        map=Map(dtype, dims, strides, box, 0),
        map_is_output=True,
        is_zeroed=True,
    )


def products() -> Iterator[Kernel]:
    """wgmma m64n64k16 over 64 of k: the K advance inside a swizzle, either operand along mn, both types and every span.

    A is rows 0 to 63 of `given`, B rows 64 to 127; along mn a tile is what the transposed tensor has."""
    for kind, word in (("fp16", "f16"), ("bf16", "bf16")):
        for ta, tb, swizzle in ((0, 0, 128), (0, 1, 128), (1, 0, 128), (1, 1, 128), (0, 0, 64), (0, 0, 32)):
            if kind == "bf16" and (ta or swizzle != 128):
                continue
            yield product(kind, word, ta, tb, swizzle)


def product(kind: str, word: str, ta: int, tb: int, swizzle: int) -> Kernel:
    depth = swizzle // 2 if not (ta or tb) else 64
    tile = 64 * depth * 2
    boxes = [f"tt_tma_load_2d(base + 1024 + {i * 8192}, &map, 0, {64 * i}, bar);" for i in range(2)]
    load = LOAD.format(bytes=2 * tile, loads=" ".join(boxes))

    def descriptor(i: int, along_mn: int) -> str:
        start = f"base + 1024 + {i * 8192} + kk * {2048 if along_mn else 32}"
        return f"tt_wgmma_descriptor({start}, {8192 if along_mn else 16}, {8 * swizzle}, {swizzle})"

    body = f"""\
{FILL.format(words=256, threads=128, value="0u")}
{load}
  float d[32];
  for (int i = 0; i < 32; ++i) d[i] = 0.0f;
  tt_wgmma_hold(d);
  tt_wgmma_fence();
  TT_UNROLL for (int kk = 0; kk < {depth // 16}; ++kk)
    tt_wgmma_m64k16<tt_{word}, 64, {ta}, {tb}>::run(d, {descriptor(0, ta)}, {descriptor(1, tb)}, 1);
  tt_wgmma_commit();
  tt_wgmma_wait<0>();
  tt_wgmma_hold(d);
  TT_UNROLL for (int i = 0; i < 32; ++i) p1[32 * lane + i] = tt_f32_to_bits(d[i]);"""
    map = Map(tt.fp16 if kind == "fp16" else tt.bf16, (64, 128), (128,), (depth, 64), swizzle)
    more = f"\n#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900\n{wgmma_function(word, 64)}#endif\n"
    return Kernel(
        f"wgmma_{word}_{'mn' if ta else 'k'}{'mn' if tb else 'k'}_sw{swizzle}", "sm_90a", body, halves(64 * 128, kind), 4096,
        threads=128, shared=1024 + 2 * 8192, map=map, headers=more,
    )  # fmt: skip


# -- comparing -------------------------------------------------------------------------------------


class Tables:
    """The tables of an architecture: what the emulated machine gives, computed at the first question."""

    def __init__(self, where: Where, arch: str, keep: bool) -> None:
        self.where = where
        self.arch = arch
        self.keep = keep
        self.kernels = all_kernels(arch)
        self._expected: dict[str, np.ndarray] = {}

    def expected(self, symbol: str) -> np.ndarray:
        """The words that the emulated machine gives."""
        if not self._expected:
            self._expected = Emulated(f"emulated-{self.arch}").run(self.kernels, headers(()))
        return self._expected[symbol]

    def row(self, k: Kernel) -> dict[str, object]:
        """True in `ok` if the words of `where` equal those of the emulated machine; with `keep` the table is written down."""
        expected = self.expected(k.symbol)
        found = self.where.run([k], headers(()))[k.symbol]
        wrong = np.flatnonzero(found != expected)
        row: dict[str, object] = {"name": k.symbol, "ok": not wrong.size}
        if wrong.size:
            at = int(wrong[0])
            row["why"] = (
                f"{wrong.size} of {k.words} words differ; word {at} (thread {at * k.threads // k.words}): "
                f"{found[at]:#010x}, emulated {expected[at]:#010x}"
            )
        if self.keep:
            GOLDEN.mkdir(exist_ok=True)
            np.save(GOLDEN / f"{k.symbol}.npy", found)
        return row

    def left(self) -> dict[str, object]:
        """The functions of the header that have no table."""
        return {"name": "functions without a table", "skipped": ", ".join(sorted(unasked(all_kernels("sm90"))))}


def unasked(kernels: Sequence[Kernel]) -> set[str]:
    """Functions of the header that no kernel here writes down."""
    texts = "".join(k.text for k in kernels)
    return {f for f in functions_of_the_header() - UNSEEN if f"{f}(" not in texts and f"{f}<" not in texts}


def functions_of_the_header() -> set[str]:
    text = (files("tatami.cu") / "header" / "tatami_ptx.cuh").read_text()
    return set(re.findall(r"\b(tt_\w+)\(", text)) - {"tt_tensor_map"}
