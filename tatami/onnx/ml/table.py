"""Every operator of `ai.onnx.ml`, with its handler and its text on the page (docs/onnx-ml.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tatami.onnx.importer import Importer
from tatami.onnx.ml import encoding, linear, maps, scaling, svm, trees
from tatami.onnx.node import OnnxNode
from tatami.onnx.values import Value

Import: TypeAlias = Callable[[Importer, OnnxNode], list[Value]]


@dataclass(frozen=True)
class Row:
    """One operator. `run`: its handler; `versions`: versions of the domain in which it changed; `how`, `limits`: texts of
    the page."""

    run: Import
    versions: str
    how: str
    limits: str = ""


TABLE: dict[str, Row] = {
    "ArrayFeatureExtractor": Row(encoding.feature_extractor, "1", "a gather along the last axis"),
    "Binarizer": Row(scaling.binarizer, "1", "a comparison"),
    "CastMap": Row(
        maps.cast_map, "1", "keys and values are two arrays", "not numbers to strings, nor strings by place (SPARSE)"
    ),
    "CategoryMapper": Row(encoding.category_mapper, "1", "a table by code or by number"),
    "DictVectorizer": Row(maps.dict_vectorizer, "1", "keys and values are two arrays", "the map is an input of the model"),
    "FeatureVectorizer": Row(scaling.feature_vectorizer, "1", "a concatenation"),
    "Imputer": Row(scaling.imputer, "1", "a choice"),
    "LabelEncoder": Row(encoding.label_encoder, "1, 2, 4", "a table by code or by number, or a comparison with every key"),
    "LinearClassifier": Row(linear.classifier, "1", "one product", "not PROBIT of one set of coefficients for two classes"),
    "LinearRegressor": Row(linear.regressor, "1", "one product"),
    "Normalizer": Row(scaling.normalizer, "1", "a reduction of each row"),
    "OneHotEncoder": Row(
        encoding.one_hot_encoder, "1", "a comparison", "an unknown category is zeros, also where `zeros` is 0"
    ),
    "SVMClassifier": Row(
        svm.classifier, "1", "kernels and a product; probabilities by a loop", "not PROBIT of the scores of one pair"
    ),
    "SVMRegressor": Row(svm.regressor, "1", "kernels and a product"),
    "Scaler": Row(scaling.scaler, "1", "arithmetic"),
    "TreeEnsemble": Row(trees.ensemble, "5", "one kernel of all trees"),
    "TreeEnsembleClassifier": Row(
        trees.classifier, "1, 3, 5", "one kernel of all trees", "not PROBIT of the weights of one class out of two"
    ),
    "TreeEnsembleRegressor": Row(trees.regressor, "1, 3, 5", "one kernel of all trees"),
    "ZipMap": Row(maps.zip_map, "1", "a matrix; the maps are made after the program", "its result is an output of the model"),
}
"""The row of each operator."""
ML: dict[str, Import] = {name: row.run for name, row in TABLE.items()}
"""Handlers of domain ai.onnx.ml."""


def page() -> str:
    """The table of docs/onnx-ml.md as Markdown text."""
    lines = ["| operator | versions | becomes | not taken, or otherwise |", "|---|---|---|---|"]
    lines += [f"| {name} | {row.versions} | {row.how} | {row.limits} |" for name, row in TABLE.items()]
    return "\n".join(lines) + "\n"
