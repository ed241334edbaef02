"""float8 where torch has to do it: operands of ``scaled_mm`` on torch._scaled_mm, and scales of
blocks, on GPUs that our kernels are not written for.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import is_fake

from .autograd import transforms_active

FLOAT8_SM = 89  # the least compute capability that multiplies float8, 8.9
# Compute capability 9.0: wgmma is of it alone, and has scales of these blocks.
WGMMA_SM = 90
WGMMA_BLOCK = (128, 128)
FP8_MAX = 448.0  # the largest finite float8_e4m3fn: 1.75 * 2^8
MIN_SCALE = 2.0**-126  # the least normal float32, as of quantize_per_token
FP8_ALIGNMENT = 16  # torch._scaled_mm wants K and N in whole multiples of it

# Why float8 does not run on our kernel on GPUs behind Hopper; plan() prints it.
FP8_BEHIND_HOPPER = (
    "mma.sync with fp8 operands is slow on GPUs behind compute capability 9.0, whose instructions "
    "no kernel of ours uses: torch._scaled_mm (cuBLAS) runs it"
)


def fp8_runs_in_torch(sm: int, n: int, k: int) -> bool:
    """Whether ``scaled_mm`` of float8 operands goes to ``torch._scaled_mm``: behind compute
    capability 9.0 (``sm`` is 90 for 9.0), with a shape that it takes."""
    return sm > WGMMA_SM and n % FP8_ALIGNMENT == 0 and k % FP8_ALIGNMENT == 0 and n > 0 and k > 0


def kernel_has_blocks(sm: int, block_size: Sequence[int]) -> bool:
    """Whether a kernel for GPUs multiplies float8 with scales of these blocks.

    Args:
        sm: compute capability, 90 for 9.0. block_size: (rows of the weight, elements of K).
    """
    return sm == WGMMA_SM and tuple(block_size) == WGMMA_BLOCK


@functools.cache
def _sm(device_index: int) -> int:
    major, minor = torch.cuda.get_device_capability(device_index)
    return 10 * major + minor


def runs_float8(x: Tensor) -> bool:
    """Whether ``scaled_mm`` multiplies float8 where ``x`` is: on a CPU, and on GPUs of compute
    capability 8.9 and newer. Meta tensors are not asked."""
    return not x.is_cuda or _sm(x.get_device()) >= FLOAT8_SM


def runs_float8_blocks(x: Tensor, block_size: Sequence[int]) -> bool:
    """Whether a kernel multiplies float8 with scales of blocks where ``x`` is: on a CPU, and on a
    GPU that :func:`kernel_has_blocks`. Meta tensors are not asked."""
    return not x.is_cuda or kernel_has_blocks(_sm(x.get_device()), block_size)


def routes_to_torch(a: Tensor, b: Tensor) -> bool:
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        return False  # the op says so
    if a.dtype != torch.float8_e4m3fn or not a.is_cuda or a.numel() == 0 or b.dim() != 2:
        return False
    if hasattr(a, "device_mesh"):  # a DTensor: the op has the rule for its shares
        return False
    return fp8_runs_in_torch(_sm(a.get_device()), b.shape[1], b.shape[0])


def blocks_route_to_torch(a: Tensor, b: Tensor, block_size: Sequence[int]) -> bool:
    """Whether torch runs ``scaled_mm`` with scales of blocks: on CUDA, where no kernel has them."""
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        return False  # the op says so
    return not runs_float8_blocks(a, block_size) and not hasattr(a, "device_mesh")


def asks_for_gradients(*tensors: Tensor | None) -> bool:
    """Whether a transform or autograd wants more of the product than its value: torch._scaled_mm
    has no gradient and no batching rule, our op has, or says why not."""
    given = [x for x in tensors if isinstance(x, Tensor)]
    if torch.is_grad_enabled() and any(x.requires_grad for x in given):
        return True
    return not torch.compiler.is_compiling() and transforms_active()


def _starts_aligned(x: Tensor) -> bool:
    """At a multiple of 16 bytes, which is what cuBLAS takes. Where there is no memory yet (while
    torch.compile traces) by the offset alone: storages start aligned."""
    if x.storage_offset() * x.element_size() % FP8_ALIGNMENT != 0:
        return False
    no_memory = torch.compiler.is_compiling() or is_fake(x)
    return no_memory or x.data_ptr() % FP8_ALIGNMENT == 0


def _packed(x: Tensor) -> Tensor:
    """Contiguous and aligned: itself or a copy."""
    if x.dim() > 0 and x.shape[0] == 1:
        x = x.reshape(-1).view(x.shape)  # the stride of a single row may be anything
    x = x.contiguous()
    return x if _starts_aligned(x) else x.clone()


def _column_major(b: Tensor) -> Tensor:
    """``[K, N]`` with columns that neither overlap nor start off 16 bytes: itself or a copy."""
    apart = b.stride(1) >= b.shape[0] and b.stride(1) % FP8_ALIGNMENT == 0
    return b if b.stride(0) == 1 and apart and _starts_aligned(b) else _packed(b.t()).t()


def fp8_in_torch(
    a: Tensor,
    b: Tensor,
    scales: tuple[Tensor, Tensor],
    bias: Tensor | None,
    out_dtype: torch.dtype,
) -> Tensor:
    """Checked float8 operands on torch._scaled_mm, whose scales per row write bfloat16 only: other
    types take the fp32 sums and run the epilogue in torch, so that all round once.

    Args:
        scales: of ``a`` and of ``b``. The rest as in ``scaled_mm``.
    """
    scale_a, scale_b = scales
    rows, b = _packed(a.reshape(-1, a.shape[-1])), _column_major(b)
    m, n = rows.shape[0], b.shape[1]
    if out_dtype == torch.bfloat16:
        row_scales = _packed(scale_a.reshape(-1, 1).expand(m, 1))
        column_scales = _packed(scale_b.reshape(1, -1).expand(1, n))
        bias = None if bias is None else _packed(bias)
        out = torch._scaled_mm(
            rows, b, row_scales, column_scales, bias=bias, out_dtype=torch.bfloat16
        )
    else:
        one = torch.ones((), dtype=torch.float32, device=a.device)
        sums = torch._scaled_mm(rows, b, one, one, out_dtype=torch.float32)
        out = sums.mul_(scale_b.reshape(1, -1)).mul_(scale_a.reshape(-1, 1))
        out = (out if bias is None else out.add_(bias)).to(out_dtype)
    return out.reshape(*a.shape[:-1], n)


def fp8_blocks_in_torch(
    a: Tensor,
    b: Tensor,
    scales: tuple[Tensor, Tensor],
    bias: Tensor | None,
    out_dtype: torch.dtype,
    block_size: Sequence[int],
) -> Tensor:
    """Checked float8 operands with scales of blocks: a product in fp32 for each block of K, where
    all of a block are exact (of TF32 too, which has more than their 4 significant bits).

    Args:
        scales: of ``a`` and of ``b``. The rest as in ``scaled_mm``.
    """
    scale_a, scale_b = scales
    rows, size = block_size
    n, left = b.shape[1], a.reshape(math.prod(a.shape[:-1]), a.shape[-1])
    scale_a = scale_a.reshape(left.shape[0], scale_b.shape[1])
    out = torch.zeros((left.shape[0], n), dtype=torch.float32, device=a.device)
    for g in range(scale_b.shape[1]):
        part = slice(g * size, (g + 1) * size)
        of_columns = scale_b[:, g].repeat_interleave(rows)[:n]
        sums = left[:, part].float() @ b[part].float()
        out = out + sums * (scale_a[:, g : g + 1] * of_columns)
    out = (out if bias is None else out + bias).to(out_dtype)
    return out.reshape(*a.shape[:-1], n)


def quantize_fp8_in_torch(a: Tensor, *, block_size: int | None = None) -> tuple[Tensor, Tensor]:
    """``quantize_fp8`` of a checked tensor, by the formula of csrc/problem/quantize.h: what tests
    hold the kernels against."""
    k = a.shape[-1]
    size = max(k, 1) if block_size is None else min(block_size, max(k, 1))
    blocks = 1 if block_size is None else -(-k // size)
    padded = torch.nn.functional.pad(a.float(), (0, blocks * size - k))
    x = padded.view(*a.shape[:-1], blocks, size)
    largest = x.abs().amax(-1, keepdim=True)
    # A tensor: by a number CUDA multiplies with its inverse, which rounds twice.
    scale = (largest / torch.full_like(largest, FP8_MAX)).clamp(min=MIN_SCALE)
    # Cut before the cast, which makes NaN of what is too large in older torch.
    q = (x / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)
    return q.reshape(padded.shape)[..., :k].contiguous(), scale.squeeze(-1)
