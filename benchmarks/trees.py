"""Ensembles of trees against ONNX Runtime, one thread each, in turns: `python -m benchmarks.trees [--folder DIR]`.

LightGBM (100 and 500 trees of 31 leaves) and scikit-learn's random forests of 100 deep trees on 10000 rows of 30 features. Needs
lightgbm, scikit-learn, onnxmltools and skl2onnx; the exports are kept in the folder. A figure is the least of the calls' times
on the processor; single rows change from call to call, since a branch predictor learns one row by heart.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import tatami as tt

ROWS, FEATURES = 10000, 30
COUNTS = (1, 64, ROWS)


def rows() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import make_regression

    x, y = make_regression(ROWS, FEATURES, noise=5, random_state=0)
    return x.astype(np.float32), y


def boosted(trees: int) -> Any:
    import lightgbm
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    fitted = lightgbm.LGBMRegressor(n_estimators=trees, verbose=-1).fit(*rows())
    return onnxmltools.convert_lightgbm(fitted, initial_types=[("x", FloatTensorType([None, FEATURES]))], target_opset=15)


def forest(is_classifier: bool) -> Any:
    from skl2onnx import to_onnx
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    x, y = rows()
    if not is_classifier:
        return to_onnx(RandomForestRegressor(100, random_state=0).fit(x, y), x[:1], target_opset=18)
    four = np.digitize(y, np.quantile(y, [0.25, 0.5, 0.75]))
    fitted = RandomForestClassifier(100, random_state=0).fit(x, four)
    return to_onnx(fitted, x[:1], target_opset=18, options={"zipmap": False})


MODELS: dict[str, Callable[[], Any]] = {
    "LightGBM, 100 trees": lambda: boosted(100),
    "LightGBM, 500 trees": lambda: boosted(500),
    "random forest, 100 deep trees": lambda: forest(False),
    "random forest of 4 classes, 100 deep trees": lambda: forest(True),
}


def least(
    run: Callable[[np.ndarray], Any], other: Callable[[np.ndarray], Any], x: np.ndarray, count: int
) -> tuple[float, float]:
    """Seconds of both, in turns, over parts of `count` rows."""
    best = [np.inf, np.inf]
    starts = itertools.cycle(range(0, len(x) - count + 1, count))
    for start, _ in zip(starts, range(2000 if count < 100 else 9), strict=False):
        part = np.ascontiguousarray(x[start : start + count])
        for i, f in enumerate((run, other)):
            begin = time.process_time()
            f(part)
            best[i] = min(best[i], time.process_time() - begin)
    return best[0], best[1]


def mean(run: Callable[[np.ndarray], Any], other: Callable[[np.ndarray], Any], x: np.ndarray) -> tuple[float, float]:
    """Seconds of both for one row: of all rows in turn, by parts of 500, the least mean."""
    best = [np.inf, np.inf]
    parts = [[np.ascontiguousarray(x[i : i + 1]) for i in range(at, at + 500)] for at in range(0, 5000, 500)]
    for part in parts:
        for i, f in enumerate((run, other)):
            begin = time.process_time()
            for row in part:
                f(row)
            best[i] = min(best[i], (time.process_time() - begin) / len(part))
    return best[0], best[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "tatami-trees")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    x, _ = rows()
    print("| model | rows | ONNX Runtime, us | Tatami, us | ratio |\n|---|---|---|---|---|")
    for name, make in MODELS.items():
        file = folder / (name.replace(",", "").replace(" ", "_") + ".onnx")
        if not file.exists():
            onnx.save(make(), file)
        proto = onnx.load(file)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        port = session.get_inputs()[0].name
        function = tt.compile(proto, threads=1)

        def theirs(part: np.ndarray, session: Any = session, port: str = port) -> Any:
            return session.run(None, {port: part})

        def ours(part: np.ndarray, function: Any = function, port: str = port) -> Any:
            return function({port: part})

        for want, got in zip(theirs(x), ours(x).values(), strict=True):
            np.testing.assert_allclose(got, want, 1e-4, 1e-4)
        for count in COUNTS:
            a, b = mean(theirs, ours, x) if count == 1 else least(theirs, ours, x, count)
            print(f"| {name} | {count} | {a * 1e6:.0f} | {b * 1e6:.0f} | {a / b:.2f} |", flush=True)


if __name__ == "__main__":
    main()
