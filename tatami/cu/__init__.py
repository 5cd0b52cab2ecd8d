"""CUDA C++ text of kernels (spec 5 §7). Made from gpu programs and the execution plan.

- Hardware is touched only through `header/tatami_ptx.cuh`: small named device functions that hold all inline PTX.
- The other headers are plain C++: `tatami_math.cuh` arithmetic, `tatami_stream.cuh` and `tatami_sort.cuh` the parts of
  those templates. Nothing else is included, no library is linked.
- Text of a fixed shape stands in `pages/`, with named holes: a product up to its first statement, the walk over tiles, sorts,
  main.cu (core/page.py). Statements are printed one by one (`cu/products/kernel.py`, `cu/streaming/stream.py`).
- Kernels, parameters and sizes are named by counters (k0, p0, s0); a user's words never occur.
- The wgmma instruction is written out once per shape that is used, at the end of the PTX header.
"""
