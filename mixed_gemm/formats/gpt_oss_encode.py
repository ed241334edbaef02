"""Experts of gpt-oss in the tensors of its own files, which ``gpt_oss_files`` describes: all of a
layer in one tensor, as stock transformers and vLLM look for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from .._library import package_version
from ..weights.exchange import QuantizedWeight
from ..weights.scheme import Scheme
from .ct_float4 import encode_float4
from .gpt_oss_files import BLOCK, ROLES, ROWS
from .outline import Outline

_BLOCKS = Scheme.float4("e8m0", BLOCK)
_LINEAR = re.compile(r"(?P<owner>.*experts)\.(?P<expert>\d{1,6})\.(?P<linear>\w+)", re.ASCII)
_WHERE = {linear: (part, rows) for part, own in ROWS.items() for linear, rows in own.items()}
_KEPT = {role: what for what, role in ROLES.items()}  # role of a linear -> end of a name


def is_gpt_oss(
    outlines: Mapping[str, Outline], dense: Iterable[str], config: Mapping[str, Any]
) -> bool:
    """Whether the quantized layers of a model are all experts of gpt-oss and nothing else, in the
    blocks of its files.

    Args:
        outlines: layer -> its outline. dense: names of the linears that are dense.
        config: of the model, as config.json has it.
    """
    count, layers = config.get("num_local_experts"), config.get("num_hidden_layers")
    if config.get("model_type") != "gpt_oss" or not isinstance(count, int):
        return False
    found: dict[str, set[tuple[int, str]]] = {}
    for name, outline in outlines.items():
        match = _LINEAR.fullmatch(name)
        if match is None or match["linear"] not in _WHERE or not _fits(outline):
            return False
        found.setdefault(match["owner"], set()).add((int(match["expert"]), match["linear"]))
    whole = {(expert, linear) for expert in range(count) for linear in _WHERE}
    are_whole = len(found) == layers and all(x == whole for x in found.values())
    return are_whole and not any(map(_LINEAR.fullmatch, dense))


def _fits(outline: Outline) -> bool:
    """Whether a linear is in whole blocks of these files, which have a bias for each."""
    is_whole = outline.scheme == _BLOCKS and outline.shape[1] % BLOCK == 0
    return is_whole and outline.has_bias and outline.module == "linear" and not outline.has_more


class Stacks:
    """The tensors and the quantization_config of a gpt-oss, gathered expert by expert: what
    ``Groups`` is for compressed-tensors. Tensors of a layer are held until their last expert is in
    them.

    Args:
        outlines: of the layers that :func:`is_gpt_oss` tells of.
    """

    joins_experts = True

    def __init__(self, outlines: Mapping[str, Outline]) -> None:
        self._count = 1 + max(int(_match(name)["expert"]) for name in outlines)
        self._held: dict[str, Tensor] = {}
        self._left: dict[str, int] = {}  # name of a tensor -> linears that are not in it yet
        self.own: dict[str, str] = {}  # every reader of gpt-oss reads it

    def encode(self, weight: QuantizedWeight) -> Iterator[tuple[str, Tensor]]:
        """Give (name, tensor) of the stacked tensors that a layer is the last part of.

        Args:
            weight: of an expert's linear, by its name.

        Raises:
            ValueError: biases of experts are in several dtypes, for which one tensor has no place.
        """
        match = _match(weight.name)
        part, rows = _WHERE[match["linear"]]
        assert weight.bias is not None
        found = {**encode_float4(weight), "bias": weight.bias}
        for role, tensor in found.items():
            name = f"{match['owner']}.{part}_{_KEPT[role]}"
            stacked = self._stacked(name, part, tensor)
            if stacked.dtype != tensor.dtype:
                raise ValueError(
                    f"{weight.name}: its bias is {tensor.dtype}, and that of other experts "
                    f"{stacked.dtype}: files of gpt-oss have them in one tensor. Hint: "
                    "model.to(dtype) gives all of them one dtype"
                )
            stacked[int(match["expert"])][rows] = tensor.to(stacked.device)
            self._left[name] -= 1
            if not self._left[name]:
                whole = self._held.pop(name)
                if role == "weight_packed":
                    whole = whole.view(*whole.shape[:-1], -1, BLOCK // 2)
                yield name, whole

    def _stacked(self, name: str, part: str, of: Tensor) -> Tensor:
        """The tensor of all experts, made for the first of them.

        Args:
            name, part: of it. of: the part of one linear.
        """
        if name not in self._held:
            linears = len(ROWS[part])
            shape = (self._count, linears * of.shape[0], *of.shape[1:])
            self._held[name] = torch.empty(shape, dtype=of.dtype, device="cpu")
            self._left[name] = self._count * linears
        return self._held[name]

    def add(self, weight: QuantizedWeight, name: str, file_name: str = "") -> None:
        """Add nothing to the configuration, which knows no layers by name.

        Args:
            weight, name, file_name: of a layer.
        """

    def configuration(
        self,
        ignore: Iterable[str],
        own: bool = False,
        carried: Mapping[str, Any] | None = None,
        recipe: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Make the quantization_config of config.json.

        Args:
            ignore: linears that are dense. own, carried: nothing, as of ``written_as``.
            recipe: how the layers were quantized, as JSON has it.
        """
        return {
            "quant_method": "mxfp4",
            "modules_to_not_convert": sorted(ignore),
            # Other readers ignore this key; this library knows its own files by it.
            "mixed_gemm": {
                "version": package_version(),
                **({"recipe": dict(recipe)} if recipe else {}),
            },
        }


def _match(name: str) -> re.Match[str]:
    match = _LINEAR.fullmatch(name)
    assert match is not None
    return match
