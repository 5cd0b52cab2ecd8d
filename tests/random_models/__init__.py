"""Random graphs, programs and models, and the tests that draw from them."""
