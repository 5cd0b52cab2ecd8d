"""Every operator of ONNX Runtime's own domains, with its handler or the reason why it has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.activation import ACTIVATION
from tatami.onnx.microsoft.images.blocked import BLOCKED
from tatami.onnx.microsoft.images.channels_last import CHANNELS_LAST
from tatami.onnx.microsoft.images.convolution import CONVOLUTION
from tatami.onnx.microsoft.matmul import MATMUL
from tatami.onnx.microsoft.matrices import MATRICES
from tatami.onnx.microsoft.normalization import NORMALIZATION, simplified_layer_norm
from tatami.onnx.microsoft.plain import PLAIN as UNDER_OTHER_NAMES
from tatami.onnx.microsoft.quantization.block_quantized import BLOCK_QUANTIZED
from tatami.onnx.microsoft.quantization.quantized import QUANTIZED
from tatami.onnx.microsoft.quantization.quantized_products import QUANTIZED_PRODUCTS
from tatami.onnx.microsoft.ranks import with_ranks
from tatami.onnx.microsoft.spectrum import SPECTRUM
from tatami.onnx.microsoft.transformer.attention import ATTENTION
from tatami.onnx.microsoft.transformer.branches import BRANCHES
from tatami.onnx.microsoft.transformer.causal_conv import CAUSAL_CONV
from tatami.onnx.microsoft.transformer.decoder import DECODER
from tatami.onnx.microsoft.transformer.experts import EXPERTS
from tatami.onnx.microsoft.transformer.group_query import GROUP_QUERY
from tatami.onnx.microsoft.transformer.linear_attention import LINEAR_ATTENTION
from tatami.onnx.microsoft.transformer.packed_batch import PACKED_BATCH
from tatami.onnx.microsoft.transformer.relative_bias import RELATIVE_BIAS
from tatami.onnx.microsoft.transformer.rotary import ROTARY
from tatami.onnx.node import OnnxNode
from tatami.onnx.strings.operators import tokenizer
from tatami.onnx.values import Value

Handler: TypeAlias = Callable[[Importer, OnnxNode], list[Value]]

PLAIN: dict[str, Handler] = {"SimplifiedLayerNormalization": simplified_layer_norm}
"""Operators that ONNX Runtime writes in ONNX's own domain."""
_OPERATORS: dict[str, Handler] = {
    **ACTIVATION,
    **MATMUL,
    **NORMALIZATION,
    **CONVOLUTION,
    **QUANTIZED,
    **QUANTIZED_PRODUCTS,
    **BLOCK_QUANTIZED,
    **ATTENTION,
    **ROTARY,
    **GROUP_QUERY,
    **DECODER,
    **PACKED_BATCH,
    **RELATIVE_BIAS,
    **EXPERTS,
    **MATRICES,
    **SPECTRUM,
    **UNDER_OTHER_NAMES,
    **LINEAR_ATTENTION,
    **CAUSAL_CONV,
    **BRANCHES,
    "Tokenizer": tokenizer,
}
MICROSOFT: dict[str, Handler] = {op: with_ranks(op, handler) for op, handler in _OPERATORS.items()}
"""Handlers of domain com.microsoft, with checks of their operands' ranks."""
NCHWC: dict[str, Handler] = {**BLOCKED}
"""Handlers of domain com.microsoft.nchwc."""
NHWC: dict[str, Handler] = {**CHANNELS_LAST}
"""Handlers of domain com.ms.internal.nhwc."""
