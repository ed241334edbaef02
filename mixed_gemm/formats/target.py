"""The folder that a checkpoint is saved into: it gets all files or none, whenever the process ends.

Everything is written and synchronised in a folder inside it, STAGING, which no reader looks into.
Renaming that to INCOMPLETE is the first step that anybody sees: from then on the folder is refused
(``refuse_incomplete``). Old files go, config.json first; new ones come, config.json last, since
transformers reads nothing without it; and removing INCOMPLETE, by then empty, makes it whole.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from .adapter import FILES as ADAPTER_FILES
from .durable import sync_folder
from .errors import CheckpointError

STAGING = ".mixed_gemm-saving"
INCOMPLETE = ".mixed_gemm-incomplete"
CONFIG = "config.json"
# Files that would be read together with, or instead of, those that are saved.
_WEIGHTS = ("*.safetensors", "*.index.json")


def refuse_incomplete(path: Path) -> None:
    """Raise CheckpointError when a save into ``path``, or into the folder of that file, ended
    before it was whole."""
    folder = path if path.is_dir() else path.parent
    if (folder / INCOMPLETE).is_dir():
        raise CheckpointError(
            folder,
            "",
            "is incomplete: saving into it was interrupted. Hint: save again with overwrite=True "
            "(--force), or delete it",
        )


def _identities(paths: Iterable[Path]) -> dict[tuple[int, int], Path]:
    """Find what two spellings of one file have in common, links to it included."""
    found = {}
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            continue
        found[status.st_dev, status.st_ino] = path
    return found


class TargetFolder:
    """``with TargetFolder(...) as target``: write into ``target.stage``, then ``target.publish()``.
    Without that, or after an exception, everything is as it was.

    Args:
        folder: made when missing; a link to one is followed.
        names: of the files to come, other than the weights.
        overwrite: files of these names may be replaced, and weights that are there removed.
        sources: the folder and the files that are being read, none of which may be touched.

    Raises:
        FileExistsError: it holds files that would be overwritten, or is the source, or another
            process is saving into it.
        NotADirectoryError: it is a file, or a link to nothing.
    """

    def __init__(
        self, folder: Path, names: Iterable[str], overwrite: bool, sources: Iterable[Path] = ()
    ) -> None:
        self._folder = folder
        self._names = {*names, CONFIG}
        self._overwrite = overwrite
        self._sources = tuple(sources)
        self._made: list[Path] = []
        self._lock = -1
        self.stage = folder / STAGING

    def refuse(self) -> None:
        """Raise what entering raises, before there is anything to write."""
        if not self._folder.is_dir() and os.path.lexists(self._folder):
            raise NotADirectoryError(f"save_checkpoint: {self._folder} is no folder")
        self._refuse_source()
        self._refuse_conflicts()

    def __enter__(self) -> TargetFolder:
        folder = self._folder
        self.refuse()
        try:
            self._make_folder()
            self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._take_lock()
            if self.stage.is_dir():  # left by a process that was killed, or it would hold the lock
                shutil.rmtree(self.stage)
            self.stage.mkdir()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        shutil.rmtree(self.stage, ignore_errors=True)
        self._leave()

    def _leave(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        for made in reversed(self._made):
            try:
                made.rmdir()
            except OSError:  # it is in use by now
                break

    def _make_folder(self) -> None:
        missing = [x for x in (self._folder, *self._folder.parents) if not x.exists()]
        for path in reversed(missing):
            path.mkdir(exist_ok=True)
            self._made.append(path)
            sync_folder(path.parent)

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FileExistsError(
                f"save_checkpoint: another process is saving into {self._folder}"
            ) from error
        except OSError:
            pass  # a file system without locks

    def _refuse_source(self) -> None:
        if not self._folder.is_dir():
            return
        sources = _identities(self._sources)
        for path in (self._folder, *sorted(self._folder.iterdir())):
            for found in _identities([path]):
                if found in sources:
                    raise FileExistsError(
                        f"save_checkpoint: {path} is the same as {sources[found]}, which is being "
                        "read. Hint: name another folder"
                    )

    def _present(self) -> list[str]:
        """Names in the folder that would be replaced or removed, config.json first."""
        if not self._folder.is_dir():
            return []
        found = {name for name in self._names if os.path.lexists(self._folder / name)}
        for pattern in _WEIGHTS:
            found |= {path.name for path in self._folder.glob(pattern)}
        return sorted(found, key=lambda name: (name != CONFIG, name))

    def _refuse_adapter(self) -> None:
        """Where no adapter comes with the model, one that is there is somebody's work, and would be
        put on what is saved."""
        others = [x for x in ADAPTER_FILES if x not in self._names]
        for name in others:
            if os.path.lexists(self._folder / name):
                raise FileExistsError(
                    f"save_checkpoint: {self._folder} holds an adapter ({name}), which "
                    "transformers would put on the model that is saved. Hint: name another folder"
                )

    def _refuse_conflicts(self) -> None:
        self._refuse_adapter()
        present = self._present()
        folders = [x for x in present if (self._folder / x).is_dir()]
        if folders:
            raise FileExistsError(f"save_checkpoint: {self._folder / folders[0]} is a folder")
        if self._overwrite:
            return
        if (self._folder / INCOMPLETE).exists():
            raise FileExistsError(
                f"save_checkpoint: {self._folder} holds a save that was interrupted. Hint: "
                "overwrite=True (--force) replaces it"
            )
        if present:
            raise FileExistsError(
                f"save_checkpoint: {self._folder} holds {present[0]} already. Hint: name a new "
                "folder, or overwrite=True (--force)"
            )

    def publish(self) -> None:
        """Put the files of ``stage`` into place, and remove what they replace."""
        sync_folder(self.stage)
        self._refuse_conflicts()  # again: the rounding may have taken hours
        folder, incomplete = self._folder, self._folder / INCOMPLETE
        if incomplete.is_dir():  # an earlier save left it; it must be empty to be replaced at once
            for path in incomplete.iterdir():
                path.unlink()
        self.stage.rename(incomplete)
        self._made.clear()
        sync_folder(folder)
        if old := self._present():
            for name in old:
                (folder / name).unlink()
            sync_folder(folder)
        for path in sorted(incomplete.iterdir(), key=lambda path: (path.name == CONFIG, path)):
            if path.name == CONFIG:
                sync_folder(folder)
            path.rename(folder / path.name)
        sync_folder(folder)
        incomplete.rmdir()
        sync_folder(folder)
