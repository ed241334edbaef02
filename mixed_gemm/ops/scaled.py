"""8-bit GEMMs with scaled epilogues (W8A8), typed.

M is the number of rows (tokens), N of output channels, K of input channels.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import is_fake

from .. import _library
from .arguments import check_is_dtype
from .autograd import Derivatives, Rule, transforms_active
from .errors import (
    check_not_freed,
    check_storage,
    dtype_name,
    shape_text,
    translates_errors,
    wrong_type,
    wrong_value,
)
from .fake_scaled import check_scaled_mm
from .op import Op
from .reasons import FORCED, SCALES

__all__ = [
    "azp_adjustment",
    "scaled_mm",
    "scaled_mm_azp",
]

FP8_ALIGNMENT = 16  # torch._scaled_mm wants K and N in whole multiples of it
# Why float8 does not run on our kernel on a Hopper GPU; plan() prints it.
FP8_ON_HOPPER = (
    "mma.sync with fp8 operands is emulated by fp16 on sm_90 and newer, so it would gain nothing: "
    "torch._scaled_mm (cuBLAS, wgmma) runs it"
)


def fp8_runs_in_torch(sm: int, n: int, k: int) -> bool:
    """Whether ``scaled_mm`` of float8 operands goes to ``torch._scaled_mm``: compute capability
    9.0 or newer (``sm`` is 90 for 9.0) and a shape that it takes."""
    return sm >= 90 and n % FP8_ALIGNMENT == 0 and k % FP8_ALIGNMENT == 0 and n > 0 and k > 0


@functools.cache
def _sm(device_index: int) -> int:
    major, minor = torch.cuda.get_device_capability(device_index)
    return 10 * major + minor


def _routes_to_torch(a: Tensor, b: Tensor) -> bool:
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        return False  # the op says so
    if a.dtype != torch.float8_e4m3fn or not a.is_cuda or a.numel() == 0 or b.dim() != 2:
        return False
    return fp8_runs_in_torch(_sm(a.get_device()), b.shape[1], b.shape[0])


def _asks_for_gradients(*tensors: Tensor | None) -> bool:
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


def _fp8_in_torch(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None,
    out_dtype: torch.dtype,
) -> Tensor:
    """Checked float8 operands on torch._scaled_mm, whose scales per row write bfloat16 only: other
    types take the fp32 sums and run the epilogue in torch, so that all round once."""
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


@translates_errors("scaled_mm")
def scaled_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    *,
    out_dtype: torch.dtype,
) -> Tensor:
    """scale_a * (scale_b * (a @ b)) + bias for 8-bit operands.

    int8 products are summed exactly in int32; fp8 products are exact and their sum is fp32. The
    epilogue is fp32 with one rounding, to ``out_dtype``. Differentiable in ``bias``.

    On CUDA of compute capability 9.0 and newer float8 operands run on ``torch._scaled_mm`` when N
    and K are multiples of 16 (``plan`` says so): the tensor-core instruction of our kernel is
    emulated there.

    Args:
        a: int8 or float8_e4m3fn ``[..., K]``, 1-D included; any strides.
        b: ``[K, N]`` in the dtype of ``a``, column-major (``stride(0) == 1``): ``weight.t()`` of a
            contiguous ``[N, K]`` weight. Any column stride.
        scale_a: float32, one element, or one for each row: ``[M]``, ``[M, 1]`` or ``[..., 1]``.
        scale_b: float32, one element, or one for each column: ``[N]`` or ``[1, N]``. Of both, NaN
            and Inf are not looked for: they make NaN or Inf of their rows or columns.
        bias: ``[N]`` in ``out_dtype``, or None.
        out_dtype: float16, bfloat16 or float32.

    Returns:
        ``[..., N]``, contiguous, in ``out_dtype``.

    Raises:
        ValueError: a shape, stride, device or storage does not fit; or K > 131071 for int8 (the
            int32 sum could wrap).
        TypeError: an argument is no tensor, or of another dtype.
        NotImplementedError: this GPU has no kernel for it, such as float8 before 8.9.
        torch.OutOfMemoryError: there is no room for the result or the workspace.
        RuntimeError: a scale requires grad.
        ImportError: the library did not load.

    Source: the epilogues ScaledEpilogue and ScaledEpilogueBias of vLLM, whose scheme it is.
    """
    _library.require()
    check_is_dtype("mixed_gemm::scaled_mm", "out_dtype", out_dtype)
    if _routes_to_torch(a, b) and not _asks_for_gradients(a, b, scale_a, scale_b, bias):
        op = "mixed_gemm::scaled_mm"
        check_scaled_mm(op, a, b, scale_a, scale_b, bias, out_dtype)
        check_not_freed(op, a=a, b=b, scale_a=scale_a, scale_b=scale_b, bias=bias)
        return _fp8_in_torch(a, b, scale_a, scale_b, bias, out_dtype)
    out: Tensor = torch.ops.mixed_gemm.scaled_mm(a, b, scale_a, scale_b, bias, out_dtype=out_dtype)
    return out


@translates_errors("scaled_mm_azp")
def scaled_mm_azp(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    azp_adj: Tensor,
    azp: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    out_dtype: torch.dtype,
) -> Tensor:
    """:func:`scaled_mm` of activations with a zero point: a is about scale_a * (q - azp).

    Computes scale_a * (scale_b * (a @ b - azp * azp_adj)) + bias, where the bracket is an exact
    integer (64-bit where 32 could wrap), rounded to fp32 once.

    Args:
        a, b: int8, as in :func:`scaled_mm`.
        azp_adj: int32 ``[N]`` or ``[1, N]``: the sums of the columns of ``b`` when ``azp`` is given
            (:func:`azp_adjustment`), else the zero point of the tensor times them.
        azp: int32 ``[M]``, ``[M, 1]`` or ``[..., 1]``: the zero point of each row; None when it is
            folded into ``azp_adj``.
        The rest as in :func:`scaled_mm`.

    Raises:
        As :func:`scaled_mm`; TypeError too where a is not int8.
        ImportError: the library did not load.

    Source: the epilogues ScaledEpilogueAzp and ScaledEpilogueAzpPerToken of vLLM.
    """
    _library.require()
    check_is_dtype("mixed_gemm::scaled_mm_azp", "out_dtype", out_dtype)
    out: Tensor = torch.ops.mixed_gemm.scaled_mm_azp(
        a, b, scale_a, scale_b, azp_adj, azp, bias, out_dtype=out_dtype
    )
    return out


def azp_adjustment(weight: Tensor, azp: int | Tensor | None = None) -> Tensor:
    """``azp_adj`` of :func:`scaled_mm_azp` for a weight: sums over K, computed once.

    Args:
        weight: int8 ``[N, K]``, the order of ``nn.Linear.weight``: ``b.t()``.
        azp: the zero point of the whole tensor of activations, to fold in, or None when every row
            has its own.

    Returns:
        int32 ``[N]``.

    Raises:
        ValueError: a folded value does not fit in int32, or the weight is not 2-D or its storage
            was freed.
        TypeError: the weight is not int8.
    """
    where = "mixed_gemm.azp_adjustment"
    got = f"{dtype_name(weight.dtype)} {shape_text(weight.shape)}"
    if weight.dtype != torch.int8:
        wrong_type(where, "weight", "be int8 [N, K]", got)
    if weight.dim() != 2:
        wrong_value(where, "weight", "be int8 [N, K]", got)
    check_storage(where, weight=weight)
    sums = weight.sum(1, dtype=torch.int64)
    if azp is not None:
        sums = sums * azp
    limit = torch.iinfo(torch.int32)
    if sums.numel() and not sums.is_meta and not limit.min <= sums.aminmax().min <= limit.max:
        wrong_value(where, "azp * sum", "fit in int32", f"azp={azp}")
    return sums.to(torch.int32)


OPS = (
    Op(
        "scaled_mm",
        "scale_a * (scale_b * (a @ b)) + bias of int8 or float8 operands",
        derivatives=Derivatives(SCALES, Rule("", "bias")),
    ),
    Op(
        "scaled_mm_azp",
        "the same of int8 activations with a zero point",
        derivatives=Derivatives(SCALES, Rule("", "bias")),
    ),
    Op(
        "_scaled_mm_config",
        "both with a kernel configuration by name",
        derivatives=Derivatives(FORCED),
    ),
)
