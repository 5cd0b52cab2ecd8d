"""Rules of the verifier: guards, lets, yields, and the neutral values of reductions."""
