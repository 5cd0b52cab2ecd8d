"""Causes of the rows of the table that stay behind ONNX Runtime: kernel, times on both sides, bound by the machine's peaks.

Times are the least of many runs on one thread of a Zen 4 core at 118 GFLOP/s; those of ONNX Runtime are from its profile. An
entry is printed while a row is behind, and is out of date when its kernel changes."""

SPEED = {
    "ppocr5-cls": "1x1 products of 256 channels of 5x80: 0.494 ms each, five of them, next to 0.474 there, the bound is 0.448. 400 "
    "places fill twelve and a half slivers of 32, and the last is multiplied whole.",
    "slanet-plus": "at 488x488, where memory is read from L3: 1x1 products from 192 to 48 channels of 122x122 3.41 and 3.61 ms next to "
    "2.75 and 2.72 there, bound 2.36; resizes into a concatenation 1.69 ms next to 1.15 for the two nodes there.",
    "chars2vec": "two loops of five turns for five letters: 0.31 of 0.63 ms are kernels, the rest is outside of them.",
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
