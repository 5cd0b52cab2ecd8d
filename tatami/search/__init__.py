"""Search over decisions: proposals for other plans, partitions and calls than the compiler's own.

    proposal.py      one decision that may be better, with its estimate and the reason
    suggesters/      functions that make proposals from the stages of a compilation, a file each
    cut.py           a program of one Region, in which candidates for its plan are measured
    measuring/       the worker process, and the rule when a difference of times counts
    strategy.py      successive halving over the candidates of one Region
    guarded.py       a winner behind the sizes that it was measured at
    session.py       the search for one model: Regions by their share of the time, then the whole program
    tune.py          the same within `tt.compile`

It stands above the pipeline. The compiler stays a function of (model, target, decisions): what a search finds is a decisions
document, which a person can read, edit and keep.
"""
