"""The GEMM with packed weights, typed.

N is the number of output channels, K of input channels, G = ceil(K / group_size) (1 for -1).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _library
from .autograd import Derivatives, Rule, Saved, through_op, transforms_active
from .errors import raise_its_kind, translates_errors
from .flops import matrix_product
from .op import Op
from .problem import refuse_non_numbers
from .reasons import ADAPTER, FORCED, WEIGHTS
from .sharding import Rows, Sharding, channel_blocks
from .vmap import Batching

__all__ = ["fpA_intB_gemm"]


_gemm: Any = torch.ops.mixed_gemm.fpA_intB_gemm.default if _library.available else None


def _around_autograd(*tensors: Tensor | None, **options: Any) -> Tensor:
    """Call the op below its Autograd key, which has a kernel in Python, where no gradient is asked
    for."""
    _library.require()
    if (
        torch.is_grad_enabled()
        or torch.compiler.is_compiling()
        or transforms_active()  # which no_grad does not end
    ):
        out: Tensor = _gemm(*tensors, **options)
        return out
    with torch._C._AutoDispatchBelowAutograd():
        out = _gemm(*tensors, **options)
    return out


_product = _gemm if _library.has_autograd else _around_autograd


_TENSORS = ("a", "b_packed", "scales", "zeros", "bias", "pre_scale")


def unchecked_gemm(options: dict[str, Any], *tensors: Tensor | None) -> Tensor:
    """:func:`fpA_intB_gemm` for weights, whose scalars were checked when they were made.

    Args:
        options: bits, group_size and zero_mode; activation, unless it is the identity.
        tensors: those of the op, in its order: a ``[..., K]``, ...
    """
    try:
        out: Tensor = _product(*tensors, **options)
        return out
    except RuntimeError as error:
        given = dict(zip(_TENSORS, tensors, strict=True))
        raise_its_kind(error, "fpA_intB_gemm", {**given, **options})


@translates_errors("fpA_intB_gemm")
def fpA_intB_gemm(
    a: Tensor,
    b_packed: Tensor,
    scales: Tensor,
    zeros: Tensor | None = None,
    bias: Tensor | None = None,
    pre_scale: Tensor | None = None,
    *,
    bits: int,
    group_size: int = -1,
    zero_mode: str = "sub",
    activation: str = "identity",
) -> Tensor:
    """activation((a * pre_scale) @ w.T + bias) with w stored in 4 or 8 bits.

    Sums are fp32 and rounded once, to the dtype of ``a``. Differentiable in ``a`` and ``bias``,
    backward and forward; vmap runs over ``a``, or over ``bias`` one element at a time.
    An infinity in a row of ``a``, or absolute values that sum up to more than 2e36 in a group, may
    make NaN of that row: kernels that multiply stored values take the bias away from the sums.

    Args:
        a: float16, bfloat16 or float32 ``[..., K]``, 1-D included; any strides and alignment; no
            rows are fine. float32 on CUDA runs as dequantize + dense GEMM (see ``plan``).
        b_packed: uint8 ``[round_up(N, 64), round_up(K, 64) * bits / 8]`` from
            :func:`pack_weights`.
        scales: ``[G, N]`` in the dtype of ``a``. Values are not looked at, since that would wait
            for the device: a NaN or Inf makes NaN or Inf of its column of the output, and of that
            alone. ``Linear`` refuses them when it is made and loaded.
        zeros: ``[G, N]`` in the dtype of ``a``, or None for a symmetric weight. As with scales.
        bias: ``[N]`` in the dtype of ``a``, or None.
        pre_scale: ``[K]`` in the dtype of ``a``, or None; multiplies the activations (AWQ,
            SmoothQuant).
        bits: 4 or 8.
        group_size: -1 (one group over K) or a multiple of 16 that is at most K; the last group may
            be ragged.
        zero_mode: "sub" is w = (q - zero) * scale, "add" is w = q * scale + zero; ignored without
            ``zeros``.
        activation: identity, relu, relu6, gelu, gelu_tanh or silu, as torch.nn.functional has them.

    Returns:
        ``[..., N]``, contiguous, in the dtype of ``a``.

    Raises:
        ValueError: a scalar is out of range; or a tensor's shape, device or storage does not fit.
        TypeError: an argument is no tensor, or of another dtype.
        NotImplementedError: this GPU has no kernel for it.
        torch.OutOfMemoryError: there is no room for the result or the workspace.
        RuntimeError: ``scales``, ``zeros`` or ``pre_scale`` require grad or have a tangent. (All
            the others are RuntimeError too: see ``errors``.)
        ImportError: the library did not load.

    Source: the name is that of NVIDIA's FasterTransformer; the packed layout is described in
    csrc/layout/weight_layout.h.
    """
    _library.require()
    refuse_non_numbers("mixed_gemm::fpA_intB_gemm", bits=bits, group_size=group_size)
    out: Tensor = torch.ops.mixed_gemm.fpA_intB_gemm(
        a,
        b_packed,
        scales,
        zeros,
        bias,
        pre_scale,
        bits=bits,
        group_size=group_size,
        zero_mode=zero_mode,
        activation=activation,
    )
    return out


def _backward(saved: Saved, grad: Tensor) -> Tensor:
    given = saved.arguments
    weight = torch.ops.mixed_gemm.dequantize_weights(
        given["b_packed"],
        given["scales"],
        given["zeros"],
        bits=given["bits"],
        group_size=given["group_size"],
        zero_mode=given["zero_mode"],
        n=given["scales"].shape[1],
        k=saved.x_shape[-1],
        dtype=grad.dtype,
    )
    pre_scale = given["pre_scale"]
    grad_a: Tensor = grad @ weight
    return grad_a if pre_scale is None else grad_a * pre_scale


OPS = (
    Op(
        "fpA_intB_gemm",
        "activation((a * pre_scale) @ w.T + bias), w packed in 4 or 8 bits",
        derivatives=Derivatives(ADAPTER, Rule("a", "bias", through_op("a", "bias"), _backward)),
        autocast=True,
        vmap=Batching(("a",), ("bias",)),
        flops=matrix_product("a"),
        sharding=Sharding(
            (
                Rows("rows of a", "a"),
                channel_blocks({"scales": 1, "b_packed": 0, "zeros": 1, "bias": 0}, -1),
            )
        ),
    ),
    Op(
        "fpA_intB_gemm_config",
        "the same with a kernel configuration by name, for tests and benchmarks",
        derivatives=Derivatives(
            FORCED, whys={x: WEIGHTS for x in ("scales", "zeros", "pre_scale")}
        ),
        autocast=True,
        vmap=Batching(("a",), ("bias",)),
        flops=matrix_product("a"),
        sharding="a configuration is forced for the shape of one device",
    ),
)
