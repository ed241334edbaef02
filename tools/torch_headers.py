"""The C++ headers of every release of torch that the package is for, without installing one.

    python tools/torch_headers.py FOLDER     makes FOLDER/2.10.0/include and so on
    python tools/torch_headers.py check      exit status 1 where the index has a release that
                                             RELEASES lacks

Of each wheel on the index the headers alone are fetched, as one range of the archive (10 MB of 200
to 900), and are kept: a folder that is there already is not fetched again. The libraries are not
needed to link (cmake/TorchRelease.cmake).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlparse

from vllm_interface import address, remote

RELEASES = ("2.10.0", "2.11.0", "2.12.0", "2.12.1", "2.13.0", "2.14.0", "2.14.1", "2.15.0")
HEADERS = "torch/include/"


@contextmanager
def wheel(url: str) -> Iterator[zipfile.ZipFile]:
    if url.startswith("file:"):
        with zipfile.ZipFile(unquote(urlparse(url).path)) as archive:
            yield archive
        return
    with remote(url) as archive:
        members = [one for one in archive.infolist() if one.filename.startswith(HEADERS)]
        begin = min(one.header_offset for one in members)
        # Bytes for the last one's own header and name, which may be longer than the index says.
        end = max(one.header_offset + one.compress_size + 1024 for one in members)
        assert archive.fp is not None
        archive.fp.seek(begin)
        archive.fp.read(end - begin)  # one request for all of them
        yield archive


def fetch(release: str, folder: Path) -> None:
    found, url = address(f"torch==={release}")  # without a local part, as on PyPI
    scratch = folder.with_name(f".{folder.name}")
    shutil.rmtree(scratch, ignore_errors=True)
    with wheel(url) as archive:
        names = [name for name in archive.namelist() if name.startswith(HEADERS)]
        archive.extractall(scratch, names)
    (scratch / "torch" / "include").rename(scratch / "include")
    (scratch / "torch").rmdir()
    scratch.rename(folder)
    print(f"{found}: {len(names)} headers", flush=True)


def released() -> set[str]:
    """Choose from the index the releases that the package is for."""
    said = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", "torch"],
        check=True, text=True, stdout=subprocess.PIPE,
    ).stdout  # fmt: skip
    versions = re.findall(r"\d+\.\d+\.\d+", said.partition("Available versions:")[2])
    return {one for one in versions if numbers(one) >= numbers(RELEASES[0])}


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def main(argument: str) -> int:
    if argument == "check":
        lacking = sorted(released() - {*RELEASES}, key=numbers)
        print(f"not in RELEASES of {Path(__file__).name}: {', '.join(lacking) or 'none'}")
        return int(bool(lacking))
    for release in RELEASES:
        folder = Path(argument) / release
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            fetch(release, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
