"""GGUF files: language models of a few architectures, with weights in blocks of codes, as graphs.

    file.py            bytes -> metadata and tensors, every count checked against the file's length
    blocks.py          raw bytes of a tensor -> codes and scales, and the operations that dequantise them
    architectures.py   metadata -> what differs between architectures
    decoder.py         both -> a graph: tokens in, caches updated in place, logits of the last position
    load.py            the importer for the suffix .gguf

An importer: it knows `core` and `frontend` only.
"""
