"""Passes over finished statements: the same bits from fewer or better ordered instructions."""
