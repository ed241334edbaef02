"""compressed-tensors, as llm-compressor writes it: one reader for its integer and float forms.

    pack-quantized:   weight_packed int32 [N, words(K)]   weight_shape int64 [2] = (N, K)
                      weight_zero_point int32 [words(N), G], packed along N, or absent
    int-quantized:    weight int8 [N, K]        weight_zero_point int8 [N, G] or absent
    float-quantized:  weight float8_e4m3fn [N, K]
    quant_method fp8: the same with weight_scale_inv, activation_scale (DeepSeek, transformers)
    mxfp4-pack-quantized, nvfp4-pack-quantized: see ct_float4
    all:              weight_scale [N, G], [N, 1], [1] or (float) blocks [N / 128, K / 128]; of
                      float8 weights of quant_method fp8 float8_e8m0fnu too, or the same as bytes
                      weight_g_idx int32 [K] (before 0.19), input_scale, input_zero_point, bias

Integers are signed; packed, they are offset by 2^(b-1). w = (q - zero) * scale. Before 0.18 a word
held 32 // b whole values; the shape tells. Source: the compressors of the package
compressed-tensors.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from ..ops.problem import DTYPES, MAX_AZP, WEIGHTS, ceil_div, integer_weight
from ..weights.exchange import QuantizedWeight
from ..weights.rounding_fp8 import FP8
from ..weights.scheme import FLOAT8, Scheme, Side
from ..weights.values import float8_nan
from .bitfields import to_signed, unpack_aligned, unpack_dense, words_aligned, words_dense
from .ct_config import BITS, WeightRules
from .ct_encode import OWN_ROLES
from .ct_float4 import GLOBAL, INPUT_GLOBAL, decode_float4, describe_float4, is_float4
from .decode import from_integers
from .e8m0 import BYTES, E8M0, load_powers
from .layer import Config, LayerInfo, LayerTensors
from .load import Axes, Decoded

_INTEGERS = (torch.int8, torch.int32, torch.int64)


class CompressedTensors(Decoded):
    def __init__(self, config: Config, where: Path, scale: str = "weight_scale") -> None:
        self._rules = WeightRules(config, where)
        self._scale = scale
        self._input_scale = "activation_scale" if scale == "weight_scale_inv" else "input_scale"
        self.anchor = scale
        self.title = self._rules.title
        self.notes, self.lost = self._rules.notes, self._rules.lost
        self.embeddings = self._rules.embeddings
        self.roles: tuple[str, ...] = (
            "weight_packed",
            "weight",
            scale,
            "weight_shape",
            "weight_zero_point",
            "weight_g_idx",
            self._input_scale,
            "input_zero_point",
            GLOBAL,
            INPUT_GLOBAL,
            *OWN_ROLES,
            "bias",
        )

        matrices: dict[str, tuple[int | None, int | None]] = dict.fromkeys(
            ("weight_packed", "weight", scale, "weight_zero_point"), (0, 1)
        )
        self.axes: Axes | None = {
            **matrices,
            "weight_g_idx": (None, 0),
            "mixed_gemm_zeros": (1, 0),
            "mixed_gemm_pre_scale": (None, 0),
            "mixed_gemm_permutation": (None, 0),
            "bias": (0, None),
        }

    def describe(self, layer: LayerTensors) -> LayerInfo:
        asked = self._rules.of(layer.name)
        rule = asked.weights
        if is_float4(rule):
            return describe_float4(layer, rule, self._scale, self.roles)
        if rule.num_bits not in BITS:
            raise layer.error(self._scale, f"num_bits must be one of {BITS}, got {rule.num_bits}")
        if layer.has("weight_packed"):
            n, k = self._packed_shape(layer, rule.num_bits)
            bits, kind = rule.num_bits, "int"
        else:
            n, k = layer.matrix("weight", torch.int8, FP8)
            kind = "fp8" if layer.dtype("weight") == FP8 else "int"
            bits = 8 if kind == "fp8" else rule.num_bits
        block = self._block(layer, rule, n, k) if kind == "fp8" else None
        size = self._group_size(layer, rule, n, k)
        groups = 1 if size == -1 else ceil_div(k, size)
        if layer.has("weight_zero_point"):
            self._check_zero_point(layer, n, groups, bits)
        elif kind == "int" and not rule.symmetric and not layer.has("mixed_gemm_zeros"):
            raise layer.error(
                "weight_zero_point", "is missing, and the configuration says symmetric: false"
            )
        if layer.has("weight_g_idx"):
            layer.expect("weight_g_idx", (k,), torch.int32, torch.int64)
        activations = asked.input_activations
        if activations is not None:
            size, activations = self._rounded(layer, activations, kind, size, k)
        self._check_activations(layer, activations)
        self._check_own(layer, n, k, groups)
        scheme = Scheme.of_file(
            FLOAT8 if kind == "fp8" else _packed_type(asked),
            size,
            self._zero_mode(layer),
            strategy="tensor" if self._is_whole(layer, rule, kind, block) else "",
            block=block,
            input_activations=activations,
        )
        return LayerInfo.stored_as(scheme, layer.name, (n, k), layer.nbytes(self.roles), bits)

    def _zero_mode(self, layer: LayerTensors) -> str:
        if not (layer.has("weight_zero_point") or layer.has("mixed_gemm_zeros")):
            return "none"
        return "add" if layer.name in self._rules.zeros_added else "sub"

    def _rounded(
        self, layer: LayerTensors, side: Side, kind: str, size: int, k: int
    ) -> tuple[int, Side | None]:
        """(group size, how activations are rounded): by the same blocks as the weight, where they
        are by block; None where this kind of weight does not round them."""
        if side.type == "float":
            return size, side if kind == "fp8" else None
        if kind != "int":
            return size, None
        if side.strategy != "group":
            return size, side if size == -1 else None
        asked = -1 if side.group_size is None else min(side.group_size, k)
        groups, found = (1 if x == -1 else ceil_div(k, x) for x in (asked, size))
        if groups != found:
            raise layer.error(
                self._scale, f"has {found} groups for K={k}, input_activations ask for {groups}"
            )
        return asked, replace(side, group_size=None if asked == -1 else asked)

    def _check_own(self, layer: LayerTensors, n: int, k: int, groups: int) -> None:
        if layer.has("mixed_gemm_zeros"):
            layer.expect("mixed_gemm_zeros", (groups, n), *DTYPES)
        if layer.has("mixed_gemm_pre_scale"):
            layer.expect("mixed_gemm_pre_scale", (k,), *DTYPES)
        if layer.has("mixed_gemm_permutation"):
            layer.expect("mixed_gemm_permutation", (k,), torch.int64)

    def _check_activations(self, layer: LayerTensors, side: Side | None) -> None:
        if side is None or side.dynamic:
            return
        for role, dtypes in ((self._input_scale, DTYPES), ("input_zero_point", _INTEGERS)):
            if role == "input_zero_point" and side.symmetric:
                continue
            shape = layer.shape(role)
            if shape not in ((), (1,), (1, 1)) or layer.dtype(role) not in dtypes:
                allowed = " or ".join(str(x).removeprefix("torch.") for x in dtypes)
                raise layer.error(
                    role,
                    f"must be one {allowed} for static activations, got {layer.dtype(role)} "
                    f"{shape}",
                )

    def _packed_shape(self, layer: LayerTensors, bits: int) -> tuple[int, int]:
        n, words = layer.matrix("weight_packed", torch.int32)
        if not layer.has("weight_shape"):
            if 32 % bits:
                reason = f"is missing, and the last word may hold any number of {bits}-bit codes"
                raise layer.error("weight_shape", reason)
            return n, words * 32 // bits
        layer.expect("weight_shape", (2,), torch.int64, torch.int32)
        shape = layer.load("weight_shape").tolist()
        k = int(shape[1])
        if shape[0] != n or words not in (words_dense(k, bits), words_aligned(k, bits)):
            raise layer.error(
                "weight_packed",
                f"is [{n}, {words}], which {bits} bits and weight_shape {shape} do not give",
            )
        return n, k

    def _is_whole(
        self, layer: LayerTensors, rule: Side, kind: str, block: tuple[int, int] | None
    ) -> bool:
        """Whether one scale serves the whole weight."""
        if kind == "int":
            return rule.strategy == "tensor"
        alone = layer.shape(self._scale) in ((), (1,), (1, 1))
        return alone and block is None and rule.strategy != "channel"

    def _block(self, layer: LayerTensors, rule: Side, n: int, k: int) -> tuple[int, int] | None:
        """Rows and columns of a float8 weight that share a scale, where its scales are so many."""
        if rule.block is None:
            return None
        grid = (ceil_div(n, rule.block[0]), ceil_div(k, rule.block[1]))
        return rule.block if layer.shape(self._scale) == grid else None

    def _group_size(self, layer: LayerTensors, rule: Side, n: int, k: int) -> int:
        shape, allowed = layer.shape(self._scale), self._scale_dtypes(layer)
        layer.expect(self._scale, shape, *allowed)
        if shape in ((), (1,), (1, 1)) or shape in ((n,), (n, 1)):
            return -1
        if len(shape) == 2 and rule.block is not None:
            rows, columns = rule.block
            layer.expect(self._scale, (ceil_div(n, rows), ceil_div(k, columns)), *allowed)
            return -1 if columns >= k else columns
        groups = shape[-1]
        layer.expect(self._scale, (n, groups), *allowed)
        stated = () if rule.group_size is None else (rule.group_size,)
        return layer.group_size(self._scale, k, groups, stated)

    def _scale_dtypes(self, layer: LayerTensors) -> tuple[torch.dtype, ...]:
        """The dtypes that scales may have: of float8 weights powers of two, too."""
        if not layer.has("weight") or layer.dtype("weight") != FP8:
            return DTYPES
        return (*DTYPES, *(BYTES if self._rules.has_powers else (E8M0,)))

    def _check_zero_point(self, layer: LayerTensors, n: int, groups: int, bits: int) -> None:
        role = "weight_zero_point"
        if layer.dtype(role) == torch.int8:
            if layer.shape(role) not in ((1,), (n,)):
                layer.expect(role, (n, groups), torch.int8)
            return
        rows = {words_dense(n, bits), words_aligned(n, bits)}
        if layer.matrix(role, torch.int32) not in {(row, groups) for row in rows}:
            wanted = " or ".join(f"[{row}, {groups}]" for row in sorted(rows))
            raise layer.error(role, f"must be int32 {wanted}, got {list(layer.shape(role))}")

    def decode(self, layer: LayerTensors, info: LayerInfo) -> QuantizedWeight:
        if is_float4(info.scheme.weights):
            return decode_float4(layer, info, self._scale, self.module_of(layer.name))
        scales = self._scales(layer, info)
        if info.kind == "fp8":
            return QuantizedWeight.stored_as(
                layer.name,
                _float8(layer),
                scales,
                scheme=Scheme.of_file(  # which has no zero points, whatever else the file holds
                    FLOAT8,
                    info.group_size,
                    strategy=info.strategy,
                    block=info.block,
                    input_activations=info.input_activations,
                ),
                bias=layer.bias(info.out_features),
                input_scale=self._static_scale(layer, info.input_activations),
                module=self.module_of(layer.name),
            )
        zeros = self._zeros(layer, info, scales) if layer.has("weight_zero_point") else None
        q = layer.load("weight") if layer.has("weight") else self._unpack(layer, info)
        g_idx = layer.load("weight_g_idx") if layer.has("weight_g_idx") else None
        if g_idx is not None and bool((g_idx == -1).all()):  # allocated, never filled
            g_idx = None
        plain = from_integers(layer, info, q, scales, zeros, g_idx)
        weight = self._completed(layer, info, plain)
        if layer.has("weight"):  # bytes, in which codes may be out of range
            weight.check()
        return weight

    def _static_scale(self, layer: LayerTensors, side: Side | None) -> Tensor | None:
        if side is None or side.dynamic:
            return None
        return layer.load_floats(self._input_scale).reshape(())

    def _static_zero_point(self, layer: LayerTensors, side: Side) -> Tensor | None:
        if side.dynamic or side.symmetric:
            return None
        point = layer.load("input_zero_point").reshape(())
        if abs(int(point)) > MAX_AZP:
            raise layer.error("input_zero_point", f"must be in -2^22..2^22, got {int(point)}")
        return point.to(torch.int32)

    def _completed(
        self, layer: LayerTensors, info: LayerInfo, plain: QuantizedWeight
    ) -> QuantizedWeight:
        """A weight with what only this library writes, in the place of what others would read, and
        with rounded activations."""
        own = {field: layer.load(role) for role, field in OWN_ROLES.items() if layer.has(role)}
        zeros, mode = own.get("zeros", plain.zeros), "none"
        if zeros is not None:
            mode = "add" if layer.name in self._rules.zeros_added else "sub"
        if zeros is not None and mode == "add" and "zeros" not in own:
            zeros = (-zeros.float() * plain.scales.float()).to(plain.scales.dtype)
        permutation = own.get("permutation", plain.permutation)
        side, strategy = info.input_activations, info.strategy
        module = self.module_of(plain.name)
        is_plain = not own and side is None and not strategy and mode == plain.zero_mode
        if is_plain and module == plain.module:
            return plain
        if side is not None:
            rounds = zeros is None or side.strategy == "group"
            side = side if rounds and permutation is None else None
            strategy = strategy if side is None else ""
        return QuantizedWeight.of_codes(
            plain.name,
            plain.q,
            plain.scales,
            zeros,
            scheme=Scheme.of_file(
                plain.weight, plain.group_size, mode, strategy=strategy, input_activations=side
            ),
            bias=plain.bias,
            pre_scale=own.get("pre_scale"),
            permutation=permutation,
            input_scale=self._static_scale(layer, side),
            input_azp=None if side is None else self._static_zero_point(layer, side),
            module=module,
        )

    def module_of(self, name: str) -> str:
        """The kind of a layer, "linear", "conv1d" or "embedding", as our own files say it."""
        if name in self._rules.conv1d:
            return "conv1d"
        return "embedding" if name in self._rules.embeddings else "linear"

    def _unpack(self, layer: LayerTensors, info: LayerInfo) -> Tensor:
        words = layer.load("weight_packed")
        codes = self._unpack_words(words, info.bits, info.in_features)
        known = WEIGHTS[info.scheme.weight_type]
        return to_signed(codes, info.bits) if known.is_integer else codes.view(torch.int8)

    def _unpack_words(self, words: Tensor, bits: int, count: int) -> Tensor:
        """int32 ``[R, words(count)]`` -> uint8 ``[R, count]``."""
        widths = (words_dense(count, bits), words_aligned(count, bits))
        aligned = self._rules.is_aligned if len(set(widths)) == 1 else words.shape[1] != widths[0]
        codes: Tensor = (unpack_aligned if aligned else unpack_dense)(words, bits, count)
        return codes

    def _scales(self, layer: LayerTensors, info: LayerInfo) -> Tensor:
        """``[G, N]``."""
        is_byte, n = layer.dtype(self._scale) in BYTES, info.out_features
        scales = (load_powers if is_byte else LayerTensors.load_floats)(layer, self._scale)
        if scales.numel() == 1:
            return scales.reshape(1, 1).expand(1, n).contiguous()
        if scales.dim() == 1:
            return scales.reshape(1, n)
        if info.block is not None:
            scales = scales.repeat_interleave(min(info.block[0], n), dim=0)[:n]
        return scales.t().contiguous()

    def _zeros(self, layer: LayerTensors, info: LayerInfo, scales: Tensor) -> Tensor:
        """Signed, ``[G, N]``, in the dtype of scales."""
        zeros, n = layer.load("weight_zero_point"), info.out_features
        if zeros.dtype == torch.int32:
            codes = self._unpack_words(zeros.t().contiguous(), info.bits, n)
            return to_signed(codes, info.bits).to(scales.dtype)
        zeros = zeros.expand(n) if zeros.numel() == 1 else zeros
        return zeros.reshape(n, -1).t().to(scales.dtype)


def _packed_type(asked: Scheme) -> str:
    """The weight type of what is no float8: integers of fewer than 4 bits are stored in 4."""
    stated = asked.weight_type
    return stated if stated in WEIGHTS else integer_weight(max(asked.bits, 4))


def _float8(layer: LayerTensors) -> Tensor:
    """The weight, refused when it holds NaN."""
    weight = layer.load("weight")
    nan = float8_nan(weight)
    if bool(nan.any()):
        at = tuple(nan.nonzero()[0].tolist())
        raise layer.error("weight", f"must be finite, got nan at {at}")
    return weight
