"""A library that is missing or refused: the import lives, the first call says what to do."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.fake_wheels import CALL_C, compile_c, main_library

import mixed_gemm

CALL = """
import warnings
warnings.simplefilter("error")
import mixed_gemm, torch
from torch import nn
print(mixed_gemm.Scheme.w8a8(), mixed_gemm.__version__)
print(mixed_gemm.env().error is not None)
calls = [
    lambda: mixed_gemm.pack_weights(torch.zeros(4, 4, dtype=torch.int8), 4),
    lambda: mixed_gemm.Linear.from_float(nn.Linear(32, 32), group_size=32),
    lambda: mixed_gemm.Linear(32, 32, group_size=32)(torch.zeros(1, 32)),
    lambda: mixed_gemm.plan(1, 64, 64),
    lambda: mixed_gemm.quantize_(nn.Sequential(nn.Linear(32, 32)), group_size=32),
]
for call in calls:
    try:
        call()
    except ImportError as error:
        print(error)
    else:
        raise SystemExit("no ImportError")
"""


def run(code: str, repository: Path, **environment: str) -> list[str]:
    # The repository itself, so that the package is the one under test, installed or not.
    path = os.pathsep.join((str(repository), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_missing_library_keeps_the_import_alive(repository: Path, tmp_path: Path) -> None:
    missing = tmp_path / "libmixed_gemm.so"
    first, has_error, *errors = run(CALL, repository, MIXED_GEMM_LIBRARY=str(missing))
    assert first.startswith("int8, per channel, symmetric; int8 activations")
    assert has_error == "True"
    assert len(errors) == 5 and len(set(errors)) == 1
    for text in (
        str(missing),
        "was not found",
        f"torch {torch.__version__}",
        "pip install .",
        "Hint",
    ):
        assert text in errors[0]


def test_refused_library_names_the_cause(repository: Path, tmp_path: Path) -> None:
    broken = tmp_path / "libmixed_gemm.so"
    broken.write_text("this is not an ELF file")
    _, has_error, *errors = run(CALL, repository, MIXED_GEMM_LIBRARY=str(broken))
    assert has_error == "True"
    assert len(errors) == 5
    for text in (str(broken), "could not be loaded", f"torch {torch.__version__}", "Hint"):
        assert text in errors[0]


# What a library needs that is not here -> what is said of it, and what is advised.
UNMET = {
    "glibc": (
        main_library(source=CALL_C.format("sem_wait"), versions={"sem_wait": "GLIBC_9.8"}),
        ("needs GLIBC 9.8 or newer", f"glibc is {platform.libc_ver()[1]}", "pip install the wheel"),
    ),
    "libstdc++": (
        main_library(source=CALL_C.format("_ZSt1f"), versions={"_ZSt1f": "GLIBCXX_9.8"}),
        ("needs GLIBCXX 9.8 or newer", "libstdc++ is older", "pip install the wheel"),
    ),
    "torch": (
        main_library(source=CALL_C.format("aoti_torch_of_tomorrow")),
        ("needs aoti_torch_of_tomorrow", "torch of this process", "install a torch >= 2.10"),
    ),
}


@pytest.mark.parametrize("unmet", UNMET)
def test_what_a_library_needs_and_does_not_find_is_named(
    repository: Path, tmp_path: Path, unmet: str
) -> None:
    library, texts = UNMET[unmet]
    path = tmp_path / "libmixed_gemm.so"
    path.write_bytes(library.build(tmp_path / "made"))
    _, _, *errors = run(CALL, repository, MIXED_GEMM_LIBRARY=str(path))
    for text in (str(path), f"torch {torch.__version__}", "Hint", *texts):
        assert text in errors[0]


ASK_A_GPU = """
import torch, mixed_gemm
try:
    torch.ops.mixed_gemm._device(0)
except Exception as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("version", "here"),
    [(12040, "this machine's is of CUDA 12.4"), (None, "this machine has none")],
)
def test_a_driver_that_is_too_old_or_missing_is_named(
    repository: Path, tmp_path: Path, version: int | None, here: str
) -> None:
    if not mixed_gemm.env().build["cuda"]:
        pytest.skip("this build has no CUDA code, and asks no driver")
    source = tmp_path / "driver.c"
    answer = "" if version is None else f"*version = {version}; return 0;"
    source.write_text(f"int cuDriverGetVersion(int* version) {{ {answer} return 3; }}\n")
    compile_c(source, tmp_path / "libcuda.so.1")
    (said,) = run(ASK_A_GPU, repository, LD_LIBRARY_PATH=str(tmp_path))
    for text in ("need an NVIDIA driver of CUDA", "or newer", here, "install a newer driver"):
        assert text in said


def test_a_gpu_without_machine_code_is_refused_with_the_way_out() -> None:
    build = mixed_gemm.env().build
    reason = mixed_gemm.why_not(1, 64, 64, device="cuda:sm=110,sms=20,smem=232448")
    if not build["cuda"]:
        assert reason is None  # it plans for every GPU
        return
    for text in ("machine code for compute capability 8.0", "this GPU has 11.0", "LIST=11.0"):
        assert text in str(reason)


def test_library_without_the_ops_is_refused(repository: Path) -> None:
    # Some other library that loads well: torch's own.
    other = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not other.exists():
        pytest.skip("this torch has no libtorch_cpu.so")
    _, _, *errors = run(CALL, repository, MIXED_GEMM_LIBRARY=str(other))
    assert "does not register mixed_gemm::fpA_intB_gemm" in errors[0]


def test_cpu_build_beside_a_gpu_says_so_once(repository: Path) -> None:
    code = """
import warnings, torch
torch.version.cuda = "13.0"
torch.cuda.device_count = lambda: 1
has = torch._C._dispatch_has_kernel_for_dispatch_key
torch._C._dispatch_has_kernel_for_dispatch_key = lambda name, key: key != "CUDA" and has(name, key)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import mixed_gemm
    mixed_gemm.pack_weights(torch.zeros(4, 4, dtype=torch.int8), 4)
print(len(caught))
print(caught[0].message)
"""
    count, message = run(code, repository)
    assert count == "1"
    assert "built without CUDA" in message and "Hint" in message


def test_import_does_not_initialise_cuda_nor_pull_heavy_packages(repository: Path) -> None:
    code = (
        "import sys, torch\nbefore = set(sys.modules)\nimport mixed_gemm\n"
        "new = {m.split('.')[0] for m in set(sys.modules) - before}\n"
        "print(sorted(new & {'transformers', 'rich', 'safetensors', 'numpy', 'peft', 'typer'}))\n"
        "print(torch.cuda.is_initialized())"
    )
    assert run(code, repository)[-2:] == ["[]", "False"]
