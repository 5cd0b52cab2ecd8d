"""A grid of small models in addition to ONNX's node suite: each operator of the default domain in each of its versions, varied
along one axis at a time, next to ONNX's reference evaluator and ONNX Runtime.

    schema       operators, versions, attributes and types, read from onnx.defs
    rows_*       the table: for each operator its operands, and what varies beyond what the schema says
    values       arrays: drawn, special values, limits of a dtype
    cases        rows and schemas to cases
    oracles      what the reference evaluator and ONNX Runtime say of a case
    known        disagreements of the oracles with the one that is followed; cases that are known to fail
    run          cases through Tatami, many to a program
    report       text of a run, and docs/onnx-grid.md

`python -m tests.onnx.grid` runs it.
"""
