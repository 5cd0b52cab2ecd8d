"""Rows of layers, signals, random numbers, sequences, control flow and text."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from tests.onnx.grid.row import Edge, Fixed, Made, Row, data, ints
from tests.onnx.grid.values import CODES, tensor

_ACTIVATIONS = (
    "Relu",
    "Tanh",
    "Sigmoid",
    "Affine",
    "LeakyRelu",
    "ThresholdedRelu",
    "ScaledTanh",
    "HardSigmoid",
    "Elu",
    "Softsign",
    "Softplus",
)
_PARAMETERS = {
    "Affine": (0.5, 0.1),
    "LeakyRelu": (0.2,),
    "ThresholdedRelu": (0.3,),
    "ScaledTanh": (0.9, 0.8),
    "HardSigmoid": (0.3, 0.4),
    "Elu": (0.7,),
}


def _with_parameters(names: list[str], directions: int) -> Edge:
    """Activations with parameters of their own: alphas for those that have one, then betas."""
    names = names * directions
    given = [_PARAMETERS.get(n, ()) for n in names]
    edge: dict[int | str, object] = {"activations": names}
    alphas, betas = [g[0] for g in given if g], [g[1] for g in given if len(g) > 1]
    if alphas:
        edge["activation_alpha"] = alphas
    if betas:
        edge["activation_beta"] = betas
    return edge


def _recurrent(gates: int, states: int, count: int, peepholes: bool, **more: tuple[int, ...]) -> tuple[Row, ...]:
    """Layers of 4 units over 5 steps of 3 rows of 2 features."""

    def operands(directions: int, batch_first: bool = False) -> dict[int | str, object]:
        state = data(3, directions, 4) if batch_first else data(directions, 3, 4)
        out: dict[int | str, object] = {
            0: data(3, 5, 2) if batch_first else data(5, 3, 2), 1: data(directions, gates * 4, 2), 2: data(directions, gates * 4, 4),
            3: data(directions, gates * 8), 4: ints("sequence_lens", 5, 2, 3, dtype="int32"), 5: state,
        }  # fmt: skip
        if states > 1:
            out[6] = state
        if peepholes:
            out[7] = data(directions, 12)
        return out

    base = operands(1)
    both = {"direction": "bidirectional", **operands(2)}
    activations: list[Edge] = [{"activations": [name] * count} for name in _ACTIVATIONS if name not in ("Affine", "ScaledTanh")]
    edges: tuple[Edge, ...] = (
        {"direction": "forward"},
        {"direction": "reverse"},
        both,
        {"clip": 0.3},
        {4: ints("sequence_lens", 1, 5, 4, dtype="int32"), "direction": "reverse"},
        {0: data(1, 1, 2), 4: None, 5: None, 6: None},
        *(_with_parameters([name] * count, 1) for name in _ACTIVATIONS),
        *activations,
        {**both, **_with_parameters((["Relu", "Affine", "ScaledTanh"])[:count], 2)},
    )
    whole: tuple[Edge, ...] = (
        {"layout": 1, **operands(1, batch_first=True), 4: None},
        {**both, "layout": 1, **operands(2, batch_first=True), 4: None},
    )
    given = [base[i] for i in sorted(base, key=str)]
    unequal = Row(tuple(given), {"hidden_size": 4}, dict(more), edges, outputs=states + 1, alone=True)  # type: ignore[arg-type]
    given[4] = None
    return unequal, Row(tuple(given), {"hidden_size": 4}, dict(more), whole, outputs=states + 1)  # type: ignore[arg-type]


def _attention() -> tuple[Row, ...]:
    q, k, v = data(2, 4, 3, 8), data(2, 4, 5, 8), data(2, 4, 5, 6)
    mask, boolean = data(3, 5), data(3, 5, dtype="bool")
    past = {4: data(2, 4, 2, 8), 5: data(2, 4, 2, 6)}
    edges: tuple[Edge, ...] = (
        {"is_causal": 1},
        {3: mask},
        {3: boolean},
        {3: mask, "is_causal": 1},
        {3: boolean, "is_causal": 1},
        {3: data(2, 1, 3, 5)},
        {"scale": 0.3},
        {"softcap": 1.5},
        {"softcap": 1.5, 3: mask},
        {1: data(2, 2, 5, 8), 2: data(2, 2, 5, 6)},
        {1: data(2, 1, 5, 8), 2: data(2, 1, 5, 6)},
        {0: data(2, 3, 32), 1: data(2, 5, 32), 2: data(2, 5, 24), "q_num_heads": 4, "kv_num_heads": 4},
        {0: data(2, 3, 32), 1: data(2, 5, 16), 2: data(2, 5, 12), "q_num_heads": 4, "kv_num_heads": 2},
        {"softmax_precision": CODES["float"]},
        {"softmax_precision": CODES["double"]},
        {0: data(2, 4, 1, 8), 1: data(2, 4, 1, 8), 2: data(2, 4, 1, 6)},
    )
    cached = Row((q, k, v, None, past[4], past[5]), {}, {}, ({3: data(3, 7)}, {"is_causal": 1}), outputs=3, drops=False)
    scores = Row((q, k, v, data(3, 7), past[4], past[5]), {"softcap": 1.5}, {}, ({"softcap": 0.0},), outputs=4, drops=False)
    short = Row((q, k, v, mask, past[4], past[5]), outputs=3, since=24, alone=True, drops=False)
    windows = Row((q, k, v), {}, {"left_window_size": (0, 1), "right_window_size": (0, 1)}, since=25)
    padded = Row((q, k, v, None, None, None, ints("nonpad_kv_seqlen", 3, 5)), {}, {"is_causal": (0, 1)}, since=24, drops=False)
    return Row((q, k, v), {}, {"qk_matmul_output_mode": ()}, edges), cached, scores, short, windows, padded


def _rotary() -> tuple[Row, ...]:
    ids = Fixed("position_ids", [[0, 1, 2], [2, 3, 4]])
    table = (data(6, 4, fill="unit"), data(6, 4, fill="unit"))
    edges: tuple[Edge, ...] = (
        {"rotary_embedding_dim": 4, 1: data(6, 2, fill="unit"), 2: data(6, 2, fill="unit")},
        {"rotary_embedding_dim": 4, "interleaved": 1, 1: data(6, 2, fill="unit"), 2: data(6, 2, fill="unit")},
        {0: data(2, 3, 32), "num_heads": 4},
        {1: data(2, 3, 4, fill="unit"), 2: data(2, 3, 4, fill="unit"), 3: None},
    )
    return (Row((data(2, 4, 3, 8), *table, ids), {}, {}, edges, drops=False),)


def _linear_attention() -> tuple[Row, ...]:
    def of(rule: str, t: int, decay: bool, beta: bool) -> Row:
        operands = (
            data(2, t, 8),
            data(2, t, 4, fill="unit"),
            data(2, t, 6),
            data(2, 2, 2, 3),
            data(2, t, 2, fill="unit") if decay else None,
            data(2, t, 2, fill="unit") if beta else None,
        )
        return Row(
            operands,
            {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": rule},
            {"scale": (0.5,), "chunk_size": (2,)},
            outputs=2,
            drops=False,
        )

    return tuple(
        of(rule, t, "gated" in rule, "delta" in rule) for rule in ("linear", "gated", "delta", "gated_delta") for t in (1, 5)
    )


_F = onnx.TensorProto.FLOAT


def _branch(name: str, value: float) -> onnx.GraphProto:
    node = helper.make_node("Constant", [], [name], value=tensor(np.array([value, 1.0], np.float32), ""))
    return helper.make_graph([node], name, [], [helper.make_tensor_value_info(name, _F, [2])])


def _loop_body() -> onnx.GraphProto:
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Add", ["state", "state"], ["next"]),
        helper.make_node("Identity", ["cond"], ["again"]),
        helper.make_node("Identity", ["next"], ["seen"]),
    ]
    return helper.make_graph(
        nodes,
        "body",
        [info("i", 7, []), info("cond", 9, []), info("state", _F, [2])],
        [info("again", 9, []), info("next", _F, [2]), info("seen", _F, [2])],
    )


def _scan_body() -> onnx.GraphProto:
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Add", ["state", "x"], ["next"]), helper.make_node("Identity", ["next"], ["seen"])]
    return helper.make_graph(
        nodes, "body", [info("state", _F, [2]), info("x", _F, [2])], [info("next", _F, [2]), info("seen", _F, [2])]
    )


def _map_body() -> onnx.GraphProto:
    info = helper.make_tensor_value_info
    node = helper.make_node("Add", ["item", "more"], ["sum"])
    return helper.make_graph([node], "body", [info("item", _F, None), info("more", _F, None)], [info("sum", _F, None)])


_THREE = Made("SequenceConstruct", (data(4, dtype="float"), data(2, dtype="float"), data(4, dtype="float")))


def _window() -> tuple[Row, ...]:
    return (
        Row(
            (Fixed("size", 6),),
            {},
            {"output_datatype": (CODES["float"], CODES["double"], CODES["float16"])},
            ({0: Fixed("size", 1)}, {0: Fixed("size", 2, "int32")}, {0: Fixed("size", 5)}),
        ),
    )


def _random_numbers(each: dict[str, tuple[float, ...]], like: bool) -> tuple[Row, ...]:
    shape = {} if like else {"shape": [3, 4]}
    return (
        Row(
            (data(3, 4),) if like else (),
            {"seed": 3.0, **shape},
            {**each, "dtype": (CODES["float"], CODES["double"], CODES["float16"])},
            random=True,
        ),
    )


_NGRAMS = {
    "max_skip_count": 1,
    "min_gram_length": 1,
    "max_gram_length": 2,
    "ngram_counts": [0, 2],
    "ngram_indexes": [0, 1, 2, 3],
    "pool_int64s": [2, 3, 5, 4, 2, 3],
}
_STRINGS = np.array(["alpha", "Beta", "gamma delta"], object)

MODELS: dict[str, tuple[Row, ...]] = {
    "RNN": _recurrent(1, 1, 1, False),
    "GRU": _recurrent(3, 1, 2, False, linear_before_reset=(0, 1)),
    "LSTM": _recurrent(4, 2, 3, True, input_forget=(0, 1)),
    "Attention": _attention(),
    "RotaryEmbedding": _rotary(),
    "LinearAttention": _linear_attention(),
    "DFT": (
        Row(
            (data(2, 6, 1), Fixed("dft_length", 6)),
            {"axis": 1},
            {},
            (
                {"onesided": 1},
                {"inverse": 1},
                {1: Fixed("dft_length", 4)},
                {1: Fixed("dft_length", 9)},
                {0: data(2, 6, 2)},
                {0: data(2, 6, 2), "inverse": 1},
            ),
            since=17,
            until=17,
        ),
        Row(
            (data(2, 6, 1), Fixed("dft_length", 6), Fixed("axis", 1)),
            {},
            {},
            (
                {"onesided": 1},
                {"inverse": 1},
                {1: Fixed("dft_length", 4)},
                {1: Fixed("dft_length", 9), "onesided": 1},
                {0: data(2, 6, 2)},
                {0: data(2, 6, 2), "inverse": 1},
                {0: data(2, 4, 2), "inverse": 1, "onesided": 1},
                {0: data(2, 1, 1), 1: Fixed("dft_length", 1)},
                {2: Fixed("axis", -2)},
            ),
            since=20,
        ),
    ),
    "STFT": (
        Row(
            (data(2, 12, 1), Fixed("frame_step", 3), data(6, fill="positive"), Fixed("frame_length", 6)),
            {},
            {},
            ({0: data(2, 12, 2), "onesided": 0}, {2: None}, {3: None}, {0: data(2, 6, 1)}),
            drops=False,
        ),
    ),
    "BlackmanWindow": _window(),
    "HammingWindow": _window(),
    "HannWindow": _window(),
    "MelWeightMatrix": (
        Row(
            (
                Fixed("num_mel_bins", 8),
                Fixed("dft_length", 16),
                Fixed("sample_rate", 8192),
                Fixed("lower_edge_hertz", 0.0, "float"),
                Fixed("upper_edge_hertz", 4096.0, "float"),
            ),
            {},
            {"output_datatype": (CODES["float"], CODES["double"], CODES["float16"])},
        ),
    ),
    "RandomNormal": _random_numbers({"mean": (2.0,), "scale": (0.5,)}, False),
    "RandomNormalLike": _random_numbers({"mean": (2.0,), "scale": (0.5,)}, True),
    "RandomUniform": _random_numbers({"low": (-1.0,), "high": (2.0,)}, False),
    "RandomUniformLike": _random_numbers({"low": (-1.0,), "high": (2.0,)}, True),
    "Bernoulli": (
        Row(
            (Fixed("input", [[0.0, 1.0], [1.0, 0.0]], "float"),),
            {"seed": 3.0},
            {"dtype": (CODES["float"], CODES["bool"], CODES["int32"])},
        ),
    ),
    "Multinomial": (
        Row(
            (Fixed("input", [[0.0, -1e9], [-1e9, 0.0]], "float"),),
            {"seed": 3.0, "sample_size": 4},
            {"dtype": (CODES["int32"], CODES["int64"])},
        ),
    ),
    "SequenceConstruct": (Row((data(2, 3), data(2, 3))), Row((data(2, 3),))),
    "SequenceAt": (Row((_THREE, Fixed("position", 0))), Row((_THREE, Fixed("position", -1, "int32")))),
    "SequenceErase": (Row((_THREE, Fixed("position", 1)), edges=({1: Fixed("position", -1)},)),),
    "SequenceInsert": (
        Row(
            (_THREE, data(4, dtype="float"), Fixed("position", 1)),
            edges=({2: Fixed("position", -3)}, {2: Fixed("position", 3)}),
        ),
    ),
    "SequenceLength": (Row((_THREE,)),),
    "SequenceMap": (Row((_THREE, data(1, dtype="float")), {"body": _map_body()}),),
    "SplitToSequence": (
        Row(
            (data(2, 6), Fixed("split", 2)),
            {"axis": 1},
            {},
            (
                {1: ints("split", 1, 5)},
                {1: Fixed("split", 4)},
                {"axis": -2, 1: Fixed("split", 1)},
                {1: None, "keepdims": 0},
                {1: None, "keepdims": 1},
            ),
        ),
    ),
    "ConcatFromSequence": (
        Row(
            (Made("SequenceConstruct", (data(2, 3, dtype="float"), data(2, 3, dtype="float"))),),
            {"axis": 1},
            {"axis": (0, -1)},
            ({"new_axis": 1, "axis": 0}, {"new_axis": 1, "axis": -1}),
        ),
    ),
    "Optional": (Row((data(2, 3, dtype="float"),), drops=False),),
    "OptionalGetElement": (Row((Made("Optional", (data(2, 3, dtype="float"),)),)), Row((data(2, 3, dtype="float"),), since=18)),
    "OptionalHasElement": (
        Row((Made("Optional", (data(2, 3, dtype="float"),)),)),
        Row((data(2, 3, dtype="float"),), since=18, drops=False),
        Row((None,), since=18),
    ),
    "SequenceEmpty": (Row((), {}, {"dtype": (CODES["float"], CODES["int64"])}),),
    "If": (
        Row(
            (data(dtype="bool"),),
            {"then_branch": _branch("yes", 5.0), "else_branch": _branch("no", 7.0)},
            edges=({0: Fixed("cond", True, "bool")}, {0: Fixed("cond", [False], "bool")}),
        ),
    ),
    "Loop": (
        Row(
            (Fixed("M", 3), Fixed("cond", True, "bool"), data(2, dtype="float")),
            {"body": _loop_body()},
            {},
            ({0: Fixed("M", 0)}, {1: Fixed("cond", False, "bool")}, {0: Fixed("M", 3), 1: None}),
            outputs=2,
            drops=False,
        ),
    ),
    "Scan": (
        Row(
            (data(2, dtype="float"), data(4, 2, dtype="float")),
            {"body": _scan_body(), "num_scan_inputs": 1},
            {},
            (
                {"scan_input_directions": [1]},
                {"scan_output_directions": [1]},
                {1: data(2, 4, dtype="float"), "scan_input_axes": [1]},
                {"scan_output_axes": [1]},
                {1: data(1, 2, dtype="float")},
            ),
            outputs=2,
            since=9,
        ),
    ),
    "TfIdfVectorizer": (
        Row(
            (Fixed("X", [1, 1, 3, 3, 3, 7, 2, 3, 5, 4], "int64"),),
            {**_NGRAMS, "mode": "TF"},
            {"max_skip_count": (0, 3), "min_gram_length": (2,)},
            (
                {"mode": "IDF", "weights": [0.5, 1.0, 2.0, 3.0]},
                {"mode": "TFIDF", "weights": [0.5, 1.0, 2.0, 3.0]},
                {0: data(2, 5, fill="below 6", dtype="int32")},
                {0: data(5, fill="below 6", dtype="int64")},
            ),
        ),
    ),
    "ImageDecoder": (Row((data(8, dtype="uint8", fill="below 200"),), {}, {"pixel_format": ("RGB", "BGR", "Grayscale")}),),
    "RegexFullMatch": (Row((Fixed("X", _STRINGS, "string"),), {"pattern": "[a-z]+"}),),
    "StringConcat": (Row((Fixed("X", _STRINGS, "string"), Fixed("Y", _STRINGS, "string"))),),
    "StringNormalizer": (
        Row(
            (Fixed("X", _STRINGS, "string"),),
            {},
            {
                "case_change_action": ("NONE", "LOWER", "UPPER"),
                "is_case_sensitive": (0, 1),
                "stopwords": (["alpha"],),
                "locale": ("C",),
            },
        ),
    ),
    "StringSplit": (Row((Fixed("X", _STRINGS, "string"),), {"delimiter": " "}, {"maxsplit": (1,)}, outputs=2),),
}
