"""Operands and attributes of the operators of ONNX Runtime's own domains, from its documentation, in the form of ONNX's own
descriptions: nodes are checked and repaired by them like those of ONNX's own operators (repair_node.py).

    "Gemm": "A B C? | alpha:float transA:int"        C may be absent; an attribute with ! may not
"""

from __future__ import annotations

from onnx.defs import OpSchema

SIGNATURES: dict[str, dict[str, str]] = {
    "": {"SimplifiedLayerNormalization": "X scale | axis:int epsilon:float stash_type:int"},
    "com.microsoft": {
        "Attention": (
            "input weights bias? mask_index? past? attention_bias? past_sequence_length? | do_rotary:int "
            "mask_filter_value:float num_heads:int! past_present_share_buffer:int qkv_hidden_sizes:ints "
            "rotary_embedding_dim:int scale:float unidirectional:int"
        ),
        "BiasAdd": "X bias skip",
        "BiasDropout": "data bias residual? ratio? training_mode? | seed:int",
        "BiasGelu": "A B",
        "BiasSoftmax": "data bias | axis:int is_inner_broadcast:int!",
        "BiasSplitGelu": "X bias",
        "BitmaskBiasDropout": "data bias residual? ratio? training_mode? | seed:int",
        "BitmaskDropout": "data ratio? training_mode? | seed:int",
        "BranchwiseRMSNorm": "X scale? | epsilon:float num_branches:int",
        "CDist": "A B | metric:string",
        "CausalConvWithState": (
            "input weight bias? past_state? | activation:string channels_last:int dilation:int "
            "input_channel_offset:int input_channels:int ndim:int state_channels_last:int state_length:int "
            "state_update_capacity:int state_window:int"
        ),
        "ComplexMul": "A B",
        "ComplexMulConj": "A B",
        "ConvTransposeWithDynamicPads": (
            "X W Pads? B? | auto_pad:string dilations:ints group:int kernel_shape:ints output_padding:ints strides:ints"
        ),
        "CropAndResize": "X rois batch_indices crop_size | extrapolation_value:float mode:string",
        "DecoderAttention": (
            "query key q_weight kv_weight bias key_padding_mask? key_cache? value_cache? static_kv use_past "
            "has_layer_state has_key_padding_mask | mask_filter_value:float num_heads:int!"
        ),
        "DecoderMaskedMultiHeadAttention": (
            "query key? value? mask_index? attention_bias? past_key? past_value? past_sequence_length? "
            "beam_width? cache_indirection? bias? | mask_filter_value:float num_heads:int! output_qk:int "
            "past_present_share_buffer:int scale:float"
        ),
        "DecoderMaskedSelfAttention": (
            "input weights bias mask_index? past attention_bias? past_sequence_length beam_width? "
            "cache_indirection? | do_rotary:int mask_filter_value:float num_heads:int! "
            "past_present_share_buffer:int scale:float"
        ),
        "DequantizeLinear": "x x_scale x_zero_point? | axis:int",
        "DynamicQuantizeLSTM": (
            "X W R B? sequence_lens? initial_h? initial_c? P? W_scale W_zero_point R_scale R_zero_point | "
            "activation_alpha:floats activation_beta:floats activations:strings clip:float direction:string "
            "hidden_size:int input_forget:int"
        ),
        "DynamicQuantizeMatMul": "A B b_scale b_zero_point? bias?",
        "EmbedLayerNormalization": (
            "input_ids segment_ids? word_embedding position_embedding segment_embedding? gamma beta mask? "
            "position_ids? | epsilon:float mask_index_type:int"
        ),
        "EngramGate": "key query value key_norm_scale query_norm_scale conv_norm_scale? | epsilon:float",
        "ExpandDims": "X axis",
        "FastGelu": "X bias?",
        "FusedConv": (
            "X W B? Z? | activation:string activation_params:floats auto_pad:string dilations:ints group:int "
            "kernel_shape:ints pads:ints strides:ints"
        ),
        "FusedGemm": (
            "A B C? | activation:string activation_alpha:float activation_beta:float activation_gamma:float "
            "alpha:float beta:float transA:int transB:int"
        ),
        "FusedMatMul": "A B | alpha:float transA:int transB:int transBatchA:int transBatchB:int",
        "FusedMatMulActivation": (
            "A B | activation:string! activation_alpha:float activation_axis:int activation_beta:float "
            "activation_gamma:float alpha:float transA:int transB:int transBatchA:int transBatchB:int"
        ),
        "GatedAdd": "X Y gate gate_weight?",
        "GatedDeltaNet": (
            "query key? value? cu_seqlens? decay? beta? initial_state? a_log? dt_bias? capture_count? state_update_active? | "
            "beta_activation:string chunk_size:int gate_activation:string gate_lower_bound:float "
            "qk_l2_norm:int scale:float state_update_capacity:int update_rule:string"
        ),
        "GatedRMSNorm": "X scale gate | activation:string epsilon:float",
        "GatedRelativePositionBias": "query_layer query_bias rel_pos weight bias eco_a token_offset? | num_heads:int!",
        "GatherBlockQuantized": "data indices scales zero_points? | bits:int block_size:int gather_axis:int quantize_axis:int",
        "GatherND": "data indices",
        "Gelu": "X",
        "GemmFastGelu": "X W bias?",
        "GemmaRotaryEmbedding": "emb q q_rot k k_rot",
        "GridSample": "X Grid | align_corners:int mode:string padding_mode:string",
        "GroupNorm": "X gamma beta | activation:int! channels_last:int epsilon:float groups:int!",
        "GroupQueryAttention": (
            "query key? value? past_key? past_value? seqlens_k total_sequence_length cos_cache? sin_cache? "
            "position_ids? attention_bias? head_sink? k_scale? v_scale? q_norm_weight? k_norm_weight? "
            "query_seqlens? | causal:int do_rotary:int k_norm_epsilon:float k_quant_type:string "
            "kv_cache_bit_width:int kv_num_heads:int! local_window_size:int num_heads:int! q_norm_epsilon:float "
            "qk_norm_epsilon:float qk_output:int rotary_interleaved:int scale:float sliding_window_cache:int "
            "smooth_softmax:int softcap:float v_quant_type:string"
        ),
        "HyperConnectionPostMix": "streams block_output post_mix stream_mix? | num_branches:int",
        "HyperConnectionPreMix": "streams pre_mix | num_branches:int reduction_scale:float",
        "Inverse": "X",
        "Irfft": "X | normalized:int onesided:int signal_ndim:int!",
        "IsAllFinite": "input* | isinf_only:int isnan_only:int",
        "LinearAttention": (
            "query key value past_state? decay? beta? | chunk_size:int kv_num_heads:int! q_num_heads:int! "
            "scale:float state_window:int update_rule:string"
        ),
        "LinearAttentionGate": "a dt_bias decay_scale b?",
        "MRotaryEmbedding": (
            "input position_ids cos_cache sin_cache | interleaved:int is_packed_batching:int mrope_layout:int "
            "mrope_section:ints! num_heads:int rotary_embedding_dim:int scale:float"
        ),
        "MatMulBnb4": "A B absmax | K:int! N:int! block_size:int! quant_type:int! training_mode:int transB:int",
        "MatMulInteger16": "A B",
        "MatMulIntegerToFloat": "A B a_scale b_scale a_zero_point? b_zero_point? bias?",
        "MatMulNBits": (
            "A B scales zero_points? g_idx? bias? | K:int! N:int! accuracy_level:int bits:int block_size:int! "
            "weight_prepacked:int"
        ),
        "MoE": (
            "input router_probs fc1_experts_weights fc1_experts_bias? fc2_experts_weights fc2_experts_bias? "
            "fc3_experts_weights? fc3_experts_bias? | activation_alpha:float activation_beta:float "
            "activation_type:string k:int normalize_routing_weights:int swiglu_fusion:int swiglu_limit:float "
            "swiglu_limit_after_activation:int use_sparse_mixer:int"
        ),
        "MulInteger": "A A_zero_point? B B_zero_point?",
        "MultiHeadAttention": (
            "query key? value? bias? key_padding_mask? attention_bias? past_key? past_value? "
            "past_sequence_length? cache_indirection? | mask_filter_value:float num_heads:int! scale:float "
            "unidirectional:int"
        ),
        "MurmurHash3": "X | positive:int seed:int",
        "NGramRepeatBlock": "input_ids scores | ngram_size:int!",
        "NhwcConv": "X W B? | auto_pad:string dilations:ints group:int kernel_shape:ints pads:ints strides:ints",
        "NhwcFusedConv": (
            "X W B? Z? | activation:string activation_params:floats auto_pad:string dilations:ints group:int "
            "kernel_shape:ints pads:ints strides:ints"
        ),
        "NhwcMaxPool": "x | auto_pad:string ceil_mode:int dilations:ints kernel_shape:ints! pads:ints strides:ints",
        "PackedAttention": (
            "input weights bias token_offset cumulative_sequence_length attention_bias? | num_heads:int! "
            "qkv_hidden_sizes:ints scale:float"
        ),
        "PackedMultiHeadAttention": (
            "query key? value? bias? token_offset cumulative_sequence_length attention_bias? | "
            "mask_filter_value:float num_heads:int! scale:float"
        ),
        "Pad": "data pads value? | mode:string",
        "QAttention": (
            "input weight bias input_scale weight_scale mask_index? input_zero_point? weight_zero_point? past? | "
            "do_rotary:int mask_filter_value:float num_heads:int! past_present_share_buffer:int scale:float "
            "unidirectional:int"
        ),
        "QEmbedLayerNormalization": (
            "input_ids segment_ids? word_embedding_quant position_embedding_quant segment_embedding? gamma_quant "
            "beta_quant mask? word_embedding_scale position_embedding_scale segment_embedding_scale? gamma_scale "
            "beta_scale word_embedding_zero_point position_embedding_zero_point segment_embedding_zero_point? "
            "gamma_zero_point beta_zero_point | epsilon:float"
        ),
        "QGemm": (
            "A a_scale a_zero_point B b_scale b_zero_point C? y_scale? y_zero_point? | alpha:float transA:int transB:int"
        ),
        "QLinearAdd": "A A_scale A_zero_point? B B_scale B_zero_point? C_scale C_zero_point?",
        "QLinearAveragePool": (
            "X x_scale x_zero_point? y_scale y_zero_point? | auto_pad:string ceil_mode:int channels_last:int "
            "count_include_pad:int kernel_shape:ints! pads:ints strides:ints"
        ),
        "QLinearConcat": "Y_scale Y_zero_point inputs* | axis:int!",
        "QLinearConv": (
            "x x_scale x_zero_point w w_scale w_zero_point y_scale y_zero_point B? | auto_pad:string "
            "channels_last:int dilations:ints group:int kernel_shape:ints pads:ints strides:ints"
        ),
        "QLinearGlobalAveragePool": "X x_scale x_zero_point y_scale y_zero_point | channels_last:int",
        "QLinearLeakyRelu": "X X_scale X_zero_point? Y_scale Y_zero_point? | alpha:float",
        "QLinearMul": "A A_scale A_zero_point? B B_scale B_zero_point? C_scale C_zero_point?",
        "QLinearReduceMean": "data data_scale data_zero_point? reduced_scale reduced_zero_point? | axes:ints! keepdims:int!",
        "QLinearSigmoid": "X X_scale X_zero_point? Y_scale Y_zero_point?",
        "QLinearSoftmax": "X X_scale x_zero_point? y_scale y_zero_point | axis:int opset:int!",
        "QLinearWhere": "condition X x_scale x_zero_point Y y_scale y_zero_point z_scale z_zero_point",
        "QMoE": (
            "input router_probs fc1_experts_weights fc1_scales? fc1_experts_bias? fc2_experts_weights "
            "fc2_scales? fc2_experts_bias? fc3_experts_weights? fc3_scales? fc3_experts_bias? fc1_zero_points? "
            "fc2_zero_points? fc3_zero_points? router_weights? fc1_global_scale? fc2_global_scale? "
            "fc1_act_scale? fc2_act_scale? fc1_act_block_scale? fc2_act_block_scale? | accuracy_level:int "
            "activation_alpha:float activation_beta:float activation_type:string block_size:int "
            "expert_weight_bits:int fc1_expert_weight_bits:int fc2_expert_weight_bits:int "
            "fc3_expert_weight_bits:int k:int normalize_routing_weights:int quant_type:string swiglu_fusion:int "
            "swiglu_limit:float swiglu_limit_after_activation:int use_sparse_mixer:int weights_prepacked:int"
        ),
        "QuantizeLinear": "x y_scale y_zero_point? | axis:int",
        "QuickGelu": "X | alpha:float",
        "Range": "start limit delta?",
        "ReduceSumInteger": "data | axes:ints! keepdims:int!",
        "RelativePositionBias": "bias_table query_length key_length | is_bidirectional:int max_distance:int!",
        "RemovePadding": "input sequence_token_count",
        "RestorePadding": "input token_offset",
        "Rfft": "X | normalized:int onesided:int signal_ndim:int",
        "RotaryEmbedding": (
            "input position_ids cos_cache sin_cache | interleaved:int is_packed_batching:int num_heads:int "
            "rotary_embedding_dim:int scale:float"
        ),
        "SampleOp": "X",
        "ScaledSiLU": "X scale? | alpha:float",
        "SkipGroupNorm": "X gamma beta skip bias? | activation:int! channels_last:int epsilon:float groups:int!",
        "SkipLayerNormalization": "input skip gamma beta? bias? | epsilon:float",
        "SkipSimplifiedLayerNormalization": "input skip gamma bias? | epsilon:float",
        "SwiGLU": "gate up? | activation_alpha:float activation_beta:float limit:float round_activation:int",
        "Tokenizer": "X | mark:int! mincharnum:int! pad_value:string! separators:strings tokenexp:string",
        "TorchEmbedding": "weight indices padding_idx? scale_grad_by_freq?",
        "TransposeMatMul": "A B | alpha:float transA:int transB:int",
        "Trilu": "X k? | upper:int",
        "UnfoldTensor": "input | dim:int size:int! step:int",
        "Unique": "x",
    },
    "com.microsoft.nchwc": {
        "AveragePool": (
            "X | auto_pad:string ceil_mode:int count_include_pad:int dilations:ints kernel_shape:ints! pads:ints strides:ints"
        ),
        "Conv": (
            "X W B? Sum? | activation:string activation_params:floats auto_pad:string dilations:ints group:int "
            "kernel_shape:ints pads:ints strides:ints"
        ),
        "GlobalAveragePool": "X",
        "GlobalMaxPool": "X",
        "MaxPool": (
            "X | auto_pad:string ceil_mode:int dilations:ints kernel_shape:ints! pads:ints storage_order:int strides:ints"
        ),
        "ReorderInput": "X | channels_last:int",
        "ReorderOutput": "X | channels:int channels_last:int",
        "Upsample": "X | coordinate_transformation_mode:string mode:string scales:ints",
    },
}
"""Domain → operator → its operands, then its attributes with their types."""
_OPTIONS = {
    "?": OpSchema.FormalParameterOption.Optional,
    "*": OpSchema.FormalParameterOption.Variadic,
}


def signature(domain: str, op: str) -> OpSchema | None:
    """The description of an operator, or None if it is not one of these."""
    text = SIGNATURES.get(domain, {}).get(op)
    if text is None:
        return None
    operands, _, attributes = text.partition("|")
    return OpSchema(
        op,
        domain,
        1,
        inputs=[_operand(word) for word in operands.split()],
        attributes=[_attribute(word) for word in attributes.split()],
    )


def _operand(word: str) -> OpSchema.FormalParameter:
    single = OpSchema.FormalParameterOption.Single
    return OpSchema.FormalParameter(word.rstrip("?*"), "tensor(float)", param_option=_OPTIONS.get(word[-1], single))


def _attribute(word: str) -> OpSchema.Attribute:
    name, _, kind = word.rstrip("!").partition(":")
    return OpSchema.Attribute(name, getattr(OpSchema.AttrType, kind.upper()), required=word.endswith("!"))
