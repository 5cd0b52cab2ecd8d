"""Import of PyTorch graphs. Made from: a torch.fx graph of ATen operators; depends on `core` and `frontend` only.

    decompose     operators that PyTorch decomposes before the import
    import_graph  a whole fx graph: placeholders, nodes, outputs, updated inputs; nodes that cannot be imported, with reasons
    importer      the state: the frontend graph under construction, and what an operator's function may use
    table         ATen overload -> function, joined from aten/, linear_algebra/, special_functions/
    sizes         SymInt -> size expression; strides -> order of axes in memory
    dtypes        torch.dtype <-> DType, and PyTorch's rules of promotion
    load          torch.export: a Module or an ExportedProgram as a frontend module

A function of the table has the importer, then the operator's own ATen signature: tensors arrive as tensors of the graph,
SymInts as size expressions, numbers unchanged. PyTorch's metadata (`node.meta["val"]`) has the type of every result; each
imported result is compared with it. Nothing here imports the compiler: `tatami.backends` joins both.
"""
