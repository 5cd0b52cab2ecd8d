"""Search over decisions: proposals for other plans, partitions and calls than the compiler's own.

    proposal.py      one decision that may be better, with its estimate and the reason
    suggesters/      functions that make proposals from the stages of a compilation, a file each
    cut.py           a program of one Region, in which candidates for its plan are measured
    measuring/       the worker process, and the rule when a difference of times counts
    strategy.py      successive halving over the candidates of one Region
    learned.py       a correction of estimates that the ledger teaches, for the order of candidates
    journal.py       what a search looked at, in the ledger: for its report and for the explorer
    report.py        a journal with its rows of the ledger as a part of an explorer page
    guarded.py       a winner behind the sizes that it was measured at
    context.py       the state that the steps of one search share
    structure.py     calls, and kernels cut or joined (cut_groups.py: the two programs in which a step is measured)
    regions.py       the Regions that are worth tuning, by their share of the time
    whole.py         the whole program, with other decisions against its own
    session.py       the search for one model; results.py: its options and its result
    clusters.py      the same for several tuples of sizes
    tune.py          the same within `tt.compile`

It stands above the pipeline. The compiler stays a function of (model, target, decisions): what a search finds is a decisions
document, which a person can read, edit and keep.
"""
