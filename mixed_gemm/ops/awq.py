"""The ops that read checkpoint tensors as they are, typed: AutoAWQ products without conversion, and
repacking of AWQ and GPTQ weights to the layout of :func:`mixed_gemm.pack_weights`.

K is the number of input channels, N of output channels, G = K / group_size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _library
from .arguments import (
    check_dims,
    check_dtype,
    check_float,
    check_matrix,
    check_tensors,
    check_vector,
    rows_of,
)
from .autograd import Derivatives, Rule, Saved, through_op
from .errors import dtype_name, shape_text, translates_errors, wrong_type, wrong_value
from .flops import matrix_product
from .op import Op
from .problem import check_problem, packed_shape, refuse_non_numbers
from .reasons import DETACH, INTEGERS, NO_FLOATS, NO_PRODUCT, WEIGHTS
from .vmap import Batching

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


_PER_WORD = 8
_MAX_SPLIT = 32


def _check_words(op: str, name: str, tensor: Tensor, shape: str) -> None:
    check_dtype(op, name, tensor, torch.int32, " (packed codes, as the checkpoint holds them)")
    check_dims(op, name, tensor, 2, shape)


def _check_extents(op: str, m: int, n: int, k: int, group_size: int) -> None:
    if k == 0:
        wrong_value(op, "qweight", "have rows", "K=0")
    check_problem(op, m, n, k, 4, group_size)


def _check_weight(op: str, qweight: Tensor, scales: Tensor, qzeros: Tensor) -> tuple[int, int]:
    """(K, N) of an AutoAWQ weight."""
    _check_words(op, "qweight", qweight, "(K, N/8)")
    if scales.dtype == torch.int32 and qzeros.dtype != torch.int32:
        wrong_type(
            op,
            "scales",
            "be floating and qzeros int32",
            f"int32 and {dtype_name(qzeros.dtype)}",
            hint="scales come before qzeros",
        )
    _check_words(op, "qzeros", qzeros, "(K/group_size, N/8)")
    check_float(op, "scales", scales.dtype)
    k, words = qweight.shape
    groups, n = qzeros.shape[0], words * _PER_WORD
    _check_extents(op, 0, n, k, -1)
    if groups == 0 or k % groups != 0 or qzeros.shape[1] != words:
        wrong_value(
            op,
            "qzeros",
            f"be (K/group_size, N/8) = (a divisor of {k}, {words})",
            shape_text(qzeros.shape),
        )
    because = f"N={n} from qweight, K/group_size from qzeros"
    check_matrix(op, "scales", scales, "(K/group_size, N)", (groups, n), because, True)
    _check_extents(op, 0, n, k, -1 if groups == 1 else k // groups)
    return k, n


def _fake_gemm(
    op: str, input: Tensor, qweight: Tensor, scales: Tensor, qzeros: Tensor, split_k_iters: int
) -> Tensor:
    weight = {"qweight": qweight, "scales": scales, "qzeros": qzeros}
    check_tensors(op, {"input": input, **weight})
    check_float(op, "input", input.dtype, "input.to(scales.dtype)")
    k, n = _check_weight(op, qweight, scales, qzeros)
    if input.dim() < 1 or input.shape[-1] != k:
        wrong_value(
            op,
            "input",
            f"be (..., K) = (..., {k})",
            shape_text(input.shape),
            f"K from qweight {shape_text(qweight.shape)}",
        )
    check_dtype(
        op, "scales", scales, input.dtype, " (the dtype of input)", "scales.to(input.dtype)"
    )
    if split_k_iters < 1 or split_k_iters > _MAX_SPLIT or split_k_iters & (split_k_iters - 1):
        rule = f"be a power of two in 1..{_MAX_SPLIT}"
        wrong_value(op, "split_k_iters", rule, str(split_k_iters))
    _check_extents(op, rows_of(input), n, k, -1)
    return input.new_empty((*input.shape[:-1], n))


def _fake_dequantize(op: str, qweight: Tensor, scales: Tensor, qzeros: Tensor) -> Tensor:
    check_tensors(op, {"qweight": qweight, "scales": scales, "qzeros": qzeros})
    k, n = _check_weight(op, qweight, scales, qzeros)
    return scales.new_empty((k, n))


def _fake_awq_repack(op: str, qweight: Tensor) -> Tensor:
    check_tensors(op, {"qweight": qweight})
    _check_words(op, "qweight", qweight, "(K, N/8)")
    k, n = qweight.shape[0], qweight.shape[1] * _PER_WORD
    _check_extents(op, 0, n, k, -1)
    return qweight.new_empty(packed_shape(n, k, 4), dtype=torch.uint8)


def _fake_gptq_repack(op: str, qweight: Tensor, perm: Tensor | None, bits: int) -> Tensor:
    check_tensors(op, {"qweight": qweight}, {"perm": perm})
    _check_words(op, "qweight", qweight, "(K*bits/32, N)")
    if bits not in (2, 3, 4, 8):
        hint = "5, 6 and 7 bits are stored in planes (gptq_p), which nothing here reads"
        wrong_value(op, "bits", "be 2, 3, 4 or 8", str(bits), hint=hint)
    rows, n = qweight.shape
    if rows * 32 % bits != 0:
        rule = f"have K*bits/32 rows, a multiple of {bits} for bits={bits}"
        wrong_value(op, "qweight", rule, shape_text(qweight.shape))
    k = rows * 32 // bits
    _check_extents(op, 0, n, k, -1)
    if perm is not None:
        hint = "torch.argsort(g_idx, stable=True).to(torch.int32)"
        check_dtype(op, "perm", perm, torch.int32, hint=hint)
        check_vector(op, "perm", perm, "K", k)
    return qweight.new_empty(packed_shape(n, k, 8 if bits == 8 else 4), dtype=torch.uint8)


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


def _merge_scales(op: Any, given: dict[str, Any], batched: set[str]) -> Any:
    """Integers of the weight (exact in every dtype) times each of the scales."""
    scales = given.pop("scales")
    integers = op(scales=scales.new_ones(scales.shape[1:]), **given)
    groups, n = scales.shape[1:]
    weights = integers.reshape(groups, -1, n) * scales.unsqueeze(2)
    return weights.reshape(scales.shape[0], *integers.shape)


_GEMM_SCALES = (
    f"quantized weights do not train. {DETACH}, or input @ mixed_gemm.awq_dequantize(...), which "
    "is differentiable in scales"
)

OPS = (
    Op(
        "awq_gemm",
        "input @ w of an AutoAWQ weight as the checkpoint holds it",
        fake=_fake_gemm,
        derivatives=Derivatives(
            WEIGHTS,
            Rule("input", "", through_op("input"), _gemm_backward),
            whys={"scales": _GEMM_SCALES},
        ),
        autocast=True,
        vmap=Batching(("input",)),
        flops=matrix_product("input"),
    ),
    Op(
        "awq_dequantize",
        "the dense weight [K, N] of AutoAWQ tensors",
        fake=_fake_dequantize,
        derivatives=Derivatives(
            WEIGHTS, Rule("scales", "", through_op("scales"), _scales_backward)
        ),
        autocast="it has the dtype of scales, and its product may cast it",
        vmap=Batching(("scales",), merge=_merge_scales),
        flops=NO_PRODUCT,
    ),
    Op(
        "awq_repack",
        "AutoAWQ codes in the packed layout",
        fake=_fake_awq_repack,
        derivatives=Derivatives(INTEGERS),
        autocast=NO_FLOATS,
        vmap=Batching(looped=("qweight",)),
        flops=NO_PRODUCT,
    ),
    Op(
        "gptq_repack",
        "GPTQ codes in the packed layout",
        fake=_fake_gptq_repack,
        derivatives=Derivatives(INTEGERS),
        autocast=NO_FLOATS,
        vmap=Batching(looped=("qweight", "perm")),
        flops=NO_PRODUCT,
    ),
)
