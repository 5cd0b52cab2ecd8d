"""frontend: the meaning of a model, a module of graphs of typed operations (spec 1, spec 3 §2).

Made by the importers (`onnx`, `torch`, `harp`), by documents (`load.py`) and by the Graph API (`graph.py`).

    ir.py          Graph, Node, TensorType
    ops.py         the table of operations; operations/ has a family per file: attributes, operands, type rule
    graph.py       the Graph API; graph_api/ its methods, by family; graph_api/tensor.py its tensors
    verify.py      names, order, types, calls      show.py  text and DOT      run.py  the meaning in numpy (meaning/)
    rewrites/      graph to graph before `tiny`: calls, dequantised products, scales, the `precision=` option

Invariants
    - Every graph has a signature; inputs and outputs are not nodes (spec 3 §2.2). Nodes are pure, in topological order;
      mutation stands in the signature (`updates`).
    - Operands of an elementwise operation have one shape; only rank 0 spreads (spec 1 "Shape", D2.1). No implicit cast.
    - `tensors` holds the inferred type of every result; sizes are expressions of legal symbols.
    - Kernels' windows and axes are numbers; sizes may be symbols everywhere else.

Sample

    main(
        x: fp32[B, 784],
        w: fp32[784, 10] param const_pool,
    ) -> y: fp32[B, 10]
      matmul: fp32[B, 10]                      = matmul(x, w)
      y: fp32[B, 10]                           = softmax(matmul) axis=1  # softmax
"""
