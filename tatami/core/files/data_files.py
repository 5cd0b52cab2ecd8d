"""A model's file, and the bytes of other files that it names: from inside its folder only, no `..`, absolute path,
symbolic link or hard link. The hash of what was read is kept, so that a later process can tell whether it would read the same."""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath

from tatami.core.diagnostic import fail
from tatami.core.files.plain_file import open_plain, read_plain

MAX_FILE_BYTES = 2 << 30
"""Maximum bytes of a file that a model may be or name."""


class DataFiles:
    """Files in the folder of a model. `reads`: (location, first byte, number of bytes) -> sha256 of the bytes read there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reads: dict[tuple[str, int, int], str] = {}

    def read(self, at: str, location: str, first: int, size: int) -> bytes:
        """`size` bytes of the file `location`, for the tensor `at`. Raises FileUnreadable, InvalidDocument."""
        path = _contained(at, self.folder, location)
        try:
            with open_plain(path, follow=False) as file:
                info = os.fstat(file.fileno())
                if info.st_nlink != 1:
                    why = f"{location!r} is not a plain file of its own"
                    raise fail("FileUnreadable", at, why, "copy the data into the model's folder")
                if info.st_size < first + size:
                    raise fail("InvalidDocument", at, f"{location!r} ends before its {size} bytes", "save the model again")
                file.seek(first)
                data = file.read(size)
        except OSError as error:
            why = f"{location!r}: {error.strerror or 'it cannot be read'}"
            raise fail("FileUnreadable", at, why, "keep the model and its data together") from None
        self.reads[location, first, size] = sha256(data).hexdigest()
        return data


@dataclass(frozen=True)
class ModelFile:
    """The bytes of a model's file. `beside`: files in its folder; None for bytes that come from no folder."""

    name: str
    data: bytes
    beside: DataFiles | None = None


def read_model(path: Path) -> ModelFile:
    """The model's file and access to its folder. Raises FileUnreadable, InputTooLarge."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise fail(
                "InputTooLarge",
                path.name,
                "a model's file holds at most 2 GiB",
                "keep large tensors in files of the same folder",
            )
        return ModelFile(path.name, read_plain(path), DataFiles(path.parent))
    except (OSError, ValueError) as error:  # a name with a null in it is a ValueError
        why = getattr(error, "strerror", None) or "it cannot be read"
        raise fail("FileUnreadable", path.name, why, "check the path and its permissions") from None


def read_part(path: Path, first: int, size: int) -> bytes:
    """The bytes [first, first + size) of a model's own file. Raises FileUnreadable."""
    try:
        with open_plain(path) as file:
            file.seek(first)
            return file.read(size)
    except OSError as error:
        why = error.strerror or "it cannot be read"
        raise fail("FileUnreadable", path.name, why, "put the file back, or compile the model again") from None


def _contained(at: str, folder: Path, location: str) -> Path:
    relative = PurePosixPath(location)
    if not location or relative.is_absolute() or ".." in relative.parts or "\\" in location:
        why = f"its data lies at {location!r}, outside the model's folder"
        raise fail("FileUnreadable", at, why, "move the data into the model's folder")
    path = folder
    for part in relative.parts:
        path = path / part
        if path.is_symlink():
            raise fail(
                "FileUnreadable", at, f"{location!r} goes through a symbolic link", "copy the data into the model's folder"
            )
    if not path.is_file():
        raise fail("FileUnreadable", at, f"the data file {location!r} is not there", "keep the model and its data together")
    return path
