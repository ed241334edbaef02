"""Save a checkpoint again and again, each time killed (SIGKILL) one step later: before the N-th
call that changes a file or a folder, or in the middle of the N-th write. Prints one JSON object.

    python killed_saves.py SOURCE

A process of its own: torch is imported once, and every save runs in a fork of it.
"""

from __future__ import annotations

import collections
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from mixed_gemm.formats import CheckpointError, open_checkpoint, save_checkpoint

AUDITED = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.truncate"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
SHARD_BYTES = 30_000
SCENARIOS = ("new", "beside", "overwrite")  # no folder, one with files of others, an old checkpoint
USERS = {"README.md": b"mine", "notes/a.txt": b"mine too"}


class Killer:
    """Kills this process before event number ``at``; or, torn, half-way through write number
    ``at``."""

    def __init__(self, at: int, torn: bool) -> None:
        self.at, self.torn, self.count = at, torn, 0
        self.write, self.fsync = os.write, os.fsync

    def event(self) -> None:
        self.count += 1
        if self.count == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        def write(descriptor: int, content: memoryview) -> int:
            if self.torn and self.count + 1 == self.at:
                self.write(descriptor, content[: len(content) // 2])
            self.event()
            return self.write(descriptor, content)

        def fsync(descriptor: int) -> None:
            if not self.torn:
                self.event()
            self.fsync(descriptor)

        def audit(event: str, arguments: tuple) -> None:
            changes = event in AUDITED or (event == "open" and arguments[2] & WRITING)
            if changes and not self.torn:
                self.event()

        os.write, os.fsync = write, fsync
        sys.addaudithook(audit)


def content(folder: Path) -> dict[str, bytes]:
    """Every file by name; what begins with a dot is nobody's but the saver's."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not name.startswith("."):
            found[name] = path.read_bytes()
    return found


def prepare(folder: Path, scenario: str, old: Path) -> None:
    if scenario == "new":
        return
    if scenario == "overwrite":
        shutil.copytree(old, folder)
    folder.mkdir(exist_ok=True)
    for name, text in USERS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(text)


def read(folder: Path) -> str:
    """Read the folder, and say what a reader finds."""
    try:
        for weight in open_checkpoint(folder):
            assert weight.q.numel()
    except CheckpointError as error:
        return "incomplete" if "interrupted" in str(error) else "absent"
    return "whole"


def save(source: Path, folder: Path, scenario: str) -> None:
    options = {"overwrite": True} if scenario == "overwrite" else {}
    save_checkpoint(open_checkpoint(source), folder, max_shard_bytes=SHARD_BYTES, **options)


def judge(folder: Path, before: dict[str, bytes], after: dict[str, bytes]) -> str:
    """The state after a kill; raises for one that must not be."""
    state, found = read(folder), content(folder)
    for name, text in USERS.items():
        assert before.get(name) == found.get(name), f"{name} of the user was changed"
        assert name not in found or found[name] == text
    if state == "whole":
        assert found in (before, after), f"read without complaint, but has {sorted(found)}"
        state = "old" if found == before else "new"
    if found.get("config.json") == after["config.json"]:  # what other readers go by
        assert found == after, f"has its config.json, but only {sorted(found)}"
    if state == "absent":
        assert found == before, f"no checkpoint, but {sorted(found)}"
    return state


def killed(source: Path, folder: Path, scenario: str, at: int, torn: bool) -> bool:
    child = os.fork()
    if child == 0:
        try:
            Killer(at, torn).install()
            save(source, folder, scenario)
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), f"the child ended with {status}"
    return status != 0


def run(source: Path, scenario: str) -> dict[str, object]:
    states: collections.Counter[str] = collections.Counter()
    problems = []
    memory = Path("/dev/shm")  # where waiting for the disk takes no time
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        root = Path(name)
        old = root / "old"
        another = open_checkpoint(source.with_name("ct_pack_8bit_channel"))
        save_checkpoint(another, old, config={"model_type": "another"})
        prepare(root / "wanted", scenario, old)
        before = content(root / "wanted") if (root / "wanted").exists() else {}
        save(source, root / "wanted", scenario)
        after = content(root / "wanted")
        for torn in (False, True):
            at = 1
            while True:
                folder = root / "out"
                prepare(folder, scenario, old)
                if not killed(source, folder, scenario, at, torn):
                    assert content(folder) == after
                    break
                try:
                    state = judge(folder, before, after)
                    states[state] += 1
                    # The files that were left behind are in nobody's way.
                    again = {"overwrite": True} if state in ("incomplete", "new", "old") else {}
                    save_checkpoint(
                        open_checkpoint(source), folder, max_shard_bytes=SHARD_BYTES, **again
                    )
                    assert content(folder) == after, "saved again, it is another"
                    assert not list(folder.glob(".*"))
                except (AssertionError, FileExistsError) as error:
                    problems.append(f"event {at}: {error}")
                shutil.rmtree(folder)
                at += 1
            shutil.rmtree(root / "out")
            states["moments"] += at - 1
    return {"states": states, "problems": problems[:5]}


if __name__ == "__main__":
    print(json.dumps({scenario: run(Path(sys.argv[1]), scenario) for scenario in SCENARIOS}))
