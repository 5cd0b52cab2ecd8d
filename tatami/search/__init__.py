"""search: what stands above the pipeline and measures.

`measure` times each kernel of a compiled program on this machine and sets the plan's estimate beside it.
"""
