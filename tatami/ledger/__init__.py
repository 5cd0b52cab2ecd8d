"""The ledger: what was measured on this machine, one SQLite file per user, for `tatami bench` and for searches.

database.py     the file: its schema, who may have written it, concurrent writers
records.py      the rows: rounds of candidates, finished searches, programs, kernels of `tatami bench`
exchange.py     CSV, the rows of another machine's file, and what is removed
"""
