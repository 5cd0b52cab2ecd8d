"""ATen operators by family: one function per overload, joined by `torch.table`."""
