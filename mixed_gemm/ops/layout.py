"""The packed layout of a weight: packing, unpacking, and the dense weight that it stands for.

N is the number of output channels, K of input channels, G = ceil(K / group_size) (1 for -1).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _library
from .autograd import Derivatives, Rule, Saved
from .errors import check_is_dtype, translates_errors
from .op import Op, of_integers
from .problem import integer_options, refuse_non_numbers
from .reasons import NO_PRODUCT, WEIGHTS
from .sharding import Sharding, channel_blocks
from .vmap import Batching

__all__ = ["dequantize_weights", "pack_weights", "unpack_weights"]


@translates_errors("pack_weights")
def pack_weights(q: Tensor, bits: int, *, check: bool = False) -> Tensor:
    """Pack integers into the layout every kernel reads (csrc/layout/weight_layout.h).

    Args:
        q: int8 ``[N, K]`` in the order of ``nn.Linear.weight``; any strides; any N, K >= 1.
        bits: 4 or 8. For 4, values must be in -8..7: of others a GPU would keep the low 4 bits.
        check: whether to look for such values on a GPU too, which copies ``q`` to the host and
            waits for it. On the CPU they are always refused.

    Returns:
        uint8 ``[round_up(N, 64), round_up(K, 64) * bits / 8]`` on the device of ``q``. Padding
        holds q = 0. Whole multiples of 64 rows are independent: slices of dimension 0 stay valid.

    Raises:
        ValueError: ``bits`` is not 4 or 8, ``q`` is not 2-D, or a value is out of range; the text
            has the first such value and its index.
        TypeError: ``q`` is not an int8 tensor.
        ImportError: the library did not load.
    """
    _library.require()
    refuse_non_numbers("mixed_gemm::pack_weights", bits=bits)
    packed: Tensor = torch.ops.mixed_gemm.pack_weights(q, bits, check=check)
    return packed


@translates_errors("unpack_weights")
def unpack_weights(b_packed: Tensor, bits: int, n: int, k: int) -> Tensor:
    """The inverse of :func:`pack_weights`.

    Args:
        b_packed: uint8 ``[round_up(n, 64), round_up(k, 64) * bits / 8]``.
        bits: 4 or 8.
        n: output channels (rows of the result).
        k: input channels (columns of the result).

    Returns:
        int8 ``[n, k]``, values in -8..7 or -128..127.

    Raises:
        ValueError: ``bits`` is not 4 or 8, or ``b_packed`` has not the shape that n, k and bits
            give.
        TypeError: ``b_packed`` is not a uint8 tensor.
        ImportError: the library did not load.
    """
    _library.require()
    refuse_non_numbers("mixed_gemm::unpack_weights", bits=bits, n=n, k=k)
    q: Tensor = torch.ops.mixed_gemm.unpack_weights(b_packed, bits, n, k)
    return q


def pack(q: Tensor, weight: str) -> Tensor:
    """:func:`pack_weights` by the name of a weight type.

    Args:
        q: int8 ``[N, K]``. weight: a name in ``problem.WEIGHTS``, of integers.
    """
    return pack_weights(q, **integer_options(weight))


def unpack(packed: Tensor, weight: str, n: int, k: int) -> Tensor:
    """:func:`unpack_weights` by the name of a weight type: int8 ``[n, k]``.

    Args:
        packed: uint8, from :func:`pack`. weight: as there. n, k: of the weight.
    """
    return unpack_weights(packed, n=n, k=k, **integer_options(weight))


@translates_errors("dequantize_weights")
def dequantize_weights(
    b_packed: Tensor,
    scales: Tensor,
    zeros: Tensor | None = None,
    *,
    bits: int,
    group_size: int = -1,
    zero_mode: str = "sub",
    n: int,
    k: int,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The dense weight, rounded once to ``dtype``. Differentiable in ``scales``.

    Args:
        b_packed: uint8, from :func:`pack_weights`.
        scales: float16, bfloat16 or float32 ``[G, n]``. NaN and Inf are not looked for: they come
            out as such in what they scale.
        zeros: ``[G, n]`` in the dtype of ``scales``, or None.
        bits: 4 or 8.
        group_size: elements of K that share a scale; -1 is all of them.
        zero_mode: "sub" is w = (q - zero) * scale, "add" is w = q * scale + zero; ignored without
            ``zeros``.
        n: output channels.
        k: input channels.
        dtype: of the result: float16, bfloat16 or float32; the dtype of ``scales`` when None.

    Returns:
        ``[n, k]``, contiguous.

    Raises:
        ValueError: ``bits``, ``group_size`` or ``zero_mode`` is out of range, or a tensor's shape
            or device does not fit the rest.
        TypeError: an argument is no tensor, or of another dtype.
        RuntimeError: ``zeros`` require grad or have a tangent.
        ImportError: the library did not load.
    """
    _library.require()
    op = "mixed_gemm::dequantize_weights"
    if dtype is not None:
        check_is_dtype(op, "dtype", dtype)
    refuse_non_numbers(op, bits=bits, group_size=group_size, n=n, k=k)
    weight: Tensor = torch.ops.mixed_gemm.dequantize_weights(
        b_packed,
        scales,
        zeros,
        bits=bits,
        group_size=group_size,
        zero_mode=zero_mode,
        n=n,
        k=k,
        dtype=scales.dtype if dtype is None and isinstance(scales, Tensor) else dtype,
    )
    return weight


def _forward(saved: Saved, dscales: Tensor, _: Tensor | None) -> Tensor:
    changes: dict[str, Tensor | None] = {"scales": dscales}
    if saved.arguments["zero_mode"] == "add":
        changes["zeros"] = None  # they are added to what the scales multiply
    return saved.linear(**changes)


def _backward(saved: Saved, grad: Tensor) -> Tensor:
    """w = integer * scale: the sum over the columns of a group; in fp32, which torch rounds once to
    the dtype of the scales."""
    given = saved.arguments
    groups, n = saved.x_shape
    k, zeros = given["k"], given["zeros"]
    if zeros is not None:
        zeros = None if given["zero_mode"] == "add" else zeros.float()
    ones = grad.new_ones(saved.x_shape, dtype=torch.float32)
    changes = {"scales": ones, "zeros": zeros, "dtype": torch.float32}
    integers: Tensor = saved.op(**{**given, **changes})
    group = k if given["group_size"] == -1 else given["group_size"]
    products = torch.nn.functional.pad(grad.float() * integers, (0, groups * group - k))
    return products.reshape(n, groups, group).sum(-1).t()


OPS = (
    of_integers(
        "pack_weights",
        "integers [N, K] in the layout that every kernel reads",
        ("q",),
        channel_blocks({"q": 0}, 0),
    ),
    of_integers(
        "unpack_weights",
        "the integers [N, K] of a packed weight",
        ("b_packed",),
        channel_blocks({"n": 0, "b_packed": 0}, 0),
    ),
    Op(
        "dequantize_weights",
        "the dense weight [N, K] of a packed one, rounded once",
        derivatives=Derivatives(WEIGHTS, Rule("scales", "", _forward, _backward)),
        autocast="its dtype is an argument",
        vmap=Batching(looped=("b_packed", "scales", "zeros")),
        flops=NO_PRODUCT,
        sharding=Sharding((channel_blocks({"n": 0, "b_packed": 0, "scales": 1, "zeros": 1}, 0),)),
    ),
)
