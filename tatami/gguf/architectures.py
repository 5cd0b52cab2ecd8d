"""Differences between the architectures, and the sizes of a model, from a file's metadata.

llama    rotary pairs are neighbours; frequencies may be divided by factors of the file
qwen2    halves; biases of q, k and v
qwen3    halves; q and k are normalised per head
gemma    halves; embeddings times sqrt(width); gelu
phi3     halves; q, k, v in one matrix, gate and up in one; factors for short and long contexts; a window
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from tatami.core.diagnostic import TatamiError, fail
from tatami.gguf.file import GgufFile, Metadata, Scalar

MOST = 1 << 20
"""The largest width, count or length that a model may name."""


class Architecture(NamedTuple):
    """The rules of an architecture by which its graph differs from that of others."""

    interleaved: bool = False
    """True if neighbours are rotated together; else halves of a head."""
    activation: Literal["silu", "gelu"] = "silu"
    scales_embedding: bool = False
    fused: bool = False
    """True for one matrix of q, k and v, and one of gate and up."""


ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(interleaved=True),
    "qwen2": Architecture(),
    "qwen3": Architecture(),
    "gemma": Architecture(activation="gelu", scales_embedding=True),
    "phi3": Architecture(fused=True),
}
"""Value of general.architecture -> the rules of its graph."""


class Sizes(NamedTuple):
    """The sizes and constants of one model."""

    architecture: Architecture
    name: str
    layers: int
    width: int
    heads: int
    key_heads: int
    head: int
    """Number of elements of a key, a value or a query of one head."""
    rotated: int
    """Elements of a head that are rotated, from its first."""
    base: float
    """Base of the rotary frequencies."""
    divisor: float
    """Number by which positions are divided (linear scaling); 1: none."""
    magnitude: float
    """Factor of cosines and sines; 1: none."""
    eps: float
    window: int
    """Number of keys that a row sees, its own included; 0: all before it."""
    context: int
    """Number of positions that the model was made for."""
    original_context: int
    """Number of positions before its context was extended by factors; 0: it was not."""


def sizes_of(file: GgufFile) -> Sizes:
    """The numbers of the model. Raises UnsupportedModel for other architectures and scalings, ParseError for metadata that is
    missing or out of range."""
    at = _Metadata(file)
    name = at.text("general.architecture")
    if name not in ARCHITECTURES:
        raise at.unsupported(f"the architecture {name[:40]!a}", f"the architectures are {', '.join(ARCHITECTURES)}")
    heads = at.count("attention.head_count")
    width = at.count("embedding_length")
    head = at.count("attention.key_length", width // heads)
    if at.count("attention.value_length", head) != head:
        raise at.unsupported("values of another size than keys", "convert another model")
    key_heads = at.count("attention.head_count_kv", heads)
    if heads % key_heads or head % 2:
        raise at.broken(f"{heads} heads of {head} elements share {key_heads} key heads")
    rotated = at.count("rope.dimension_count", head)
    if rotated > head or rotated % 2:
        raise at.broken(f"{rotated} of {head} elements of a head are rotated")
    scaling = at.text("rope.scaling.type", "linear")
    if scaling not in ("none", "linear", "longrope"):
        raise at.unsupported(f"rotary scaling {scaling[:20]!a}", "the scalings are linear, longrope and factors of frequencies")
    return Sizes(
        architecture=ARCHITECTURES[name],
        name=name,
        layers=at.count("block_count"),
        width=width,
        heads=heads,
        key_heads=key_heads,
        head=head,
        rotated=rotated,
        base=at.number("rope.freq_base", 10000.0),
        divisor=at.number("rope.scaling.factor", at.number("rope.scale_linear", 1.0)) if scaling == "linear" else 1.0,
        magnitude=at.number("rope.scaling.attn_factor", 1.0),
        eps=at.number("attention.layer_norm_rms_epsilon"),
        window=at.count("attention.sliding_window", 0, least=0),
        context=at.count("context_length"),
        original_context=at.count("rope.scaling.original_context_length", 0, least=0),
    )


class _Metadata:
    """Metadata of one architecture, each value checked."""

    def __init__(self, file: GgufFile) -> None:
        self.file = file
        self.values: Mapping[str, Metadata] = file.metadata
        self.prefix = self.values.get("general.architecture", "")

    def broken(self, why: str) -> TatamiError:
        return fail("ParseError", self.file.path.name, f"not a model: {why}", "convert the model again")

    def unsupported(self, why: str, suggestion: str) -> TatamiError:
        return fail("UnsupportedModel", self.file.path.name, f"{why} is not supported", suggestion)

    def _value(self, key: str, default: Scalar | None) -> Scalar:
        if not key.startswith("general."):
            key = f"{self.prefix}.{key}"
        value: Metadata | None = self.values.get(key, default)
        if isinstance(value, tuple) and value and all(v == value[0] for v in value):
            value = value[0]  # the same number for every layer
        if value is None:
            raise self.broken(f"its metadata lacks {key[:60]!a}")
        if isinstance(value, tuple):
            raise self.unsupported(f"{key[:60]!a} with a number per layer", "convert another model")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self.broken(f"{key} is not a text")
        return value

    def count(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        value = self._value(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST:
            raise self.broken(f"{key} is {str(value)[:40]!a}; it is a number from {least} to {MOST}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._value(key, default)
        if isinstance(value, bool | str) or not 0 < value < 1e12:
            raise self.broken(f"{key} is {str(value)[:40]!a}; it is a number above 0")
        return float(value)
