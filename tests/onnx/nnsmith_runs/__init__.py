"""Models that NNSmith drew."""
