"""CUDA text of kernels without a product: streaming phases, scans, joins, sorts, custom bodies."""
