"""The explorer: a compilation as one page for a browser, from the model's node to the line of C or CUDA and back.

    ir.py         the document of a page: stages as lines, things and their origins, kernels, graph, memory, times
    things.py     the things that lines tell of, numbered, and the links between those of one stage and the next
    links.py      the rules of these links, one per stage
    kernels.py    a row per kernel: plan, rejected plans, figures, neighbours that are not fused
    graph.py      the model's nodes, each with its module path and its kernel
    memory.py     the arena: address by instruction
    times.py      measured times; the trace that Perfetto opens
    pipeline.py   the simulated pipeline of a GPU kernel: roles, tokens, units
    document.py   all of these of one compilation
    html.py       the document and `page/` as one HTML file
    serve.py      the page on 127.0.0.1, with plans to edit
    messages.py   what the server and the process that compiles an edited plan tell each other
    page/         what runs in the browser: modules of JavaScript and a style sheet; a file or more per view in page/views/

    compilation -> ir.Explored -> one HTML file

The page asks for nothing from outside: its policy (CSP) allows the script that it contains, by its hash, and no request.
Names of a model reach the page as JSON and the document tree as text nodes only.
"""
