"""Codes of AWQ and GPTQ checkpoints in the layout of :func:`mixed_gemm.pack_weights`, typed.

K is the number of input channels, N of output channels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _library
from .errors import translates_errors
from .op import of_integers
from .problem import PAD_N, refuse_non_numbers
from .sharding import channel_blocks

__all__ = ["awq_repack", "gptq_repack"]

_PER_WORD = 8  # codes of AutoAWQ in an int32


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


OPS = (
    of_integers(
        "awq_repack",
        "AutoAWQ codes in the packed layout",
        ("qweight",),
        channel_blocks({"qweight": 1}, 0, PAD_N // _PER_WORD),
    ),
    of_integers(
        "gptq_repack",
        "GPTQ codes in the packed layout",
        ("qweight", "perm"),
        channel_blocks({"qweight": 1}, 0),
    ),
)
