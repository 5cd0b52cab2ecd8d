"""The `.harp` language: text to frontend modules through the Graph API, and back (docs/language.md).

    grammar.lark       the grammar                parse.py          text to syntax tree; syntax_errors.py explains faults
    ir.py  source.py   the tree and its places    elaboration/      tree to module: elaborate.py, then a body.py per graph
    load.py            `tt.parse`, files          writing/          operations, names and layout of text
    fmt.py             text to text               decompile.py      module to text

In elaboration/: `call_order` orders the graphs; `scope` has names and their values, `values` the kinds of values;
`expressions` values, operators and indices, with `calls`, `fused` and `constants`; `parameters` the operations that can be
called, read off the Graph API, whose operands `arguments` binds.

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
