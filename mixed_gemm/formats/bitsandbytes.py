"""bitsandbytes in 4 bits: NF4 and FP4, as transformers saves them.

    weight uint8 [N * K / 2, 1]      weight.absmax float32 [N * K / 64]
    weight.quant_map float32 [16]    weight.quant_state.bitsandbytes__nf4 uint8: JSON
    nested: weight.absmax uint8, weight.nested_absmax float32, weight.nested_quant_map float32 [256]

Two codes are in a byte, the first in the upper half; ``absmax`` is the scale of each block of the
flattened weight. Nested, a scale is nested_quant_map[absmax] * nested_absmax + nested_offset.
Source: QuantState in functional.py of bitsandbytes.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..ops.problem import DTYPES, WEIGHTS, ceil_div
from ..weights.exchange import QuantizedWeight
from ..weights.scheme import Scheme
from .bnb_encode import BOOKS, STATE
from .errors import CheckpointError
from .layer import Config, LayerInfo, LayerTensors
from .load import Decoded, Loaded, Wanted, stored


def _state_of(layer: LayerTensors) -> tuple[str, dict[str, Any]]:
    """The name of the book, and what the file says of the weight besides its tensors."""
    for name in BOOKS:
        if not layer.has(STATE + name):
            continue
        try:
            found = json.loads(bytes(layer.load(STATE + name).cpu().tolist()))
        except ValueError as error:
            raise layer.error(STATE + name, f"must be JSON: {error}") from None
        if isinstance(found, dict):
            return name, found
        raise layer.error(STATE + name, f"must be a JSON object, got {found!r}")
    raise layer.error("weight.absmax", f"has no {STATE}{' or '.join(BOOKS)} beside it")


def _number(layer: LayerTensors, role: str, state: dict[str, Any], key: str) -> int:
    value = state.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise layer.error(role, f"{key} must be a positive integer, got {value!r}")
    return value


class Bitsandbytes(Decoded):
    title = "bitsandbytes"
    anchor = "weight.absmax"
    roles: tuple[str, ...] = (
        "weight",
        *(f"weight.{x}" for x in ("absmax", "quant_map", "nested_absmax", "nested_quant_map")),
        *(STATE + name for name in BOOKS),
        "bias",
    )
    notes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    def __init__(self, config: Config, where: Path) -> None:
        if config.get("load_in_8bit") or config.get("_load_in_8bit"):
            reason = "weights of LLM.int8() (load_in_8bit) are not read; those of 4 bits are"
            raise CheckpointError(where, "", reason)

    def describe(self, layer: LayerTensors) -> LayerInfo:
        name, state = _state_of(layer)
        role = STATE + name
        shape, size = state.get("shape"), _number(layer, role, state, "blocksize")
        if not isinstance(shape, list) or len(shape) != 2 or not all(
            isinstance(x, int) and x > 0 for x in shape
        ):  # fmt: skip
            raise layer.error(role, f"shape must be two positive integers, got {shape!r}")
        n, k = shape
        if self._dtype_of(state) not in DTYPES:
            raise layer.error(role, f"dtype must be a float dtype, got {state.get('dtype')!r}")
        if k % size and ceil_div(k, size) > 1:
            raise layer.error(
                role,
                f"blocks of {size} run over rows of {k} elements: scales of such a weight are not "
                "those of groups along K. Hint: quantize the dense model",
            )
        found, stored_as = layer.shape("weight"), layer.dtype("weight")
        width = stored_as.itemsize if isinstance(stored_as, torch.dtype) else 0
        elements = 1
        for extent in found:
            elements *= extent
        if elements * width * 2 != n * k:
            raise layer.error(
                "weight", f"must hold {n} x {k} codes of 4 bits, got {stored_as} {found}"
            )
        blocks = ceil_div(n * k, size)
        nested = layer.dtype("weight.absmax") == torch.uint8
        layer.expect("weight.absmax", (blocks,), torch.uint8 if nested else torch.float32)
        layer.expect("weight.quant_map", (16,), torch.float32)
        if nested:
            inner = _number(layer, role, state, "nested_blocksize")
            layer.expect("weight.nested_absmax", (ceil_div(blocks, inner),), torch.float32)
            layer.expect("weight.nested_quant_map", (256,), torch.float32)
        group = -1 if size >= k else size
        scheme = Scheme.of_file(name, group)
        return LayerInfo.stored_as(scheme, layer.name, (n, k), layer.nbytes(self.roles), 4)

    def decode(self, layer: LayerTensors, info: LayerInfo) -> QuantizedWeight:
        (n, k), name = info.shape, info.scheme.weight_type
        _, state = _state_of(layer)
        book = torch.tensor(WEIGHTS[name].values, dtype=torch.float32)
        if not torch.equal(layer.load("weight.quant_map").cpu(), book):
            raise layer.error("weight.quant_map", f"must be the book of {name}")
        packed = layer.load("weight").contiguous().view(torch.uint8).flatten()
        codes = torch.stack([packed >> 4, packed & 15], 1).view(n, k)
        scales = self._absmax(layer, state)
        groups = ceil_div(k, info.scheme.group_size) if info.scheme.group_size != -1 else 1
        if groups == 1 and scales.numel() != n:  # a block of several rows
            scales = scales.repeat_interleave(int(state["blocksize"]) // k)[:n]
        return QuantizedWeight.of_codes(
            layer.name,
            codes.to(torch.int8),
            scales.view(n, groups).t().contiguous(),
            scheme=info.scheme,
            bias=layer.bias(n),
        )

    def load(self, layer: LayerTensors, info: LayerInfo, wanted: Wanted) -> Loaded:
        """As of ``Decoded``, in the dtype of the weight that was quantized where none is asked
        for.

        Args:
            layer, info, wanted: see there.
        """
        if wanted.dtype is None:
            wanted = replace(wanted, dtype=self.dtype_of(layer))
        return stored(self.decode(layer, info), wanted)

    def dtype_of(self, layer: LayerTensors) -> torch.dtype | None:
        return self._dtype_of(_state_of(layer)[1])

    @staticmethod
    def _dtype_of(state: dict[str, Any]) -> torch.dtype | None:
        found = getattr(torch, str(state.get("dtype")), None)
        return found if isinstance(found, torch.dtype) else None

    @staticmethod
    def _absmax(layer: LayerTensors, state: dict[str, Any]) -> Tensor:
        """float32, one for each block."""
        absmax = layer.load("weight.absmax")
        if absmax.dtype != torch.uint8:
            return layer.load_floats("weight.absmax")
        inner = layer.load_floats("weight.nested_absmax")
        values = layer.load_floats("weight.nested_quant_map").index_select(0, absmax.int())
        each = inner.repeat_interleave(int(state["nested_blocksize"]))[: absmax.numel()]
        return values * each + float(state.get("nested_offset") or 0.0)
