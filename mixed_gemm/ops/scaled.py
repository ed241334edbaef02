"""8-bit GEMMs with scaled epilogues (W8A8), typed.

M is the number of rows (tokens), N of output channels, K of input channels.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from .. import _library
from .._after_import import after_import
from .autograd import Derivatives, Rule
from .errors import check_int8_weight, check_is_dtype, translates_errors, wrong_value
from .flops import matrix_product
from .op import Op, for_tests
from .reasons import FORCED, SCALES
from .sharding import Along, InBlocks, Inner, Rows, Sharding
from .vmap import Batching

__all__ = [
    "azp_adjustment",
    "scaled_mm",
    "scaled_mm_azp",
]


@translates_errors("scaled_mm")
def scaled_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    *,
    out_dtype: torch.dtype,
    block_size: Sequence[int] | None = None,
) -> Tensor:
    """scale_a * (scale_b * (a @ b)) + bias for 8-bit operands.

    int8 products are summed exactly in int32; fp8 products are exact and their sum is fp32. The
    epilogue is fp32 with one rounding, to ``out_dtype``. Differentiable in ``bias``.

    With ``block_size`` = (rows, columns), as DeepSeek's files have (128, 128), float8 operands have
    a scale for each row and ``columns`` elements of K of ``a``, and for each block of the weight:
    the sum of each block of K is multiplied by both and added in fp32. It is an argument because
    the shapes of the scales do not say it: with N = 1, or K of one block, several ways have the
    same. A kernel has blocks of 128 x 128 on compute capability 9.0; elsewhere on CUDA torch adds
    up the blocks one by one, in fp32, which is right and slow.

    On CUDA behind compute capability 9.0 other float8 operands are multiplied by
    ``torch._scaled_mm`` when N and K are multiples of 16 (``plan`` says so).

    Args:
        a: int8 or float8_e4m3fn ``[..., K]``, 1-D included; any strides.
        b: ``[K, N]`` in the dtype of ``a``, column-major (``stride(0) == 1``): ``weight.t()`` of a
            contiguous ``[N, K]`` weight. Any column stride.
        scale_a: float32, one element, or one for each row: ``[M]``, ``[M, 1]`` or ``[..., 1]``.
            With ``block_size`` ``[..., ceil(K / columns)]`` or ``[M, ceil(K / columns)]``.
        scale_b: float32, one element, or one for each column: ``[N]`` or ``[1, N]``. With
            ``block_size`` ``[ceil(N / rows), ceil(K / columns)]``. Of both, NaN, Inf and 0 are not
            looked for: they make what IEEE arithmetic makes of them, NaN of 0 * Inf included.
        bias: ``[N]`` in ``out_dtype``, or None.
        out_dtype: float16, bfloat16 or float32.
        block_size: (rows of the weight, elements of K) that share a scale, of float8; the last of
            either may be fewer. None: scales of rows and columns.

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
    if block_size is not None:
        blocks: Tensor = torch.ops.mixed_gemm.scaled_mm(
            a, b, scale_a, scale_b, bias, out_dtype=out_dtype, block_size=block_size
        )
        return blocks
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
    where = "mixed_gemm.ops.azp_adjustment"
    check_int8_weight(where, "weight", weight, 2, "[N, K]")
    sums = weight.sum(1, dtype=torch.int64)
    if azp is not None:
        sums = sums * azp
    limit = torch.iinfo(torch.int32)
    if sums.numel() and not sums.is_meta:
        least, most = sums.aminmax()
        if least < limit.min or most > limit.max:
            wrong_value(where, "azp * sum", "fit in int32", f"azp={azp}")
    return sums.to(torch.int32)


def why_not_scaled(
    dtype: torch.dtype, block_size: tuple[int, int] | None, device: torch.device
) -> str:
    """Return why no kernel multiplies a weight by :func:`scaled_mm` where it is, so that a layer
    makes it dense for each product; or an empty text. CPUs and meta tensors multiply everything.

    Args:
        dtype: int8 or float8_e4m3fn. block_size: as of :func:`scaled_mm`. device: of the weight.
    """
    return _why_not_on_cuda(dtype, block_size, device) if device.type == "cuda" else ""


@functools.cache  # a layer asks in every call
def _why_not_on_cuda(
    dtype: torch.dtype, block_size: tuple[int, int] | None, device: torch.device
) -> str:
    major, minor = torch.cuda.get_device_capability(device)
    name = str(dtype).removeprefix("torch.")
    with _disable_current_modes():  # a fake mode would look for a fake of _why_not_scaled
        reason: str = torch.ops.mixed_gemm._why_not_scaled(name, 10 * major + minor, block_size)
    return reason


def _keep_dynamo_out() -> None:
    """A graph of torch.compile has the answer as a constant."""
    torch.compiler.assume_constant_result(why_not_scaled)  # type: ignore[no-untyped-call]


after_import("torch._dynamo", _keep_dynamo_out)  # which takes seconds, for those who compile


def _merge_rows(op: Any, given: dict[str, Any], batched: set[str]) -> Any:
    """A tensor with a row for each row of ``a`` gets the leading dimensions of ``a``."""
    (size,) = {given[name].shape[0] for name in batched}
    if "a" not in batched:
        given["a"] = given["a"].expand(size, *given["a"].shape)
    rows = given["a"].shape[:-1]
    for name in ("scale_a", "azp"):
        x = given.get(name)
        by_block = given.get("block_size") is not None
        if x is None or (
            name not in batched and x.numel() == 1 and name == "scale_a" and not by_block
        ):
            continue
        x = x if name in batched else x.expand(size, *x.shape)
        if by_block:
            given[name] = x.reshape(*rows, x.shape[-1]).contiguous()
            continue
        shape = rows if x.numel() == math.prod(rows) else (size, *[1] * (len(rows) - 1))
        given[name] = x.reshape(shape).expand(rows).unsqueeze(-1).contiguous()
    return op(**given)


def _sharding(per_row: tuple[str, ...], **per_channel: int) -> Sharding:
    rows, channels = Rows("rows of a", "a", per_row=per_row), {"b": 1, "scale_b": -1}
    whole = Along("output channels", {**channels, **per_channel, "bias": 0}, -1)
    if per_channel:  # the sums of azp_adj are those of all of K
        return Sharding((rows, whole), column_major=("b",))
    by_block = Along("output channels", {"b": 1, "scale_b": 0, "bias": 0}, -1)
    inner = Inner("K without bias", {"a": -1, "b": 0})
    inner_by_block = Inner("K without bias", {"a": -1, "b": 0, "scale_a": -1, "scale_b": 1})
    ways = (rows, InBlocks(whole, by_block, 0), InBlocks(inner, inner_by_block, 1))
    return Sharding(ways, column_major=("b",))


def _record(name: str, summary: str, per_row: tuple[str, ...], **channels: int) -> Op:
    """per_row, channels: the arguments that go with rows and with columns of the result, beside
    the operands and ``scale_b``."""
    return Op(
        name,
        summary,
        derivatives=Derivatives(SCALES, Rule("", "bias")),
        autocast="8-bit operands, and out_dtype says the result's",
        vmap=Batching(("a", *per_row), ("bias",), _merge_rows),
        flops=matrix_product("a"),
        sharding=_sharding(per_row, **channels),
    )


OPS = (
    _record(
        "scaled_mm",
        "scale_a * (scale_b * (a @ b)) + bias of int8 or float8 operands",
        ("scale_a",),
    ),
    _record(
        "scaled_mm_azp",
        "the same of int8 activations with a zero point",
        ("scale_a", "azp"),
        azp_adj=-1,
    ),
    for_tests("_scaled_mm_config", "both with a kernel configuration by name", FORCED),
)
