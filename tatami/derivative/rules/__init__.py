"""Rules of differentiation, a file per family of operations. An operation without a rule is differentiated as its lowering
(`derivative/lift.py`)."""
