"""Fourier transforms of signals whose length is open, or decided by data: one program, as ONNX Runtime at every length."""

from __future__ import annotations

import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tests.onnx.subgraphs.test_control import model, oracle, x


@pytest.mark.parametrize(("onesided", "channels"), [(0, 1), (1, 1), (0, 2)])
def test_frames_of_a_signal_of_open_length(onesided: int, channels: int) -> None:
    made = model(
        f"""g (float[B, N, {channels}] x, float[6] w) => (float[B, F, K, 2] y) {{
            step = Constant <value = int64 {{4}}> ()
            length = Constant <value = int64 {{6}}> ()
            y = STFT <onesided = {onesided}> (x, step, w, length)
        }}"""
    )
    f = tt.compile(made, threads=1)
    for batch, count in ((1, 6), (2, 13), (1, 22)):
        feed = {"x": x(batch, count, channels), "w": x(6)}
        np.testing.assert_allclose(f(feed)["y"], oracle(made, feed)[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(TatamiError, match=r"5 samples in frames of 6|at least 6 is needed"):
        f({"x": x(1, 5, channels), "w": x(6)})


def test_frames_of_a_signal_whose_length_data_decide() -> None:
    """The signal has no axis for its channel, as ONNX Runtime takes it."""
    made = model(
        """g (float[N] mask, float[N] x) => (float[1, F, K, 2] y) {
            place = NonZero (mask)
            taken = Gather (x, place)
            to = Constant <value = int64[2] {1, -1}> ()
            signal = Reshape (taken, to)
            step = Constant <value = int64 {2}> ()
            window = Constant <value = float[4] {0.5, 1, 1, 0.5}> ()
            y = STFT (signal, step, window)
        }"""
    )
    f = tt.compile(made, threads=1)
    for count in (9, 20):
        feed = {"mask": (np.arange(count) % 3 > 0).astype(np.float32), "x": x(count)}
        np.testing.assert_allclose(f(feed)["y"], oracle(made, feed)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("attributes", "channels"), [("", 1), ("<onesided = 1>", 1), ("", 2), ("<inverse = 1>", 2)])
def test_a_transform_of_an_axis_whose_size_data_decide(attributes: str, channels: int) -> None:
    made = model(
        f"""g (float[N] mask, float[N, {channels}] x) => (float[1, F, K] y) {{
            place = NonZero (mask)
            flat = Squeeze (place)
            taken = Gather (x, flat)
            lead = Constant <value = int64[1] {{0}}> ()
            signal = Unsqueeze (taken, lead)
            y = DFT {attributes} (signal)
        }}"""
    )
    f = tt.compile(made, threads=1)
    for count in (9, 7, 20):
        feed = {"mask": (np.arange(count) % 3 > 0).astype(np.float32), "x": x(count, channels)}
        np.testing.assert_allclose(f(feed)["y"], oracle(made, feed)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [2, 5])
def test_half_a_spectrum_of_open_length_is_turned_back(count: int) -> None:
    made = model("g (float[1, N, 2] x) => (float[1, M, 1] y) { y = DFT <inverse = 1, onesided = 1, axis = 1> (x) }")
    values = x(1, count, 2)
    values[:, [0, -1], 1] = 0  # a real signal has real first and last elements
    wanted = np.fft.irfft(values[..., 0] + 1j * values[..., 1], axis=1)[..., None]
    np.testing.assert_allclose(tt.compile(made, threads=1)({"x": values})["y"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("step", "length", "window"), [(0, 4, 4), (-1, 4, 4), (2, -4, 0), (2, 4, 1), (2, 1, 4), (2, 8, 4)])
@pytest.mark.parametrize("count", ["N", "30"])
def test_frames_that_do_not_fit_are_refused(step: int, length: int, window: int, count: str) -> None:
    """No step, no sample, or a window of another length: of one sample it was multiplied with all of a frame."""
    given = f"w = Constant <value = float[{window}] {{{', '.join(['0.5'] * window)}}}> ()" if window else ""
    made = model(
        f"""g (float[1, {count}, 1] x) => (float[A, F, K, C] y) {{
            step = Constant <value = int64 {{{step}}}> ()
            length = Constant <value = int64 {{{length}}}> ()
            {given}
            y = STFT (x, step, {"w" if window else '""'}, length)
        }}"""
    )
    with pytest.raises(TatamiError, match=r"E1606.*STFT (in steps|with a window)"):
        tt.compile(made, threads=1)({"x": x(1, 30, 1)})


@pytest.mark.parametrize("size", ["20", "N"])
def test_a_real_signal_has_real_first_and_middle_frequencies(size: str) -> None:
    """A vocoder takes the angle of its spectrum, which is 0 or half a turn there, not that of a rounding error."""
    made = model(f"g (float[3, {size}, 1] x) => (float[3, K, 2] y) {{ y = DFT <onesided = 1, axis = 1> (x) }}")
    f = tt.compile(made, threads=1)
    for count in (20,) if size == "20" else (20, 6, 4, 2):
        values = x(3, count, 1)
        spectrum = f({"x": values})["y"]
        assert not np.any(spectrum[:, [0, -1], 1])
        wanted = np.fft.rfft(values[..., 0].astype(np.float64), axis=1)
        np.testing.assert_allclose(spectrum, np.stack([wanted.real, wanted.imag], -1), rtol=1e-6, atol=1e-7)
