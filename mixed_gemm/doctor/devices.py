"""Where ops may run: the CPU, each GPU that torch sees, and why others are not among them."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

import torch

from .. import _library
from ..selection.planning import why_not

_TEXT = 96  # bytes that NVML asks for a version
INSTALL_TORCH = "pip install torch, of PyPI or of the index for this driver at pytorch.org"


@dataclass(frozen=True)
class Device:
    """A place for tensors, as torch names it.

    Attributes:
        name: "cpu", "cuda:0". refusal: why no op of the library runs there, or None.
    """

    name: str
    refusal: str | None = None


def driver_cuda() -> tuple[int, int] | None:
    """Return the newest CUDA that the NVIDIA driver serves, or None without a driver. CUDA is not
    initialised."""
    number = ctypes.c_int(0)
    try:
        answer = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return None
    return None if answer or not number.value else (number.value // 1000, number.value % 1000 // 10)


def driver_version() -> str | None:
    """Return the release of the NVIDIA driver, as "580.82.07"; None where NVML does not say."""
    text = ctypes.create_string_buffer(_TEXT)
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2():
            return None
        try:
            failed = nvml.nvmlSystemGetDriverVersion(text, _TEXT)
        finally:
            nvml.nvmlShutdown()
    except (OSError, AttributeError):
        return None
    return None if failed else text.value.decode(errors="replace")


def driver() -> str | None:
    """Describe the NVIDIA driver, or return None."""
    cuda = driver_cuda()
    if cuda is None:
        return None
    return f"{driver_version() or 'of an unknown version'}, for CUDA {cuda[0]}.{cuda[1]} and older"


def why_no_gpu() -> str | None:
    """Tell why torch sees no GPU, and what to do; None where it sees one."""
    if torch.cuda.is_available() and torch.cuda.device_count():
        return None
    cuda = driver_cuda()
    if cuda is None:
        return "there is no NVIDIA driver (libcuda.so.1), so ops run on the CPU"
    here, needed = f"{cuda[0]}.{cuda[1]}", torch.version.cuda
    if needed is None:
        return (
            f"torch {torch.__version__} has no CUDA, and the driver serves CUDA {here}: "
            f"{INSTALL_TORCH}"
        )
    if int(needed.split(".")[0]) > cuda[0]:
        return (
            f"torch {torch.__version__} needs a driver for CUDA {needed}, and this one serves "
            f"{here}: update the driver, or {INSTALL_TORCH}"
        )
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None:
        return f"torch sees no GPU: CUDA_VISIBLE_DEVICES is {hidden!r}"
    return "torch sees no GPU, though there is a driver: does nvidia-smi -L list one?"


def refusal_of(name: str) -> str | None:
    """Tell why the library runs no op on the CPU or a GPU that torch sees, as the library says
    it."""
    if not _library.available:
        return "the library did not load"
    if name == "cpu":
        return None
    if not _library.has_cuda:
        return (
            "the library was built without CUDA kernels: pip install the wheel of mixed_gemm, or "
            "build it where nvcc is: `pip install .` in the source tree"
        )
    try:
        refused = why_not(16, 4096, 4096, device=name)
    except (ValueError, RuntimeError) as error:
        return str(error)
    return None if refused is None else "; ".join(refused.reasons)


def devices() -> tuple[Device, ...]:
    """Find the CPU and every GPU that torch sees."""
    count = 0 if why_no_gpu() else torch.cuda.device_count()
    names = ["cpu", *(f"cuda:{index}" for index in range(count))]
    return tuple(Device(name, refusal_of(name)) for name in names)
