"""core: values and functions that every layer shares; nothing here imports a layer.

    expr, algebra/   sizes and index expressions; their ranges, proofs, inverses, substitutions, text
    dtype, scalar, tensor, numbers/          element types, constants, and the numpy meaning of each scalar operation
    ops              the table of scalar operations, a row each, with all that a layer has to know of one
    layout, view     how a value lies in memory; where each element of a view lies in its source
    signature, sizes/                        inputs and outputs of a program; size symbols bound by the shapes of a call
    module, document, codec                  named programs with constants and origins; their envelope; nodes to JSON and back
    kernel, renaming                         how a Region uses kernels; records under other names
    target, chips/, cost                     a machine as numbers, NVIDIA's chips among them; seconds from flops and bytes
    diagnostic, faults/                      one refusal; the table of its kinds, and checks of what comes from outside
    custom/          formulas and bodies of users' own kernels
    page             C and CUDA text in files of its own, with named holes
    drawing/         graphs as SVG and DOT
    files/           arrays, containers with checksums, data next to a model, the package's content as a cache key
    collector        a pause of Python's search for cycles of objects

Files here are single subjects; a folder holds several files about one.
"""
