"""The `.harp` language: text to frontend modules through the Graph API, and back (docs/language.md).

    grammar.lark       the grammar                parse.py          text to syntax tree; syntax_errors.py explains faults
    ir.py  source.py   the tree and its places    load.py           `tt.parse`, files
    fmt.py             the formatter              decompile.py      a module as text, by the files of writing/

    elaboration/       tree to module
        elaborate.py   call_order.py, then a body.py per graph
        scope.py       names and their values
        expressions.py values, operators, indices; calls.py, fused.py, constants.py
        parameters.py  the callables of the Graph API; arguments.py binds, values.py has the kinds of values

Invariants
    - There is no list of operations here: the table of `frontend/ops.py` and the methods of the Graph API are the list.
    - Every fault is a diagnostic with line, column and the line itself; one fault is one diagnostic.
    - Origins of nodes are places of the text: ``model.harp:3:9``.

Sample

    >>> from tatami.harp.load import parse
    >>> module = parse("graph<N=4> main(x: f32[N, 3]) -> f32[N] { y = x * 2.0 return y.sum(1) }", name="m.harp")
    >>> [(node.op, module.origins["main"][node.name]) for node in module.main.graph]
    [('constant', ('m.harp:1:49',)), ('mul', ('m.harp:1:49',)), ('reduce_sum', ('m.harp:1:64',))]
"""
