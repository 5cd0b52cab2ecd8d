"""Plans of plain loop nests: schedule, rules, candidates, and estimated seconds."""
