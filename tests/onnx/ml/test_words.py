"""Strings are codes of words: they move, are compared, looked into and come out again as ONNX Runtime gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tatami.backends.onnx_api import OnnxBackend  # noqa: E402
from tatami.core.diagnostic import TatamiError  # noqa: E402
from tests.onnx.ml import both  # noqa: E402
from tests.onnx.ml.both import compare, model, node  # noqa: E402

A = np.array([["red", "é", ""], ["blue", "red", "new word"]], object)
B = np.array([["green", "red", "x"], ["blue", "", "y"]], object)


def plain(op: str, inputs: list[str], outputs: list[str], **attrs: Any) -> Any:
    return onnx.helper.make_node(op, inputs, outputs, **attrs)


MOVES: dict[str, tuple[Any, dict[str, Any]]] = {
    "identity": (plain("Identity", ["a"], ["y"]), {}),
    "concat": (plain("Concat", ["a", "b"], ["y"], axis=1), {}),
    "concat with a constant": (plain("Concat", ["a", "k"], ["y"], axis=0), {"k": np.array([["one", "red", "two"]], object)}),
    "reshape": (plain("Reshape", ["a", "k"], ["y"]), {"k": np.array([-1, 1])}),
    "gather": (plain("Gather", ["a", "k"], ["y"], axis=1), {"k": np.array([2, 0])}),
    "transpose": (plain("Transpose", ["a"], ["y"]), {}),
    "slice": (plain("Slice", ["a", "k", "l"], ["y"]), {"k": np.array([0, 1]), "l": np.array([2, 3])}),
    "expand": (plain("Expand", ["a", "k"], ["y"]), {"k": np.array([2, 1, 1])}),
    "tile": (plain("Tile", ["a", "k"], ["y"]), {"k": np.array([2, 1])}),
    "where": (plain("Where", ["k", "a", "b"], ["y"]), {"k": np.array([[True, False, True]])}),
    "where by a constant": (
        plain("Where", ["k", "a", "l"], ["y"]),
        {"k": np.array([[True], [False]]), "l": np.array("none", object)},
    ),
    "unsqueeze": (plain("Unsqueeze", ["a", "k"], ["y"]), {"k": np.array([0])}),
    "flatten": (plain("Flatten", ["a"], ["y"], axis=0), {}),
}


@pytest.mark.parametrize("name", MOVES)
def test_words_move(name: str) -> None:
    made, constants = MOVES[name]
    inputs = {k: v for k, v in (("a", A), ("b", B)) if k in made.input}
    again = {k: v[::-1] for k, v in inputs.items()}
    compare(model([made], inputs, {"y": both.STRING}, opset=16, constants=constants), inputs, again)


@pytest.mark.parametrize("constant", [False, True])
def test_equal_words(constant: bool) -> None:
    made = plain("Equal", ["a", "b"], ["y"])
    constants = {"b": np.array(["red", "", "new word"], object)} if constant else {}
    inputs = {"a": A} if constant else {"a": A, "b": B}
    compare(model([made], inputs, {"y": onnx.TensorProto.BOOL}, opset=19, constants=constants), inputs)


@pytest.mark.parametrize("to", ["FLOAT", "DOUBLE", "INT64", "INT32"])
def test_words_that_spell_numbers(to: str) -> None:
    words = ["3", "-7", "0", "12"] if to.startswith("INT") else ["3", "-7.25", "1e-3", "12", "inf", "NaN"]
    feed = {"a": np.array(words, object)}
    made = plain("Cast", ["a"], ["y"], to=getattr(onnx.TensorProto, to))
    compare(model([made], feed, {"y": getattr(onnx.TensorProto, to)}), feed)


def test_a_word_that_spells_no_number_is_told() -> None:
    prepared = OnnxBackend.prepare(model([plain("Cast", ["a"], ["y"], to=both.FLOAT)], {"a": A[0]}, {"y": both.FLOAT}))
    with pytest.raises(TatamiError, match="'red' is not a number"):
        prepared.run({"a": A[0]})


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
def test_numbers_are_printed(dtype: Any) -> None:
    x = np.array([0, -0.0, 1, -2.5, 1 / 3, 1e10, 123456789, 1e-5, np.nan, np.inf, -np.inf])
    x = x.astype(dtype) if np.dtype(dtype).kind == "f" else np.array([0, -5, 123456789], dtype)
    nodes = [plain("Add", ["x", "x"], ["t"]), plain("Cast", ["t"], ["w"], to=both.STRING), plain("Reshape", ["w", "k"], ["y"])]
    compare(model(nodes, {"x": x}, {"y": both.STRING}, constants={"k": np.array([-1, 1])}), {"x": x})


STOPS = ["red", "ONE", "blue"]


@pytest.mark.parametrize("change", ["NONE", "LOWER", "UPPER"])
@pytest.mark.parametrize("sensitive", [0, 1])
@pytest.mark.parametrize("stops", [[], STOPS])
def test_string_normalizer(change: str, sensitive: int, stops: list[str]) -> None:
    made = both.node(
        "StringNormalizer",
        ["a"],
        ["y"],
        "",
        case_change_action=change,
        is_case_sensitive=sensitive,
        stopwords=stops,
        locale="C",
    )
    feeds = [{"a": np.array(w, object)} for w in (["Red", "red", "one", "Two"], ["x"], ["blue", "red"])]
    compare(model([made], feeds[0], {"y": both.STRING}), *feeds)


def test_string_normalizer_of_a_row() -> None:
    made = both.node(
        "StringNormalizer", ["a"], ["y"], "", case_change_action="UPPER", stopwords=["red"], is_case_sensitive=1, locale="C"
    )
    feeds = [{"a": np.array([w], object)} for w in (["Red", "red", "one"], ["red"])]
    y = onnx.helper.make_tensor_value_info("y", both.STRING, [1, "kept"])
    proto = model([plain("Identity", ["a"], ["y"])], feeds[0], {"y": y})
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    proto.graph.node[0].CopyFrom(made)
    compare(proto, *feeds)


@pytest.mark.parametrize("delimiter", [None, "", "-", "ab"])
@pytest.mark.parametrize("most", [None, 1])
def test_string_split(delimiter: str | None, most: int | None) -> None:
    made = both.node("StringSplit", ["a"], ["y", "n"], "", delimiter=delimiter, maxsplit=most)
    feeds = [{"a": np.array(w, object)} for w in (["a b  c", "x-y-z ab ", "", "one"], ["p ab q-"], ["q"])]
    compare(model([made], feeds[0], {"y": both.STRING, "n": both.INT64}, opset=20), *feeds)


@pytest.mark.parametrize("constant", [None, "a", "b"])
def test_string_concat(constant: str | None) -> None:
    inputs = {k: v for k, v in (("a", A), ("b", B)) if k != constant}
    constants = {} if constant is None else {constant: np.array("<>", object)}
    proto = model([plain("StringConcat", ["a", "b"], ["y"])], inputs, {"y": both.STRING}, opset=20, constants=constants)
    for axis in (0, 1):
        for p in proto.graph.input:
            p.type.tensor_type.shape.dim[axis].dim_param = f"d{axis}"
    compare(proto, inputs)


def test_regex_full_match() -> None:
    made = plain("RegexFullMatch", ["a"], ["y"], pattern=r"[a-z]+ ?w?.*d")
    compare(model([made], {"a": A}, {"y": onnx.TensorProto.BOOL}, opset=20), {"a": A}, {"a": B})


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
def test_counts_of_n_grams_of_words(mode: str) -> None:
    made = plain(
        "TfIdfVectorizer", ["a"], ["y"], mode=mode, min_gram_length=1, max_gram_length=2, max_skip_count=1, ngram_counts=[0, 3],
        ngram_indexes=[0, 2, 1, 3, 4], pool_strings=["red", "blue", "é", "red", "é", "blue", "red"], weights=[1.0, 2.0, 0.5, 3.0, 4.0],
    )  # fmt: skip
    compare(model([made], {"a": A}, {"y": both.FLOAT}), {"a": A}, {"a": B})


@pytest.mark.parametrize("mark", [0, 1])
@pytest.mark.parametrize("how", [{"separators": [" ", "-"]}, {"separators": [""]}, {"tokenexp": "[a-z]+"}], ids=str)
@pytest.mark.parametrize("rank", [1, 2])
def test_tokenizer(mark: int, how: dict[str, Any], rank: int) -> None:
    made = both.node("Tokenizer", ["a"], ["y"], "com.microsoft", mark=mark, pad_value="#", mincharnum=1, **how)
    texts = [np.array(w, object) for w in (["ab cd-e", "x", "one two  three"], ["abc"])]
    feeds = [{"a": t if rank == 1 else t[:, None]} for t in texts]
    y = onnx.helper.make_tensor_value_info("y", both.STRING, ["p", "q", "r"][: rank + 1])
    compare(model([made], feeds[0], {"y": y}), *feeds)


def test_case_then_counts() -> None:
    """A text vectorizer of scikit-learn: lower case, tokens, counts."""
    nodes = [
        both.node("StringNormalizer", ["a"], ["l"], "", case_change_action="LOWER", locale="C"),
        both.node("Tokenizer", ["l"], ["t"], "com.microsoft", mark=0, pad_value="#", mincharnum=1, separators=[" "]),
        plain("TfIdfVectorizer", ["t"], ["y"], mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0, ngram_counts=[0],
              ngram_indexes=[0, 1, 2], pool_strings=["red", "is", "not"]),
    ]  # fmt: skip
    feeds = [{"a": np.array(w, object)} for w in (["Red is red", "blue Is NOT red"], ["nothing"])]
    compare(model(nodes, feeds[0], {"y": both.FLOAT}), *feeds)


def test_what_cannot_be_done_with_words_is_told() -> None:
    for made, kind in ((plain("Neg", ["a"], ["y"]), both.FLOAT), (plain("ReduceMax", ["a"], ["y"]), both.FLOAT)):
        proto = model([plain("Identity", ["a"], ["b"])], {"a": A}, {"b": both.STRING})
        made.input[0] = "b"
        proto.graph.node.append(made)
        proto.graph.output.append(onnx.helper.make_tensor_value_info("y", kind, ["p", "q"]))
        with pytest.raises(TatamiError, match=r"strings|InvalidDocument"):
            OnnxBackend.prepare(proto)


def test_words_in_a_branch_that_data_choose_are_refused() -> None:
    branches = [
        onnx.helper.make_graph(
            [plain("Identity", ["a"], [t])], t, [], [onnx.helper.make_tensor_value_info(t, both.STRING, None)]
        )
        for t in ("t", "u")
    ]
    nodes = [
        plain("ReduceSum", ["x"], ["s"], keepdims=0),
        plain("Greater", ["s", "k"], ["c"]),
        plain("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    feed = {"a": A, "x": np.zeros((3, 100), np.float32)}
    y = onnx.helper.make_tensor_value_info("y", both.STRING, ["p", "q"])
    proto = model(nodes, feed, {"y": y}, constants={"k": np.float32(1)})
    with pytest.raises(TatamiError, match="branch"):
        OnnxBackend.prepare(proto).run(feed)


def test_numbers_for_an_input_of_words_are_refused() -> None:
    prepared = OnnxBackend.prepare(model([plain("Identity", ["a"], ["y"])], {"a": A}, {"y": both.STRING}))
    for wrong in (np.zeros((2, 3)), np.array([[1, "a", None]], object)):
        with pytest.raises(TatamiError, match="InputMismatch"):
            prepared.run({"a": wrong})


def test_the_words_of_one_call_are_not_kept() -> None:
    prepared = OnnxBackend.prepare(model([plain("Identity", ["a"], ["y"])], {"a": A}, {"y": both.STRING}))
    for i in range(3):
        words = np.array([[f"call {i}", "x"]], object)
        assert prepared.run({"a": words})[0].tolist() == words.tolist()
    (program,) = prepared.programs.values()
    imported: Any = program.imported
    assert not imported.vocabulary


def test_labels_out_of_words_in() -> None:
    made = node("LabelEncoder", ["a"], ["y"], keys_strings=["red", "blue"], values_strings=["rot", "blau"], default_string="?")
    compare(model([made], {"a": A}, {"y": both.STRING}, ml=2), {"a": A}, {"a": B})
