"""Errors of a drop-in session: the names and messages that users of ONNX Runtime catch, each a TatamiError with its diagnostics.

The status codes and the words after them are those of ONNX Runtime's Python API, so that code which looks for them goes on
working; each carries Tatami's own diagnostics.
"""

from __future__ import annotations

from typing import ClassVar

from tatami.core.diagnostic import Diagnostic, TatamiError, diagnostic


class SessionError(TatamiError):
    """The failure of a session or of one of its runs. `str` is one line of status and then the message."""

    code: ClassVar[int] = 1
    status: ClassVar[str] = "FAIL"

    def __init__(self, message: str, *diagnostics: Diagnostic) -> None:
        super().__init__(*diagnostics)
        self.message = message

    def __str__(self) -> str:
        return f"[Tatami] : {self.code} : {self.status} : {self.message}"


class Fail(SessionError):
    """A failure that no other class covers."""


class InvalidArgument(SessionError):
    """An input, an output's name or an option that does not fit the model."""

    code, status = 2, "INVALID_ARGUMENT"


class MissingInputs(InvalidArgument, ValueError):
    """Required inputs that a feed lacks; a ValueError, as in ONNX Runtime."""

    def __str__(self) -> str:
        return self.message


class NoSuchFile(SessionError):
    """A path at which there is no file."""

    code, status = 3, "NO_SUCHFILE"


class InvalidProtobuf(SessionError):
    """A file that does not hold a model."""

    code, status = 7, "INVALID_PROTOBUF"


class NotImplemented(SessionError):
    """An operator, a dtype or a part of the API that Tatami does not have."""

    code, status = 9, "NOT_IMPLEMENTED"


class InvalidGraph(SessionError):
    """A model with a fault that every input meets."""

    code, status = 10, "INVALID_GRAPH"


_AT_LOAD: dict[str, type[SessionError]] = {
    "ParseError": InvalidProtobuf,
    "FileUnreadable": NoSuchFile,
    "UnsupportedModel": NotImplemented,
    "UnsupportedDType": NotImplemented,
    "UnknownTarget": Fail,
    "CompilerMissing": Fail,
    "CompilerFailed": Fail,
}
"""Kind of the first diagnostic -> class of the error at loading; other kinds are faults of the graph."""
_AT_RUN = frozenset(["InputMismatch", "AxisAlignmentMismatch", "AxisSizeMismatch", "BroadcastMismatch", "InvalidSymbol"])
"""Kinds of diagnostics about the values that a run receives."""


def at_load(error: TatamiError) -> SessionError:
    """The session's error for a model that Tatami refuses."""
    kind = error.diagnostics[0].kind
    return _AT_LOAD.get(kind, InvalidGraph)(f"This model cannot be run: {error}", *error.diagnostics)


def at_run(error: TatamiError) -> SessionError:
    """The session's error for arrays, or sizes, that the program refuses."""
    kind = error.diagnostics[0].kind
    made = InvalidArgument if kind in _AT_RUN else Fail
    return made(str(error), *error.diagnostics)


def invalid_argument(message: str, at: str, suggestion: str) -> InvalidArgument:
    """An InvalidArgument with this message and its diagnostic at `at`."""
    return InvalidArgument(message, diagnostic("InputMismatch", at, message.replace("\n", " "), suggestion))


def missing_inputs(missing: list[str], given: list[str]) -> MissingInputs:
    """A MissingInputs for these names, in ONNX Runtime's words."""
    message = f"Required inputs ({missing}) are missing from input feed ({given})."
    return MissingInputs(message, diagnostic("InputMismatch", missing[0], message, "give an array for each"))


def not_implemented(what: str, at: str, suggestion: str) -> NotImplemented:
    """A NotImplemented for `what`, with its diagnostic at `at`."""
    return NotImplemented(
        f"{what} is not supported", diagnostic("UnsupportedModel", at, f"{what} is not supported", suggestion)
    )
