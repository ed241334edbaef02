"""The ops that read checkpoint tensors as they are, typed: AutoAWQ products without conversion, and
repacking of AWQ and GPTQ weights to the layout of :func:`mixed_gemm.pack_weights`.

K is the number of input channels, N of output channels, G = K / group_size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _library
from .autograd import Derivatives, Rule, Saved, through_op
from .errors import translates_errors
from .op import Op
from .problem import refuse_non_numbers
from .reasons import DETACH, INTEGERS, WEIGHTS

__all__ = ["awq_dequantize", "awq_gemm", "awq_repack", "gptq_repack"]


@translates_errors("awq_gemm")
def awq_gemm(
    input: Tensor, qweight: Tensor, scales: Tensor, qzeros: Tensor, split_k_iters: int = 1
) -> Tensor:
    """input @ w for an AutoAWQ weight, as the checkpoint holds it. The arguments are those of
    vLLM's Triton ``awq_gemm``, so a call site changes its namespace only.

    Sums are fp32 and rounded once, to the dtype of ``input``. Differentiable in ``input``. It pays
    for the AWQ bit order at every call: where a weight is used many times, repack it once
    (:func:`awq_repack`) and call :func:`mixed_gemm.fpA_intB_gemm` with zeros - 8.

    Args:
        input: float16, bfloat16 or float32 ``[..., K]``; any strides; no rows are fine.
        qweight: int32 ``[K, N / 8]``, unsigned 4-bit codes c, columns 0 2 4 6 1 3 5 7 of each 8
            from the lowest bits on (AutoAWQ version "gemm").
        scales: ``[G, N]`` in the dtype of ``input``. NaN and Inf are not looked for: they make NaN
            or Inf of their columns.
        qzeros: int32 ``[G, N / 8]``, codes z in the same order; w = (c - z) * scale.
        split_k_iters: a power of two up to 32: how far the Triton op splits K. A hint that this
            op checks and does not follow: it chooses its own split, and never sums in 16 bits.

    The group size is K / G: a multiple of 16, or K.

    Returns:
        ``[..., N]``, contiguous, in the dtype of ``input``.

    Raises:
        ValueError: a shape, device or storage does not fit the rest, or ``split_k_iters`` is no
            power of two in 1..32.
        TypeError: an argument is no tensor, or of another dtype.
        NotImplementedError: this GPU has no kernel for it.
        torch.OutOfMemoryError: there is no room for the result or the workspace.
        RuntimeError: ``scales`` require grad or have a tangent.
        ImportError: the library did not load.

    Source: AutoAWQ, whose tensors it takes.
    """
    _library.require()
    refuse_non_numbers("mixed_gemm::awq_gemm", split_k_iters=split_k_iters)
    out: Tensor = torch.ops.mixed_gemm.awq_gemm(input, qweight, scales, qzeros, split_k_iters)
    return out


@translates_errors("awq_dequantize")
def awq_dequantize(qweight: Tensor, scales: Tensor, qzeros: Tensor) -> Tensor:
    """The dense weight ``[K, N]`` of AutoAWQ tensors, each value rounded once to the dtype of
    ``scales``. Arguments and errors as in :func:`awq_gemm`; note that it is the transpose of
    ``nn.Linear.weight``. Differentiable in ``scales``.
    """
    _library.require()
    weight: Tensor = torch.ops.mixed_gemm.awq_dequantize(qweight, scales, qzeros)
    return weight


@translates_errors("awq_repack")
def awq_repack(qweight: Tensor) -> Tensor:
    """AutoAWQ ``qweight`` -> the packed layout of :func:`mixed_gemm.pack_weights` with bits=4.

    The packed integer is q = c - 8, so the zero points of ``fpA_intB_gemm`` (zero_mode="sub") are
    z - 8; scales stay as they are.

    Args:
        qweight: int32 ``[K, N / 8]``, see :func:`awq_gemm`.

    Returns:
        uint8 ``[round_up(N, 64), round_up(K, 64) / 2]`` on the device of ``qweight``.

    Raises:
        TypeError: ``qweight`` is not an int32 tensor.
        ValueError: it is not 2-D, has no rows, or its storage was freed.
        ImportError: the library did not load.
    """
    _library.require()
    packed: Tensor = torch.ops.mixed_gemm.awq_repack(qweight)
    return packed


@translates_errors("gptq_repack")
def gptq_repack(qweight: Tensor, perm: Tensor | None = None, *, bits: int) -> Tensor:
    """GPTQ ``qweight`` -> the packed layout of :func:`mixed_gemm.pack_weights`.

    The packed integer is q = c - 2^(bits-1); 2 and 3 bits are stored in 4.

    Args:
        qweight: int32 ``[K * bits / 32, N]``, codes c packed along K from the lowest bits on (a
            dense bit stream for 3 bits).
        perm: int32 ``[K]`` or None: column k of the result is row ``perm[k]`` of the checkpoint.
            For act-order, ``torch.argsort(g_idx, stable=True)``; the activations are then permuted
            alike.
        bits: 2, 3, 4 or 8.

    Returns:
        uint8 ``[round_up(N, 64), round_up(K, 64) * packed bits / 8]``, packed bits 8 for 8, else 4.

    Raises:
        ValueError: ``perm`` does not hold every index once (read from the device: on CUDA this
            waits); ``bits`` is another number; or a shape, device or storage does not fit.
        TypeError: an argument is no tensor, or of another dtype.
        ImportError: the library did not load.
    """
    _library.require()
    refuse_non_numbers("mixed_gemm::gptq_repack", bits=bits)
    packed: Tensor = torch.ops.mixed_gemm.gptq_repack(qweight, perm, bits=bits)
    return packed


def _gemm_backward(saved: Saved, grad: Tensor) -> Tensor:
    given = saved.arguments
    weight = torch.ops.mixed_gemm.awq_dequantize(given["qweight"], given["scales"], given["qzeros"])
    grad_input: Tensor = grad @ weight.t()
    return grad_input


def _scales_backward(saved: Saved, grad: Tensor) -> Tensor:
    """w = (code - zero) * scale: the sum over the rows of a group; in fp32, rounded once."""
    given = saved.arguments
    groups, n = saved.x_shape
    one = grad.new_ones(saved.x_shape, dtype=torch.float32)
    integers = torch.ops.mixed_gemm.awq_dequantize(given["qweight"], one, given["qzeros"])
    by_group: Tensor = (grad.float() * integers).reshape(groups, -1, n).sum(1)
    return by_group.to(grad.dtype)


_GEMM_SCALES = (
    f"quantized weights do not train. {DETACH}, or input @ mixed_gemm.awq_dequantize(...), which "
    "is differentiable in scales"
)

OPS = (
    Op(
        "awq_gemm",
        "input @ w of an AutoAWQ weight as the checkpoint holds it",
        derivatives=Derivatives(
            WEIGHTS,
            Rule("input", "", through_op("input"), _gemm_backward),
            whys={"scales": _GEMM_SCALES},
        ),
    ),
    Op(
        "awq_dequantize",
        "the dense weight [K, N] of AutoAWQ tensors",
        derivatives=Derivatives(
            WEIGHTS, Rule("scales", "", through_op("scales"), _scales_backward)
        ),
    ),
    Op(
        "awq_repack",
        "AutoAWQ codes in the packed layout",
        derivatives=Derivatives(INTEGERS),
    ),
    Op(
        "gptq_repack",
        "GPTQ codes in the packed layout",
        derivatives=Derivatives(INTEGERS),
    ),
)
