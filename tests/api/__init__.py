"""The public functions: what they take, what they refuse, and what each diagnostic says."""
