"""The 4-bit floats of compressed-tensors: MXFP4 and NVFP4.

    mxfp4-pack-quantized:  weight_scale uint8 [N, K / 32], the power of two 2^(byte - 127)
    nvfp4-pack-quantized:  weight_scale float8_e4m3fn [N, K / 16], weight_global_scale float32 [1]
    both:                  weight_packed uint8 [N, K / 2], the first of two codes in the low half

w = value * scale, of NVFP4 value * scale / weight_global_scale. A format of this library's own has
the same tensors with other groups, and a global scale for each row. Source: the compressors of the
package compressed-tensors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..ops.problem import ceil_div
from ..weights.exchange import QuantizedWeight
from ..weights.rounding_fp8 import FP8
from ..weights.scheme import FLOAT4_STRATEGIES, Scheme, Side
from ..weights.values import float8_nan
from .e8m0 import load_powers
from .layer import LayerInfo, LayerTensors

GLOBAL = "weight_global_scale"
# Files that ask for rounded activations have it; products here do not round them.
INPUT_GLOBAL = "input_global_scale"
# format -> (type of scales, elements of K that share one)
FLOAT4_FORMATS = {"mxfp4-pack-quantized": ("e8m0", 32), "nvfp4-pack-quantized": ("e4m3", 16)}
# type of scales -> as a configuration calls it
SCALE_NAMES = {"e8m0": "torch.uint8", "e4m3": "torch.float8_e4m3fn"}
_SCALE_DTYPES = {"e8m0": torch.uint8, "e4m3": FP8}


def is_float4(rule: Side) -> bool:
    """Whether a rule asks for such weights."""
    return rule.scale_dtype in FLOAT4_STRATEGIES and rule.type == "float"


def describe_float4(
    layer: LayerTensors, rule: Side, scale: str, roles: tuple[str, ...]
) -> LayerInfo:
    """Describe the tensors of a layer.

    Args:
        rule: of the weight. scale: the role of its scales. roles: that the layer may have.

    Raises:
        CheckpointError: a tensor is missing, or of another shape or dtype.
    """
    assert rule.scale_dtype is not None
    n, columns = layer.matrix("weight_packed", torch.uint8)
    k = 2 * columns
    if layer.has("weight_shape"):  # K may be odd then
        layer.expect("weight_shape", (2,), torch.int64)
        shape = layer.load("weight_shape").tolist()
        if shape[0] != n or ceil_div(shape[1], 2) != columns:
            raise layer.error("weight_packed", f"is [{n}, {columns}], for weight_shape {shape}")
        k = int(shape[1])
    found = layer.shape(scale)
    groups = found[-1] if found else 0
    layer.expect(scale, (n, groups), _SCALE_DTYPES[rule.scale_dtype])
    size = layer.group_size(scale, k, groups, () if rule.group_size is None else (rule.group_size,))
    if FLOAT4_STRATEGIES[rule.scale_dtype] == "tensor_group":
        shapes = ((), (1,), (n,))
        if layer.shape(GLOBAL) not in shapes or layer.dtype(GLOBAL) != torch.float32:
            got = f"{layer.dtype(GLOBAL)} {layer.shape(GLOBAL)}"
            raise layer.error(GLOBAL, f"must be float32 (1,) or ({n},), got {got}")
    scheme = Scheme.of_file(
        "e2m1",
        size,
        strategy=_strategy(rule.scale_dtype, size),
        scale_dtype=rule.scale_dtype,
    )
    return LayerInfo.stored_as(scheme, layer.name, (n, k), layer.nbytes(roles), 4)


def _strategy(scale_dtype: str, group_size: int) -> str:
    strategy = FLOAT4_STRATEGIES[scale_dtype]
    return "channel" if strategy == "group" and group_size == -1 else strategy


def decode_float4(layer: LayerTensors, info: LayerInfo, scale: str, module: str) -> QuantizedWeight:
    """The weight of a layer that :func:`describe_float4` described.

    Args:
        scale: the role of the scales. module: as of ``QuantizedWeight.stored_as``.

    Raises:
        CheckpointError: a scale is NaN.
        ValueError: a scale is negative, or a global scale is not positive.
    """
    n, k = info.shape
    is_e8m0 = info.scheme.weights.scale_dtype == "e8m0"
    scales = load_powers(layer, scale) if is_e8m0 else _float8_scales(layer, scale)
    whole = layer.load_floats(GLOBAL).expand(n).contiguous() if layer.has(GLOBAL) else None
    return QuantizedWeight.stored_as(
        layer.name,
        unpack_halves(layer.load("weight_packed"), k),
        scales.t().contiguous().to(torch.bfloat16),
        scheme=info.scheme,
        module=module,
        bias=layer.bias(n),
        global_scale=whole if info.scheme.weights.strategy == "tensor_group" else None,
        pre_scale=layer.load("mixed_gemm_pre_scale") if layer.has("mixed_gemm_pre_scale") else None,
    )


def _float8_scales(layer: LayerTensors, scale: str) -> Tensor:
    """float32 in the shape of the file; NaN is refused."""
    stored = layer.load(scale)
    nan = float8_nan(stored)
    if bool(nan.any()):
        at = tuple(nan.nonzero()[0].tolist())
        raise layer.error(scale, f"must be finite, got nan at {at}")
    return stored.float()


def unpack_halves(packed: Tensor, k: int) -> Tensor:
    """uint8 ``[N, ceil(k / 2)]`` -> int8 ``[N, k]``, the code in the low half first."""
    both = torch.stack((packed & 15, packed >> 4), -1).flatten(-2)
    return both[..., :k].contiguous().view(torch.int8)


def pack_halves(codes: Tensor) -> Tensor:
    """The inverse of :func:`unpack_halves`.

    Args:
        codes: int8 ``[N, K]``; the last byte of an odd K has a code of 0 on top.
    """
    padded = torch.nn.functional.pad(codes.view(torch.uint8), (0, codes.shape[1] % 2))
    return padded[:, ::2] | padded[:, 1::2] << 4


def group_in_file(weight: QuantizedWeight) -> int:
    """Elements of K that share a scale, as a configuration says it, which has no word for all."""
    return weight.shape[1] if weight.group_size == -1 else weight.group_size


def why_own_float4(weight: QuantizedWeight) -> str:
    """Why no other reader of compressed-tensors has a place for the scales of 4-bit floats; empty
    where all do, and of other weights."""
    if weight.scale_dtype is None:
        return ""
    size = group_in_file(weight)
    usual = {scale: group for scale, group in FLOAT4_FORMATS.values()}
    if size != usual.get(str(weight.scale_dtype)):
        return f"4-bit floats in groups of {size}"
    whole = weight.global_scale
    if whole is not None and bool((whole != whole[0]).any()):
        return "a global scale for each row"
    return ""


def form_of(weight: QuantizedWeight) -> str:
    """The name of the format that a weight is written in."""
    return next(name for name, (x, _) in FLOAT4_FORMATS.items() if x == weight.scale_dtype)


def encode_float4(weight: QuantizedWeight) -> dict[str, Tensor]:
    """Role -> tensor, as :func:`describe_float4` reads them, without the bias."""
    tensors = {"weight_packed": pack_halves(weight.q)}
    scales = weight.scales.t().contiguous().float()
    if weight.scale_dtype == "e8m0":
        tensors["weight_scale"] = (scales.view(torch.int32) >> 23).to(torch.uint8)
    else:
        tensors["weight_scale"] = scales.to(FP8)
    if weight.shape[1] % 2:
        tensors["weight_shape"] = torch.tensor(weight.shape, dtype=torch.int64, device="cpu")
    whole = weight.global_scale
    if whole is not None:
        tensors[GLOBAL] = whole if bool((whole != whole[0]).any()) else whole[:1]
    return tensors
