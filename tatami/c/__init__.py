"""C text of CPU programs: gnu17 with compiler vector extensions, for gcc, clang and zig cc (design §3 loop).

    kernels        `print_kernel`: one unit per kernel; `print_index`, `scalar_ops`, `casts` and `literals` give the text of its
                   expressions; `needs`: the definitions that this text calls, made for a type and lanes (`definitions`),
                   or files of math_text
    math_text      functions in vector form (exp, log, tanh, erf, …; 16-bit conversions; Philox), a folder per
                   subject; `@W` is the lanes
    print_entry    the entry file: kernels wave by wave on an arena and a pool
    products, routines, runtime_text         what kernels call: packs, micro-kernels, sort, the thread pool
    print_library  the description of a program for a library without Python, whose code is in library_text; `bind_text`: sizes
                   from shapes, `size_text`: sizes as C
    pages          the text itself, with named holes: a micro-kernel, a chunk of a kernel, the entry, main.c (core/page.py)

Units except micro-kernels are compiled without contraction (-ffp-contract=off), so a result depends only on the target's
lanes. No user-supplied name occurs in any text. Equal kernels have equal names and equal text.
"""
