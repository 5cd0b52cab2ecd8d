"""Search over decisions: proposals for other plans, partitions and calls than the compiler's own.

    proposal.py      one decision that may be better, with its estimate and the reason
    suggesters/      functions that make proposals from the stages of a compilation, a file each

It stands above the pipeline. The compiler stays a function of (model, target, decisions): what a search finds is a decisions
document, which a person can read, edit and keep.
"""
