"""Causes of the rows of the table that stay behind ONNX Runtime: kernel, times on both sides, bound by the machine's peaks.

Times are the least of many runs on one thread of a Zen 4 core at 118 GFLOP/s; those of ONNX Runtime are from its profile. An
entry is printed while a row is behind, and is out of date when its kernel changes."""

SPEED = {
    "ppocr5-cls": "depthwise 5x5 windows: five of 256 channels of 5x80 take 0.094 ms each next to 0.061 there, two of 3x80 0.14 and "
    "0.08 next to 0.063 and 0.037; 0.28 ms of 6.0 together. ONNX Runtime keeps 16 channels in a vector, and no lane of it is a "
    "border; ours are 16 neighbours of a row. Its 1x1 products take 0.474 ms, ours 0.487, the bound is 0.448.",
    "isbn-yolo": "stems with SiLU epilogues: 3 to 16 channels of 160x160 0.50 ms (bound 0.29), 16 to 32 of 80x80 0.76, 1x1 of 48 to "
    "64 channels of 80x80 0.52 (bound 0.34). There they take 0.28, 0.52 and 0.35, and the activations are nodes of their own.",
    "title-decoder": "attention of one query: 16 kernels, 0.58 of 2.06 ms. A kernel of 18 heads takes 45 us over 7 keys and 27 us over one "
    "(estimates 21 and 4): blocks of 32 keys are packed for a single row of a few.",
    "open-nsfw": "the 7x7 stem by planes: 11.8 ms for three images, 10.4 there, the bound is 9.0. Slivers run over the ends of rows, "
    "and rows lie across cache lines.",
    "nsnet2": "nothing at two texts that is slower kernel by kernel: 4.42 ms against 4.73 by profile. The GRU's products of two rows "
    "read 1.9 MB of weights a step, which L2 does not hold: 0.89 ms for 37 steps, 80 GB/s.",
}
"""Model -> what its time goes to."""
MEMORY: dict[str, str] = {}
"""Model -> what its memory goes to."""
