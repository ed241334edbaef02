"""float8 products of other libraries, where their wheels are installed: MSLK with scales of rows
and columns (mslk-cuda 1.1.0), DeepGEMM with scales of blocks (sgl-deep-gemm 0.1.0). As their own
benchmarks call them; scales in the layout that they want are made before.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import partial

import torch

from mixed_gemm.selection.timing import Call

NAMES = ("mslk", "deep_gemm")


def mslk_rows(
    a: torch.Tensor, weights: Sequence[torch.Tensor], scale_a: torch.Tensor, scale_b: torch.Tensor
) -> list[Call]:
    """bfloat16 ``[M, N]``. scale_a ``[M]``, scale_b ``[N]``. Its sums stay in the tensor core."""
    importlib.import_module("mslk.gemm")
    op = torch.ops.mslk.f8f8bf16_rowwise
    return [partial(op, a, w, scale_a, scale_b, use_fast_accum=True) for w in weights]


def deep_gemm_blocks(
    a: torch.Tensor, weights: Sequence[torch.Tensor], scale_a: torch.Tensor, scale_b: torch.Tensor
) -> list[Call]:
    """bfloat16 ``[M, N]``. scale_a ``[M, G]``, scale_b ``[N / 128, G]``."""
    deep_gemm = importlib.import_module("deep_gemm")
    layout = importlib.import_module("deep_gemm.utils.layout")
    of_a = layout.get_mn_major_tma_aligned_tensor(scale_a)
    out = torch.empty(a.shape[0], weights[0].shape[0], dtype=torch.bfloat16, device=a.device)

    def call(w: torch.Tensor) -> torch.Tensor:
        deep_gemm.fp8_gemm_nt((a, of_a), (w, scale_b), out)
        return out

    return [partial(call, w) for w in weights]
