"""The oracle of the GEMM: its exact result, in plain torch and float64, and how far a correct
kernel may be from it. It never calls the ops. Tests and benchmarks on CPU and CUDA share it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .arguments import bound_arguments, same_arguments
from .bounds import ROUNDING, Oracle

# activation -> (function, largest |derivative|)
ACTIVATION_TABLE: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "identity": (lambda x: x, 1.0),
    "relu": (torch.relu, 1.0),
    "relu6": (torch.nn.functional.relu6, 1.0),
    "gelu": (torch.nn.functional.gelu, 1.13),
    "gelu_tanh": (lambda x: torch.nn.functional.gelu(x, approximate="tanh"), 1.13),
    "silu": (torch.nn.functional.silu, 1.1),
}


def _float_value(code: int, exponent_bits: int, mantissa_bits: int) -> float:
    """The number of a sign, an exponent e and a mantissa m, from the top bit down. With m as a
    fraction of 1 and the bias b = 2^(exponent_bits - 1) - 1 it is 2^(e - b) * (1 + m), and
    2^(1 - b) * m where e is 0."""
    bias = 2 ** (exponent_bits - 1) - 1
    fraction = code % 2**mantissa_bits / 2**mantissa_bits
    exponent = code >> mantissa_bits & (2**exponent_bits - 1)
    sign = -1.0 if code >> (exponent_bits + mantissa_bits) else 1.0
    if exponent == 0:
        return math.ldexp(sign * fraction, 1 - bias)
    return math.ldexp(sign * (1 + fraction), exponent - bias)


# weight type -> the value of each code, float64
VALUES: dict[str, Tensor] = {
    "int4": torch.arange(-8, 8, dtype=torch.float64),
    "int8": torch.arange(-128, 128, dtype=torch.float64),
    # 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
    "e2m1": torch.tensor([_float_value(x, 2, 1) for x in range(16)], dtype=torch.float64),
    # float8_e4m3fn: up to 448, where the code of all ones below the sign is NaN.
    "e4m3": torch.tensor(
        [float("nan") if x & 127 == 127 else _float_value(x, 4, 3) for x in range(256)],
        dtype=torch.float64,
    ),
}

# The code books of bitsandbytes. NF4: quantiles of a normal distribution, as its float32 table has
# them (QLoRA, appendix E). FP4: a sign and three bits that are no binary float, over 12.
BOOKS = ("nf4", "fp4")
VALUES["nf4"] = torch.tensor(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ],
    dtype=torch.float64,
)
_TWELFTHS = torch.tensor([0, 0.0625, 8, 12, 4, 6, 2, 3], dtype=torch.float64)
VALUES["fp4"] = (torch.cat([_TWELFTHS, -_TWELFTHS]) / 12).float().double()

LAM = 6.0  # standard deviations that the statistical bound allows


def num_groups(k: int, group_size: int) -> int:
    """Rows of ``scales``: ceil(k / group_size), where -1 is one group (none for k = 0)."""
    return -(-k // (max(k, 1) if group_size == -1 else group_size))


def expand_groups(x: Tensor, k: int, group_size: int) -> Tensor:
    """``[G, N]`` per group -> ``[N, K]`` per weight, float64.

    Args:
        x: ``[G, N]``, G = ceil(k / group_size).
        k: elements of K. group_size: how many of them share a row of ``x``; -1 is all.
    """
    size = k if group_size == -1 else group_size
    assert x.shape[0] == num_groups(k, group_size)
    return x.double().repeat_interleave(size, dim=0)[:k].t()


def _looked_up(codes: Tensor, values: Tensor) -> Tensor:
    """Look up the value of each code; a code without a value is an error."""
    found = values.to(codes.device).index_select(0, codes.flatten().long())
    return found.view(codes.shape)


def dequantize(
    q: Tensor,
    scales: Tensor,
    zeros: Tensor | None = None,
    *,
    group_size: int = -1,
    zero_mode: str = "sub",
    weight: str | None = None,
    factor: Tensor | None = None,
) -> Tensor:
    """The exact weight.

    Args:
        q: int8 ``[N, K]``, integers themselves; or codes of ``weight``, any integer dtype.
        scales: ``[G, N]``, any float dtype.
        zeros: ``[G, N]`` or None.
        group_size: elements of K that share a scale; -1 is all of them.
        zero_mode: "sub" or "add"; ignored without ``zeros``.
        weight: a name of ``VALUES``, where codes are looked up; None: ``q`` is what it says.
        factor: ``[N]`` of the columns of the output or ``[]`` of all, or None: multiplies what the
            rest makes.

    Returns:
        float64 ``[N, K]``. Exact without a factor: a product of an 11-bit and an 8-bit number fits
        53 bits.

    Raises:
        ValueError: ``zero_mode`` is neither "sub" nor "add".
    """
    k = q.shape[1]
    w = q.double() if weight is None else _looked_up(q, VALUES[weight])
    s = expand_groups(scales, k, group_size)
    if zeros is None:
        w = w * s
    else:
        z = expand_groups(zeros, k, group_size)
        if zero_mode not in ("sub", "add"):
            raise ValueError(f"zero_mode must be 'sub' or 'add', got {zero_mode!r}")
        w = (w - z) * s if zero_mode == "sub" else w * s + z
    return w if factor is None else w * factor.double().reshape(-1, 1)


def fpA_intB_gemm(
    a: Tensor,
    q: Tensor,
    scales: Tensor,
    zeros: Tensor | None = None,
    bias: Tensor | None = None,
    pre_scale: Tensor | None = None,
    *,
    group_size: int = -1,
    zero_mode: str = "sub",
    activation: str = "identity",
) -> Tensor:
    """Compute what ``mixed_gemm.fpA_intB_gemm`` approximates:
    activation((a * pre_scale) @ w.T + bias).

    Args:
        a: ``[..., K]``.
        q, scales, zeros, group_size, zero_mode: of the weight, as :func:`dequantize` takes them.
        bias: ``[N]`` or None. pre_scale: ``[K]`` or None.
        activation: a name of ACTIVATION_TABLE.

    Returns:
        float64 ``[..., N]``.
    """
    x = a.double() if pre_scale is None else a.double() * pre_scale.double()
    y = x @ dequantize(q, scales, zeros, group_size=group_size, zero_mode=zero_mode).t()
    return ACTIVATION_TABLE[activation][0](y if bias is None else y + bias.double())


@same_arguments(fpA_intB_gemm)
def error_bound(*operands: Any, **options: Any) -> Tensor:
    """The elementwise statistical bound of docs/numerics.md, float64 ``[..., N]``.

    With u and eta of the dtype of ``a`` (see ROUNDING), e = 2^-23 (tensor cores truncate fp32
    sums), x = a * pre_scale, w the exact weight, y the exact pre-activation::

        B_pre = lam * (u * sqrt(x^2 @ V) + eta * sqrt(x^2 @ 1 + 1 @ w^2 [pre_scale]))   (1)
              + (K/16 + 5) * e * (|x| @ |w|_parts + |bias|)                             (2)
              + lam * e * sqrt(K/16 + 5) * sqrt(x^2 @ (2 * stored * s)^2)               (2)
              + u * |sum of x over a group| @ 2 |z s|, of z that are too large          (3)
        bound = L * B_pre + u * |f(y)| + 4 * e * |y| + eta                              (4)

    (1) Rounding of the operands. Each rounding is a relative error delta with |delta| <= u that is
        independent between weights, so the error of the sum is a random walk: its standard
        deviation is at most u * sqrt(sum x^2 v), and lam = 6 of them leaves no chance in practice
        (sqrt(K) tighter than the theorem that lets all errors line up). V counts the roundings:
        w^2 for the one of the dequantized weight; another w^2 in "sub" with zeros that are not
        integers of at most 1016 in float16 and 120 (8 bits: 128) in bfloat16 (q - z rounds
        too; of these it is exact); (q s)^2 more in "add", where product
        and sum may round apart; and w^2 more with pre_scale, which rounds x. eta covers
        underflow: products below the smallest normal number round absolutely.
    (2) The fp32 sum, one truncation for each 16-deep mma. Kernels may sum q * s and z apart, so
        |w|_parts = |q s| + |z s| or |q s| + |z|. They may also sum codes of 4 bits as they are
        stored, too large by 8 (in bfloat16 by 136), and take the sum of x times that away: those
        truncations count by themselves where weights are 0, and are some hundredths of (1) else.
    (3) Whole zero points beyond these leave in two parts, and what rounds in the second is the
        same for all weights of a group: no random walk. No checkpoint has any.
    (4) The activation amplifies by at most its Lipschitz constant L (1.13 gelu, 1.1 silu), runs in
        fp32 (erf, tanh and exp lose a few e * |y|), and the result is rounded once.

    Args:
        a: float16, bfloat16 or float32 ``[..., K]``: its dtype is the one that is rounded to.
        The rest as in :func:`fpA_intB_gemm`.
    """
    return oracle(*operands, **options).statistical


@dataclass(frozen=True)
class Parts:
    """The terms of the bounds: float64 matrices over the output, and scalars."""

    u: float
    eta: float
    steps: float  # truncations of a sum in fp32, one for each 16-deep mma and some around them
    k: int
    y: Tensor  # the exact pre-activation
    random: Tensor  # sqrt(x^2 @ V): a deviation of the rounded operands, in units of u
    worst: Tensor  # |x| @ (sum of the roundings' magnitudes), likewise
    underflow: tuple[Tensor, Tensor]  # its deviation and its most, in units of eta
    magnitude: Tensor  # |x| @ |w|_parts + |bias|
    together: Tensor  # roundings alike for all of a group, in units of u
    stored: Tensor  # |x| @ |w|_stored + |bias|
    stored_random: Tensor  # sqrt(x^2 @ (what w is stored too large by, and what takes it away)^2)

    def statistical(self, activation: str) -> Tensor:
        bound = LAM * (self.u * self.random + self.eta * self.underflow[0])
        bound = bound + self.steps * 2.0**-23 * self.magnitude + self.u * self.together
        bound = bound + LAM * 2.0**-23 * self.steps**0.5 * self.stored_random
        return self._finished(bound, activation)

    def hard(self, activation: str) -> Tensor:
        bound = self.u * (self.worst + self.together) + self.eta * self.underflow[1]
        bound = bound + (self.k + 13) * 2.0**-23 * self.stored
        return self._finished(1.01 * bound, activation)

    def _finished(self, bound: Tensor, activation: str) -> Tensor:
        function, lipschitz = ACTIVATION_TABLE[activation]
        rounded = self.u * function(self.y).abs() + 4 * 2.0**-23 * self.y.abs() + self.eta
        return lipschitz * bound + rounded


# By how much kernels multiply 4-bit codes too large, as they lie in the packed weight: 8 is the
# layout's, 128 more the constant that makes a bfloat16 of them.
_STORED_BIAS = {torch.float16: 8, torch.bfloat16: 136, torch.float32: 0}
# The largest whole zero point that leaves with the constants of a 4-bit conversion, exactly (of 8
# bits: 128 at least); float32 kernels subtract it.
_MOST_ZERO = {torch.float16: 1016, torch.bfloat16: 120, torch.float32: 2**24}


def _sums_of_groups(x: Tensor, k: int, group_size: int) -> Tensor:
    """``[..., K]`` -> ``[..., G]``."""
    size = max(k if group_size == -1 else group_size, 1)
    padded = torch.nn.functional.pad(x, (0, num_groups(k, group_size) * size - k))
    return padded.reshape(*x.shape[:-1], num_groups(k, group_size), size).sum(-1)


def parts_of(
    a: Tensor,
    q: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    bias: Tensor | None,
    pre_scale: Tensor | None,
    *,
    group_size: int,
    zero_mode: str,
    is_stored_as_integer: bool = True,
    is_looked_up: bool = False,
    factor: Tensor | None = None,
) -> Parts:
    """The terms of the bounds of :func:`oracle`.

    Args:
        a, scales, zeros, bias, pre_scale, group_size, zero_mode: of :func:`fpA_intB_gemm`.
        q: ``[N, K]``, the number of each code.
        is_stored_as_integer: whether codes are integers, which kernels may multiply with a bias,
            and whose products with a scale round; else those alone round that are none of the
            dtype.
        is_looked_up: whether codes are those of a book, whose values kernels round to the dtype of
            ``a`` before they meet a scale, so that a weight rounds twice.
        factor: ``[N]``, or None: multiplies the sums.
    """
    u, eta = ROUNDING[a.dtype]
    k = q.shape[1]
    s = expand_groups(scales, k, group_size)
    w = dequantize(q, scales, zeros, group_size=group_size, zero_mode=zero_mode)
    x = a.double() if pre_scale is None else a.double() * pre_scale.double()
    y = x @ w.t()

    # Magnitudes of what rounds: the weight itself, then what the scheme adds to it.
    product, absolute = q.double() * s, w.abs()
    parts, rounded, variance = product.abs(), absolute, w.square()
    if not is_stored_as_integer:
        exact = w.to(a.dtype).double() == w
        rounded, variance = (torch.where(exact, 0.0, x) for x in (rounded, variance))
    if is_looked_up:
        rounded, variance = 2 * absolute, 2 * w.square()
    together = torch.zeros_like(y)
    four_bits = is_stored_as_integer and bool(((q >= -8) & (q < 8)).all())
    stored_bias = _STORED_BIAS[a.dtype] if four_bits else 0
    if zeros is not None:
        z = expand_groups(zeros, k, group_size)
        if zero_mode == "sub":
            held = _MOST_ZERO[a.dtype] if four_bits else max(_MOST_ZERO[a.dtype], 128)
            again = torch.where((z == z.round()) & (z.abs() <= held), 0.0, absolute)
            parts = parts + (z * s).abs()
            large = zeros.double().abs() > held
            if large.any():
                alike = torch.where(large, 2 * (zeros.double() * scales.double()).abs(), 0.0)
                together = _sums_of_groups(x, k, group_size).abs() @ alike
        else:
            again = product.abs()
            parts = parts + z.abs()
        rounded, variance = rounded + again, variance + again.square()
    deviation = x.square().sum(-1, keepdim=True)
    most = x.abs().sum(-1, keepdim=True)
    if pre_scale is not None:
        rounded, variance = rounded + absolute, variance + w.square()
        deviation, most = deviation + w.square().sum(1), most + absolute.sum(1)
    times = torch.ones(()).to(w) if factor is None else factor.double()
    added = 0.0 if bias is None else bias.double()
    most_added = 0.0 if bias is None else bias.double().abs()
    scaled = times.abs()
    return Parts(
        u,
        eta,
        k / 16 + 5 + (factor is not None),
        k,
        y * times + added,
        (x.square() @ variance.t()).sqrt() * scaled,
        x.abs() @ rounded.t() * scaled,
        (deviation.sqrt() * scaled, most * scaled),
        x.abs() @ parts.t() * scaled + most_added,
        together * scaled,
        x.abs() @ (parts + 2 * stored_bias * s.abs()).t() * scaled + most_added,
        (x.square() @ (2 * stored_bias * s).square().t()).sqrt() * scaled,
    )


@same_arguments(fpA_intB_gemm)
def oracle(*operands: Any, **options: Any) -> Oracle:
    """:func:`fpA_intB_gemm`, :func:`error_bound` and the hard bound at the price of one of them.
    Arguments as in :func:`error_bound`.

    The hard bound lets all errors line up, as the theorem does::

        B_pre = 1.01 * (u * (|x| @ R + (3)) + eta * (|x| @ 1 + 1 @ |w| [pre_scale])
                        + (K + 13) * e * (|x| @ |w|_stored + |bias|))

    with R the sum of the magnitudes whose squares are V in :func:`error_bound`, |w|_stored those
    of |w|_parts with code and zero point as kernels may store them (8 too large, 136 in bfloat16;
    the sum of the tokens takes that away: a product of two numbers of 22 bits, cut off, which is
    8 e of it), and 1.01 for products of roundings (u is at most 2^-8). It is the tighter one up to
    some 36 elements of K, where lam = 6 deviations are more than all errors together.
    """
    arguments = bound_arguments(fpA_intB_gemm, *operands, **options)
    activation = arguments.pop("activation")
    parts = parts_of(**arguments)
    expected = ACTIVATION_TABLE[activation][0](parts.y)
    return Oracle(expected, parts.statistical(activation), parts.hard(activation))
