"""A file that is open for reading at offsets. Nothing is memory-mapped: a mapped file that somebody
cuts ends the process with SIGBUS, and one that is written to changes tensors that were read.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .errors import CheckpointError

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a link"),
)


def kind_of(mode: int) -> str:
    """Tell what ``st_mode`` says of a file, in words; empty for a regular one."""
    if stat.S_ISREG(mode):
        return ""
    return next((words for test, words in _KINDS if test(mode)), "of an unknown kind")


def bytes_of(tensor: Tensor) -> memoryview:
    """The memory of a contiguous tensor on the CPU."""
    flat = tensor.reshape(-1)
    flat = flat.as_strided(flat.shape, (1,))  # one element may have any stride, which view refuses
    view: Any = flat.view(torch.uint8).numpy()
    return memoryview(view)


class RegularFile:
    """Opens ``path``, following links; closed when it is collected.

    Attributes:
        path: as given.
        size: bytes, when it was opened.
        bytes_read: of it, so far.

    Raises:
        CheckpointError: there is no such file, it cannot be opened, or it is a folder, a pipe or a
            device.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1
        try:
            # Without O_NONBLOCK, opening a pipe waits for whoever writes to it.
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            status = os.fstat(self._fd)
        except FileNotFoundError as error:
            reason = "is a link to nothing" if path.is_symlink() else "no such file or folder"
            raise CheckpointError(path, "", reason) from error
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
            raise CheckpointError(path, "", f"cannot be opened ({error})") from error
        if kind := kind_of(status.st_mode):
            raise CheckpointError(path, "", f"is {kind}, not a regular file")
        self.size = status.st_size
        self.bytes_read = 0
        self._version = self._version_of(status)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @staticmethod
    def _version_of(status: os.stat_result) -> tuple[int, int]:
        return status.st_size, status.st_mtime_ns

    def _fill(self, target: memoryview, offset: int, tensor: str) -> None:
        self._take(target, offset, tensor)
        self._refuse_changes(tensor)

    def _take(self, target: memoryview, offset: int, tensor: str) -> None:
        done = 0
        while done < len(target):
            try:
                count = os.preadv(self._fd, [target[done:]], offset + done)
            except OSError as error:
                raise CheckpointError(self.path, tensor, f"cannot be read ({error})") from error
            if count == 0:
                raise CheckpointError(
                    self.path,
                    tensor,
                    f"ends at byte {offset + done}, and {len(target) - done} more are needed: the "
                    "file is not whole, or was cut while it was open",
                )
            done += count
        self.bytes_read += done

    def _refuse_changes(self, tensor: str) -> None:
        if self._version_of(os.fstat(self._fd)) != self._version:
            raise CheckpointError(
                self.path, tensor, "was changed after it was opened. Hint: open it again"
            )

    def read(self, offset: int, nbytes: int, tensor: str = "") -> bytearray:
        """``nbytes`` from ``offset`` on.

        Args:
            tensor: whose they are, for the message.

        Raises:
            CheckpointError: the file ends before, or was changed after it was opened.
        """
        content = bytearray(nbytes)
        self._fill(memoryview(content), offset, tensor)
        return content

    def read_tensor(self, offset: int, nbytes: int, tensor: str) -> Tensor:
        """The same as uint8 ``[nbytes]`` in memory of its own."""
        # transformers reads while the default device is meta.
        content = torch.empty(nbytes, dtype=torch.uint8, device="cpu")
        self._fill(bytes_of(content), offset, tensor)
        return content

    def read_rows(self, offset: int, stride: int, width: int, count: int, tensor: str) -> Tensor:
        """``count`` runs of ``width`` bytes, ``stride`` bytes from each to the next, as uint8
        ``[count * width]``; what lies between them is not read."""
        content = torch.empty(count * width, dtype=torch.uint8, device="cpu")
        target = bytes_of(content)
        for row in range(count):
            self._take(target[row * width : (row + 1) * width], offset + row * stride, tensor)
        self._refuse_changes(tensor)
        return content
