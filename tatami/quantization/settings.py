"""The options of a quantisation, and the modes that stand for some of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from tatami.core.diagnostic import fail

BLOCK = 32
"""Usual number of weights that share a scale: that of llama.cpp's formats and of ONNX Runtime's quantiser."""
MOST_BLOCK = 1 << 16
"""Maximum number of weights that share a scale of their own."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a quantisation, each with its default."""

    weights: Literal["int4", "int8"] = "int8"
    activations: Literal["float", "dynamic", "static"] = "float"
    """Left operands of products: as they are; rounded to 8 bits in each call by their own range; or by ranges that calibration
    found."""
    block: int | None = None
    """Number of weights along the sum that share a scale; 0: all of a column. None: 32 where activations are floats, else 0."""
    form: Literal["qdq", "MatMulNBits"] = "qdq"
    """qdq: standard operators; MatMulNBits: ONNX Runtime's own operator for products with narrow weights."""
    accuracy_level: Literal[0, 1, 2, 3, 4] = 0
    """Attribute of MatMulNBits; 4 permits 8-bit activations."""
    ranges: Literal["minmax", "percentile", "entropy"] = "minmax"
    """The range of an activation's codes: all values that calibration saw; all but a few; or the one with the least loss of
    information."""
    percentile: float = 99.99
    """Percentage of values that the range holds, for ranges "percentile"."""
    exclude: tuple[str, ...] = ()
    """Names of layers that stay as they are."""

    @property
    def block_size(self) -> int:
        """Number of weights along the sum that share a scale; 0: a whole column."""
        if self.block is not None:
            return self.block
        return BLOCK if self.activations == "float" else 0

    @property
    def bits(self) -> int:
        """Number of bits of a weight."""
        return 4 if self.weights == "int4" else 8


MODES: Mapping[str, Mapping[str, object]] = {
    "int4": {"weights": "int4"},
    "int8": {"weights": "int8"},
    "dynamic": {"weights": "int8", "activations": "dynamic"},
    "static": {"weights": "int8", "activations": "static"},
}
"""Name of a mode -> its options."""


def settings_of(mode: object, *, has_calibration: bool) -> Settings:
    """The settings that `mode` stands for: a name, or options by name. "int8" with calibration is static. Raises TatamiError."""
    options: Mapping[str, object]
    if isinstance(mode, str):
        if mode not in MODES:
            raise fail(
                "InvalidAttribute",
                "mode",
                f"{mode[:40]!a} is not a mode",
                f"the modes are {', '.join(MODES)}, or a dict of options",
            )
        options = MODES["static" if mode == "int8" and has_calibration else mode]
    elif isinstance(mode, Mapping):
        options = mode
    else:
        raise fail(
            "InvalidAttribute", "mode", f"a {type(mode).__name__} is not a mode", f"give one of {', '.join(MODES)}, or a dict"
        )
    try:
        made = msgspec.convert(dict(options), Settings)
    except (msgspec.ValidationError, TypeError) as error:
        fields = ", ".join(Settings.__struct_fields__)
        raise fail("InvalidAttribute", "mode", str(error)[:200], f"the options are {fields} (docs/quantize.md)") from None
    _check(made, has_calibration)
    return made


def _check(s: Settings, has_calibration: bool) -> None:
    """Raise InvalidAttribute for options that do not go together."""

    def refuse(at: str, why: str, how: str) -> None:
        raise fail("InvalidAttribute", at, why, how)

    if s.activations == "static" and not has_calibration:
        refuse(
            "calibration",
            "static ranges are found by running the model, and there are no arrays to run it on",
            "pass calibration=, a list of dicts of inputs, or take dynamic",
        )
    if has_calibration and s.activations != "static":
        refuse(
            "calibration",
            f"nothing is calibrated with activations {s.activations!r}",
            "take the mode static, or leave calibration out",
        )
    if s.bits == 4 and s.activations != "float":
        refuse(
            "weights",
            "activations of 8 bits are multiplied with weights of 8 bits",
            'take weights "int8", or activations "float"',
        )
    if s.block is not None and (s.block < 0 or s.block > MOST_BLOCK):
        refuse("block", f"a block of {s.block}", f"give a number from 0 to {MOST_BLOCK}")
    if s.block and s.activations != "float":
        refuse("block", "a sum of integers has one scale per column", "leave block out")
    if s.form == "MatMulNBits":
        size = s.block_size
        if s.activations != "float":
            refuse("form", "MatMulNBits has activations of floats", 'take activations "float"')
        if size < 16 or size & (size - 1):
            refuse("block", f"MatMulNBits has blocks of 16, 32, 64, …, not {size}", "take block 32")
    elif s.accuracy_level:
        refuse("accuracy_level", "it is an attribute of MatMulNBits", 'add form "MatMulNBits", or leave it out')
    if s.ranges != "minmax" and s.activations != "static":
        refuse("ranges", f"activations {s.activations!r} have no ranges to find", "take the mode static, or leave ranges out")
    if not 50 < s.percentile <= 100:
        refuse("percentile", f"{s.percentile} per cent", "give a number above 50, up to 100")
    if s.percentile != Settings().percentile and s.ranges != "percentile":
        refuse("percentile", f"ranges {s.ranges!r} have no percentage", 'take ranges "percentile", or leave percentile out')
