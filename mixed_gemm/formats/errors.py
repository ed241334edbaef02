"""Errors and warnings about files."""

from __future__ import annotations

from pathlib import Path

_LONGEST = 2000  # characters of one part of a message


class CheckpointError(RuntimeError):
    """A checkpoint cannot be read: which file, which tensor, why.

    Attributes:
        file: the file (or folder) at fault.
        tensor: the name of the tensor at fault; empty when it is the file as a whole.
        reason: what was expected, what was found, what to do.
    """

    def __init__(self, file: str | Path, tensor: str, reason: str) -> None:
        self.file = str(file)
        self.tensor = tensor
        self.reason = reason
        name = tensor if tensor.isprintable() else ascii(tensor)
        text = ": ".join(_readable(part) for part in (self.file, name, reason) if part)
        super().__init__(text)


def _readable(text: str) -> str:
    """Make a text of a file fit to be printed: it may be a megabyte long, or no valid Unicode."""
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}... ({len(text)} characters)"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class CheckpointWarning(UserWarning):
    """A checkpoint says something that its tensors contradict, or that is not used here."""
