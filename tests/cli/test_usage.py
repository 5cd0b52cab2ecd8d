"""A wrong use of options is told by click with exit code 2, not as a fault of Tatami."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tatami.cli import main

DIGITS = str(Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx")


@pytest.mark.parametrize(
    "arguments", [["--json", "--tree"], ["--candidates", "--svg", "x.svg"], ["--candidates", "--dot", "x.dot"]]
)
def test_options_of_explain_that_contradict_each_other_are_a_usage_error(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["explain", DIGITS, *arguments])
    assert result.exit_code == 2 and "Usage" in result.output and "E1900" not in result.output
