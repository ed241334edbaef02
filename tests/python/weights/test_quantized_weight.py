"""QuantizedWeight, the one type of all loaders."""

from __future__ import annotations

import pytest
import torch

from mixed_gemm.weights import QuantizedWeight

GOOD = {
    "name": "x",
    "q": torch.zeros(8, 32, dtype=torch.int8),
    "scales": torch.ones(2, 8),
    "group_size": 16,
}
BAD_FIELDS = {
    "q dtype": ({"q": torch.zeros(8, 32)}, r"q must be int8 or float8_e4m3fn"),
    "q rank": ({"q": torch.zeros(8, dtype=torch.int8)}, r"q must be int8 or float8_e4m3fn"),
    "q range": (
        {"q": torch.full((8, 32), 8, dtype=torch.int8)},
        r"q must be in -8\.\.7 for bits=4",
    ),
    "bits": ({"bits": 3}, r"bits must be 4 or 8"),
    "group_size": ({"group_size": 33}, r"group_size must be -1 or in 1\.\.K=32"),
    "scales": (
        {"scales": torch.ones(3, 8)},
        r"scales must be .* \(2, 8\), got torch.float32 \(3, 8\)",
    ),
    "scales NaN": ({"scales": torch.full((2, 8), float("nan"))}, r"scales must be finite, got nan"),
    "zeros alone": (
        {"zeros": torch.ones(2, 8)},
        r"zero_mode must be one of .* got 'none' with zeros",
    ),
    "zeros absent": ({"zero_mode": "sub"}, r"got 'sub' without zeros"),
    "zeros dtype": (
        {"zeros": torch.ones(2, 8).half(), "zero_mode": "sub"},
        r"zeros must be torch.float32 as scales, got torch.float16",
    ),
    "bias": ({"bias": torch.ones(9)}, r"bias must be .* \(8,\), got torch.float32 \(9,\)"),
    "permutation": ({"permutation": torch.arange(8)}, r"permutation must be int64 \(32,\)"),
    "repetition": (
        {"permutation": torch.zeros(32, dtype=torch.int64)},
        r"permutation must hold each of 0\.\.31 once",
    ),
}


@pytest.mark.parametrize("case", BAD_FIELDS)
def test_quantized_weight_refuses_what_does_not_fit(case):
    change, text = BAD_FIELDS[case]
    with pytest.raises(ValueError, match=text):
        QuantizedWeight(**{**GOOD, **change})


def test_quantized_weight_add_zeros_are_added():
    zeros = torch.arange(16.0).reshape(2, 8)
    weight = QuantizedWeight(**{**GOOD, "zeros": zeros, "zero_mode": "add"})
    assert torch.equal(weight.dequantize(), zeros.t().repeat_interleave(16, 1))
    assert torch.equal(weight.to_linear().dequantize(), weight.dequantize())
