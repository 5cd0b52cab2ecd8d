"""Errors of a drop-in session: the names and messages that users of ONNX Runtime catch, each a TatamiError with its diagnostics.

The status codes and the words after them are those of ONNX Runtime's Python API, so that code which looks for them goes on
working; the diagnostic behind each says what Tatami would say.
"""

from __future__ import annotations

from typing import ClassVar

from tatami.core.diagnostic import Diagnostic, TatamiError, diagnostic


class SessionError(TatamiError):
    """A session, or one of its runs, that failed. `str` is one line of status and then the message."""

    code: ClassVar[int] = 1
    status: ClassVar[str] = "FAIL"

    def __init__(self, message: str, *diagnostics: Diagnostic) -> None:
        super().__init__(*diagnostics)
        self.message = message

    def __str__(self) -> str:
        return f"[Tatami] : {self.code} : {self.status} : {self.message}"


class Fail(SessionError):
    """A failure that no other class names."""


class InvalidArgument(SessionError):
    """An input, an output's name or an option that does not suit the model."""

    code, status = 2, "INVALID_ARGUMENT"


class MissingInputs(InvalidArgument, ValueError):
    """Inputs that a run was not given; a ValueError, as in ONNX Runtime."""

    def __str__(self) -> str:
        return self.message


class NoSuchFile(SessionError):
    """A model whose file does not exist."""

    code, status = 3, "NO_SUCHFILE"


class InvalidProtobuf(SessionError):
    """A file that holds no model."""

    code, status = 7, "INVALID_PROTOBUF"


class NotImplemented(SessionError):
    """An operator, a dtype or a part of the API that Tatami does not have."""

    code, status = 9, "NOT_IMPLEMENTED"


class InvalidGraph(SessionError):
    """A model that is wrong for every input."""

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
"""The class by the kind of the first diagnostic; every other kind speaks of the graph."""
_AT_RUN = frozenset(["InputMismatch", "AxisAlignmentMismatch", "AxisSizeMismatch", "BroadcastMismatch", "InvalidSymbol"])
"""Kinds that speak of what a run was given."""


def at_load(error: TatamiError) -> SessionError:
    """What a session says of a model that Tatami refuses."""
    kind = error.diagnostics[0].kind
    return _AT_LOAD.get(kind, InvalidGraph)(f"This model cannot be run: {error}", *error.diagnostics)


def at_run(error: TatamiError) -> SessionError:
    """What a run says of arrays, or sizes, that the program refuses."""
    kind = error.diagnostics[0].kind
    made = InvalidArgument if kind in _AT_RUN else Fail
    return made(str(error), *error.diagnostics)


def invalid_argument(message: str, at: str, suggestion: str) -> InvalidArgument:
    return InvalidArgument(message, diagnostic("InputMismatch", at, message.replace("\n", " "), suggestion))


def missing_inputs(missing: list[str], given: list[str]) -> MissingInputs:
    message = f"Required inputs ({missing}) are missing from input feed ({given})."
    return MissingInputs(message, diagnostic("InputMismatch", missing[0], message, "give an array for each"))


def not_implemented(what: str, at: str, suggestion: str) -> NotImplemented:
    return NotImplemented(
        f"{what} is not supported", diagnostic("UnsupportedModel", at, f"{what} is not supported", suggestion)
    )
