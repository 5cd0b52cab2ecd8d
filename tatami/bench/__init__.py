"""bench: measurements on this machine, above the pipeline.

`measure` times each kernel of a compiled program and sets the time next to the plan's estimate, for the ledger (`tatami/ledger`);
`inputs` reads or generates the arrays of a run; `roofline` draws the kernels under the machine's limits. Comparisons with other libraries are in `benchmarks/`, outside
the package."""
