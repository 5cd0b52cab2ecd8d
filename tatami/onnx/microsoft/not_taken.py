"""Operators of com.microsoft that are not imported, with the reason; limits of some that are imported."""

from __future__ import annotations

_SEARCH = (
    "a whole generation loop over decoder graphs inside the node; run the decoder's graph once per token and choose the "
    "tokens outside"
)
_BYTES = "its operands are bytes in a layout of one machine, which the documentation does not describe"
_ORDERED = "int8 in cuBLASLt's COL32 layouts, which only that library describes; quantise with QLinear operators instead"
_CUDA = "part of one CUDA runtime's decoding step: it has no CPU kernel to agree with, and no exporter writes it"
_SPARSE = "selects blocks of a paged cache for one CUDA runtime; it has no CPU kernel to agree with"
_EXECUTION = "a compiled part of the model for other hardware; save the model without it"

NOT_TAKEN: dict[str, str] = {
    "AttnLSTM": "an LSTM with an attention over a memory in each step, of one discontinued speech toolkit; export it as a Loop",
    "BeamSearch": _SEARCH,
    "BifurcationDetector": "matches token sequences between calls of a decoder, for aggressive decoding; do it between the calls",
    "ConvStateReplay": _CUDA,
    "DequantizeBFP": _BYTES,
    "DequantizeWithOrder": _ORDERED,
    "DynamicSparseAttention": _SPARSE,
    "DynamicTimeWarping": "a path through a matrix that each step of a search decides; do it after the model",
    "EPContext": _EXECUTION,
    "GatedDeltaNetStateReplay": _CUDA,
    "GatherPacked": _BYTES,
    "GemmFloat8": "a product of 8-bit floats by cuBLASLt, with its epilogues; dequantise and use FusedGemm",
    "GreedySearch": _SEARCH,
    "HyperConnectionLowRankMix": "a block fused for CUDA alone, with a rounding after each step; export its operators",
    "LongformerAttention": "windowed attention with global tokens that data places, for CUDA alone; export its operators",
    "Mamba2Verify": _CUDA,
    "MatMulBlockQuantizedFp4Weight": "weights of 4-bit floats for CUDA alone; use MatMulNBits or DequantizeLinear and MatMul",
    "MatMulBlockQuantizedFp8Weight": "weights of 8-bit floats for CUDA alone; use DequantizeLinear and MatMul",
    "MatMulFpQ4": _BYTES,
    "MatMulNBitsMlp": "several MatMulNBits fused for WebGPU when a session starts; save the model without that pass",
    "MatMulNBitsQLoRA": "a MatMulNBits with adapters fused for one runtime; export its operators",
    "MatMulNBitsQkv": "several MatMulNBits fused for WebGPU when a session starts; save the model without that pass",
    "MatMulPacked": _BYTES,
    "MaxpoolWithMask": "internal, and what the mask means is not documented",
    "MoEGroupRouter": "a router of groups of experts for one CUDA runtime; export its TopK and give MoE the scores",
    "MoEPacked": _BYTES,
    "NGramHashMapping": "hashes of token n-grams kept between calls; compute the ids before the model",
    "PackedSparseAttentionIndexer": _SPARSE,
    "PackedSparseAttentionIndexerMerge": _SPARSE,
    "PagedAttention": "a cache in pages that a server's scheduler assigns; use GroupQueryAttention with a cache of its own",
    "QOrderedAttention": _ORDERED,
    "QOrderedGelu": _ORDERED,
    "QOrderedLayerNormalization": _ORDERED,
    "QOrderedLongformerAttention": _ORDERED,
    "QOrderedMatMul": _ORDERED,
    "QuantizeBFP": _BYTES,
    "QuantizeWithOrder": _ORDERED,
    "RMSNormRotary": "two operators fused for CUDA alone, with a rounding of its own; export both",
    "RouterGateUpProj": _CUDA,
    "Sampling": _SEARCH,
    "Snpe": _EXECUTION,
    "SparseAttention": "attention in blocks that a table per head chooses, with the cache in shared memory; use GroupQueryAttention",
    "SparseAttentionIndexer": _SPARSE,
    "SparsePagedAttention": _SPARSE,
    "SparseToDenseMatMul": "its operand is a sparse tensor, which Tatami has none of; give a dense matrix and use FusedMatMul",
    "SpeculativePrefixCommit": _CUDA,
    "VarlenCausalConvWithState": "packed requests of one CUDA runtime; CausalConvWithState computes the same of a padded batch",
    "VarlenNGramHashMapping": "hashes of token n-grams kept between calls; compute the ids before the model",
    "WhisperBeamSearch": _SEARCH,
    "WordConvEmbedding": "an embedding of words by their letters, of one discontinued toolkit; export its Gather, Conv and ReduceMax",
}
"""Operator that is not imported → the reason, and an alternative."""

LIMITS: dict[str, str] = {
    "Attention": "not with do_rotary",
    "BitmaskBiasDropout": "not with its mask as a result",
    "BitmaskDropout": "not with its mask as a result",
    "CDist": "euclidean and sqeuclidean",
    "CausalConvWithState": "one axis; not with a window of states or another state length",
    "CropAndResize": "to a size that is a number",
    "DecoderAttention": "its four flags are constants",
    "DecoderMaskedMultiHeadAttention": "the cache of keys in plain order, as in ONNX Runtime's CPU kernel",
    "DecoderMaskedSelfAttention": "the cache of keys in plain order; not with beams or do_rotary",
    "DynamicQuantizeLSTM": "h is rounded over all rows of a step; ONNX Runtime with several threads may do so for each part",
    "GatedDeltaNet": "neither packed requests (cu_seqlens) nor captured updates",
    "GroupQueryAttention": "not with a quantised cache",
    "Inverse": "matrices of order up to 32",
    "Irfft": "one axis of a size that is a number",
    "LinearAttention": "not with a window of states",
    "MatMulNBits": "2, 4 and 8 bits, not prepacked; level 4 with constant weights of 4 bits rounds the operand to 8 bits for each row and block; all else is computed in the operand's own dtype",
    "MoE": "not with use_sparse_mixer; gelu is its tanh form, as in ONNX Runtime",
    "MurmurHash3": "numbers of 32 and 64 bits, not strings",
    "NGramRepeatBlock": "rows of a length that is a number",
    "QAttention": "not with do_rotary",
    "QMoE": "weights of 2, 4 or 8 bits; where nothing is to be normalised, weights are the softmax over all experts",
    "RemovePadding": "where a Host step can read the number of tokens: not in branches and bodies",
    "Rfft": "one axis of a size that is a number",
    "RotaryEmbedding": "neither packed batches nor a scale",
}
"""Operator → the part that an import refuses or computes differently."""
