"""A dtype that is a number, where torch itself would read beyond its table of dtypes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import mixed_gemm

A = torch.zeros(2, 64, dtype=torch.int8)
B = torch.zeros(64, 64, dtype=torch.int8).t()
ONE = torch.ones(1)
ADJUST = torch.zeros(64, dtype=torch.int32)
PACKED = torch.zeros(64, 32, dtype=torch.uint8)
SCALES = torch.ones(1, 64)

CALLS = {
    "scaled_mm": lambda t: mixed_gemm.scaled_mm(A, B, ONE, ONE, out_dtype=t),
    "scaled_mm_azp": lambda t: mixed_gemm.scaled_mm_azp(A, B, ONE, ONE, ADJUST, out_dtype=t),
    "dequantize_weights": lambda t: mixed_gemm.dequantize_weights(
        PACKED, SCALES, bits=4, n=64, k=64, dtype=t
    ),
}


@pytest.mark.parametrize("op", CALLS)
@pytest.mark.parametrize("value", [1000, -24, 232, 6, 2**40, "float16", 1.5, float, True], ids=repr)
def test_what_is_no_dtype_is_a_type_error(op: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"mixed_gemm::{op}: (out_)?dtype must be a torch.dtype"):
        CALLS[op](value)
    assert CALLS[op](torch.float16).dtype == torch.float16


@pytest.mark.parametrize("value", [4, 11, 22, 44, 256], ids=repr)
def test_numbers_of_other_dtypes_are_refused_by_the_raw_op(value: int) -> None:
    """Within torch's table: int64, bool, and some that the stable ABI does not know."""
    with pytest.raises(RuntimeError, match=r"out_dtype must be|Not yet supported ScalarType"):
        torch.ops.mixed_gemm.scaled_mm(A, B, ONE, ONE, out_dtype=value)
