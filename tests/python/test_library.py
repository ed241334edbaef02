"""A library that is missing or refused: the import lives, the first call says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

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
