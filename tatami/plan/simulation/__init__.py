"""Engine of the simulated pipelines: roles that issue and wait, units that serve, instruction costs."""
