"""Rows that block_quant_gemm may find hard to round, and how it rounds them."""

from __future__ import annotations

import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm.ops.problem import num_groups
from mixed_gemm.reference import conv as reference_conv


def read_back(a: Tensor, block_size: int) -> Tensor:
    """scale * q + offset as the op sees it: the product with the identity, in fp32."""
    k = a.shape[-1]
    groups = num_groups(k, block_size)
    eye = torch.eye(k, dtype=torch.int8).t()
    tensors = (torch.ones(groups, k), torch.zeros(groups, k))
    return mixed_gemm.block_quant_gemm(a.float(), eye, *tensors, block_size=block_size)


def rounded(a: Tensor, block_size: int) -> Tensor:
    q, scale, offset = reference_conv.block_quantize(a, block_size)
    size = a.shape[-1] if block_size == -1 else block_size
    wide = (x.repeat_interleave(size, dim=-1)[..., : a.shape[-1]] for x in (scale, offset))
    scales, offsets = wide
    return scales * q + offsets


ROWS = {
    "normal": lambda: torch.randn(6, 100),
    "float16": lambda: torch.randn(6, 100).half(),
    "far from zero": lambda: torch.randn(6, 100) + 1000,
    "one outlier": lambda: torch.randn(6, 100) + 1e4 * (torch.arange(100) == 37),
    "zeros": lambda: torch.zeros(2, 100),
    "tiny": lambda: torch.randn(6, 100) * 1e-38,
    "huge": lambda: torch.tensor([3.4e38, -3.4e38] * 50).view(1, 100),
    "negative zero": lambda: -torch.zeros(1, 100),
}
