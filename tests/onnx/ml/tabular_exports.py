"""Exports of scikit-learn, LightGBM and XGBoost against ONNX Runtime and the packages' own `predict`.

    python -m tests.onnx.ml.tabular_exports [name …]        prints a line for each model

It needs scikit-learn, skl2onnx, lightgbm, xgboost and onnxmltools; what is not installed is listed as skipped.
"""

from __future__ import annotations

import importlib.util
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tatami.backends.onnx_api import OnnxBackend
from tatami.core.diagnostic import TatamiError
from tests.onnx.ml.both import runtime, same

Make = Callable[[], tuple[Any, dict[str, Any], Any]]
"""The model as ONNX, its inputs, and what the package predicts (None where there is nothing to compare)."""


@dataclass(frozen=True)
class Result:
    name: str
    outcome: str
    """right, skipped, or what is wrong."""
    seconds: float = 0.0


def has(*packages: str) -> bool:
    return all(importlib.util.find_spec(p) is not None for p in packages)


def numbers(kind: str) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import make_classification, make_regression

    if kind == "regression":
        x, y = make_regression(200, 6, n_informative=4, noise=2, random_state=0)
    else:
        x, y = make_classification(300, 6, n_informative=5, n_redundant=0, n_classes=2 if kind == "two" else 3, random_state=0)
    x = x.astype(np.float32)
    if kind == "missing":
        x[::5, 2] = np.nan
    return x, y


def scikit(estimator: Any, kind: str = "three", *, y: Any = None, options: Any = None, x: Any = None) -> Make:
    def make() -> tuple[Any, dict[str, Any], Any]:
        from skl2onnx import to_onnx

        data, target = numbers(kind)
        data = data if x is None else x(data)
        fitted = estimator.fit(data, target if y is None else y(target))
        proto = to_onnx(fitted, data[:1], target_opset={"": 18, "ai.onnx.ml": 3}, options=options)
        rows = data[:25]
        guess = getattr(fitted, "predict", getattr(fitted, "transform", None))
        return proto, {proto.graph.input[0].name: rows}, None if guess is None else guess(rows)

    return make


def table_of_columns(estimator: Any, words: tuple[str, ...], numeric: tuple[str, ...]) -> Make:
    """A pipeline over columns of words and numbers, each an input of its own."""

    def make() -> tuple[Any, dict[str, Any], Any]:
        import pandas
        from skl2onnx import to_onnx
        from skl2onnx.common.data_types import FloatTensorType, StringTensorType

        x, y = numbers("two")
        choices = np.array(["red", "green", "blue", "", "é"], object)
        frame = pandas.DataFrame(
            {c: choices[(np.abs(x[:, i]) * 2).astype(int) % 5] for i, c in enumerate(words)}
            | {c: x[:, 3 + i] for i, c in enumerate(numeric)}
        )
        fitted = estimator.fit(frame, y)
        types = [(c, StringTensorType([None, 1])) for c in words] + [(c, FloatTensorType([None, 1])) for c in numeric]
        proto = to_onnx(fitted, initial_types=types, target_opset=18)
        rows = frame[:25]
        feed = {c: rows[[c]].to_numpy(object if c in words else np.float32) for c in (*words, *numeric)}
        feed[words[0]] = feed[words[0]].copy()
        return proto, feed, fitted.predict(rows)

    return make


def texts(estimator: Any) -> Make:
    def make() -> tuple[Any, dict[str, Any], Any]:
        from skl2onnx import to_onnx
        from skl2onnx.common.data_types import StringTensorType

        lines = np.array(["the red house", "A blue house", "red red rose", "no house at all", "the rose is blue", "a red rose"])
        fitted = estimator.fit(lines, np.array([0, 1, 0, 1, 1, 0]))
        proto = to_onnx(fitted, initial_types=[("x", StringTensorType([None]))], target_opset=18)
        for made in proto.graph.node:
            if made.op_type == "StringNormalizer":  # ONNX Runtime stops where the locale, en_US by default, is not installed
                kept = [a for a in made.attribute if a.name != "locale"]
                del made.attribute[:]
                made.attribute.extend([*kept, onnx.helper.make_attribute("locale", "C")])
        return proto, {"x": np.array(["the Red rose", "something else", "blue blue house"], object)}, None

    return make


def boosted(package: str, estimator: Callable[[Any], Any], kind: str) -> Make:
    def make() -> tuple[Any, dict[str, Any], Any]:
        import onnxmltools
        from onnxmltools.convert.common.data_types import FloatTensorType

        data, target = numbers(kind)
        fitted = estimator(importlib.import_module(package)).fit(data, target)
        types = [("x", FloatTensorType([None, data.shape[1]]))]
        proto = getattr(onnxmltools, f"convert_{package}")(fitted, initial_types=types, target_opset=15)
        return proto, {"x": data[:25]}, fitted.predict(data[:25])

    return make


def cases() -> Iterator[tuple[str, Make]]:
    if has("sklearn", "skl2onnx"):
        yield from scikit_cases()
    if has("lightgbm", "onnxmltools"):
        for name, make, kind in (
            ("LGBMRegressor", lambda p: p.LGBMRegressor(n_estimators=20, verbose=-1), "regression"),
            ("LGBMRegressor, missing values", lambda p: p.LGBMRegressor(n_estimators=20, verbose=-1), "missing"),
            ("LGBMClassifier of two", lambda p: p.LGBMClassifier(n_estimators=10, verbose=-1), "two"),
            ("LGBMClassifier of three", lambda p: p.LGBMClassifier(n_estimators=10, verbose=-1), "three"),
        ):
            yield name, boosted("lightgbm", make, kind)
    if has("xgboost", "onnxmltools"):
        for name, make, kind in (
            ("XGBRegressor", lambda p: p.XGBRegressor(n_estimators=20), "regression"),
            ("XGBRegressor, missing values", lambda p: p.XGBRegressor(n_estimators=20), "missing"),
            ("XGBClassifier of two", lambda p: p.XGBClassifier(n_estimators=10), "two"),
            ("XGBClassifier of three", lambda p: p.XGBClassifier(n_estimators=10), "three"),
        ):
            yield name, boosted("xgboost", make, kind)


def scikit_cases() -> Iterator[tuple[str, Make]]:
    from sklearn import (
        cluster,
        compose,
        decomposition,
        ensemble,
        feature_extraction,
        gaussian_process,
        impute,
        linear_model,
        naive_bayes,
        neighbors,
        neural_network,
        pipeline,
        preprocessing,
        svm,
        tree,
    )
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis

    named = lambda y: np.array(["low", "mid", "high"], object)[y]  # noqa: E731
    classifiers = (
        linear_model.LogisticRegression(), linear_model.SGDClassifier(loss="log_loss"), linear_model.RidgeClassifier(),
        linear_model.Perceptron(), tree.DecisionTreeClassifier(max_depth=6), ensemble.RandomForestClassifier(10),
        ensemble.ExtraTreesClassifier(10), ensemble.GradientBoostingClassifier(n_estimators=5), ensemble.AdaBoostClassifier(n_estimators=5),
        ensemble.HistGradientBoostingClassifier(max_iter=5), ensemble.BaggingClassifier(n_estimators=4),
        svm.SVC(), svm.NuSVC(), svm.LinearSVC(), neighbors.KNeighborsClassifier(3), naive_bayes.GaussianNB(),
        naive_bayes.BernoulliNB(), neural_network.MLPClassifier((8,), max_iter=50), LinearDiscriminantAnalysis(),
        QuadraticDiscriminantAnalysis(),
        ensemble.VotingClassifier([("a", linear_model.LogisticRegression()), ("b", tree.DecisionTreeClassifier(max_depth=3))], voting="soft", flatten_transform=False),
    )  # fmt: skip
    for c in classifiers:
        name = type(c).__name__
        yield name, scikit(c, options=None if name in ("LinearSVC", "RidgeClassifier") else {"zipmap": False})
    for c in (
        linear_model.LogisticRegression(),
        ensemble.RandomForestClassifier(10),
        ensemble.GradientBoostingClassifier(n_estimators=5),
        svm.SVC(),
    ):
        yield f"{type(c).__name__} of two", scikit(c, "two")
        yield f"{type(c).__name__} of words", scikit(c, y=named)
    for r in (
        linear_model.LinearRegression(), linear_model.Ridge(), linear_model.Lasso(), linear_model.ElasticNet(), linear_model.HuberRegressor(),
        tree.DecisionTreeRegressor(max_depth=6), ensemble.RandomForestRegressor(10), ensemble.ExtraTreesRegressor(10),
        ensemble.GradientBoostingRegressor(n_estimators=5), svm.SVR(), svm.NuSVR(), svm.LinearSVR(), neighbors.KNeighborsRegressor(3),
        neural_network.MLPRegressor(hidden_layer_sizes=(8,), max_iter=50), cluster.KMeans(3, n_init=1), ensemble.IsolationForest(n_estimators=10),
        svm.OneClassSVM(),
    ):  # fmt: skip
        yield type(r).__name__, scikit(r, "regression")
    for kernel in (None, gaussian_process.kernels.RBF(), gaussian_process.kernels.DotProduct()):
        fitted = gaussian_process.GaussianProcessRegressor(kernel, alpha=1.0, optimizer=None)
        yield f"GaussianProcessRegressor, {type(kernel).__name__}", scikit(fitted, "regression")
    near = neighbors.KNeighborsClassifier(3)
    yield "KNeighborsClassifier by CDist", scikit(near, options={"zipmap": False, "optim": "cdist"})
    yield "HistGradientBoostingRegressor", scikit(ensemble.HistGradientBoostingRegressor(max_iter=5), "missing")
    small = lambda x: (np.abs(x[:, :3]) * 2).astype(np.int64) % 4  # noqa: E731
    for t in (
        preprocessing.StandardScaler(), preprocessing.MinMaxScaler(), preprocessing.RobustScaler(), preprocessing.MaxAbsScaler(),
        preprocessing.Normalizer("l1"), preprocessing.Binarizer(), preprocessing.PolynomialFeatures(2), preprocessing.PowerTransformer(),
        preprocessing.KBinsDiscretizer(4, encode="ordinal"), decomposition.PCA(3), decomposition.TruncatedSVD(3),
    ):  # fmt: skip
        yield type(t).__name__, scikit(t, "regression")
    yield "SimpleImputer", scikit(impute.SimpleImputer(), "missing")
    yield "OneHotEncoder of integers", scikit(preprocessing.OneHotEncoder(sparse_output=False), x=small)
    yield "OrdinalEncoder of integers", scikit(preprocessing.OrdinalEncoder(), x=small)
    yield (
        "imputer, scaler, PCA, ridge",
        scikit(
            pipeline.make_pipeline(
                impute.SimpleImputer(), preprocessing.StandardScaler(), decomposition.PCA(2), linear_model.Ridge()
            ),
            "missing",
        ),
    )
    words, numeric = ("colour", "shape"), ("a", "b")
    for name, encoder in (
        ("one hot", preprocessing.OneHotEncoder(handle_unknown="ignore")),
        ("ordinal", preprocessing.OrdinalEncoder()),
    ):
        for end in (linear_model.LogisticRegression(), ensemble.RandomForestClassifier(5)):
            columns = compose.ColumnTransformer(
                [("w", encoder, list(words)), ("n", preprocessing.StandardScaler(), list(numeric))]
            )
            yield (
                f"columns, {name}, {type(end).__name__}",
                table_of_columns(pipeline.Pipeline([("columns", columns), ("end", end)]), words, numeric),
            )
    text = feature_extraction.text
    for v in (text.CountVectorizer(), text.TfidfVectorizer(ngram_range=(1, 2))):
        yield type(v).__name__, texts(v)
        yield f"{type(v).__name__}, LogisticRegression", texts(pipeline.make_pipeline(v, linear_model.LogisticRegression()))


def outcome(make: Make) -> Result:
    """How one model does. A package that cannot export its own model is not a fault of ours: skipped, with its words."""
    try:
        proto, feed, predicted = make()
    except Exception as error:  # the exporters raise what they like
        return Result("", f"skipped: the export failed, {type(error).__name__}: {str(error)[:100]}")
    try:
        want = runtime(proto, feed)
    except Exception as error:
        return Result("", f"skipped: ONNX Runtime failed, {str(error)[:100]}")
    begin = time.perf_counter()
    try:
        got = OnnxBackend.prepare(proto, threads=1).run(feed)
    except TatamiError as error:
        return Result("", "refused: " + str(error).replace("\n", " ")[:300])
    seconds = time.perf_counter() - begin
    try:
        for g, w in zip(got, want, strict=True):
            same(g, w, 1e-3, 1e-4)
        if predicted is not None and np.asarray(predicted).dtype.kind in "OUSi":
            label = np.asarray(got[0]).reshape(np.shape(predicted))
            assert (label == predicted).mean() >= (np.asarray(want[0]).reshape(np.shape(predicted)) == predicted).mean()
    except AssertionError as error:
        return Result("", "wrong: " + " ".join(str(error).split())[:300])
    return Result("", "right", seconds)


def main() -> int:
    warnings.filterwarnings("ignore")
    wanted = sys.argv[1:]
    found: list[str] = []
    for name, make in cases():
        if not wanted or any(w in name for w in wanted):
            result = outcome(make)
            found.append(result.outcome.split(":")[0])
            print(f"{name:45} {result.outcome}" + (f" ({result.seconds:.1f} s)" if result.seconds else ""), flush=True)
    print(", ".join(f"{found.count(k)} {k}" for k in ("right", "wrong", "refused", "skipped")))
    return 0 if set(found) <= {"right", "skipped"} else 1


if __name__ == "__main__":
    sys.exit(main())
