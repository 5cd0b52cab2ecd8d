"""Answers of a package that calls ONNX Runtime, as JSON: with ONNX Runtime, or with `tatami.onnx` in its place.

    python tests/onnx/session/package_answers.py magika tatami

The one change is the import: the name `onnxruntime` stands for `tatami.onnx` before the package is loaded.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

Answers = dict[str, Any]
"""Question → the answer: words and numbers, which have to be equal, and lists of floats, which have to be close."""


def use_tatami() -> None:
    import tatami.onnx

    inner = ModuleType("onnxruntime.capi")
    inner._pybind_state = tatami.onnx  # type: ignore[attr-defined]
    sys.modules |= {"onnxruntime": tatami.onnx, "onnxruntime.capi": inner, "onnxruntime.capi._pybind_state": tatami.onnx}


def magika() -> Answers:
    from magika import Magika

    texts = {
        "python": "import sys\n\ndef main() -> None:\n    print(sys.argv)\n\n\nif __name__ == '__main__':\n    main()\n" * 8,
        "json": json.dumps({f"key{k}": [k, k / 3, str(k)] for k in range(60)}),
        "html": "<!DOCTYPE html><html><head><title>mat</title></head><body><p>tatami</p></body></html>" * 5,
    }
    found: Answers = {}
    detector = Magika()
    for name, text in texts.items():
        result = detector.identify_bytes(text.encode())
        found[name] = str(result.output.label)
        found[f"{name} score"] = [float(result.score)]
    return found


def nudenet() -> Answers:
    from nudenet import NudeDetector

    image = np.random.default_rng(0).integers(0, 255, (240, 300, 3), dtype=np.uint8)
    detector = NudeDetector()
    picture = np.random.default_rng(1).uniform(0, 1, (1, 3, 320, 320)).astype(np.float32)
    (raw,) = detector.onnx_session.run(None, {detector.input_name: picture})
    return {"detections": detector.detect(image), "raw": raw.reshape(-1)[::97].tolist()}


def rapidocr_onnxruntime() -> Answers:
    import cv2
    from rapidocr_onnxruntime import RapidOCR

    image = np.full((160, 480, 3), 255, np.uint8)
    cv2.putText(image, "Tatami 2026", (20, 70), cv2.FONT_HERSHEY_SIMPLEX, 1.6, (0, 0, 0), 3)
    cv2.putText(image, "woven rush", (40, 130), cv2.FONT_HERSHEY_SIMPLEX, 1.2, (40, 0, 0), 2)
    lines, _ = RapidOCR()(image)
    return {
        "text": [line[1] for line in lines],
        "scores": [float(line[2]) for line in lines],
        "corners": [float(x) for line in lines for corner in line[0] for x in corner],
    }


def silero_vad() -> Answers:
    import torch
    from silero_vad import get_speech_timestamps, load_silero_vad

    rate = 16000
    time = np.arange(2 * rate) / rate
    loud = (np.sin(2 * np.pi * 3 * time) > 0) * 0.4
    voice = sum(np.sin(2 * np.pi * 140 * k * time + np.sin(5 * time)) / k for k in range(1, 8))
    sound = torch.from_numpy((loud * voice + np.random.default_rng(0).normal(0, 0.01, time.size)).astype(np.float32))
    model = load_silero_vad(onnx=True)
    chances = [float(model(sound[k : k + 512], rate).item()) for k in range(0, 16 * 512, 512)]
    model.reset_states()
    return {"chances": chances, "speech": get_speech_timestamps(sound, model, threshold=0.15, sampling_rate=rate)}


PACKAGES: dict[str, Callable[[], Answers]] = {f.__name__: f for f in (magika, nudenet, rapidocr_onnxruntime, silero_vad)}

if __name__ == "__main__":
    package, runtime = sys.argv[1:]
    if runtime == "tatami":
        use_tatami()
    print(json.dumps(PACKAGES[package]()))
