"""Programs for the sizes of a call: one model, one program per tuple of sizes (or of values) that decides its structure.

    shape_sets        the programs of a compilation: one for all sizes, one for each tuple of sizes that the caller requested
    specialisation    programs that a call turns out to need: the model imported again with its sizes
    adaptive          the callable that chooses the program of each call
    source_cache      imports of models with words or maps at their ports, found by the file's bytes

None of these is a stage: each program goes through the whole chain.
"""
