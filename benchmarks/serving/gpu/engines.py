"""How vLLM's engine is started on a GPU, and which kernels its layers hold then."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..engine import ENVIRONMENT as ON_CPU
from ..installed import ROOT, write_metadata

PLACES = ("off", "first")  # vLLM's own kernels alone; ours before them
MODES = ("eager", "graphs")
ATTENTION = "FLASH_ATTN"
# Ranks sum without NVLink multicast: where one host is shared, a program that uses it and dies can
# leave the GPUs of all in disorder.
WITHOUT_MULTICAST = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
}
# A machine without network: nothing is asked of it, and ranks meet on the machine itself.
ENVIRONMENT = {
    **{k: v for k, v in ON_CPU.items() if k != "VLLM_CPU_KVCACHE_SPACE"},
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # as vLLM has it: asking for GPUs starts no CUDA
    "TRANSFORMERS_VERBOSITY": "error",
    "PYTHONUNBUFFERED": "1",
    **WITHOUT_MULTICAST,
}


def environment(work: Path, name: str, place: str, threads: int) -> dict[str, str]:
    """Make the environment of a process with an engine.

    Args:
        work: where the entry point of the plug-in and compiled code go. name: keeps what inductor
            compiles for one engine apart; kernels of Triton, which take 15 s of every start, lie
            under their hashes in one folder for all. threads: of the CPU, for compiling.
    """
    path = [str(write_metadata(work / "installed")), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {
        **ENVIRONMENT,
        "PYTHONPATH": os.pathsep.join(x for x in path if x),
        "MIXED_GEMM_VLLM": place,
        "VLLM_CACHE_ROOT": str(work / "cache" / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(work / "cache" / name),
        "TRITON_CACHE_DIR": str(work / "cache" / "triton"),
        "TORCHINDUCTOR_COMPILE_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
    }


def preload() -> None:
    """Import vLLM, for engines in forks of this process."""
    import torch
    from vllm import LLM

    cuda: Any = torch.cuda
    if cuda.is_initialized():
        raise RuntimeError(f"importing {LLM.__name__} has started CUDA, which outlives no fork")


def kernels(llm: Any) -> dict[str, int]:
    """Count the layers of the model that hold each class, in the first rank."""
    found: dict[str, int] = llm.apply_model(held)[0]
    return found


def held(model: Any) -> dict[str, int]:
    """Classes of kernels that layers hold; where they hold none, of what runs them."""
    found: Counter[str] = Counter()
    for module in model.modules():
        for owner in (getattr(module, "quant_method", None), getattr(module, "scheme", None)):
            if owner is None or type(owner).__name__ == "UnquantizedEmbeddingMethod":
                continue
            names = [type(x).__name__ for x in vars(owner).values()]
            ended = [x for x in names if x.endswith(("Kernel", "KernelMeasuredAhead"))]
            found.update(ended or [type(owner).__name__])
    return dict(found)


def ours(names: Iterable[str]) -> bool:
    """Tell whether a class of ours is among them."""
    return any(x.startswith("MixedGemm") for x in names)
