"""Mutation testing of the verifiers: faults are put into their text, one at a time, and a test has to notice each."""
