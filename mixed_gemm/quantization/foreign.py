"""Code of models, tokenizers and libraries that runs on the files of a user: its errors hardly tell
of which folder they are, or what was wrong about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..formats.errors import CheckpointError
from ..ops.errors import ArgumentTypeError, ArgumentValueError
from .state import Runs

# Errors that say enough by themselves: those of this library, of the machine, of what is to be
# installed.
_CLEAR = (
    CheckpointError,
    ArgumentTypeError,
    ArgumentValueError,
    OSError,
    MemoryError,
    ImportError,
    torch.OutOfMemoryError,
)


@contextmanager
def naming(path: str | Path, what: str, hint: str = "") -> Iterator[None]:
    """Make errors of foreign code into one that begins with the folder and with what was being
    done.

    Args:
        path: a folder, a file, or an id on the hub. what: failed, in words. hint: what to do.

    Raises:
        CheckpointError: anything was raised that does not say enough by itself.
    """
    try:
        yield
    except _CLEAR:
        raise
    except Exception as error:
        reason = f"{what} ({type(error).__name__}: {error}){f'. Hint: {hint}' if hint else ''}"
        raise CheckpointError(path, "", reason) from error


class TokenRuns(Runs):
    """:class:`Runs` of the model of a folder on token ids alone.

    Args:
        path: the folder. model, aside: as of ``Runs``.
    """

    def __init__(self, path: Path, model: nn.Module, aside: Iterable[nn.Module]) -> None:
        super().__init__(model, aside)
        self._path = path

    @contextmanager
    def of(self, batch: Any) -> Iterator[Any]:
        """Run the model once, as ``Runs`` does.

        Args:
            batch: int64 ``[batch, length]``.

        Raises:
            CheckpointError: the model does not run on it.
        """
        what = f"{type(self.model).__name__} does not run on token ids {tuple(batch.shape)} alone"
        hint = (
            "load the model and call mixed_gemm.quantize_(..., calibration=batches) with what it "
            "takes"
        )
        with ExitStack() as stack:
            stack.enter_context(naming(self._path, what, hint))
            yield stack.enter_context(super().of(batch))
