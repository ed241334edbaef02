"""tools/wheel_faults.py finds each kind of fault that is planted in a small wheel, and none in the
wheel as it is; the sdist has every file; the version stands in one place."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import check_wheel
import fatbin
import wheel_faults
from requirements import project
from support import fake_wheels
from support.fake_wheels import CALL_C, METADATA, NAME, library_of_a_release, main_library, pack
from torch_headers import RELEASES

ROOT = wheel_faults.ROOT
Files = dict[str, bytes]
LIBRARY = wheel_faults.LIBRARY
RELEASE = wheel_faults.autograd_library(RELEASES[0])


@pytest.fixture(autouse=True)
def one_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """The libraries of all releases are checked alike; one is quick."""
    monkeypatch.setattr(wheel_faults, "RELEASES", RELEASES[:1])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return fake_wheels.contents(tmp_path_factory.mktemp("libraries"))


def test_a_wheel_as_it_must_be_has_no_faults(files: Files, tmp_path: Path) -> None:
    assert list(wheel_faults.faults(pack(files, tmp_path / NAME))) == []


CODE = tuple(sorted(wheel_faults.CODE))
# What is planted in a library -> (the library, what must be said of it).
IN_LIBRARIES: dict[str, tuple[fake_wheels.Library, str]] = {
    "a symbol of a newer glibc": (
        main_library(
            source=fake_wheels.MAIN + CALL_C.format("sem_wait"), versions={"sem_wait": "GLIBC_2.34"}
        ),
        "sem_wait needs GLIBC_2.34, newer than (2, 28)",
    ),
    "a symbol of a newer libstdc++": (
        main_library(
            source=fake_wheels.MAIN + CALL_C.format("_ZSt1f"), versions={"_ZSt1f": "GLIBCXX_3.4.29"}
        ),
        "_ZSt1f needs GLIBCXX_3.4.29, newer than (3, 4, 24)",
    ),
    "a symbol of Python": (
        main_library(source=fake_wheels.MAIN + CALL_C.format("PyLong_FromLong")),
        "undefined PyLong_FromLong",
    ),
    "the library of Python": (
        main_library(needs=("libtorch.so", "libtorch_cpu.so", "libpython3.11.so.1.0")),
        "needs libpython3.11.so.1.0",
    ),
    "a library that not every machine has": (
        main_library(needs=("libtorch.so", "libtorch_cpu.so", "libgomp.so.1")),
        "needs libgomp.so.1",
    ),
    "no libtorch.so": (
        main_library(needs=("libtorch_cpu.so",)),
        "libtorch.so is not in DT_NEEDED",
    ),
    "a CUDA shim that a CPU torch lacks": (
        main_library(source=fake_wheels.MAIN + CALL_C.format("aoti_torch_get_current_cuda_stream")),
        "aoti_torch_get_current_cuda_stream is strong",
    ),
    "a RUNPATH": (
        main_library(flags=("-Wl,--enable-new-dtags", "-Wl,-rpath,$ORIGIN/../torch/lib")),
        "has RUNPATH $ORIGIN/../torch/lib",
    ),
    "an RPATH": (
        main_library(flags=("-Wl,--disable-new-dtags", "-Wl,-rpath,/somewhere")),
        "has RPATH /somewhere",
    ),
    "a source file of the machine": (
        main_library(source=fake_wheels.MAIN + 'const char* file = "/build/csrc/gemm.cpp";'),
        "names /build/csrc/gemm.cpp",
    ),
    "a folder of somebody's home": (
        main_library(source=fake_wheels.MAIN + 'const char* file = "/opt/cache";'),
        "names /opt/cache",
    ),
    "PTX": (main_library(gpu_code=(*CODE, "ptx_90")), "has ptx_90"),
    "an architecture too many": (main_library(gpu_code=(*CODE, "sm_86")), "has sm_86"),
    "an architecture too few": (
        main_library(gpu_code=CODE[1:]),
        f"has no machine code for {CODE[0]}",
    ),
}
IN_LIBRARIES_OF_A_RELEASE = {
    "a symbol that is not of torch": (
        library_of_a_release(source=CALL_C.format("_ZNSt7collateIcED1Ev")),
        "undefined _ZNSt7collateIcED1Ev",
    ),
    "no libc10.so": (
        library_of_a_release(needs=("libtorch_cpu.so",)),
        "libc10.so is not in DT_NEEDED",
    ),
}


@pytest.mark.parametrize("planted", [*IN_LIBRARIES, *IN_LIBRARIES_OF_A_RELEASE])
def test_a_fault_of_a_library_is_found(files: Files, tmp_path: Path, planted: str) -> None:
    name = LIBRARY if planted in IN_LIBRARIES else RELEASE
    library, said = {**IN_LIBRARIES, **IN_LIBRARIES_OF_A_RELEASE}[planted]
    wheel = pack({**files, name: library.build(tmp_path / "library")}, tmp_path / NAME)
    found = list(wheel_faults.faults(wheel))
    assert found and all(fault.startswith(f"{name} ") for fault in found)
    assert any(said in fault for fault in found), found


def test_the_command_says_the_fault_and_fails(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = pack(without("mixed_gemm/py.typed")(files), tmp_path / NAME)
    assert check_wheel.main([str(wheel)]) == 1
    assert capsys.readouterr().out == f"{NAME}: lacks mixed_gemm/py.typed\n"


def changed(name: str, old: str, new: str) -> Callable[[Files], Files]:
    def change(files: Files) -> Files:
        assert old.encode() in files[name]
        return {**files, name: files[name].replace(old.encode(), new.encode())}

    return change


def without(name: str) -> Callable[[Files], Files]:
    return lambda files: {one: data for one, data in files.items() if one != name}


def with_file(name: str, data: bytes = b"") -> Callable[[Files], Files]:
    return lambda files: {**files, name: data}


IN_ARCHIVE: dict[str, tuple[Callable[[Files], Files], str]] = {
    **{
        f"no {name}": (without(f"{METADATA}/licenses/{name}"), f"lacks {METADATA}/licenses/{name}")
        for name in wheel_faults.LICENSES
    },
    "no main library": (without(LIBRARY), f"lacks {LIBRARY}"),
    "a release of torch without its library": (without(RELEASE), f"lacks {RELEASE}"),
    "no mark of types": (without("mixed_gemm/py.typed"), "lacks mixed_gemm/py.typed"),
    "a package of the tests": (with_file("tests/__init__.py"), "has tests/__init__.py"),
    "compiled Python": (with_file("mixed_gemm/a.pyc"), "has mixed_gemm/a.pyc"),
    "a folder of this machine": (
        with_file("mixed_gemm/paths.py", f"HOME = '{ROOT}'".encode()),
        f"mixed_gemm/paths.py names {ROOT}",
    ),
    "another version": (
        changed(f"{METADATA}/METADATA", f"Version: {project()['version']}", "Version: 9.9"),
        "METADATA: Version is 9.9",
    ),
    "another torch": (
        changed(f"{METADATA}/METADATA", "torch>=2.10", "torch>=2.12"),
        "METADATA does not require torch>=2.10",
    ),
    "the tag of one Python": (
        changed(f"{METADATA}/WHEEL", "py3-none", "cp311-cp311"),
        "WHEEL: Tag is ['cp311-cp311-",
    ),
}


@pytest.mark.parametrize("planted", IN_ARCHIVE)
def test_a_fault_of_the_archive_is_found(files: Files, tmp_path: Path, planted: str) -> None:
    change, said = IN_ARCHIVE[planted]
    (fault,) = wheel_faults.faults(pack(change(files), tmp_path / NAME))
    assert fault.startswith(said)


def test_a_file_that_was_changed_in_the_archive_is_found(files: Files, tmp_path: Path) -> None:
    later = {**files, f"{METADATA}/licenses/LICENSE": b"other"}
    pack(later, tmp_path / NAME, recorded=files)
    (fault,) = wheel_faults.faults(tmp_path / NAME)
    assert fault == f"RECORD has another sha256 of {METADATA}/licenses/LICENSE, or none"


def test_a_wheel_of_another_name_or_too_large_is_found(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linux = NAME.replace("manylinux_2_28", "linux")
    (fault,) = wheel_faults.faults(pack(files, tmp_path / linux))
    assert fault == f"must be called {NAME}"
    monkeypatch.setattr(wheel_faults, "MOST_BYTES", 1000)
    (fault,) = wheel_faults.faults(pack(files, tmp_path / NAME))
    assert "at most 0 are allowed" in fault


def test_gpu_code_is_counted_in_every_container(tmp_path: Path) -> None:
    two = fake_wheels.gpu_code("sm_80", "ptx_90") + bytes(7) + fake_wheels.gpu_code("sm_90")
    assert [(x.kind, x.arch) for x in fatbin.entries(two)] == [
        ("sm", 80),
        ("ptx", 90),
        ("sm", 90),
    ]


def test_the_first_products_of_an_installation_are_right(repository: Path) -> None:
    """With the library under test: what tools/install_times.py runs where only a wheel is."""
    paths = os.pathsep.join((str(repository), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, repository / "tools" / "first_product.py"],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    products = json.loads(done.stdout)["products"]
    assert len(products) >= 6 and all(products.values())


# --- the sdist and the version -------------------------------------------------------------------


def tracked() -> list[str]:
    try:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"not a checkout of git: {error}")
    return [name for name in listed.splitlines() if (ROOT / name).is_file()]


def test_the_sdist_has_all_that_git_knows(tmp_path: Path) -> None:
    names = tracked()
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)
    code = "import setuptools.build_meta as b; print(b.build_sdist('dist'))"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)
    (sdist,) = (tmp_path / "dist").iterdir()
    with tarfile.open(sdist) as archive:
        packed = {one.name.partition("/")[2] for one in archive.getmembers() if one.isfile()}
    made = {name for name in packed if ".egg-info/" in name} | {"PKG-INFO", "setup.cfg"}
    assert packed - made == set(names)


def test_the_version_stands_in_one_place() -> None:
    version = re.escape(project()["version"])
    own = re.compile(rf"(mixed[_-]gemm\W{{1,4}}|^version\W+|__version__\W+)v?{version}\b", re.M)
    where = []
    for name in tracked():
        if name.startswith(("benchmarks/results/", "tests/data/")):
            continue
        text = (ROOT / name).read_text(errors="replace")
        where += [name] * len(own.findall(text))
    assert where == ["pyproject.toml"]
