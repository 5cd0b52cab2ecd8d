"""Programs of several processes: PyTorch's over gloo, ours with communicators of the test."""
