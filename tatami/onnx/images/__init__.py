"""ONNX operators on images: pooling, resizing, regions of interest, sampling between points."""
