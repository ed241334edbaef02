"""The rules of the contracts that are functions, whose texts are written by hand: a call that each
refuses, and the text. A refusal that no other rule explains must be one of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from problems.rows import HALF
from torch import Tensor

# (op, changes of its valid call, what the text says: a regular expression)
Row = tuple[str, dict[str, Any], str]

WEIGHTS = ("fpA_intB_gemm", "fpA_intB_gemm_config", "dequantize_weights")
FLOATS = ("fpA_fpB_gemm", "fpA_fpB_gemm_config", "dequantize_codes")
GROUPED = ("grouped_fpA_intB_gemm", "grouped_fpA_intB_gemm_config")
GROUPED_FLOATS = ("grouped_fpA_fpB_gemm", "grouped_fpA_fpB_gemm_config")
MATRICES = (*WEIGHTS, *GROUPED, "pack_weights", "unpack_weights")
AWQ = ("awq_gemm", "awq_dequantize")
SCALED = ("scaled_mm", "scaled_mm_azp")
HUGE = 2**31
FLOAT8 = torch.float8_e4m3fn


def zeros(*shape: int, dtype: torch.dtype = torch.int8) -> Tensor:
    """Of any size in one byte of memory or few."""
    return torch.zeros(1, dtype=dtype).expand(shape)


def matrices() -> Iterator[Row]:
    for op in (*MATRICES, "qconv2d", "pack_conv_weights"):
        yield op, {"bits": 5}, "bits must be 4 or 8, got 5$"
    for op in (*WEIGHTS, *FLOATS, *GROUPED, *GROUPED_FLOATS):
        not_a_group = r"got group_size=7, K=96\. Hint: group_size=16 is accepted$"
        yield op, {"group_size": 7}, f"group_size must be -1 .* multiple of 16, {not_a_group}"
        too_large = r"got group_size=112, K=96; use -1 for per channel\. Hint: .*-1 is accepted$"
        yield op, {"group_size": 112}, f"group_size must not be larger than K, {too_large}"
    for op in ("unpack_weights", "dequantize_weights", "unpack_codes", "dequantize_codes"):
        for name in ("n", "k"):
            for value in (-1, HUGE):
                text = rf"{name.upper()} must be in 0\.\.2147483391, got {value}$"
                yield op, {name: value}, text
    text = r"K of a must fit b_packed, got K=64 \(padded 64\) and b_packed \(128, 64\), which holds"
    for op in (*WEIGHTS[:2], *FLOATS[:2]):
        yield op, {"a": lambda x: x[:, :64]}, text
    for op in (*GROUPED, *GROUPED_FLOATS):
        yield op, {"a": lambda x: x[:, :64]}, text.replace("(128", "(3, 128")
    yield "pack_conv_weights", {"q": lambda x: x[:, :0]}, r"q must not be empty, got \(24, 0, 3, 3"


def checkpoints() -> Iterator[Row]:
    for op in (*AWQ, "awq_repack", "gptq_repack"):
        yield op, {"qweight": lambda x: x[:0]}, "qweight must have rows, got K=0$"
    for op in AWQ:
        exchanged = {"scales": lambda x: x.int(), "qzeros": lambda x: x.half()}
        text = "scales must be floating and qzeros int32, got int32 and float16. Hint: scales come"
        yield op, exchanged, text
        shape = r"qzeros must be \(K/group_size, N/8\) = \(a divisor of 96, 9\)"
        yield op, {"qzeros": lambda x: x[:, :8]}, rf"{shape}, got \(3, 8\)$"
        shape = r"scales must be \(K/group_size, N\) = \(3, 72\)"
        source = "N=72 from qweight, K/group_size from qzeros"
        yield op, {"scales": lambda x: x[:2]}, rf"{shape}, got \(2, 72\); {source}$"
        turned = rf"{shape}, got \(72, 3\); {source}\. Hint: it looks transposed, pass .t\(\)"
        yield op, {"scales": lambda x: x.t()}, turned
        groups = {"scales": lambda x: x[:, :].repeat(4, 1), "qzeros": lambda x: x.repeat(4, 1)}
        yield op, groups, "group_size must be -1 .* multiple of 16, got group_size=8, K=96$"
    text = r"input must be \(..., K\) = \(..., 96\), got \(3, 64\); K from qweight \(96, 9\)$"
    yield "awq_gemm", {"input": lambda x: x[:, :64]}, text
    text = r"split_k_iters must be a power of two in 1\.\.32, got 3$"
    yield "awq_gemm", {"split_k_iters": 3}, text
    yield "gptq_repack", {"bits": 5}, r"bits must be 2, 3, 4 or 8, got 5\. Hint: 5, 6 and 7 bits"
    text = r"qweight must have K\*bits/32 rows, a multiple of 3 for bits=3, got \(4, 72\)$"
    yield "gptq_repack", {"qweight": lambda x: x[:4], "bits": 3}, text


def products() -> Iterator[Row]:
    for op in SCALED:
        text = "a must be int8 or float8_e4m3fn, got"
        hint = r"mixed_gemm.quantize_per_token\(a\) makes int8 and its scale$"
        yield op, {"a": lambda x: x.half()}, f"{text} float16. Hint: {hint}"
        hint = r"mixed_gemm.ops.quantize_fp8\(a.float\(\)\) makes float8_e4m3fn and its scale$"
        yield op, {"a": lambda x: x.view(torch.float8_e5m2)}, f"{text} float8_e5m2. Hint: {hint}"
    for op, dtype in (*((op, torch.int8) for op in SCALED), ("scaled_mm_dynamic", HALF)):
        deep = {"a": zeros(2, 131072, dtype=dtype), "b": zeros(72, 131072).contiguous().t()}
        yield op, deep, "K must be at most 131071 for int8, .* cannot wrap, got K=131072; split K"
    floats = {"a": lambda x: x.to(FLOAT8), "b": lambda x: x.to(FLOAT8)}
    text = "a and b must be int8: zero points are integers, got float8_e4m3fn. Hint: scaled_mm$"
    yield "scaled_mm_azp", floats, text
    op = "block_quant_gemm"
    text = r"multiple of 16, got block_size=7, K=96\. Hint: block_size=16 is accepted$"
    yield op, {"block_size": 7}, f"block_size must be -1 .* {text}"
    text = r"larger than K, got block_size=112, K=96\. Hint: block_size=-1 is accepted$"
    yield op, {"block_size": 112}, f"block_size must not be {text}"
    deep = {"a": zeros(2, 131072, dtype=HALF), "b": zeros(72, 131072).contiguous().t()}
    text = "a block must have at most 131071 elements, .* cannot wrap, got block_size=-1, K=131072$"
    yield op, {**deep, "block_size": -1}, text
    text = r"block_size must be None \(all of K\) or at least 1, got 0$"
    yield "quantize_fp8", {"block_size": 0}, text


def convolutions() -> Iterator[Row]:
    for op, channels, outputs in (("qconv2d", 40, 24), ("qconv2d_int8", 6, 8)):
        for name, value in (("stride", [0, 1]), ("dilation", [1, HUGE]), ("padding", [-1, 0])):
            least = int(name != "padding")
            shown = rf"\({value[0]}, {value[1]}\)"
            text = rf"{name} must be in {least}\.\.2147483647, got {shown}$"
            yield op, {name: value}, text
        more = {"block_size": -1} if op == "qconv2d" else {"weight": lambda x: x[:, :0]}
        text = f"input and weight must have channels, got Ci=0, Co={outputs}$"
        yield op, {"input": lambda x: x[:, :0], **more}, text
        image = zeros(1, channels, 2**15, 2**14, dtype=HALF if op == "qconv2d" else torch.int8)
        count = f"got {channels * 2**29} of "
        text = rf"input must have fewer than 2\^31 = 2147483648 elements, {count}.*Hint: split the"
        yield op, {"input": image}, text
        far = {"stride": [1, 1], "padding": [2**15, 2**15], "dilation": [1, 1]}
        text = r"the output must have fewer than 2\^31 = 2147483648 elements, got \d{11,12} of"
        yield op, far, text
        farther = {**far, "padding": [2**31 - 1, 2**31 - 1]}
        yield (
            op,
            farther,
            r"the output must have .* elements, got 2\^63 or more of .* split the batch$",
        )
        span = (
            r"it spans \(19, 3\) pixels, the image has \(\d, \d\); kernel_size=\(3, 3\), dilation"
        )
        text = f"kernel_size must not be larger than the padded image: {span}"
        yield op, {"dilation": [9, 1]}, text
    op = "qconv2d"
    yield op, {"kernel_size": [0, 3]}, r"kernel_size must be in 1\.\.2147483647, got \(0, 3\)$"
    text = r"multiple of 16, got block_size=24, Ci=40\. Hint: block_size=32 is accepted$"
    yield op, {"block_size": 24}, f"block_size must be -1 .* {text}"
    text = r"larger than Ci, got block_size=48, Ci=40\. Hint: block_size=-1 is accepted$"
    yield op, {"block_size": 48}, f"block_size must not be {text}"
    text = (
        r"weight_packed must be \(round_up\(Co, 64\), round_up\(K, 64\) \* bits / 8\) = \(64, 288\)"
    )
    got = r"got \(64, 287\); Co=24 from scales, Ci=40 from input, K=\d+ = 3 \* 3 \* \d+ \(Ci padded"
    yield op, {"weight_packed": lambda x: x[:, 1:]}, f"{text}, {got}"
    deep = {"kernel_size": [2**14, 2**14], "padding": [2**13, 2**13], "stride": [2**15, 2**15]}
    text = r"as a GEMM of K = Kh \* Kw \* \(Ci padded to \d+\), K must be below 2\^31, got \d+$"
    yield op, {**deep, "dilation": [1, 1]}, text
    op = "qconv2d_int8"
    text = r"kernel_size must be in 1\.\.2147483647, got \(0, 3\)$"
    yield op, {"weight": lambda x: x[:, :, :0]}, text
    text = r"weight must be \(Co, Ci, Kh, Kw\) with Ci=6 of input, got \(8, 3, 3, 3\)\. Hint: grou"
    yield op, {"weight": lambda x: x[:, :3]}, text
    yield op, {"clamp_min": 101}, "clamp_min must not be above clamp_max, got 101 and 100$"
    wide = {"input": zeros(1, 8000, 3, 3), "weight": zeros(8, 8000, 3, 3)}
    text = r"K = Ci \* Kh \* Kw must be at most 65793, .* cannot wrap, got K=72000$"
    yield op, wide, text


def experts() -> Iterator[Row]:
    op = "moe_permute"
    yield op, {"topk_ids": lambda x: x.half()}, "topk_ids must be int32 or int64, got float16$"
    many = {
        "hidden_states": zeros(2**16, 96, dtype=HALF),
        "topk_ids": zeros(2**16, 2**15, dtype=torch.int32),
    }
    text = r"topk_ids must have fewer than 2\^31 = 2147483648 elements, got \(65536, 32768\)\. Hint"
    yield op, many, text
    op = "moe_combine"
    text = "weights must be float32, got float16$"
    yield op, {"weights": lambda x: x.half()}, text
    text = r"weights must be float32 or bfloat16 \(the dtype of rows\), got float16$"
    yield op, {"rows": lambda x: x.bfloat16(), "weights": lambda x: x.half()}, text
    op = "gated_activation"
    text = r"gate_up must have an even last dimension, gate and up .* other, got \(3, 95\)$"
    yield op, {"gate_up": lambda x: x[:, 1:]}, text
    text = "alpha must be 1 unless activation is 'swiglu_oai', got 2$"
    yield op, {"activation": "silu"}, text


def every() -> list[Row]:
    return [*matrices(), *checkpoints(), *products(), *convolutions(), *experts()]
