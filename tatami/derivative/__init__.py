"""derivative: the derivative of a frontend graph, as more nodes of that graph (decision 0092).

    api.py       `tt.gradient`: of a model, or between tensors of a graph under construction
    reverse.py   reverse mode over nodes        step.py   what a rule sees        tidy.py   nodes that nothing reads
    rules/       a rule for each simple operation, by family
    parts.py     attention as products and a softmax      control.py   calls, branches and loops
    lift.py      every other operation as its lowering to UOps, read back as simple operations

It reads `frontend` and the lowering rules of `tiny`, and gives `frontend`: the result is a document like any other.
"""
