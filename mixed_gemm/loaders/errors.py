"""What is raised and warned about files."""

from __future__ import annotations

from pathlib import Path


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
        super().__init__(": ".join(part for part in (self.file, tensor, reason) if part))


class CheckpointWarning(UserWarning):
    """A checkpoint says something that its tensors contradict, or that is not used here."""
