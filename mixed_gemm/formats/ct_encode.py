"""A QuantizedWeight in the tensors and the configuration of compressed-tensors: pack-quantized for
integers, int-quantized where activations are rounded too, float-quantized for float8: what every
reader since 0.10 understands. What none of them has a place for is written in a format of our own,
named in its config group, where they refuse it loudly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from .._library import package_version
from ..ops.problem import WEIGHTS
from ..weights.exchange import QuantizedWeight
from ..weights.rows import ROWS
from ..weights.scheme import FLOAT4_STRATEGIES, Side, is_by_block
from .bitfields import pack_dense, to_codes
from .ct_config import OWN_FORMAT
from .ct_float4 import SCALE_NAMES, encode_float4, form_of, group_in_file, why_own_float4
from .kv_cache import kv_cache_scheme
from .layer import in_layer

# Tensors of that format beside those of pack-quantized: role -> field of QuantizedWeight.
OWN_ROLES = {
    "mixed_gemm_zeros": "zeros",
    "mixed_gemm_pre_scale": "pre_scale",
    "mixed_gemm_permutation": "permutation",
}


def integer_zeros(weight: QuantizedWeight) -> Tensor | None:
    """int8 ``[G, N]``; None for symmetric weights, and where a zero point is no integer in the
    range of q. Zeros of the "add" kind are integers when they are the rounded product
    -(integer * scale)."""
    if weight.zeros is None:
        return None
    zeros = weight.zeros.float()
    if weight.zero_mode == "add":
        zeros = torch.round(-zeros / weight.scales.float())
        again = (-zeros * weight.scales.float()).to(weight.scales.dtype)
        exact = torch.equal(again, weight.zeros)
    else:
        exact = torch.equal(zeros, zeros.round())
    low = -(2 ** (weight.bits - 1))
    if not exact or not bool(((zeros >= low) & (zeros < -low)).all()):
        return None
    return zeros.to(torch.int8)


def _input_zero_point(weight: QuantizedWeight) -> Tensor | None:
    """``[1]``, or None: the int8 that other readers know, or int32 where it does not fit."""
    if weight.input_azp is None:
        return None
    point = weight.input_azp.to(torch.int32).reshape(1)
    narrow = point.to(torch.int8)
    return narrow if torch.equal(narrow.to(torch.int32), point) else point


def why_own(weight: QuantizedWeight) -> str:
    """Why no other reader of compressed-tensors has a place for a weight; empty when all do."""
    k, point = weight.shape[1], _input_zero_point(weight)
    known = WEIGHTS.get(weight.weight)
    reasons = {
        f"codes of the type {weight.weight}": known is not None
        and not known.is_integer
        and weight.scale_dtype is None,
        why_own_float4(weight): True,
        "a permutation of the columns (act-order)": weight.permutation is not None,
        "the place of a Conv1D, not of a linear": weight.is_conv1d,
        "the rows of an embedding": weight.is_embedding,
        "offsets of its blocks": weight.zeros is not None and is_by_block(weight.scheme),
        "a pre_scale": weight.pre_scale is not None,
        "a ragged last group": weight.group_size != -1
        and weight.block is None  # whose last rows and columns may be fewer
        and k % weight.group_size != 0,
        "zero points that are no integers": weight.zeros is not None
        and not is_by_block(weight.scheme)
        and integer_zeros(weight) is None,
        "activations whose range is so far from 0 that their zero point is no int8": point
        is not None
        and point.dtype != torch.int8,
    }
    return ", ".join(reason for reason, holds in reasons.items() if reason and holds)


def encode(weight: QuantizedWeight) -> dict[str, Tensor]:
    """Role -> tensor, as compressed_tensors.py reads them."""
    tensors = {"weight_scale": weight.scales.t()}
    if weight.scale_dtype is not None:
        tensors = encode_float4(weight)
    elif weight.is_fp8:
        tensors["weight"] = weight.q
        if weight.block is not None:
            tensors["weight_scale"] = tensors["weight_scale"][:: weight.block[0]]
        if weight.input_scale is not None:
            tensors["input_scale"] = weight.input_scale.reshape(1)
    elif weight.input_activations is not None or (weight.is_embedding and weight.scheme == ROWS):
        tensors["weight"] = weight.q
        if weight.zeros is not None:
            tensors["mixed_gemm_zeros"] = weight.zeros
        if weight.input_scale is not None:
            tensors["input_scale"] = weight.input_scale.reshape(1)
        if (point := _input_zero_point(weight)) is not None:
            tensors["input_zero_point"] = point
    else:
        codes = weight.q.view(torch.uint8) + WEIGHTS[weight.weight].bias
        tensors["weight_packed"] = pack_dense(codes, weight.bits)
        tensors["weight_shape"] = torch.tensor(weight.shape, dtype=torch.int64, device="cpu")
        zeros = integer_zeros(weight)
        if zeros is not None:
            tensors["weight_zero_point"] = pack_dense(to_codes(zeros, weight.bits), weight.bits).t()
        elif weight.zeros is not None:
            tensors["mixed_gemm_zeros"] = weight.zeros
    for role in ("mixed_gemm_pre_scale", "mixed_gemm_permutation"):
        if (tensor := getattr(weight, OWN_ROLES[role])) is not None:
            tensors[role] = tensor
    if weight.strategy == "tensor":
        tensors["weight_scale"] = weight.scales[0, :1]
    if weight.bias is not None:
        tensors["bias"] = weight.bias
    return tensors


def arguments(weight: QuantizedWeight, is_own: bool) -> dict[str, Any]:
    """A config group for one weight, without its targets.

    Args:
        weight: any. is_own: whether there is a reason of :func:`why_own`.
    """
    scheme = weight.scheme
    side = scheme.input_activations
    form = "pack-quantized" if side is None else "int-quantized"
    form = "float-quantized" if weight.is_fp8 else form
    arguments = _arguments(scheme.weights)
    if weight.scale_dtype is not None:
        form = form_of(weight)
        arguments["strategy"] = FLOAT4_STRATEGIES[weight.scale_dtype]
        arguments["group_size"] = group_in_file(weight)
        arguments["scale_dtype"] = SCALE_NAMES[weight.scale_dtype]
    return {
        "weights": arguments,
        "format": OWN_FORMAT if is_own else form,
        "input_activations": None if side is None else _arguments(side),
    }


def _arguments(side: Side) -> dict[str, Any]:
    """The arguments of one operand, as the configuration has them."""
    found: dict[str, Any] = {
        "num_bits": side.num_bits,
        "type": side.type,
        "symmetric": side.symmetric,
        "dynamic": side.dynamic,
        "strategy": side.strategy,
    }
    if side.block is not None:
        found["block_structure"] = list(side.block)
    return found if side.group_size is None else {**found, "group_size": side.group_size}


def carried(found: Any, has_scales: bool) -> dict[str, Any]:
    """Keys that go along from the configuration of a source, though nothing here computes by them.

    Args:
        found, has_scales: as of :func:`kv_cache_scheme`.

    Returns:
        The key "kv_cache_scheme", and "transform_config" where the source has one: its rotations
        are in the weights, since files with others are not read.
    """
    fields = found if isinstance(found, Mapping) else getattr(found, "source", None) or {}
    kept: dict[str, Any] = {"kv_cache_scheme": kv_cache_scheme(found, has_scales)}
    transforms = fields.get("transform_config")
    if isinstance(transforms, Mapping) and transforms:
        kept["transform_config"] = dict(transforms)
    return kept


class Groups:
    """The quantization_config of a model, gathered layer by layer."""

    joins_experts = False

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, Any]] = {}
        self._added: list[str] = []
        self._conv1d: list[str] = []
        self._embeddings: list[str] = []
        self.own: dict[str, str] = {}  # layer -> why only this library reads it

    def encode(self, weight: QuantizedWeight) -> Iterator[tuple[str, Tensor]]:
        """Give (name, tensor) of a layer.

        Args:
            weight: of it, by its name.
        """
        return in_layer(weight.name, encode(weight))

    def add(self, weight: QuantizedWeight, name: str, file_name: str = "") -> None:
        """Add a layer.

        Args:
            weight: of the layer, or of one that differs in its codes and scales alone.
            name: of the module.
            file_name: the name that its tensors get, where that is another one: some readers ask
                for layers by the one, some by the other.
        """
        reason = why_own(weight)
        found = arguments(weight, bool(reason))
        names = list(dict.fromkeys((name, file_name or name)))
        self._groups.setdefault(repr(found), {**found, "targets": []})["targets"] += names
        if reason:
            self.own[name] = reason
        if weight.zero_mode == "add":
            self._added += names
        if weight.is_conv1d:
            self._conv1d += names
        if weight.is_embedding:
            self._embeddings += names

    def configuration(
        self,
        ignore: Iterable[str],
        own: bool = False,
        carried: Mapping[str, Any] | None = None,
        recipe: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Make the quantization_config of config.json.

        Args:
            ignore: linears that are dense. own: refuse other readers for the whole model.
            carried: keys of the configuration of the source that go along.
            recipe: how the layers were quantized, as JSON has it.
        """
        kinds = list(self._groups.values())
        if len(kinds) == 1 and not self._embeddings:
            kinds[0]["targets"] = ["Linear"]
        for group in kinds if own else ():
            group["format"] = OWN_FORMAT
        formats = {group["format"] for group in kinds}
        said = {"zeros_added": self._added, "conv1d": self._conv1d}
        said["embeddings"] = self._embeddings
        extra: dict[str, Any] = {key: sorted(names) for key, names in said.items() if names}
        if recipe:
            extra["recipe"] = dict(recipe)
        return {
            "quant_method": "compressed-tensors",
            "format": formats.pop() if len(formats) == 1 else "mixed-precision",
            "quantization_status": "compressed",
            "ignore": sorted(ignore),
            "config_groups": {f"group_{i}": group for i, group in enumerate(kinds)},
            **{"kv_cache_scheme": None, **(carried or {})},
            # Other readers ignore this key; this library knows its own files by it.
            "mixed_gemm": {"version": package_version(), **extra},
        }
