"""Where save_checkpoint writes: all or nothing, nothing of the user's, never the source."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.scripts import report_of

from mixed_gemm.formats import CheckpointError, CheckpointWarning, open_checkpoint, save_checkpoint
from mixed_gemm.formats.target import INCOMPLETE, STAGING
from mixed_gemm.quantization import DenseCheckpoint


@pytest.fixture
def awq(repository: Path, tmp_path: Path) -> Path:
    """A copy that a test may change, with a tokenizer."""
    source = shutil.copytree(repository / "tests" / "data" / "awq_gemm", tmp_path / "source")
    (source / "tokenizer.json").write_text('{"from": "source"}')
    (source / "generation_config.json").write_text('{"from": "source"}')
    return source


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_saves_killed_at_every_moment_leave_all_or_nothing(repository: Path) -> None:
    checkpoint = repository / "tests" / "data" / "ct_int_8bit"
    report = report_of("killed_saves.py", checkpoint, repository=repository)
    for scenario, found in report.items():
        assert found["problems"] == [], scenario
        states = found["states"]
        assert states["moments"] > 60 and states["incomplete"] > 5 and states["new"] > 0
        assert sum(states.values()) == 2 * states["moments"]


# --- files of the user -------------------------------------------------------------------------

IN_THE_WAY = (
    *("config.json", "tokenizer.json", "generation_config.json"),
    *("model.safetensors", "model.safetensors.index.json", "other.safetensors"),
)


@pytest.mark.parametrize("name", IN_THE_WAY)
@pytest.mark.parametrize("link", [False, True])
def test_save_overwrites_nothing_unless_asked(
    awq: Path, tmp_path: Path, name: str, link: bool
) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    out.mkdir()
    elsewhere.write_text("mine")
    (out / "README.md").write_text("mine")
    if link:
        (out / name).symlink_to(elsewhere)
    else:
        (out / name).write_text("mine")
    before = content(out)
    with pytest.raises(FileExistsError, match=rf"out holds {name} already.*overwrite=True \(--f"):
        save_checkpoint(open_checkpoint(awq), out)
    assert content(out) == before and sorted(names_in(out)) == sorted([name, "README.md"])
    save_checkpoint(open_checkpoint(awq), out, overwrite=True)
    assert elsewhere.read_text() == "mine"
    assert (out / "README.md").read_text() == "mine"
    assert json.loads((out / "tokenizer.json").read_text()) == {"from": "source"}
    assert len(open_checkpoint(out)) == 7
    assert not (out / "other.safetensors").exists()


def test_save_overwrite_leaves_no_shard_of_the_old(awq: Path, tmp_path: Path) -> None:
    save_checkpoint(open_checkpoint(awq), tmp_path / "out", max_shard_bytes=10_000)
    save_checkpoint(open_checkpoint(awq), tmp_path / "new")
    save_checkpoint(open_checkpoint(awq), tmp_path / "out", overwrite=True)
    assert content(tmp_path / "out") == content(tmp_path / "new")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_save_over_a_folder_is_refused_before_anything_moves(
    awq: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "out" / name).mkdir(parents=True)
    with pytest.raises(FileExistsError, match=rf"{name} is a folder"):
        save_checkpoint(open_checkpoint(awq), tmp_path / "out", overwrite=True)
    assert names_in(tmp_path / "out") == [name]


def test_save_over_what_is_no_folder_is_refused(awq: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "nowhere").symlink_to(tmp_path / "absent")
    for name in ("file", "nowhere"):
        with pytest.raises(NotADirectoryError, match=rf"{name} is no folder"):
            save_checkpoint(open_checkpoint(awq), tmp_path / name, overwrite=True)
    assert (tmp_path / "file").read_text() == "mine" and not (tmp_path / "absent").exists()


def test_save_into_what_appeared_meanwhile_is_refused(
    awq: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mixed_gemm.formats.ct_encode import Groups as module

    def configuration(*args: object, **options: object) -> dict[str, object]:
        (tmp_path / "out" / "tokenizer.json").write_text("mine")
        return {}

    monkeypatch.setattr(module, "configuration", configuration)
    with pytest.raises(FileExistsError, match=r"holds tokenizer\.json already"):
        save_checkpoint(open_checkpoint(awq), tmp_path / "out")
    assert content(tmp_path / "out") == {"tokenizer.json": b"mine"}


def test_two_saves_into_one_folder_are_one(awq: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    descriptor = os.open(tmp_path / "out", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(FileExistsError, match=r"another process is saving into"):
        save_checkpoint(open_checkpoint(awq), tmp_path / "out", overwrite=True)
    os.close(descriptor)
    save_checkpoint(open_checkpoint(awq), tmp_path / "out")


# --- the source --------------------------------------------------------------------------------


def spelled(source: Path) -> Iterator[tuple[str, Path]]:
    root = source.parent
    yield "itself", source
    yield "a trailing slash", Path(f"{source}/")
    yield "relative", Path(os.path.relpath(source))
    yield "dots", root / "somewhere" / ".." / "source" / "."
    (root / "link").symlink_to(source)
    yield "a link", root / "link"
    (root / "again").symlink_to(root / "link")
    yield "a link to a link", root / "again"
    (root / "parent").symlink_to(root)
    yield "below a link", root / "parent" / "source"
    hard = root / "hard"
    hard.mkdir()
    (hard / "weights.safetensors").hardlink_to(source / "model.safetensors")
    yield "a hard link to its weights", hard
    soft = root / "soft"
    soft.mkdir()
    (soft / "tokenizer.json").symlink_to(source / "tokenizer.json")
    yield "a link to its tokenizer", soft


def test_save_onto_the_source_is_refused_in_every_spelling(awq: Path, tmp_path: Path) -> None:
    (tmp_path / "somewhere").mkdir()
    before = content(awq)
    for spelling, target in spelled(awq):
        for given in (awq, awq / "model.safetensors"):
            if given != awq and "tokenizer" in spelling:
                continue  # a single file has none
            with pytest.raises(FileExistsError, match=r"is the same as .*, which is being read"):
                save_checkpoint(open_checkpoint(given), target, overwrite=True)
            assert content(awq) == before, spelling
    assert not [name for name in names_in(awq) if name.startswith(".")]


def test_save_a_dense_checkpoint_onto_itself_is_refused(awq: Path, tmp_path: Path) -> None:
    from safetensors.torch import save_file
    from support import tiny_llama

    dense = tmp_path / "dense"
    dense.mkdir()
    name, (n, k) = next(iter(tiny_llama.LINEARS.items()))
    weight = tiny_llama.grid(name, n, k, 4, 32, False).weight()
    save_file({f"{name}.weight": weight}, dense / "model.safetensors")
    before = content(dense)
    with pytest.raises(FileExistsError, match="which is being read"):
        save_checkpoint(DenseCheckpoint(dense, group_size=32), dense, overwrite=True)
    assert content(dense) == before
    save_checkpoint(DenseCheckpoint(dense, group_size=32), dense / "below")


# --- what goes wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("failing", ["write", "fsync"])
def test_save_to_a_full_disk_is_a_message_and_leaves_nothing(
    awq: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, existing: bool
) -> None:
    """At each of its writes and synchronisations in turn."""
    real: Callable[..., int] = getattr(os, failing)
    left = 0

    def full(*args: object) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args)

    monkeypatch.setattr(os, failing, full)
    for allowed in range(100):
        out = tmp_path / f"out{allowed}"
        if existing:
            out.mkdir()
            (out / "README.md").write_text("mine")
        left = allowed
        try:
            save_checkpoint(open_checkpoint(awq), out, max_shard_bytes=30_000)
            break
        except OSError as error:
            assert error.errno == errno.ENOSPC and "No space left" in str(error)
        if (out / "config.json").exists():  # only the last synchronisations are to come
            assert failing == "fsync" and (out / "model.safetensors.index.json").exists()
        elif (out / INCOMPLETE).exists():
            assert failing == "fsync"
        else:
            assert out.exists() == existing
            assert not existing or names_in(out) == ["README.md"]
    assert 5 < allowed < 99 and len(open_checkpoint(out)) == 7


def test_save_beyond_the_limit_of_a_file_names_it(awq: Path, tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limit[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: '.*model-00001"):
            save_checkpoint(open_checkpoint(awq), tmp_path / "deep" / "er")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert not (tmp_path / "deep").exists()


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_save_that_fails_leaves_nothing(
    awq: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    from mixed_gemm.formats.ct_encode import Groups as module

    def fail(*args: object, **options: object) -> None:
        raise kind("stop")

    monkeypatch.setattr(module, "configuration", fail)
    with pytest.raises(kind):
        save_checkpoint(open_checkpoint(awq), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_killed_saves_left_is_told_and_replaced(awq: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / STAGING).mkdir(parents=True)
    (out / STAGING / "model-00001.safetensors.part").write_text("half")
    with pytest.raises(CheckpointError, match=r"no \.safetensors"):
        open_checkpoint(out)
    save_checkpoint(open_checkpoint(awq), out)
    assert not (out / STAGING).exists()
    (out / INCOMPLETE).mkdir()
    for path in (out, out / "model.safetensors"):
        with pytest.raises(CheckpointError, match=r"out: is incomplete: saving .* interrupted"):
            open_checkpoint(path)
        with pytest.raises(CheckpointError, match=r"is incomplete"):
            DenseCheckpoint(path)
    with pytest.raises(FileExistsError, match=r"holds a save that was interrupted"):
        save_checkpoint(open_checkpoint(awq), out)
    save_checkpoint(open_checkpoint(awq), out, overwrite=True)
    assert len(open_checkpoint(out)) == 7


# --- companions --------------------------------------------------------------------------------


def test_companions_that_are_no_files_of_the_folder_are_named_and_skipped(
    awq: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("secret")
    (awq / "leaving.json").symlink_to(tmp_path / "secret")
    (awq / "dangling.txt").symlink_to(tmp_path / "absent")
    (awq / "circle.txt").symlink_to(awq / "circle.txt")
    (awq / "device.txt").symlink_to("/dev/zero")
    (awq / "inside.txt").symlink_to("tokenizer.json")
    (awq / "folder.model").mkdir()
    os.mkfifo(awq / "pipe.json")
    with pytest.warns(CheckpointWarning, match="is not copied: it is") as warned:
        save_checkpoint(open_checkpoint(awq), tmp_path / "out")
    texts = {Path(str(x.message).split(":")[0]).name.split()[0]: str(x.message) for x in warned}
    assert set(texts) == {
        "leaving.json", "dangling.txt", "circle.txt", "device.txt", "folder.model", "pipe.json",
    }  # fmt: skip
    assert "outside of the folder" in texts["leaving.json"]
    assert "a link to nothing" in texts["dangling.txt"]
    assert "a device" in texts["device.txt"] and "a folder" in texts["folder.model"]
    assert "a pipe" in texts["pipe.json"]
    assert set(content(tmp_path / "out")) == {
        "config.json", "model.safetensors", "generation_config.json", "tokenizer.json",
        "inside.txt",
    }  # fmt: skip
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())


@pytest.mark.parametrize("below", ["", "awq-int4"])
def test_companions_of_a_hub_cache_are_followed_to_its_blobs(
    awq: Path, tmp_path: Path, below: str
) -> None:
    model = tmp_path / "models--x--y"
    snapshot, blobs = model / "snapshots" / "0123abcd" / below, model / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, file in enumerate(sorted(awq.iterdir())):
        file.rename(blobs / str(number))
        (snapshot / file.name).symlink_to(os.path.relpath(blobs / str(number), snapshot))
    save_checkpoint(open_checkpoint(snapshot), tmp_path / "out")
    assert json.loads((tmp_path / "out" / "tokenizer.json").read_text()) == {"from": "source"}
    assert len(open_checkpoint(tmp_path / "out")) == 7
