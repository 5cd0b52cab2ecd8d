"""bench: measurements on this machine, above the pipeline.

`measure` times each kernel of a compiled program and sets the time next to the plan's estimate; `ledger` keeps both, a line per
kernel; `roofline` draws the kernels under the machine's limits. Comparisons with other libraries are in `benchmarks/`, outside
the package."""
