"""Lane tables of SM90 for clusters, and for multiplications by wgmma besides the plain ones of 16 bits in shared memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import tatami as tt
from benchmarks.gpu.places import Kernel
from tatami.core.dtype import DType
from tatami.cu.products.wgmma import Form, wgmma_function
from tatami.runtime.cuda.tensor_map import Map

LOADED = """\
  TT_DYNAMIC_SMEM(smem);
  const tt_u32 base = tt_smem_address(smem), bar = base;
  const int lane = tt_thread();
  if (lane == 0) {{ tt_mbarrier_init(bar, 1); tt_fence_mbarrier_init(); }}
  tt_sync_threads();
  if (lane == 0) {{
    tt_mbarrier_arrive_expect_tx(bar, {bytes});
    {loads}
  }}
  tt_mbarrier_wait(bar, 0);"""
REGISTERS = """\
  tt_u32 a[4][4];
  TT_UNROLL for (int i = 0; i < 16; ++i) a[i / 4][i % 4] = p0[512 * (i / 4) + 4 * lane + i % 4];
"""
MULTIPLIED = """\
{operands}  float d[{count}];
  for (int i = 0; i < {count}; ++i) d[i] = 0.0f;
  tt_wgmma_hold(d);
  tt_wgmma_fence();
  {step}
  tt_wgmma_commit();
  tt_wgmma_wait<0>();
  tt_wgmma_hold(d);
  TT_UNROLL for (int i = 0; i < {count}; ++i) p1[{count} * lane + i] = tt_f32_to_bits(d[i]);"""
MEET = "tt_cluster_arrive();\n  tt_cluster_wait();"


def numbers(count: int) -> np.ndarray:
    """Small whole numbers that differ from their neighbours."""
    return (np.arange(count) * 7 % 13 - 6).astype(np.float32)


def more_kernels() -> Iterator[Kernel]:
    """All of them."""
    yield from clusters()
    yield from narrow()
    yield from from_registers()
    yield from along_mn()
    yield ties()


# -- clusters ------------------------------------------------------------------------------------------


def clusters() -> Iterator[Kernel]:
    """Two CTAs: their ranks, barriers of the cluster, words of each other's memory, arrivals, and a box for both."""
    ramp = np.arange(1024, dtype=np.uint16)
    begin = """\
  TT_DYNAMIC_SMEM(smem);
  const tt_u32 base = tt_smem_address(smem);
  const int lane = tt_thread(), rank = tt_cluster_rank();"""
    swapped = f"""\
{begin}
  ((tt_u32*)smem)[lane] = p0[32 * rank + lane];
  {MEET}
  p1[96 * rank + lane] = tt_load_cluster(tt_map_shared(base + 4 * lane, 1 - rank));
  tt_store_cluster(tt_map_shared(base + 128 + 4 * lane, 1 - rank), 1000 * rank + lane);
  {MEET}
  p1[96 * rank + 32 + lane] = ((const tt_u32*)smem)[32 + lane];
  p1[96 * rank + 64 + lane] = rank + 2 * tt_block_x();"""
    yield Kernel("cluster_words", "sm_90a", swapped, ramp, 192, shared=1024, ctas=2)
    arrivals = f"""\
{begin}
  if (lane == 0) {{ tt_mbarrier_init(base, 32); tt_fence_mbarrier_init(); }}
  {MEET}
  if (rank == 1) tt_mbarrier_arrive_cluster(tt_map_shared(base, 0));
  if (rank == 0) tt_mbarrier_wait(base, 0);
  p1[32 * rank + lane] = rank == 0 ? tt_mbarrier_try_wait_parity(base, 0) : 7;
  {MEET}"""
    yield Kernel("cluster_arrivals", "sm_90a", arrivals, ramp, 64, shared=1024, ctas=2)
    given = np.arange(1, 1 + 96 * 64, dtype=np.uint16)
    for mask in (1, 2, 3):
        boxes = f"""\
{begin}
  const tt_u32 bar = base;
  for (int i = lane; i < 512; i += 32) ((tt_u32*)(smem + 1024))[i] = 0xffffffffu;
  if (lane == 0) {{ tt_mbarrier_init(bar, 1); tt_fence_mbarrier_init(); }}
  tt_fence_proxy_async();
  {MEET}
  if (lane == 0 && ({mask} >> rank & 1)) tt_mbarrier_arrive_expect_tx(bar, 2048);
  {MEET}
  if (lane == 0 && rank == 0) tt_tma_load_2d_multicast(base + 1024, &map, 8, 5, bar, {mask});
  if ({mask} >> rank & 1) tt_mbarrier_wait(bar, 0);
  {MEET}
  for (int i = lane; i < 512; i += 32) p1[512 * rank + i] = ((const tt_u32*)(smem + 1024))[i];"""
        map = Map(tt.fp16, (64, 96), (128,), (64, 16), 128)
        yield Kernel(f"multicast_{mask}", "sm_90a", boxes, given, 1024, shared=4096, map=map, ctas=2)


# -- multiplications -----------------------------------------------------------------------------------


def product(symbol: str, given: np.ndarray, map: Map, loads: list[str], step: str, n: int, header: tuple[str, Form]) -> Kernel:
    """A kernel of one warpgroup that loads boxes of `map` and multiplies."""
    size = int(np.prod(map.box)) * map.dtype.itemsize
    load = LOADED.format(bytes=size * len(loads), loads=" ".join(loads))
    dtype, form = header
    more = f"\n#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900\n{wgmma_function(dtype, n, form)}#endif\n"
    operands = REGISTERS if form == "registers" else ""
    body = f"{load}\n{MULTIPLIED.format(count=n // 2, step=step, operands=operands)}"
    room = 1024 + size * len(loads)
    return Kernel(symbol, "sm_90a", body, given, 64 * n, threads=128, shared=room, map=map, headers=more)


def narrow() -> Iterator[Kernel]:
    """tf32 and both fp8: 128 bytes of k, rows 0 to 63 by rows 64 to 127."""
    codes = {"e4m3": [0x38, 0x40, 0xB8, 0x00, 0xC0], "e5m2": [0x3C, 0x40, 0xBC, 0x00, 0xC0]}
    kinds = {"tf32": ("float", tt.fp32), "e4m3": ("tt_e4m3", DType.f8e4m3fn), "e5m2": ("tt_e5m2", DType.f8e5m2)}
    for word, (name, dtype) in kinds.items():
        wide = 128 // dtype.itemsize
        count = 128 * wide
        given = numbers(count) if word == "tf32" else np.array(codes[word], np.uint8)[np.arange(count) * 7 % 11 % 5]
        map = Map(dtype, (wide, 128), (128,), (wide, 64), 128, tf32=word == "tf32")
        loads = [f"tt_tma_load_2d(base + {1024 + 8192 * i}, &map, 0, {64 * i}, bar);" for i in range(2)]
        a, b = (f"tt_wgmma_descriptor(base + {1024 + 8192 * i} + 32 * kk, 16, 1024, 128)" for i in range(2))
        step = f"TT_UNROLL for (int kk = 0; kk < 4; ++kk) tt_wgmma_m64<{name}, 64>::run(d, {a}, {b}, 1);"
        yield product(f"wgmma_{word}", given, map, loads, step, 64, (word, "narrow"))


def from_registers() -> Iterator[Kernel]:
    """A in registers, B along k and along n."""
    for word, dtype in (("f16", tt.fp16), ("bf16", tt.bf16)):
        for along_n in (0, 1):
            given = numbers(64 * 128).astype(np.float16 if word == "f16" else np.dtype("bfloat16"))
            map = Map(dtype, (64, 128), (128,), (64, 64), 128)
            advance, first = (2048, 8192) if along_n else (32, 16)
            b = f"tt_wgmma_descriptor(base + 1024 + {advance} * kk, {first}, 1024, 128)"
            step = (
                f"TT_UNROLL for (int kk = 0; kk < 4; ++kk) tt_wgmma_m64k16_rs<tt_{word}, 64, {along_n}>::run(d, a[kk], {b}, 1);"
            )
            symbol = f"wgmma_{word}_registers_{'mn' if along_n else 'k'}"
            yield product(symbol, given, map, ["tt_tma_load_2d(base + 1024, &map, 0, 64, bar);"], step, 64, (word, "registers"))


def along_mn() -> Iterator[Kernel]:
    """B along n in several boxes, next to each other: 128 columns in two boxes of 128 bytes, 64 columns in boxes of 64 and of 32."""
    for span, n in ((128, 128), (64, 64), (32, 64)):
        wide = span // 2
        given = numbers(128 * 128).astype(np.float16)
        map = Map(tt.fp16, (128, 128), (256,), (wide, 64), span)
        box = 64 * span
        parts = -(-64 // wide)
        loads = [f"tt_tma_load_2d(base + {1024 + box * i}, &map, {wide * i}, 0, bar);" for i in range(parts)]
        begin = 1024 + box * parts
        loads += [f"tt_tma_load_2d(base + {begin + box * i}, &map, {wide * i}, 64, bar);" for i in range(n // wide)]
        a = f"tt_wgmma_descriptor(base + 1024 + {16 * span} * kk, {box}, {8 * span}, {span})"
        b = f"tt_wgmma_descriptor(base + {begin} + {16 * span} * kk, {box}, {8 * span}, {span})"
        step = f"TT_UNROLL for (int kk = 0; kk < 4; ++kk) tt_wgmma_m64k16<tt_f16, {n}, 1, 1>::run(d, {a}, {b}, 1);"
        yield product(f"wgmma_mn_{n}_sw{span}", given, map, loads, step, n, ("f16", "shared"))


def ties() -> Kernel:
    """Floats that a map of type TFLOAT32 rounds: around and at ties, of both signs, at exponents that differ."""
    fractions = np.array([0, 0xFFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x3001, 0x7FF000], np.uint32)
    exponents = np.array([1, 100, 127, 128], np.uint32)[:, None] << 23
    bits = (exponents | fractions).ravel()
    given = np.concatenate([bits, bits | (1 << 31)]).astype(np.uint32)
    map = Map(tt.fp32, (32, 2), (128,), (32, 2), 0, tf32=True)
    load = LOADED.format(bytes=256, loads="tt_tma_load_2d(base + 1024, &map, 0, 0, bar);")
    body = f"{load}\n  for (int i = lane; i < 64; i += 32) p1[i] = ((const tt_u32*)(smem + 1024))[i];"
    return Kernel("tma_tf32_ties", "sm_90a", body, given, 64, shared=2048, map=map)
