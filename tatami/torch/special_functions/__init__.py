"""Special functions: of one variable, incomplete gamma functions, orthogonal polynomials."""
