"""PyTorch to frontend. Made from: a torch.fx graph of ATen operators; depends on `core` and `frontend` only.

    decompose     which operators PyTorch takes apart before we see them
    import_graph  a whole fx graph: placeholders, nodes, outputs, updated inputs; what cannot be imported and why
    importer      the state: the frontend graph so far, and what an operator's function may ask for
    table         ATen overload -> function, joined from the families aten_*.py
    sizes         SymInt -> size expression; strides -> the order in which axes lie in memory
    dtypes        torch.dtype <-> DType, and PyTorch's rules of promotion
    load          torch.export: a Module or an ExportedProgram as a frontend module

A function of the table has the operator's own ATen signature after the importer: tensors arrive as tensors of the
graph, SymInts as size expressions, numbers as they are. PyTorch's metadata (`node.meta["val"]`) says what every result
is; each imported result is compared with it. Nothing here imports the compiler: `tatami.backends` joins both.
"""
