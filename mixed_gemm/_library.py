"""Finds and loads libmixed_gemm.so, once. ``import mixed_gemm`` survives a library that is missing
or refused by torch; the first op call then raises one ImportError that says what to do.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import warnings
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

import torch

FILE_NAME = "libmixed_gemm.so"
OVERRIDE = "MIXED_GEMM_LIBRARY"
AUTOGRAD = "MIXED_GEMM_AUTOGRAD"  # "python": derivatives by the kernels in Python, for tests
MIN_TORCH = (2, 10)
_PROBE = "mixed_gemm::fpA_intB_gemm"


def package_version() -> str:
    """The installed version, or "0+unknown" in a source tree that was never installed."""
    try:
        return version("mixed-gemm")
    except PackageNotFoundError:
        return "0+unknown"


def candidates() -> list[Path]:
    """Where the library may be, in order. The override stands alone: a wrong path must not be
    repaired silently by another build that happens to be installed."""
    override = os.environ.get(OVERRIDE)
    if override:
        return [Path(override)]
    package = Path(__file__).resolve().parent
    paths = [package / FILE_NAME]
    # An editable install keeps the .py files here and the library in site-packages.
    with contextlib.suppress(PackageNotFoundError):
        paths.append(Path(str(distribution("mixed-gemm").locate_file(f"mixed_gemm/{FILE_NAME}"))))
    return list(dict.fromkeys(paths))


def _versions() -> str:
    return (
        f"mixed_gemm {package_version()}, torch {torch.__version__}, "
        f"Python {platform.python_version()}, {platform.machine()}"
    )


def _too_old() -> bool:
    return tuple(int(x) for x in torch.__version__.split(".")[:2]) < MIN_TORCH


def _is_registered() -> bool:
    # Loaded already, by a C++ host or by another path: registering twice would abort.
    return bool(torch._C._dispatch_has_kernel(_PROBE))


def _why_not_loaded(path: Path, error: OSError | RuntimeError) -> str:
    """What the loader said, as what is needed, what is there, and what to do."""
    said = str(error.__cause__ or error)  # torch >= 2.13 says less than the loader
    if old := re.search(r"version `(GLIBC|GLIBCXX|CXXABI)_([\d.]+)' not found", said):
        glibc = f"glibc is {platform.libc_ver()[1]}"
        here = glibc if old[1] == "GLIBC" else "libstdc++ is older"
        return (
            f"mixed_gemm: {path} needs {old[1]} {old[2]} or newer, and this machine's {here} "
            f"({_versions()}). Hint: pip install the wheel of mixed_gemm, for which glibc 2.28 is "
            "enough, or build it here: `pip install .` in the source tree"
        )
    if symbol := re.search(r"undefined symbol: (\w+)", said):
        return (
            f"mixed_gemm: {path} needs {symbol[1]}, and the torch of this process does not have it "
            f"({_versions()}). Hint: install a torch >= {'.'.join(map(str, MIN_TORCH))} of PyPI or "
            "of PyTorch's own index, or build mixed_gemm with this one: `pip install .` in the "
            "source tree"
        )
    return (
        f"mixed_gemm: {path} could not be loaded: {said} ({_versions()}). Hint: it must be a "
        "library for Linux and this kind of processor; pip install the wheel of mixed_gemm, or "
        "build it here: `pip install --force-reinstall --no-deps .` in the source tree"
    )


def _load() -> tuple[Path | None, str | None]:
    """(path, None) when the ops are there, (path or None, reason) when they are not."""
    if _is_registered():
        return None, None
    if _too_old():
        return None, (
            f"mixed_gemm needs torch >= {'.'.join(map(str, MIN_TORCH))} (LibTorch stable ABI); "
            f"found {_versions()}. Hint: pip install -U torch"
        )
    tried = candidates()
    path = next((p for p in tried if p.is_file()), None)
    if path is None:
        return None, (
            f"mixed_gemm: {FILE_NAME} was not found in {', '.join(map(str, tried))} "
            f"({_versions()}). Hint: `pip install .` in the source tree builds it; "
            f"{OVERRIDE}=/path/to/{FILE_NAME} points to a build of yours"
        )
    try:
        torch.ops.load_library(str(path))  # type: ignore[no-untyped-call]
    except (OSError, RuntimeError) as error:
        return path, _why_not_loaded(path, error)
    if not _is_registered():
        return path, f"mixed_gemm: {path} loaded but does not register {_PROBE} ({_versions()})"
    return path, None


def _load_autograd(library: Path | None) -> bool:
    """Whether derivatives are recorded in C++: by a library beside the first one that was built
    with this release of torch (csrc/ops/autograd), whether for CPUs or for CUDA. Without it kernels
    in Python do all of it."""
    if library is None or os.environ.get(AUTOGRAD) == "python":
        return False
    release = re.sub(r"^([\d.]+)\+.*", r"\1", torch.__version__)  # as CMakeLists.txt names it
    beside = library.with_name(f"libmixed_gemm_autograd-{release}.so")
    if not beside.is_file():
        return False
    try:
        torch.ops.load_library(str(beside))  # type: ignore[no-untyped-call]
    except (OSError, RuntimeError) as reason:
        warnings.warn(f"mixed_gemm: {beside} could not be loaded: {reason}", stacklevel=3)
        return False
    return True


path, error = _load()
available = error is None
has_autograd = available and _load_autograd(path)
has_cuda = available and bool(torch._C._dispatch_has_kernel_for_dispatch_key(_PROBE, "CUDA"))

# device_count() asks NVML first, so it does not initialise CUDA (which would break a later fork).
if available and not has_cuda and torch.version.cuda is not None and torch.cuda.device_count() > 0:
    warnings.warn(
        "mixed_gemm was built without CUDA: its ops run on CPU tensors only. Hint: install it "
        "where nvcc is on PATH (or `pip install nvidia-cuda-nvcc`) to build the GPU kernels",
        stacklevel=3,
    )


def require() -> None:
    """Raise the ImportError with the reason unless the ops are loaded."""
    if error is not None:
        raise ImportError(error)
