"""bench: measurements on this machine, above the pipeline.

`measure` times each kernel of a compiled program and sets the time next to the plan's estimate."""
