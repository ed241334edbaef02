"""The vocabulary of the quantization: weight types, group size, zero mode, activation, and their
rules.

The names repeat csrc/core/; tests/python/reference/test_reference.py compares the two. Scalar
arguments are checked here, for modules and configurations before any op runs; the texts are those
of csrc/problem/gemm.cpp.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from .errors import wrong_type, wrong_value


class WeightType(NamedTuple):
    """How a value is stored as a code.

    bits: the width of a code. bias: the stored code of an integer less the integer; 0 for floats.
    is_integer: whether codes are integers, which can have zero points. values: the number that each
    code stands for, where they are no integers. is_book: whether these are any numbers, looked up,
    and no binary floats.
    """

    bits: int
    bias: int
    is_integer: bool
    values: tuple[float, ...] = ()
    is_book: bool = False


_E2M1 = tuple(sign * x for sign in (1.0, -1.0) for x in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0))
# Quantiles of a normal distribution (QLoRA, appendix E), and bitsandbytes' own four bits.
_NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip
_FP4 = tuple(
    sign * x / 12 for sign in (1.0, -1.0) for x in (0.0, 0.0625, 8.0, 12.0, 4.0, 6.0, 2.0, 3.0)
)
WEIGHTS = {
    "int4": WeightType(4, 8, True),
    "int8": WeightType(8, 128, True),
    "e2m1": WeightType(4, 0, False, _E2M1),
    "nf4": WeightType(4, 0, False, _NF4, is_book=True),
    "fp4": WeightType(4, 0, False, _FP4, is_book=True),
}
BITS = tuple(weight.bits for weight in WEIGHTS.values() if weight.is_integer)
ZERO_MODES = ("none", "sub", "add")
ACTIVATIONS = ("identity", "relu", "relu6", "gelu", "gelu_tanh", "silu")
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
OPERAND_DTYPES = (torch.int8, torch.float8_e4m3fn)  # for scaled_mm
MAX_INT8_K = 131071  # the int32 sum of K products of -128 * -128 does not wrap
MAX_AZP = 2**22  # for quantize_per_tensor; csrc/problem/quantize.h
MAX_TOKEN_STEPS = 2**21  # that a row with a zero point may be away from 0; as above

LAYOUT_VERSION = 1  # for the packed weight; csrc/layout/weight_layout.h
MAX_EXTENT = 2**31 - 1 - 256  # for M, N and K: the kernels count them, padded, in 32 bits
PAD_N = 64  # the packed weight is padded to whole multiples of these
PAD_K = 64
GROUP_STEP = 16  # a group covers whole mma.m16n8k16 steps


def ceil_div(a: int, b: int) -> int:
    return (a + b - 1) // b


def round_up(a: int, b: int) -> int:
    return ceil_div(a, b) * b


def num_groups(k: int, group_size: int) -> int:
    """Rows of ``scales``: ceil(k / group_size), where -1 is one group (none for k = 0)."""
    return ceil_div(k, max(k, 1) if group_size == -1 else group_size)


def integer_weight(bits: int) -> str:
    """The weight type of integers of this width, which ``bits=`` of an op names; in ``WEIGHTS``
    where there are such."""
    return f"int{bits}"


def integer_range(weight: str) -> tuple[int, int]:
    """The smallest and the largest integer of a weight type; the first and the last code of one
    that has other numbers."""
    bits, bias = WEIGHTS[weight][:2]
    return -bias, (1 << bits) - 1 - bias


def float_weight(bits: int) -> str | None:
    """The weight type of packed binary floats of this width; None where there is none."""
    floats = {x.bits: name for name, x in WEIGHTS.items() if not x.is_integer and not x.is_book}
    return floats.get(bits)


def packed_shape(n: int, k: int, weight: str) -> tuple[int, int]:
    """Shape of the packed uint8 weight of a logical ``[n, k]``.

    Args:
        weight: a name in ``WEIGHTS``.
    """
    return round_up(n, PAD_N), round_up(k, PAD_K) * WEIGHTS[weight].bits // 8


def integer_options(weight: str, **others: Any) -> dict[str, Any]:
    """The keyword arguments by which the ops of packed integers, or those of other packed codes,
    know a weight.

    Args:
        weight: a name in ``WEIGHTS``. others: the rest of what an op takes.
    """
    return {"bits": WEIGHTS[weight].bits, **others}


def refuse_tensor(where: str, name: str, value: object, expected: str) -> None:
    """Raise ``TypeError`` for a tensor in place of a number, which torch's dispatcher would read, a
    sync on CUDA.

    Args:
        expected: what the argument must be, in words.
    """
    if isinstance(value, torch.Tensor):
        wrong_type(where, name, expected, "a tensor", hint=f"pass {name}.item()")


def refuse_non_numbers(where: str, **values: object) -> None:
    """Raise for what torch's dispatcher would take for an int: True as 1, and a 0-d tensor; and for
    an int that it would call no int, beyond 64 bits."""
    for name, value in values.items():
        refuse_tensor(where, name, value, "be an int")
        if isinstance(value, bool):
            wrong_value(where, name, "be an int", str(value))
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            wrong_value(where, name, "fit in 64 bits", str(value))


def check_bits(where: str, bits: int) -> None:
    """Raise ``ValueError`` unless ``bits`` is 4 or 8."""
    refuse_non_numbers(where, bits=bits)
    if bits not in BITS:
        wrong_value(where, "bits", "be 4 or 8", str(bits))


def nearest_group_size(k: int, group_size: int) -> int:
    """The accepted group size nearest to a refused one."""
    if k < GROUP_STEP or group_size <= 0 or group_size > k:
        return -1
    rounded = (group_size + GROUP_STEP // 2) // GROUP_STEP * GROUP_STEP
    return max(GROUP_STEP, min(rounded, k // GROUP_STEP * GROUP_STEP))


def check_group_size(where: str, group_size: int, k: int | None = None) -> None:
    """Raise ``ValueError`` unless ``group_size`` is -1 or a multiple of 16, at most ``k``."""
    refuse_non_numbers(where, group_size=group_size)
    if not isinstance(group_size, (int, torch.SymInt)):
        return  # the dispatcher names the declared type
    if group_size == -1:
        return
    divides = group_size >= GROUP_STEP and group_size % GROUP_STEP == 0
    if divides and (k is None or group_size <= k):
        return
    rule, because = "be -1 (per channel) or a positive multiple of 16", ""
    got, hint = str(group_size), "32, 64 and 128 are usual"
    if k is not None:
        got = f"group_size={group_size}, K={k}"
        hint = f"group_size={nearest_group_size(k, group_size)} is accepted"
    if divides:
        rule, because = "not be larger than K", "use -1 for per channel"
    wrong_value(where, "group_size", rule, got, because, hint)


def check_name(where: str, name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise ``ValueError`` unless ``value`` is one of ``allowed``."""
    if value not in allowed:
        got = f"'{value}'" if isinstance(value, str) else repr(value)
        wrong_value(where, name, f"be one of {', '.join(allowed)}", got)


def check_zero_mode(where: str, zero_mode: str, allowed: tuple[str, ...] = ("sub", "add")) -> None:
    """Raise ``ValueError`` unless ``zero_mode`` is one of ``allowed``."""
    check_name(where, "zero_mode", zero_mode, allowed)
