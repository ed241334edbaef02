"""The packed layout of a filter: packing into it, and the dense filter that it stands for, as
``layout`` has them for matrices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .. import _library
from .conv_problem import channels_per_tap, conv_packed_shape
from .errors import UnsupportedError, translates_errors
from .op import of_integers
from .problem import integer_options, integer_weight, refuse_non_numbers
from .sharding import channel_blocks

__all__ = ["pack_conv_weights"]


@translates_errors("pack_conv_weights")
def pack_conv_weights(q: Tensor, bits: int, *, check: bool = False) -> Tensor:
    """Pack the integers of a filter into the layout every kernel reads.

    It is :func:`mixed_gemm.pack_weights` of a ``[Co, K]`` matrix: K runs over the taps (height
    slowest) with the channels innermost, each tap padded to 8, 16, 32 or a multiple of 64 channels
    (csrc/layout/conv_layout.h). A 1x1 filter packs as its ``[Co, Ci]`` matrix does.

    Args:
        q: int8 ``[Co, Ci, Kh, Kw]`` as ``nn.Conv2d.weight``; any strides.
        bits: 4 or 8. For 4, values must be in -8..7: of others a GPU would keep the low 4 bits.
        check: whether to look for such values on a GPU too, which copies ``q`` to the host and
            waits for it. On the CPU they are always refused.

    Returns:
        uint8 ``[round_up(Co, 64), round_up(K, 64) * bits / 8]`` on the device of ``q``.

    Raises:
        ValueError: ``bits`` is not 4 or 8, ``q`` is not 4-D or empty, or a value is out of range;
            the text has the first such value and its index.
        TypeError: ``q`` is not an int8 tensor.
        ImportError: the library did not load.
    """
    _library.require()
    op = "mixed_gemm::pack_conv_weights"
    refuse_non_numbers(op, bits=bits)
    if isinstance(q, Tensor) and q.layout != torch.strided:  # no backend answers for this one
        raise UnsupportedError(f"{op}: q must be strided, got {q.layout}. Hint: q.to_dense()")
    packed: Tensor = torch.ops.mixed_gemm.pack_conv_weights(q, bits, check=check)
    return packed


def pack_filter(q: Tensor, weight: str) -> Tensor:
    """:func:`pack_conv_weights` by the name of a weight type.

    Args:
        q: int8 ``[Co, Ci, Kh, Kw]``. weight: a name in ``problem.WEIGHTS``, of integers.
    """
    return pack_conv_weights(q, **integer_options(weight))


def dense_filter(
    weight_packed: Tensor,
    scales: Tensor,
    offsets: Tensor | None,
    *,
    bits: int,
    block_size: int,
    in_c: int,
    kernel_size: Sequence[int],
    dtype: torch.dtype,
) -> Tensor:
    """The filter ``[Co, Ci, Kh, Kw]`` behind packed bytes; fp32, then rounded to ``dtype``."""
    out_c, taps = scales.shape[1], math.prod(kernel_size)
    channels = channels_per_tap(in_c)
    q: Tensor = torch.ops.mixed_gemm.unpack_weights(weight_packed, bits, out_c, taps * channels)
    q = q.view(out_c, taps, channels)[..., :in_c].transpose(1, 2)

    def per_channel(x: Tensor) -> Tensor:
        block = in_c if block_size == -1 else block_size
        return x.float().repeat_interleave(block, dim=0)[:in_c].t().unsqueeze(-1)

    weight = q.float() * per_channel(scales)
    if offsets is not None:
        weight = weight + per_channel(offsets)
    return weight.to(dtype).reshape(out_c, in_c, *kernel_size)


def _made(q: Tensor, bits: int, check: bool) -> Tensor:
    shape = conv_packed_shape(q.shape[0], q.shape[1], q.shape[2:], integer_weight(bits))
    return q.new_empty(shape, dtype=torch.uint8)


OPS = (
    of_integers(
        "pack_conv_weights",
        "the integers [Co, Ci, Kh, Kw] of a filter in the packed layout",
        ("q",),
        channel_blocks({"q": 0}, 0),
        _made,
    ),
)
