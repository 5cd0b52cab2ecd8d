"""The rules by which the benchmarks count, and the pages they write."""
