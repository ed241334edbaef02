"""Numbers and addresses at their ends, through every op: sizes whose product does not fit 64 bits
(an expanded tensor takes no memory for them), settings near 2^63, buffers that begin at an odd
byte. Each is refused in words or computed as ever; under UBSan (`make gate`) any overflow or
misaligned access on the way there ends the test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import mixed_gemm

ops = torch.ops.mixed_gemm
MAX = 2**63 - 1
HUGE = (2**31 - 1, 2**62, MAX, -MAX - 1)
WORD = torch.zeros(1, 1, dtype=torch.int32)
BYTE = torch.zeros(1, 1, dtype=torch.uint8)
INT8 = torch.zeros(1, 1, 1, 1, dtype=torch.int8)
ONE = torch.ones(1, 1)
X = torch.ones(1, 64)
SCALES = torch.ones(1, 64)
COLUMN_SCALES = torch.ones(1, 8)
WEIGHT = torch.ones(8, 64, dtype=torch.int8)


def packed() -> torch.Tensor:
    return mixed_gemm.pack_weights(torch.ones(64, 64, dtype=torch.int8), 4)


def gemm(**changes: Any) -> torch.Tensor:
    tensors = {"a": X, "b_packed": packed(), "scales": SCALES}
    return ops.fpA_intB_gemm(**{**tensors, "bits": 4, **changes})


def conv(**changes: Any) -> torch.Tensor:
    filters = mixed_gemm.pack_conv_weights(torch.ones(8, 16, 3, 3, dtype=torch.int8), 4)
    options = {"bits": 4, "block_size": -1, "kernel_size": (3, 3)}
    image = changes.pop("input", torch.ones(1, 16, 4, 4))
    return ops.qconv2d(image, filters, COLUMN_SCALES, None, None, **{**options, **changes})


def conv_int8(**changes: Any) -> torch.Tensor:
    options = {"input_scale": 1.0, "input_zero_point": 0, "output_scale": 1.0}
    tensors = {
        "input": torch.ones(1, 16, 4, 4, dtype=torch.int8),
        "weight": torch.ones(8, 16, 3, 3, dtype=torch.int8),
        "weight_scale": torch.ones(8),
    }
    return ops.qconv2d_int8(**{**tensors, **options, "output_zero_point": 0, **changes})


def block(**changes: Any) -> torch.Tensor:
    tensors = {"a": X, "b": WEIGHT.t(), "scale_b": COLUMN_SCALES, "offset_b": COLUMN_SCALES}
    return ops.block_quant_gemm(**{**tensors, "block_size": -1, **changes})


def awq(words: torch.Tensor, **changes: Any) -> torch.Tensor:
    tensors = {"input": ONE, "qweight": words, "scales": ONE, "qzeros": words}
    return ops.awq_gemm(**{**tensors, "split_k_iters": 1, **changes})


# The call, and what its message must say.
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "awq_repack columns": (lambda: ops.awq_repack(WORD.expand(1, 2**61)), "awq_repack: qweight"),
    "awq_repack rows": (lambda: ops.awq_repack(WORD.expand(2**61, 1)), "awq_repack: qweight"),
    "awq_gemm columns": (lambda: awq(WORD.expand(1, 2**61)), "awq_gemm: qweight"),
    "gptq_repack rows": (
        lambda: ops.gptq_repack(WORD.expand(2**59, 1), None, bits=4),
        "gptq_repack: qweight",
    ),
    "b_packed": (lambda: gemm(b_packed=BYTE.expand(1, 2**62)), f"holds padded K={2**63}"),
    "scales": (lambda: gemm(scales=ONE.expand(1, 2**61)), "N must be in"),
    "a": (lambda: gemm(a=ONE.expand(1, 2**61)), "K must be in"),
    "pack": (lambda: ops.pack_weights(INT8[0, 0].expand(2**40, 2**20), 4), "N must be in"),
    "pack_conv": (
        lambda: ops.pack_conv_weights(INT8.expand(2**20, 2**20, 2**10, 2**10), 4),
        "pack_conv_weights: ",
    ),
    "conv channels": (lambda: conv(input=ONE[None, None].expand(1, 2**60, 1, 1)), "qconv2d: "),
    "conv image": (lambda: conv(input=ONE[None, None].expand(1, 16, 2**29, 2**29)), "2\\^31"),
    "conv int8 filter": (
        lambda: conv_int8(weight=INT8.expand(8, 16, 2**27, 2**27)),
        "qconv2d_int8: kernel_size",
    ),
    "conv block": (lambda: conv(block_size=MAX - 15), "block_size must not be larger"),
    "block_quant_gemm block": (lambda: block(block_size=MAX - 15), "block_size must not be larger"),
    "group": (lambda: gemm(group_size=MAX - 15), "group_size must not be larger"),
    **{f"bits {n}": (lambda n=n: gemm(bits=n), "bits must be 4 or 8") for n in HUGE},
    **{f"group {n}": (lambda n=n: gemm(group_size=n), "group_size must") for n in HUGE},
    **{
        f"unpack {n}": (lambda n=n: ops.unpack_weights(packed(), 4, n, n), "N must be|b_packed")
        for n in HUGE
    },
    **{
        f"dequantize {n}": (
            lambda n=n: ops.dequantize_weights(
                packed(),
                SCALES,
                None,
                bits=4,
                group_size=n,
                zero_mode="sub",
                n=n,
                k=n,
                dtype=torch.float32,
            ),
            "must",
        )
        for n in HUGE
    },
    **{
        f"{name} {key} {n}": (lambda f=f, key=key, n=n: f(**{key: (n, n)}), f"{key}|image|output")
        for name, f in (("conv", conv), ("conv int8", conv_int8))
        for key in ("kernel_size", "stride", "padding", "dilation")
        for n in HUGE
        # A stride beyond the image is legal, and there is no kernel_size beside a plain weight.
        if (name, key) != ("conv int8", "kernel_size") and (key, n) != ("stride", 2**31 - 1)
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_counted_is_refused(name: str) -> None:
    call, text = REFUSED[name]
    with pytest.raises(RuntimeError, match=text):
        call()
    assert gemm().shape == (1, 64)


def empty(*sizes: int) -> torch.Tensor:
    """Nothing, with strides whose products do not fit 64 bits."""
    strides = [2**62 - 16 * i for i in range(len(sizes) - 1)]
    return torch.empty(0).as_strided(sizes, (*strides, 1))


@pytest.mark.parametrize("sizes", ((2**40, 0, 2**20, 64), (0, 3, 64), (2, 3, 0)), ids=str)
def test_strides_of_nothing_may_be_any_number(sizes: tuple[int, ...]) -> None:
    a, k = empty(*sizes), sizes[-1]
    b = mixed_gemm.pack_weights(torch.ones(64, k, dtype=torch.int8), 4)
    scales = torch.ones(1 if k else 0, 64)
    assert ops.fpA_intB_gemm(a, b, scales, bits=4).shape == (*sizes[:-1], 64)
    assert ops.quantize_per_token(a)[0].shape == sizes
    w = torch.ones(8, k, dtype=torch.int8).t()
    scale = torch.ones(1)
    q = a.to(torch.int8) if sizes[0] < 2**40 else torch.empty(0, k, dtype=torch.int8)
    assert ops.scaled_mm(q, w, scale, scale, None, out_dtype=torch.float32).shape[-1] == 8
    assert ops.scaled_mm_dynamic(a, w, scale).shape == (*sizes[:-1], 8)


def at_odd_byte(t: torch.Tensor) -> torch.Tensor:
    """The same values one byte behind an aligned address."""
    t = t.contiguous()
    buffer = bytearray(t.numel() * t.element_size() + 1)
    buffer[1:] = t.view(torch.uint8).numpy().tobytes()
    moved = torch.frombuffer(buffer, dtype=t.dtype, offset=1).view(t.shape)
    assert moved.data_ptr() % t.element_size() != 0 and torch.equal(moved, t)
    return moved


def words_of(*sizes: int) -> torch.Tensor:
    return torch.randint(-(2**31), 2**31 - 1, sizes, dtype=torch.int32)


# An op on tensors that are moved to odd bytes, all but those of int8 and uint8.
UNALIGNED: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "gemm": (
        lambda a, s, z, b, p: gemm(
            a=a, scales=s, zeros=z, bias=b, pre_scale=p, group_size=32, activation="silu"
        ),
        (torch.randn(5, 64), *torch.rand(2, 2, 64), torch.randn(64), torch.rand(64)),
    ),
    "scaled_mm_azp": (
        lambda sa, sb, adj, azp, bias: ops.scaled_mm_azp(
            torch.ones(5, 64, dtype=torch.int8),
            WEIGHT.t(),
            sa,
            sb,
            adj,
            azp,
            bias,
            out_dtype=torch.float32,
        ),
        (
            torch.rand(5),
            torch.rand(8),
            torch.arange(8, dtype=torch.int32),
            torch.arange(5, dtype=torch.int32),
            torch.randn(8),
        ),
    ),
    "scaled_mm_dynamic": (
        lambda a, scale, adj, bias: ops.scaled_mm_dynamic(a, WEIGHT.t(), scale, adj, bias),
        (
            torch.randn(5, 64),
            torch.rand(8),
            torch.arange(8, dtype=torch.int32),
            torch.randn(8),
        ),
    ),
    "quantize_per_token": (lambda a: ops.quantize_per_token(a)[0], (torch.randn(5, 64),)),
    "quantize_per_tensor": (
        ops.quantize_per_tensor,
        (torch.randn(5, 64), torch.tensor([0.02]), torch.tensor([3], dtype=torch.int32)),
    ),
    "awq_gemm": (
        lambda a, w, s, z: ops.awq_gemm(a, w, s, z, 1),
        (torch.randn(5, 64), words_of(64, 9), torch.rand(2, 72), words_of(2, 9)),
    ),
    "awq_dequantize": (
        ops.awq_dequantize,
        (words_of(64, 9), torch.rand(2, 72), words_of(2, 9)),
    ),
    "awq_repack": (ops.awq_repack, (words_of(64, 9),)),
    **{
        f"gptq_repack {bits}": (
            lambda w, p, bits=bits: ops.gptq_repack(w, p, bits=bits),
            (words_of(96 * bits // 32, 40), torch.randperm(96, dtype=torch.int32)),
        )
        for bits in (2, 3, 4, 8)
    },
    "qconv2d": (
        lambda x, s, o, b: ops.qconv2d(
            x,
            mixed_gemm.pack_conv_weights(torch.ones(8, 16, 3, 3, dtype=torch.int8), 4),
            s,
            o,
            b,
            bits=4,
            kernel_size=(3, 3),
        ),
        (torch.randn(1, 16, 5, 4), torch.rand(1, 8), torch.rand(1, 8), torch.randn(8)),
    ),
    "qconv2d_int8": (
        lambda s, b: conv_int8(weight_scale=s, bias=b),
        (torch.rand(8), torch.randn(8)),
    ),
    "block_quant_gemm": (
        lambda a, s, o, b: block(a=a, scale_b=s, offset_b=o, bias=b),
        (torch.randn(5, 64), torch.rand(1, 8), torch.rand(1, 8), torch.randn(8)),
    ),
}


@pytest.mark.parametrize("name", UNALIGNED)
def test_tensors_may_begin_at_any_byte(name: str) -> None:
    op, tensors = UNALIGNED[name]
    assert torch.equal(op(*map(at_odd_byte, tensors)), op(*tensors))
